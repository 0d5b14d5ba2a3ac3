"""Ops on jobs by their ids: retry, cancel, delete, hold, move and others.

Each op names some jobs and changes each by itself, in order: a refusal does not stop the others. An
op declares the states in which it takes a job.
"""

from typing import Annotated, ClassVar

import msgspec

from corvo.model import STATES, Priority, State
from corvo.protocol.ops.base import (
    ITEMS_MAX,
    Id,
    Limits,
    Name,
    Nanos,
    Rejected,
    Text,
    Token,
    TypedOp,
    bad_request,
)
from corvo.protocol.ops.checks import bad_name


class Done(msgspec.Struct, frozen=True, gc=False):
    """The result for a job."""

    job_id: str
    status: str


class JobResults(msgspec.Struct, frozen=True):
    """Results for the jobs, in their order."""

    results: list[Done | Rejected]


class JobsOp(TypedOp[JobResults], frozen=True, kw_only=True):
    """An op on jobs."""

    TAKES: ClassVar[tuple[State, ...]] = STATES
    """States in which a job is taken; it is refused in any other."""
    job_ids: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]
    unchanged_since_ns: Nanos = 0
    """A job with a later event, by the shard's clock, is refused; 0 is no condition."""
    scope: tuple[Name, ...] = ()
    """The queues that the caller may change, as `corvo.scopes.scope_of_stored` reads them: an empty
    list stands for every queue. The shard checks it, because a job that a bulk operation names may
    have moved since the operation was authorised."""


# Back to the queue.


class Retry(JobsOp, frozen=True, kw_only=True):
    """Make jobs pending with all their attempts; scheduled ones at once."""

    NUMBER = 7
    TAKES = (State.COMPLETED, State.DEAD, State.CANCELLED, State.SCHEDULED)


class Requeue(JobsOp, frozen=True, kw_only=True):
    """Make dead jobs pending for one more attempt."""

    NUMBER = 66
    TAKES = (State.DEAD,)


class Expedite(JobsOp, frozen=True, kw_only=True):
    """Make scheduled and retrying jobs pending now."""

    NUMBER = 80
    TAKES = (State.SCHEDULED, State.RETRYING)


# The end.


class Cancel(JobsOp, frozen=True, kw_only=True):
    """Cancel jobs. The worker of an active one is asked to stop, and may still complete it."""

    NUMBER = 8
    TAKES = (State.PENDING, State.SCHEDULED, State.RETRYING, State.HELD, State.ACTIVE)
    why: Text = ""


class Delete(JobsOp, frozen=True, kw_only=True):
    """Remove jobs with their errors. The lease of an active one ends without a notice."""

    NUMBER = 10


# Approval.


class Hold(JobsOp, frozen=True, kw_only=True):
    """Hold jobs for approval. The lease of an active one ends."""

    NUMBER = 67
    TAKES = (State.PENDING, State.SCHEDULED, State.RETRYING, State.ACTIVE)
    reason: Text = ""
    lease_token: Token | None = None  # token of the lease, from a worker that holds its own job

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse a token for several jobs."""
        if self.lease_token is not None and len(self.job_ids) != 1:
            return bad_request("lease_token", "lease_token: expected together with one job only")
        return None


class Approve(JobsOp, frozen=True, kw_only=True):
    """Make held jobs pending."""

    NUMBER = 68
    TAKES = (State.HELD,)


class Reject(JobsOp, frozen=True, kw_only=True):
    """Make held jobs dead."""

    NUMBER = 69
    TAKES = (State.HELD,)
    why: Text = ""


# Queue and priority.


class Move(JobsOp, frozen=True, kw_only=True):
    """Move jobs to another queue, in this shard or another."""

    NUMBER = 9
    queue: Name
    reset_attempts: bool = False

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse an invalid name of a queue."""
        return bad_name("queue", self.queue)


class ChangePriority(JobsOp, frozen=True, kw_only=True):
    """Change the priority of jobs; they keep their places."""

    NUMBER = 70
    TAKES = (State.PENDING, State.SCHEDULED, State.RETRYING, State.HELD)
    priority: Annotated[int, msgspec.Meta(ge=Priority.CRITICAL, le=Priority.NORMAL)]
