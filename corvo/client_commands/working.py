"""`corvo fetch`, `ack`, `fail` and `heartbeat`: the requests of a worker, for scripts."""

import argparse
import socket
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from corvo.client import work
from corvo.client.calls import read
from corvo.client.errors import UNKNOWN, BadClientOption, Unreachable
from corvo.client_commands.enqueue import payload_of
from corvo.client_commands.failures import (
    CONFLICT,
    NO_ANSWER,
    NOT_COMPLETED,
    OK,
    PARTLY,
    TIME_OVER,
    CommandFailed,
)
from corvo.client_commands.ids import STDIN
from corvo.client_commands.lines import LINE_BYTES_MAX, batches
from corvo.client_commands.options import Verb, own, positive, seconds
from corvo.client_commands.records import DEEDS, FORMS, TEXTS, Column, Listing
from corvo.client_commands.session import Session
from corvo.client_commands.tables import plain
from corvo.command_table import COMMANDS

FETCHED: Final = Listing(
    "jobs",
    work.Fetched,
    lambda job: job.job_id,
    (
        Column[work.Fetched]("id", lambda job, _: job.job_id),
        Column[work.Fetched]("queue", lambda job, _: job.queue),
        Column[work.Fetched]("try", lambda job, _: f"{job.attempt}/{job.max_retries}"),
        Column[work.Fetched]("lease_token", lambda job, _: str(job.lease_token)),
        Column[work.Fetched]("lease_until", lambda job, _: job.lease_expires_at),
        Column[work.Fetched]("payload", lambda job, _: bytes(job.payload).decode()),
    ),
)


class Options(argparse.Namespace):
    """What the parsers of these commands have read, each its own part."""

    queues: list[str]
    ids: list[str]
    count: int
    wait: float | None
    lease: float
    worker_id: str | None
    lease_token: int | None
    result: str | None
    checkpoint: str | None
    progress: str | None
    error: str | None
    error_class: str | None
    retry_after: str | None
    no_retry: bool


class _Jobs(msgspec.Struct, frozen=True):
    jobs: list[msgspec.Raw]


def fetch(session: Session, options: argparse.Namespace) -> int:
    """`corvo fetch QUEUE…`."""
    got = own(Options, options)
    host = socket.gethostname()
    try:
        answer = work.fetch_many(
            session.client,
            got.queues,
            count=got.count,
            worker_id=got.worker_id or f"cli-{host}",
            hostname=host,
            wait_ms=round((got.wait or 0) * 1_000),
            lease_ms=round(got.lease * 1_000),
        )
    except Unreachable as error:
        if error.outcome == UNKNOWN:
            again = "fetch again: the server takes back jobs whose connection has ended"
            error.hints = (again, *error.hints[1:])
        raise
    jobs = read(answer, _Jobs).jobs
    with session.listing(FETCHED) as records:
        records.add(jobs)
    if not jobs:
        session.note("no job is available")
    return OK if jobs else TIME_OVER


# Finishing.


