"""What is done with jobs by their ids: by people, programs, and whoever answers for them.

Each op names some jobs and does each by itself, in order: one that is refused does not hold up the
others. An op is the states that it takes a job from, and what becomes of it.
"""

from itertools import groupby
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec.structs import replace

from corvo.kv.tables import Held
from corvo.model import STATES, EventType, Job, Priority, State
from corvo.scopes import is_reserved, scope_of_stored
from corvo.shard import lifecycle, presence
from corvo.shard.ops import transfer
from corvo.shard.ops.base import (
    ITEMS_MAX,
    Id,
    Limits,
    Name,
    Nanos,
    Op,
    Rejected,
    Text,
    Token,
    encode_json,
    left_out,
)
from corvo.shard.ops.checks import bad_name
from corvo.shard.tables import JOBS
from corvo.shard.tx import Tx


class Done(msgspec.Struct, frozen=True, gc=False):
    """What became of a job."""

    job_id: str
    status: str


class JobResults(msgspec.Struct, frozen=True):
    """One for each job, in order."""

    results: list[Done | Rejected]


class _Run(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What is kept of answers that are the same for jobs in a row."""

    count: int
    status: str = ""
    refused: Rejected | None = None


_decode_runs: Final = msgspec.json.Decoder(list[_Run]).decode


class JobsOp(Op, frozen=True, kw_only=True):
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

    def apply(self, tx: Tx) -> JobResults:
        """Do it to one after the other."""
        return JobResults(
            [left_out(it) if tx.is_full else self._each(tx, it) for it in self.job_ids]
        )

    def _each(self, tx: Tx, job_id: str) -> Done | Rejected:
        found = presence.find(tx, job_id)
        if found is None:
            return lifecycle.missing(tx, job_id)
        if not scope_of_stored(self.scope).covers(found.document.queue):
            return lifecycle.not_yours(found.document)
        since_ns = self.unchanged_since_ns
        if since_ns and _changed_ns(found.document) > since_ns:
            return _changed_since(found.document)
        if found.document.state not in self.TAKES:
            return self._bad_state(found.document)
        done = self.change(tx, found)
        return done if isinstance(done, Rejected) else Done(job_id, done)

    def _bad_state(self, job: Job) -> Rejected:
        takes = ", ".join(state.value for state in self.TAKES)
        return Rejected(
            "bad_state",
            f"job {job.id} is {job.state.value}: {type(self).__name__} takes jobs that are {takes}",
            job_id=job.id,
        )

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """Do it to one job, which is in one of the states. Returns the status."""
        raise NotImplementedError

    def keep(self, result: msgspec.Struct) -> bytes:
        """Of a bulk operation, which comes in many pieces, what takes little room."""
        if not self.unchanged_since_ns:
            return super().keep(result)
        assert isinstance(result, JobResults)
        said = groupby(
            _Run(1, one.status) if isinstance(one, Done) else _Run(1, refused=one)
            for one in result.results
        )
        return encode_json([replace(run, count=len([*all_])) for run, all_ in said])

    def again(self, tx: Tx, kept: bytes) -> bytes:
        """The same answer as before."""
        if not self.unchanged_since_ns:
            return super().again(tx, kept)
        said = [run for run in _decode_runs(kept) for _ in range(run.count)]
        return encode_json(
            JobResults(
                [
                    Done(job_id, run.status) if run.refused is None else run.refused
                    for job_id, run in zip(self.job_ids, said, strict=True)
                ]
            )
        )


def _changed_ns(job: Job) -> int:
    """When something happened to a job last. A heartbeat is no event."""
    return job.trail[-1].at_ns if job.trail else job.created_ns


def _changed_since(job: Job) -> Rejected:
    last = job.trail[-1].what if job.trail else EventType.ENQUEUED.stored
    return Rejected(
        "changed_since",
        f"job {job.id} is {job.state.value}: something happened to it since then ({last})",
        job_id=job.id,
    )


# Back to the queue.


class Retry(JobsOp, frozen=True, kw_only=True):
    """Begin jobs anew, as if they had never been tried; or do not wait for their time."""

    TAKES = (State.COMPLETED, State.DEAD, State.CANCELLED, State.SCHEDULED)

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """The attempts are counted from the beginning."""
        return _back_to_queue(tx, found, EventType.RETRIED, attempt=0, crashes=0)


class Requeue(JobsOp, frozen=True, kw_only=True):
    """Give dead jobs one more attempt."""

    TAKES = (State.DEAD,)

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """The attempts that it had still count."""
        job = found.document
        return _back_to_queue(
            tx, found, EventType.REQUEUED, attempt=job.attempt, crashes=job.crashes
        )


class Expedite(JobsOp, frozen=True, kw_only=True):
    """Do not let jobs wait for their time: what is scheduled or to be retried is due now."""

    TAKES = (State.SCHEDULED, State.RETRYING)

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """As if its time had come."""
        return lifecycle.promote(tx, found).state.word


def _back_to_queue(
    tx: Tx, found: Held[Job], what: EventType, *, attempt: int, crashes: int
) -> str | Rejected:
    """The job waits at the end of its queue, with its unique lock, if that is to be had."""
    job = found.document
    if job.unique_key:
        refused = transfer.take_lock(tx, job, job.queue)
        if refused is not None:
            return refused
    return lifecycle.make_pending(
        tx,
        found,
        what=what,
        attempt=attempt,
        crashes=crashes,
        unique_until_ns=lifecycle.locked_until_ns(tx, job),
    ).state.value


# The end.


class Cancel(JobsOp, frozen=True, kw_only=True):
    """Give jobs up. A worker that has one is asked to stop, and may still complete it."""

    TAKES = (State.PENDING, State.SCHEDULED, State.RETRYING, State.HELD, State.ACTIVE)

    why: Text = ""

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """Cancelled at once, unless a worker has it."""
        job = found.document
        if job.state is not State.ACTIVE:
            lifecycle.finish(tx, found, State.CANCELLED, what=EventType.CANCELLED, why=self.why)
            return "cancelled"
        if not job.cancel_requested:
            trail = presence.trail(tx, job, EventType.ASKED_TO_STOP, self.why)
            JOBS.change(tx, found, replace(job, cancel_requested=True, trail=trail))
        return "cancelling"


class Delete(JobsOp, frozen=True, kw_only=True):
    """Remove jobs and everything that is kept of them. A worker that has one is not told."""

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """It is gone."""
        lifecycle.remove(tx, found)
        return "deleted"


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

    def _each(self, tx: Tx, job_id: str) -> Done | Rejected:
        if self.lease_token is not None:
            found = lifecycle.holder(tx, job_id, self.lease_token)
            if isinstance(found, Rejected):
                return found
        return super()._each(tx, job_id)

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """Nobody has it any longer."""
        return lifecycle.hold(tx, found, reason=self.reason).state.value


class Approve(JobsOp, frozen=True, kw_only=True):
    """Let held jobs be worked on."""

    TAKES = (State.HELD,)

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """It waits at the end of its queue."""
        return lifecycle.make_pending(tx, found, what=EventType.APPROVED, crashes=0).state.value


class Reject(JobsOp, frozen=True, kw_only=True):
    """Let held jobs die."""

    TAKES = (State.HELD,)

    why: Text = ""

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """It is dead."""
        return lifecycle.finish(
            tx, found, State.DEAD, what=EventType.REJECTED, why=self.why
        ).state.value


# Elsewhere, and sooner or later.


class Move(JobsOp, frozen=True, kw_only=True):
    """Bring jobs to another queue, in whichever shard that is."""

    queue: Name
    reset_attempts: bool = False

    def check(self, limits: Limits) -> Rejected | None:
        """The queue has to have a name that can be one."""
        return bad_name("queue", self.queue)

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """It is in the other queue, or on its way. The server's own work stays where it is."""
        if is_reserved(found.document.queue):
            return lifecycle.not_yours(found.document)
        refused = transfer.move(tx, found, self.queue, reset_attempts=self.reset_attempts)
        return refused if refused is not None else "moved"


class ChangePriority(JobsOp, frozen=True, kw_only=True):
    """Give jobs another priority; among those that have it they keep their place."""

    TAKES = (State.PENDING, State.SCHEDULED, State.RETRYING, State.HELD)

    priority: Annotated[int, msgspec.Meta(ge=Priority.CRITICAL, le=Priority.NORMAL)]

    def change(self, tx: Tx, found: Held[Job]) -> str | Rejected:
        """Its place is the same."""
        job = found.document
        trail = presence.trail(
            tx, job, EventType.PRIORITY, f"from {job.priority} to {self.priority}"
        )
        JOBS.change(tx, found, replace(job, priority=self.priority, trail=trail))
        return job.state.value
