"""Endpoints of schedules: create, change, pause, run now, backfill, and see what comes next."""

from functools import partial
from itertools import islice, takewhile
from typing import Final

from corvo import clock
from corvo.cron import timetable, tz_version
from corvo.crontab import parse_crontab
from corvo.ids import queue_of_id
from corvo.model import Schedule
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import ID_BYTES_MAX, NAME_BYTES_MAX, Op
from corvo.protocol.ops.schedules import (
    BACKFILL_MAX,
    BackfillSchedule,
    ChangeSchedule,
    CreateSchedule,
    DeleteSchedule,
    Moment,
    NewSchedule,
    PauseSchedule,
    RunSchedule,
    schedule_id,
)
from corvo.protocol.queries import PAGE_MAX, GetSchedule, ListSchedules
from corvo.router.api import Api
from corvo.router.ask import ask_each
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import (
    NODE,
    RESULT,
    in_body,
    queue_in_query,
    queue_of_id_in_path,
)
from corvo.router.caller import Caller
from corvo.router.enqueue.bodies import LIMITS
from corvo.router.http import params
from corvo.router.http.bodies import body_of, time_ns
from corvo.router.http.messages import Problem, Request, Response, bad_field, json_response
from corvo.router.http.problems import problem_of
from corvo.router.http.request_keys import request_key
from corvo.router.routes import READS, Parameter, Route
from corvo.router.schedules.bodies import (
    NEXT,
    NEXT_MAX,
    BackfillAnswer,
    BackfillBody,
    ImportAnswer,
    ImportBody,
    ImportedLine,
    Preview,
    PreviewBody,
    ScheduleBody,
    ScheduleDeleted,
    ScheduleList,
    ScheduleRun,
    ScheduleView,
    checked_timetable,
    due_times,
    imported,
    new_schedule,
    next_of,
    queues_of_schedule,
    read_backfill,
    read_backfilled,
    read_done,
    read_found,
    read_import,
    read_list,
    read_preview,
    read_schedule,
    schedule_summary,
    schedule_view,
    shown,
)
from corvo.router.shards.links import Answer
from corvo.times import format_time

PAGE: Final = 100


def _shard_of(api: Api, identifier: str) -> int:
    """The shard of a schedule. Raises `Problem` for what is no id of one."""
    queue = queue_of_id(identifier)
    if not queue:
        raise no_schedule(identifier)
    return shard_of_queue(queue, len(api.shards))


def no_schedule(identifier: str) -> Problem:
    """The problem of a schedule that does not exist."""
    fix = "" if queue_of_id(identifier) else ": the id is QUEUE~NAME, such as mail~nightly"
    error = f'schedule "{identifier[:ID_BYTES_MAX]}" not found{fix}'
    return Problem(404, "NOT_FOUND", error, reason="schedule_not_found")


async def _find(api: Api, identifier: str, caller: Caller) -> tuple[Schedule, dict[int, int]]:
    shard = _shard_of(api, identifier)
    answer = await api.ask(shard, GetSchedule(schedule_id=identifier), caller)
    found = read_found(answer.body).schedule
    if found is None:
        raise no_schedule(identifier)
    return found, {shard: answer.index}


async def list_schedules(api: Api, request: Request) -> Response:
    """Schedules of all shards, by their ids."""
    limit = params.number_of(request, "limit", default=PAGE, at_most=PAGE_MAX)
    queue, caller = request.query.get("queue", ""), request.caller
    after = request.query.get("after", "")
    if len(after) > ID_BYTES_MAX:
        raise bad_field("after", f"after: expected at most {ID_BYTES_MAX} characters")
    question = ListSchedules(scope=caller.scope, queue=queue, after=after, limit=limit)
    asked = [(shard, question) for shard in api.shards_of(caller.scope, queue or None)]
    answers = await ask_each(api, caller, asked)
    pages = [read_list(answer.body) for answer in answers]
    # What is behind the end of a page is not known of that shard.
    ends = [page.after for page in pages if page.after]
    found = sorted((each for page in pages for each in page.schedules), key=lambda one: one.id)
    known = [each for each in found if not ends or each.id <= min(ends)]
    listed = known[:limit]
    has_more = bool(ends) or len(known) > limit
    reached = {shard: answer.index for (shard, _), answer in zip(asked, answers, strict=True)}
    behind = ""
    if has_more:
        behind = listed[-1].id if len(known) > limit else min(ends)
    body = ScheduleList(
        schedules=[schedule_summary(each) for each in listed], has_more=has_more, after=behind
    )
    return json_response(body, reached=reached)


