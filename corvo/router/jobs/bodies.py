"""Bodies of jobs: from a shard's answer to JSON."""

from typing import Annotated, Final

import msgspec

from corvo.model import State
from corvo.protocol.jobs import JobBody, JobSummary, Time
from corvo.protocol.ops.base import ITEMS_MAX, Id, Text, Token
from corvo.protocol.queries import Dead, Explanation, FoundJob, Jobs, StoredJob
from corvo.protocol.words import GivenPriority
from corvo.router.http.params import Key, Place, QueueName
from corvo.router.newest import Entry
from corvo.times import format_time_or_none

PAGE_MAX: Final = 1_000
PAGE: Final = 50
"""Dead jobs that one answer lists when nothing is said."""

# What clients send.


class BulkGet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs are asked for."""

    job_ids: Annotated[list[Id], msgspec.Meta(max_length=ITEMS_MAX)]


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why it is done, for the trail."""

    why: Text | None = None
    reason: Text | None = None
    request_key: Key | None = None


class HoldJob(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is to wait for somebody's word, and by what right a worker says so."""

    reason: Text | None = None
    lease_token: Token | None = None
    request_key: Key | None = None


class MoveJob(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is to go."""

    queue: QueueName
    reset_attempts: bool | None = None
    request_key: Key | None = None


class SetPriority(msgspec.Struct, frozen=True, kw_only=True):
    """How soon a job is to be given out."""

    priority: GivenPriority
    request_key: Key | None = None


# What they are answered.


class JobDone(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job."""

    status: str
    job_id: str


class JobList(msgspec.Struct, frozen=True):
    """Jobs, in the order in which they were asked for."""

    jobs: list[JobBody]


class DeadJobs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Dead jobs, the newest first."""

    jobs: list[JobSummary]
    total: int
    has_more: bool
    cursor: str = ""


class ExplainBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a job is not being worked on: the first reason that holds."""

    job_id: str
    queue: str
    state: State
    code: str
    text: str
    until: Time | None = None
    ahead: int = 0


read_jobs: Final = msgspec.json.Decoder(Jobs).decode
read_dead: Final = msgspec.json.Decoder(Dead).decode
read_stored: Final = msgspec.json.Decoder(StoredJob).decode
read_explanation: Final = msgspec.json.Decoder(Explanation).decode


def explain_body(job: FoundJob, explanation: Explanation) -> ExplainBody:
    """Why a job waits."""
    return ExplainBody(
        job_id=job.id,
        queue=job.queue,
        state=job.state,
        code=explanation.code,
        text=explanation.text,
        until=format_time_or_none(explanation.until_ns),
        ahead=explanation.ahead,
    )


def dead_entries(answer: Dead) -> list[Entry[FoundJob]]:
    """The dead jobs of an answer, for one list of all shards."""
    return [Entry(Place(job.finished_ns, job.id), job, len(bytes(job.json))) for job in answer.jobs]
