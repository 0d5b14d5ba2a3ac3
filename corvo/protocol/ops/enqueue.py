"""The op that creates jobs."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec.structs import replace

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
from corvo.protocol.ops.checks import bad_chosen_id, bad_json, bad_name, bad_tags, bad_trace
from corvo.protocol.ops.workflow import (
    Chain,
    NewAgent,
    NewBatch,
    bad_batch_id,
    bad_chain,
    bad_dependencies,
)
from corvo.trace_context import TraceContext

UNIQUE_PERIOD_MS: Final = 3_600_000
"""Default duration of a unique lock."""


class NewJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A new job."""

    queue: Name
    payload: Json = msgspec.UNSET  # the client's own bytes; without it, an empty object
    id: Id | None = None
    """An id that the client chose, with its queue; a job with this id is not created again."""
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
    """Longest duration of the unique lock; 0 is the default."""
    scheduled_ns: Nanos = 0
    delay_ms: Millis = 0
    """Delay from the enqueue, instead of `scheduled_ns`: a repeated request is the same op."""
    expire_after_ms: Millis = 0
    expire_active: bool = False
    tags: dict[str, str] = {}
    checkpoint: Json = msgspec.UNSET
    parent_id: Annotated[str, msgspec.Meta(max_length=ID_BYTES_MAX)] = ""
    batch_id: Annotated[str, msgspec.Meta(max_length=ID_BYTES_MAX)] = ""
    """The batch that it joins, which has not ended."""
    chain: Chain | None = None  # the chain of which it is the first step
    depends_on: tuple[Id, ...] = ()  # jobs that must be completed before it can be fetched
    agent: NewAgent | None = None
    dependency_wait_ms: Millis = 0
    """How long it waits at least for a job that does not exist yet; 0 does not wait."""
    trace: TraceContext | None = None
    FIELDS_SINCE: ClassVar[Mapping[str, int]] = {"trace": 6}

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """The refusal of an invalid job; `field` is its place in the op."""
        refused = bad_name(f"{field}.queue", self.queue)
        refused = refused or bad_json(f"{field}.payload", self.payload, limits.payload_bytes_max)
        if self.checkpoint is not msgspec.UNSET:
            refused = refused or bad_json(
                f"{field}.checkpoint", self.checkpoint, limits.checkpoint_bytes_max
            )
        if self.id is not None:
            refused = refused or bad_chosen_id(f"{field}.id", self.id, self.queue)
        if self.unique_key:
            refused = refused or bad_name(f"{field}.unique_key", self.unique_key)
        if self.tags:
            refused = refused or bad_tags(f"{field}.tags", self.tags, limits)
        if self.chain is not None:
            refused = refused or bad_chain(f"{field}.chain", self.chain, self.queue, limits)
        if self.depends_on:
            refused = refused or bad_dependencies(f"{field}.depends_on", self.depends_on, self.id)
        if self.trace is not None:
            refused = refused or bad_trace(field, self.trace)
        return refused


def untraced(jobs: Sequence[NewJob]) -> list[NewJob]:
    """The jobs without their traces: what one request and its repetition have in common."""
    return [job if job.trace is None else replace(job, trace=None) for job in jobs]


MOVED: Final = "moved"
"""Status of an existing job that is in another shard."""


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The result for a new job."""

    job_id: str
    status: str
    unique_existing: bool = False
    queue: str | msgspec.UnsetType = msgspec.UNSET  # its queue, if it is not the one asked for
    differs: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Fields in which the job with the id of the new one differs from it: that one is refused."""
    payload_sha256: str | msgspec.UnsetType = msgspec.UNSET  # of the existing job, if that differs


class EnqueueResults(msgspec.Struct, frozen=True, omit_defaults=True):
    """Results for the jobs, in their order."""

    jobs: list[Enqueued]
    batch_id: str = ""  # id of the batch that was created


class Enqueue(TypedOp[EnqueueResults | Rejected], frozen=True, kw_only=True):
    """Create jobs, all of them or none."""

    NUMBER = 1
    jobs: Annotated[list[NewJob], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]
    batch: NewBatch | None = None
    is_announced: bool = False
    """Whether the batches of the jobs were created with these jobs in their totals. Then the jobs
    are not counted again, and the end of other members does not end the batch."""
    has_full_ids: bool = False
    """Whether ids of clients have their queue. Then a job that is not the one that has its id is
    refused, and a dependency can be in any shard. Entries of older routers have neither."""

    def asked(self) -> bytes:
        """Without the queue of the batch, which follows from the jobs, and without traces.

        A client that sends a request again sends it in another span.
        """
        asked = self
        if asked.batch is not None:
            asked = replace(asked, batch=replace(asked.batch, queue="", trace=None))
        for job in self.jobs:
            if job.trace is not None:
                asked = replace(asked, jobs=untraced(self.jobs))
                break
        return super(Enqueue, asked).asked()

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse invalid names, ids and tags, and JSON that is too large."""
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
