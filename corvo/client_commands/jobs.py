"""Commands on jobs by id: `inspect`, and the actions, which are rows of one table."""

import argparse
import shlex
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from threading import Event
from typing import Final, NamedTuple

import msgspec

from corvo.client import jobs as api
from corvo.client import work
from corvo.client.calls import Client, read
from corvo.client.connections import Answer
from corvo.client.errors import ClientError, RequestFailed
from corvo.client_commands.bulk_runs import BATCH, Detached, Tally, continue_hints, run_ids
from corvo.client_commands.failures import (
    CONFLICT,
    FAILED,
    INTERRUPTED,
    JOB_NOT_FOUND,
    NOT_FOUND,
    OK,
    PARTLY,
    CommandFailed,
)
from corvo.client_commands.ids import STDIN, id_batches
from corvo.client_commands.interrupts import first_interrupt
from corvo.client_commands.job_view import JOBS, job_text
from corvo.client_commands.options import Verb, add_yes, own
from corvo.client_commands.records import DEEDS, FORMS, IDS, TABLE
from corvo.client_commands.session import Session
from corvo.client_commands.tables import counted, grouped, plain
from corvo.command_table import COMMANDS

_SHOWN_MAX: Final = 20
"""Skipped jobs that are listed for people."""


class Options(argparse.Namespace):
    """What the parsers of these commands have read, each its own part."""

    ids: list[str]
    target: str | None = None
    level: str | None = None
    reason: str | None = None
    delay: str | None = None
    lease_token: int | None = None
    reset_attempts: bool = False


class Run(NamedTuple):
    """One action on many jobs while it is run."""

    session: Session
    got: Options
    batches: Iterable[list[str]]
    tally: Tally
    interrupted: Event


Many = Callable[[Run], None]


class Deed(NamedTuple):
    """An action on jobs."""

    done: str
    """The verb in the past."""
    one: Callable[[Client, str, Options], Answer]
    many: Many
    add: tuple[Callable[[argparse.ArgumentParser], None], ...] = ()


# Inspect.


def inspect(session: Session, options: argparse.Namespace) -> int:
    """`corvo inspect ID…`."""
    ids = own(Options, options).ids
    if len(ids) == 1 and ids != [STDIN]:
        answer = api.get_job(session.client, ids[0])
        if session.output in {"csv", "wide"}:
            with session.listing(JOBS) as records:
                records.add([msgspec.Raw(answer.body)])
        else:
            text = job_text(read(answer, api.Job), session.now_ns())
            session.show(answer, text, (ids[0],))
        return OK
    missing: list[str] = []
    with session.listing(JOBS) as records:
        for batch in id_batches(ids, api.GET_MANY_MAX):
            found = api.get_jobs(session.client, batch)
            records.add(found)
            known = {msgspec.json.decode(raw, type=api.Job).id for raw in found}
            missing += [each for each in batch if each not in known]
    if missing:
        some = ", ".join(missing[:5]) + (", ..." if missing[5:] else "")
        raise CommandFailed(
            "NOT_FOUND",
            f"{counted(len(missing), 'job')} not found: {some}",
            hints=[JOB_NOT_FOUND],
        )
    return OK


# Actions.


def act(name: str, session: Session, options: argparse.Namespace) -> int:
    """An action on one job, or on many."""
    got, deed = own(Options, options), DEEDS_BY_NAME[name]
    if len(got.ids) == 1 and got.ids != [STDIN]:
        answer = deed.one(session.client, got.ids[0], got)
        session.show(answer, _one_text(deed, answer, got.ids[0]), (got.ids[0],))
        return OK
    return _act_on_many(name, deed, session, got)


def _one_text(deed: Deed, answer: Answer, job_id: str) -> str:
    state = msgspec.json.decode(answer.body, type=dict[str, object]).get("state")
    status = msgspec.json.decode(answer.body, type=dict[str, object]).get("status")
    if status == "cancelling":
        return f"{job_id} is active: its worker is asked to stop\n"
    return f"{job_id} was {deed.done}" + (f": it is {state}" if state else "") + "\n"


