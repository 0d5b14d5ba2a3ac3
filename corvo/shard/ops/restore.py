"""Documents of a backup come back: in their shard by the present number of shards.

Nothing that is here is changed. A job whose home is another shard comes in two steps: first the
home stores where it is (`leads`), then its shard takes it. So no id gets a second job.

What depends on other documents is evaluated here, as at the end of a move: the dependencies of a
job, its unique lock, and whether a batch has ended.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.errors import BadKey
from corvo.ids import shard_of
from corvo.kv.keys import check_name
from corvo.model import FINISHED, Batch, Forward, JobError, Queue, Schedule
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Rejected, bad_request
from corvo.protocol.ops.restore import Leads, Restore, Restored, RestoredJob
from corvo.protocol.ops.schedules import job_of, schedule_id
from corvo.protocol.ops.workflow import Chain
from corvo.shard.ops.transfer import keep_lock
from corvo.shard.state import batches, consequences, lifecycle, presence, schedules, spawning
from corvo.shard.state.applying import apply
from corvo.shard.state.outbox import Spawn
from corvo.shard.state.restored import home_of, restore_from
from corvo.shard.state.tables import BATCHES, FORWARDS, JOBS, QUEUES, SCHEDULES, job_indexes
from corvo.shard.state.tx import Tx

WAIT_MS: Final = 24 * 3_600_000
"""How long a restored job waits for one that does not exist: that may come back later."""
_NUMBER_MAX: Final = (1 << 62) - 1
_spawn: Final = msgspec.json.Decoder(Spawn).decode
_error: Final = msgspec.json.Decoder(JobError).decode
_chain: Final = msgspec.json.Decoder(Chain).decode


@apply.register
def restore(op: Restore, tx: Tx) -> Restored | Rejected:
    """Insert what does not exist."""
    refused = _unfit(op) or _misplaced(op, tx)
    if refused is not None:
        return refused
    restore_from(tx, op.shards)
    existing = [each.job_id for each in op.leads if not _lead(tx, each)]
    made_queues = sum([_restore_queue(tx, queue) for queue in op.queues])
    made_batches = [batch.id for batch in op.batches if _restore_batch(tx, batch)]
    made_schedules = sum([_restore_schedule(tx, schedule) for schedule in op.schedules])
    refused_jobs = [each.job.id for each in op.jobs if not _restore_job(tx, each)]
    for spawn in op.spawns:
        spawning.spawn_here(tx, _spawn(spawn.effect))
    for batch_id in made_batches:
        batches.end(tx, batch_id)
    return Restored(
        jobs=len(op.jobs) - len(refused_jobs),
        queues=made_queues,
        batches=len(made_batches),
        schedules=made_schedules,
        spawned=len(op.spawns),
        existing=existing + refused_jobs,
    )


def _unfit(op: Restore) -> Rejected | None:
    """The refusal of documents that no server has stored: an entry with them could not be applied.

    All that a document is used for, now or later, is tried before anything is changed.
    """
    try:
        for each in op.jobs:
            _try_job(each)
        for queue in op.queues:
            check_name("queue", queue.name)
            _check_numbers(queue)
        for batch in op.batches:
            check_name("batch", batch.id)
            _check_numbers(batch)
            ended = batch.succeeded + batch.failed + batch.cancelled
            if batch.total != batch.pending + ended:
                return bad_request("batches", f"batch {batch.id!r} has counts that do not add up")
            msgspec.json.decode(batch.callback_payload or "{}")
            if batch.callback_queue:
                check_name("queue", batch.callback_queue)
        for schedule in op.schedules:
            _try_schedule(schedule)
        for lead in op.leads:
            check_name("job", lead.job_id)
        for spawn in op.spawns:
            check_name("queue", spawn.queue)
            new = _spawn(spawn.effect)
            if new.queue != spawn.queue:
                return bad_request("spawns", "a job is created in another queue than is said")
            _check_numbers(replace(new, chain_step=0))
            if new.chain is not msgspec.UNSET:
                _chain(new.chain).at(new.chain_step)
    except (BadKey, IndexError, OverflowError, ValueError, msgspec.MsgspecError) as error:
        return bad_request("", f"a document is not one of a backup: {error}")
    return None


def _try_job(restored: RestoredJob) -> None:
    """Raise what a job's keys, errors, chain and batch would raise when they are used."""
    job = restored.whole()
    check_name("job", job.id)
    _check_numbers(replace(job, born_in=0, chain_step=0))  # these may be below 0
    job_indexes(job)
    for awaited in job.waits_for:
        check_name("job", awaited)
    lifecycle.error_key(job.id, job.failures)
    for error in restored.errors:
        _error(error)
    if job.chain or job.chain_id:
        _chain(job.chain).at(job.chain_step)
    if job.batch_id and shard_of(job.batch_id) is None:
        raise BadKey(f"{job.batch_id!r} is not the id of a batch")


