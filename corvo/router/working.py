"""What workers say and hear over HTTP: what they fetch, and what became of it.

An item means the same wherever it stands: alone, in a batch, in a frame of a stream. What it says
wrongly is a `Problem` that names the field, before anything is sent to a shard.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Annotated, Final, TypeVar

import msgspec

from corvo.protocol.jobs import AgentView, agent_view
from corvo.protocol.ops.base import (
    ITEMS_MAX,
    Id,
    Json,
    Limits,
    Millis,
    Op,
    Rejected,
    Text,
    encode_json,
)
from corvo.protocol.ops.work import (
    FETCH_MAX,
    LEASE_MS,
    QUEUES_MAX,
    AckItem,
    BeatItem,
    Claim,
    FailItem,
    Fetch,
    ReleaseItem,
    SnoozeItem,
    StepStatus,
    Usage,
)
from corvo.protocol.ops.workflow import AgentStatus
from corvo.router.http import UNKNOWN, Problem
from corvo.router.problems import problem_of
from corvo.router.words import (
    Duration,
    Plain,
    QueueName,
    RequestKey,
    Usd,
    alone,
    bad_field,
    duration_ms,
    either_ms,
    micros,
    not_reserved,
    or_unset,
)
from corvo.times import format_time

ACKS_MAX: Final = 512
"""Of a batch of any kind of words but heartbeats, as the original has it."""
BEATS_MAX: Final = ITEMS_MAX
WAIT_S: Final = 30
"""How long a fetch waits when nothing is said."""
LEASE_S_MAX: Final = 86_400
_EARLY_S: Final = 0.5
"""A wait ends before the client's own does, or the claim would go to nobody."""
_LIMITS: Final = Limits()
_CUT: Final = " … (cut)"
_GONE: Final = frozenset({"job_not_found", "job_not_active", "lease_lost"})
"""Refusals that say that a job is no longer the caller's."""

E = TypeVar("E", bound=Enum)
BodyT = TypeVar("BodyT")
ItemT = TypeVar("ItemT")
Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Count = Annotated[int, msgspec.Meta(lt=1 << 53)]


# What is said to get jobs.


class FetchBody(msgspec.Struct, kw_only=True):
    """Where jobs are wanted from. Only `queues` is needed."""

    queues: Annotated[list[QueueName], msgspec.Meta(min_length=1, max_length=QUEUES_MAX)]
    """Served in this order."""
    worker_id: Plain | None = None
    hostname: Text | None = None
    timeout: int | None = None
    """Seconds: how long to wait, and how long the lease is, unless said otherwise."""
    wait_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """How long to wait; 0 is not at all."""
    lease_seconds: Annotated[int, msgspec.Meta(ge=1, le=LEASE_S_MAX)] | None = None
    request_key: RequestKey | None = None


class FetchBatchBody(FetchBody, kw_only=True):
    """Where jobs are wanted from, and how many."""

    count: int | None = None
    """At most 512."""


decode_fetch: Final = msgspec.json.Decoder(FetchBody).decode
decode_fetch_batch: Final = msgspec.json.Decoder(FetchBatchBody).decode


def fetch_op(body: FetchBody, request_key: str, by: str, count: int | None = 1) -> Fetch:
    """What is asked for as the op has it."""
    queues = body.queues
    for number, queue in enumerate(queues):
        not_reserved(f"queues[{number}]", queue)
    lease_s = body.lease_seconds
    if lease_s is None:
        timeout = body.timeout
        lease_s = 0 if timeout is None or timeout <= 0 else min(timeout, LEASE_S_MAX)
    return Fetch(
        request_key=request_key,
        by=by,
        queues=queues if len(queues) == 1 else list(dict.fromkeys(queues)),
        worker_id=body.worker_id or "",
        hostname=body.hostname or "",
        count=1 if count is None else max(1, min(count, FETCH_MAX)),
        lease_ms=lease_s * 1_000 or LEASE_MS,
    )


