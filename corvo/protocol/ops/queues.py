"""What is set for a whole queue, and its end.

A queue comes into being with its first job or its first setting. Clearing and deleting cost the
same whatever is in it: they mark the queue, jobs up to the mark are not there for anybody from then
on, and the leader's `Sweep` removes them little by little.
"""

from typing import Annotated, Final

import msgspec

from corvo.protocol.ops.base import Limits, Millis, Name, Rejected, TypedOp
from corvo.protocol.ops.checks import bad_name

CONCURRENCY_MAX: Final = 1_000_000
RATE_MAX: Final = 100_000
"""Fetches that one window may have: each is a row, and in memory while the queue is busy."""


class QueueDone(msgspec.Struct, frozen=True, gc=False):
    """What became of a queue."""

    queue: str
    status: str


class QueueOp(TypedOp[QueueDone], frozen=True, kw_only=True):
    """An op on a queue."""

    queue: Name

    def check(self, limits: Limits) -> Rejected | None:
        """The queue has to have a name that can be one."""
        return bad_name("queue", self.queue)


# Whether it gives anything out.


class Pause(QueueOp, frozen=True, kw_only=True):
    """Give nothing out until it is resumed."""


class Resume(QueueOp, frozen=True, kw_only=True):
    """Give jobs out again."""


class Drain(QueueOp, frozen=True, kw_only=True):
    """Give nothing out, so that at some time no job is active any more."""


class SetConcurrency(QueueOp, frozen=True, kw_only=True):
    """Limit how many jobs may be active at a time; 0 is no limit."""

    max: Annotated[int, msgspec.Meta(ge=0)]

    def check(self, limits: Limits) -> Rejected | None:
        """A limit beyond the greatest is a mistake."""
        if self.max > CONCURRENCY_MAX:
            return Rejected("bad_request", f"max is at most {CONCURRENCY_MAX}", field="max")
        return super().check(limits)


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


class RemoveThrottle(QueueOp, frozen=True, kw_only=True):
    """Let any number of jobs be fetched."""


class SetRetention(QueueOp, frozen=True, kw_only=True):
    """Say how long finished jobs are kept; 0 is as long as the server keeps those of any queue."""

    retention_ms: Millis


# Its end.


class Clear(QueueOp, frozen=True, kw_only=True):
    """Remove the jobs that are pending, scheduled or retrying now."""


class DeleteQueue(QueueOp, frozen=True, kw_only=True):
    """Remove all jobs of a queue, and what is set for it."""
