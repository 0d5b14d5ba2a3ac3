"""Changes of a job's state: every one goes through a function of this module.

Each function takes the job as it was found and writes the changed document; the table derives the
rest. All ends go through `finish`, so the effects of an end are applied in one place.
"""

from typing import Final, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from corvo import backoff
from corvo.kv import keys
from corvo.kv.keys import parse_unique_value
from corvo.kv.tables import Held
from corvo.model import FINISHED, Agent, EventType, Job, JobError, Settled, State
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.reasons import CRASH_LOOP, EXPIRED, NO_ATTEMPTS_LEFT, NOT_RETRYABLE, STOPPED
from corvo.scopes import is_reserved
from corvo.shard.state import consequences
from corvo.shard.state.presence import find, trail
from corvo.shard.state.tables import FORWARDS, JOBS, QUEUES, queue_keys
from corvo.shard.state.tx import Tx
from corvo.times import MS, format_duration, format_time

_ACTIVE: Final = State.ACTIVE
_COMPLETED: Final = State.COMPLETED
_DEAD: Final = State.DEAD
_PENDING: Final = State.PENDING
_SCHEDULED: Final = State.SCHEDULED

ERRORS_MAX: Final = 20
"""Number of errors kept of each job: the last ones."""
RUN_TOO_LONG: Final = "max_run_time exceeded"
SWEPT: Final = "cleared, or deleted with its queue"
"""Reason of a job that is removed by a clear or by the deletion of its queue."""


# Leases.


def lease(tx: Tx, job: Job, *, worker_id: str, hostname: str, lease_ms: int) -> Job:
    """The job as it is when a worker has fetched it."""
    now_ns = tx.now_ns
    return replace(
        job,
        state=_ACTIVE,
        attempt=job.attempt + 1,
        lease_token=max(tx.token, job.lease_token + 1),
        lease_ms=lease_ms,
        lease_expires_ns=now_ns + lease_ms * MS,
        run_expires_ns=now_ns + job.max_run_time_ms * MS if job.max_run_time_ms else 0,
        worker_id=worker_id,
        hostname=hostname,
        started_ns=now_ns,
        trail=trail(tx, job, EventType.STARTED),
    )


def is_over(tx: Tx, job: Job) -> bool:
    """Whether an active job's lease has ended, reclaimed already or not.

    Heartbeats may be lost when the leader changes. A lease that had not ended before the change
    holds until the end of the new leader's time of grace.
    """
    expires_ns = job.lease_expires_ns
    if tx.now_ns < expires_ns:
        return False
    return not (expires_ns > tx.grace.since_ns and tx.now_ns < tx.grace.until_ns)


def has_run_too_long(tx: Tx, job: Job) -> bool:
    """Whether an active job has used up the time for one run."""
    return 0 < job.run_expires_ns <= tx.now_ns


def holder(
    tx: Tx, job_id: str, token: int | None, worker_id: str = "", *, is_own: bool = False
) -> Held[Job] | Rejected:
    """The active job that an op of a worker names, if the worker holds its lease.

    Tokens are no secrets, so an op of a worker is never applied to the server's own jobs.
    """
    found = find(tx, job_id)
    if found is None:
        return missing(tx, job_id)
    job = found.document
    if not is_own and is_reserved(job.queue):
        return not_yours(job)
    why = _why_lost(tx, job, token, worker_id)
    if not why:
        return found
    is_unnamed = token is None and job.state is not _ACTIVE
    code = "job_not_active" if is_unnamed else "lease_lost"
    return Rejected(code, f"job {job.id} is not leased to you: {why}", job_id=job.id)


def _why_lost(tx: Tx, job: Job, token: int | None, worker_id: str) -> str:
    """Why the caller does not have the lease of a job; empty if it has."""
    if token is not None and token != job.lease_token:
        if token > job.lease_token:
            return "unknown lease token"
        if tx.has_old_answers or job.state is not _ACTIVE:
            return "a newer lease exists"
        who = f"worker {job.worker_id}" if job.worker_id else "another fetch"
        return f"a newer lease exists: {who} has the job since {format_time(job.started_ns)}"
    if job.state is not _ACTIVE:
        if not tx.has_old_answers:
            return _lease_ended(job)
        if token is None:
            return f"it is {job.state.value}"
        return f"the lease has ended and the job is {job.state.value}"
    if token is None and worker_id and job.worker_id and worker_id != job.worker_id:
        return f"worker {job.worker_id} has the lease"
    if not is_over(tx, job):
        return ""
    if tx.has_old_answers:
        return "the lease has expired"
    span, at = format_duration(job.lease_ms), format_time(job.lease_expires_ns)
    return f"the lease of {span} expired at {at}"