def wait_s(body: FetchBody, wait_s_max: int) -> float:
    """How long a fetch waits: a little less than the client does, or half of it."""
    asked: float
    if body.wait_seconds is not None:
        asked = min(body.wait_seconds, wait_s_max)
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
    """The first is 1."""
    max_retries: int
    lease_duration: int
    """Seconds."""
    lease_token: int
    """To be sent with whatever is said of this job."""
    lease_expires_at: str
    kind: str = ""
    checkpoint: Json = msgspec.UNSET
    tags: dict[str, str] = {}
    agent: AgentView | None = None


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
    )


# What is said of jobs under their leases.


class WordBody(msgspec.Struct, kw_only=True):
    """By what right something is said of a job."""

    lease_token: Token | None = None
    """As the fetch gave it; 0 is none."""
    worker_id: Text | None = None


class UsageBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has used. Less than nothing is nothing."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    model: Text | None = None
    provider: Text | None = None
    cost_usd: Usd | None = None


class AckWords(WordBody, kw_only=True):
    """A job whose work is done."""

    result: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    usage: UsageBody | None = None
    agent_status: (
        Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["continue", "done", "hold"]})]
        | None
    ) = None
    """For an agent's job: whether there is another iteration."""
    hold_reason: Text | None = None
    step_status: (
        Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["continue", "exit"]})] | None
    ) = None
    """For a job of a chain: whether the next step comes."""


class FailWords(WordBody, kw_only=True):
    """A job whose attempt failed, and why."""

    error: str | None = None
    backtrace: str | None = None
    error_class: Text | None = None
    retryable: bool | None = None
    """Whether it may be tried again at all."""
    retry_after: Duration | None = None
    """When to try again, instead of what the job's backoff says."""
    retry_after_ms: Millis | None = None


class ReleaseWords(WordBody, kw_only=True):
    """A job that its worker does not go on with."""

    checkpoint: Json = msgspec.UNSET
    reason: Text | None = None


class AckBody(AckWords, kw_only=True):
    """A job whose work is done."""

    request_key: RequestKey | None = None


class FailBody(FailWords, kw_only=True):
    """A job whose attempt failed, and why."""

    request_key: RequestKey | None = None


class ReleaseBody(ReleaseWords, kw_only=True):
    """A job that its worker does not go on with."""

    request_key: RequestKey | None = None


class SnoozeBody(WordBody, kw_only=True):
    """A job that its worker wants to see again later: `delay` or `delay_ms` says when."""

    delay: Duration | None = None
    delay_ms: Millis | None = None
    checkpoint: Json = msgspec.UNSET
    reason: Text | None = None
    request_key: RequestKey | None = None


class BeatBody(msgspec.Struct, kw_only=True):
    """A job that is still being worked on."""

    progress: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    usage: UsageBody | None = None
    """Looked at and not kept: only an ack's is."""
    lease_token: Token | None = None
    worker_id: Text | None = None


class AckEntry(AckWords, kw_only=True):
    """One of many."""

    job_id: Id


class FailEntry(FailWords, kw_only=True):
    """One of many."""

    job_id: Id


class ReleaseEntry(ReleaseWords, kw_only=True):
    """One of many."""

    job_id: Id


class BeatEntry(BeatBody, kw_only=True):
    """One of a list. A progress or checkpoint that is a text is read as JSON where it is that."""

    job_id: Id


class AckBatchBody(msgspec.Struct, kw_only=True):
    """Jobs whose work is done."""

    acks: Annotated[list[AckEntry], msgspec.Meta(min_length=1)]
    request_key: RequestKey | None = None


class FailBatchBody(msgspec.Struct, kw_only=True):
    """Jobs whose attempts failed."""

    fails: Annotated[list[FailEntry], msgspec.Meta(min_length=1)]
    request_key: RequestKey | None = None


class ReleaseBatchBody(msgspec.Struct, kw_only=True):
    """Jobs that their worker does not go on with."""

    jobs: Annotated[list[ReleaseEntry], msgspec.Meta(min_length=1)]
    request_key: RequestKey | None = None


