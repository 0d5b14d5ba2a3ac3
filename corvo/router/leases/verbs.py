"""Operations on jobs under their leases, over HTTP and on a stream: bodies, answers, one table.

`VERBS` has one row for each operation. A row names the op, the bodies and the answers; endpoints,
routes, batches and the parts of a stream's frame follow from it. An item means the same alone, in
a batch and in a frame. An invalid field is a `Problem` that names the field, before anything is
sent to a shard.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Protocol, TypeAlias, TypeVar

import msgspec

from corvo.protocol.ops.base import ITEMS_MAX, Id, Json, Limits, Millis, Rejected, Text
from corvo.protocol.ops.work import (
    Ack,
    AckItem,
    BeatItem,
    Fail,
    FailItem,
    Heartbeat,
    LeaseItem,
    LeaseOp,
    Release,
    ReleaseItem,
    Snooze,
    SnoozeItem,
    StepStatus,
    Usage,
)
from corvo.protocol.ops.workflow import AgentStatus
from corvo.router.http.bodies import (
    Body,
    Duration,
    RequestKey,
    Usd,
    duration_ms,
    either_ms,
    micros,
    or_unset,
    read_enum,
)
from corvo.router.http.messages import UNKNOWN, Problem, bad_field
from corvo.router.http.problems import problem_of
from corvo.router.http.unknown_fields import not_kept
from corvo.router.metrics import Throughput
from corvo.router.routes import EXAMPLE_ID
from corvo.router.shards.outcomes import Outcome
from corvo.times import format_time, format_time_or_none

BATCH_MAX: Final = 512
"""Items of a batch of any operation but heartbeats."""
BEATS_MAX: Final = ITEMS_MAX
LIMITS: Final = Limits()
_CUT: Final = " … (cut)"
_GONE: Final = frozenset({"job_not_found", "job_not_active", "lease_lost"})
"""Rejections that mean that the job is no longer leased to the caller."""

T = TypeVar("T")
Lease: TypeAlias = LeaseItem[object]
Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Count = Annotated[int, msgspec.Meta(lt=1 << 53)]
FrameItems: TypeAlias = Annotated[list[T], msgspec.Meta(max_length=ITEMS_MAX)]


# Bodies.


class LeaseBody(msgspec.Struct, kw_only=True):
    """The lease under which something is done to a job."""

    lease_token: Token | None = None
    """As the fetch gave it; 0 means not set."""
    worker_id: Text | None = None

    def item(self, job_id: str) -> Lease:
        """The item of the op, for a job. Raises `Problem`."""
        raise NotImplementedError


class UsageBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has used. Less than nothing is nothing."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    model: Text | None = None
    provider: Text | None = None
    cost_usd: Usd | None = None


_NOT_STORED: Final = not_kept("usage is not stored yet")


class AckFields(LeaseBody, kw_only=True):
    """A job whose work is done."""

    result: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    usage: Annotated[
        UsageBody | None,
        not_kept("usage is not stored yet; cost_usd is added to the cost of an agent's job"),
    ] = None
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

    def item(self, job_id: str) -> AckItem:
        """The job as the op has it."""
        item = AckItem(
            job_id=job_id,
            lease_token=self.lease_token or None,
            worker_id=self.worker_id or "",
            result=self.result,
            checkpoint=or_unset(self.checkpoint),
        )
        agent_status, step_status = self.agent_status, self.step_status
        if self.usage is None and not (agent_status or step_status or self.hold_reason):
            return item
        return msgspec.structs.replace(
            item,
            usage=usage(self.usage),
            agent_status=read_enum("agent_status", agent_status, AgentStatus)
            if agent_status
            else None,
            hold_reason=self.hold_reason or "",
            step_status=(
                read_enum("step_status", step_status, StepStatus)
                if step_status
                else StepStatus.CONTINUE
            ),
        )


class FailFields(LeaseBody, kw_only=True):
    """A job whose attempt failed, and why."""

    error: str | None = None
    backtrace: str | None = None
    error_class: Text | None = None
    retryable: bool | None = None
    """Whether it may be tried again at all."""
    retry_after: Duration | None = None
    """When to try again, instead of what the job's backoff says."""
    retry_after_ms: Millis | None = None
    usage: Annotated[UsageBody | None, _NOT_STORED] = None

    def item(self, job_id: str) -> FailItem:
        """The job as the op has it.

        A text that is too long is cut: a failure that cannot be reported helps no one.
        """
        retry_after_ms = self.retry_after_ms
        if self.retry_after:
            retry_after_ms = either_ms("retry_after", self.retry_after, retry_after_ms, 0)
        return FailItem(
            job_id=job_id,
            lease_token=self.lease_token or None,
            worker_id=self.worker_id or "",
            error=cut(self.error or "", LIMITS.error_bytes_max),
            backtrace=cut(self.backtrace or "", LIMITS.backtrace_bytes_max),
            error_class=self.error_class or "",
            retryable=self.retryable is not False,
            retry_after_ms=retry_after_ms,
        )