_WITHIN_LEASES: Final = frozenset(
    what.stored
    for what in (EventType.ASKED_TO_STOP, EventType.PRIORITY, EventType.MOVED, EventType.ARRIVED)
)
"""Events of an active job that leave it active."""


def _lease_ended(job: Job) -> str:
    """How the last lease of a job ended, as far as its trail has it."""
    if not job.lease_token:
        return f"it is {job.state.value}, and no worker has fetched it"
    ended = None
    for event in reversed(job.trail):
        if event.what == EventType.STARTED.stored:
            break
        if event.what not in _WITHIN_LEASES:
            ended = event
    else:
        ended = None  # that part of the trail is not kept
    when = ""
    if ended is not None:
        is_crash = ended.what == EventType.CRASHED.stored or ended.why == CRASH_LOOP
        when = f" at {format_time(ended.at_ns)} ({'expired' if is_crash else ended.what})"
    span = format_duration(job.lease_ms)
    return f"the lease of {span} ended{when}, and the job is {job.state.value}"


def has_ended_it(job: Job, token: int | None, worker_id: str) -> bool:
    """Whether the caller itself has ended the last lease of a job, by an ack or the like."""
    settled = job.settled
    if settled is None or settled.token != job.lease_token or job.state is _ACTIVE:
        return False
    if token is not None:
        return token == settled.token
    return bool(worker_id) and worker_id == job.worker_id


def not_yours(job: Job) -> Rejected:
    """Refusal: the caller has no access to the job's queue."""
    error = f"job {job.id} is in a queue that the caller's key is not for"
    return Rejected("forbidden", error, job_id=job.id)


def missing(tx: Tx, job_id: str) -> Rejected:
    """Refusal: the job is not in this shard."""
    forward = FORWARDS.get(tx, job_id)
    if forward is not None:
        return Rejected(
            "job_moved",
            f"job {job_id} has moved to shard {forward.shard}",
            job_id=job_id,
            shard=forward.shard,
        )
    return Rejected("job_not_found", f"job {job_id} not found", job_id=job_id)


def settled_before(job: Job | None, token: int | None, how: str) -> Settled | None:
    """The end of the lease with this token, if it ended by the same op."""
    if job is None or token is None or job.settled is None:
        return None
    settled = job.settled
    return settled if settled.token == token and settled.how == how else None


# Back to the queue.


class _Lease(TypedDict):
    lease_expires_ns: int
    run_expires_ns: int
    worker_id: str
    hostname: str
    cancel_requested: bool


NO_LEASE: Final = _Lease(
    lease_expires_ns=0, run_expires_ns=0, worker_id="", hostname="", cancel_requested=False
)
"""Fields that only an active job has, as they are in any other."""


class RunChanges(TypedDict, total=False):
    """Fields that an op may set when it changes a job's state; the new state sets all others."""

    attempt: int
    failures: int
    crashes: int
    settled: Settled | None
    checkpoint: bytes
    result: bytes
    agent: Agent | None
    chain_marks: int


def _change(tx: Tx, found: Held[Job], after: Job) -> Job:
    """Write a changed job, and wake the fetches that wait for its queue."""
    tx.touched[after.queue] = None
    return JOBS.change(tx, found, after)


def place_again(tx: Tx, job: Job) -> int:
    """The job's old place in its queue; the last place if the old one was cleared since."""
    queue = QUEUES.get(tx, job.queue)
    is_cleared = queue is not None and job.order_ns <= queue.cleared_ns
    return tx.next_order_ns() if is_cleared else job.order_ns


