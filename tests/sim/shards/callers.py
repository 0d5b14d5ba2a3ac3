"""Who asks a shard for things: attempts, patience, another replica, the same request key again.

A `Caller` keeps a link to each replica, and asks the one that reports itself as leader in the
highest term, as a router does (`corvo.leader_reports`). Every attempt says in `by` which one it is,
so that what became of it can be found in the log.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from corvo.leader_reports import Report, leading
from corvo.protocol import wire
from tests.shard.shapes import Fields, text
from tests.sim.chance import fork
from tests.sim.options import TICK_NS
from tests.sim.shards.links import Link
from tests.sim.shards.words import NUMBERS

if TYPE_CHECKING:
    from tests.sim.shards.host import ReplicaHost
    from tests.sim.shards.world import ShardWorld

Then: TypeAlias = Callable[[Fields | None], None]
"""What to do with an answer; None when nobody will ever know."""

UNKNOWN: Final = "unknown"
_PATIENCE: Final = 30
"""Ticks after which a caller takes an attempt for lost; more for each attempt before, up to a bound
below that of a standstill: a replica that has left its group may never answer."""
_GROWTHS_MAX: Final = 4
_REOPEN_TICKS_MAX: Final = 16.0
"""Between two tries to open a link; the first one follows after a tick or two."""


class Told(Report):
    """The link to one replica, and what the replica reports."""

    def __init__(self, replica: int) -> None:
        super().__init__(replica)
        self.link: Link | None = None
        self.pause = 1.0
        """In ticks, before the link is opened again."""


class Call:
    """One request, however often it is tried."""

    def __init__(self, name: str, op: str, fields: Fields, then: Then, *, again: bool) -> None:
        self.name = name
        self.op = op
        self.fields = fields
        self.then = then
        self.again = again
        """Whether it may be tried again when nobody knows what became of an attempt."""
        self.attempts = 0
        self.began = 0


class Caller:
    """One client."""

    is_shard = False

    def __init__(self, world: "ShardWorld", name: str) -> None:
        self.world = world
        self.name = name
        self.random = fork(world.options.seed, f"client {name}")
        self.waits = 0
        """Requests that are not answered for good yet."""
        self._told: dict[int, Told] = {}
        self._waiting: dict[tuple[Link, int], tuple[Call, str, int]] = {}
        self._number = 0
        self._leader: Told | None = None
        self._term = 0

    # Asking.

    def call(self, op: str, fields: Fields, then: Then, *, again: bool = True) -> None:
        """Ask for an op until it is known what became of it."""
        self._number += 1
        call = Call(f"{self.name}.{self._number}", op, fields, then, again=again)
        call.began = self.world.now
        self.waits += 1
        self._attempt(call)

    def later(self, ticks: float, action: Callable[[], None]) -> None:
        """Do something after a while."""
        self.world.later(int(ticks * TICK_NS) + 1, action)

    def _attempt(self, call: Call) -> None:
        link = self.link()
        if link is None:
            self.later(1 + self.random.random(), partial(self._attempt, call))
            return
        call.attempts += 1
        tag = f"{call.name}.{call.attempts}"
        self._number += 1
        body = msgspec.json.encode({**call.fields, "by": tag})
        self._waiting[link, self._number] = (call, tag, self._term)
        self.world.history.asked(tag, call.op)
        link.send(wire.Submit(self._number, NUMBERS[call.op], body))
        growth = 1.5 ** min(call.attempts, _GROWTHS_MAX)
        patience = _PATIENCE * (0.5 + self.random.random()) * growth
        if self.world.is_chaos and self.world.options.has("impatience"):
            patience = self.random.choice((patience, self.random.random() * 4))
        self.later(patience, partial(self._give_up, link, self._number))

    def link(self) -> Link | None:
        """The link to the leader; None while none is known."""
        for replica in self.world.hosts:
            self.link_to(replica)
        return self._leader.link if self._leader is not None else None

    @property
    def open_links(self) -> list[Link]:
        """Those that are there, as far as the caller knows."""
        return [told.link for told in self._told.values() if told.link is not None]

    def link_to(self, replica: int) -> Link:
        """The link to one replica: opened now, unless it is there."""
        told = self._told.get(replica)
        if told is None:
            told = self._told[replica] = Told(replica)
        if told.link is None:
            told.link = self.open_link(self.world.host(replica))
            told.is_open = True
        return told.link

    def open_link(self, host: "ReplicaHost") -> Link:
        """A new connection."""
        link = Link(self.world, self, host, self.random, is_shard=self.is_shard)
        self.world.clients.links[link] = None
        return link

    # What comes back.

    def heard(self, link: Link, message: wire.Answer | wire.Push) -> None:
        """A message came."""
        told = self._told.get(link.host.replica)
        match message:
            case wire.Leading():
                if told is not None and told.link is link:
                    told.pause = 1.0
                    told.heard(message.leader, message.term)
                    self._choose()
            case wire.WorkAvailable():
                if told is not None and told is self._leader:
                    self.told(message.queues)
            case wire.KeysChanged() | wire.MapChanged():
                pass  # nobody here has a key, or looks for nodes
            case _:
                waiting = self._waiting.pop((link, message.id), None)
                if waiting is not None:
                    self._answered(link, *waiting, message)

    def _answered(self, link: Link, call: Call, tag: str, term: int, message: wire.Answer) -> None:
        history = self.world.history
        match message:
            case wire.NotLeader():
                history.refused(tag)
                told = self._told.get(link.host.replica)
                if told is not None and told.link is link and told.refused(term):
                    self._choose()
                pause = (0.5 + self.random.random()) * min(call.attempts, 8)
                self.later(pause, partial(self._attempt, call))
            case wire.Busy():
                history.refused(tag)
                self.later(message.retry_after_ms / 100, partial(self._attempt, call))
            case _ if message.code == UNKNOWN:
                self._unknown(call)
            case _:
                fields = msgspec.json.decode(message.body, type=Fields)
                history.replied(call, tag, message)
                if text(fields, "code") == "disk_full":
                    self.later(5 * self.random.random(), partial(self._attempt, call))
                else:
                    self._over(call, fields)

    def _choose(self) -> None:
        """Ask the replica that leads from now on."""
        best = leading(self._told.values())
        term = best.term if best is not None else 0
        if best is not self._leader or term != self._term:
            self._leader, self._term = best, term
            if best is not None:
                self.told(())

    def told(self, queues: tuple[str, ...]) -> None:
        """There may be work, in these queues or, with a new leader, in any."""

    def lost(self, link: Link) -> None:
        """A link broke: what was asked over it may have been done."""
        told = self._told.get(link.host.replica)
        if told is not None and told.link is link:
            told.link = None
            told.closed()
            self._choose()
            self.later(told.pause * (0.5 + self.random.random()), partial(self._reopen, told))
            told.pause = min(2 * told.pause, _REOPEN_TICKS_MAX)
        for key in [key for key in self._waiting if key[0] is link]:
            call, *_ = self._waiting.pop(key)
            self._unknown(call)

    def _reopen(self, told: Told) -> None:
        if not self.world.hosts[told.node].is_retired:
            self.link_to(told.node)

    def _give_up(self, link: Link, request: int) -> None:
        """It took too long: perhaps another replica knows better."""
        if (link, request) in self._waiting:
            self.world.counts["clients lost patience"] += 1
            link.break_off()

    def _unknown(self, call: Call) -> None:
        self.world.counts["outcomes unknown"] += 1
        if call.again:
            pause = (0.2 + 2 * self.random.random()) * min(call.attempts, 8)
            self.later(pause, partial(self._attempt, call))
        else:
            self._over(call, None)

    def _over(self, call: Call, fields: Fields | None) -> None:
        self.waits -= 1
        call.then(fields)
