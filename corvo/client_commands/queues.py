"""Commands on queues: the list, and the actions, which are rows of one table."""

import argparse
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import msgspec

from corvo.client import queues as api
from corvo.client.calls import Client
from corvo.client.connections import Answer
from corvo.client.errors import RequestFailed
from corvo.client_commands.failures import OK, CommandFailed
from corvo.client_commands.options import Verb, add_yes, own, seconds
from corvo.client_commands.records import DEEDS, FORMS, Column, Listing
from corvo.client_commands.session import Session
from corvo.client_commands.tables import age, counted, grouped
from corvo.command_table import COMMANDS
from corvo.nearest import nearest


class Options(argparse.Namespace):
    """What the parsers of these commands have read, each its own part."""

    queues: list[str]
    reserved: bool
    wait: float | None = None
    confirm: str | None = None


def state_of(queue: api.Queue) -> str:
    """The state of a queue in a word."""
    if queue.draining:
        return "draining"
    return "paused" if queue.paused else "running"


def _rate(queue: api.Queue, name: str) -> str:
    if queue.rates is None:
        return ""
    count: int = getattr(queue.rates, name)
    return f"{count / 60:.1f}"


QUEUES: Final = Listing(
    "queues",
    api.Queue,
    lambda queue: queue.name,
    (
        Column[api.Queue]("queue", lambda queue, _: queue.name),
        Column[api.Queue]("state", lambda queue, _: state_of(queue)),
        Column[api.Queue]("pending", lambda queue, _: grouped(queue.pending)),
        Column[api.Queue]("active", lambda queue, _: _active(queue)),
        Column[api.Queue]("scheduled", lambda queue, _: grouped(queue.scheduled)),
        Column[api.Queue]("retrying", lambda queue, _: grouped(queue.retrying)),
        Column[api.Queue]("held", lambda queue, _: grouped(queue.held)),
        Column[api.Queue]("dead", lambda queue, _: grouped(queue.dead)),
        Column[api.Queue]("completed", lambda queue, _: grouped(queue.completed), is_wide=True),
        Column[api.Queue]("cancelled", lambda queue, _: grouped(queue.cancelled), is_wide=True),
        Column[api.Queue]("in/s", lambda queue, _: _rate(queue, "enqueued_1m")),
        Column[api.Queue]("done/s", lambda queue, _: _rate(queue, "completed_1m")),
        Column[api.Queue]("failed/s", lambda queue, _: _rate(queue, "failed_1m"), is_wide=True),
        Column[api.Queue]("oldest", lambda queue, now: age(queue.oldest_pending_at, now)),
    ),
)


def _active(queue: api.Queue) -> str:
    most = f"/{queue.max_concurrency}" if queue.max_concurrency else ""
    return f"{grouped(queue.active)}{most}"


def queues(session: Session, options: argparse.Namespace) -> int:
    """`corvo queues [NAME…]`."""
    got = own(Options, options)
    found = False
    with session.listing(QUEUES) as records:
        for page in api.pages(session.client, is_reserved=got.reserved):
            kept = [raw for raw in page if _matches(raw, got.queues)]
            found = found or bool(kept)
            records.add(kept)
    if not found and got.queues and not any(set("*?[") & set(name) for name in got.queues):
        raise _unknown(session.client, got.queues[0])
    if not found and session.is_terminal:
        session.note("no queues. A queue is created by its first job:   corvo enqueue mail '{}'")
    return OK


def _matches(raw: msgspec.Raw, wanted: list[str]) -> bool:
    name = msgspec.json.decode(raw, type=api.Queue).name
    return not wanted or any(fnmatchcase(name, pattern) for pattern in wanted)


# Actions.


class Deed(NamedTuple):
    """An action on a queue."""

    run: Callable[[Client, str], Answer]
    now: str
    """What is true afterwards."""
    then: str = ""
    """The next command."""
    is_final: Callable[[api.Queue], str] | None = None
    """What is lost, if the action cannot be undone."""


def _path(action: str) -> Callable[[Client, str], Answer]:
    return lambda client, name: api.act(client, name, action)


def _lost_by_clear(queue: api.Queue) -> str:
    count = queue.pending + queue.scheduled + queue.retrying
    return f"{counted(count, 'pending, scheduled or retrying job')} of {queue.name} will be deleted"


