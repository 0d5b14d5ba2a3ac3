"""What is set for a whole queue, and its end.

A queue comes into being with its first job or its first setting. Clearing and deleting cost the
same whatever is in it: they mark the queue, jobs up to the mark are not there for anybody from then
on, and the leader's `Sweep` removes them little by little.
"""

from typing import Annotated, Final, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from corvo.model import Queue
from corvo.shard import presence
from corvo.shard.limits import RATE_MAX, counted_since_ns, forget_rows
from corvo.shard.ops.base import Limits, Millis, Name, Op, Rejected
from corvo.shard.ops.checks import bad_name
from corvo.shard.tables import QUEUES
from corvo.shard.tx import Tx

CONCURRENCY_MAX: Final = 1_000_000


class QueueDone(msgspec.Struct, frozen=True, gc=False):
    """What became of a queue."""

    queue: str
    status: str


class QueueOp(Op, frozen=True, kw_only=True):
    """An op on a queue."""

    queue: Name

    def check(self, limits: Limits) -> Rejected | None:
        """The queue has to have a name that can be one."""
        return bad_name("queue", self.queue)

    def apply(self, tx: Tx) -> QueueDone:
        """Do it."""
        return QueueDone(self.queue, self.change(tx))

    def change(self, tx: Tx) -> str:
        """Do it. Returns the status."""
        raise NotImplementedError


class _Settings(TypedDict, total=False):
    paused: bool
    draining: bool
    max_concurrency: int
    rate_limit: int
    rate_window_ms: int
    rate_since_ns: int
    retention_ms: int


def _set(tx: Tx, name: str, **settings: Unpack[_Settings]) -> None:
    """Write settings. Whatever was set, there may be more to give out than before."""
    presence.ensure_queue(tx, name)
    found = QUEUES.find(tx, name)
    assert found is not None
    after = replace(found.document, **settings)
    if after != found.document:
        QUEUES.change(tx, found, after)
        tx.touched[name] = None


# Whether it gives anything out.


class Pause(QueueOp, frozen=True, kw_only=True):
    """Give nothing out until it is resumed."""

    def change(self, tx: Tx) -> str:
        """Workers keep what they have."""
        _set(tx, self.queue, paused=True)
        return "paused"


class Resume(QueueOp, frozen=True, kw_only=True):
    """Give jobs out again."""

    def change(self, tx: Tx) -> str:
        """Whether it was paused or being drained."""
        _set(tx, self.queue, paused=False, draining=False)
        return "resumed"


class Drain(QueueOp, frozen=True, kw_only=True):
    """Give nothing out, so that at some time no job is active any more."""

    def change(self, tx: Tx) -> str:
        """A pause, and the intention."""
        _set(tx, self.queue, paused=True, draining=True)
        return "draining"


class SetConcurrency(QueueOp, frozen=True, kw_only=True):
    """Limit how many jobs may be active at a time; 0 is no limit."""

    max: Annotated[int, msgspec.Meta(ge=0)]

    def check(self, limits: Limits) -> Rejected | None:
        """A limit beyond the greatest is a mistake."""
        if self.max > CONCURRENCY_MAX:
            return Rejected("bad_request", f"max is at most {CONCURRENCY_MAX}", field="max")
        return super().check(limits)

    def change(self, tx: Tx) -> str:
        """A lower limit takes no job away from anybody."""
        _set(tx, self.queue, max_concurrency=self.max)
        return "ok"


class SetThrottle(QueueOp, frozen=True, kw_only=True):
    """Limit how many jobs may be fetched within any window of time."""

    rate: Annotated[int, msgspec.Meta(ge=1)]
    window_ms: Millis

    def check(self, limits: Limits) -> Rejected | None:
        """Each fetch of a window is remembered, so their number has a limit."""
        if self.rate > RATE_MAX:
            return Rejected(
                "bad_request",
                f"rate is at most {RATE_MAX}: take a smaller rate in a shorter window",
                field="rate",
            )
        if self.window_ms == 0:
            return Rejected("bad_request", "a window has at least 1 ms", field="window_ms")
        return super().check(limits)

    def change(self, tx: Tx) -> str:
        """What was fetched under the limit before, and is in its window, goes on counting."""
        before = presence.ensure_queue(tx, self.queue)
        _set(
            tx,
            self.queue,
            rate_limit=self.rate,
            rate_window_ms=self.window_ms,
            rate_since_ns=counted_since_ns(tx, before),
        )
        return "ok"


class RemoveThrottle(QueueOp, frozen=True, kw_only=True):
    """Let any number of jobs be fetched."""

    def change(self, tx: Tx) -> str:
        """The rows of the last window are removed by the leader."""
        _set(tx, self.queue, rate_limit=0, rate_window_ms=0)
        forget_rows(tx, self.queue)
        return "ok"


class SetRetention(QueueOp, frozen=True, kw_only=True):
    """Say how long finished jobs are kept; 0 is as long as the server keeps those of any queue."""

    retention_ms: Millis

    def change(self, tx: Tx) -> str:
        """Also for jobs that are finished already."""
        _set(tx, self.queue, retention_ms=self.retention_ms)
        return "ok"


# Its end.


class Clear(QueueOp, frozen=True, kw_only=True):
    """Remove the jobs that are pending, scheduled or retrying now."""

    def change(self, tx: Tx) -> str:
        """Whatever comes into the queue from here on has a place behind the mark."""
        found = QUEUES.find(tx, self.queue)
        if found is not None:
            QUEUES.change(tx, found, replace(found.document, cleared_ns=tx.order_ns))
        return "cleared"


class DeleteQueue(QueueOp, frozen=True, kw_only=True):
    """Remove all jobs of a queue, and what is set for it."""

    def change(self, tx: Tx) -> str:
        """What is left is the mark, and no time of birth: the queue is not there any more."""
        found = QUEUES.find(tx, self.queue)
        if found is not None:
            QUEUES.change(tx, found, Queue(name=self.queue, deleted_ns=tx.order_ns))
            forget_rows(tx, self.queue)
        return "deleted"
