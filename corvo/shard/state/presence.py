"""Lookups of jobs and queues that exist for clients, and the trail of a job."""

from typing import Final

from msgspec.structs import replace

from corvo.kv.tables import Held
from corvo.model import TRAIL_MAX, Event, EventType, Job, Queue
from corvo.shard.state.tables import JOBS, QUEUES, TIMERS, Timer, is_swept
from corvo.shard.state.tx import Tx

_SWEEPS: Final = TIMERS[Timer.SWEEP]


def trail(tx: Tx, job: Job, what: EventType, why: str = "") -> tuple[Event, ...]:
    """The job's trail with a new event."""
    event = Event(tx.now_ns, what.stored, tx.by, why)
    if len(job.trail) < TRAIL_MAX:
        return (*job.trail, event)
    return (job.trail[0], *job.trail[2:], event)


def find(tx: Tx, job_id: str) -> Held[Job] | None:
    """A job that exists for clients: not one that was cleared and is not removed yet."""
    found = JOBS.find(tx, job_id)
    if found is None:
        return None
    if not tx.head(_SWEEPS).keys:
        return found  # no queue of the shard is being swept
    queue = QUEUES.get(tx, found.document.queue)
    assert queue is not None, "a job's queue is known"
    return None if is_swept(queue, found.document) else found


def ensure_queue(tx: Tx, name: str) -> Queue:
    """The queue, which is created if it does not exist.

    A deleted queue stays as `Queue(name, deleted_ns=…)`, without settings and without a time of
    creation, until its jobs are swept. It is created again when an op names it.
    """
    found = QUEUES.find(tx, name)
    if found is None:
        return QUEUES.insert(tx, Queue(name=name, created_ns=tx.now_ns))
    queue = found.document
    if queue.created_ns:
        return queue
    return QUEUES.change(tx, found, replace(queue, created_ns=tx.now_ns))
