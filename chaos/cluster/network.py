"""The network of a run: hosts, and a rule for each direction between two of them."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec
import trio

from chaos.cluster import namespaces
from chaos.cluster.rules import Counts, Rule
from chaos.cluster.wire import Answer, Change, Command

ROOT: Final = Path(__file__).parents[2]
CLIENTS: Final = "clients"
"""The host of all clients."""
_MTU: Final = 9_000
"""Few large packets: each one passes through a process in Python."""
Pair = tuple[str, str]


_HTTP_PORT: Final = 8080
_PEER_PORT: Final = 9400


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a host."""

    http: str
    """Where the node listens for clients."""
    peer: str
    """Where it listens for other nodes."""
    advertised: str
    """Where other nodes reach it."""
    for_clients: str
    """Where the clients of the run reach it."""
    environment: dict[str, str] = {}
    """Variables of its processes."""


class Network(Protocol):
    """What faults and clients need of a network."""

    def make_socket(self) -> socket.socket:
        """A socket of the clients' host."""
        ...

    def prefix(self, host: str) -> tuple[str, ...]:
        """The words before a command that is to run on a host."""
        ...

    def place(self, host: str) -> Place:
        """The addresses of a host."""
        ...

    async def set(self, rules: Mapping[Pair, Rule]) -> None:
        """Set the rules of some directions."""
        ...

    async def counts(self) -> dict[Pair, Counts]:
        """The packets of all directions since the start."""
        ...


class _Carried:
    """A network whose bytes or packets a process carries."""

    def __init__(self, names: Mapping[str, str], carrier: trio.Process) -> None:
        """`names` has the name of each host as the process knows it."""
        self._names: Final = names
        self._hosts: Final = {name: host for host, name in names.items()}
        self._carrier = carrier
        self._answers: Final = _Lines(carrier)
        self._turn = trio.Lock()

    async def set(self, rules: Mapping[Pair, Rule]) -> None:
        """Set the rules of some directions."""
        names = self._names
        await self._command(
            [
                Change(names[source], names[target], rules[source, target])
                for source, target in rules
            ]
        )

    async def counts(self) -> dict[Pair, Counts]:
        """The packets of all directions since the start."""
        answer = await self._command([])
        return {
            (self._hosts[each.source], self._hosts[each.target]): each.counts
            for each in answer.counts
        }

    async def ready(self) -> None:
        """Wait until the process carries."""
        line = await self._answers.next()
        assert line == b"ready", f"the process that carries did not start: {line!r}"

    async def _command(self, changes: Iterable[Change]) -> Answer:
        async with self._turn:
            assert self._carrier.stdin is not None
            line = msgspec.json.encode(Command(list(changes))) + b"\n"
            # Half a command would leave half a rule.
            with trio.CancelScope(shield=True):
                await self._carrier.stdin.send_all(line)
                answer = await self._answers.next()
        return msgspec.json.decode(answer, type=Answer)


class WireNetwork(_Carried):
    """A namespace for each host, and one process that carries all packets."""

    def __init__(self, run: str, hosts: Sequence[str], wire: trio.Process) -> None:
        super().__init__({host: f"{run}-{host}" for host in hosts}, wire)
        self._addresses: Final = addresses_of(hosts)

    def make_socket(self) -> socket.socket:
        """A socket of the clients' host."""
        return namespaces.make_socket(self._names[CLIENTS])

    def prefix(self, host: str) -> tuple[str, ...]:
        """The words before a command that is to run on a host."""
        return ("ip", "netns", "exec", self._names[host])

    def address(self, host: str) -> str:
        """The address of a host."""
        return self._addresses[host]

    def place(self, host: str) -> Place:
        """The addresses of a host."""
        http, peer = (f"{self._addresses[host]}:{port}" for port in (_HTTP_PORT, _PEER_PORT))
        return Place(http=http, peer=peer, advertised=peer, for_clients=http)

    async def connect(self) -> None:
        """Connect the namespaces, once the wire has its devices."""
        await self.ready()
        for host, name in self._names.items():
            device = namespaces.DEVICE
            await _ip(f"-n {name} addr add {self._addresses[host]}/24 dev {device}")
            await _ip(f"-n {name} link set {device} mtu {_MTU} up")