class HeartbeatBody(msgspec.Struct, kw_only=True):
    """Jobs that are being worked on: by their ids, or as a list."""

    jobs: dict[Id, BeatBody] | list[BeatEntry]
    worker_id: Text | None = None
    request_key: RequestKey | None = None


decode_ack: Final = msgspec.json.Decoder(AckBody).decode
decode_ack_batch: Final = msgspec.json.Decoder(AckBatchBody).decode
decode_fail: Final = msgspec.json.Decoder(FailBody).decode
decode_fail_batch: Final = msgspec.json.Decoder(FailBatchBody).decode
decode_release: Final = msgspec.json.Decoder(ReleaseBody).decode
decode_release_batch: Final = msgspec.json.Decoder(ReleaseBatchBody).decode
decode_snooze: Final = msgspec.json.Decoder(SnoozeBody).decode
decode_heartbeat: Final = msgspec.json.Decoder(HeartbeatBody).decode


# What is made of it.


def ack_item(job_id: str, body: AckWords) -> AckItem:
    """A job whose work is done. Raises `Problem`."""
    item = AckItem(
        job_id=job_id,
        lease_token=body.lease_token or None,
        worker_id=body.worker_id or "",
        result=body.result,
        checkpoint=or_unset(body.checkpoint),
    )
    if body.usage is None and not (body.agent_status or body.step_status or body.hold_reason):
        return item
    agent_status, step_status = body.agent_status, body.step_status
    return msgspec.structs.replace(
        item,
        usage=usage(body.usage),
        agent_status=_word("agent_status", agent_status, AgentStatus) if agent_status else None,
        hold_reason=body.hold_reason or "",
        step_status=(
            _word("step_status", step_status, StepStatus) if step_status else StepStatus.CONTINUE
        ),
    )


def ack_items(body: AckBatchBody) -> list[AckItem]:
    """Jobs whose work is done. Raises `Problem`."""
    return [
        _numbered("acks", number, ack_item, entry.job_id, entry)
        for number, entry in enumerate(body.acks)
    ]


def fail_items(body: FailBatchBody) -> list[FailItem]:
    """Jobs whose attempts failed. Raises `Problem`."""
    return [
        _numbered("fails", number, fail_item, entry.job_id, entry)
        for number, entry in enumerate(body.fails)
    ]


def _numbered(
    field: str, number: int, make: Callable[[str, BodyT], ItemT], job_id: str, body: BodyT
) -> ItemT:
    """An item, whose problems name its place."""
    try:
        return make(job_id, body)
    except Problem as problem:
        where = f"{field}[{number}]"
        raise bad_field(f"{where}.{problem.field}", f"{where}: {problem.error}") from None


def _word(field: str, text: str, words: type[E]) -> E:
    try:
        return words(text.strip().lower())
    except ValueError:
        known = ", ".join(str(each.value) for each in words)
        raise bad_field(field, f"{field}: expected one of {known}; got {text[:60]!r}") from None


def usage(body: UsageBody | None) -> Usage | None:
    """What a run has used; None when that is nothing."""
    if body is None:
        return None
    used = Usage(
        input_tokens=max(0, body.input_tokens or 0),
        output_tokens=max(0, body.output_tokens or 0),
        cache_creation_tokens=max(0, body.cache_creation_tokens or 0),
        cache_read_tokens=max(0, body.cache_read_tokens or 0),
        cost_micros=micros(body.cost_usd),
    )
    if used == Usage():
        return None
    return msgspec.structs.replace(used, model=body.model or "", provider=body.provider or "")


def fail_item(job_id: str, body: FailWords) -> FailItem:
    """A job whose attempt failed. Raises `Problem`.

    A text that is too long is cut: a worker that cannot say that it failed helps nobody.
    """
    retry_after_ms = body.retry_after_ms
    if body.retry_after:
        retry_after_ms = either_ms("retry_after", body.retry_after, retry_after_ms, 0)
    return FailItem(
        job_id=job_id,
        lease_token=body.lease_token or None,
        worker_id=body.worker_id or "",
        error=cut(body.error or "", _LIMITS.error_bytes_max),
        backtrace=cut(body.backtrace or "", _LIMITS.backtrace_bytes_max),
        error_class=body.error_class or "",
        retryable=body.retryable is not False,
        retry_after_ms=retry_after_ms,
    )