class ReleaseFields(LeaseBody, kw_only=True):
    """A job that its worker does not go on with."""

    checkpoint: Json = msgspec.UNSET
    reason: Text | None = None

    def item(self, job_id: str) -> ReleaseItem:
        """The job as the op has it."""
        return ReleaseItem(
            job_id=job_id,
            lease_token=self.lease_token or None,
            worker_id=self.worker_id or "",
            checkpoint=or_unset(self.checkpoint),
            why=self.reason or "",
        )


class SnoozeFields(LeaseBody, kw_only=True):
    """A job that its worker wants to fetch again later: `delay` or `delay_ms` says when."""

    delay: Duration | None = None
    delay_ms: Millis | None = None
    checkpoint: Json = msgspec.UNSET
    reason: Text | None = None

    def item(self, job_id: str) -> SnoozeItem:
        """The job as the op has it."""
        if duration_ms("delay", self.delay) is None and self.delay_ms is None:
            raise bad_field("delay", "delay is required")
        return SnoozeItem(
            job_id=job_id,
            lease_token=self.lease_token or None,
            worker_id=self.worker_id or "",
            delay_ms=either_ms("delay", self.delay, self.delay_ms, 0),
            checkpoint=or_unset(self.checkpoint),
            why=self.reason or "",
        )


class BeatBody(LeaseBody, kw_only=True):
    """A job that is still being worked on."""

    progress: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    usage: Annotated[UsageBody | None, _NOT_STORED] = None

    def item(self, job_id: str, worker_id: str = "") -> BeatItem:
        """The job as the op has it; `worker_id` is that of the whole request."""
        return BeatItem(
            job_id=job_id,
            lease_token=self.lease_token or None,
            worker_id=self.worker_id or worker_id,
            progress=or_unset(self.progress),
            checkpoint=or_unset(self.checkpoint),
        )


# One body alone, one of a batch or a frame, and a batch.


class AckBody(AckFields, kw_only=True):
    """A job whose work is done."""

    request_key: RequestKey | None = None


class FailBody(FailFields, kw_only=True):
    """A job whose attempt failed, and why."""

    request_key: RequestKey | None = None


class ReleaseBody(ReleaseFields, kw_only=True):
    """A job that its worker does not go on with."""

    request_key: RequestKey | None = None


class SnoozeBody(SnoozeFields, kw_only=True):
    """A job that its worker wants to fetch again later: `delay` or `delay_ms` says when."""

    request_key: RequestKey | None = None


class AckEntry(AckFields, kw_only=True):
    """One job of many whose work is done."""

    job_id: Id


class FailEntry(FailFields, kw_only=True):
    """One job of many whose attempts failed."""

    job_id: Id


class ReleaseEntry(ReleaseFields, kw_only=True):
    """One job of many that are given back."""

    job_id: Id


class SnoozeEntry(SnoozeFields, kw_only=True):
    """One job of many that are to be fetched again later: `delay` or `delay_ms` says when."""

    job_id: Id


class BeatEntry(BeatBody, kw_only=True):
    """One job of a list. A progress or checkpoint that is a string may have JSON in it."""

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


class SnoozeBatchBody(msgspec.Struct, kw_only=True):
    """Jobs that their worker wants to fetch again later."""

    jobs: Annotated[list[SnoozeEntry], msgspec.Meta(min_length=1)]
    request_key: RequestKey | None = None