def _act_on_many(name: str, deed: Deed, session: Session, got: Options) -> int:
    is_piped = got.ids == [STDIN]
    tally, acted = Tally(), list[str]()
    with first_interrupt() as interrupted:
        batches = id_batches(got.ids, BATCH, interrupted.is_set)
        first = next(batches, [])
        if not first:
            raise CommandFailed(
                "NO_IDS", "no job ids on stdin", hints=["list some:   corvo search -o id"]
            )
        more = "more than " if is_piped and len(first) == BATCH else ""
        command = f"corvo {name} {STDIN if is_piped else shlex.join(got.ids[:3])}"
        session.confirm(
            lambda: f"{command} acts on {more}{counted(len(first), 'job')}",
            f"{name.capitalize()} them?",
            command,
        )
        kept = _kept(chain([first], batches), acted if session.output == IDS else None)
        try:
            deed.many(Run(session, got, kept, tally, interrupted))
        except Detached as error:
            return detached(
                session, tally, error.bulk_id, f"corvo {name} - --yes", is_piped=is_piped
            )
        except ClientError as error:
            error.hints = (*error.hints, f"so far: {tally.text(deed.done)}")
            raise
    skipped = {one.job_id for one in tally.skipped}
    session.show(
        msgspec.json.encode(shown_tally(tally)),
        f"{tally.text(deed.done)}\n",
        tuple(each for each in acted if each not in skipped),
    )
    if session.output == TABLE:
        _list_skipped(session, tally)
    return exit_of(tally)


def _kept(batches: Iterable[list[str]], kept: list[str] | None) -> Iterable[list[str]]:
    for batch in batches:
        if kept is not None:
            kept += batch
        yield batch


def shown_tally(tally: Tally) -> dict[str, object]:
    """The counts for programs."""
    return {
        "processed": tally.processed,
        "affected": tally.affected,
        "skipped_total": tally.skipped_total,
        "errors": tally.errors,
        "by_code": tally.by_code,
        "skipped": tally.skipped,
    }


def _list_skipped(session: Session, tally: Tally) -> None:
    for one in tally.skipped[:_SHOWN_MAX]:
        session.note(f"  skipped {plain(one.job_id)}: {plain(one.error or one.code)}")
    rest = tally.skipped_total - _SHOWN_MAX
    if rest > 0:
        session.note(f"  and {grouped(rest)} more")


def exit_of(tally: Tally) -> int:
    """The exit code of an action on jobs that were named."""
    if not tally.errors and not tally.skipped_total:
        return OK
    if tally.affected:
        return PARTLY
    if tally.errors:
        return FAILED
    return NOT_FOUND if list(tally.by_code) == ["job_not_found"] else CONFLICT


def detached(session: Session, tally: Tally, bulk_id: str, again: str, *, is_piped: bool) -> int:
    """After Ctrl-C: what was done, what continues, and how to continue."""
    session.say(f"interrupted: {tally.text('changed')}, of {grouped(tally.processed)} jobs")
    if bulk_id:
        session.say(
            f"a bulk operation continues on the server:   corvo bulk watch {bulk_id}\n"
            f"stop it:   corvo bulk stop {bulk_id}"
        )
    if is_piped:
        session.say("\n".join(continue_hints(tally, again)))
    return INTERRUPTED


def _plain(action: str) -> Callable[[Client, str, Options], Answer]:
    """One job by the path of an action."""
    return lambda client, job_id, got: api.act(client, job_id, action, _body(got))


def _body(got: Options) -> dict[str, object]:
    body: dict[str, object] = {}
    if got.target is not None:
        body["queue"] = got.target
    if got.level is not None:
        body["priority"] = got.level
    if got.reason is not None:
        body["reason"] = got.reason
    if got.reset_attempts:
        body["reset_attempts"] = True
    if got.lease_token is not None:
        body["lease_token"] = got.lease_token
    if got.delay is not None:
        body["delay"] = got.delay
    return body


_BULK_FIELDS: Final = {"move_to_queue": "queue", "priority": "priority", "reason": "reason"}
"""Fields of a bulk operation, and of the same action on one job."""


def _bulk(action: str) -> Many:
    """Many jobs by bulk operations."""

    def many(run: Run) -> None:
        known = _body(run.got)
        body = {name: known[field] for name, field in _BULK_FIELDS.items() if field in known}
        run_ids(run.session, {"action": action, **body}, run.batches, run.tally, run.interrupted)

    return many


