"""`corvo bulk`: one action on the jobs that match filters, or on the ids of a pipe."""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final

import msgspec

from corvo.client import bulk as api
from corvo.client.calls import read
from corvo.client.errors import BadClientOption, ClientError, RequestFailed
from corvo.client_commands import filters
from corvo.client_commands.bulk_runs import (
    BATCH,
    Detached,
    Tally,
    continue_hints,
    follow,
    run_filter,
    run_ids,
    start,
)
from corvo.client_commands.failures import BAD_USAGE, FAILED, OK, PARTLY, CommandFailed
from corvo.client_commands.ids import STDIN, id_batches
from corvo.client_commands.interrupts import first_interrupt
from corvo.client_commands.jobs import detached, shown_tally
from corvo.client_commands.options import (
    Verb,
    add_yes,
    natural,
    own,
    positive,
    run,
    usage,
)
from corvo.client_commands.progress import Progress
from corvo.client_commands.records import DEEDS, FORMS, TEXTS, Column, Listing
from corvo.client_commands.session import Session
from corvo.client_commands.tables import age, counted, grouped, pairs
from corvo.nearest import nearest

SUMMARY: Final = "Run one action on many jobs, and follow bulk operations."

BULKS: Final = Listing(
    "bulks",
    api.Bulk,
    lambda bulk: bulk.id,
    (
        Column[api.Bulk]("id", lambda bulk, _: bulk.id),
        Column[api.Bulk]("action", lambda bulk, _: bulk.action),
        Column[api.Bulk]("status", lambda bulk, _: bulk.status),
        Column[api.Bulk]("processed", lambda bulk, _: grouped(bulk.processed)),
        Column[api.Bulk]("total", lambda bulk, _: grouped(bulk.total)),
        Column[api.Bulk]("affected", lambda bulk, _: grouped(bulk.affected)),
        Column[api.Bulk]("skipped", lambda bulk, _: grouped(bulk.skipped_total)),
        Column[api.Bulk]("errors", lambda bulk, _: grouped(bulk.errors)),
        Column[api.Bulk]("age", lambda bulk, now: age(bulk.created_at, now)),
        Column[api.Bulk]("by", lambda bulk, _: bulk.by, is_wide=True),
        Column[api.Bulk]("error", lambda bulk, _: bulk.error, is_wide=True),
    ),
)


class Options(argparse.Namespace):
    """What the parsers have read, each its own part."""

    words: list[str]
    reason: str | None
    rate: int | None
    dry_run: bool
    detach: bool
    all_jobs: bool
    bulk: str
    limit: int


def main(arguments: Sequence[str]) -> int:
    """`corvo bulk`."""
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        (sys.stdout if arguments else sys.stderr).write(usage("bulk", SUMMARY, VERBS))
        return OK if arguments else BAD_USAGE
    name, *rest = arguments
    if name not in VERBS:
        near = nearest(name, tuple(VERBS))
        hint = f"did you mean `corvo bulk {near}`?" if near else "`corvo bulk --help` lists all"
        sys.stderr.write(f"corvo: unknown action 'bulk {name}'; {hint}\n")
        return BAD_USAGE
    return run(f"bulk {name}", VERBS[name], rest)


# Actions.

_DONE: Final = {
    "retry": "retried",
    "requeue": "requeued",
    "cancel": "cancelled",
    "delete": "deleted",
    "move": "moved",
    "priority": "changed",
    "hold": "held",
    "approve": "approved",
    "reject": "rejected",
}
_ACTIONS: Final = {"priority": "change_priority"}
_TARGETS: Final = {"move": "move_to_queue", "priority": "priority"}
"""Actions that need a word, and its field."""


def act(name: str, session: Session, options: argparse.Namespace) -> int:
    """An action on many jobs."""
    got = own(Options, options)
    action: dict[str, object] = {"action": _ACTIONS.get(name, name)}
    words = list(got.words)
    if name in _TARGETS:
        if not words or words[0] == STDIN:
            raise BadClientOption(f"bulk {name} needs a word: see corvo bulk {name} --help")
        action[_TARGETS[name]] = words.pop(0)
    if got.reason is not None:
        action["reason"] = got.reason
    if got.rate is not None:
        action["rate"] = got.rate
    chosen = filters.chosen(options, session.now_ns())
    if words not in ([], [STDIN]):
        raise BadClientOption(
            f"unknown argument {words[0]!r}", "select jobs by filters, or pass ids on stdin with -"
        )
    is_piped = words == [STDIN] or not (chosen or got.all_jobs or sys.stdin.isatty())
    if chosen or got.all_jobs:
        if words:
            raise BadClientOption("pass filters, or - for ids from stdin, and not both")
        action |= {"filter": chosen, **({} if chosen else {"all": True})}
        words = filters.typed(options) + (["--all-jobs"] if got.all_jobs else [])
        return _on_filter(name, session, got, action, words)
    if not is_piped:
        raise BadClientOption(
            "no filter is set: which jobs?",
            f"by filters:   corvo bulk {name} --queue mail --state dead",
            f"all jobs:     corvo bulk {name} --all-jobs",
        )
    return _on_ids(name, session, got, action)


