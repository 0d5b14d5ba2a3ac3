"""Jobs as HTTP shows them: what a shard answers on one side, and bodies of JSON on the other."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from corvo.model import Agent, Backoff, Event, JobError, Priority, State
from corvo.protocol.ops.base import ITEMS_MAX, Id, Json, Rejected, Text, Token
from corvo.protocol.ops.jobs import Done
from corvo.protocol.queries import Explanation
from corvo.router.params import Key, Place, QueueName
from corvo.router.words import Time, usd
from corvo.times import format_duration, format_time, format_time_or_none

PAGE_MAX: Final = 1_000
PAGE: Final = 50
"""Dead jobs that one answer lists when nothing is said."""
PAGE_BYTES_MAX: Final = 8 << 20
"""A page that becomes larger is cut short."""

PriorityWord: TypeAlias = (
    Literal["critical", "high", "normal", "low"]
    | Annotated[int, msgspec.Meta(ge=Priority.CRITICAL, le=Priority.NORMAL)]
)
_PRIORITIES: Final = {
    "critical": Priority.CRITICAL,
    "high": Priority.HIGH,
    "normal": Priority.NORMAL,
    "low": Priority.NORMAL,
}


# What clients send.


class BulkGet(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are asked for."""

    job_ids: Annotated[list[Id], msgspec.Meta(max_length=ITEMS_MAX)]


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why it is done, for the trail."""

    why: Text | None = None
    reason: Text | None = None
    """Another word for `why`."""
    request_key: Key | None = None


class HoldJob(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is to wait for somebody's word, and by what right a worker says so."""

    reason: Text | None = None
    lease_token: Token | None = None
    """Of a worker that holds its own job."""
    request_key: Key | None = None


