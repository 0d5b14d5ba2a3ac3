"""Creation of jobs by producers: one by one, and as batches."""

from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.model import Event, EventType, Job, State, traced
from corvo.protocol.ops.base import Rejected, json_bytes
from corvo.protocol.ops.enqueue import (
    MOVED,
    UNIQUE_PERIOD_MS,
    Enqueue,
    Enqueued,
    EnqueueResults,
    NewJob,
)
from corvo.protocol.ops.workflow import NewBatch
from corvo.shard.ops.existing import existing
from corvo.shard.state import batches, chains, dependencies, lifecycle, presence
from corvo.shard.state.applying import apply, is_void
from corvo.shard.state.tables import JOBS, QUEUES
from corvo.shard.state.tx import Tx
from corvo.times import MS

_ENQUEUED: Final = EventType.ENQUEUED.stored
_PENDING: Final = State.PENDING
_SCHEDULED: Final = State.SCHEDULED


@apply.register
def enqueue_all(op: Enqueue, tx: Tx) -> EnqueueResults | Rejected:
    """Create the jobs."""
    if op.batch is not None:
        return _as_batch(op, tx, op.batch)
    for new in op.jobs:
        if new.batch_id:
            return _into_batches(op, tx)
    return EnqueueResults([enqueue(tx, new, op) for new in op.jobs])


@is_void.register
def is_all_moved(op: Enqueue, result: msgspec.Struct) -> bool:
    """Whether all jobs are in other shards, as far as this one knows: the router looks there."""
    if not op.has_full_ids or op.batch is not None or not isinstance(result, EnqueueResults):
        return False
    return all(
        made.status == MOVED and not new.batch_id
        for made, new in zip(result.jobs, op.jobs, strict=True)
    )


def _as_batch(op: Enqueue, tx: Tx, new: NewBatch) -> EnqueueResults:
    """Create the jobs as a batch. A job that exists already is no member."""
    total = new.total or len(op.jobs)
    payload = json_bytes(new.callback_payload)
    batch_id = batches.begin(tx, total, new.callback_queue, payload, new.queue, new.trace).id
    made = [enqueue(tx, job, op, batch_id) for job in op.jobs]
    for one in made:
        if one.unique_existing:
            batches.leave(tx, batch_id)
    return EnqueueResults(made, batch_id)


def _into_batches(op: Enqueue, tx: Tx) -> EnqueueResults | Rejected:
    """Create the jobs; all are counted in first, so that no batch ends in between."""
    joining = [(number, new.batch_id) for number, new in enumerate(op.jobs) if new.batch_id]
    for number, batch_id in joining:
        refused = batches.refuse(tx, batch_id, f"jobs[{number}].batch_id")
        if refused is not None:
            return refused
    for _, batch_id in joining:
        if batches.is_here(tx, batch_id) and not op.is_announced:
            batches.join(tx, batch_id)
    made = [enqueue(tx, new, op, new.batch_id) for new in op.jobs]
    for number, batch_id in joining:
        if made[number].unique_existing and not _is_counted(op, tx, made[number], batch_id):
            batches.leave(tx, batch_id)
    return EnqueueResults(made)


def _is_counted(op: Enqueue, tx: Tx, made: Enqueued, batch_id: str) -> bool:
    """Whether the existing job is itself a member that was announced."""
    if batches.is_here(tx, batch_id) and not op.is_announced:
        return False
    job = JOBS.get(tx, made.job_id)
    return job is None or job.batch_id == batch_id


def enqueue(tx: Tx, new: NewJob, op: Enqueue, batch_id: str = "") -> Enqueued:
    """Create a job, unless it exists or its unique key is locked."""
    unique_ms = 0
    is_awaited = False
    if new.unique_key or new.id is not None:
        named = "" if op.is_announced else new.batch_id
        there = existing(tx, new, compares=op.has_full_ids, batch_id=named)
        if there is not None:
            queue = QUEUES.get(tx, new.queue)
            if queue is not None and queue.created_ns:  # the job may be in another one by now
                tx.minutes.duplicate(new.queue)
            return there
        _make_room(tx, new)
        is_awaited = op.has_full_ids and new.id is not None and dependencies.came(tx, new.id)
        unique_ms = (new.unique_period_ms or UNIQUE_PERIOD_MS) if new.unique_key else 0
    presence.ensure_queue(tx, new.queue)
    now_ns = tx.now_ns
    due_ns = now_ns + new.delay_ms * MS if new.delay_ms else new.scheduled_ns
    state = _SCHEDULED if due_ns > now_ns else _PENDING
    job = Job(
        id=new.id or tx.mint.job(),
        queue=new.queue,
        state=state,
        payload=json_bytes(new.payload, b"{}"),
        created_ns=now_ns,
        order_ns=tx.next_order_ns(),
        trail=(Event(now_ns, _ENQUEUED, tx.by),),
        priority=new.priority,
        kind=new.kind,
        max_retries=new.max_retries,
        backoff=new.retry_backoff,
        retry_base_delay_ms=new.retry_base_delay_ms,
        retry_max_delay_ms=new.retry_max_delay_ms,
        retry_jitter=new.retry_jitter,
        tags=new.tags,
    )
    # In two steps: more than fifteen named arguments go through a dictionary, half a microsecond.
    job = replace(
        job,
        max_run_time_ms=new.max_run_time_ms,
        max_crashes=new.max_crashes,
        scheduled_ns=due_ns if state is _SCHEDULED else 0,
        expires_ns=now_ns + new.expire_after_ms * MS if new.expire_after_ms else 0,
        expires_active=new.expire_active,
        unique_key=new.unique_key,
        unique_period_ms=unique_ms,
        unique_until_ns=now_ns + unique_ms * MS if unique_ms else 0,
        checkpoint=json_bytes(new.checkpoint),
        parent_id=new.parent_id,
    )
    if batch_id or new.depends_on or new.chain is not None or new.agent is not None:
        job = _with_others(tx, job, new, batch_id, by_queue=op.has_full_ids)
        state = job.state
    if is_awaited:
        job = replace(job, awaited=True)
    if new.trace is not None:
        job = traced(job, new.trace)
    JOBS.insert(tx, job)
    if state is _PENDING:
        tx.touched[new.queue] = None
    return Enqueued(job.id, state.word)


def _with_others(tx: Tx, job: Job, new: NewJob, batch_id: str, *, by_queue: bool) -> Job:
    """The job with its batch, chain, dependencies and agent."""
    agent = new.agent.begin() if new.agent is not None else None
    job = replace(job, batch_id=batch_id, agent=agent)
    if new.chain is not None:
        job = chains.begin(tx, job, new.chain)
    if not new.depends_on:
        return job
    wait_ms = new.dependency_wait_ms
    return dependencies.begin(tx, job, new.depends_on, by_queue=by_queue, wait_ms=wait_ms)


def _make_room(tx: Tx, new: NewJob) -> None:
    """Remove swept jobs with the new one's id, and expired locks of its key."""
    if new.id is not None:
        swept = JOBS.find(tx, new.id)
        if swept is not None:
            lifecycle.remove(tx, swept, why=lifecycle.SWEPT)
    if new.unique_key:
        lifecycle.free_lock(tx, new.queue, new.unique_key)
