"""The op that brings documents of a backup back.

A document comes back as it was. What exists already stays as it is, so the op can be repeated.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec.structs import replace

from corvo.model import Batch, Job, Queue, Schedule, TracedJob, traced
from corvo.protocol.ops.base import ITEMS_MAX, Id, Limits, Name, Rejected, TypedOp, bad_request
from corvo.trace_context import TraceContext


class RestoredJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as it was: without its JSON, and its JSON beside it, which travels as it is."""

    SINCE: ClassVar[int] = 6

    job: Job
    json: dict[str, msgspec.Raw] = {}
    errors: list[msgspec.Raw] = []
    """Its last errors, as they are stored."""
    trace: TraceContext | None = None

    def whole(self) -> Job:
        """The job with its JSON and its trace context."""
        job = with_json(self.job, {name: bytes(value) for name, value in self.json.items()})
        return job if self.trace is None else traced(job, self.trace)


class Leads(msgspec.Struct, frozen=True):
    """A job of this home that is in another shard."""

    SINCE: ClassVar[int] = 6

    job_id: Id
    shard: Annotated[int, msgspec.Meta(ge=0)]
    state: Annotated[str, msgspec.Meta(max_length=20)] = ""
    """The state in which it has ended; empty if it has not."""


class RestoredSpawn(msgspec.Struct, frozen=True):
    """A job that was about to be created by the end of another: a step of a chain, a callback."""

    SINCE: ClassVar[int] = 6

    queue: Name
    effect: msgspec.Raw


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The result: what came back, and what existed already."""

    jobs: int = 0
    queues: int = 0
    batches: int = 0
    schedules: int = 0
    spawned: int = 0
    existing: list[str] = []
    """Ids of jobs that exist already, or existed; the other documents are not named."""


class Restore(TypedOp[Restored | Rejected], frozen=True, kw_only=True):
    """Bring documents of a backup back."""

    NUMBER = 98
    SINCE = 6

    shards: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    """Number of shards of the backup."""
    leads: Annotated[tuple[Leads, ...], msgspec.Meta(max_length=ITEMS_MAX)] = ()
    jobs: Annotated[tuple[RestoredJob, ...], msgspec.Meta(max_length=ITEMS_MAX)] = ()
    queues: Annotated[tuple[Queue, ...], msgspec.Meta(max_length=ITEMS_MAX)] = ()
    batches: Annotated[tuple[Batch, ...], msgspec.Meta(max_length=ITEMS_MAX)] = ()
    schedules: Annotated[tuple[Schedule, ...], msgspec.Meta(max_length=ITEMS_MAX)] = ()
    spawns: Annotated[tuple[RestoredSpawn, ...], msgspec.Meta(max_length=ITEMS_MAX)] = ()

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse documents that no server has stored."""
        for number, each in enumerate(self.jobs):
            if not set(each.json) <= JSON_FIELDS:
                return bad_request(f"jobs[{number}].json", "a job has no such field of JSON")
        return None


def apart(job: Job) -> tuple[Job, dict[str, msgspec.Raw]]:
    """A job without its JSON and its trace context, and its JSON: as an op has them."""
    if isinstance(job, TracedJob):
        job = traced(job, None)
    fields = {
        "payload": job.payload,
        "result": job.result,
        "progress": job.progress,
        "checkpoint": job.checkpoint,
        "chain": job.chain,
    }
    json = {name: msgspec.Raw(value) for name, value in fields.items() if value}
    return with_json(job, dict.fromkeys(json, b"")), json


JSON_FIELDS: Final = frozenset({"payload", "result", "progress", "checkpoint", "chain"})


def with_json(job: Job, json: Mapping[str, bytes]) -> Job:
    """A job with other JSON."""
    return replace(
        job,
        payload=json.get("payload", job.payload),
        result=json.get("result", job.result),
        progress=json.get("progress", job.progress),
        checkpoint=json.get("checkpoint", job.checkpoint),
        chain=json.get("chain", job.chain),
    )