def give_back(
    tx: Tx,
    found: Held[Job],
    state: State,
    *,
    what: EventType,
    why: str = "",
    how: str = "",
    scheduled_ns: int = 0,
    checkpoint: bytes | None = None,
    crashes: int | None = None,
) -> Job:
    """An active job leaves its worker at its old place, and the attempt is not counted.

    A job that was asked to stop is cancelled. `how` is the op by which its worker gave it back.
    `why` is also the reason of a job that is held.
    """
    job = found.document
    if job.cancel_requested:
        state, what, why, scheduled_ns = State.CANCELLED, EventType.CANCELLED, STOPPED, 0
    attempt = max(0, job.attempt - 1)
    changes = RunChanges(
        attempt=attempt,
        settled=Settled(job.lease_token, how, state, scheduled_ns) if how else job.settled,
        checkpoint=job.checkpoint if checkpoint is None else checkpoint,
        crashes=job.crashes if crashes is None else crashes,
    )
    if state is State.CANCELLED:
        return finish(tx, found, state, what=what, why=why, **changes)
    is_held = state is State.HELD
    after = replace(
        job,
        state=state,
        order_ns=place_again(tx, job),
        scheduled_ns=scheduled_ns,
        held_ns=tx.now_ns if is_held else job.held_ns,
        hold_reason=why if is_held else job.hold_reason,
        trail=trail(tx, job, what, why),
        **NO_LEASE,
        **changes,
    )
    return _change(tx, found, after)


def release(tx: Tx, found: Held[Job], *, why: str, checkpoint: bytes) -> Job:
    """A worker gives a job back; it is pending again."""
    return give_back(
        tx, found, _PENDING, what=EventType.RELEASED, why=why, how="release", checkpoint=checkpoint
    )


def snooze(tx: Tx, found: Held[Job], *, delay_ms: int, why: str, checkpoint: bytes) -> Job:
    """A worker gives a job back for later; it is scheduled."""
    return give_back(
        tx,
        found,
        _SCHEDULED,
        what=EventType.SNOOZED,
        why=why,
        how="snooze",
        scheduled_ns=tx.now_ns + delay_ms * MS,
        checkpoint=checkpoint,
    )


def crash(tx: Tx, found: Held[Job]) -> Job:
    """A lease expired. After `max_crashes` of them, the job is held."""
    job = found.document
    tx.minutes.lost(job.queue)
    crashes = job.crashes + 1
    if crashes < job.max_crashes or job.cancel_requested:
        why = f"the lease of worker {job.worker_id or '(unnamed)'} is over"
        return give_back(tx, found, _PENDING, what=EventType.CRASHED, why=why, crashes=crashes)
    return give_back(tx, found, State.HELD, what=EventType.HELD, why=CRASH_LOOP, crashes=crashes)


def promote(tx: Tx, found: Held[Job]) -> Job:
    """A scheduled or retrying job is due."""
    job = found.document
    after = replace(
        job,
        state=_PENDING,
        order_ns=tx.next_order_ns(),
        scheduled_ns=0,
        trail=trail(tx, job, EventType.PROMOTED),
    )
    return _change(tx, found, after)


def make_pending(
    tx: Tx,
    found: Held[Job],
    *,
    what: EventType,
    unique_until_ns: int | None = None,
    **changes: Unpack[RunChanges],
) -> Job:
    """A job becomes pending at the end of its queue."""
    job = found.document
    if job.state in FINISHED:
        consequences.reopened(tx, job)
    after = replace(
        job,
        state=_PENDING,
        order_ns=tx.next_order_ns(),
        scheduled_ns=0,
        held_ns=0,
        hold_reason="",
        completed_ns=0,
        failed_ns=0,
        finished_ns=0,
        unique_until_ns=job.unique_until_ns if unique_until_ns is None else unique_until_ns,
        trail=trail(tx, job, what),
        **NO_LEASE,
        **changes,
    )
    return _change(tx, found, after)


def hold(tx: Tx, found: Held[Job], *, reason: str, **changes: Unpack[RunChanges]) -> Job:
    """A job waits for a person's decision."""
    job = found.document
    after = replace(
        job,
        state=State.HELD,
        scheduled_ns=0,
        held_ns=tx.now_ns,
        hold_reason=reason,
        trail=trail(tx, job, EventType.HELD, reason),
        **NO_LEASE,
        **changes,
    )
    return _change(tx, found, after)


