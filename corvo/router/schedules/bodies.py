"""Bodies of schedules: from JSON to the op, and from a stored schedule to JSON."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Final

import msgspec

from corvo.cron import BadTimetable, timetable, tz_version
from corvo.crontab import CRONTAB_BYTES_MAX, Entry
from corvo.model import Backoff, Run, Schedule
from corvo.protocol.jobs import Time
from corvo.protocol.ops.base import Json, Millis, encode_json
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.schedules import (
    JITTER_MS_MAX,
    MISSED_MAX,
    NAME_MAX,
    SKIPPED,
    Backfilled,
    NewSchedule,
    ScheduleDone,
    job_of,
    schedule_id,
)
from corvo.protocol.ops.workflow import NewAgent
from corvo.protocol.queries import ScheduleFound, Schedules
from corvo.router.enqueue.bodies import (
    LIMITS,
    AgentBody,
    ChainBody,
    EnqueueItem,
    Seconds,
    StepBody,
    new_job,
    queues_of,
)
from corvo.router.http.bodies import (
    MICROS,
    Body,
    Duration,
    GivenTime,
    Plain,
    RequestKey,
    either_ms,
    not_reserved,
    time_ns,
)
from corvo.router.http.messages import bad_field
from corvo.router.http.problems import problem_of
from corvo.times import format_time, format_time_or_none

NEXT: Final = 10
"""Due times that are shown of a schedule."""
NEXT_MAX: Final = 1_000
_OF_JOBS: Final = tuple(
    name
    for name in EnqueueItem.__struct_fields__
    if name in {*StepBody.__struct_fields__, "unique_key", "chain", "agent"}
    or name.startswith("unique_period")
)

ScheduleName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=NAME_MAX,
        extra_json_schema={"pattern": r"^(?!s[0-9]+_)[A-Za-z0-9_.:-]+$"},
    ),
]
CronText = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
ZoneName = Annotated[str, msgspec.Meta(max_length=64)]
Overlap = Annotated[
    str, msgspec.Meta(extra_json_schema={"enum": ["allow", "skip", "queue", "cancel"]})
]
Missed = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["skip", "one", "all"]})]


class ScheduleBody(StepBody, kw_only=True):
    """A schedule: when, and the job that it creates."""

    name: ScheduleName
    cron: CronText
    timezone: ZoneName | None = None
    unique_key: Plain | None = None
    unique_period: Duration | Seconds | None = None
    unique_period_ms: Millis | None = None
    chain: ChainBody | None = None
    agent: AgentBody | None = None
    overlap: Overlap | None = None
    missed: Missed | None = None
    missed_max: Annotated[int, msgspec.Meta(ge=1, le=MISSED_MAX)] | None = None
    missed_after: Duration | None = None
    missed_after_ms: Millis | None = None
    jitter: Duration | None = None
    jitter_ms: Annotated[int, msgspec.Meta(ge=0, le=JITTER_MS_MAX)] | None = None
    starts_at: GivenTime | None = None
    ends_at: GivenTime | None = None
    paused: bool | None = None
    changes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    request_key: RequestKey | None = None


class BackfillBody(
    msgspec.Struct, frozen=True, kw_only=True, rename={"since": "from", "until": "to"}
):
    """A stretch of the past."""

    since: GivenTime
    until: GivenTime
    dry_run: bool = False


class PreviewBody(msgspec.Struct, frozen=True, kw_only=True):
    """An expression to be tried."""

    cron: CronText
    timezone: ZoneName | None = None
    after: GivenTime | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=NEXT_MAX)] = NEXT


class ImportBody(msgspec.Struct, frozen=True, kw_only=True):
    """A crontab file."""

    crontab: Annotated[str, msgspec.Meta(max_length=CRONTAB_BYTES_MAX)]
    queue: Annotated[Plain, msgspec.Meta(min_length=1)]
    timezone: ZoneName | None = None
    has_users: bool = False
    dry_run: bool = False


read_schedule: Final = Body(ScheduleBody)
read_backfill: Final = Body(BackfillBody)
read_preview: Final = Body(PreviewBody)
read_import: Final = Body(ImportBody)
read_done: Final = msgspec.json.Decoder(ScheduleDone).decode
read_backfilled: Final = msgspec.json.Decoder(Backfilled).decode
read_found: Final = msgspec.json.Decoder(ScheduleFound).decode
read_list: Final = msgspec.json.Decoder(Schedules).decode


# What is asked for.


def new_schedule(body: ScheduleBody) -> NewSchedule:
    """A schedule as the op has it. Raises `Problem`."""
    not_reserved("queue", body.queue)
    defaults = NewSchedule(name="x", cron="* * * * *", job=NewJob(queue="x"))
    job = new_job(EnqueueItem(**{name: getattr(body, name) for name in _OF_JOBS}))
    new = NewSchedule(
        name=body.name,
        cron=body.cron.strip(),
        timezone=body.timezone or defaults.timezone,
        job=job,
        overlap=body.overlap or defaults.overlap,
        missed=body.missed or defaults.missed,
        missed_max=body.missed_max or defaults.missed_max,
        missed_after_ms=either_ms(
            "missed_after", body.missed_after, body.missed_after_ms, defaults.missed_after_ms
        ),
        jitter_ms=either_ms("jitter", body.jitter, body.jitter_ms, 0),
        starts_ns=time_ns("starts_at", body.starts_at),
        ends_ns=time_ns("ends_at", body.ends_at),
        paused=bool(body.paused),
    )
    refused = new.check("", LIMITS)
    if refused is not None:
        raise problem_of(refused)
    return new


def queues_of_schedule(body: ScheduleBody) -> list[str]:
    """All queues that a schedule names. Raises `Problem`."""
    if body.chain is None:
        return [body.queue]
    return queues_of(new_schedule(body).job)


def imported(entry: Entry, body: ImportBody) -> NewSchedule:
    """A line of a crontab file as a schedule, whose jobs have the command in their payload."""
    told = {"command": entry.command, **({"user": entry.user} if entry.user else {})}
    payload = msgspec.json.encode(told)
    return NewSchedule(
        name=entry.name,
        cron=entry.cron,
        timezone=entry.timezone,
        job=NewJob(queue=body.queue, payload=msgspec.Raw(payload), kind="crontab"),
    )


# What is answered.


class DueTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """A due time."""

    at: Time
    local: str
    note: str = ""


class RunView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A due time that has come, or a run that was asked for."""

    due_at: Time
    at: Time
    job_id: str = ""
    result: str
    why: str = ""
    cause: str = ""
    count: int = 1


class ScheduleSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule in a list."""

    id: str
    name: str
    queue: str
    cron: str
    timezone: str
    description: str
    status: str
    why: str = ""
    paused: bool
    overlap: str
    missed: str
    next_run: Time | None
    last_run: Time | None
    fired: int
    skipped: int
    created_at: Time
    changed_at: Time
    changes: int


class ScheduleView(ScheduleSummary, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule, and all that is known of it."""

    missed_max: int
    missed_after_ms: int
    jitter_ms: int
    starts_at: Time | None = None
    ends_at: Time | None = None
    payload: Json
    kind: str = ""
    priority: int
    max_retries: int
    retry_backoff: Backoff
    retry_base_delay_ms: int
    retry_max_delay_ms: int
    retry_jitter: int = 0
    max_run_time_ms: int = 0
    max_crashes: int
    unique_key: str = ""
    unique_period_ms: int = 0
    expire_after_ms: int = 0
    expire_active: bool = False
    tags: dict[str, str] = {}
    chain: Json = msgspec.UNSET
    agent: AgentBody | None = None
    next: list[DueTime]
    runs: list[RunView]
    running: list[str] = []
    tz_version: str
    moving_to: str = ""


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Schedules in the order of their ids."""

    schedules: list[ScheduleSummary]
    has_more: bool
    after: str = ""


class ScheduleRun(msgspec.Struct, frozen=True):
    """A run that was asked for."""

    id: str
    job_id: str
    status: str


class ScheduleDeleted(msgspec.Struct, frozen=True):
    """A schedule that is deleted."""

    id: str
    status: str


class BackfillAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a stretch of the past."""

    id: str
    due: list[DueTime]
    created: list[str]
    existing: list[str]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """An expression, and its next due times."""

    cron: str
    timezone: str
    description: str
    next: list[DueTime]
    tz_version: str


class ImportedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a crontab file."""

    line: int
    id: str = ""
    status: str
    cron: str = ""
    error: str = ""


class ImportAnswer(msgspec.Struct, frozen=True):
    """The schedules of a crontab file."""

    lines: list[ImportedLine]
    created: int
    failed: int


def due_times(
    cron: str, timezone: str, after_ns: int, *, anchor_ns: int = 0, ends_ns: int = 0
) -> Iterator[int]:
    """Due times after one, without an end. Raises `BadTimetable`."""
    table = timetable(cron, timezone)
    at_ns = after_ns
    while (found := table.next_after(at_ns, anchor_ns)) is not None:
        if ends_ns and found > ends_ns:
            return
        yield found
        at_ns = found


def shown(cron: str, timezone: str, times: Iterator[int], count: int) -> list[DueTime]:
    """The first few of some due times. Raises `BadTimetable`."""
    table = timetable(cron, timezone)
    return [
        DueTime(format_time(at_ns), table.local_text(at_ns), table.note(at_ns))
        for at_ns in islice(times, count)
    ]


def next_of(schedule: Schedule, count: int, after_ns: int = 0) -> list[DueTime]:
    """The next due times of a schedule; none for one that will not be due again."""
    if schedule.paused:
        return []
    after_ns = max(schedule.from_ns, schedule.starts_ns - 1, after_ns)
    try:
        times = due_times(
            schedule.cron,
            schedule.timezone,
            after_ns,
            anchor_ns=schedule.anchor_ns,
            ends_ns=schedule.ends_ns,
        )
        return shown(schedule.cron, schedule.timezone, times, count)
    except BadTimetable:
        return []


def described(schedule: Schedule) -> str:
    """When a schedule is due, as a sentence."""
    try:
        return timetable(schedule.cron, schedule.timezone).describe()
    except BadTimetable as error:
        return str(error)


def standing(schedule: Schedule, *, has_next: bool) -> tuple[str, str]:
    """The state of a schedule, and why it creates no jobs, or has not lately."""
    if schedule.moving_to:
        return "moving", f"it is on its way to queue {schedule.moving_to}"
    if schedule.paused:
        return "paused", "it is paused: resume it, and it is due again from then on"
    if schedule.error:
        return "failed", f"its due times cannot be computed: {schedule.error}"
    if not has_next:
        return "ended", "it has no due time any more"
    if schedule.queued_ns:
        return "waiting", "a due time waits for the end of the last job (overlap: queue)"
    last = schedule.runs[-1] if schedule.runs else None
    if last is not None and last.skipped:
        return "active", f"the last due time created no job: {SKIPPED.get(last.skipped, '')}"
    return "active", ""


def schedule_summary(schedule: Schedule) -> ScheduleSummary:
    """A schedule in a list."""
    return _summary(schedule, next_of(schedule, 1))


def _summary(schedule: Schedule, following: list[DueTime]) -> ScheduleSummary:
    status, why = standing(schedule, has_next=bool(following))
    return ScheduleSummary(
        id=schedule.id,
        name=schedule.name,
        queue=schedule.queue,
        cron=schedule.cron,
        timezone=schedule.timezone,
        description=described(schedule),
        status=status,
        why=why,
        paused=schedule.paused,
        overlap=schedule.overlap,
        missed=schedule.missed,
        next_run=following[0].at if following else None,
        last_run=format_time_or_none(schedule.last_due_ns),
        fired=schedule.fired,
        skipped=schedule.skipped,
        created_at=format_time(schedule.created_ns),
        changed_at=format_time(schedule.changed_ns),
        changes=schedule.changes,
    )


def schedule_view(schedule: Schedule) -> ScheduleView:
    """A schedule by itself."""
    job = job_of(schedule)
    following = next_of(schedule, NEXT)
    return ScheduleView(
        **msgspec.structs.asdict(_summary(schedule, following)),
        missed_max=schedule.missed_max,
        missed_after_ms=schedule.missed_after_ms,
        jitter_ms=schedule.jitter_ms,
        starts_at=format_time_or_none(schedule.starts_ns),
        ends_at=format_time_or_none(schedule.ends_ns),
        payload=job.payload if job.payload is not msgspec.UNSET else msgspec.Raw(b"{}"),
        kind=job.kind,
        priority=job.priority,
        max_retries=job.max_retries,
        retry_backoff=job.retry_backoff,
        retry_base_delay_ms=job.retry_base_delay_ms,
        retry_max_delay_ms=job.retry_max_delay_ms,
        retry_jitter=job.retry_jitter,
        max_run_time_ms=job.max_run_time_ms,
        max_crashes=job.max_crashes,
        unique_key=job.unique_key,
        unique_period_ms=job.unique_period_ms if job.unique_key else 0,
        expire_after_ms=job.expire_after_ms,
        expire_active=job.expire_active,
        tags=job.tags,
        chain=msgspec.UNSET if job.chain is None else msgspec.Raw(encode_json(job.chain)),
        agent=_agent_limits(job.agent),
        next=following,
        runs=[_run_view(run) for run in reversed(schedule.runs)],
        running=[run.job_id for run in schedule.running],
        tz_version=tz_version(),
        moving_to=schedule_id(schedule.moving_to, schedule.name) if schedule.moving_to else "",
    )


def _agent_limits(agent: NewAgent | None) -> AgentBody | None:
    if agent is None:
        return None
    return AgentBody(
        max_iterations=agent.max_iterations,
        max_cost_usd=agent.max_cost_micros / MICROS,
        iteration_timeout_ms=agent.iteration_timeout_ms,
    )


def _run_view(run: Run) -> RunView:
    result = "skipped" if run.skipped else run.state or "running"
    return RunView(
        due_at=format_time(run.due_ns),
        at=format_time(run.at_ns),
        job_id=run.job_id,
        result=result,
        why=SKIPPED.get(run.skipped, ""),
        cause=run.cause,
        count=run.count,
    )


def checked_timetable(cron: str, timezone: str | None) -> None:
    """Raise `Problem` for an invalid expression or time zone."""
    try:
        timetable(cron.strip(), timezone or "UTC")
    except BadTimetable as error:
        raise bad_field(error.field, f"{error.field}: {error.message}") from None
