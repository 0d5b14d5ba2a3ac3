"""What is done with jobs by their ids: by people, programs, and whoever answers for them.

Each op names some jobs and does each by itself, in order: one that is refused does not hold up the
others. An op is the states that it takes a job from, and what becomes of it.
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
)
from corvo.protocol.ops.checks import bad_name


class Done(msgspec.Struct, frozen=True, gc=False):
    """What became of a job."""

    job_id: str
    status: str


class JobResults(msgspec.Struct, frozen=True):
    """One for each job, in order."""

    results: list[Done | Rejected]


class JobsOp(TypedOp[JobResults], frozen=True, kw_only=True):
    """An op on jobs."""

    TAKES: ClassVar[tuple[State, ...]] = STATES
    """The states that a job may be in; from any other it is refused."""
    job_ids: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]
    unchanged_since_ns: Nanos = 0
    """By the shard's own time: a job to which anything happened later is left alone. 0 is no such
    condition."""
    scope: tuple[Name, ...] = ()
    """The queues that the caller may change, as `corvo.scopes.scope_of_stored` reads them: an empty
    list stands for every queue. The shard checks it, because a job that a bulk operation names may
    have moved since the operation was authorised."""


# Back to the queue.


class Retry(JobsOp, frozen=True, kw_only=True):
    """Begin jobs anew, as if they had never been tried; or do not wait for their time."""

    TAKES = (State.COMPLETED, State.DEAD, State.CANCELLED, State.SCHEDULED)


class Requeue(JobsOp, frozen=True, kw_only=True):
    """Give dead jobs one more attempt."""

    TAKES = (State.DEAD,)


class Expedite(JobsOp, frozen=True, kw_only=True):
    """Do not let jobs wait for their time: what is scheduled or to be retried is due now."""

    TAKES = (State.SCHEDULED, State.RETRYING)


# The end.


class Cancel(JobsOp, frozen=True, kw_only=True):
    """Give jobs up. A worker that has one is asked to stop, and may still complete it."""

    TAKES = (State.PENDING, State.SCHEDULED, State.RETRYING, State.HELD, State.ACTIVE)
    why: Text = ""


class Delete(JobsOp, frozen=True, kw_only=True):
    """Remove jobs and everything that is kept of them. A worker that has one is not told."""


# Somebody's word.


class Hold(JobsOp, frozen=True, kw_only=True):
    """Let jobs wait until somebody approves or rejects them. A worker that has one loses it."""

    TAKES = (State.PENDING, State.SCHEDULED, State.RETRYING, State.ACTIVE)
    reason: Text = ""
    lease_token: Token | None = None
    """Of a worker that holds its own job."""

    def check(self, limits: Limits) -> Rejected | None:
        """A token is one job's."""
        if self.lease_token is not None and len(self.job_ids) != 1:
            return Rejected(
                "bad_request", "a lease token goes with one job only", field="lease_token"
            )
        return None


class Approve(JobsOp, frozen=True, kw_only=True):
    """Let held jobs be worked on."""

    TAKES = (State.HELD,)


class Reject(JobsOp, frozen=True, kw_only=True):
    """Let held jobs die."""

    TAKES = (State.HELD,)
    why: Text = ""


# Elsewhere, and sooner or later.


class Move(JobsOp, frozen=True, kw_only=True):
    """Bring jobs to another queue, in whichever shard that is."""

    queue: Name
    reset_attempts: bool = False

    def check(self, limits: Limits) -> Rejected | None:
        """The queue has to have a name that can be one."""
        return bad_name("queue", self.queue)


class ChangePriority(JobsOp, frozen=True, kw_only=True):
    """Give jobs another priority; among those that have it they keep their place."""

    TAKES = (State.PENDING, State.SCHEDULED, State.RETRYING, State.HELD)
    priority: Annotated[int, msgspec.Meta(ge=Priority.CRITICAL, le=Priority.NORMAL)]