async def get_schedule(api: Api, request: Request) -> Response:
    """One schedule, with its next due times and last runs."""
    caller = params.reader_of(request)
    found, reached = await _find(api, params.job_id_of(request), caller)
    return params.with_contact(json_response(schedule_view(found), reached=reached), caller)


async def next_times(api: Api, request: Request) -> Response:
    """The next due times of a schedule."""
    count = params.number_of(request, "count", default=NEXT, at_most=NEXT_MAX)
    after_ns = time_ns("after", request.query.get("after"))
    found, reached = await _find(api, params.job_id_of(request), request.caller)
    body = Preview(
        cron=found.cron,
        timezone=found.timezone,
        description=timetable(found.cron, found.timezone).describe(),
        next=next_of(found, count, after_ns),
        tz_version=tz_version(),
    )
    return json_response(body, reached=reached)


async def preview(api: Api, request: Request) -> Response:
    """The next due times of an expression, without a schedule."""
    body = body_of(request, read_preview)
    checked_timetable(body.cron, body.timezone)
    cron, zone = body.cron.strip(), body.timezone or "UTC"
    after_ns = time_ns("after", body.after) or clock.now_ns()
    times = due_times(cron, zone, after_ns, anchor_ns=after_ns)
    answer = Preview(
        cron=cron,
        timezone=zone,
        description=timetable(cron, zone).describe(),
        next=shown(cron, zone, times, body.count),
        tz_version=tz_version(),
    )
    return json_response(answer)


async def _submit(api: Api, request: Request, op: Op, identifier: str, key: str | None) -> Answer:
    shard = _shard_of(api, identifier)
    queue = queue_of_id(identifier)
    return await api.shards[shard].submit(request_key(request, key).on(op, "queue", 0, queue))


async def create(api: Api, request: Request) -> Response:
    """Create a schedule; the same one again is there already."""
    body = body_of(request, read_schedule)
    new = new_schedule(body)
    identifier = schedule_id(new.job.queue, new.name)
    op = CreateSchedule(schedule=new, by=request.caller.name)
    answer = await _submit(api, request, op, identifier, body.request_key)
    done = read_done(answer.body)
    status = 201 if done.status == "created" else 200
    reached = {_shard_of(api, identifier): answer.index}
    return json_response(schedule_view(done.schedule), status=status, reached=reached)


async def change(api: Api, request: Request) -> Response:
    """Give a schedule another definition."""
    identifier = params.job_id_of(request)
    body = body_of(request, read_schedule)
    op = ChangeSchedule(
        schedule_id=identifier,
        schedule=new_schedule(body),
        unchanged=body.changes or 0,
        by=request.caller.name,
    )
    answer = await _submit(api, request, op, identifier, body.request_key)
    reached = {_shard_of(api, identifier): answer.index}
    return json_response(schedule_view(read_done(answer.body).schedule), reached=reached)


async def pause(api: Api, request: Request) -> Response:
    """Pause a schedule."""
    return await _pause(api, request, paused=True)


async def resume(api: Api, request: Request) -> Response:
    """Resume a schedule."""
    return await _pause(api, request, paused=False)


async def _pause(api: Api, request: Request, *, paused: bool) -> Response:
    identifier = params.job_id_of(request)
    op = PauseSchedule(schedule_id=identifier, paused=paused, by=request.caller.name)
    answer = await _submit(api, request, op, identifier, None)
    reached = {_shard_of(api, identifier): answer.index}
    return json_response(schedule_view(read_done(answer.body).schedule), reached=reached)


