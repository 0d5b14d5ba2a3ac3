"""Batches, chains, dependencies and agents of an enqueue, and the checks of them."""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, ClassVar, Final

import msgspec

from corvo.ids import shard_of
from corvo.model import Agent, Backoff, Priority
from corvo.protocol.ops.base import (
    Json,
    Limits,
    Millis,
    Rejected,
    Text,
    bad_request,
    encode_json,
)
from corvo.protocol.ops.checks import bad_json, bad_name, bad_tags, bad_trace, has_bad_field
from corvo.trace_context import TraceContext

STEPS_MAX: Final = 100
CHAIN_BYTES_MAX: Final = 1 << 20
"""Largest size of a definition as JSON, which is in every job of the chain."""
DEPENDENCIES_MAX: Final = 64
"""Largest number of jobs that one job may depend on."""
COST_MAX: Final = 1 << 53

ON_EXIT: Final = -1
ON_FAILURE: Final = -2
"""Numbers of the handlers of a chain, as steps."""

CALLBACK_BYTES_MAX: Final = 1 << 20
"""Largest payload of a callback, which must fit into an effect at any limit of payloads."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a chain: its queue, and its own payload beside the result of the step before.

    The other fields and their defaults are those of `NewJob`.
    """

    queue: str
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    kind: Text = ""
    priority: Annotated[int, msgspec.Meta(ge=0, le=2)] = Priority.NORMAL
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 3
    retry_backoff: Backoff = Backoff.EXPONENTIAL
    retry_base_delay_ms: Millis = 5_000
    retry_max_delay_ms: Millis = 600_000
    retry_jitter: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    max_run_time_ms: Millis = 0
    max_crashes: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 5
    expire_after_ms: Millis = 0
    expire_active: bool = False
    tags: dict[str, str] = {}


class Chain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The definition of a chain."""

    steps: list[Step]
    """The first step is the job that is enqueued with the chain, with its own payload."""
    on_failure: Step | None = None
    on_exit: Step | None = None
    cancel_is_failure: bool | None = None
    """Whether `on_failure` is also enqueued after a cancelled step. A chain without it is from an
    older router, and is not."""

    def at(self, number: int) -> Step:
        """The step of this number, which can be that of a handler."""
        step = {ON_EXIT: self.on_exit, ON_FAILURE: self.on_failure}.get(number)
        return step if step is not None else self.steps[number]


class AgentStatus(Enum):
    """The next state of an agent's job after an iteration."""

    CONTINUE = "continue"
    DONE = "done"
    HOLD = "hold"


class NewBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A new batch of the jobs of an enqueue."""

    total: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] = 0
    """Number of its members, with those in other shards; 0 is the number of these jobs."""
    callback_queue: str = ""
    callback_payload: Json = msgspec.UNSET
    queue: str = ""  # the queue that it belongs to
    trace: TraceContext | None = None  # of its callback
    FIELDS_SINCE: ClassVar[Mapping[str, int]] = {"trace": 6}

    def check(self, field: str, jobs: int) -> Rejected | None:
        """The refusal of an invalid batch; `field` is its place in the op."""
        if 0 < self.total < jobs:
            return bad_request(
                f"{field}.total", f"{field}.total: expected at least {jobs}, the number of jobs"
            )
        refused = None
        if self.callback_queue:
            refused = bad_name(f"{field}.callback_queue", self.callback_queue)
        refused = refused or bad_name(f"{field}.queue", self.queue)
        if self.trace is not None:
            refused = refused or bad_trace(field, self.trace)
        return refused or _bad_payload(
            f"{field}.callback_payload", self.callback_payload, CALLBACK_BYTES_MAX
        )


class NewAgent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of an agent's job; 0 is no limit."""

    max_iterations: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] = 0
    max_cost_micros: Annotated[int, msgspec.Meta(ge=0, lt=COST_MAX)] = 0
    iteration_timeout_ms: Millis = 0

    def begin(self) -> Agent:
        """The agent before its first iteration."""
        return Agent(self.max_iterations, self.max_cost_micros, self.iteration_timeout_ms)


def bad_chain(field: str, chain: Chain, queue: str, limits: Limits) -> Rejected | None:
    """The refusal of an invalid chain whose first job goes to `queue`."""
    if not 2 <= len(chain.steps) <= STEPS_MAX:
        return bad_request(f"{field}.steps", f"{field}.steps: expected 2 to {STEPS_MAX} steps")
    if chain.steps[0].queue != queue:
        return bad_request(
            f"{field}.steps[0].queue", f"{field}.steps[0].queue must be the job's queue {queue!r}"
        )
    named = [(f"{field}.steps[{number}]", step) for number, step in enumerate(chain.steps)]
    named += [(f"{field}.on_failure", chain.on_failure)] if chain.on_failure is not None else []
    named += [(f"{field}.on_exit", chain.on_exit)] if chain.on_exit is not None else []
    for where, step in named:
        refused = _bad_step(where, step, limits)
        if refused is not None:
            return refused
    if len(encode_json(chain)) > CHAIN_BYTES_MAX:
        error = f"{field} has more than {CHAIN_BYTES_MAX} bytes"
        return Rejected("payload_too_large", error, field=field)
    return None


def _bad_step(field: str, step: Step, limits: Limits) -> Rejected | None:
    if not step.queue:
        return bad_request(f"{field}.queue", f"{field}.queue is empty")
    return (
        bad_name(f"{field}.queue", step.queue)
        or _bad_payload(f"{field}.payload", step.payload, limits.payload_bytes_max)
        or bad_tags(f"{field}.tags", step.tags, limits)
    )


def _bad_payload(field: str, payload: Json, bytes_max: int) -> Rejected | None:
    """The refusal of JSON whose fields cannot be merged with others."""
    refused = bad_json(field, payload, bytes_max)
    if refused is not None or payload is msgspec.UNSET:
        return refused
    if has_bad_field(bytes(payload)):
        return bad_request(field, f"{field}: a name is not valid UTF-8")
    return None


def bad_dependencies(
    field: str, depends_on: tuple[str, ...], own_id: str | None
) -> Rejected | None:
    """The refusal of invalid dependencies."""
    if len(depends_on) > DEPENDENCIES_MAX:
        return bad_request(field, f"{field}: expected at most {DEPENDENCIES_MAX} ids")
    for number, job_id in enumerate(depends_on):
        where = f"{field}[{number}]"
        if job_id == own_id:
            return bad_request(where, "a job cannot wait for itself")
        refused = bad_name(where, job_id)
        if refused is not None:
            return refused
    return None


def bad_batch_id(field: str, batch_id: str, *, has_own: bool) -> Rejected | None:
    """The refusal of an invalid batch id."""
    if has_own:
        return bad_request(field, "batch_id and batch exclude each other: send only one of them")
    if shard_of(batch_id) is None:
        return bad_request(field, f"{field}: unknown batch id")
    return bad_name(field, batch_id)
