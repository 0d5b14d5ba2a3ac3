"""Ops of workers: fetch, ack, fail, heartbeat, release and snooze."""

from collections.abc import Sequence
from enum import Enum
from typing import Annotated, ClassVar, Final, Generic, Self, TypeVar

import msgspec

from corvo.model import Agent, Settled
from corvo.protocol.ops.base import (
    ITEMS_MAX,
    Id,
    Json,
    Limits,
    Millis,
    Name,
    Rejected,
    Text,
    Token,
    TypedOp,
    bad_request,
)
from corvo.protocol.ops.checks import bad_json, bad_name, too_long_text
from corvo.protocol.ops.workflow import COST_MAX, AgentStatus
from corvo.trace_context import TraceContext

LEASE_MS: Final = 60_000
"""How long a lease is when nothing is said."""

FETCH_MAX: Final = 512

QUEUES_MAX: Final = 64
"""Queues that one fetch may name."""

LEASE_MS_MIN: Final = 1_000
"""No lease is shorter: heartbeats have to get through."""

_CHECKPOINT: Final = ("checkpoint", "checkpoint_bytes_max")
R_co = TypeVar("R_co", covariant=True)


class Claim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job that a worker was given."""

    job_id: str
    queue: str
    payload: Json
    attempt: int
    max_retries: int
    lease_duration: int  # seconds, rounded up
    lease_token: int  # to be sent with each operation on this job
    lease_expires_ns: int
    kind: str = ""
    checkpoint: Json = msgspec.UNSET
    tags: dict[str, str] = {}
    agent: Agent | None = None
    trace: TraceContext | None = None


class Claims(msgspec.Struct, frozen=True):
    """What a fetch got: nothing, too, is an answer."""

    jobs: list[Claim]


class Fetch(TypedOp[Claims], frozen=True, kw_only=True):
    """Take the next jobs of some queues, in the order in which the queues are named."""

    NUMBER = 3
    queues: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=QUEUES_MAX)]
    worker_id: Text = ""
    hostname: Text = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=FETCH_MAX)] = 1
    lease_ms: Millis = LEASE_MS

    def check(self, limits: Limits) -> Rejected | None:
        """A lease has to be long enough to be kept."""
        if self.lease_ms < LEASE_MS_MIN:
            return bad_request("lease_ms", f"a lease has at least {LEASE_MS_MIN} ms")
        for number, name in enumerate(self.queues):
            refused = bad_name(f"queues[{number}]", name)
            if refused is not None:
                return refused
        return bad_name("worker_id", self.worker_id)


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run has used."""

    input_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    output_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    cache_creation_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    cache_read_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    model: Text = ""
    provider: Text = ""
    cost_micros: Annotated[int, msgspec.Meta(ge=0, lt=COST_MAX)] = 0


# Operations under a lease.


class LeaseItem(
    msgspec.Struct, Generic[R_co], frozen=True, kw_only=True, omit_defaults=True, gc=False
):
    """One job, and the lease under which something is done to it."""

    job_id: Id
    lease_token: Token | None = None
    worker_id: Text = ""
    is_own: bool = False
    """Whether the server itself asks, about its own work, which no client may touch."""
    ENDS: ClassVar[str] = ""
    """How the job's document records that this operation ended the lease; empty if it does not."""
    JSON: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Fields with a client's JSON, each with the name of its limit."""

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """The first limit that the item exceeds; `field` is the item's own place."""
        for name, limit in self.JSON:
            value: Json = getattr(self, name)
            if value is not msgspec.UNSET:
                refused = bad_json(f"{field}.{name}", value, getattr(limits, limit))
                if refused is not None:
                    return refused
        return None

    def repeat(self, settled: Settled) -> R_co:
        """The result of the same operation under the same token, which ended the lease before."""
        raise NotImplementedError


class LeaseResults(msgspec.Struct, Generic[R_co], frozen=True):
    """One result for each job, in order."""

    results: list[R_co | Rejected]


class LeaseOp(TypedOp[LeaseResults[R_co]], Generic[R_co], frozen=True, kw_only=True):
    """One operation on jobs under their leases; each item succeeds or fails by itself."""

    ITEMS: ClassVar[str]  # name of the field with the items, in the log and in the code

    @classmethod
    def of(cls, items: Sequence[LeaseItem[R_co]], *, by: str = "") -> Self:
        """The op with these items, whatever its field is called."""
        return cls(**{cls.ITEMS: items}, by=by)  # type: ignore[arg-type]  # no other field

    @property
    def items(self) -> Sequence[LeaseItem[R_co]]:
        """All items, in order."""
        items: Sequence[LeaseItem[R_co]] = getattr(self, self.ITEMS)
        return items

    def check(self, limits: Limits) -> Rejected | None:
        """Texts and JSON of the items have limits."""
        for number, item in enumerate(self.items):
            refused = item.check(f"{self.ITEMS}[{number}]", limits)
            if refused is not None:
                return refused
        return None

    @property
    def is_safe_twice(self) -> bool:
        """A lease ends once, and the same operation under its token gets the same answer again."""
        return bool(self.request_key) or all(item.lease_token is not None for item in self.items)


