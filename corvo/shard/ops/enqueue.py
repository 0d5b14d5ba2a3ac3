"""What producers do: put jobs into queues."""

from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from corvo.model import Backoff, Event, EventType, Job, Priority, State
from corvo.shard import batches, chains, consequences, dependencies, lifecycle, presence
from corvo.shard.chains import Chain
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
from corvo.shard.ops.workflow import (
    NewAgent,
    NewBatch,
    bad_batch_id,
    bad_chain,
    bad_dependencies,
)
from corvo.shard.tables import JOBS
from corvo.shard.tx import Tx

_ENQUEUED: Final = EventType.ENQUEUED.stored
_PENDING: Final = State.PENDING
_SCHEDULED: Final = State.SCHEDULED

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
    delay_ms: Millis = 0
    """From when it is enqueued, instead of `scheduled_ns`: the same request is the same op then,
    whenever it is made."""
    expire_after_ms: Millis = 0
    expire_active: bool = False
    tags: dict[str, str] = {}
    checkpoint: Json = msgspec.UNSET
    parent_id: Annotated[str, msgspec.Meta(max_length=ID_BYTES_MAX)] = ""
    batch_id: Annotated[str, msgspec.Meta(max_length=ID_BYTES_MAX)] = ""
    """A batch that has not ended, to be one of it."""
    chain: Chain | None = None
    """What comes after it; it is the first step itself."""
    depends_on: tuple[Id, ...] = ()
    """Jobs that have to be completed before it is given out."""
    agent: NewAgent | None = None

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
        if self.chain is not None:
            refused = refused or bad_chain(f"{field}.chain", self.chain, self.queue, limits)
        if self.depends_on:
            refused = refused or bad_dependencies(f"{field}.depends_on", self.depends_on, self.id)
        return refused


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """A job that was made, or was there."""

    job_id: str
    status: str
    unique_existing: bool = False


class EnqueueResults(msgspec.Struct, frozen=True, omit_defaults=True):
    """One for each job, in order."""

    jobs: list[Enqueued]
    batch_id: str = ""
    """Of the batch that was made of them."""


class Enqueue(Op, frozen=True, kw_only=True):
    """Put jobs into queues, all of them or none."""

    jobs: Annotated[list[NewJob], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]
    batch: NewBatch | None = None
    is_announced: bool = False
    """Whether the batches that the jobs are in were made with these jobs counted: others that end
    meanwhile do not end the batch, and these are not counted again."""

    def check(self, limits: Limits) -> Rejected | None:
        """Names, ids, tags and JSON have their limits."""
        for number, new in enumerate(self.jobs):
            field = f"jobs[{number}]"
            refused = new.check(field, limits)
            if new.batch_id:
                refused = refused or bad_batch_id(
                    f"{field}.batch_id", new.batch_id, has_own=self.batch is not None
                )
            if refused is not None:
                return refused
        return self.batch.check("batch", len(self.jobs)) if self.batch is not None else None

    def apply(self, tx: Tx) -> EnqueueResults | Rejected:
        """Make them."""
        if self.batch is not None:
            return self._as_batch(tx, self.batch)
        for new in self.jobs:
            if new.batch_id:
                return self._into_batches(tx)
        return EnqueueResults([enqueue(tx, new) for new in self.jobs])

    def _as_batch(self, tx: Tx, new: NewBatch) -> EnqueueResults:
        """Make them a batch. Those that are not made, for others are there, are none of it."""
        total = new.total or len(self.jobs)
        payload = json_bytes(new.callback_payload)
        batch_id = batches.begin(tx, total, new.callback_queue, payload).id
        made = [enqueue(tx, job, batch_id) for job in self.jobs]
        for one in made:
            if one.unique_existing:
                batches.leave(tx, batch_id)
        return EnqueueResults(made, batch_id)

    def _into_batches(self, tx: Tx) -> EnqueueResults | Rejected:
        """All of them are counted in before any is made, so that no batch ends in between."""
        joining = [(number, new.batch_id) for number, new in enumerate(self.jobs) if new.batch_id]
        for number, batch_id in joining:
            refused = batches.refuse(tx, batch_id, f"jobs[{number}].batch_id")
            if refused is not None:
                return refused
        for _, batch_id in joining:
            if batches.is_here(tx, batch_id) and not self.is_announced:
                batches.join(tx, batch_id)
        made = [enqueue(tx, new, new.batch_id) for new in self.jobs]
        for number, batch_id in joining:
            if made[number].unique_existing and not self._is_counted(tx, made[number], batch_id):
                batches.leave(tx, batch_id)
        return EnqueueResults(made)

    def _is_counted(self, tx: Tx, made: Enqueued, batch_id: str) -> bool:
        """Whether the job that is there is itself one of those that were announced."""
        if batches.is_here(tx, batch_id) and not self.is_announced:
            return False
        job = JOBS.get(tx, made.job_id)
        return job is None or job.batch_id == batch_id


def enqueue(tx: Tx, new: NewJob, batch_id: str = "") -> Enqueued:
    """Make one job, unless it is there or its unique key is taken."""
    unique_ms = 0
    if new.unique_key or new.id is not None:
        existing = _existing(tx, new)
        if existing is not None:
            return existing
        _make_room(tx, new)
        unique_ms = (new.unique_period_ms or UNIQUE_PERIOD_MS) if new.unique_key else 0
    presence.ensure_queue(tx, new.queue)
    now_ns = tx.now_ns
    due_ns = now_ns + new.delay_ms * NS if new.delay_ms else new.scheduled_ns
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
        expires_ns=now_ns + new.expire_after_ms * NS if new.expire_after_ms else 0,
        expires_active=new.expire_active,
        unique_key=new.unique_key,
        unique_period_ms=unique_ms,
        unique_until_ns=now_ns + unique_ms * NS if unique_ms else 0,
        checkpoint=json_bytes(new.checkpoint),
        parent_id=new.parent_id,
    )
    if batch_id or new.depends_on or new.chain is not None or new.agent is not None:
        job = _with_others(tx, job, new, batch_id)
        state = job.state
    JOBS.insert(tx, job)
    if state is _PENDING:
        tx.touched[new.queue] = None
    return Enqueued(job.id, state.word)


def _with_others(tx: Tx, job: Job, new: NewJob, batch_id: str) -> Job:
    """The job as one of a batch, the first of a chain, one that waits for others, an agent's."""
    agent = new.agent.begin() if new.agent is not None else None
    job = replace(job, batch_id=batch_id, agent=agent)
    if new.chain is not None:
        job = chains.begin(tx, job, new.chain)
    return dependencies.begin(tx, job, new.depends_on) if new.depends_on else job


def _existing(tx: Tx, new: NewJob) -> Enqueued | None:
    """The job that there is instead of a new one: that of its id, or the holder of its lock."""
    if new.id is not None:
        found = presence.find(tx, new.id)
        if found is not None:
            return Enqueued(new.id, found.document.state.word, unique_existing=True)
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
            lifecycle.remove(tx, swept, why=lifecycle.SWEPT)
    if new.unique_key:
        lifecycle.free_lock(tx, new.queue, new.unique_key)