async def delete(api: Api, request: Request) -> Response:
    """Delete a schedule."""
    identifier = params.job_id_of(request)
    op = DeleteSchedule(schedule_id=identifier, by=request.caller.name)
    answer = await _submit(api, request, op, identifier, None)
    body = ScheduleDeleted(identifier, read_done(answer.body).status)
    return json_response(body, reached={_shard_of(api, identifier): answer.index})


async def run_now(api: Api, request: Request) -> Response:
    """Create a job of a schedule now."""
    identifier = params.job_id_of(request)
    op = RunSchedule(schedule_id=identifier, by=request.caller.name)
    answer = await _submit(api, request, op, identifier, None)
    done = read_done(answer.body)
    body = ScheduleRun(identifier, done.job_id, done.status)
    reached = {_shard_of(api, identifier): answer.index}
    return json_response(body, reached=reached)


async def backfill(api: Api, request: Request) -> Response:
    """Create the jobs of due times in the past."""
    identifier = params.job_id_of(request)
    body = body_of(request, read_backfill)
    since_ns, until_ns = time_ns("from", body.since), time_ns("to", body.until)
    if not since_ns or until_ns <= since_ns:
        raise bad_field("to", "to: expected a time after `from`, such as 2026-02-21")
    found, reached = await _find(api, identifier, request.caller)
    times = due_times(found.cron, found.timezone, since_ns - 1, anchor_ns=found.anchor_ns)
    moments = [*islice(takewhile(lambda at_ns: at_ns < until_ns, times), BACKFILL_MAX + 1)]
    if len(moments) > BACKFILL_MAX:
        end = format_time(moments[-1])
        error = f"to: more than {BACKFILL_MAX} due times: send {end} first, and then the rest"
        raise bad_field("to", error)
    due = shown(found.cron, found.timezone, iter(moments), BACKFILL_MAX)
    if body.dry_run or not due:
        answer = BackfillAnswer(id=identifier, due=due, created=[], existing=[])
        return json_response(answer, reached=reached)
    op = BackfillSchedule(
        schedule_id=identifier,
        changes=found.changes,
        due=[Moment(at_ns, each.local) for at_ns, each in zip(moments, due, strict=True)],
        by=request.caller.name,
    )
    made = await _submit(api, request, op, identifier, None)
    done = read_backfilled(made.body)
    body_out = BackfillAnswer(id=identifier, due=due, created=done.created, existing=done.existing)
    return json_response(body_out, reached={_shard_of(api, identifier): made.index})


async def import_crontab(api: Api, request: Request) -> Response:
    """Create a schedule for each line of a crontab file."""
    body = body_of(request, read_import)
    if body.timezone:
        checked_timetable("@daily", body.timezone)
    parsed = parse_crontab(body.crontab, has_users=body.has_users, timezone=body.timezone or "UTC")
    lines = [
        ImportedLine(line=each.line, status="failed", error=each.message)
        for each in parsed.problems
    ]
    lines += [
        ImportedLine(line=each.line, status="ignored", error=f"the variable {each.name} is ignored")
        for each in parsed.variables
    ]
    lines += [
        await _import_line(api, request, imported(entry, body), entry.line, body)
        for entry in parsed.entries
    ]
    lines.sort(key=lambda each: each.line)
    created = sum(each.status in {"created", "existing"} for each in lines)
    answer = ImportAnswer(lines, created, sum(each.status == "failed" for each in lines))
    return json_response(answer)


