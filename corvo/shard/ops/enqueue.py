"""What producers do: put jobs into queues."""

from typing import Annotated, Final

import msgspec

from corvo.model import Backoff, Event, Job, Priority, State
from corvo.shard import consequences, lifecycle
from corvo.shard.lifecycle import NS
from corvo.shard.ops.base import (
    ID_BYTES_MAX,
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
    json_bytes,
)
from corvo.shard.ops.checks import bad_chosen_id, bad_json, bad_name, bad_tags
from corvo.shard.tables import JOBS
from corvo.shard.tx import Tx

UNIQUE_PERIOD_MS: Final = 3_600_000
"""How long a unique key is locked when nothing is said."""


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
    unique_period_ms: Millis = UNIQUE_PERIOD_MS
    """How long the lock is held at most; 0 is the default."""
    scheduled_ns: Nanos = 0
    expire_after_ms: Millis = 0
    expire_active: bool = False
    tags: dict[str, str] = {}
    checkpoint: Json = msgspec.UNSET
    parent_id: Annotated[str, msgspec.Meta(max_length=ID_BYTES_MAX)] = ""

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """What is wrong with it; `field` is where it stands."""
        refused = bad_name(f"{field}.queue", self.queue)
        refused = refused or bad_json(f"{field}.payload", self.payload, limits.payload_bytes_max)
        if self.checkpoint is not msgspec.UNSET:
            refused = refused or bad_json(
                f"{field}.checkpoint", self.checkpoint, limits.checkpoint_bytes_max
            )
        if self.id is not None:
            refused = refused or bad_chosen_id(f"{field}.id", self.id)
        if self.unique_key:
            refused = refused or bad_name(f"{field}.unique_key", self.unique_key)
        if self.tags:
            refused = refused or bad_tags(f"{field}.tags", self.tags, limits)
        return refused


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

    def check(self, limits: Limits) -> Rejected | None:
        """Names, ids, tags and JSON have their limits."""
        for number, new in enumerate(self.jobs):
            refused = new.check(f"jobs[{number}]", limits)
            if refused is not None:
                return refused
        return None

    def apply(self, tx: Tx) -> EnqueueResults:
        """Make them."""
        return EnqueueResults([enqueue(tx, new) for new in self.jobs])


def enqueue(tx: Tx, new: NewJob) -> Enqueued:
    """Make one job, unless it is there or its unique key is taken."""
    unique_ms = 0
    if new.unique_key or new.id is not None:
        existing = _existing(tx, new)
        if existing is not None:
            return existing
        _make_room(tx, new)
        unique_ms = (new.unique_period_ms or UNIQUE_PERIOD_MS) if new.unique_key else 0
    lifecycle.ensure_queue(tx, new.queue)
    now_ns = tx.now_ns
    state = State.SCHEDULED if new.scheduled_ns > now_ns else State.PENDING
    job = Job(
        id=new.id or tx.mint.job(),
        queue=new.queue,
        state=state,
        payload=json_bytes(new.payload, b"{}"),
        created_ns=now_ns,
        order_ns=tx.next_order_ns(),
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
        unique_period_ms=unique_ms,
        unique_until_ns=now_ns + unique_ms * NS if unique_ms else 0,
        tags=new.tags,
        checkpoint=json_bytes(new.checkpoint),
        parent_id=new.parent_id,
    )
    JOBS.insert(tx, job)
    if state is State.PENDING:
        tx.touched[new.queue] = None
    return Enqueued(job.id, state.value)


def _existing(tx: Tx, new: NewJob) -> Enqueued | None:
    """The job that there is instead of a new one: that of its id, or the holder of its lock."""
    if new.id is not None:
        found = lifecycle.find(tx, new.id)
        if found is not None:
            return Enqueued(new.id, found.document.state.value, unique_existing=True)
        if consequences.forwarded(tx, new.id) is not None:
            # It lives in another shard now, and there must not be two of one id.
            return Enqueued(new.id, "moved", unique_existing=True)
    if new.unique_key:
        holder = lifecycle.lock_holder(tx, new.queue, new.unique_key)
        if holder is not None:
            return Enqueued(holder.id, "duplicate", unique_existing=True)
    return None


def _make_room(tx: Tx, new: NewJob) -> None:
    """Remove what is in the new job's way and not there for anybody: jobs swept, locks over."""
    if new.id is not None:
        swept = JOBS.find(tx, new.id)
        if swept is not None:
            lifecycle.remove(tx, swept)
    if new.unique_key:
        lifecycle.free_lock(tx, new.queue, new.unique_key)
