"""`corvo schedules`: lists, creates, changes and runs schedules, and explains expressions."""

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from corvo.client import schedules as api
from corvo.client.calls import Client, read
from corvo.client.connections import Answer
from corvo.client.errors import BadClientOption, ClientError, RequestFailed
from corvo.client_commands.enqueue import read_input
from corvo.client_commands.failures import OK, CommandFailed
from corvo.client_commands.filters import moment_of
from corvo.client_commands.ids import STDIN, id_batches
from corvo.client_commands.options import Verb, add_yes, dispatch, own, positive
from corvo.client_commands.records import DEEDS, FORMS, JSON, TABLE, Column, Listing, one_line
from corvo.client_commands.schedule_fields import (
    Fields,
    add_fields,
    changed,
    fields_of,
    tags_after,
)
from corvo.client_commands.session import Session
from corvo.client_commands.tables import age, counted, grouped, pairs, plain, span, table
from corvo.nearest import nearest
from corvo.times import S, format_duration, parse_time

SUMMARY: Final = "List, create, change and run schedules."
_BATCH: Final = 1_000
_GLOB: Final = frozenset("*?[")
_PRIORITIES: Final = ("critical", "high", "normal")
_LIST_HINT: Final = "list them:   corvo schedules"


class Options(argparse.Namespace):
    """What the parsers have read, each its own part."""

    patterns: list[str]
    ids: list[str]
    id: str
    queue: str | None
    count: int
    since: str
    until: str
    file: str
    expression: str
    tz: str | None
    users: bool
    dry_run: bool


class Definition(Fields):
    """The arguments of `create` and `change`."""

    id: str
    name: str
    paused: bool


def main(arguments: Sequence[str]) -> int:
    """`corvo schedules`; without a command, the list."""
    words = list(arguments)
    is_list = not words or "~" in words[0] or bool(_GLOB & {*words[0]})
    is_option = bool(words) and words[0].startswith("-") and words[0] not in {"-h", "--help"}
    return dispatch(
        "schedules", SUMMARY, VERBS, ["list", *words] if is_list or is_option else words
    )