async def _import_line(
    api: Api, request: Request, new: NewSchedule, line: int, body: ImportBody
) -> ImportedLine:
    identifier = schedule_id(new.job.queue, new.name)
    told = partial(ImportedLine, line=line, id=identifier, cron=new.cron)
    try:
        refused = new.check("", LIMITS)
        if refused is not None:
            raise problem_of(refused)
        if body.dry_run:
            return told(status="valid")
        op = CreateSchedule(schedule=new, by=request.caller.name)
        answer = await api.shards[_shard_of(api, identifier)].submit(op)
    except Problem as problem:
        return told(status="failed", error=problem.error)
    return told(status=read_done(answer.body).status)


_SCHEDULE: Final = "/api/v1/schedules/{id}"
_ID_EXAMPLE: Final = "mail~daily-report"
_RIGHTS: Final = queue_of_id_in_path("id")
_EXAMPLE_BODY: Final[dict[str, object]] = {
    "name": "daily-report",
    "queue": "mail",
    "cron": "0 9 * * *",
    "timezone": "America/New_York",
    "payload": {"type": "daily", "day": "{{due_date}}"},
}
_EXAMPLE_SUMMARY: Final[dict[str, object]] = {
    "id": "mail~daily-report",
    "name": "daily-report",
    "queue": "mail",
    "cron": "0 9 * * *",
    "timezone": "America/New_York",
    "description": "at 09:00, America/New_York",
    "status": "active",
    "paused": False,
    "overlap": "allow",
    "missed": "one",
    "next_run": "2026-02-21T14:00:00Z",
    "last_run": "2026-02-20T14:00:00Z",
    "fired": 12,
    "skipped": 0,
    "created_at": "2026-02-09T10:00:00Z",
    "changed_at": "2026-02-09T10:00:00Z",
    "changes": 1,
}
_NEXT_EXAMPLE: Final = [{"at": "2026-02-21T14:00:00Z", "local": "2026-02-21T09:00:00-05:00"}]

_read_row: Final = partial(
    Route,
    method="GET",
    tag="Schedules",
    action=Action.READ,
    id_of="schedule",
    has_min_seq=True,
)
_change_row: Final = partial(
    Route,
    method="POST",
    tag="Schedules",
    action=Action.OPERATE,
    id_of="schedule",
    rights=_RIGHTS,
    gives={200: ScheduleView},
    problems=(404, 409),
)