# The end.


def finish(
    tx: Tx,
    found: Held[Job],
    state: State,
    *,
    what: EventType,
    why: str = "",
    error: str = "",
    **changes: Unpack[RunChanges],
) -> Job:
    """A job is completed, dead or cancelled: the effects of its end are applied.

    `error` is the error of its last attempt, if that ended it.
    """
    assert state in FINISHED
    job = found.document
    now_ns = tx.now_ns
    after = replace(
        job,
        state=state,
        lease_expires_ns=0,
        run_expires_ns=0,
        cancel_requested=False,
        scheduled_ns=0,
        finished_ns=now_ns,
        completed_ns=now_ns if state is _COMPLETED else 0,
        failed_ns=now_ns if state is _DEAD else job.failed_ns,
        held_ns=0,
        hold_reason="",
        unique_until_ns=0,
        waits_for=(),
        trail=trail(tx, job, what, why),
        **changes,
    )
    JOBS.change(tx, found, after)
    if job.state is _ACTIVE:
        tx.touched[job.queue] = None
    consequences.follow(tx, after, why=error or why)
    return after


def expire(tx: Tx, found: Held[Job]) -> Job:
    """A job expires: it is dead."""
    tx.minutes.expired(found.document.queue)
    return finish(tx, found, _DEAD, what=EventType.DEAD, why=EXPIRED)


# Failing.


