"""What a job's end means for others: its batch, its chain, the jobs that waited for it.

One function is told of every end, whichever op brought it about. A job goes on with its chain from
wherever it is. Its batch, and those who wait for it, hear of it by way of its home: the shard that
knows where it is, and through which it goes when it moves on, so that no news overtakes another.
"""

from msgspec.structs import replace

from corvo.model import Forward, Job, State
from corvo.shard import batches, births, chains, dependencies, outbox
from corvo.shard.outbox import Became, Birth, Forget, News, Tally, Told, Watch
from corvo.shard.tables import FORWARDS
from corvo.shard.tx import Tx


def follow(tx: Tx, job: Job, *, why: str = "") -> None:
    """`job` is completed, dead or cancelled, or is about to be removed while it was none of it."""
    if not (job.chain_id or job.batch_id or job.awaited or job.born_in >= 0):
        return
    if job.chain_id:
        chains.go_on(tx, job, why)
    if job.born_in >= 0:
        _tell_home(tx, job, step=1)
    elif job.batch_id:
        batches.count(tx, job.batch_id, job.state, 1)
    if job.awaited:
        dependencies.settle(tx, job.id, job.state)


def reopened(tx: Tx, job: Job) -> None:
    """`job`, as it still is, was completed, dead or cancelled and becomes pending again."""
    if job.born_in >= 0:
        _tell_home(tx, job, step=-1)
    elif job.batch_id:
        batches.count(tx, job.batch_id, job.state, -1)
    if job.awaited:
        dependencies.reopened(tx, job.id)


def removed(tx: Tx, job: Job) -> None:
    """`job` is gone from this shard for good: its home, if that is elsewhere, is told."""
    if job.born_in >= 0:
        outbox.post(tx, job.born_in, outbox.encode(Forget(job.id, job.batch_id)))
    elif job.batch_id:
        batches.tally(tx, Tally(job.batch_id, "removed"))


def forwarded(tx: Tx, job_id: str) -> Forward | None:
    """Where a job has moved."""
    return FORWARDS.get(tx, job_id)


# Leaving and landing.


def left(tx: Tx, job: Job) -> None:
    """`job` goes to another shard. From here on, whoever waits for it here is told by its home."""
    if job.awaited and job.born_in >= 0:
        dependencies.watch_at(tx, job.id, job.born_in)


def landed(tx: Tx, job: Job) -> Job:
    """What `job` is that comes from another shard: what it waits for is looked at anew."""
    if job.waits_for:
        job = dependencies.begin(tx, job, job.waits_for)
    if not job.awaited and dependencies.is_awaited(tx, job.id):
        job = replace(job, awaited=True)
    return job


# Effects of other shards.


def _tell_home(tx: Tx, job: Job, *, step: int) -> None:
    became = Became(job.id, job.state.value, step, job.batch_id)
    outbox.post(tx, job.born_in, outbox.encode(became))


def _became(tx: Tx, became: Became) -> None:
    """A job of this shard that is away has ended, or is pending again."""
    forward = FORWARDS.get(tx, became.job_id)
    assert forward is not None, "the home knows of every job that is away"
    state = State(became.state)
    FORWARDS.put(tx, replace(forward, state=became.state if became.step > 0 else ""))
    if became.batch_id:
        batches.count(tx, became.batch_id, state, became.step)
    if became.step > 0:
        dependencies.settle(tx, became.job_id, state)
    else:
        dependencies.reopened(tx, became.job_id)


def _forget(tx: Tx, forget: Forget) -> None:
    assert FORWARDS.get(tx, forget.job_id) is not None, "the home knows of every job that is away"
    FORWARDS.remove(tx, forget.job_id)
    if forget.batch_id:
        batches.tally(tx, Tally(forget.batch_id, "removed"))


def take(tx: Tx, source: int, effect: News) -> None:
    """What happened to a job in another shard has its effect here."""
    match effect:
        case Became():
            _became(tx, effect)
        case Forget():
            _forget(tx, effect)
        case Birth():
            births.make(tx, effect)
        case Tally():
            batches.apply(tx, effect)
        case Watch(job_id=job_id):
            dependencies.watched(tx, source, job_id)
        case Told(job_id=job_id, state=state):
            dependencies.told(tx, job_id, State(state))