def _lost_by_destroy(queue: api.Queue) -> str:
    count = sum(
        (
            queue.pending,
            queue.active,
            queue.held,
            queue.completed,
            queue.dead,
            queue.scheduled,
            queue.retrying,
            queue.cancelled,
        )
    )
    return f"the queue {queue.name} and its {counted(count, 'job')} will be deleted"


DEEDS_BY_NAME: Final = {
    "pause": Deed(_path("pause"), "is paused: no job is fetched", "corvo resume {}"),
    "resume": Deed(_path("resume"), "is running"),
    "drain": Deed(
        _path("drain"), "is paused, and its active jobs are waited for", "corvo queues {}"
    ),
    "clear": Deed(_path("clear"), "has no waiting jobs", is_final=_lost_by_clear),
    "destroy": Deed(api.delete, "is deleted", is_final=_lost_by_destroy),
}


def act(action: str, session: Session, options: argparse.Namespace) -> int:
    """An action on queues, one after the other."""
    got, deed = own(Options, options), DEEDS_BY_NAME[action]
    known = {}
    for name in got.queues:
        with _hinted(session.client, name):
            known[name] = api.read_queue(session.client, name)
    if deed.is_final is not None and got.confirm not in {"", *got.queues}:
        if got.confirm is not None:
            raise CommandFailed(
                "NOT_CONFIRMED", f"--confirm {got.confirm!r} is not the name of the queue"
            )
        lost = deed.is_final
        names = shlex.join(got.queues)
        session.confirm(
            lambda: "; ".join(lost(queue) for queue in known.values()),
            f"{action.capitalize()} {names}?",
            f"corvo {action} {names}",
        )
    for name in got.queues:
        answer = deed.run(session.client, name)
        if got.wait is not None:
            _wait_drained(session, name, got.wait)
        is_drained = got.wait is not None
        now = "is drained: it has no active jobs" if is_drained else deed.now
        session.show(answer, f"{name} {now}\n", (name,))
        if deed.then and session.is_terminal and not session.is_json:
            session.note(f"  next:   {deed.then.format(shlex.quote(name))}")
    return OK


def _wait_drained(session: Session, name: str, wait_s: float) -> None:
    active = 0

    def is_done() -> bool:
        nonlocal active
        active = api.read_queue(session.client, name).active
        return not active

    session.wait(is_done, wait_s, lambda: f"{name} has {counted(active, 'active job')}")


@contextmanager
def _hinted(client: Client, name: str) -> Iterator[None]:
    try:
        yield
    except RequestFailed as error:
        if error.status == 404:
            raise _unknown(client, name) from error
        raise


def _unknown(client: Client, name: str) -> CommandFailed:
    known = []
    for page in api.pages(client):
        known += [msgspec.json.decode(raw, type=api.Queue).name for raw in page]
    near = nearest(name, tuple(known))
    return CommandFailed(
        "NOT_FOUND",
        f"queue {name!r} does not exist",
        hints=[*([f"did you mean:   {near}"] if near else []), "list them:   corvo queues"],
    )


# Options.


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "queues", nargs="*", metavar="QUEUE", help="only these queues; * stands for any letters"
    )
    parser.add_argument("--reserved", action="store_true", help="also queues of the server itself")


def _verb(name: str, deed: Deed) -> Verb:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("queues", nargs="+", metavar="QUEUE", help="names of queues")
        if deed.is_final is not None:
            add_yes(parser)
            parser.add_argument(
                "--confirm",
                nargs="?",
                const="",
                metavar="QUEUE",
                help="do it without a question; with a name, only to this queue",
            )
        if name == "drain":
            parser.add_argument(
                "--wait", type=seconds, metavar="TIME", help="wait until no job is active"
            )

    def run(session: Session, options: argparse.Namespace) -> int:
        return act(name, session, options)

    flags = {"drain": " --wait 10m", "destroy": " --confirm mail"}.get(name, "")
    return Verb(COMMANDS[name].summary, run, add, DEEDS, (f"corvo {name} mail{flags}",))


VERBS: Final = {
    "queues": Verb(
        COMMANDS["queues"].summary,
        queues,
        _add_list,
        FORMS,
        ("corvo queues", "corvo queues 'mail*' -o jsonl --fields name,dead"),
    ),
    **{name: _verb(name, deed) for name, deed in DEEDS_BY_NAME.items()},
}
