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
from chaos.cluster.rules import CLEAR, Counts, Rule
from chaos.cluster.wire import Answer, Change, Command

ROOT: Final = Path(__file__).parents[2]
CLIENTS: Final = "clients"
"""The host of all clients."""
_MTU: Final = 9_000
"""Few large packets: each one passes through a process in Python."""
Pair = tuple[str, str]


class Network(Protocol):
    """What faults and clients need of a network."""

    def make_socket(self) -> socket.socket:
        """A socket of the clients' host."""
        ...

    def prefix(self, host: str) -> tuple[str, ...]:
        """The words before a command that is to run on a host."""
        ...

    def address(self, host: str) -> str:
        """The address of a host."""
        ...

    async def set(self, rules: Mapping[Pair, Rule]) -> None:
        """Set the rules of some directions."""
        ...

    async def counts(self) -> dict[Pair, Counts]:
        """The packets of all directions since the start."""
        ...


class WireNetwork:
    """A namespace for each host, and one process that carries all packets."""

    def __init__(self, run: str, hosts: Sequence[str], wire: trio.Process) -> None:
        self._names: Final = {host: f"{run}-{host}" for host in hosts}
        self._hosts: Final = {name: host for host, name in self._names.items()}
        self._addresses: Final = addresses_of(hosts)
        self._wire = wire
        self._answers = _Lines(wire)
        self._turn = trio.Lock()

    def make_socket(self) -> socket.socket:
        """A socket of the clients' host."""
        return namespaces.make_socket(self._names[CLIENTS])

    def prefix(self, host: str) -> tuple[str, ...]:
        """The words before a command that is to run on a host."""
        return ("ip", "netns", "exec", self._names[host])

    def address(self, host: str) -> str:
        """The address of a host."""
        return self._addresses[host]

    async def set(self, rules: Mapping[Pair, Rule]) -> None:
        """Set the rules of some directions."""
        names = self._names
        await self._command(
            [
                Change(names[source], names[target], rules[source, target])
                for source, target in rules
            ]
        )

    async def heal(self) -> None:
        """Let every packet pass."""
        hosts = list(self._names)
        await self.set({(one, other): CLEAR for one in hosts for other in hosts if one != other})

    async def counts(self) -> dict[Pair, Counts]:
        """The packets of all directions since the start."""
        answer = await self._command([])
        return {
            (self._hosts[each.source], self._hosts[each.target]): each.counts
            for each in answer.counts
        }

    async def started(self) -> None:
        """Wait until the wire has its devices, and connect the namespaces to it."""
        line = await self._answers.next()
        assert line == b"ready", f"the wire did not start: {line!r}"
        for host, name in self._names.items():
            device = namespaces.DEVICE
            await _ip(f"-n {name} addr add {self._addresses[host]}/24 dev {device}")
            await _ip(f"-n {name} link set {device} mtu {_MTU} up")

    async def _command(self, changes: Iterable[Change]) -> Answer:
        async with self._turn:
            assert self._wire.stdin is not None
            line = msgspec.json.encode(Command(list(changes))) + b"\n"
            # Half a command would leave the wire with half a rule.
            with trio.CancelScope(shield=True):
                await self._wire.stdin.send_all(line)
                answer = await self._answers.next()
        return msgspec.json.decode(answer, type=Answer)


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
    """Loopback for all hosts, where no direction can be broken."""

    def make_socket(self) -> socket.socket:
        """A socket."""
        return socket.socket()

    def prefix(self, host: str) -> tuple[str, ...]:
        """Nothing: every command runs here."""
        del host
        return ()

    def address(self, host: str) -> str:
        """The address of a host."""
        del host
        return "127.0.0.1"

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
        # The process must outlive a Ctrl-C at the terminal: the run still heals and drains.
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "chaos.cluster.wire", seed, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
            env={"PATH": os.defpath, "PYTHONPATH": str(ROOT)},
        )
        try:
            network = WireNetwork(run, hosts, process)
            await network.started()
            yield network
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            for name in names:
                if (namespaces.FOLDER / name).exists():
                    await _ip(f"netns delete {name}")