def _command(name: str, got: Options, action: dict[str, object], jobs: list[str]) -> str:
    """The command as it was typed, without an answer to its question."""
    words = ["corvo", "bulk", name]
    if name in _TARGETS:
        words.append(str(action[_TARGETS[name]]))
    words += jobs
    for flag, value in (("--reason", got.reason), ("--rate", got.rate)):
        if value is not None:
            words += [flag, str(value)]
    return shlex.join([*words, *(["--detach"] if got.detach else [])])


def _on_filter(
    name: str, session: Session, got: Options, action: dict[str, object], typed: list[str]
) -> int:
    if got.dry_run:
        answer, preview = api.preview(session.client, action)
        session.show(_preview_of(answer.body), _preview_text(name, preview))
        return OK

    def about() -> str:
        _, preview = api.preview(session.client, action)
        least = "" if preview.is_exact else "at least "
        matching = counted(preview.total, "job matches", "jobs match")
        return (
            f"bulk {name}: {least}{matching}, and it changes"
            f" {least}{grouped(preview.would_affect)} of them"
        )

    session.confirm(about, f"{name.capitalize()} them?", _command(name, got, action, typed))
    if got.detach:
        return _detach(session, start(session, action))
    tally = Tally()
    with first_interrupt() as interrupted:
        try:
            done = run_filter(session, action, tally, interrupted)
        except Detached as error:
            return detached(session, tally, error.bulk_id, "", is_piped=False)
    return _finish(name, session, tally, done)


def _preview_of(body: bytes) -> bytes:
    """The object `dry_run` of the answer, as the server wrote it."""
    return bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["dry_run"])


def _preview_text(name: str, preview: api.Preview) -> str:
    least = "" if preview.is_exact else "at least "
    rows = [
        ("jobs", f"{least}{grouped(preview.total)}"),
        ("would change", f"{least}{grouped(preview.would_affect)}"),
        ("states", _counts(preview.states)),
        ("queues", _counts(preview.queues)),
        ("accepts", ", ".join(preview.takes)),
    ]
    return f"{name}: nothing was changed (dry run)\n" + pairs(rows)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{grouped(counts[name])} {name}" for name in sorted(counts))


def _on_ids(name: str, session: Session, got: Options, action: dict[str, object]) -> int:
    tally = Tally()
    with first_interrupt() as interrupted:
        batches = id_batches([STDIN], BATCH, interrupted.is_set)
        first = next(batches, [])
        if not first:
            raise CommandFailed(
                "NO_IDS", "no job ids on stdin", hints=["list some:   corvo search -o id"]
            )
        whole = chain([first], batches)
        if got.dry_run:
            return _preview_ids(name, session, action, whole)
        more = "more than " if len(first) == BATCH else ""
        command = _command(name, got, action, [STDIN])
        session.confirm(
            lambda: f"bulk {name} acts on {more}{counted(len(first), 'job')} from stdin",
            f"{name.capitalize()} them?",
            f"... | {command}",
        )
        try:
            run_ids(session, action, whole, tally, interrupted)
        except Detached as error:
            return detached(session, tally, error.bulk_id, f"{command} --yes", is_piped=True)
        except ClientError as error:
            told = f"so far: {tally.text(_DONE[name])}"
            error.hints = (*error.hints, told, *continue_hints(tally, f"{command} --yes"))
            raise
    return _finish(name, session, tally, None)


def _preview_ids(
    name: str, session: Session, action: dict[str, object], batches: chain[list[str]]
) -> int:
    total = would = 0
    states: dict[str, int] = {}
    queues: dict[str, int] = {}
    takes: list[str] = []
    for batch in batches:
        _, preview = api.preview(session.client, {**action, "job_ids": batch})
        total += preview.total
        would += preview.would_affect
        takes = preview.takes
        for counts, more in ((states, preview.states), (queues, preview.queues)):
            for key, count in more.items():
                counts[key] = counts.get(key, 0) + count
    whole = api.Preview(total=total, would_affect=would, states=states, queues=queues, takes=takes)
    session.show(msgspec.json.encode(whole), _preview_text(name, whole))
    return OK


def _finish(name: str, session: Session, tally: Tally, done: api.Bulk | None) -> int:
    told = {"bulk_operation_ids": tally.bulks, **shown_tally(tally)}
    session.show(msgspec.json.encode(told), f"{tally.text(_DONE[name])}\n", tuple(tally.bulks))
    if done is not None and done.status == "failed":
        raise CommandFailed("FAILED", f"bulk operation {done.id} failed: {done.error}")
    if done is not None and done.status == "cancelled":
        raise CommandFailed("PARTLY_DONE", f"bulk operation {done.id} was stopped")
    if not tally.errors:
        return OK
    return PARTLY if tally.affected else FAILED


