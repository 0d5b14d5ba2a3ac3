"""A network for nodes on one machine, of which each direction between two nodes can be cut.

Each node has a network namespace of its own, with an address on a bridge that is in yet another
one, so that nothing of the machine's own network is touched. A direction is cut by a wrong hardware
address for the other node: the packets leave, and reach nothing. So both ends see what they see of
a broken cable far away: no error and no reset, only silence.
"""

import ctypes
import os
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

_CLONE_NEWNET: Final = 0x40000000
_OWN: Final = Path("/proc/self/ns/net")
_NOWHERE: Final = "02:77:ff:ff:ff:ff"
_DEVICE: Final = "net0"


def is_possible() -> bool:
    """Whether this user may make network namespaces, and the machine has the command for it."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


class Place:
    """Where one node is in the network."""

    def __init__(self, name: str, number: int) -> None:
        self.name: Final = name
        self.address: Final = f"10.77.0.{number}"
        self.hardware: Final = f"02:77:00:00:00:{number:02x}"

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before a command that is to run there."""
        return ("/usr/bin/env", "ip", "netns", "exec", self.name)

    def make_socket(self) -> trio.socket.SocketType:
        """A socket of that place, for this process: it reaches what listens on loopback there."""
        own = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._enter()
            made = socket.socket()
            _set_namespace(own)
        finally:
            os.close(own)
        made.setblocking(False)
        return trio.socket.from_stdlib_socket(made)

    def _enter(self) -> None:
        there = os.open(f"/run/netns/{self.name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set_namespace(there)
        finally:
            os.close(there)


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Network:
    """The places, and what is cut between them."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places: Final = tuple(places)

    async def cut(self, source: Place, target: Place) -> None:
        """Let nothing from the one place reach the other; the way back is as it was."""
        await self._point(source, target, _NOWHERE)

    async def isolate(self, place: Place) -> None:
        """Cut one place off from all others, in both directions."""
        for other in self.places:
            if other is not place:
                await self.cut(place, other)
                await self.cut(other, place)

    async def heal(self) -> None:
        """Let everything reach everything."""
        for source in self.places:
            for target in self.places:
                if source is not target:
                    await self._point(source, target, target.hardware)

    async def _point(self, source: Place, target: Place, hardware: str) -> None:
        entry = f"{target.address} lladdr {hardware} nud permanent dev {_DEVICE}"
        await _ip(f"-n {source.name} neigh replace {entry}")


async def _ip(words: str) -> None:
    await trio.run_process(["ip", *words.split()])


@asynccontextmanager
async def network_of(count: int) -> AsyncIterator[Network]:
    """A network with so many places, from 1 on. It is removed with the block."""
    name = f"corvo-{os.getpid()}"
    places = [Place(f"{name}-{number}", number) for number in range(1, count + 1)]
    bridge = f"{name}-bridge"
    try:
        await _ip(f"netns add {bridge}")
        await _ip(f"-n {bridge} link add bridge0 type bridge")
        await _ip(f"-n {bridge} link set bridge0 up")
        for number, place in enumerate(places, 1):
            await _ip(f"netns add {place.name}")
            await _ip(f"-n {place.name} link set lo up")
            peer = f"peer name port{number} netns {bridge}"
            await _ip(
                f"-n {place.name} link add {_DEVICE} address {place.hardware} type veth {peer}"
            )
            await _ip(f"-n {bridge} link set port{number} master bridge0 up")
            await _ip(f"-n {place.name} addr add {place.address}/24 dev {_DEVICE}")
            await _ip(f"-n {place.name} link set {_DEVICE} up")
        network = Network(places)
        await network.heal()
        yield network
    finally:
        with trio.CancelScope(shield=True):
            for each in (*(place.name for place in places), bridge):
                if Path(f"/run/netns/{each}").exists():  # noqa: ASYNC240 -- a name in memory
                    await _ip(f"netns delete {each}")
