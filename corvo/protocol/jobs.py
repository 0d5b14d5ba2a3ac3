"""Jobs as clients see them: the shard of a job renders it once, and others pass the bytes on."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from corvo.model import Agent, Backoff, Job, JobError, State
from corvo.protocol.ops.base import Json
from corvo.protocol.reasons import reason_of
from corvo.times import format_duration, format_time

Time = Annotated[
    str,
    msgspec.Meta(description="A moment by RFC 3339.", extra_json_schema={"format": "date-time"}),
]
"""As we write it."""
_MICROS: Final = 1_000_000


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why one attempt failed, or why the job ended without one."""

    id: int  # rises with every error of the job; 0 is no error of an attempt
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
    """The loop of an agent's job; a limit that is absent does not apply."""

    max_iterations: int = 0
    max_cost_usd: float | msgspec.UnsetType = msgspec.UNSET
    iteration_timeout: str = ""
    iteration: int = 0
    total_cost_usd: float | msgspec.UnsetType = msgspec.UNSET


def agent_view(agent: Agent) -> AgentView:
    """The agent of a stored job as clients see it."""
    timeout_ms = agent.iteration_timeout_ms
    return AgentView(
        max_iterations=agent.max_iterations,
        max_cost_usd=_usd_or_unset(agent.max_cost_micros),
        iteration_timeout=format_duration(timeout_ms) if timeout_ms else "",
        iteration=agent.iteration,
        total_cost_usd=_usd_or_unset(agent.total_cost_micros),
    )


def _usd_or_unset(cost_micros: int) -> float | msgspec.UnsetType:
    return cost_micros / _MICROS if cost_micros else msgspec.UNSET


class JobSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job in a list."""

    id: str
    queue: str
    state: State
    payload: msgspec.Raw
    priority: int  # 0 is critical, 1 high, 2 normal
    attempt: int
    max_retries: int  # how many attempts there are, the first included
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
    finished_at: Time | None = None  # when it became completed, dead or cancelled
    hold_reason: str = ""
    last_error: str = ""  # the reason of its end, or of its hold as a crash loop, comes first
    dlq_reason: str = ""  # why it is dead, in one word


class FoundJob(JobSummary, frozen=True, kw_only=True, omit_defaults=True):
    """A job as a search shows it.

    The mirror writes it by the names and the defaults here: each field is the column of its name,
    and `last_error` the reason of its state, or the text of the newest error.
    """

    hostname: str = ""
    expire_at: Time | None = None
    changed_at: Time  # the moment of its last event
    failures: int = 0  # errors ever recorded of it


class JobBody(JobSummary, frozen=True, kw_only=True, omit_defaults=True):
    """A job and all that is known of it."""

    retry_backoff: Backoff
    retry_base_delay_ms: int
    retry_max_delay_ms: int
    hostname: str = ""
    progress: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    result: Json = msgspec.UNSET
    lease_expires_at: Time | None = None
    cancel_requested: bool = False  # whether its worker was asked to stop
    expire_at: Time | None = None
    chain_config: Json = msgspec.UNSET
    waits_for: tuple[str, ...] = ()  # jobs that have to be completed before it is given out
    crashes: int = 0  # leases that expired since it was last retried from the start
    held_at: Time | None = None
    errors: list[ErrorBody] = []  # the last ones, the oldest first
    agent: AgentView | None = None
    trail: list[EventBody] = []  # what happened to it: the first event, and the last ones
    traceparent: str = ""
    tracestate: str = ""


def error_bodies(job: Job, errors: Sequence[JobError]) -> list[ErrorBody]:
    """The errors that are kept of a job, the oldest first; then the reason of its state."""
    first = job.failures - len(errors) + 1
    bodies = [
        ErrorBody(
            id=number,
            job_id=job.id,
            attempt=error.attempt,
            error=error.error,
            backtrace=error.backtrace,
            error_class=error.error_class,
            worker_id=error.worker_id,
            created_at=format_time(error.at_ns),
        )
        for number, error in enumerate(errors, start=first)
    ]
    reason = reason_of(job)
    if reason is not None:
        bodies.append(
            ErrorBody(
                id=0,
                job_id=job.id,
                attempt=job.attempt,
                error=reason.text,
                error_class=reason.word,
                created_at=format_time(reason.at_ns),
            )
        )
    return bodies