class _Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of stdin: a job as `fetch` prints it, with a result if there is one."""

    job_id: str = ""
    id: str = ""
    lease_token: int | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None


def finish(verb: str, session: Session, options: argparse.Namespace) -> int:
    """`corvo ack` and `corvo fail`."""
    got = own(Options, options)
    body = {**_common(got), **(_ack_body(got) if verb == "ack" else _fail_body(got))}
    if len(got.ids) == 1 and got.ids != [STDIN]:
        answer = work.finish(session.client, verb, got.ids[0], body)
        told = msgspec.json.decode(answer.body, type=dict[str, object])
        state = told.get("state", told.get("status"))
        session.show(answer, f"{got.ids[0]} is {state}\n", (got.ids[0],))
        return OK
    done, refused = list[str](), 0
    for items in _items(got, body):
        for one in work.finish_many(session.client, verb, items):
            if one.error:
                refused += 1
                session.say(f"  {plain(one.job_id)}: {plain(one.error)}")
            else:
                done.append(one.job_id)
    past = {"ack": "completed", "fail": "failed"}[verb]
    told_all = {past: len(done), "refused": refused}
    session.show(
        msgspec.json.encode(told_all), f"{past} {len(done)}, refused {refused}\n", tuple(done)
    )
    if not refused:
        return OK
    return PARTLY if done else CONFLICT


def _items(got: Options, body: dict[str, object]) -> Iterator[list[dict[str, object]]]:
    """Items of requests, from ids or from lines."""
    if STDIN not in got.ids:
        for start in range(0, len(got.ids), work.ITEMS_MAX):
            part = got.ids[start : start + work.ITEMS_MAX]
            yield [{"job_id": job_id, **body} for job_id in part]
        return
    if got.ids != [STDIN]:
        raise BadClientOption("pass ids, or - for jobs from stdin, and not both")
    for lines in batches(work.ITEMS_MAX, LINE_BYTES_MAX):
        items = []
        for line in lines:
            if line[:1] != b"{":
                items.append({"job_id": line.decode(errors="replace"), **body})
                continue
            try:
                item = msgspec.json.decode(line, type=_Item)
            except msgspec.DecodeError as error:
                raise CommandFailed(
                    "BAD_INPUT", f"line {line.number} of stdin is not a job: {error}"
                ) from error
            own_fields: dict[str, object] = {"job_id": item.job_id or item.id}
            if item.lease_token is not None:
                own_fields["lease_token"] = item.lease_token
            if bytes(item.result) != b"null":
                own_fields["result"] = item.result
            if item.error is not None:
                own_fields["error"] = item.error
            items.append({**body, **own_fields})
        yield items


def _common(got: Options) -> dict[str, object]:
    body: dict[str, object] = {}
    if got.lease_token is not None:
        body["lease_token"] = got.lease_token
    if got.worker_id is not None:
        body["worker_id"] = got.worker_id
    return body


def _ack_body(got: Options) -> dict[str, object]:
    fields = {"result": payload_of(got.result), "checkpoint": payload_of(got.checkpoint)}
    return {name: value for name, value in fields.items() if value is not None}


def _fail_body(got: Options) -> dict[str, object]:
    body: dict[str, object] = {"error": got.error or "failed by corvo fail"}
    if got.error_class is not None:
        body["error_class"] = got.error_class
    if got.retry_after is not None:
        body["retry_after"] = got.retry_after
    if got.no_retry:
        body["retryable"] = False
    return body


def heartbeat(session: Session, options: argparse.Namespace) -> int:
    """`corvo heartbeat ID…`."""
    got = own(Options, options)
    fields = {"progress": payload_of(got.progress), "checkpoint": payload_of(got.checkpoint)}
    body = {**_common(got), **{name: value for name, value in fields.items() if value is not None}}
    body.pop("worker_id", None)
    answer = work.heartbeat(session.client, dict.fromkeys(got.ids, body))
    jobs = read(answer, work.Heartbeat).jobs
    lines = [
        f"{job_id}: {one.status} {one.lease_expires_at or one.reason or one.code}".rstrip() + "\n"
        for job_id, one in jobs.items()
    ]
    session.show(answer, "".join(lines))
    statuses = {one.status for one in jobs.values()}
    if "cancel" in statuses:
        session.note("stop working on these jobs: they are cancelled, or another worker has them")
        return NOT_COMPLETED
    return NO_ANSWER if "error" in statuses else OK


# Options.


def _add_fetch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queues", nargs="+", metavar="QUEUE", help="queues, served in this order")
    parser.add_argument(
        "--count", type=positive, default=1, metavar="N", help="most jobs, up to 512 (default: 1)"
    )
    parser.add_argument(
        "--wait", type=seconds, metavar="TIME", help="wait at most this long for a job"
    )
    parser.add_argument(
        "--lease", type=seconds, default=60.0, metavar="TIME", help="lease (default: 60s)"
    )
    _add_worker(parser)


def _add_worker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--worker-id", metavar="NAME", help="name of the worker")


def _add_lease(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lease-token", type=int, metavar="N", help="lease token, as fetch has printed it"
    )
    _add_worker(parser)


def _add_ack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids", nargs="+", metavar="ID", help="ids of jobs; - reads jobs as fetch prints them"
    )
    _add_lease(parser)
    parser.add_argument("--result", metavar="JSON|@FILE", help="result of the job")
    parser.add_argument("--checkpoint", metavar="JSON|@FILE", help="last checkpoint of the job")


def _add_fail(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids", nargs="+", metavar="ID", help="ids of jobs; - reads jobs as fetch prints them"
    )
    _add_lease(parser)
    parser.add_argument("--error", metavar="TEXT", help="why the attempt has failed")
    parser.add_argument("--error-class", metavar="NAME", help="class of the error, for searches")
    parser.add_argument("--retry-after", metavar="TIME", help="delay of the next attempt")
    parser.add_argument("--no-retry", action="store_true", help="the job becomes dead")


def _add_heartbeat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help="ids of jobs")
    _add_lease(parser)
    parser.add_argument("--progress", metavar="JSON|@FILE", help="progress, to be shown")
    parser.add_argument("--checkpoint", metavar="JSON|@FILE", help="where to continue")


def _finishing(verb: str) -> Callable[[Session, argparse.Namespace], int]:
    return lambda session, options: finish(verb, session, options)


VERBS: Final = {
    "fetch": Verb(
        COMMANDS["fetch"].summary,
        fetch,
        _add_fetch,
        FORMS,
        ("corvo fetch mail --wait 30s", "corvo fetch mail --count 100 | corvo ack -"),
    ),
    "ack": Verb(
        COMMANDS["ack"].summary,
        _finishing("ack"),
        _add_ack,
        DEEDS,
        ("""corvo ack mail~letter-1 --lease-token 7 --result '{"sent": true}'""",),
    ),
    "fail": Verb(
        COMMANDS["fail"].summary,
        _finishing("fail"),
        _add_fail,
        DEEDS,
        ('corvo fail mail~letter-1 --lease-token 7 --error "no such mailbox"',),
    ),
    "heartbeat": Verb(
        COMMANDS["heartbeat"].summary,
        heartbeat,
        _add_heartbeat,
        TEXTS,
        ("corvo heartbeat mail~letter-1 --lease-token 7 --progress '{\"current\": 3}'",),
    ),
}
