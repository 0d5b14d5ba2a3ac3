"""Links to all replicas of a shard, as `corvo.shard_links` keeps them."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from corvo.connections import PeerAddress
from corvo.leader_reports import Report, leading, named
from corvo.protocol import wire
from corvo.topology import refusal_of
from tests.sim.options import TICK_NS
from tests.sim.shards.links import Link

if TYPE_CHECKING:
    from tests.sim.clusters.machine import Machine

Then: TypeAlias = Callable[[wire.Answer | None], None]
"""Takes an answer; None when the link was lost before it came."""

_DROP_TICKS: Final = 100
_REOPEN_TICKS_MAX: Final = 16.0
_PATIENCE_TICKS: Final = 40


class Port:
    """Where a machine takes connections for one of its shards."""

    def __init__(self, machine: "Machine", shard: int, expected: str) -> None:
        self.machine = machine
        self.shard = shard
        self._expected = expected
        """The data directory that the client expects; empty for any."""

    @property
    def replica(self) -> int:
        """The number of the node."""
        return self.machine.number

    def link_began(self, link: Link) -> None:
        """A client comes, and may be refused."""
        assert isinstance(link, PeerLink)
        process = self.machine.processes.get(self.shard)
        if process is None or self.machine.is_paused:
            link.break_off()
            return
        if not self.machine.welcomes(link.source, expected=self._expected):
            self.machine.world.counts["links refused"] += 1
            link.break_off()
            return
        process.link_began(link)

    def link_brought(self, link: Link, message: wire.Request) -> None:
        """A client asks for something."""
        process = self.machine.processes.get(self.shard)
        if process is not None and isinstance(link, PeerLink):
            self.machine.act(partial(process.hear, link, message))

    def link_ended(self, link: Link) -> None:
        """A client is gone."""
        process = self.machine.processes.get(self.shard)
        if process is not None and isinstance(link, PeerLink):
            process.left(link)


class PeerLink(Link):
    """A connection from one machine to another, or within one."""

    def __init__(
        self, source: "Machine", listener: "Linked", port: Port, *, is_shard: bool
    ) -> None:
        self.source = source
        self.port = port
        super().__init__(source.world, listener, port, source.world.dice, is_shard=is_shard)

    def _travel(self, way: str, arrive: Callable[[], None]) -> None:
        if self.source.world.is_cut(self.source.id, self.port.machine.id):
            self.break_off()
        else:
            super()._travel(way, arrive)


class Told(Report):
    """The link to one replica, and what it reports."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.link: PeerLink | None = None
        self.pause = 1.0


class Linked:
    """The links of one process to one shard."""

    def __init__(
        self,
        machine: "Machine",
        shard: int,
        *,
        is_shard: bool = False,
        changed: Callable[[], None] = lambda: None,
        pushed: Callable[[wire.Push], None] = lambda _: None,
    ) -> None:
        self._machine = machine
        self._shard = shard
        self._is_shard = is_shard
        self._changed = changed
        self._pushed = pushed
        self._told: dict[int, Told] = {}
        self._waiting: dict[tuple[Link, int], Then] = {}
        self._last = 0
        self._best: Told | None = None
        self._term = 0

    @property
    def is_led(self) -> bool:
        """Whether there is a link to the leader."""
        return self._best is not None

    @property
    def term(self) -> int:
        """The term of the leader; 0 while none is known."""
        return self._term

    def refresh(self) -> None:
        """Open a link to each replica that the map names, and to the leader; drop others."""
        topology, machine = self._machine.topology, self._machine
        wanted = {route.node for route in topology.routes(self._shard)}
        leader = named(self._told.values())
        if leader is not None and topology.route(self._shard, leader) is not None:
            wanted.add(leader)
        for node in sorted(wanted):
            self._open(self._told.setdefault(node, Told(node)))
        for node in sorted(self._told.keys() - wanted):
            told = self._told.pop(node)
            if told.link is not None:
                machine.do(_DROP_TICKS * TICK_NS, told.link.break_off)
        self._choose()

    def _open(self, told: Told) -> None:
        if told.link is not None:
            return
        route = self._machine.topology.route(self._shard, told.node)
        if route is None:
            return
        expected = ""
        machine = self._machine
        if isinstance(route.address, PeerAddress):
            expected = route.address.instance
            machine = self._machine.world.machine_at(route.address.host)
        port = Port(machine, self._shard, expected)
        told.link = PeerLink(self._machine, self, port, is_shard=self._is_shard)
        self._machine.world.links[told.link] = None

    def close(self) -> None:
        """The process ends."""
        for told in self._told.values():
            if told.link is not None:
                told.link.break_off()

    def request(self, make: Callable[[int], wire.Request], then: Then) -> bool:
        """Ask the leader; False when none is known."""
        best = self._best
        if best is None or best.link is None:
            return False
        link, term = best.link, self._term

        def answered(answer: wire.Answer | None) -> None:
            if isinstance(answer, wire.NotLeader) and best.link is link and best.refused(term):
                self._choose()
            then(answer)

        self._send(link, make, answered)
        return True

    def request_each(self, make: Callable[[int], wire.Request], then: Then) -> None:
        """Ask all replicas that can be reached."""
        for told in list(self._told.values()):
            if told.is_open and told.link is not None:
                self._send(told.link, make, then)

    def _send(self, link: PeerLink, make: Callable[[int], wire.Request], then: Then) -> None:
        self._last += 1
        number = self._last
        self._waiting[link, number] = then
        link.send(make(number))
        self._machine.do(_PATIENCE_TICKS * TICK_NS, partial(self._give_up, link, number))

    def _give_up(self, link: PeerLink, number: int) -> None:
        if (link, number) in self._waiting:
            link.break_off()

    def heard(self, link: Link, message: wire.Answer | wire.Push) -> None:
        """A message came."""
        self._machine.act(partial(self._heard, link, message))

    def _heard(self, link: Link, message: wire.Answer | wire.Push) -> None:
        told = next((each for each in self._told.values() if each.link is link), None)
        if not isinstance(message, wire.Push):
            then = self._waiting.pop((link, message.id), None)
            if then is not None:
                then(message)
        elif isinstance(message, wire.Leading):
            if told is not None:
                told.is_open, told.pause = True, 1.0
                told.heard(message.leader, message.term)
                self._choose()
                self.refresh()
        elif told is not None and told is self._best:
            self._pushed(message)

    def lost(self, link: Link) -> None:
        """A link broke."""
        for told in self._told.values():
            if told.link is link:
                told.link = None
                told.closed()
                self._machine.do(int(told.pause * TICK_NS), partial(self._reopen, told))
                told.pause = min(2 * told.pause, _REOPEN_TICKS_MAX)
        for key in [key for key in self._waiting if key[0] is link]:
            self._waiting.pop(key)(None)
        self._choose()

    def _reopen(self, told: Told) -> None:
        if self._told.get(told.node) is told:
            self._open(told)

    def _choose(self) -> None:
        best = leading(self._told.values())
        term = best.term if best is not None else 0
        if best is not self._best or term != self._term:
            self._best, self._term = best, term
            self._changed()


def welcomes(here: "Machine", source: "Machine", *, expected: str) -> bool:
    """Whether a node accepts a connection of another one, and is the one that was meant."""
    if here is source:
        return True
    if expected and here.directory.instance != expected:
        return False
    known = here.topology.map
    return not refusal_of(known, source.number, source.directory.instance)
