"""Bodies of enqueue requests: from JSON to the op, and from its results to answers.

An item means the same wherever it stands: alone, in a batch, in a frame of a stream. What it says
wrongly is a `Problem` that names the field, before anything is sent to a shard.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from corvo.ids import full_id
from corvo.model import Backoff
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import (
    ID_BYTES_MAX,
    ITEMS_MAX,
    Id,
    Json,
    Limits,
    Millis,
    Rejected,
    Text,
    encode_json,
)
from corvo.protocol.ops.enqueue import Enqueued, NewJob, untraced
from corvo.protocol.ops.workflow import (
    DEPENDENCIES_MAX,
    STEPS_MAX,
    Chain,
    NewAgent,
    NewBatch,
    Step,
    bad_batch_id,
)
from corvo.protocol.words import GivenPriority
from corvo.router.http.bodies import (
    Body,
    Duration,
    GivenTime,
    Plain,
    QueueName,
    RequestKey,
    Usd,
    either_ms,
    micros,
    not_reserved,
    or_unset,
    read_body,
    read_enum,
    read_priority,
    renamed,
    time_ns,
)
from corvo.router.http.messages import APPLIED, NOT_APPLIED, UNKNOWN, Problem, bad_field
from corvo.router.http.problems import problem_of
from corvo.router.http.unknown_fields import json_of
from corvo.router.shards.fan_out import Part, digest_of, under_key
from corvo.trace_context import TRACEPARENT_MAX, TRACESTATE_MAX, TraceContext

LIMITS: Final = Limits()
"""A batch is held to these before any of it is sent. A shard may have been given others."""
DEPENDENCY_WAIT_MS: Final = 86_400_000
"""How long a job waits for one that does not exist yet, unless it says otherwise."""
_ROOM_BYTES: Final = 4_096
"""Of an op beside its jobs."""
_TRACE_BYTES: Final = TRACEPARENT_MAX + TRACESTATE_MAX + 64
"""Of a job's trace context in an op."""
_WORDS_FOR_NO_STEP: Final = frozenset({"", "stop", "continue"})
_COPIED: Final = ("kind", "max_retries", "retry_jitter", "max_crashes", "expire_active", "tags")
_COPIED_OF_JOBS: Final = ("unique_key", "parent_id", "batch_id")
"""Fields that mean the same here and in the op; null is as absent."""


ChosenId = Annotated[
    Id,
    msgspec.Meta(
        extra_json_schema={"pattern": r"^([A-Za-z0-9_.:-]+~)?(?!s[0-9]+_)[A-Za-z0-9_.:-]{1,128}$"}
    ),
]
Traceparent = Annotated[
    str,
    msgspec.Meta(
        max_length=TRACEPARENT_MAX,
        # What is read is more than this pattern says; but all that it says is read.
        extra_json_schema={
            "pattern": "^(00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})?$"
        },
    ),
]
Tracestate = Annotated[
    str,
    msgspec.Meta(
        max_length=TRACESTATE_MAX,
        extra_json_schema={"pattern": "^([a-z][a-z0-9_*/-]{0,60}=[A-Za-z0-9._:/+-]{1,200})?$"},
    ),
]
Seconds = Annotated[int, msgspec.Meta(le=10 * 366 * 86_400)]


# What is said.


class StepBody(msgspec.Struct, kw_only=True):
    """A job of a chain. Only `queue` is needed."""

    queue: QueueName
    payload: Json = msgspec.UNSET
    kind: Text | None = None
    priority: GivenPriority | None = None
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=100_000)] | None = None
    retry_backoff: (
        Annotated[
            str,
            msgspec.Meta(extra_json_schema={"enum": ["none", "fixed", "linear", "exponential"]}),
        ]
        | None
    ) = None
    retry_base_delay: Duration | None = None
    retry_base_delay_ms: Millis | None = None
    retry_max_delay: Duration | None = None
    retry_max_delay_ms: Millis | None = None
    retry_jitter: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    max_run_time: Duration | None = None
    max_run_time_ms: Millis | None = None
    max_crashes: Annotated[int, msgspec.Meta(ge=0, le=100_000)] | None = None
    expire_after: Duration | None = None
    expire_after_ms: Millis | None = None
    expire_active: bool | None = None
    tags: dict[str, str] | None = None