def _try_schedule(schedule: Schedule) -> None:
    """Raise what a schedule's keys and its job would raise when they are used."""
    check_name("queue", schedule.queue)
    check_name("schedule", schedule.id)
    if schedule.id != schedule_id(schedule.queue, schedule.name):
        raise BadKey(f"{schedule.id!r} is not the id of schedule {schedule.name!r}")
    _check_numbers(schedule)
    for run in schedule.runs:
        _check_numbers(run)
    job_of(schedule)


def _check_numbers(document: msgspec.Struct) -> None:
    """Raise `OverflowError` for a number that is too large for a key, or below 0."""
    for name in document.__struct_fields__:
        value = getattr(document, name)
        if isinstance(value, int) and not 0 <= value <= _NUMBER_MAX:
            raise OverflowError(f"{name} is {value}")


def _misplaced(op: Restore, tx: Tx) -> Rejected | None:
    """The refusal of documents that belong to another shard."""
    queues = [
        *((f"jobs[{number}]", each.job.queue) for number, each in enumerate(op.jobs)),
        *((f"queues[{number}]", each.name) for number, each in enumerate(op.queues)),
        *((f"schedules[{number}]", each.queue) for number, each in enumerate(op.schedules)),
        *((f"spawns[{number}]", each.queue) for number, each in enumerate(op.spawns)),
    ]
    for field, queue in queues:
        if shard_of_queue(queue, tx.shards) != tx.shard:
            return bad_request(field, f"{field}: queue {queue!r} is not of shard {tx.shard}")
    return None


def _lead(tx: Tx, leads: Leads) -> bool:
    """Store at its home where a job is. False if the job exists in another place."""
    if JOBS.find(tx, leads.job_id) is not None or leads.shard == tx.shard:
        return False
    known = FORWARDS.get(tx, leads.job_id)
    if known is not None:
        return known.shard == leads.shard
    FORWARDS.put(tx, Forward(leads.job_id, leads.shard, tx.now_ns, leads.state))
    return True


def _restore_queue(tx: Tx, queue: Queue) -> bool:
    found = QUEUES.find(tx, queue.name)
    if found is None:
        QUEUES.insert(tx, queue)
        return True
    swept = found.document
    if swept.created_ns:
        return False
    # It was deleted, and its jobs are being swept.
    QUEUES.change(
        tx, found, replace(queue, cleared_ns=swept.cleared_ns, deleted_ns=swept.deleted_ns)
    )
    return True


def _restore_batch(tx: Tx, batch: Batch) -> bool:
    if home_of(tx, batch.id) != tx.shard or BATCHES.find(tx, batch.id) is not None:
        return False
    BATCHES.insert(tx, batch)
    return True


def _restore_schedule(tx: Tx, schedule: Schedule) -> bool:
    if SCHEDULES.find(tx, schedule.id) is not None:
        return False
    schedules.insert(tx, schedule)
    return True


def _restore_job(tx: Tx, restored: RestoredJob) -> bool:
    """Insert a job, with its place in its queue. False if it exists here, or has moved away."""
    job = restored.whole()
    home = home_of(tx, job.id)
    if JOBS.find(tx, job.id) is not None or FORWARDS.get(tx, job.id) is not None:
        return False
    presence.ensure_queue(tx, job.queue)
    job = replace(job, born_in=-1 if home is None or home == tx.shard else home)
    if job.state not in FINISHED:
        job = consequences.landed(tx, job, wait_ms=WAIT_MS)
    until_ns, _ = keep_lock(tx, job)
    # The state's own time never falls behind a place that was given.
    tx.order_ns = max(tx.order_ns, job.order_ns)
    JOBS.insert(tx, replace(job, unique_until_ns=until_ns))
    tx.minutes.arrived(job.queue)
    numbers = lifecycle.error_numbers(job)
    for number, error in zip(numbers, restored.errors, strict=False):
        key = lifecycle.error_key(job.id, number)
        tx.set_key(key, bytes(error))
        tx.note(key)
    tx.touched[job.queue] = None
    return True
