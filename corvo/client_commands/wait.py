"""`corvo wait` and `corvo explain`: when jobs end, and why a job does not start."""

import argparse
from itertools import chain
from typing import Final

import msgspec

from corvo.client import jobs as api
from corvo.client_commands.failures import OK, CommandFailed
from corvo.client_commands.ids import id_batches
from corvo.client_commands.job_view import JOBS
from corvo.client_commands.options import Verb, own, seconds
from corvo.client_commands.records import FORMS, TEXTS
from corvo.client_commands.session import Session
from corvo.client_commands.tables import plain
from corvo.client_commands.waiting import check_completed, wait_for
from corvo.command_table import COMMANDS


class Options(argparse.Namespace):
    """What the parsers of these commands have read, each its own part."""

    ids: list[str]
    job: str
    within: float | None


class _Reason(msgspec.Struct, frozen=True):
    job_id: str
    state: str
    text: str
    code: str = ""
    until: str = ""


def wait(session: Session, options: argparse.Namespace) -> int:
    """`corvo wait ID…`."""
    got = own(Options, options)
    ids = list(chain.from_iterable(id_batches(got.ids, api.GET_MANY_MAX)))
    if not ids:
        raise CommandFailed("NO_IDS", "no job ids on stdin")
    ended: list[api.Job] = []
    with session.listing(JOBS) as records:

        def take(raw: msgspec.Raw, job: api.Job) -> None:
            records.add([raw])
            ended.append(job)

        wait_for(session, ids, got.within, take)
    check_completed(ended)
    return OK


def explain(session: Session, options: argparse.Namespace) -> int:
    """`corvo explain ID`."""
    answer = api.explain(session.client, own(Options, options).job)
    why = msgspec.json.decode(answer.body, type=_Reason)
    until = f", until {why.until}" if why.until else ""
    session.show(answer, f"{plain(why.job_id)} is {why.state}: {plain(why.text)}{until}\n")
    return OK


def _add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help="ids of jobs; - reads them from stdin")
    parser.add_argument(
        "--within", type=seconds, metavar="TIME", help="wait at most this long (default: no limit)"
    )


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="ID", help="id of a job")


VERBS: Final = {
    "wait": Verb(
        COMMANDS["wait"].summary,
        wait,
        _add_wait,
        FORMS,
        (
            "corvo wait mail~letter-1 --within 5m && echo sent",
            "corvo enqueue mail - -o id < payloads | corvo wait -",
        ),
    ),
    "explain": Verb(
        COMMANDS["explain"].summary, explain, _add_explain, TEXTS, ("corvo explain mail~letter-1",)
    ),
}
