"""Who asks a shard for things: attempts, patience, another replica, the same request key again.

A `Caller` keeps a link to each replica it has spoken to and follows the leader, as a router does.
Every attempt says in `by` which one it is, so that what became of it can be found in the log.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

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
        self._links: dict[int, Link] = {}
        self._waiting: dict[tuple[Link, int], tuple[Call, str]] = {}
        self._number = 0
        self._target: int | None = None
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
        call.attempts += 1
        link = self.link()
        tag = f"{call.name}.{call.attempts}"
        self._number += 1
        body = msgspec.json.encode({**call.fields, "by": tag})
        self._waiting[link, self._number] = (call, tag)
        self.world.history.asked(tag, call.op)
        link.send(wire.Submit(self._number, NUMBERS[call.op], body))
        growth = 1.5 ** min(call.attempts, _GROWTHS_MAX)
        patience = _PATIENCE * (0.5 + self.random.random()) * growth
        if self.world.is_chaos and self.world.options.has("impatience"):
            patience = self.random.choice((patience, self.random.random() * 4))
        self.later(patience, partial(self._give_up, link, self._number))

    def link(self) -> Link:
        """The link to whoever is thought to lead."""
        target = self._target
        if target is None:
            target = self.random.choice(list(self.world.hosts))
            self._target = target
        link = self._links.get(target)
        if link is None:
            link = self._links[target] = self.open_link(self.world.host(target))
        return link

    def open_link(self, host: "ReplicaHost") -> Link:
        """A new connection."""
        link = Link(self.world, self, host, self.random, is_shard=self.is_shard)
        self.world.clients.links[link] = None
        return link

    # What comes back.

    def heard(self, link: Link, message: wire.Answer | wire.Push) -> None:
        """A message came."""
        match message:
            case wire.Leading():
                self._follow(message)
            case wire.WorkAvailable():
                self.told(message.queues)
            case wire.KeysChanged() | wire.MapChanged():
                pass  # nobody here has a key, or looks for nodes
            case _:
                waiting = self._waiting.pop((link, message.id), None)
                if waiting is not None:
                    self._answered(*waiting, message)

    def _answered(self, call: Call, tag: str, message: wire.Answer) -> None:
        history = self.world.history
        match message:
            case wire.NotLeader():
                history.refused(tag)
                self._target = message.leader
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

    def _follow(self, message: wire.Leading) -> None:
        if message.leader is None or message.term < self._term:
            return
        has_changed = (message.leader, message.term) != (self._target, self._term)
        self._target, self._term = message.leader, message.term
        if has_changed:
            self.told(())

    def told(self, queues: tuple[str, ...]) -> None:
        """There may be work, in these queues or, with a new leader, in any."""

    def lost(self, link: Link) -> None:
        """A link broke: what was asked over it may have been done."""
        self._drop(link)
        self.later(self.random.random(), partial(self.told, ()))

    def _drop(self, link: Link) -> None:
        if self._links.get(link.host.replica) is link:
            del self._links[link.host.replica]
        if self._target == link.host.replica:
            self._target = None
        for key in [key for key in self._waiting if key[0] is link]:
            call, _ = self._waiting.pop(key)
            self._unknown(call)

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