def _detach(session: Session, begun: api.Bulk) -> int:
    session.show(msgspec.json.encode(begun), f"{begun.id} was started\n", (begun.id,))
    session.note(f"  follow it:   corvo bulk watch {begun.id}")
    return OK


# Bulk operations.


def list_bulks(session: Session, options: argparse.Namespace) -> int:
    """`corvo bulk list`."""
    with session.listing(BULKS) as records:
        records.add(api.get_bulks(session.client, own(Options, options).limit))
    return OK


def show(session: Session, options: argparse.Namespace) -> int:
    """`corvo bulk show ID`."""
    with _hinted():
        answer = api.get_bulk(session.client, own(Options, options).bulk)
    session.show(answer, _bulk_text(read(answer, api.Bulk), session.now_ns()))
    return OK


def stop(session: Session, options: argparse.Namespace) -> int:
    """`corvo bulk stop ID`."""
    with _hinted():
        answer = api.stop(session.client, own(Options, options).bulk)
    done = read(answer, api.Bulk)
    session.show(
        answer,
        f"{done.id} is {done.status}: {counted(done.affected, 'job was', 'jobs were')} changed\n",
    )
    return OK


def watch(session: Session, options: argparse.Namespace) -> int:
    """`corvo bulk watch ID`."""
    bulk_id = own(Options, options).bulk
    progress = Progress("jobs", is_quiet=session.is_quiet)
    with first_interrupt() as interrupted:
        try:
            with _hinted():
                begun = api.read_bulk(session.client, bulk_id)
            done = follow(session, begun, progress, interrupted)
        except Detached:
            return detached(session, Tally(), bulk_id, "", is_piped=False)
        finally:
            progress.clear()
    session.show(msgspec.json.encode(done), _bulk_text(done, session.now_ns()))
    if done.status == "failed":
        raise CommandFailed("FAILED", f"bulk operation {done.id} failed: {done.error}")
    return PARTLY if done.errors or done.status == "cancelled" else OK


@contextmanager
def _hinted() -> Iterator[None]:
    """An unknown bulk operation, with the command that lists them."""
    try:
        yield
    except RequestFailed as error:
        if error.status == 404:
            error.hints = (*error.hints, "list them:   corvo bulk list")
        raise


def _bulk_text(bulk: api.Bulk, now_ns: int) -> str:
    return pairs(
        (column.header, column.text(bulk, now_ns)) for column in BULKS.columns if column.header
    )


# Options.


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bulk", metavar="ID", help="id of a bulk operation")


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=positive, default=20, metavar="N", help="the newest N (default: 20)"
    )


def _action(name: str) -> Verb:
    def add(parser: argparse.ArgumentParser) -> None:
        words = {"move": "QUEUE", "priority": "LEVEL"}.get(name, "")
        metavar = (words, STDIN) if words else STDIN
        about = f"{words}, and " if words else ""
        parser.add_argument(
            "words",
            nargs="*",
            metavar=metavar if words else f"[{STDIN}]",
            help=f"{about}- for ids from stdin",
        )
        filters.add_filters(parser)
        if name in {"cancel", "hold", "reject"}:
            parser.add_argument("--reason", metavar="TEXT", help="for the history of the jobs")
        else:
            parser.set_defaults(reason=None)
        parser.add_argument("--rate", type=natural, metavar="N", help="at most N jobs in a second")
        parser.add_argument("--dry-run", action="store_true", help="only count the jobs")
        parser.add_argument(
            "--detach", action="store_true", help="start it, and do not wait for its end"
        )
        parser.add_argument(
            "--all-jobs", action="store_true", help="all jobs of all queues, without a filter"
        )
        add_yes(parser)

    def run_action(session: Session, options: argparse.Namespace) -> int:
        return act(name, session, options)

    target = {"move": " mail-slow", "priority": " high"}.get(name, "")
    return Verb(
        f"{name} the jobs that match, or those on stdin"
        if name != "priority"
        else "change the priority of the jobs that match, or of those on stdin",
        run_action,
        add,
        DEEDS,
        (
            f"corvo bulk {name}{target} --queue mail --created-before 2d --dry-run",
            f"corvo search --queue mail -o id | corvo bulk {name}{target} - --yes",
        ),
    )


VERBS: Final = {
    **{name: _action(name) for name in _DONE},
    "list": Verb("list bulk operations, the newest first", list_bulks, _add_limit, FORMS),
    "show": Verb("show a bulk operation", show, _add_id, TEXTS),
    "watch": Verb("wait for the end of a bulk operation", watch, _add_id, TEXTS),
    "stop": Verb("stop a bulk operation; changes stay", stop, _add_id, TEXTS),
}
