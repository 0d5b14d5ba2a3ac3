"""`corvo batches` and `corvo dead`: lists of the shards, which need no mirror."""

import argparse
from typing import Final

import msgspec

from corvo.client import batches as api
from corvo.client.calls import read
from corvo.client_commands.failures import OK
from corvo.client_commands.job_view import JOBS
from corvo.client_commands.options import Verb, own, positive
from corvo.client_commands.records import FORMS, TABLE, Column, Listing
from corvo.client_commands.session import Session
from corvo.client_commands.tables import age, grouped, pairs
from corvo.command_table import COMMANDS

ON_TERMINAL: Final = 50
"""Records that are shown on a terminal, unless a limit is named. A pipe gets all."""

BATCHES: Final = Listing(
    "batches",
    api.Batch,
    lambda batch: batch.id,
    (
        Column[api.Batch]("id", lambda batch, _: batch.id),
        Column[api.Batch]("queue", lambda batch, _: batch.queue),
        Column[api.Batch]("status", lambda batch, _: batch.status),
        Column[api.Batch]("total", lambda batch, _: grouped(batch.total)),
        Column[api.Batch]("pending", lambda batch, _: grouped(batch.pending)),
        Column[api.Batch]("succeeded", lambda batch, _: grouped(batch.succeeded)),
        Column[api.Batch]("failed", lambda batch, _: grouped(batch.failed)),
        Column[api.Batch]("cancelled", lambda batch, _: grouped(batch.cancelled)),
        Column[api.Batch]("removed", lambda batch, _: grouped(batch.removed), is_wide=True),
        Column[api.Batch]("callback", lambda batch, _: batch.callback_queue),
        Column[api.Batch]("age", lambda batch, now: age(batch.created_at, now)),
    ),
)


class Options(argparse.Namespace):
    """What the parsers have read, each its own part."""

    ids: list[str]
    queue: str | None
    limit: int | None
    all: bool


def batches(session: Session, options: argparse.Namespace) -> int:
    """`corvo batches [ID…]`."""
    got = own(Options, options)
    if len(got.ids) == 1 and session.output in {TABLE, "json"}:
        answer = api.get_batch(session.client, got.ids[0])
        batch = read(answer, api.Batch)
        now_ns = session.now_ns()
        text = pairs((one.header, one.text(batch, now_ns)) for one in BATCHES.columns)
        then = f"its jobs:   corvo search --batch-id {batch.id}\n"
        session.show(answer, text + then, (batch.id,))
        return OK
    with session.listing(BATCHES) as records:
        if got.ids:
            for batch_id in got.ids:
                records.add([msgspec.Raw(api.get_batch(session.client, batch_id).body)])
        else:
            for page in api.pages(session.client, _limit(session, got)):
                records.add(page)
    return OK


def dead(session: Session, options: argparse.Namespace) -> int:
    """`corvo dead [QUEUE]`."""
    got = own(Options, options)
    limit = _limit(session, got)
    with session.listing(JOBS) as records:
        for page in api.dead_pages(session.client, got.queue or "", limit):
            records.add(page)
    if session.is_terminal and session.output == TABLE:
        words = f" --queue {got.queue}" if got.queue else ""
        if records.count == limit:
            session.note(f"… the newest {limit}. --all for the rest")
        if records.count:
            session.note(f"  retry them:   corvo bulk retry --state dead{words}")
    return OK


def _limit(session: Session, got: Options) -> int | None:
    if got.limit is None and not got.all and session.is_terminal:
        return ON_TERMINAL
    return got.limit


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help=f"the newest N (default: {ON_TERMINAL} on a terminal, all in a pipe)",
    )
    parser.add_argument("--all", action="store_true", help="all of them, also on a terminal")


def _add_batches(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these batches")
    _add_limit(parser)


def _add_dead(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="only jobs of this queue")
    _add_limit(parser)


VERBS: Final = {
    "batches": Verb(COMMANDS["batches"].summary, batches, _add_batches, FORMS, ("corvo batches",)),
    "dead": Verb(COMMANDS["dead"].summary, dead, _add_dead, FORMS, ("corvo dead mail -o wide",)),
}