def cut(text: str, bytes_max: int) -> str:
    """A text with at most so many bytes of UTF-8."""
    if 4 * len(text) <= bytes_max or len(text.encode()) <= bytes_max:
        return text
    kept = text.encode()[: bytes_max - len(_CUT.encode())]
    return kept.decode(errors="ignore") + _CUT


def release_item(job_id: str, body: ReleaseWords) -> ReleaseItem:
    """A job that its worker does not go on with."""
    return ReleaseItem(
        job_id=job_id,
        lease_token=body.lease_token or None,
        worker_id=body.worker_id or "",
        checkpoint=or_unset(body.checkpoint),
        why=body.reason or "",
    )


def snooze_item(job_id: str, body: SnoozeBody) -> SnoozeItem:
    """A job that its worker wants to see again later. Raises `Problem`."""
    told_ms = duration_ms("delay", body.delay)
    if told_ms is None and body.delay_ms is None:
        raise bad_field("delay", "delay is required")
    return SnoozeItem(
        job_id=job_id,
        lease_token=body.lease_token or None,
        worker_id=body.worker_id or "",
        delay_ms=either_ms("delay", body.delay, body.delay_ms, 0),
        checkpoint=or_unset(body.checkpoint),
        why=body.reason or "",
    )


def beat_items(body: HeartbeatBody) -> list[BeatItem]:
    """Jobs that are being worked on."""
    worker_id = body.worker_id or ""
    if isinstance(body.jobs, dict):
        return [beat_item(job_id, beat, worker_id) for job_id, beat in body.jobs.items()]
    return [
        beat_item(
            entry.job_id,
            entry,
            worker_id,
            progress=_unfolded(entry.progress),
            checkpoint=_unfolded(entry.checkpoint),
        )
        for entry in body.jobs
    ]


def beat_item(
    job_id: str,
    body: BeatBody,
    worker_id: str = "",
    *,
    progress: Json = msgspec.UNSET,
    checkpoint: Json = msgspec.UNSET,
) -> BeatItem:
    """A job that is being worked on; what is given beside the body is instead of what it has."""
    return BeatItem(
        job_id=job_id,
        lease_token=body.lease_token or None,
        worker_id=body.worker_id or worker_id,
        progress=or_unset(body.progress if progress is msgspec.UNSET else progress),
        checkpoint=or_unset(body.checkpoint if checkpoint is msgspec.UNSET else checkpoint),
    )


