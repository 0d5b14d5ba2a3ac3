"""The wire between hosts: a process that carries every packet, and loses or delays it as told.

    python -m chaos.cluster.wire SEED NAMESPACE=ADDRESS …

Each namespace has one network device, and this process holds the other end of each. So the network
of a run needs no support of the kernel for loss and delay, which many machines lack, and it counts
what it drops: a fault that had no effect is noticed. Commands arrive as JSON lines at stdin, and
each is answered with one line. The process ends when stdin closes, and its devices end with it.
"""

import heapq
import os
import select
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

import msgspec

from chaos.cluster.namespaces import open_tun
from chaos.cluster.rules import Counts, Direction, Rule

_PACKET_BYTES_MAX: Final = 65_535
_PACKETS_MAX: Final = 64
"""Packets of one device that are read in one go."""


class Change(msgspec.Struct, frozen=True):
    """The rule of a direction, by names of namespaces."""

    source: str
    target: str
    rule: Rule


class Command(msgspec.Struct, frozen=True):
    """Changes of rules; the answer has the counts."""

    changes: list[Change] = []


class Count(msgspec.Struct, frozen=True):
    """The counts of a direction."""

    source: str
    target: str
    counts: Counts


class Answer(msgspec.Struct, frozen=True):
    """What every command is answered with: the counts of all directions."""

    counts: list[Count]


class Wire:
    """The devices, and the packets that are under way."""

    def __init__(self, hosts: Mapping[str, str], seed: str) -> None:
        """`hosts` has the address of each namespace. Raises `OSError`."""
        self.devices: Final = {open_tun(name): name for name in hosts}
        by_name = {name: device for device, name in self.devices.items()}
        self._by_address = {
            socket.inet_aton(address): (by_name[name], name) for name, address in hosts.items()
        }
        self.directions: Final = {
            (source, target): Direction(Random(f"{seed} {source} {target}"))
            for source in hosts
            for target in hosts
            if source != target
        }
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._number = 0

    def read(self, device: int) -> None:
        """Carry the packets that a device has."""
        source = self.devices[device]
        for _ in range(_PACKETS_MAX):
            try:
                packet = os.read(device, _PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            # Of IPv4 the destination is in these bytes; anything else, such as the kernel's own
            # IPv6 greetings, is for none of the hosts.
            target = self._by_address.get(packet[16:20])
            if target is None or packet[0] >> 4 != 4:
                continue
            now = time.monotonic()
            for at in self.directions[source, target[1]].due(now, len(packet)):
                if at <= now:
                    _write(target[0], packet)
                else:
                    self._number += 1
                    heapq.heappush(self._waiting, (at, self._number, target[0], packet))

    def deliver(self) -> float | None:
        """Deliver the packets whose time has come; the milliseconds until the next one."""
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, device, packet = heapq.heappop(self._waiting)
            _write(device, packet)
        return (self._waiting[0][0] - now) * 1e3 + 0.5 if self._waiting else None

    def obey(self, command: Command) -> Answer:
        """Change rules, and tell the counts."""
        for change in command.changes:
            self.directions[change.source, change.target].rule = change.rule
        counts = [Count(*names, each.counts) for names, each in self.directions.items()]
        return Answer(counts)


def _write(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except OSError:
        # The device is down, or has no room: the packet is lost, as on any network.
        return


def serve(wire: Wire) -> None:
    """Carry packets until stdin closes."""
    poll = select.epoll()
    commands = sys.stdin.fileno()
    os.set_blocking(commands, False)
    poll.register(commands, select.EPOLLIN)
    for device in wire.devices:
        poll.register(device, select.EPOLLIN)
    rest = b""
    while True:
        wait = wire.deliver()
        for descriptor, _ in poll.poll(None if wait is None else wait / 1e3):
            if descriptor != commands:
                wire.read(descriptor)
                continue
            data = os.read(commands, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                answer = wire.obey(msgspec.json.decode(line, type=Command))
                sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
                sys.stdout.buffer.flush()


def main(arguments: Sequence[str]) -> int:
    """Carry packets between these hosts: the exit code."""
    seed, *hosts = arguments
    wire = Wire(dict(host.split("=", 1) for host in hosts), seed)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    serve(wire)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
