"""The effects of a job's end on its batch, on its chain and on the jobs that depend on it.

`follow` is called at every end, whichever op causes it. A chain continues from the shard where the
job is. Effects on the batch and on dependent jobs go through the job's home: the shard that knows
where the job is, and through which every move leads, so that no effect overtakes another.
"""

from msgspec.structs import replace

from corvo.model import Job, State
from corvo.protocol.ops.base import encode_json
from corvo.shard.state import batches, chains, dependencies, outbox, schedules, spawning
from corvo.shard.state.outbox import (
    Consequence,
    Forget,
    JobEnded,
    ScheduleArrival,
    ScheduleLanded,
    Spawn,
    Tally,
    Watch,
    WatchAnswer,
)
from corvo.shard.state.tables import FORWARDS
from corvo.shard.state.tx import Tx


def follow(tx: Tx, job: Job, *, why: str = "", is_removed: bool = False) -> None:
    """Apply the effects of an end: `job` is completed, dead or cancelled.

    The end of a job that is being removed is that of a cancelled one, but ends its chain.
    """
    if "@" in job.id:
        schedules.job_became(tx, job.id, job.state.value)
    if not (job.chain_id or job.batch_id or job.awaited or job.born_in >= 0):
        return
    if job.chain_id and not is_removed:
        chains.go_on(tx, job, why)
    if job.born_in >= 0:
        _tell_home(tx, job, step=1)
    elif job.batch_id:
        batches.count(tx, job.batch_id, job.state, 1)
    if job.awaited:
        dependencies.settle(tx, job.id, job.state.value)


def reopened(tx: Tx, job: Job) -> None:
    """Undo the effects of an end: `job`, as it still is, becomes pending again."""
    if "@" in job.id:
        schedules.job_became(tx, job.id, "")
    if job.born_in >= 0:
        _tell_home(tx, job, step=-1)
    elif job.batch_id:
        batches.count(tx, job.batch_id, job.state, -1)
    if job.awaited:
        dependencies.reopened(tx, job.id)


def removed(tx: Tx, job: Job) -> None:
    """Apply the effects of a removal: `job` is gone from this shard for good."""
    if job.born_in >= 0:
        outbox.post(tx, job.born_in, encode_json(Forget(job.id, job.batch_id)))
    elif job.batch_id:
        batches.tally(tx, Tally(job.batch_id, "removed"))


# Leaving and landing.


def left(tx: Tx, job: Job) -> None:
    """Prepare for a move: the home of `job` answers those that depend on it in this shard."""
    if job.awaited and job.born_in >= 0:
        dependencies.watch_at(tx, job.id, job.born_in)


def landed(tx: Tx, job: Job, *, wait_ms: int) -> Job:
    """The job as it arrives from another shard, with its dependencies evaluated here."""
    if job.waits_for:
        job = dependencies.begin(tx, job, job.waits_for, wait_ms=wait_ms)
    if not job.awaited and dependencies.is_awaited(tx, job.id):
        job = replace(job, awaited=True)
    return job


# Effects of other shards.


def _tell_home(tx: Tx, job: Job, *, step: int) -> None:
    ended = JobEnded(job.id, job.state.value, step, job.batch_id)
    outbox.post(tx, job.born_in, encode_json(ended))


def _job_ended(tx: Tx, ended: JobEnded) -> None:
    """A job that has moved away from this shard has ended, or is pending again."""
    forward = FORWARDS.get(tx, ended.job_id)
    state = State(ended.state)
    if forward is not None:  # else this shard has lost entries, and its operator has accepted that
        FORWARDS.put(tx, replace(forward, state=ended.state if ended.step > 0 else ""))
    if "@" in ended.job_id:
        schedules.job_became(tx, ended.job_id, ended.state if ended.step > 0 else "")
    if ended.batch_id:
        batches.count(tx, ended.batch_id, state, ended.step)
    if ended.step > 0:
        dependencies.settle(tx, ended.job_id, ended.state)
    else:
        dependencies.reopened(tx, ended.job_id)


def _forget(tx: Tx, forget: Forget) -> None:
    if FORWARDS.get(tx, forget.job_id) is not None:  # as above
        FORWARDS.remove(tx, forget.job_id)
    if forget.batch_id:
        batches.tally(tx, Tally(forget.batch_id, "removed"))


def take(tx: Tx, source: int, effect: Consequence) -> None:
    """Apply the effect of another shard on this one."""
    match effect:
        case JobEnded():
            _job_ended(tx, effect)
        case Forget():
            _forget(tx, effect)
        case Spawn():
            spawning.spawn_here(tx, effect)
        case Tally():
            batches.apply(tx, effect)
        case Watch(job_id=job_id, wait_ms=wait_ms):
            dependencies.watched(tx, source, job_id, wait_ms)
        case WatchAnswer(job_id=job_id, state=state):
            dependencies.answered(tx, job_id, state)
        case ScheduleArrival():
            schedules.arrive(tx, source, effect)
        case ScheduleLanded():
            schedules.landed(tx, effect)
