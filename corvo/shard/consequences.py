"""What a job's end means for others: its batch, its chain, the jobs that waited for it.

One function is told of every end, whichever op brought it about.
"""

from corvo.model import Forward, Job
from corvo.shard import outbox
from corvo.shard.tables import FORWARDS
from corvo.shard.tx import Tx


def follow(tx: Tx, job: Job) -> None:
    """`job` is completed, dead or cancelled, or is about to be removed while it was none of it."""


def removed(tx: Tx, job: Job) -> None:
    """`job` is gone from this shard for good: its home, if that is elsewhere, is told."""
    if job.born_in >= 0:
        outbox.post(tx, job.born_in, outbox.encode(outbox.Forget(job.id)))


def forwarded(tx: Tx, job_id: str) -> Forward | None:
    """Where a job has moved."""
    return FORWARDS.get(tx, job_id)
