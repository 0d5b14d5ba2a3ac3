"""What producers do: put jobs into queues."""

from typing import Annotated, Final

import msgspec

from corvo.model import Backoff, Priority
from corvo.protocol.ops.base import (
    ID_BYTES_MAX,
    ITEMS_MAX,
    Id,
    Json,
    Limits,
    Millis,
    Name,
    Nanos,
    Rejected,
    Text,
    TypedOp,
)
from corvo.protocol.ops.checks import (
    bad_chosen_id,
    bad_json,
    bad_name,
    bad_tags,
)
from corvo.protocol.ops.workflow import (
    Chain,
    NewAgent,
    NewBatch,
    bad_batch_id,
    bad_chain,
    bad_dependencies,
)

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


class Enqueue(TypedOp[EnqueueResults | Rejected], frozen=True, kw_only=True):
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
