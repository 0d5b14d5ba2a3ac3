"""`corvo search`: lists the jobs that match filters, page by page."""

import argparse
import shlex
import sys
from collections.abc import Mapping
from typing import Final

from corvo.client import jobs as api
from corvo.client_commands import filters
from corvo.client_commands.failures import OK, CommandFailed
from corvo.client_commands.job_view import JOBS
from corvo.client_commands.options import Verb, own, positive
from corvo.client_commands.records import FORMS, IDS, JSON, TABLE, WIDE
from corvo.client_commands.session import Session
from corvo.client_commands.tables import grouped
from corvo.command_table import COMMANDS

ON_TERMINAL: Final = 50
"""Jobs that are shown on a terminal, unless a limit is named. A pipe gets all."""


class Options(argparse.Namespace):
    """The options of a search beside its filters."""

    limit: int | None
    all: bool
    count: bool
    sort: str | None
    order: str | None


def search(session: Session, options: argparse.Namespace) -> int:
    """`corvo search`."""
    got = own(Options, options)
    body = filters.chosen(options, session.now_ns())
    if got.count:
        return _count(session, body, options)
    if got.sort is not None:
        body["sort"] = got.sort
    if got.order is not None:
        body["order"] = got.order
    limit = got.limit
    if limit is None and not got.all and session.is_terminal:
        limit = ON_TERMINAL
    last = None
    is_patient = session.patience(options)
    with session.listing(JOBS) as records:
        for page in api.pages(session.client, body, limit=limit, is_patient=is_patient):
            if last is None and page.is_behind:
                _behind(session)
            last = page
            records.add(page.jobs)
            if records.count:
                sys.stdout.flush()
    assert last is not None, "there is a first page, which may be empty"
    _remark(session, last, records.count, options)
    return OK


def _count(session: Session, body: Mapping[str, object], options: argparse.Namespace) -> int:
    """Only the number of jobs."""
    page = next(api.pages(session.client, body, limit=1, is_patient=session.patience(options)))
    if page.is_behind:
        _behind(session)
    told = {"total": page.total, "is_exact": page.total_is_exact}
    least = "" if page.total_is_exact else "at least "
    if session.output == JSON or session.is_json:
        import msgspec  # noqa: PLC0415 -- loaded by the client, and needed only here

        session.show(msgspec.json.encode(told), "")
    elif session.output in {TABLE, WIDE} and session.is_terminal:
        session.show(b"{}", f"{least}{grouped(page.total)} jobs\n")
    else:
        sys.stdout.write(f"{page.total}\n")
        if least:
            session.note("the count is a lower bound: narrow the search, or count by a dry run")
    return OK


def _behind(session: Session) -> None:
    """The mirror is behind: a person sees what there is, and a program no incomplete list."""
    if session.is_terminal:
        session.note("changes of the last moments may be missing: the mirror is behind")
        return
    raise CommandFailed(
        "NOT_CAUGHT_UP",
        "the mirror is behind: jobs would be missing",
        hints=["wait longer for it:   --timeout 5m", "see its state:   corvo status"],
    )


def _remark(session: Session, last: api.Page, shown: int, options: argparse.Namespace) -> None:
    """What people should know of the answer."""
    if not last.cursor or session.output in {IDS, JSON} or not session.is_terminal:
        return
    total = f"{'' if last.total_is_exact else 'at least '}{grouped(last.total)}"
    words = shlex.join(filters.typed(options)) or "--all-jobs"
    session.note(
        f"… {grouped(shown)} of {total} shown. --all for the rest, or act on them:\n"
        f"    corvo bulk retry {words}"
    )


def _add(parser: argparse.ArgumentParser) -> None:
    filters.add_filters(parser)
    parser.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help=f"at most N jobs (default: {ON_TERMINAL} on a terminal, all in a pipe)",
    )
    parser.add_argument("--all", action="store_true", help="all jobs, also on a terminal")
    parser.add_argument("--count", action="store_true", help="only the number of jobs")
    parser.add_argument(
        "--sort",
        metavar="FIELD",
        help="created_at (default), priority, started_at, completed_at or attempt",
    )
    parser.add_argument("--order", choices=("asc", "desc"), help="default: desc")


VERBS: Final = {
    "search": Verb(
        COMMANDS["search"].summary,
        search,
        _add,
        FORMS,
        (
            "corvo search --queue mail --state dead",
            "corvo search --error-contains SMTP --created-after 2h --count",
            "corvo search --tag tenant=acme -o csv > jobs.csv",
            "corvo search --state dead -o id | corvo bulk retry - --yes",
        ),
    )
}