def _each(one: Callable[[Client, str, Options], Answer]) -> Many:
    """Many jobs, a request for each."""

    def many(run: Run) -> None:
        for job_id in chain.from_iterable(run.batches):
            try:
                one(run.session.client, job_id, run.got)
            except RequestFailed as error:
                if error.status not in {400, 404, 409}:
                    raise
                run.tally.skip(job_id, error.reason or error.code, error.message)
            else:
                run.tally.change()
            if run.interrupted.is_set():
                raise Detached("")

    return many


def _lease_items(verb: str) -> Many:
    """Many jobs of workers, by a list of items."""

    def many(run: Run) -> None:
        extra: Mapping[str, object] = {
            name: value for name, value in _body(run.got).items() if name != "lease_token"
        }
        for batch in run.batches:
            for start in range(0, len(batch), work.ITEMS_MAX):
                part = batch[start : start + work.ITEMS_MAX]
                items = [{"job_id": job_id, **extra} for job_id in part]
                for one in work.finish_many(run.session.client, verb, items):
                    if one.error:
                        run.tally.skip(one.job_id, one.reason or one.code, one.error)
                    else:
                        run.tally.change()
                if run.interrupted.is_set():
                    raise Detached("")

    return many


def _move_many(run: Run) -> None:
    """A bulk operation cannot reset the attempts, so each job has its own request then."""
    many = _each(_plain("move")) if run.got.reset_attempts else _bulk("move")
    many(run)


# Options.


def _add_ids(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help="ids of jobs; - reads them from stdin")


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="QUEUE", help="queue that the jobs move to")
    parser.add_argument(
        "--reset-attempts", action="store_true", help="start with all attempts in the new queue"
    )


def _add_level(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("level", metavar="LEVEL", help="critical, high or normal")


def _add_reason(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", metavar="TEXT", help="for the history of the jobs")


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lease-token", type=int, metavar="N", help="lease token of the worker that has the job"
    )


def _add_delay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--delay", required=True, metavar="TIME", help="such as 30s, 5m or 2h")


DEEDS_BY_NAME: Final = {
    "retry": Deed("retried", _plain("retry"), _bulk("retry")),
    "requeue": Deed("requeued", _plain("requeue"), _bulk("requeue")),
    "cancel": Deed("cancelled", _plain("cancel"), _bulk("cancel"), (_add_reason,)),
    "move": Deed("moved", _plain("move"), _move_many, (_add_target,)),
    "delete": Deed(
        "deleted", lambda client, job_id, _: api.delete(client, job_id), _bulk("delete")
    ),
    "hold": Deed("held", _plain("hold"), _bulk("hold"), (_add_reason, _add_token)),
    "approve": Deed("approved", _plain("approve"), _bulk("approve")),
    "reject": Deed("rejected", _plain("reject"), _bulk("reject"), (_add_reason,)),
    "expedite": Deed("expedited", _plain("expedite"), _each(_plain("expedite"))),
    "priority": Deed("changed", _plain("priority"), _bulk("change_priority"), (_add_level,)),
    "release": Deed(
        "released",
        lambda client, job_id, got: work.finish(client, "release", job_id, _body(got)),
        _lease_items("release"),
        (_add_reason, _add_token),
    ),
    "snooze": Deed(
        "snoozed",
        lambda client, job_id, got: work.finish(client, "snooze", job_id, _body(got)),
        _lease_items("snooze"),
        (_add_delay, _add_reason, _add_token),
    ),
}


def _verb(name: str, deed: Deed) -> Verb:
    def add(parser: argparse.ArgumentParser) -> None:
        _add_ids(parser)
        for each in deed.add:
            each(parser)
        add_yes(parser)

    def run(session: Session, options: argparse.Namespace) -> int:
        return act(name, session, options)

    after = {"move": " mail-slow", "priority": " high", "snooze": " --delay 5m"}.get(name, "")
    examples = (
        f"corvo {name} s00_job_01M7TKEQAV0000000000300000{after}",
        f"corvo search --queue mail -o id | corvo {name} -{after} --yes",
    )
    return Verb(COMMANDS[name].summary, run, add, DEEDS, examples)


VERBS: Final = {
    "inspect": Verb(
        COMMANDS["inspect"].summary,
        inspect,
        _add_ids,
        FORMS,
        ("corvo inspect mail~letter-1", "corvo inspect mail~letter-1 --fields state,payload.to"),
    ),
    **{name: _verb(name, deed) for name, deed in DEEDS_BY_NAME.items()},
}