class HeartbeatBody(msgspec.Struct, kw_only=True):
    """Jobs that are being worked on: by their ids, or as a list."""

    jobs: dict[Id, BeatBody] | list[BeatEntry]
    worker_id: Text | None = None
    request_key: RequestKey | None = None


decode_heartbeat: Final = Body(HeartbeatBody)


def beat_items(body: HeartbeatBody) -> list[BeatItem]:
    """Jobs that are being worked on."""
    worker_id = body.worker_id or ""
    if isinstance(body.jobs, dict):
        return [beat.item(job_id, worker_id) for job_id, beat in body.jobs.items()]
    for entry in body.jobs:
        entry.progress = _unfolded(entry.progress)
        entry.checkpoint = _unfolded(entry.checkpoint)
    return [entry.item(entry.job_id, worker_id) for entry in body.jobs]


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


def usage(body: UsageBody | None) -> Usage | None:
    """The usage of a run as the op has it; None if it is empty."""
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


def cut(text: str, bytes_max: int) -> str:
    """A text with at most so many bytes of UTF-8."""
    if 4 * len(text) <= bytes_max or len(text.encode()) <= bytes_max:
        return text
    kept = text.encode()[: bytes_max - len(_CUT.encode())]
    return kept.decode(errors="ignore") + _CUT


# Answers.


class AckAnswer(msgspec.Struct, frozen=True):
    """The state of a job after the operation."""

    status: str
    state: str

    @classmethod
    def of(cls, outcome: Outcome) -> "AckAnswer":
        """The answer for one job."""
        return cls("ok", outcome.status)


class FailAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job whose attempt failed."""

    status: str
    next_attempt_at: str | msgspec.UnsetType = msgspec.UNSET
    attempts_remaining: int

    @classmethod
    def of(cls, outcome: Outcome) -> "FailAnswer":
        """The answer for one job."""
        return cls(
            status=outcome.status,
            next_attempt_at=_next_attempt_at(outcome),
            attempts_remaining=outcome.attempts_remaining,
        )


def _next_attempt_at(outcome: Outcome) -> str | msgspec.UnsetType:
    return format_time_or_none(outcome.next_attempt_ns) or msgspec.UNSET


class ItemAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result for one job of many; with a code, the reason why nothing was done."""

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
    """How many jobs were acknowledged, and a result for each, in order."""

    acked: int
    results: list[ItemAnswer]


class FailBatchAnswer(msgspec.Struct, frozen=True):
    """How many failed attempts were recorded, and a result for each, in order."""

    failed: int
    results: list[ItemAnswer]


class ReleaseBatchAnswer(msgspec.Struct, frozen=True):
    """How many jobs were given back, and a result for each, in order."""

    released: int
    results: list[ItemAnswer]


class SnoozeBatchAnswer(msgspec.Struct, frozen=True):
    """How many jobs were given back for later, and a result for each, in order."""

    snoozed: int
    results: list[ItemAnswer]


class BeatAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one lease."""

    status: str
    lease_expires_at: str = ""
    error: str = ""
    code: str = ""
    outcome: str = ""
    reason: str = ""


class BeatResult(BeatAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one lease, on a stream."""

    job_id: str


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True, rename={"cancelled": "canceled"}):
    """The state of all leases."""

    jobs: dict[str, BeatAnswer]
    acked: list[str]
    unknown: list[str]
    cancelled: list[str]
    lease_expires_at: str | msgspec.UnsetType = msgspec.UNSET


def heartbeat_answer(
    job_ids: Sequence[str], outcomes: Sequence[Outcome | Rejected | Problem]
) -> HeartbeatAnswer:
    """The state of all leases. Raises `Problem` when that is not known of any of them."""
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
            if expires_ns:
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
    """The state of one lease."""
    return BeatAnswer(**_beat_fields(outcome))


