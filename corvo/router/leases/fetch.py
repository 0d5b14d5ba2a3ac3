"""Bodies of fetch requests: from JSON to the op, and from claims to jobs."""

from typing import Annotated, Final

import msgspec

from corvo.protocol.jobs import AgentView, agent_view
from corvo.protocol.ops.base import Json, Millis, Text
from corvo.protocol.ops.work import (
    FETCH_MAX,
    LEASE_MS,
    LEASE_MS_MIN,
    QUEUES_MAX,
    Claim,
    Fetch,
)
from corvo.router.http.bodies import (
    DURATION_MS_MAX,
    Body,
    Plain,
    QueueName,
    RequestKey,
    not_reserved,
)
from corvo.router.http.messages import bad_field
from corvo.times import format_time

WAIT_S: Final = 30
"""How long a fetch waits when nothing is said."""
LEASE_S_MAX: Final = 86_400
_EARLY_S: Final = 0.5
"""A wait ends before the client's own does, or the claim would go to nobody."""


# What is said to get jobs.


class FetchBody(msgspec.Struct, kw_only=True):
    """Where jobs are wanted from. Only `queues` is needed."""

    queues: Annotated[list[QueueName], msgspec.Meta(min_length=1, max_length=QUEUES_MAX)]
    worker_id: Plain | None = None
    hostname: Text | None = None
    timeout: int | None = None
    """Seconds: how long to wait, and how long the lease is, unless said otherwise."""
    wait_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    wait_ms: Millis | None = None
    lease_seconds: Annotated[int, msgspec.Meta(ge=1, le=LEASE_S_MAX)] | None = None
    lease_ms: Annotated[int, msgspec.Meta(ge=LEASE_MS_MIN, le=LEASE_S_MAX * 1_000)] | None = None
    request_key: RequestKey | None = None


class FetchBatchBody(FetchBody, kw_only=True):
    """Where jobs are wanted from, and how many."""

    count: int | None = None


decode_fetch: Final = Body(FetchBody)
decode_fetch_batch: Final = Body(FetchBatchBody)


def fetch_op(body: FetchBody, by: str, count: int | None = 1) -> Fetch:
    """What is asked for as the op has it."""
    queues = body.queues
    for number, queue in enumerate(queues):
        not_reserved(f"queues[{number}]", queue)
    lease_ms = span_ms("lease", body.lease_seconds, body.lease_ms)
    if lease_ms is None:
        timeout = body.timeout
        lease_ms = 0 if timeout is None or timeout <= 0 else min(timeout, LEASE_S_MAX) * 1_000
    return Fetch(
        by=by,
        queues=queues if len(queues) == 1 else list(dict.fromkeys(queues)),
        worker_id=body.worker_id or "",
        hostname=body.hostname or "",
        count=1 if count is None else max(1, min(count, FETCH_MAX)),
        lease_ms=lease_ms or LEASE_MS,
    )


def span_ms(what: str, seconds: float | None, milliseconds: int | None) -> int | None:
    """The wait or the lease, in either spelling. Raises `Problem` if the two differ."""
    if seconds is None:
        return milliseconds
    told = round(min(seconds, DURATION_MS_MAX / 1_000) * 1_000)
    if milliseconds is not None and milliseconds != told:
        error = f"{what}_seconds and {what}_ms differ: send only one of them"
        raise bad_field(f"{what}_ms", error)
    return told


def wait_s(body: FetchBody, wait_s_max: int) -> float:
    """How long a fetch waits: a little less than the client does, or half of it."""
    asked: float
    wait_ms = span_ms("wait", body.wait_seconds, body.wait_ms)
    if wait_ms is not None:
        asked = min(wait_ms / 1_000, wait_s_max)
    elif body.timeout is None or body.timeout <= 0:
        asked = min(WAIT_S, wait_s_max)
    else:
        asked = min(body.timeout, wait_s_max)
    return max(asked - _EARLY_S, asked / 2)


# What is heard of them.


class FetchedJob(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job that a worker was given."""

    job_id: str
    queue: str
    payload: msgspec.Raw
    attempt: int
    max_retries: int
    lease_duration: int
    lease_token: int
    lease_expires_at: str
    kind: str = ""
    checkpoint: Json = msgspec.UNSET
    tags: dict[str, str] = {}
    agent: AgentView | None = None
    traceparent: str = ""
    tracestate: str = ""


class FetchBatchAnswer(msgspec.Struct, frozen=True):
    """Jobs that a worker was given; none, too, is an answer."""

    jobs: list[FetchedJob]


def fetched_job(claim: Claim) -> FetchedJob:
    """A claim as its worker reads it."""
    assert isinstance(claim.payload, msgspec.Raw), "every job has a payload"
    return FetchedJob(  # by position, which takes half the time
        claim.job_id,
        claim.queue,
        claim.payload,
        claim.attempt,
        claim.max_retries,
        claim.lease_duration,
        claim.lease_token,
        format_time(claim.lease_expires_ns),
        claim.kind,
        claim.checkpoint,
        claim.tags,
        agent_view(claim.agent) if claim.agent is not None else None,
        claim.trace.traceparent if claim.trace is not None else "",
        claim.trace.tracestate if claim.trace is not None else "",
    )
