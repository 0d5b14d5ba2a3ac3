"""Effects of ops on jobs by their ids: each job is changed by itself, in order."""

from itertools import groupby
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.kv.tables import Held
from corvo.model import EventType, Job, State
from corvo.protocol.ops import jobs as ops
from corvo.protocol.ops.base import Rejected, encode_json, left_out
from corvo.scopes import is_reserved, scope_of_stored
from corvo.shard.ops import transfer
from corvo.shard.state import lifecycle, presence
from corvo.shard.state.applying import again, apply, keep
from corvo.shard.state.tables import JOBS
from corvo.shard.state.tx import Tx


class _Run(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The kept form of equal answers for jobs in a row."""

    count: int
    status: str = ""
    refused: Rejected | None = None


_decode_runs: Final = msgspec.json.Decoder(list[_Run]).decode


@apply.register
def apply_to_jobs(op: ops.JobsOp, tx: Tx) -> ops.JobResults:
    """Apply an op to one job after the other."""
    return ops.JobResults([left_out(it) if tx.is_full else _each(op, tx, it) for it in op.job_ids])


def _each(op: ops.JobsOp, tx: Tx, job_id: str) -> ops.Done | Rejected:
    if isinstance(op, ops.Hold) and op.lease_token is not None:
        held = lifecycle.holder(tx, job_id, op.lease_token)
        if isinstance(held, Rejected):
            return held
    found = presence.find(tx, job_id)
    if found is None:
        return lifecycle.missing(tx, job_id)
    if not scope_of_stored(op.scope).covers(found.document.queue):
        return lifecycle.not_yours(found.document)
    since_ns = op.unchanged_since_ns
    if since_ns and _changed_ns(found.document) > since_ns:
        return _changed_since(found.document)
    if found.document.state not in op.TAKES:
        return _bad_state(op, found.document)
    done = _change(op, tx, found)
    return done if isinstance(done, Rejected) else ops.Done(job_id, done)


def _bad_state(op: ops.JobsOp, job: Job) -> Rejected:
    takes = ", ".join(state.value for state in op.TAKES)
    return Rejected(
        "bad_state", f"job {job.id} is {job.state.value}: expected {takes}", job_id=job.id
    )


def _change(op: ops.JobsOp, tx: Tx, found: Held[Job]) -> str | Rejected:
    """Change one job, which is in one of the states that the op takes. Returns the status."""
    job = found.document
    match op:
        case ops.Retry():
            return _back_to_queue(tx, found, EventType.RETRIED, attempt=0, crashes=0)
        case ops.Requeue():  # the attempts before still count
            attempt, crashes = job.attempt, job.crashes
            return _back_to_queue(tx, found, EventType.REQUEUED, attempt=attempt, crashes=crashes)
        case ops.Expedite():
            return lifecycle.promote(tx, found).state.word
        case ops.Cancel():
            return _cancel(op, tx, found)
        case ops.Delete():
            lifecycle.remove(tx, found)
            return "deleted"
        case ops.Hold():
            job = lifecycle.hold(tx, found, reason=op.reason)
        case ops.Approve():
            job = lifecycle.make_pending(tx, found, what=EventType.APPROVED, crashes=0)
        case ops.Reject():
            job = lifecycle.finish(tx, found, State.DEAD, what=EventType.REJECTED, why=op.why)
        case ops.Move():
            return _move(op, tx, found)
        case ops.ChangePriority():  # it keeps its place
            why = f"from {job.priority} to {op.priority}"
            trail = presence.trail(tx, job, EventType.PRIORITY, why)
            JOBS.change(tx, found, replace(job, priority=op.priority, trail=trail))
        case _:
            raise NotImplementedError(type(op).__name__)
    return job.state.word


@keep.register
def keep_results(op: ops.JobsOp, result: msgspec.Struct) -> bytes:
    """The results; of a bulk operation, which comes in many pieces, as runs that are equal."""
    if not op.unchanged_since_ns:
        return encode_json(result)
    assert isinstance(result, ops.JobResults)
    said = groupby(
        _Run(1, one.status) if isinstance(one, ops.Done) else _Run(1, refused=one)
        for one in result.results
    )
    return encode_json([replace(run, count=len([*all_])) for run, all_ in said])


@again.register
def same_results(op: ops.JobsOp, tx: Tx, kept: bytes) -> bytes:
    """The same answer as before."""
    if not op.unchanged_since_ns:
        return kept
    said = [run for run in _decode_runs(kept) for _ in range(run.count)]
    return encode_json(
        ops.JobResults(
            [
                ops.Done(job_id, run.status) if run.refused is None else run.refused
                for job_id, run in zip(op.job_ids, said, strict=True)
            ]
        )
    )


def _changed_ns(job: Job) -> int:
    """Time of a job's last event. A heartbeat is no event."""
    return job.trail[-1].at_ns if job.trail else job.created_ns


def _changed_since(job: Job) -> Rejected:
    last = job.trail[-1].what if job.trail else EventType.ENQUEUED.stored
    return Rejected(
        "changed_since",
        f"job {job.id} is {job.state.value}: it has changed since ({last})",
        job_id=job.id,
    )


def _back_to_queue(
    tx: Tx, found: Held[Job], what: EventType, *, attempt: int, crashes: int
) -> str | Rejected:
    """Put the job at the end of its queue, with its unique lock if that is free."""
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
    ).state.word


def _cancel(op: ops.Cancel, tx: Tx, found: Held[Job]) -> str:
    """Cancel it; a worker that has it is asked to stop."""
    job = found.document
    if job.state is not State.ACTIVE:
        lifecycle.finish(tx, found, State.CANCELLED, what=EventType.CANCELLED, why=op.why)
        return "cancelled"
    if not job.cancel_requested:
        trail = presence.trail(tx, job, EventType.ASKED_TO_STOP, op.why)
        JOBS.change(tx, found, replace(job, cancel_requested=True, trail=trail))
    return "cancelling"


def _move(op: ops.Move, tx: Tx, found: Held[Job]) -> str | Rejected:
    """Move it to the other queue. The server's own jobs are not moved."""
    if is_reserved(found.document.queue):
        return lifecycle.not_yours(found.document)
    refused = transfer.move(tx, found, op.queue, reset_attempts=op.reset_attempts)
    return refused if refused is not None else "moved"
