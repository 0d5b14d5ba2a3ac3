"""Ops on queues: pause, limits, retention, clear and delete.

A queue is created by its first job or setting. The cost of a clear or a deletion does not depend on
the number of jobs: the queue is marked, jobs up to the mark no longer exist for clients, and the
leader's `Sweep` removes them in bounded steps.
"""

from typing import Annotated, Final

import msgspec

from corvo.protocol.ops.base import Limits, Millis, Name, Rejected, TypedOp, bad_request
from corvo.protocol.ops.checks import bad_name

CONCURRENCY_MAX: Final = 1_000_000
RATE_MAX: Final = 100_000
"""Largest number of fetches in a window: each is a row, in memory while the queue is busy."""


class QueueDone(msgspec.Struct, frozen=True, gc=False):
    """The result for a queue."""

    queue: str
    status: str


class QueueOp(TypedOp[QueueDone], frozen=True, kw_only=True):
    """An op on a queue."""

    queue: Name

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse an invalid name of a queue."""
        return bad_name("queue", self.queue)


# Settings.


class Pause(QueueOp, frozen=True, kw_only=True):
    """Stop fetches from the queue until it is resumed."""

    NUMBER = 11


class Resume(QueueOp, frozen=True, kw_only=True):
    """Allow fetches again."""

    NUMBER = 12


class Drain(QueueOp, frozen=True, kw_only=True):
    """Stop fetches, until no job is active."""

    NUMBER = 71


class SetConcurrency(QueueOp, frozen=True, kw_only=True):
    """Limit the number of active jobs; 0 is no limit."""

    NUMBER = 15
    max: Annotated[int, msgspec.Meta(ge=0)]

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse a limit that is too large."""
        if self.max > CONCURRENCY_MAX:
            return bad_request("max", f"max: expected at most {CONCURRENCY_MAX}")
        return super().check(limits)


class SetThrottle(QueueOp, frozen=True, kw_only=True):
    """Limit the number of fetches in each window of time."""

    NUMBER = 16
    rate: Annotated[int, msgspec.Meta(ge=1)]
    window_ms: Millis

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse a rate that is too large: each fetch of a window is stored."""
        if self.rate > RATE_MAX:
            error = f"rate: expected at most {RATE_MAX}; use a smaller rate and a shorter window"
            return bad_request("rate", error)
        if self.window_ms == 0:
            return bad_request("window_ms", "window_ms: expected at least 1")
        return super().check(limits)


class RemoveThrottle(QueueOp, frozen=True, kw_only=True):
    """Remove the rate limit."""

    NUMBER = 17


class SetRetention(QueueOp, frozen=True, kw_only=True):
    """Set the retention of finished jobs; 0 is that of the server."""

    NUMBER = 72
    retention_ms: Millis


# Its end.


class Clear(QueueOp, frozen=True, kw_only=True):
    """Remove the jobs that are pending, scheduled or retrying now."""

    NUMBER = 13


class DeleteQueue(QueueOp, frozen=True, kw_only=True):
    """Remove a queue with its jobs and settings."""

    NUMBER = 14