def _beat_fields(outcome: Outcome | Rejected | Problem) -> dict[str, str]:
    if isinstance(outcome, Outcome):
        if outcome.status == "ended":  # nothing to stop: the heartbeat crossed the worker's ack
            return {"status": "ok", "reason": "lease_ended"}
        return {
            "status": outcome.status,
            "lease_expires_at": format_time(outcome.lease_expires_ns),
        }
    if isinstance(outcome, Rejected) and outcome.code in _GONE:
        return {"status": "cancel", "error": outcome.error, "reason": outcome.code}
    problem = problem_of(outcome) if isinstance(outcome, Rejected) else outcome
    return {
        "status": "error",
        "error": problem.error,
        "code": problem.code,
        "outcome": problem.outcome,
        "reason": problem.reason,
    }


def check_count(what: str, field: str, count: int, count_max: int) -> None:
    """Raise `Problem` for more items than one request may have."""
    if count > count_max:
        raise bad_field(field, f"{what}: expected at most {count_max} items")


# The table.


class LeaseEntry(Protocol):
    """One job of a batch or a frame."""

    job_id: str

    def item(self, job_id: str) -> Lease:
        """The item of the op, for a job. Raises `Problem`."""


class LeaseVerb(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on jobs under their leases."""

    name: str
    op: type[LeaseOp[object]]
    entry: type[msgspec.Struct]
    """A `LeaseEntry`."""
    part: str
    """The field of a frame that has the entries."""
    result: str
    """The field of a reply that has a result for each; in the answer to a batch, the count."""
    conflict: str = "CONFLICT"
    """The code of a problem when the job's state does not allow the operation."""
    counts: Callable[[Throughput, int], None] | None = None
    """The metric that counts the jobs it was done to."""

    def read(self, field: str, entry: LeaseEntry) -> Lease | Rejected:
        """An entry as the op has it; `field` is its place. Raises `Problem` if it is invalid."""
        item = entry.item(entry.job_id)
        return item.check(field, LIMITS) or item

    def answer(self, job_id: str, outcome: Outcome | Rejected | Problem) -> msgspec.Struct:
        """The result for one job of many."""
        return BeatResult(job_id=job_id, **_beat_fields(outcome))

    def count(self, throughput: Throughput, done: int = 1) -> None:
        """Count jobs that it was done to."""
        if self.counts is not None:
            self.counts(throughput, done)


class RoutedVerb(LeaseVerb, frozen=True, kw_only=True):
    """An operation with a route for one job and a route for a batch."""

    body: type[AckBody | FailBody | ReleaseBody | SnoozeBody]
    batch: type[AckBatchBody | FailBatchBody | ReleaseBatchBody | SnoozeBatchBody]
    """It has the entries in the field that the op has its items in."""
    one: type[AckAnswer | FailAnswer]
    many: type[msgspec.Struct]
    """Made of the count and the results."""
    summary: str
    description: str
    example: dict[str, object]
    batch_summary: str
    batch_description: str
    batch_example: dict[str, object] | None
    tells_retry: bool = False
    """Whether results say when the next attempt is."""

    def answer(self, job_id: str, outcome: Outcome | Rejected | Problem) -> ItemAnswer:
        """The result for one job of many."""
        if not isinstance(outcome, Outcome):
            problem = (
                outcome if isinstance(outcome, Problem) else problem_of(outcome, self.conflict)
            )
            return ItemAnswer(
                job_id=job_id,
                error=problem.error,
                code=problem.code,
                outcome=problem.outcome,
                reason=problem.reason,
                retry_after_ms=problem.retry_after_ms,
            )
        if not self.tells_retry:
            return ItemAnswer(job_id=job_id, status=outcome.status)
        return ItemAnswer(
            job_id=job_id,
            status=outcome.status,
            next_attempt_at=_next_attempt_at(outcome),
            attempts_remaining=outcome.attempts_remaining,
        )


ACK: Final = RoutedVerb(
    name="ack",
    op=Ack,
    entry=AckEntry,
    part="acks",
    result="acked",
    conflict="ACK_ERROR",
    counts=Throughput.completed,
    body=AckBody,
    batch=AckBatchBody,
    one=AckAnswer,
    many=AckBatchAnswer,
    summary="Complete a job",
    description=(
        "Completes a job. Repeating the call with the same `lease_token` is safe: it gets the"
        " first answer."
    ),
    example={"lease_token": 524_288, "result": {"sent": True}},
    batch_summary="Complete jobs",
    batch_description="Completes up to 512 jobs. Each job succeeds or fails separately.",
    batch_example={"acks": [{"job_id": EXAMPLE_ID, "lease_token": 524_288}]},
)
FAIL: Final = RoutedVerb(
    name="fail",
    op=Fail,
    entry=FailEntry,
    part="fails",
    result="failed",
    conflict="FAIL_ERROR",
    counts=Throughput.failed,
    body=FailBody,
    batch=FailBatchBody,
    one=FailAnswer,
    many=FailBatchAnswer,
    summary="Report a failed attempt",
    description=(
        "Reports a failed attempt. If attempts are left, the job is retried after a delay;"
        " otherwise it becomes dead."
    ),
    example={
        "lease_token": 524_288,
        "error": "the server said 450",
        "backtrace": "mail.py, line 17, in send",
        "error_class": "SMTPResponseException",
        "retry_after": "10m",
    },
    batch_summary="Report failed attempts (many jobs)",
    batch_description="Reports up to 512 failed attempts. Each job succeeds or fails separately.",
    batch_example={"fails": [{"job_id": EXAMPLE_ID, "error": "the server said 450"}]},
    tells_retry=True,
)
HEARTBEAT: Final = LeaseVerb(
    name="heartbeat",
    op=Heartbeat,
    entry=BeatEntry,
    part="heartbeats",
    result="heartbeats",
)
RELEASE: Final = RoutedVerb(
    name="release",
    op=Release,
    entry=ReleaseEntry,
    part="releases",
    result="released",
    conflict="RELEASE_ERROR",
    body=ReleaseBody,
    batch=ReleaseBatchBody,
    one=AckAnswer,
    many=ReleaseBatchAnswer,
    summary="Give a job back; the attempt does not count",
    description="Gives a job back to its old place in the queue. The attempt does not count.",
    example={"lease_token": 524_288},
    batch_summary="Give many jobs back; the attempts do not count",
    batch_description="Gives up to 512 jobs back to their old places. Attempts do not count.",
    batch_example=None,
)
SNOOZE: Final = RoutedVerb(
    name="snooze",
    op=Snooze,
    entry=SnoozeEntry,
    part="snoozes",
    result="snoozed",
    conflict="SNOOZE_ERROR",
    body=SnoozeBody,
    batch=SnoozeBatchBody,
    one=AckAnswer,
    many=SnoozeBatchAnswer,
    summary="Give a job back until later; the attempt does not count",
    description=(
        "Gives a job back. It becomes pending again after the delay, and the attempt does not"
        " count."
    ),
    example={"lease_token": 524_288, "delay": "5m"},
    batch_summary="Give many jobs back until later; the attempts do not count",
    batch_description="Gives up to 512 jobs back, each after its delay. Attempts do not count.",
    batch_example={
        "jobs": [
            {
                "job_id": EXAMPLE_ID,
                "lease_token": 524_288,
                "delay": "5m",
            }
        ]
    },
)
VERBS: Final[tuple[LeaseVerb, ...]] = (ACK, FAIL, HEARTBEAT, RELEASE, SNOOZE)
"""In the order in which they are done within a frame."""


class LeaseFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The operations under leases that a frame of a stream has; done in this order."""

    id: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
    """Comes back with the reply."""
    acks: FrameItems[AckEntry] = []
    fails: FrameItems[FailEntry] = []
    heartbeats: FrameItems[BeatEntry] = []
    releases: FrameItems[ReleaseEntry] = []
    snoozes: FrameItems[SnoozeEntry] = []


class LeaseReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The results of the operations of a frame, each part in the order of its entries."""

    id: int
    acked: list[ItemAnswer] | None = None
    failed: list[ItemAnswer] | None = None
    heartbeats: list[BeatResult] | None = None
    released: list[ItemAnswer] | None = None
    snoozed: list[ItemAnswer] | None = None


def entries_of(frame: msgspec.Struct, name: str) -> Sequence[LeaseEntry]:
    """The entries in a field of a frame or a batch."""
    entries: Sequence[LeaseEntry] = getattr(frame, name)
    return entries