class RelayNetwork(_Carried):
    """Loopback for all hosts, and one process that carries the bytes of all connections.

    A host reaches another at an address of that pair, which is the relay's. Other nodes are known
    by names, which each node looks up in its own environment.
    """

    def __init__(self, hosts: Sequence[str], relay: trio.Process) -> None:
        super().__init__({host: host for host in hosts}, relay)
        self._numbers: Final = {host: number for number, host in enumerate(hosts, 1)}

    def make_socket(self) -> socket.socket:
        """A socket."""
        return socket.socket()

    def prefix(self, host: str) -> tuple[str, ...]:
        """Nothing: every command runs here."""
        del host
        return ()

    def place(self, host: str) -> Place:
        """The addresses of a host."""
        http, peer = ports_of(self._numbers[host])
        names = [f"{other}.chaos={_pair(self._numbers, host, other)}" for other in self._numbers]
        clients = _pair(self._numbers, CLIENTS, host)
        return Place(
            http=f"127.0.0.1:{http}",
            peer=f"127.0.0.1:{peer}",
            advertised=f"{host}.chaos:{peer}",
            for_clients=f"{clients}:{http}",
            environment={"CHAOS_NAMES": " ".join(names)},
        )


def _pair(numbers: Mapping[str, int], source: str, target: str) -> str:
    """The address at which one host reaches another through the relay."""
    return f"127.77.{numbers[source]}.{numbers[target]}"


def ports_of(number: int) -> tuple[int, int]:
    """Ports of a host where all hosts share the loopback address: for clients, and for nodes."""
    start = 20_000 + os.getpid() % 1_000 * 20
    return start + 2 * number, start + 2 * number + 1


class _Lines:
    """The lines that a process prints."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._rest = b""

    async def next(self) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            data = await self._process.stdout.receive_some()
            if not data:
                raise BrokenPipeError("the process that carries the packets has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line


class PlainNetwork:
    """A network that cannot be broken: that of a cluster of others."""

    def make_socket(self) -> socket.socket:
        """A socket."""
        return socket.socket()

    def prefix(self, host: str) -> tuple[str, ...]:
        """Nothing: every command runs here."""
        del host
        return ()

    def place(self, host: str) -> Place:
        """The addresses of a host, which the cluster knows by itself."""
        return Place(http=host, peer="", advertised="", for_clients=host)

    async def set(self, rules: Mapping[Pair, Rule]) -> None:
        """No rule can be set."""
        assert not rules, "this network cannot be broken"

    async def counts(self) -> dict[Pair, Counts]:
        """Nothing is counted."""
        return {}


def addresses_of(hosts: Sequence[str]) -> dict[str, str]:
    """An address for each host."""
    return {host: f"10.77.0.{number}" for number, host in enumerate(hosts, 1)}


async def _ip(words: str) -> None:
    await trio.run_process(["ip", *words.split()], capture_stderr=True)


@asynccontextmanager
async def open_network(run: str, hosts: Sequence[str], seed: str) -> AsyncIterator[WireNetwork]:
    """A network of namespaces. It is removed with the block. Raises `CalledProcessError`."""
    names = [f"{run}-{host}" for host in hosts]
    try:
        for name in names:
            await _ip(f"netns add {name}")
            await _ip(f"-n {name} link set lo up")
        told = addresses_of(hosts)
        words = [f"{run}-{host}={told[host]}" for host in hosts]
        async with _carrier("chaos.cluster.wire", seed, *words) as process:
            network = WireNetwork(run, hosts, process)
            await network.connect()
            yield network
    finally:
        with trio.CancelScope(shield=True):
            for name in names:
                if (namespaces.FOLDER / name).exists():
                    await _ip(f"netns delete {name}")


@asynccontextmanager
async def open_relay(hosts: Sequence[str], seed: str) -> AsyncIterator[RelayNetwork]:
    """A network of loopback addresses. It is removed with the block."""
    numbers = {host: number for number, host in enumerate(hosts, 1)}
    words = []
    for source in hosts:
        for target in hosts:
            if target in (source, CLIENTS):
                continue
            http, peer = ports_of(numbers[target])
            port = http if source == CLIENTS else peer
            place = _pair(numbers, source, target)
            words.append(f"{source}>{target}={place}=127.0.0.1:{port}")
    async with _carrier("chaos.cluster.relay", seed, *words) as process:
        network = RelayNetwork(hosts, process)
        await network.ready()
        yield network


@asynccontextmanager
async def _carrier(module: str, *words: str) -> AsyncIterator[trio.Process]:
    """A process that carries what hosts send each other, until the end of the block."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", module, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        # It must outlive a Ctrl-C at the terminal: the run still heals and drains.
        start_new_session=True,
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