def _unfolded(value: Json) -> Json:
    """JSON that was sent as a text, as it was before that."""
    if value is msgspec.UNSET or bytes(memoryview(value)[:1]) != b'"':
        return value
    try:
        text = _decode_text(value)
        _decode_any(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return value
    return msgspec.Raw(text.strip().encode())


_decode_text: Final = msgspec.json.Decoder(str).decode
_decode_any: Final = msgspec.json.Decoder(msgspec.Raw).decode


def check_count(what: str, field: str, count: int, count_max: int) -> None:
    """Raise `Problem` for more items than one request may have."""
    if count > count_max:
        raise bad_field(field, f"{what}: expected at most {count_max} items")


# What is heard of it.


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What a shard says of one job: what became of it, or, with a code, why nothing did."""

    job_id: str = ""
    status: str = ""
    next_attempt_ns: int = 0
    attempts_remaining: int = 0
    lease_expires_ns: int = 0
    code: str = ""
    error: str = ""
    field: str = ""
    shard: int = -1


class _Results(msgspec.Struct, frozen=True):
    results: list[Outcome]


_decode_results: Final = msgspec.json.Decoder(_Results).decode


def read_results(body: bytes) -> list[Outcome | Rejected]:
    """What became of each job of an op, in order."""
    return [
        Rejected(one.code, one.error, one.field, one.job_id, one.shard) if one.code else one
        for one in _decode_results(body).results
    ]


def done(outcome: Outcome | Rejected | Problem, conflict: str) -> Outcome:
    """What became of the only job of a request. Raises `Problem` if nothing did.

    `conflict` is the route's own code.
    """
    if isinstance(outcome, Outcome):
        return outcome
    problem = problem_of(outcome, conflict) if isinstance(outcome, Rejected) else outcome
    raise alone(problem)


class AckAnswer(msgspec.Struct, frozen=True):
    """What became of a job."""

    status: str
    """`ok`."""
    state: str
    """Where the job stands now."""


class FailAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job whose attempt failed."""

    status: str
    """`retrying`, `dead`, or `cancelled` if it was asked to stop."""
    next_attempt_at: str | msgspec.UnsetType = msgspec.UNSET
    attempts_remaining: int


class ItemAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one of many; with a code, why nothing did."""

    job_id: str
    status: str = ""
    next_attempt_at: str | msgspec.UnsetType = msgspec.UNSET
    attempts_remaining: int | msgspec.UnsetType = msgspec.UNSET
    error: str = ""
    code: str = ""
    outcome: str = ""
    reason: str = ""
    retry_after_ms: int = 0


class AckBatchAnswer(msgspec.Struct, frozen=True):
    """What became of many, in order."""

    acked: int
    results: list[ItemAnswer]


class FailBatchAnswer(msgspec.Struct, frozen=True):
    """What became of many, in order."""

    failed: int
    results: list[ItemAnswer]


class ReleaseBatchAnswer(msgspec.Struct, frozen=True):
    """What became of many, in order."""

    released: int
    results: list[ItemAnswer]


class BeatAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How it stands with one job."""

    status: str
    """`ok`; `cancel`: stop working on it; `error`: nothing was done, and it may be sent again."""
    lease_expires_at: str = ""
    error: str = ""
    code: str = ""
    outcome: str = ""
    reason: str = ""


_ON_THE_WIRE: Final = {"cancelled": "cancelled".replace("ll", "l")}
"""The original's spelling."""


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True, rename=_ON_THE_WIRE):
    """How it stands with all of them."""

    jobs: dict[str, BeatAnswer]
    acked: list[str]
    """Those whose lease goes on."""
    unknown: list[str]
    """Those that are not the caller's any more."""
    cancelled: list[str]
    """Those that are asked to stop."""
    lease_expires_at: str | msgspec.UnsetType = msgspec.UNSET
    """The earliest of the leases that go on."""


def fail_answer(outcome: Outcome) -> FailAnswer:
    """What a worker hears of a job that failed."""
    next_ns = outcome.next_attempt_ns
    return FailAnswer(
        status=outcome.status,
        next_attempt_at=format_time(next_ns) if next_ns else msgspec.UNSET,
        attempts_remaining=outcome.attempts_remaining,
    )


def item_answer(
    job_id: str, outcome: Outcome | Rejected | Problem, conflict: str, *, is_fail: bool = False
) -> ItemAnswer:
    """What a worker hears of one of many jobs."""
    if isinstance(outcome, Outcome):
        if not is_fail:
            return ItemAnswer(job_id=job_id, status=outcome.status)
        next_ns = outcome.next_attempt_ns
        return ItemAnswer(
            job_id=job_id,
            status=outcome.status,
            next_attempt_at=format_time(next_ns) if next_ns else msgspec.UNSET,
            attempts_remaining=outcome.attempts_remaining,
        )
    problem = problem_of(outcome, conflict) if isinstance(outcome, Rejected) else outcome
    return ItemAnswer(
        job_id=job_id,
        error=problem.error,
        code=problem.code,
        outcome=problem.outcome,
        reason=problem.reason,
        retry_after_ms=problem.retry_after_ms,
    )


