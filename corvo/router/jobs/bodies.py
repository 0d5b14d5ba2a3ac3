"""Bodies of jobs: from a shard's answer to JSON."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from corvo.model import State
from corvo.protocol.jobs import JobBody, JobSummary, Time
from corvo.protocol.ops.base import ITEMS_MAX, Id, Text, Token
from corvo.protocol.queries import Dead, Explanation, FoundJob, Jobs, StoredJob
from corvo.protocol.words import GivenPriority
from corvo.router.http.params import Key, Place, QueueName
from corvo.times import format_time_or_none

PAGE_MAX: Final = 1_000
PAGE: Final = 50
"""Dead jobs that one answer lists when nothing is said."""
PAGE_BYTES_MAX: Final = 8 << 20
"""A page that becomes larger is cut short."""

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


# Dead jobs of many places as one list.


class Source:
    """Queues of one shard, and how far their dead jobs were looked at."""

    def __init__(self, shard: int, queues: Sequence[str], before: Place | None) -> None:
        self.shard: Final = shard
        self.queues: Final = list(queues)
        self.before = before
        """With what comes behind this the next question goes on; None is the beginning."""
        self.is_at_end = False


class Newest:
    """One page of a list that comes from many places: the newest first, whoever has them.

    A job may be shown once every source was looked at as far back as where it stands. A source that
    has to be looked at far back holds up the others, so a page may end early, at the place up to
    which all were looked at.
    """

    def __init__(self, sources: Sequence[Source], limit: int) -> None:
        self._sources = list(sources)
        self._limit = limit
        self._found: list[tuple[Place, FoundJob]] = []
        self._size = 0

    def next(self) -> list[Source]:
        """The sources to be asked before the page is as long as it may be; none when it is."""
        if self._size >= PAGE_BYTES_MAX:
            return []
        needed = self._found[self._limit - 1][0] if len(self._found) >= self._limit else None
        return [
            source
            for source in self._sources
            if not source.is_at_end
            and (needed is None or source.before is None or _is_behind(needed, source.before))
        ]

    def hear(self, source: Source, answer: Dead) -> None:
        """What a source had next."""
        self._found += [(Place(job.finished_ns, job.id), job) for job in answer.jobs]
        self._size += sum(len(bytes(job.json)) for job in answer.jobs)
        self._found.sort(key=lambda each: (each[0].at_ns, each[0].job_id.encode()), reverse=True)
        if answer.before_id:
            source.before = Place(answer.before_ns, answer.before_id)
        else:
            source.is_at_end = True

    def page(self) -> tuple[list[FoundJob], Place | None]:
        """What can be shown, and the place behind which the next page begins, if there is one."""
        reached = self._reached()
        shown: list[FoundJob] = []
        size = 0
        last: Place | None = None
        for place, job in self._found:
            is_known = reached is None or not _is_behind(place, reached)
            if not is_known or len(shown) == self._limit or size >= PAGE_BYTES_MAX:
                return shown, last if is_known else reached
            shown.append(job)
            size += len(bytes(job.json))
            last = place
        return shown, reached

    def _reached(self) -> Place | None:
        """How far back all sources were looked at; None when that is to the end."""
        places = [source.before for source in self._sources if not source.is_at_end]
        reached: Place | None = None
        for place in places:
            assert place is not None, "every source was asked once"
            if reached is None or _is_behind(reached, place):
                reached = place
        return reached


def _is_behind(place: Place, other: Place) -> bool:
    """Whether a place comes later in the list than another: it is older."""
    return (place.at_ns, place.job_id.encode()) < (other.at_ns, other.job_id.encode())
