"""What producers do: put jobs into queues."""

from typing import Annotated, Final

import msgspec

from corvo.model import Agent, Backoff, Event, Job, Priority, State
from corvo.shard.lifecycle import NS, ensure_queue, trail
from corvo.shard.ops.base import (
    ITEMS_MAX,
    Id,
    Json,
    Limits,
    Millis,
    Name,
    Nanos,
    Op,
    Rejected,
    Text,
    as_json,
    json_bytes,
    too_long,
)
from corvo.shard.tables import JOBS, queue_keys
from corvo.shard.tx import Tx


class NewJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job to be made."""

    queue: Name
    payload: Json = msgspec.UNSET
    """The client's own bytes; nothing is an empty object."""
    id: Id | None = None
    """Chosen by the client: the same again is the same job."""
    kind: Text = ""
    priority: Annotated[int, msgspec.Meta(ge=0, le=2)] = Priority.NORMAL
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 3
    retry_backoff: Backoff = Backoff.EXPONENTIAL
    retry_base_delay_ms: Millis = 5_000
    retry_max_delay_ms: Millis = 600_000
    retry_jitter: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    max_run_time_ms: Millis = 0
    max_crashes: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 5
    unique_key: Annotated[str, msgspec.Meta(max_length=255)] = ""
    unique_period_ms: Millis = 3_600_000
    scheduled_ns: Nanos = 0
    expire_after_ms: Millis = 0
    expire_active: bool = False
    tags: dict[str, str] = {}
    checkpoint: Json = msgspec.UNSET


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """A job that was made, or was there."""

    job_id: str
    status: str
    unique_existing: bool = False


class EnqueueResults(msgspec.Struct, frozen=True):
    """One for each job, in order."""

    jobs: list[Enqueued]


class Enqueue(Op, frozen=True, kw_only=True):
    """Put jobs into queues, all of them or none."""

    jobs: Annotated[list[NewJob], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]

    def apply(self, tx: Tx) -> EnqueueResults:
        """Make them."""
        return EnqueueResults([enqueue(tx, new) for new in self.jobs])


def enqueue(tx: Tx, new: NewJob) -> Enqueued:
    """Make one job, unless it is there or its unique key is taken."""
    if new.unique_key or new.id is not None:
        existing = None
        if existing is not None:
            return existing
    ensure_queue(tx, new.queue)
    now_ns = tx.now_ns
    order_ns = tx.next_order_ns()
    state = State.SCHEDULED if new.scheduled_ns > now_ns else State.PENDING
    job = Job(
        id=new.id or tx.mint.job(),
        queue=new.queue,
        state=state,
        payload=json_bytes(new.payload, b"{}"),
        created_ns=now_ns,
        order_ns=order_ns,
        trail=(Event(now_ns, "enqueued", tx.by),),
        priority=new.priority,
        kind=new.kind,
        max_retries=new.max_retries,
        backoff=new.retry_backoff,
        retry_base_delay_ms=new.retry_base_delay_ms,
        retry_max_delay_ms=new.retry_max_delay_ms,
        retry_jitter=new.retry_jitter,
        max_run_time_ms=new.max_run_time_ms,
        max_crashes=new.max_crashes,
        scheduled_ns=new.scheduled_ns if state is State.SCHEDULED else 0,
        expires_ns=now_ns + new.expire_after_ms * NS if new.expire_after_ms else 0,
        expires_active=new.expire_active,
        unique_key=new.unique_key,
        unique_until_ns=now_ns + new.unique_period_ms * NS if new.unique_key else 0,
        tags=new.tags,
        checkpoint=json_bytes(new.checkpoint),
    )
    JOBS.insert(tx, job)
    if state is State.PENDING:
        tx.touched[new.queue] = None
    return Enqueued(job.id, state.value)