ROUTES: Final[tuple[Route, ...]] = (
    _read_row(
        path="/api/v1/schedules",
        endpoint=list_schedules,
        rights=RESULT | queue_in_query("queue"),
        summary="List schedules",
        description=(
            "Lists schedules by their ids. Follow `after` until `has_more` is false; a page may be"
            " short."
        ),
        gives={200: ScheduleList},
        gives_example={"schedules": [_EXAMPLE_SUMMARY], "has_more": False},
        query=(
            Parameter(
                "queue", "string", "Only schedules of this queue. Default: all.", 0, NAME_BYTES_MAX
            ),
            Parameter(
                "after",
                "string",
                "Schedules after this id. Default: from the first.",
                0,
                ID_BYTES_MAX,
            ),
            Parameter("limit", "integer", f"Number of schedules. Default: {PAGE}.", 1, PAGE_MAX),
        ),
    ),
    _change_row(
        path="/api/v1/schedules",
        endpoint=create,
        rights=in_body(read_schedule, queues=queues_of_schedule),
        summary="Create a schedule",
        description=(
            "Creates a schedule: a job is created at each of its due times. A schedule of the same"
            " name and definition is not created again (200)."
        ),
        takes=ScheduleBody,
        takes_example=_EXAMPLE_BODY,
        gives={201: ScheduleView, 200: ScheduleView},
        problems=(409,),
    ),
    _change_row(
        path="/api/v1/schedules/preview",
        endpoint=preview,
        action=Action.READ,
        rights=NODE,
        summary="Show the due times of an expression",
        description="Checks an expression and a time zone, and lists the next due times.",
        takes=PreviewBody,
        takes_example={"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"},
        gives={200: Preview},
        gives_example={
            "cron": "0 9 * * *",
            "timezone": "America/New_York",
            "description": "at 09:00, America/New_York",
            "next": _NEXT_EXAMPLE,
            "tz_version": "2026.2",
        },
        problems=(),
    ),
    _change_row(
        path="/api/v1/schedules/import",
        endpoint=import_crontab,
        rights=in_body(read_import, queues=lambda body: [body.queue]),
        summary="Create schedules from a crontab file",
        description=(
            "Creates a schedule for each line of a crontab file. The jobs have the command in their"
            " payload, for a worker that runs it. A line that is not valid is reported, and the"
            " others are created."
        ),
        takes=ImportBody,
        takes_example={
            "queue": "mail",
            "timezone": "Europe/Berlin",
            "crontab": "30 2 * * * /usr/local/bin/backup\n",
        },
        gives={200: ImportAnswer},
        gives_example={
            "lines": [
                {
                    "line": 1,
                    "id": "mail~backup",
                    "status": "created",
                    "cron": "30 2 * * *",
                }
            ],
            "created": 1,
            "failed": 0,
        },
        problems=(),
    ),
    _read_row(
        path=_SCHEDULE,
        endpoint=get_schedule,
        query=(READS,),
        rights=_RIGHTS,
        summary="Read a schedule",
        description=(
            "Reads one schedule: its next due times, why it creates no jobs, and the results of its"
            " last runs."
        ),
        gives={200: ScheduleView},
        problems=(404,),
    ),
    _read_row(
        path=f"{_SCHEDULE}/next",
        endpoint=next_times,
        rights=_RIGHTS,
        summary="List the next due times of a schedule",
        description="Lists the next due times of a schedule, in its time zone and in UTC.",
        gives={200: Preview},
        query=(
            Parameter("count", "integer", f"Number of due times. Default: {NEXT}.", 1, NEXT_MAX),
            Parameter(
                "after", "string", "Due times after this time. Default: now.", example="2026-03-01"
            ),
        ),
        problems=(404,),
    ),
    _change_row(
        method="PUT",
        path=_SCHEDULE,
        endpoint=change,
        rights=_RIGHTS | in_body(read_schedule, queues=queues_of_schedule),
        summary="Change a schedule",
        description=(
            "Gives a schedule another definition; fields that are left out get their defaults. Due"
            " times that have come by then are fired first. With another queue, the schedule moves"
            " there and gets another id."
        ),
        takes=ScheduleBody,
        takes_example=_EXAMPLE_BODY,
    ),
    _change_row(
        method="DELETE",
        path=_SCHEDULE,
        endpoint=delete,
        summary="Delete a schedule",
        description="Deletes a schedule. Its jobs stay.",
        gives={200: ScheduleDeleted},
        gives_example={"id": _ID_EXAMPLE, "status": "deleted"},
    ),
    _change_row(
        path=f"{_SCHEDULE}/pause",
        endpoint=pause,
        summary="Pause a schedule",
        description="Pauses a schedule: due times create no jobs until it is resumed.",
    ),
    _change_row(
        path=f"{_SCHEDULE}/resume",
        endpoint=resume,
        summary="Resume a schedule",
        description="Resumes a schedule. Due times of the pause are not made up for.",
    ),
    _change_row(
        path=f"{_SCHEDULE}/run",
        endpoint=run_now,
        summary="Create a job of a schedule now",
        description="Creates a job of the schedule now. Its due times stay as they are.",
        gives={200: ScheduleRun},
        gives_example={
            "id": _ID_EXAMPLE,
            "job_id": "mail~daily-report@now-2026-02-20T10:00:00.5Z",
            "status": "fired",
        },
    ),
    _change_row(
        path=f"{_SCHEDULE}/backfill",
        endpoint=backfill,
        summary="Create the jobs of past due times",
        description=(
            "Creates the jobs of all due times from `from` up to, but not including, `to`. A job"
            " that exists is not created again. `dry_run` lists the due times only."
        ),
        takes=BackfillBody,
        takes_example={"from": "2026-02-01", "to": "2026-02-08", "dry_run": True},
        gives={200: BackfillAnswer},
    ),
)