def ahead(at: str | None, now_ns: int) -> str:
    """Time until a moment: `3h20m`. Empty without a moment."""
    at_ns = parse_time(at) if at else None
    return span((at_ns - now_ns) // S) if at_ns is not None else ""


SCHEDULES: Final = Listing(
    "schedules",
    api.Schedule,
    lambda schedule: schedule.id,
    (
        Column[api.Schedule]("id", lambda one, _: one.id),
        Column[api.Schedule]("state", lambda one, _: one.status),
        Column[api.Schedule]("cron", lambda one, _: one.cron),
        Column[api.Schedule]("zone", lambda one, _: one.timezone),
        Column[api.Schedule]("next_in", lambda one, now: ahead(one.next_run, now)),
        Column[api.Schedule]("last", lambda one, now: age(one.last_run or "", now)),
        Column[api.Schedule]("fired", lambda one, _: grouped(one.fired)),
        Column[api.Schedule]("skipped", lambda one, _: grouped(one.skipped)),
        Column[api.Schedule]("description", lambda one, _: one.description, is_wide=True),
        Column[api.Schedule]("overlap", lambda one, _: one.overlap, is_wide=True),
        Column[api.Schedule]("missed", lambda one, _: one.missed, is_wide=True),
        Column[api.Schedule]("why", lambda one, _: one.why, is_wide=True),
    ),
)
DUE_TIMES: Final = Listing(
    "next",
    api.DueTime,
    lambda due: due.at,
    (
        Column[api.DueTime]("local", lambda due, _: due.local),
        Column[api.DueTime]("utc", lambda due, _: due.at),
        Column[api.DueTime]("in", lambda due, now: ahead(due.at, now)),
        Column[api.DueTime]("note", lambda due, _: due.note),
    ),
)
LINES: Final = Listing(
    "lines",
    api.ImportedLine,
    lambda line: line.id,
    (
        Column[api.ImportedLine]("line", lambda line, _: str(line.line)),
        Column[api.ImportedLine]("result", lambda line, _: line.status),
        Column[api.ImportedLine]("cron", lambda line, _: line.cron),
        Column[api.ImportedLine]("id", lambda line, _: line.id),
        Column[api.ImportedLine]("error", lambda line, _: line.error),
    ),
)


# Lists.


def list_schedules(session: Session, options: argparse.Namespace) -> int:
    """`corvo schedules [GLOB…]`."""
    got = own(Options, options)
    found = False
    with session.listing(SCHEDULES) as records:
        for page in api.pages(session.client, got.queue or ""):
            kept = [raw for raw in page if _matches(raw, got.patterns)]
            found = found or bool(kept)
            records.add(kept)
    if not found and got.patterns and not any(_GLOB & {*each} for each in got.patterns):
        missing = got.patterns[0]
        raise CommandFailed(
            "NOT_FOUND",
            f"schedule {missing!r} does not exist",
            hints=_hints(session.client, missing),
        )
    if not found and session.is_terminal and not session.is_json:
        example = "corvo schedules create nightly mail '0 3 * * *'"
        session.note(f"no schedules. Create one:   {example}")
    return OK


def _matches(raw: msgspec.Raw, patterns: list[str]) -> bool:
    name = msgspec.json.decode(raw, type=api.Schedule).id
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def show(session: Session, options: argparse.Namespace) -> int:
    """`corvo schedules show ID`."""
    schedule_id = own(Options, options).id
    with _hinted(session.client, schedule_id):
        answer = api.get_schedule(session.client, schedule_id)
    one = read(answer, api.Schedule)
    session.show(answer, _text_of(one, session.now_ns()), (one.id,))
    return OK


def _text_of(one: api.Schedule, now_ns: int) -> str:
    text = pairs(
        (
            ("id", one.id),
            ("state", one.status),
            ("why", one.why),
            ("cron", one.cron),
            ("description", one.description),
            ("zone", one.timezone),
            ("overlap", one.overlap),
            ("missed", one.missed + (f", at most {one.missed_max}" * (one.missed == "all"))),
            ("missed after", format_duration(one.missed_after_ms)),
            ("jitter", format_duration(one.jitter_ms) if one.jitter_ms else ""),
            ("starts", one.starts_at or ""),
            ("ends", one.ends_at or ""),
            ("priority", _priority(one.priority)),
            ("attempts", str(one.max_retries)),
            ("tags", ",".join(f"{name}={value}" for name, value in one.tags.items())),
            ("payload", one_line(one.payload)),
            ("fired", grouped(one.fired)),
            ("skipped", grouped(one.skipped)),
            ("not ended", ", ".join(one.running)),
            ("moving to", one.moving_to),
        )
    )
    if one.next:
        text += "\n" + _due_table(one.next, now_ns)
    if one.runs:
        rows = [
            [run.due_at, run.result, run.cause, run.job_id, run.why or _several(run.count)]
            for run in one.runs
        ]
        text += "\n" + table(["LAST DUE", "RESULT", "CAUSE", "JOB", "WHY"], rows)
    return text


def _priority(number: int) -> str:
    return _PRIORITIES[number] if 0 <= number < len(_PRIORITIES) else str(number)


def _several(count: int) -> str:
    return f"{grouped(count)} due times" if count > 1 else ""


def _due_table(times: Sequence[api.DueTime], now_ns: int) -> str:
    rows = [[one.local, one.at, ahead(one.at, now_ns), one.note] for one in times]
    return table(["DUE", "UTC", "IN", "NOTE"], rows)


def next_times(session: Session, options: argparse.Namespace) -> int:
    """`corvo schedules next ID`."""
    got = own(Options, options)
    with _hinted(session.client, got.id):
        answer = api.next_times(session.client, got.id, got.count)
    return _show_preview(session, answer)


def explain(session: Session, options: argparse.Namespace) -> int:
    """`corvo schedules explain EXPR`."""
    got = own(Options, options)
    body: dict[str, object] = {"cron": got.expression, "count": got.count}
    if got.tz is not None:
        body["timezone"] = got.tz
    return _show_preview(session, api.preview(session.client, body))


def _show_preview(session: Session, answer: Answer) -> int:
    found = read(answer, api.Preview)
    if session.output in {TABLE, JSON}:
        times = [msgspec.json.decode(raw, type=api.DueTime) for raw in found.next]
        text = plain(found.description) + "\n"
        text += _due_table(times, session.now_ns()) if times else "no due time ahead\n"
        session.show(answer, text)
    else:
        with session.listing(DUE_TIMES) as records:
            records.add(found.next)
    return OK


# Definitions.


def create(session: Session, options: argparse.Namespace) -> int:
    """`corvo schedules create NAME QUEUE CRON [JSON|@FILE|-]`."""
    got = own(Definition, options)
    body = {"name": got.name, **fields_of(got, session.now_ns())}
    tags = tags_after(got, {})
    if tags:
        body["tags"] = tags
    if got.paused:
        body["paused"] = True
    try:
        answer = api.create(session.client, body)
    except RequestFailed as error:
        if error.status == 409:
            schedule_id = shlex.quote(f"{got.queue}~{got.name}")
            error.hints = (*error.hints, f"change it:   corvo schedules change {schedule_id} ...")
        raise
    made = read(answer, api.Schedule)
    is_new = answer.status == 201
    did = "was created" if is_new else "exists already: nothing was created"
    session.show(answer, f"{made.id} {did}\n{_next_text(session, made)}", (made.id,))
    return OK


def change(session: Session, options: argparse.Namespace) -> int:
    """`corvo schedules change ID`."""
    got = own(Definition, options)
    with _hinted(session.client, got.id):
        before = api.get_schedule(session.client, got.id)
        body = changed(before.body, got, session.now_ns())
        answer = api.change(session.client, got.id, body)
    made = read(answer, api.Schedule)
    moved = f" and is moving to {made.moving_to}" if made.moving_to else ""
    is_renamed = made.id != got.id
    name = f"{got.id} is now {made.id}" if is_renamed else f"{made.id} was changed{moved}"
    session.show(answer, f"{name}\n{_next_text(session, made)}", (made.id,))
    return OK


def _next_text(session: Session, one: api.Schedule) -> str:
    due = one.next[0].local if one.next else ""
    rows = [("description", one.description), ("state", one.status), ("next", due)]
    if due:
        rows.append(("in", ahead(one.next[0].at, session.now_ns())))
    return pairs(rows)


# Actions.


class Deed(NamedTuple):
    """An action on schedules."""

    summary: str
    run: Callable[[Client, str], Answer]
    now: Callable[[Answer], str]
    """What is true afterwards."""
    is_final: bool = False


def _path(action: str) -> Callable[[Client, str], Answer]:
    return lambda client, schedule_id: api.act(client, schedule_id, action)


def _job_of(answer: Answer) -> str:
    return read(answer, api.Started).job_id


DEEDS_BY_NAME: Final = {
    "pause": Deed(
        "pause schedules: no jobs are created",
        _path("pause"),
        lambda _: "is paused: due times create no jobs",
    ),
    "resume": Deed(
        "resume paused schedules; due times of the pause create no jobs",
        _path("resume"),
        lambda answer: f"is {read(answer, api.Schedule).status}",
    ),
    "run": Deed(
        "create a job of schedules now; their due times stay as they are",
        _path("run"),
        lambda answer: f"has created the job {_job_of(answer)}",
    ),
    "delete": Deed(
        "delete schedules; their jobs stay", api.delete, lambda _: "is deleted", is_final=True
    ),
}


def act(name: str, session: Session, options: argparse.Namespace) -> int:
    """An action on schedules, one after the other."""
    got, deed = own(Options, options), DEEDS_BY_NAME[name]
    ids = [*chain.from_iterable(id_batches(got.ids, _BATCH))]
    if not ids:
        raise CommandFailed(
            "NO_IDS", "no schedule ids on stdin", hints=["list some:   corvo schedules -o id"]
        )
    if deed.is_final:
        for schedule_id in ids if len(ids) == 1 else ():
            with _hinted(session.client, schedule_id):
                api.get_schedule(session.client, schedule_id)
        what = ids[0] if len(ids) == 1 else counted(len(ids), "schedule")
        session.confirm(
            lambda: f"{what} will be deleted; jobs that were created stay",
            f"{name.capitalize()} {what}?",
            f"corvo schedules {name} {shlex.join(got.ids[:3])}",
        )
    failed: list[RequestFailed] = []
    for done, schedule_id in enumerate(ids):
        try:
            with _hinted(session.client, schedule_id):
                answer = deed.run(session.client, schedule_id)
        except RequestFailed as error:
            if error.status not in {404, 409} or len(ids) == 1:
                _tell_progress(error, done - len(failed), len(ids))
                raise
            failed.append(error)
            session.note(f"  skipped {plain(schedule_id)}: {plain(error.message)}")
            continue
        except ClientError as error:
            _tell_progress(error, done - len(failed), len(ids))
            raise
        result = _job_of(answer) if name == "run" else schedule_id
        session.show(answer, f"{schedule_id} {deed.now(answer)}\n", (result,))
    if len(failed) == len(ids):
        raise failed[0]
    if failed:
        count = f"{grouped(len(ids) - len(failed))} of {counted(len(ids), 'schedule')}"
        raise CommandFailed("PARTLY_DONE", f"{name}: done for {count}")
    return OK


def _tell_progress(error: ClientError, done: int, count: int) -> None:
    if count > 1:
        error.hints = (*error.hints, f"so far: {grouped(done)} of {grouped(count)} schedules")


def backfill(session: Session, options: argparse.Namespace) -> int:
    """`corvo schedules backfill ID FROM TO`."""
    got = own(Options, options)
    since = moment_of(got.since, session.now_ns())
    until = moment_of(got.until, session.now_ns())
    with _hinted(session.client, got.id):
        answer = api.due_between(session.client, got.id, since, until)
    due = read(answer, api.Backfill).due
    if got.dry_run or not due:
        text = _due_table(due, session.now_ns()) if due else ""
        count = counted(len(due), "due time")
        text += f"{count} from {since} up to, but not including, {until}; nothing was created\n"
        session.show(answer, text, tuple(one.at for one in due))
        return OK
    words = shlex.join([got.id, since, until])
    session.confirm(
        lambda: (
            f"{counted(len(due), 'job')} of {got.id} will be created, due from {due[0].local}"
            f" to {due[-1].local}, unless they exist"
        ),
        f"Create {counted(len(due), 'job')}?",
        f"corvo schedules backfill {words}",
    )
    with _hinted(session.client, got.id):
        answer = api.backfill(session.client, got.id, since, until)
    made = read(answer, api.Backfill)
    existing = f", {grouped(len(made.existing))} existed already" if made.existing else ""
    text = f"{counted(len(made.created), 'job')} of {got.id} created{existing}\n"
    session.show(answer, text, tuple(made.created))
    return OK


def import_crontab(session: Session, options: argparse.Namespace) -> int:
    """`corvo schedules import FILE|-`."""
    got = own(Options, options)
    where = "the crontab on stdin" if got.file == STDIN else f"the crontab {got.file}"
    try:
        text = read_input(got.file, where).decode()
    except UnicodeDecodeError as error:
        raise BadClientOption(f"{where} is not UTF-8: {error.reason}") from error
    body: dict[str, object] = {
        "crontab": text,
        "queue": got.queue,
        "has_users": got.users,
        "dry_run": got.dry_run,
    }
    if got.tz is not None:
        body["timezone"] = got.tz
    answer = api.import_crontab(session.client, body)
    found = read(answer, api.Import)
    if session.output == JSON:
        session.show(answer, "")
    else:
        with session.listing(LINES) as records:
            records.add(found.lines)
    lines = [msgspec.json.decode(raw, type=api.ImportedLine) for raw in found.lines]
    good = sum(line.status in {"valid", "created", "existing"} for line in lines)
    did = "valid" if got.dry_run else "created, or existed already"
    summary = f"{counted(good, 'schedule')} {did}; {counted(found.failed, 'line')} failed"
    if found.failed:
        raise CommandFailed("PARTLY_DONE" if good else "BAD_CRONTAB", summary)
    session.note(summary)
    return OK


# Errors.


@contextmanager
def _hinted(client: Client, schedule_id: str) -> Iterator[None]:
    """Errors of a schedule that does not exist, with the nearest id."""
    try:
        yield
    except RequestFailed as error:
        if error.status == 404:
            error.hints = (*error.hints, *_hints(client, schedule_id))
        elif error.status == 409 and error.reason == "schedule_changed":
            error.hints = (*error.hints, "another client has changed it: run the command again")
        raise


def _hints(client: Client, schedule_id: str) -> list[str]:
    known = []
    for page in api.pages(client):
        known += [msgspec.json.decode(raw, type=api.Schedule).id for raw in page]
    near = nearest(schedule_id, tuple(known))
    return [*([f"did you mean:   {near}"] if near else []), _LIST_HINT]


# Options.


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "patterns", nargs="*", metavar="ID", help="only these ids; * stands for any letters"
    )
    parser.add_argument("--queue", metavar="QUEUE", help="only schedules of this queue")


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="id of the schedule: QUEUE~NAME")