class Failure(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The error that a worker reported, and how it is retried."""

    error: str
    backtrace: str = ""
    error_class: str = ""
    retryable: bool = True
    retry_after_ms: int | None = None


def fail(tx: Tx, found: Held[Job], failure: Failure, *, is_said: bool = True) -> Settled:
    """An active job's attempt failed: the job waits for the next one, or is dead.

    `is_said`: whether its worker reported it. Only then the answer is kept for a repeated report.
    """
    job = found.document
    record_error(tx, job, failure)
    if not is_said:
        tx.minutes.lost(job.queue)
    outcome = _outcome(tx, job, failure)
    settled = outcome if is_said else job.settled
    failures = job.failures + 1
    if outcome.state is State.RETRYING:
        _wait_for_retry(tx, found, outcome, failure, settled=settled, failures=failures)
        return outcome
    what, why, error = EventType.CANCELLED, STOPPED, ""
    if outcome.state is _DEAD:
        why = NO_ATTEMPTS_LEFT if failure.retryable else NOT_RETRYABLE
        what, error = EventType.DEAD, failure.error
    changes = RunChanges(settled=settled, failures=failures)
    finish(tx, found, outcome.state, what=what, why=why, error=error, **changes)
    return outcome


def _outcome(tx: Tx, job: Job, failure: Failure) -> Settled:
    if job.cancel_requested:
        return Settled(job.lease_token, "fail", State.CANCELLED)
    attempts_left = max(0, job.max_retries - job.attempt) if failure.retryable else 0
    if attempts_left == 0:
        return Settled(job.lease_token, "fail", _DEAD)
    due_ns = tx.now_ns + retry_delay_ms(tx, job, failure.retry_after_ms) * MS
    return Settled(job.lease_token, "fail", State.RETRYING, due_ns, attempts_left)


def _wait_for_retry(
    tx: Tx, found: Held[Job], outcome: Settled, failure: Failure, **changes: Unpack[RunChanges]
) -> None:
    job = found.document
    after = replace(
        job,
        state=State.RETRYING,
        order_ns=place_again(tx, job),
        scheduled_ns=outcome.due_ns,
        failed_ns=tx.now_ns,
        trail=trail(tx, job, EventType.FAILED, failure.error_class or failure.error[:80]),
        **NO_LEASE,
        **changes,
    )
    _change(tx, found, after)


def retry_delay_ms(tx: Tx, job: Job, retry_after_ms: int | None) -> int:
    """Delay until the next attempt."""
    if retry_after_ms is not None:
        return retry_after_ms
    delay_ms = backoff.delay_ms(
        job.backoff,
        # A job that was moved while it was active may have had its attempts reset.
        attempt=max(1, job.attempt),
        base_ms=job.retry_base_delay_ms,
        max_ms=job.retry_max_delay_ms,
    )
    if not job.retry_jitter:
        return delay_ms
    return backoff.jittered(delay_ms, share=job.retry_jitter, dice=tx.dice_for(job.id))


def record_error(tx: Tx, job: Job, failure: Failure) -> None:
    """Store the error of an attempt; the oldest one is removed beyond `ERRORS_MAX`."""
    number = job.failures + 1
    tx.minutes.failed(job.queue)
    error = JobError(
        attempt=job.attempt,
        error=failure.error,
        backtrace=failure.backtrace,
        error_class=failure.error_class,
        at_ns=tx.now_ns,
        worker_id=job.worker_id,
    )
    key = error_key(job.id, number)
    tx.set_key(key, encode_json(error))
    tx.note(key)
    if number > ERRORS_MAX:
        remove_error(tx, job, number - ERRORS_MAX)


def error_key(job_id: str, number: int) -> bytes:
    """The key of the `number`th error of a job."""
    return keys.JOB_ERROR.prefix + job_id.encode() + b"\0" + number.to_bytes(4, "big")


def error_numbers(job: Job) -> range:
    """The numbers of the errors that are kept of a job."""
    return range(max(1, job.failures - ERRORS_MAX + 1), job.failures + 1)


def remove_error(tx: Tx, job: Job, number: int) -> None:
    """Remove an error."""
    key = error_key(job.id, number)
    tx.remove_key(key)
    tx.note(key)


def remove(tx: Tx, found: Held[Job], *, what: EventType = EventType.DELETED, why: str = "") -> None:
    """Remove a job with its errors; `what` and `why` are the event that followers get."""
    job = found.document
    for number in error_numbers(job):
        remove_error(tx, job, number)
    tx.touched[job.queue] = None
    if job.state not in FINISHED:
        consequences.follow(tx, replace(job, state=State.CANCELLED), is_removed=True)
    JOBS.remove(tx, job.id, what=what.stored, why=why)
    consequences.removed(tx, job)


def remove_doomed(tx: Tx) -> None:
    """Remove the swept jobs that an op met. Each removal is an end, with effects of its own."""
    while tx.doomed:
        found = JOBS.find(tx, tx.doomed.pop(0))
        if found is not None:
            remove(tx, found, why=SWEPT)


# Unique locks: a lock is in the index of the job that has it, and follows from `unique_until_ns`.


def lock_holder(tx: Tx, queue: str, unique_key: str) -> Job | None:
    """The job that holds a lock: not if the lock has expired, or the job is being swept."""
    found = _locked(tx, queue, unique_key)
    if found is None or _has_lost_lock(tx, found.document):
        return None
    return found.document


def free_lock(tx: Tx, queue: str, unique_key: str) -> None:
    """Take an expired lock, or that of a swept job, from its job."""
    found = _locked(tx, queue, unique_key)
    if found is None:
        return
    assert _has_lost_lock(tx, found.document), "nobody takes a lock that is held"
    if find(tx, found.document.id) is None:
        remove(tx, found, why=SWEPT)
    else:
        unlock(tx, found)


def unlock(tx: Tx, found: Held[Job]) -> Job:
    """Release a job's unique lock."""
    return JOBS.change(tx, found, replace(found.document, unique_until_ns=0))


def locked_until_ns(tx: Tx, job: Job) -> int:
    """End of a lock that a job takes now; 0 without a unique key."""
    return tx.now_ns + job.unique_period_ms * MS if job.unique_key else 0


def _locked(tx: Tx, queue: str, unique_key: str) -> Held[Job] | None:
    value = tx.get_key(queue_keys(queue).unique + unique_key.encode())
    if value is None:
        return None
    job_id, until_ns = parse_unique_value(value)
    found = JOBS.find(tx, job_id)
    assert found is not None, "a lock goes with its job"
    assert found.document.unique_until_ns == until_ns
    return found


def _has_lost_lock(tx: Tx, job: Job) -> bool:
    return job.unique_until_ns <= tx.now_ns or find(tx, job.id) is None