def item_answers(
    job_ids: Sequence[str],
    outcomes: Sequence[Outcome | Rejected | Problem],
    conflict: str,
    *,
    is_fail: bool = False,
) -> tuple[int, list[ItemAnswer]]:
    """What a worker hears of many jobs, and of how many something became."""
    answers = [
        item_answer(job_id, outcome, conflict, is_fail=is_fail)
        for job_id, outcome in zip(job_ids, outcomes, strict=True)
    ]
    return sum(not answer.code for answer in answers), answers


def heartbeat_answer(
    job_ids: Sequence[str], outcomes: Sequence[Outcome | Rejected | Problem]
) -> HeartbeatAnswer:
    """How it stands with jobs. Raises `Problem` when that is not known of any of them."""
    problems = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
    if problems and len(problems) == len(outcomes):
        unknown = [problem for problem in problems if problem.outcome == UNKNOWN]
        raise (unknown or problems)[0]
    answer = HeartbeatAnswer(jobs={}, acked=[], unknown=[], cancelled=[])
    earliest_ns = 0
    for job_id, outcome in zip(job_ids, outcomes, strict=True):
        answer.jobs[job_id] = beat = beat_answer(outcome)
        if isinstance(outcome, Outcome):
            expires_ns = outcome.lease_expires_ns
            earliest_ns = min(earliest_ns or expires_ns, expires_ns)
            answer.acked.append(job_id)
            if beat.status == "cancel":
                answer.cancelled.append(job_id)
        elif beat.status == "cancel":
            answer.unknown.append(job_id)
    if not earliest_ns:
        return answer
    return msgspec.structs.replace(answer, lease_expires_at=format_time(earliest_ns))


def beat_answer(outcome: Outcome | Rejected | Problem) -> BeatAnswer:
    """How it stands with one job."""
    if isinstance(outcome, Outcome):
        return BeatAnswer(
            status=outcome.status, lease_expires_at=format_time(outcome.lease_expires_ns)
        )
    if isinstance(outcome, Rejected) and outcome.code in _GONE:
        return BeatAnswer(status="cancel", error=outcome.error, reason=outcome.code)
    problem = problem_of(outcome) if isinstance(outcome, Rejected) else outcome
    return BeatAnswer(
        status="error",
        error=problem.error,
        code=problem.code,
        outcome=problem.outcome,
        reason=problem.reason,
    )


# Many jobs.


def sift(
    items: Sequence[ItemT], op_of: Callable[[Sequence[ItemT]], Op]
) -> tuple[list[int], dict[int, Rejected]]:
    """Places of items that a shard would take, and why it would not take the others.

    One item that is too large must not keep the others from being heard.
    """
    if op_of(items).check(_LIMITS) is None:
        return list(range(len(items))), {}
    refused: dict[int, Rejected] = {}
    for place, item in enumerate(items):
        found = op_of([item]).check(_LIMITS)
        if found is not None:
            refused[place] = msgspec.structs.replace(
                found,
                field=found.field.replace("[0]", f"[{place}]", 1),
                error=found.error.replace("[0]", f"[{place}]", 1),
            )
    return [place for place in range(len(items)) if place not in refused], refused


def parts_of(items: Sequence[msgspec.Struct], body_bytes: int) -> list[range]:
    """Places of items in order, as many together as go into one op by number and by bytes.

    `body_bytes` is how many came in for all of them.
    """
    if body_bytes <= _PART_BYTES and len(items) <= ITEMS_MAX:
        return [range(len(items))] if items else []
    parts: list[range] = []
    begin, taken = 0, 0
    for place, item in enumerate(items):
        size = len(encode_json(item)) + 1
        if place > begin and (taken + size > _PART_BYTES or place - begin == ITEMS_MAX):
            parts.append(range(begin, place))
            begin, taken = place, 0
        taken += size
    if items:
        parts.append(range(begin, len(items)))
    return parts


_PART_BYTES: Final = 3 << 20
"""Of three quarters of what an op may have: the rest is for what stands around the items."""