def _add_count(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", dest="count", type=positive, default=5, metavar="N", help="due times (default: 5)"
    )


def _add_next(parser: argparse.ArgumentParser) -> None:
    _add_id(parser)
    _add_count(parser)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("expression", metavar="EXPR", help="expression, such as '0 9 * * MON-FRI'")
    _add_zone(parser)
    _add_count(parser)


def _add_zone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tz", "--timezone", metavar="ZONE", help="time zone, such as Europe/Berlin (default: UTC)"
    )


_PAYLOAD_HELP: Final = "payload of the jobs, a file with it, or - for stdin"


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the schedule in its queue")
    parser.add_argument("queue", metavar="QUEUE", help="queue of the jobs")
    parser.add_argument("cron", metavar="CRON", help="expression, such as '0 9 * * MON-FRI'")
    parser.add_argument("payload", nargs="?", metavar="JSON|@FILE|-", help=_PAYLOAD_HELP)
    add_fields(parser)
    parser.add_argument("--paused", action="store_true", help="create no jobs until it is resumed")


def _add_change(parser: argparse.ArgumentParser) -> None:
    _add_id(parser)
    parser.add_argument("--cron", metavar="CRON", help="expression, such as '0 9 * * MON-FRI'")
    parser.add_argument("--queue", metavar="QUEUE", help="move the schedule to this queue")
    parser.add_argument("--payload", metavar="JSON|@FILE|-", help=_PAYLOAD_HELP)
    add_fields(parser)