_FIELDS_OF_STEPS: Final = tuple(field for field in StepBody.__struct_fields__ if field != "queue")


class ChainBody(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that follow each other. The first is the job that is enqueued."""

    steps: Annotated[list[StepBody], msgspec.Meta(min_length=2, max_length=STEPS_MAX)]
    on_failure: StepBody | str | None = None
    """A text is a queue; `stop` and `continue` are as nothing."""
    on_exit: StepBody | str | None = None
    cancel_is_failure: bool | None = None


class _ChainConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A chain as the original kept it."""

    steps: list[StepBody] = []
    on_failure: StepBody | str | None = None
    on_exit: StepBody | str | None = None
    cancel_is_failure: bool | None = None
    depends_on: list[str] | None = None


class AgentBody(msgspec.Struct, frozen=True, kw_only=True):
    """How long an agent's job may loop; 0 and less are no limit."""

    max_iterations: Annotated[int, msgspec.Meta(lt=1 << 53)] | None = None
    max_cost_usd: Usd | None = None
    iteration_timeout: Duration | None = None
    iteration_timeout_ms: Millis | None = None


class EnqueueItem(StepBody, kw_only=True):
    """A job to be made. Only `queue` is needed."""

    id: ChosenId | None = None
    unique_key: Plain | None = None
    unique_period: Duration | Seconds | None = None
    """A number is of seconds; 0 and less are the default, an hour."""
    unique_period_ms: Millis | None = None
    scheduled_at: GivenTime | None = None
    delay: Duration | None = None
    delay_ms: Millis | None = None
    checkpoint: Json = msgspec.UNSET
    parent_id: Annotated[str, msgspec.Meta(max_length=ID_BYTES_MAX)] | None = None
    batch_id: Annotated[str, msgspec.Meta(max_length=128)] | None = None
    chain: ChainBody | None = None
    depends_on: Annotated[list[str], msgspec.Meta(max_length=DEPENDENCIES_MAX)] | None = None
    dependency_wait: Duration | None = None
    dependency_wait_ms: Millis | None = None
    agent: AgentBody | None = None
    chain_config: Annotated[
        Json,
        msgspec.Meta(extra_json_schema={"type": ["object", "null"]}),
        json_of(_ChainConfig),
    ] = msgspec.UNSET
    chain_id: str | None = None
    chain_step: int | None = None
    traceparent: Traceparent | None = None
    tracestate: Tracestate | None = None


class EnqueueBody(EnqueueItem, kw_only=True):
    """A job to be made, and the caller's name for asking so."""

    request_key: RequestKey | None = None


class BatchBody(msgspec.Struct, frozen=True, kw_only=True):
    """What is to come when all jobs of a batch have ended."""

    callback_queue: Plain | None = None
    callback_payload: Json = msgspec.UNSET
    traceparent: Traceparent | None = None
    tracestate: Tracestate | None = None


class EnqueueBatchBody(msgspec.Struct, kw_only=True):
    """Jobs to be made."""

    jobs: Annotated[list[EnqueueItem], msgspec.Meta(min_length=1)]
    batch: BatchBody | None = None
    request_key: RequestKey | None = None


decode_enqueue: Final = Body(EnqueueBody)
decode_enqueue_batch: Final = Body(EnqueueBatchBody)
_decode_chain_config: Final = msgspec.json.Decoder(_ChainConfig).decode
_decode_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


# What is made of it.


def new_job(item: EnqueueItem, trace: TraceContext | None = None) -> NewJob:
    """An item as the op has it; `trace` is for one without a trace of its own. Raises `Problem`."""
    if item == type(item)(queue=item.queue, payload=item.payload):
        # As most are: this costs a third of a look at each field.
        not_reserved("queue", item.queue)
        return NewJob(queue=item.queue, payload=item.payload, trace=trace)
    others: dict[str, object] = {}
    if _names_others(item):
        item = _add_others(others, item)
    changes = _run_fields(item)
    if others:
        changes |= others
    for name in _COPIED_OF_JOBS:
        value = getattr(item, name)
        if value is not None:
            changes[name] = value
    if item.id is not None:
        changes["id"] = item.id if "~" in item.id else full_id(item.queue, item.id)
    if item.checkpoint is not msgspec.UNSET:
        changes["checkpoint"] = or_unset(item.checkpoint)
    _add_times(changes, item)
    if item.agent is not None:
        changes["agent"] = _agent(item.agent)
    if item.chain_id or item.chain_step:
        raise bad_field(
            "chain_id" if item.chain_id else "chain_step",
            "chain_id and chain_step are set by the server: send `chain` with all steps instead",
        )
    not_reserved("queue", item.queue)
    trace = own_trace(item.traceparent, item.tracestate) or trace
    job = NewJob(queue=item.queue, payload=item.payload, trace=trace)
    # `changes` has what the item has: each of a type that the op takes.
    return replace(job, **changes) if changes else job  # type: ignore[arg-type]


def own_trace(traceparent: str | None, tracestate: str | None) -> TraceContext | None:
    """The trace context of a body, which the op checks. Raises `Problem`."""
    if traceparent:
        return TraceContext(traceparent, tracestate or "")
    if tracestate:
        raise bad_field(
            "tracestate",
            "tracestate belongs to a traceparent: send both, or leave both out",
        )
    return None


def _run_fields(item: StepBody) -> dict[str, object]:
    """What an item or a step says of the runs of its job. Raises `Problem`."""
    changes: dict[str, object] = {}
    for name in _COPIED:
        value = getattr(item, name)
        if value is not None:
            changes[name] = value
    if item.priority is not None and item.priority != "":
        changes["priority"] = read_priority(item.priority)
    if item.retry_backoff:
        changes["retry_backoff"] = read_enum("retry_backoff", item.retry_backoff, Backoff)
    for name, text, span_ms in (
        ("retry_base_delay", item.retry_base_delay, item.retry_base_delay_ms),
        ("retry_max_delay", item.retry_max_delay, item.retry_max_delay_ms),
        ("max_run_time", item.max_run_time, item.max_run_time_ms),
        ("expire_after", item.expire_after, item.expire_after_ms),
    ):
        if text or span_ms is not None:
            changes[f"{name}_ms"] = either_ms(name, text, span_ms, 0)
    return changes


def _add_times(changes: dict[str, object], item: EnqueueItem) -> None:
    if item.dependency_wait or item.dependency_wait_ms is not None:
        changes["dependency_wait_ms"] = either_ms(
            "dependency_wait", item.dependency_wait, item.dependency_wait_ms, 0
        )
    if item.unique_period is not None or item.unique_period_ms is not None:
        changes["unique_period_ms"] = _unique_period_ms(item)
    has_delay = bool(item.delay) or item.delay_ms is not None
    if item.scheduled_at:
        if has_delay:
            raise bad_field(
                "delay", "scheduled_at and delay exclude each other: send only one of them"
            )
        changes["scheduled_ns"] = time_ns("scheduled_at", item.scheduled_at)
    elif has_delay:
        changes["delay_ms"] = either_ms("delay", item.delay, item.delay_ms, 0)


def _unique_period_ms(item: EnqueueItem) -> int:
    """0 is the shard's default."""
    period = item.unique_period
    if isinstance(period, str):
        return either_ms("unique_period", period, item.unique_period_ms, 0)
    if period is None or period <= 0:
        return item.unique_period_ms or 0
    period_ms = period * 1_000
    if item.unique_period_ms is not None and item.unique_period_ms != period_ms:
        error = "unique_period and unique_period_ms differ: send only one of them"
        raise bad_field("unique_period", error)
    return period_ms


def _agent(agent: AgentBody) -> NewAgent:
    return NewAgent(
        max_iterations=max(0, agent.max_iterations or 0),
        max_cost_micros=micros(agent.max_cost_usd),
        iteration_timeout_ms=either_ms(
            "agent.iteration_timeout", agent.iteration_timeout, agent.iteration_timeout_ms, 0
        ),
    )


def _add_others(changes: dict[str, object], item: EnqueueItem) -> EnqueueItem:
    """Chains and dependencies, said in either way. Returns the job with all that is said of it."""
    config = or_unset(item.chain_config)
    depends_on = list(item.depends_on or ())
    chain: ChainBody | _ChainConfig | None = item.chain
    if config is not msgspec.UNSET:
        if item.chain is not None:
            raise bad_field(
                "chain_config", "chain and chain_config exclude each other: send only `chain`"
            )
        told = _read_chain_config(bytes(config))
        depends_on += told.depends_on or ()
        chain = told if told.steps else None
    if chain is not None:
        field = "chain_config" if item.chain is None else "chain"
        item = _with_first_step(item, chain.steps[0], f"{field}.steps[0]")
        changes["chain"] = _chain(chain, field)
    named = dict.fromkeys(job_id.strip() for job_id in depends_on)
    named.pop("", None)
    if named:
        changes["depends_on"] = tuple(named)
        changes["dependency_wait_ms"] = DEPENDENCY_WAIT_MS
    return item


def _with_first_step(item: EnqueueItem, first: StepBody, field: str) -> EnqueueItem:
    """The job with the fields of its own step; one that differs from the job's is refused.

    Some client libraries always send both.
    """
    told = {}
    for name in _FIELDS_OF_STEPS:
        value = getattr(first, name)
        if name == "payload":
            value = or_unset(value)
        if value is None or value is msgspec.UNSET:
            continue
        of_job = getattr(item, name)
        if of_job not in (None, msgspec.UNSET) and _read_raw(of_job) != _read_raw(value):
            error = f"{name} and {field}.{name} are both of the first job: send only `{name}`"
            raise bad_field(f"{field}.{name}", error)
        told[name] = value
    return replace(item, **told) if told else item


def _read_raw(value: object) -> object:
    """A value to be compared: JSON as what it says, whatever its spaces."""
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value


def _read_chain_config(config: bytes) -> _ChainConfig:
    try:
        told = read_body(_decode_chain_config, config)
    except Problem as problem:
        field = f"chain_config.{problem.field}" if problem.field else "chain_config"
        raise bad_field(field, f"{problem.error}; prefer `chain`") from None
    if not told.steps and (told.on_failure or told.on_exit):
        raise bad_field("chain_config.steps", "chain_config.steps is required; prefer `chain`")
    return told


def _chain(chain: ChainBody | _ChainConfig, field: str) -> Chain:
    """A chain as the op has it. The fields of the first step are in the job."""
    first, *others = chain.steps
    steps = [_step(step, f"{field}.steps[{number}]") for number, step in enumerate(others, 1)]
    told = Chain(
        steps=[Step(first.queue), *steps],
        on_failure=_handler(chain.on_failure, f"{field}.on_failure"),
        on_exit=_handler(chain.on_exit, f"{field}.on_exit"),
        cancel_is_failure=chain.cancel_is_failure is not False,
    )
    for step in (*told.steps, told.on_failure, told.on_exit):
        if step is not None:
            not_reserved("chain", step.queue)
    return told


def _handler(step: StepBody | str | None, field: str) -> Step | None:
    if step is None:
        return None
    if isinstance(step, StepBody):
        return _step(step, field)
    queue = step.strip()
    return None if queue in _WORDS_FOR_NO_STEP else Step(queue)


def _step(step: StepBody, field: str) -> Step:
    try:
        changes = _run_fields(step)
    except Problem as problem:
        raise bad_field(f"{field}.{problem.field}", f"{field}: {problem.error}") from None
    told = Step(step.queue, or_unset(step.payload))
    # As of a job: each is of a type that the op takes.
    return replace(told, **changes) if changes else told  # type: ignore[arg-type]


def queues_of(job: NewJob) -> list[str]:
    """All queues that a job names, its own first: whoever makes it must be allowed to."""
    queues = [job.queue]
    if job.chain is not None:
        queues += [step.queue for step in job.chain.steps]
        queues += [
            step.queue for step in (job.chain.on_failure, job.chain.on_exit) if step is not None
        ]
    return queues


def queues_of_item(item: EnqueueItem) -> list[str]:
    """All queues that an item names, its own first. Raises `Problem`."""
    return queues_of(new_job(item)) if _names_others(item) else [item.queue]


def jobs_of_item(item: EnqueueItem) -> Sequence[str]:
    """The jobs that an item waits for: their ends decide what becomes of it. Raises `Problem`."""
    return new_job(item).depends_on if _names_others(item) else ()


def batches_of_item(item: EnqueueItem) -> Sequence[str]:
    """The batch that an item joins."""
    return (item.batch_id,) if item.batch_id else ()


def batches_of_batch(body: EnqueueBatchBody) -> Sequence[str]:
    """The batches that the items of a batch join."""
    return [item.batch_id for item in body.jobs if item.batch_id]


def _names_others(item: EnqueueItem) -> bool:
    """Whether an item names queues or jobs beside its own queue."""
    return item.chain is not None or bool(item.depends_on) or item.chain_config is not msgspec.UNSET


def new_batch(batch: BatchBody | None, trace: TraceContext | None = None) -> NewBatch | None:
    """A batch to be made; `trace` is for one without a trace of its own. Raises `Problem`."""
    if batch is None:
        return None
    not_reserved("batch.callback_queue", batch.callback_queue or "")
    return NewBatch(
        callback_queue=batch.callback_queue or "",
        callback_payload=or_unset(batch.callback_payload),
        trace=_trace_of_batch(batch) or trace,
    )


def _trace_of_batch(batch: BatchBody) -> TraceContext | None:
    try:
        return own_trace(batch.traceparent, batch.tracestate)
    except Problem as problem:
        field = f"batch.{problem.field}"
        raise bad_field(field, f"{field}: {problem.error}") from None


# Many jobs.


def new_jobs(
    items: Sequence[EnqueueItem],
    *,
    first: int = 0,
    has_own_batch: bool = False,
    trace: TraceContext | None = None,
) -> list[NewJob]:
    """Items as the op has them, all of them looked at. Raises `Problem` for the first bad one.

    `first` is the number of the first item where they stand.
    """
    jobs = []
    for number, item in enumerate(items, start=first):
        job = _numbered_job(number, item, trace)
        refused = check_job(f"jobs[{number}]", job, has_own_batch=has_own_batch)
        if refused is not None:
            raise problem_of(refused)
        jobs.append(job)
    return jobs


def check_job(field: str, job: NewJob, *, has_own_batch: bool = False) -> Rejected | None:
    """Why a job, which stands in this field, would be refused by its shard."""
    refused = job.check(field, LIMITS)
    if refused is None and job.batch_id:
        return bad_batch_id(f"{field}.batch_id", job.batch_id, has_own=has_own_batch)
    return refused


def _numbered_job(number: int, item: EnqueueItem, trace: TraceContext | None = None) -> NewJob:
    """An item of many as the op has it; a `Problem` names its place."""
    try:
        return new_job(item, trace)
    except Problem as problem:
        where = f"jobs[{number}]"
        raise bad_field(f"{where}.{problem.field}", f"{where}: {problem.error}") from None


def queues_of_batch(body: EnqueueBatchBody) -> list[str]:
    """All queues that the items and the callback of a batch name. Raises `Problem`."""
    queues = {item.queue: None for item in body.jobs}
    for job in _linked(body):
        queues |= dict.fromkeys(queues_of(job))
    if body.batch is not None and body.batch.callback_queue:
        queues[body.batch.callback_queue] = None
    return list(queues)


def jobs_of_batch(body: EnqueueBatchBody) -> list[str]:
    """The jobs that the items of a batch wait for. Raises `Problem`."""
    return [job_id for job in _linked(body) for job_id in job.depends_on]


def _linked(body: EnqueueBatchBody) -> list[NewJob]:
    """The items that name queues or jobs beside their own queue."""
    return [
        _numbered_job(number, item) for number, item in enumerate(body.jobs) if _names_others(item)
    ]


def check_batch(batch: NewBatch | None, jobs: int) -> None:
    """Raise `Problem` for what is wrong with a batch."""
    refused = batch.check("batch", jobs) if batch is not None else None
    if refused is not None:
        raise problem_of(refused)


def plan(
    jobs: Sequence[NewJob], shards: int, batch: NewBatch | None = None, *, by_queue: bool = False
) -> list[list[Part]]:
    """The parts of a request, for each shard in the order in which they are to be sent.

    An op has at most `ITEMS_MAX` jobs, and only so many bytes. `by_queue` is for a request with a
    key: each queue has parts of its own, in order. Raises `Problem` for a job that is too large for
    any op.
    """
    room = LIMITS.op_bytes_max - _ROOM_BYTES
    if batch is not None:
        room -= len(encode_json(replace(batch, trace=None))) + _TRACE_BYTES
    groups: dict[int | str, list[Part]] = {}
    sizes: dict[int | str, int] = {}
    shard_of: dict[str, int] = {}
    for place, job in enumerate(jobs):
        shard = shard_of.get(job.queue)
        if shard is None:
            shard = shard_of[job.queue] = shard_of_queue(job.queue, shards)
        # The same request in another trace has the same parts.
        size = len(encode_json(job if job.trace is None else replace(job, trace=None))) + 1
        if job.trace is not None:
            size += _TRACE_BYTES
        if size > room:
            error = f"jobs[{place}] is too large: {size} bytes with all of its fields"
            raise Problem(413, "PAYLOAD_TOO_LARGE", error, field=f"jobs[{place}]")
        group = job.queue if by_queue else shard
        parts = groups.setdefault(group, [])
        if not parts or len(parts[-1].places) == ITEMS_MAX or sizes[group] + size > room:
            parts.append(Part(shard, []))
            sizes[group] = 0
        parts[-1].places.append(place)
        sizes[group] += size
    if not by_queue:
        return list(groups.values())
    return [_of_queue(jobs, parts) for parts in groups.values()]


def _of_queue(jobs: Sequence[NewJob], parts: Sequence[Part]) -> list[Part]:
    its_jobs = [jobs[place] for part in parts for place in part.places]
    whole = digest_of(untraced(its_jobs)) if len(parts) > 1 else ""
    return under_key(parts, ("queue", its_jobs[0].queue), whole)


def moved(problem: Problem, part: Part) -> Problem:
    """A problem of a part, naming the place that the job has in the request."""
    found = _PLACE.match(problem.field)
    if found is None or int(found[1]) >= len(part.places):
        return problem
    return renamed(problem, found[0], f"jobs[{part.places[int(found[1])]}]")


_PLACE: Final = re.compile(r"jobs\[([0-9]{1,6})\]")


# What is heard.


class MadeJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that was made, or was there."""

    id: str
    queue: str
    state: str = ""


class EnqueueAnswer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of a job."""

    job_id: str
    status: str
    unique_existing: bool
    job: MadeJob
    unique_job_id: str | msgspec.UnsetType = msgspec.UNSET


class BatchedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What became of one of many; with a code, it is not known to be there."""

    job_id: str | None
    id: str | None
    status: str = ""
    unique_existing: bool | msgspec.UnsetType = msgspec.UNSET
    error: str = ""
    code: str = ""
    outcome: str = ""
    reason: str = ""
    differs: tuple[str, ...] = ()
    """Fields in which the job that has the id differs from this one."""


class EnqueueBatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of many, in order."""

    job_ids: list[str]
    batch_id: str | msgspec.UnsetType = msgspec.UNSET
    jobs: list[BatchedJob]


class PartialAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem that came when some was done already: which jobs are there, and which may be."""

    error: str
    code: str
    outcome: str
    reason: str = ""
    field: str = ""
    retry_after_ms: int = 0
    request_id: str = ""
    batch_id: str = ""
    job_ids: list[str | None]
    jobs: list[BatchedJob]


def enqueue_answer(made: Enqueued, queue: str) -> EnqueueAnswer:
    """What a producer hears of its job; `queue` is the one that it named."""
    job_id, status, existed = made.job_id, made.status, made.unique_existing
    queue = queue if made.queue is msgspec.UNSET else made.queue
    state = "" if status == "duplicate" else status
    return EnqueueAnswer(
        job_id=job_id,
        status=status,
        unique_existing=existed,
        job=MadeJob(job_id, queue, state),
        unique_job_id=job_id if existed else msgspec.UNSET,
    )


def batched(outcome: Enqueued | Problem) -> BatchedJob:
    """What a producer hears of one of many."""
    if isinstance(outcome, Problem):
        return BatchedJob(
            job_id=None,
            id=None,
            error=outcome.error,
            code=outcome.code,
            outcome=outcome.outcome,
            reason=outcome.reason,
            differs=outcome.differs,
        )
    return BatchedJob(
        job_id=outcome.job_id,
        id=outcome.job_id,
        status=outcome.status,
        unique_existing=outcome.unique_existing,
    )


def batch_answer(
    outcomes: Sequence[Enqueued | Problem], batch_id: str, request_id: str
) -> tuple[int, EnqueueBatchAnswer | PartialAnswer]:
    """What a producer hears of its jobs. Raises `Problem` when none of them was made.

    When it is not known of any of them, that is a problem of the whole, too. Of several problems
    the first counts that is worth another try: then the client sends the request again.
    """
    problems = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
    jobs = [batched(outcome) for outcome in outcomes]
    if not problems:
        return 201, EnqueueBatchAnswer(
            job_ids=[job.job_id for job in jobs if job.job_id is not None],
            batch_id=batch_id or msgspec.UNSET,
            jobs=jobs,
        )
    unknown = [problem for problem in problems if problem.outcome != NOT_APPLIED]
    passing = [problem for problem in problems if problem.retry_after_ms]
    first = (unknown or passing or problems)[0]
    if len(problems) == len(outcomes):
        raise first
    made = len(outcomes) - len(problems)
    return first.status, PartialAnswer(
        error=f"{made} of {len(outcomes)} jobs were made: {first.error}",
        code=first.code,
        outcome=UNKNOWN if first.retry_after_ms else APPLIED,
        reason=first.reason,
        field=first.field,
        retry_after_ms=first.retry_after_ms,
        request_id=request_id,
        batch_id=batch_id,
        job_ids=[job.job_id for job in jobs],
        jobs=jobs,
    )


# Webhooks that come in.


def webhook_item(queue: str, query: dict[str, str], body: bytes) -> EnqueueItem:
    """A job that somebody's webhook makes. Raises `Problem`."""
    max_retries = query.get("max_retries")
    if max_retries is not None and not (max_retries.isascii() and max_retries.isdigit()):
        raise bad_field(
            "max_retries",
            f"max_retries: expected a whole number, such as 3; got {max_retries[:60]!r}",
        )
    attempts = int(max_retries[:9]) if max_retries is not None else None
    if attempts is not None and attempts > 100_000:
        raise bad_field("max_retries", "max_retries: expected at most 100000")
    return EnqueueItem(
        queue=queue,
        payload=webhook_payload(body),
        priority=query.get("priority"),
        unique_key=query.get("unique_key"),
        max_retries=attempts,
        scheduled_at=query.get("scheduled_at"),
        tags=_tags(query["tags"]) if query.get("tags") else None,
    )


def webhook_payload(body: bytes) -> msgspec.Raw:
    """JSON as it came; any other text as a string. Raises `Problem` for what is neither."""
    if not body.strip():
        return msgspec.Raw(b"{}")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Problem(
            400,
            "PARSE_ERROR",
            f"the body is not UTF-8 (byte {error.start}): send JSON or text in UTF-8",
        ) from None
    try:
        return _decode_json(body)
    except RecursionError:
        raise Problem(400, "PARSE_ERROR", "invalid JSON: nested too deeply") from None
    except msgspec.DecodeError:
        return msgspec.Raw(encode_json(text))


def _tags(text: str) -> dict[str, str]:
    tags = {}
    for pair in text.split(","):
        name, colon, value = pair.partition(":")
        if not colon or not name.strip():
            raise bad_field(
                "tags", f"tags: expected name:value, such as tenant:acme; got {pair[:60]!r}"
            )
        tags[name.strip()] = value.strip()
    return tags