class MoveJob(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is to go."""

    queue: QueueName
    reset_attempts: bool | None = None
    request_key: Key | None = None


class SetPriority(msgspec.Struct, frozen=True, kw_only=True):
    """How soon a job is to be given out."""

    priority: PriorityWord
    request_key: Key | None = None

    @property
    def number(self) -> int:
        """As the shards have it."""
        given = self.priority
        return _PRIORITIES[given] if isinstance(given, str) else given


# What they are answered.


class JobDone(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job."""

    status: str
    job_id: str


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why one attempt failed."""

    id: int
    """Rises with every error of the job."""
    job_id: str
    attempt: int
    error: str
    backtrace: str = ""
    error_class: str = ""
    worker_id: str = ""
    created_at: Time


class EventBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to a job."""

    at: Time
    what: str
    by: str = ""
    why: str = ""


class AgentView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The loop of an agent's job; a limit that is not there is none."""

    max_iterations: int = 0
    max_cost_usd: float | msgspec.UnsetType = msgspec.UNSET
    iteration_timeout: str = ""
    iteration: int = 0
    total_cost_usd: float | msgspec.UnsetType = msgspec.UNSET


class JobBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job and all that is known of it."""

    id: str
    queue: str
    state: State
    payload: msgspec.Raw
    priority: int
    """0 is critical, 1 high, 2 normal."""
    attempt: int
    max_retries: int
    """How many attempts there are, the first included."""
    retry_backoff: Backoff
    retry_base_delay_ms: int
    retry_max_delay_ms: int
    kind: str = ""
    unique_key: str = ""
    batch_id: str = ""
    worker_id: str = ""
    hostname: str = ""
    tags: dict[str, str] = {}
    progress: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    result: Json = msgspec.UNSET
    lease_expires_at: Time | None = None
    cancel_requested: bool = False
    """Whether its worker was asked to stop."""
    scheduled_at: Time | None = None
    expire_at: Time | None = None
    parent_id: str = ""
    chain_id: str = ""
    chain_step: int | None = None
    chain_config: Json = msgspec.UNSET
    waits_for: tuple[str, ...] = ()
    """Jobs that have to be completed before it is given out."""
    crashes: int = 0
    """Leases that ran out, since it was last begun anew."""
    created_at: Time
    started_at: Time | None = None
    completed_at: Time | None = None
    failed_at: Time | None = None
    held_at: Time | None = None
    finished_at: Time | None = None
    """When it became completed, dead or cancelled."""
    errors: list[ErrorBody] = []
    """The last ones, the oldest first."""
    last_error: str = ""
    agent: AgentView | None = None
    hold_reason: str = ""
    trail: list[EventBody] = []
    """What happened to it: the first event, and the last ones."""


class JobList(msgspec.Struct, frozen=True):
    """Jobs, in the order in which they were asked for."""

    jobs: list[JobBody]


class JobSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job in a list."""

    id: str
    queue: str
    state: State
    payload: msgspec.Raw
    priority: int
    attempt: int
    max_retries: int
    kind: str = ""
    unique_key: str = ""
    batch_id: str = ""
    worker_id: str = ""
    tags: dict[str, str] = {}
    parent_id: str = ""
    chain_id: str = ""
    chain_step: int | None = None
    scheduled_at: Time | None = None
    created_at: Time
    started_at: Time | None = None
    completed_at: Time | None = None
    failed_at: Time | None = None
    finished_at: Time | None = None
    hold_reason: str = ""
    last_error: str = ""


class DeadJobs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Dead jobs, the newest first."""

    jobs: list[JobSummary]
    total: int
    """How many there are altogether."""
    has_more: bool
    """Whether there is another page; this one may be short, or empty, all the same."""
    cursor: str = ""
    """To be sent for the next page."""


class ExplainBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a job is not being worked on: the first reason that holds."""

    job_id: str
    queue: str
    state: State
    code: str
    text: str
    until: Time | None = None
    """When that ends by itself, where it does and that is known."""
    ahead: int = 0
    """Jobs that come before it, as far as they were counted."""


# What shards answer.


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of a job as a shard shows it, what is shown to clients; the lease token is not."""

    id: str
    queue: str
    state: State
    created_ns: int
    priority: int
    kind: str
    attempt: int
    max_retries: int
    backoff: Backoff
    retry_base_delay_ms: int
    retry_max_delay_ms: int
    failures: int
    crashes: int
    lease_expires_ns: int
    worker_id: str
    hostname: str
    cancel_requested: bool
    scheduled_ns: int
    expires_ns: int
    started_ns: int
    completed_ns: int
    failed_ns: int
    finished_ns: int
    held_ns: int
    hold_reason: str
    unique_key: str
    tags: dict[str, str]
    parent_id: str
    batch_id: str
    chain_id: str
    chain_step: int
    waits_for: tuple[str, ...]
    agent: Agent | None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A `corvo.protocol.queries.JobView`, read."""

    job: Stored
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    result: Json = msgspec.UNSET
    progress: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    chain: Json = msgspec.UNSET
    trail: tuple[Event, ...] = ()
    errors: tuple[JobError, ...] = ()


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A `corvo.protocol.queries.Jobs`, read."""

    jobs: list[View]
    looked_at: int
    moved: dict[str, int]


class SeenDead(msgspec.Struct, frozen=True, kw_only=True):
    """A `corvo.protocol.queries.Dead`, read."""

    jobs: list[View]
    before_ns: int
    before_id: str


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job, or why nothing did: they are told apart by the code."""

    job_id: str = ""
    status: str = ""
    code: str = ""
    error: str = ""
    field: str = ""
    shard: int = -1


class _Results(msgspec.Struct, frozen=True):
    results: list[_Result]


read_seen: Final = msgspec.json.Decoder(Seen).decode
read_dead: Final = msgspec.json.Decoder(SeenDead).decode
read_explanation: Final = msgspec.json.Decoder(Explanation).decode
_decode_results: Final = msgspec.json.Decoder(_Results).decode


def read_results(body: bytes) -> list[Done | Rejected]:
    """What became of each job that an op named."""
    return [
        Rejected(one.code, one.error, one.field, one.job_id, one.shard)
        if one.code
        else Done(one.job_id, one.status)
        for one in _decode_results(body).results
    ]


# From one to the other.


def job_body(view: View) -> JobBody:
    """A job for whoever asks for it."""
    job = view.job
    errors = error_bodies(view)
    return JobBody(
        id=job.id,
        queue=job.queue,
        state=job.state,
        payload=view.payload,
        priority=job.priority,
        attempt=job.attempt,
        max_retries=job.max_retries,
        retry_backoff=job.backoff,
        retry_base_delay_ms=job.retry_base_delay_ms,
        retry_max_delay_ms=job.retry_max_delay_ms,
        kind=job.kind,
        unique_key=job.unique_key,
        batch_id=job.batch_id,
        worker_id=job.worker_id,
        hostname=job.hostname,
        tags=job.tags,
        progress=view.progress,
        checkpoint=view.checkpoint,
        result=view.result,
        lease_expires_at=format_time_or_none(job.lease_expires_ns),
        cancel_requested=job.cancel_requested,
        scheduled_at=format_time_or_none(job.scheduled_ns),
        expire_at=format_time_or_none(job.expires_ns),
        parent_id=job.parent_id,
        chain_id=job.chain_id,
        chain_step=job.chain_step if job.chain_id else None,
        chain_config=view.chain,
        waits_for=job.waits_for,
        crashes=job.crashes,
        created_at=format_time(job.created_ns),
        started_at=format_time_or_none(job.started_ns),
        completed_at=format_time_or_none(job.completed_ns),
        failed_at=format_time_or_none(job.failed_ns),
        held_at=format_time_or_none(job.held_ns),
        finished_at=format_time_or_none(job.finished_ns),
        errors=errors,
        last_error=errors[-1].error if errors else "",
        agent=_agent_body(job.agent) if job.agent is not None else None,
        hold_reason=job.hold_reason,
        trail=[
            EventBody(at=format_time(event.at_ns), what=event.what, by=event.by, why=event.why)
            for event in view.trail
        ],
    )


def error_bodies(view: View) -> list[ErrorBody]:
    """The errors that are kept of a job, the oldest first."""
    first = view.job.failures - len(view.errors) + 1
    return [
        ErrorBody(
            id=number,
            job_id=view.job.id,
            attempt=error.attempt,
            error=error.error,
            backtrace=error.backtrace,
            error_class=error.error_class,
            worker_id=error.worker_id,
            created_at=format_time(error.at_ns),
        )
        for number, error in enumerate(view.errors, start=first)
    ]


def _agent_body(agent: Agent) -> AgentView:
    timeout_ms = agent.iteration_timeout_ms
    return AgentView(
        max_iterations=agent.max_iterations,
        max_cost_usd=_usd_or_unset(agent.max_cost_micros),
        iteration_timeout=format_duration(timeout_ms) if timeout_ms else "",
        iteration=agent.iteration,
        total_cost_usd=_usd_or_unset(agent.total_cost_micros),
    )


def _usd_or_unset(cost_micros: int) -> float | msgspec.UnsetType:
    return usd(cost_micros) if cost_micros else msgspec.UNSET


def job_summary(view: View) -> JobSummary:
    """A job for a list."""
    job = view.job
    return JobSummary(
        id=job.id,
        queue=job.queue,
        state=job.state,
        payload=view.payload,
        priority=job.priority,
        attempt=job.attempt,
        max_retries=job.max_retries,
        kind=job.kind,
        unique_key=job.unique_key,
        batch_id=job.batch_id,
        worker_id=job.worker_id,
        tags=job.tags,
        parent_id=job.parent_id,
        chain_id=job.chain_id,
        chain_step=job.chain_step if job.chain_id else None,
        scheduled_at=format_time_or_none(job.scheduled_ns),
        created_at=format_time(job.created_ns),
        started_at=format_time_or_none(job.started_ns),
        completed_at=format_time_or_none(job.completed_ns),
        failed_at=format_time_or_none(job.failed_ns),
        finished_at=format_time_or_none(job.finished_ns),
        hold_reason=job.hold_reason,
        last_error=view.errors[-1].error if view.errors else "",
    )


def explain_body(view: View, explanation: Explanation) -> ExplainBody:
    """Why a job waits."""
    return ExplainBody(
        job_id=view.job.id,
        queue=view.job.queue,
        state=view.job.state,
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
        self._found: list[tuple[Place, View]] = []
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

    def hear(self, source: Source, answer: SeenDead) -> None:
        """What a source had next."""
        self._found += [(_place(view), view) for view in answer.jobs]
        self._size += sum(len(bytes(view.payload)) for view in answer.jobs)
        self._found.sort(key=lambda each: (each[0].at_ns, each[0].job_id.encode()), reverse=True)
        if answer.before_id:
            source.before = Place(answer.before_ns, answer.before_id)
        else:
            source.is_at_end = True

    def page(self) -> tuple[list[View], Place | None]:
        """What can be shown, and the place behind which the next page begins, if there is one."""
        reached = self._reached()
        shown: list[View] = []
        size = 0
        last: Place | None = None
        for place, view in self._found:
            is_known = reached is None or not _is_behind(place, reached)
            if not is_known or len(shown) == self._limit or size >= PAGE_BYTES_MAX:
                return shown, last if is_known else reached
            shown.append(view)
            size += len(bytes(view.payload))
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


def _place(view: View) -> Place:
    return Place(view.job.finished_ns, view.job.id)


def _is_behind(place: Place, other: Place) -> bool:
    """Whether a place comes later in the list than another: it is older."""
    return (place.at_ns, place.job_id.encode()) < (other.at_ns, other.job_id.encode())