class Acked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Result for a job that was acknowledged, released or snoozed."""

    job_id: str
    status: str


class _StateItem(LeaseItem[Acked], frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An operation whose result is the job's new state."""

    def repeat(self, settled: Settled) -> Acked:
        """The state in which the lease ended."""
        return Acked(self.job_id, settled.state.word)


class StepStatus(Enum):
    """How a chain goes on after a step."""

    CONTINUE = "continue"
    EXIT = "exit"


class AckItem(_StateItem, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job whose work is done."""

    result: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    usage: Usage | None = None  # its cost is added to that of an agent's job
    agent_status: AgentStatus | None = None
    """For an agent's job: whether this was its last iteration; without it, it was."""
    hold_reason: Text = ""
    step_status: StepStatus = StepStatus.CONTINUE
    """For a job of a chain: whether the next step comes."""
    ENDS = "ack"
    JSON = (("result", "result_bytes_max"), _CHECKPOINT)


class Ack(LeaseOp[Acked], frozen=True, kw_only=True):
    """Complete jobs."""

    NUMBER = 4
    ITEMS = "acks"
    acks: Annotated[list[AckItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]


class Failed(msgspec.Struct, frozen=True, gc=False):
    """What became of a job whose attempt failed."""

    job_id: str
    status: str
    next_attempt_ns: int = 0  # 0 when there is none
    attempts_remaining: int = 0


class FailItem(LeaseItem[Failed], frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job whose attempt failed, and why."""

    error: str = ""
    backtrace: str = ""
    error_class: Text = ""
    retryable: bool = True
    retry_after_ms: Millis | None = None
    """When to try again; without it the job's own backoff decides."""
    ENDS = "fail"

    def check(self, field: str, limits: Limits) -> Rejected | None:
        """Error and backtrace have a limit."""
        refused = too_long_text(f"{field}.error", self.error, limits.error_bytes_max)
        return refused or too_long_text(
            f"{field}.backtrace", self.backtrace, limits.backtrace_bytes_max
        )

    def repeat(self, settled: Settled) -> Failed:
        """The state after the failed attempt."""
        return Failed(self.job_id, settled.state.word, settled.due_ns, settled.attempts_left)


class Fail(LeaseOp[Failed], frozen=True, kw_only=True):
    """Report failed attempts of jobs."""

    NUMBER = 5
    ITEMS = "fails"
    fails: Annotated[list[FailItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]


class Beat(msgspec.Struct, frozen=True, gc=False):
    """A lease that goes on."""

    job_id: str
    status: str
    """`ok`; `cancel`: the worker is asked to stop; `ended`: the worker itself ended the lease."""
    lease_expires_ns: int


class BeatItem(LeaseItem[Beat], frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job that is still being worked on."""

    progress: Json = msgspec.UNSET
    checkpoint: Json = msgspec.UNSET
    JSON = (("progress", "progress_bytes_max"), _CHECKPOINT)


class Heartbeat(LeaseOp[Beat], frozen=True, kw_only=True):
    """Renew the leases of jobs, with their progress."""

    NUMBER = 6
    ITEMS = "jobs"
    jobs: Annotated[list[BeatItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]

    @property
    def is_safe_twice(self) -> bool:
        """A lease that is renewed twice is renewed."""
        return True


class ReleaseItem(_StateItem, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job that its worker does not go on with."""

    checkpoint: Json = msgspec.UNSET
    why: Text = ""
    ENDS = "release"
    JSON = (_CHECKPOINT,)


class Release(LeaseOp[Acked], frozen=True, kw_only=True):
    """Give jobs back, as if they had not been fetched."""

    NUMBER = 64
    ITEMS = "jobs"
    jobs: Annotated[list[ReleaseItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]


class SnoozeItem(_StateItem, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job that its worker wants to see again later."""

    delay_ms: Millis
    checkpoint: Json = msgspec.UNSET
    why: Text = ""
    ENDS = "snooze"
    JSON = (_CHECKPOINT,)


class Snooze(LeaseOp[Acked], frozen=True, kw_only=True):
    """Give jobs back, to be fetched again later."""

    NUMBER = 65
    ITEMS = "jobs"
    jobs: Annotated[list[SnoozeItem], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]