def _add_backfill(parser: argparse.ArgumentParser) -> None:
    _add_id(parser)
    form = "2026-02-20, 2026-02-20T10:00:00Z, or 7d for 7 days ago"
    parser.add_argument("since", metavar="FROM", help=f"first due time: {form}")
    parser.add_argument("until", metavar="TO", help=f"end, not included: {form}")
    parser.add_argument("--dry-run", action="store_true", help="list the due times only")
    add_yes(parser)


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE|-", help="crontab, or - for stdin")
    parser.add_argument("--queue", required=True, metavar="QUEUE", help="queue of the jobs")
    _add_zone(parser)
    parser.add_argument(
        "--users", action="store_true", help="lines have a user, as those of /etc/crontab"
    )
    parser.add_argument("--dry-run", action="store_true", help="check the lines only")


def _verb(name: str, deed: Deed) -> Verb:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "ids", nargs="+", metavar="ID", help="ids of schedules, or - for ids from stdin"
        )
        if deed.is_final:
            add_yes(parser)

    def run(session: Session, options: argparse.Namespace) -> int:
        return act(name, session, options)

    return Verb(deed.summary, run, add, DEEDS, (f"corvo schedules {name} mail~nightly",))


VERBS: Final = {
    "list": Verb(
        "list schedules, also without the word list",
        list_schedules,
        _add_list,
        FORMS,
        ("corvo schedules", "corvo schedules 'mail~*' -o wide"),
    ),
    "show": Verb("show a schedule, its due times and last runs", show, _add_id, DEEDS),
    "create": Verb(
        "create a schedule",
        create,
        _add_create,
        DEEDS,
        ("corvo schedules create nightly mail '0 3 * * *' --tz Europe/Berlin --overlap skip",),
    ),
    "change": Verb(
        "change some fields of a schedule",
        change,
        _add_change,
        DEEDS,
        ("corvo schedules change mail~nightly --cron '0 4 * * *'",),
    ),
    **{name: _verb(name, deed) for name, deed in DEEDS_BY_NAME.items()},
    "next": Verb(
        "list the next due times of a schedule",
        next_times,
        _add_next,
        FORMS,
        ("corvo schedules next mail~nightly -n 10",),
    ),
    "backfill": Verb(
        "create the jobs of past due times",
        backfill,
        _add_backfill,
        DEEDS,
        ("corvo schedules backfill mail~nightly 2026-02-01 2026-02-08 --dry-run",),
    ),
    "import": Verb(
        "create a schedule for each line of a crontab",
        import_crontab,
        _add_import,
        FORMS,
        ("crontab -l | corvo schedules import - --queue cron --dry-run",),
    ),
    "explain": Verb(
        "explain an expression: its meaning and its next due times",
        explain,
        _add_explain,
        FORMS,
        ("corvo schedules explain '0 9 * * MON-FRI' --tz Europe/Berlin",),
    ),
}
