"""Requests and answers of the HTTP API, as the workloads use them: between bodies and records."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from chaos import history
from chaos.history import Chain, Created, Delivered, ItemResult, JobRow, NewJob, QueueRow, Template
from chaos.http import Answer

_PLAIN: Final = Template(queue="")
_SECOND_NS: Final = 1_000_000_000
T = TypeVar("T")


def time_ns(text: str) -> int:
    """Nanoseconds since 1970 of a time of the API; 0 of no text."""
    if not text:
        return 0
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return round(datetime.fromisoformat(whole + "+00:00").timestamp()) * _SECOND_NS + int(
        fraction.ljust(9, "0") or "0"
    )


def positions(text: str) -> dict[str, int]:
    """The positions of a header such as `s0=1042,s3=77`, by shard."""
    found = {}
    for part in text.split(","):
        shard, _, index = part.strip().partition("=")
        if shard and index.isdigit():
            found[shard.removeprefix("s")] = int(index)
    return found


def header_of(seq: dict[str, int]) -> str:
    """The header with these positions."""
    return ",".join(f"s{shard}={index}" for shard, index in sorted(seq.items()))


# ---- jobs that are sent


def payload_of(mark: str) -> bytes:
    """The payload of a job."""
    return msgspec.json.encode({"mark": mark})


def marked(job: NewJob, mark: str) -> NewJob:
    """A job with a mark of its own, and its steps with theirs."""
    chain = job.chain
    if chain is not None:
        steps = [
            msgspec.structs.replace(each, mark=f"{mark}.{n}") for n, each in enumerate(chain.steps)
        ]
        steps[0] = msgspec.structs.replace(steps[0], mark=mark)
        chain = msgspec.structs.replace(
            chain,
            steps=tuple(steps),
            on_failure=_handler(chain.on_failure, f"{mark}.failure"),
            on_exit=_handler(chain.on_exit, f"{mark}.exit"),
        )
    return msgspec.structs.replace(
        job, mark=mark, sha=history.fingerprint(payload_of(mark)), chain=chain
    )


def _handler(handler: Template | None, mark: str) -> Template | None:
    return None if handler is None else msgspec.structs.replace(handler, mark=mark)


_FIELDS: Final = {
    "priority": "priority",
    "max_retries": "max_retries",
    "backoff": "retry_backoff",
    "base_ms": "retry_base_delay_ms",
    "max_delay_ms": "retry_max_delay_ms",
    "jitter": "retry_jitter",
    "max_run_ms": "max_run_time_ms",
    "max_crashes": "max_crashes",
    "expire_after_ms": "expire_after_ms",
    "expire_active": "expire_active",
}


def template_body(template: Template) -> dict[str, object]:
    """A job that the server creates by itself, as it is sent: without fields at their defaults."""
    body: dict[str, object] = {"queue": template.queue}
    for name, field in _FIELDS.items():
        value = getattr(template, name)
        if value != getattr(_PLAIN, name):
            body[field] = value
    if template.mark:
        body["payload"] = msgspec.Raw(payload_of(template.mark))
    return body


def job_body(job: NewJob) -> dict[str, object]:
    """A job as it is sent."""
    body = template_body(job)
    if job.id:
        body["id"] = job.id
    if job.unique_key:
        body["unique_key"] = job.unique_key
        body["unique_period_ms"] = job.unique_ms
    if job.delay_ms:
        body["delay_ms"] = job.delay_ms
    if job.batch_id:
        body["batch_id"] = job.batch_id
    if job.depends_on:
        body["depends_on"] = list(job.depends_on)
        body["dependency_wait_ms"] = job.wait_ms
    if job.chain is not None:
        body["chain"] = _chain_body(job.chain)
    return body


def _chain_body(chain: Chain) -> dict[str, object]:
    first, *rest = chain.steps
    body: dict[str, object] = {
        # The first step is the job itself, which has its fields already.
        "steps": [{"queue": first.queue}, *(template_body(step) for step in rest)],
        "cancel_is_failure": chain.cancel_is_failure,
    }
    if chain.on_failure is not None:
        body["on_failure"] = template_body(chain.on_failure)
    if chain.on_exit is not None:
        body["on_exit"] = template_body(chain.on_exit)
    return body


# ---- answers


class Problem(msgspec.Struct):
    """The body of an error."""

    code: str = ""
    outcome: str = ""
    reason: str = ""
    retry_after_ms: int = 0


def problem_of(answer: Answer) -> Problem:
    """The error of an answer, as far as it can be read."""
    try:
        return msgspec.json.decode(answer.body, type=Problem)
    except msgspec.DecodeError:
        return Problem()


class _Marked(msgspec.Struct):
    mark: str = ""
    previous_job_id: str = ""
    failed_job_id: str = ""
    batch: dict[str, str | int] | None = None


def _marked_of(payload: bytes) -> _Marked:
    try:
        return msgspec.json.decode(payload, type=_Marked)
    except msgspec.DecodeError:
        return _Marked()


class _CreatedBody(msgspec.Struct):
    job_id: str | None = None
    status: str = ""
    unique_existing: bool = False
    code: str = ""
    outcome: str = ""


class _CreatedBodies(msgspec.Struct):
    jobs: list[_CreatedBody] = []
    batch_id: str = ""


def _created(body: _CreatedBody) -> Created:
    return Created(body.job_id or "", body.status, body.unique_existing, body.code, body.outcome)


def read_enqueue(answer: Answer) -> history.Res:
    """The answer to one job."""
    return history.Res(created=(_created(_decode(answer, _CreatedBody)),))


def read_enqueue_batch(answer: Answer) -> history.Res:
    """The answer to several jobs."""
    body = _decode(answer, _CreatedBodies)
    return history.Res(created=tuple(map(_created, body.jobs)), batch_id=body.batch_id)


class _Fetched(msgspec.Struct):
    job_id: str
    queue: str
    payload: msgspec.Raw
    attempt: int
    max_retries: int
    lease_token: int
    lease_expires_at: str


class _FetchedList(msgspec.Struct):
    jobs: list[_Fetched] = []


def read_fetch(answer: Answer) -> history.Res:
    """The answer to a fetch of several jobs."""
    if answer.status == 204:
        return history.NO_RES
    return history.Res(delivered=tuple(map(_delivered, _decode(answer, _FetchedList).jobs)))


def _delivered(body: _Fetched) -> Delivered:
    payload = bytes(body.payload)
    known = _marked_of(payload)
    return Delivered(
        job_id=body.job_id,
        queue=body.queue,
        attempt=body.attempt,
        token=body.lease_token,
        expires_ns=time_ns(body.lease_expires_at),
        mark=known.mark,
        sha=history.fingerprint(payload),
        max_retries=body.max_retries,
        previous_job_id=known.previous_job_id or known.failed_job_id,
        batch=_batch(known.batch),
    )


def _batch(counts: dict[str, str | int] | None) -> tuple[str, int, int, int, int] | None:
    if counts is None:
        return None
    names = ("total", "succeeded", "failed", "cancelled")
    total, succeeded, failed, cancelled = (int(counts.get(name, 0)) for name in names)
    return str(counts.get("batch_id", "")), total, succeeded, failed, cancelled


class _ItemBody(msgspec.Struct):
    job_id: str = ""
    status: str = ""
    state: str = ""
    code: str = ""
    outcome: str = ""
    reason: str = ""
    lease_expires_at: str = ""
    next_attempt_at: str | None = None
    attempts_remaining: int = -1


class _ItemBodies(msgspec.Struct):
    results: list[_ItemBody] = []


class _Beats(msgspec.Struct):
    jobs: dict[str, _ItemBody] = {}


def _item(body: _ItemBody, job_id: str = "") -> ItemResult:
    return ItemResult(
        job_id=body.job_id or job_id,
        status=body.status,
        state=body.state,
        code=body.code,
        outcome=body.outcome,
        reason=body.reason,
        expires_ns=time_ns(body.lease_expires_at),
        next_ns=time_ns(body.next_attempt_at or ""),
        attempts_left=body.attempts_remaining,
    )


def read_item(job_id: str) -> Callable[[Answer], history.Res]:
    """The answer to a call about one job."""

    def read(answer: Answer) -> history.Res:
        return history.Res(items=(_item(_decode(answer, _ItemBody), job_id),))

    return read


def read_items(answer: Answer) -> history.Res:
    """The answer to a call about several jobs."""
    return history.Res(items=tuple(map(_item, _decode(answer, _ItemBodies).results)))


def read_beats(ids: Sequence[str]) -> Callable[[Answer], history.Res]:
    """The answer to a heartbeat, in the order of the request."""

    def read(answer: Answer) -> history.Res:
        jobs = _decode(answer, _Beats).jobs
        return history.Res(items=tuple(_item(jobs.get(each, _ItemBody()), each) for each in ids))

    return read


class _Status(msgspec.Struct):
    status: str = ""
    affected: int = 0
    changes: int = 0


def read_status(answer: Answer) -> history.Res:
    """The answer to a call about a queue or schedule."""
    body = _decode(answer, _Status)
    return history.Res(
        status=body.status or "ok", affected=body.affected, schedule_changes=body.changes
    )


class _Job(msgspec.Struct):
    id: str
    queue: str
    state: str
    payload: msgspec.Raw
    priority: int = 2
    attempt: int = 0
    max_retries: int = 3
    worker_id: str = ""
    created_at: str = ""
    changed_at: str = ""
    scheduled_at: str | None = None
    expire_at: str | None = None
    lease_expires_at: str | None = None
    unique_key: str = ""
    batch_id: str = ""
    chain_id: str = ""
    chain_step: int | None = None
    parent_id: str = ""
    failures: int | None = None
    hold_reason: str = ""
    dlq_reason: str = ""
    errors: list["_Error"] = []
    trail: list["_Moment"] = []


class _Error(msgspec.Struct):
    id: int = 0


class _Moment(msgspec.Struct):
    at: str = ""


class _Jobs(msgspec.Struct):
    jobs: list[_Job] = []


def _row(body: _Job) -> JobRow:
    payload = bytes(body.payload)
    failures = body.failures
    if failures is None:
        failures = max((each.id for each in body.errors), default=0)
    changed = body.changed_at or (body.trail[-1].at if body.trail else "")
    return JobRow(
        job_id=body.id,
        queue=body.queue,
        state=body.state,
        priority=body.priority,
        attempt=body.attempt,
        max_retries=body.max_retries,
        mark=_marked_of(payload).mark,
        sha=history.fingerprint(payload),
        worker=body.worker_id,
        created_ns=time_ns(body.created_at),
        changed_ns=time_ns(changed),
        scheduled_ns=time_ns(body.scheduled_at or ""),
        expires_ns=time_ns(body.expire_at or ""),
        lease_ns=time_ns(body.lease_expires_at or ""),
        unique_key=body.unique_key,
        batch_id=body.batch_id,
        chain_id=body.chain_id,
        chain_step=body.chain_step,
        parent_id=body.parent_id,
        failures=failures,
        hold_reason=body.hold_reason,
        dlq_reason=body.dlq_reason,
    )


def read_job(answer: Answer) -> history.Res:
    """The answer to a read of one job; an unknown id is an answer, too."""
    if answer.status == 404:
        return history.NO_RES
    return history.Res(job=_row(_decode(answer, _Job)))


def read_jobs(answer: Answer) -> tuple[JobRow, ...]:
    """The jobs of a list."""
    return tuple(map(_row, _decode(answer, _Jobs).jobs))


class _AsOf(msgspec.Struct):
    index: int
    is_whole: bool = True


class Page(msgspec.Struct):
    """A page of a search, without its jobs."""

    as_of: dict[str, _AsOf] = {}
    total: int = -1
    total_is_exact: bool = False
    is_behind: bool = False
    has_more: bool = False
    cursor: str | None = None

    @property
    def positions(self) -> dict[str, int]:
        """How far the mirror had read, by shard."""
        return {shard.removeprefix("s"): each.index for shard, each in self.as_of.items()}

    @property
    def is_whole(self) -> bool:
        """Whether the mirror has all jobs."""
        return all(each.is_whole for each in self.as_of.values())


def read_page(answer: Answer) -> Page:
    """A page of a search, without its jobs."""
    return _decode(answer, Page)


def read_search(answer: Answer) -> history.Res:
    """The answer to a search."""
    page = read_page(answer)
    return history.Res(
        rows=read_jobs(answer),
        total=page.total if page.total_is_exact else -1,
        as_of=page.positions,
        # While a mirror reads all jobs again, its rows can be older than its position.
        is_behind=page.is_behind or not page.is_whole,
    )


class _Schedule(msgspec.Struct):
    id: str
    paused: bool
    changes: int
    fired: int
    next_run: str | None = None


def read_schedule(answer: Answer, node: str) -> history.FinalSchedule:
    """A schedule, as a node gave it."""
    body = _decode(answer, _Schedule)
    next_ns = time_ns(body.next_run or "")
    return history.FinalSchedule(node, body.id, body.paused, next_ns, body.changes, body.fired)


_LIMITS: Final = {
    "concurrency": "max_concurrency", "rate": "rate_limit", "window_ms": "rate_window_ms",
}  # fmt: skip


class _Queue(QueueRow, frozen=True, rename=_LIMITS):
    """A queue with the names that the API has."""


def read_queues(answer: Answer) -> history.Res:
    """The list of queues."""
    found = _decode(answer, list[_Queue])
    return history.Res(queues=tuple(QueueRow(**msgspec.structs.asdict(row)) for row in found))


def read_batch(answer: Answer) -> history.Res:
    """The answer to a read of a batch."""
    return history.Res(batch=_decode(answer, history.BatchRow))


def _decode(answer: Answer, kind: type[T]) -> T:
    return msgspec.json.decode(answer.body, type=kind)
