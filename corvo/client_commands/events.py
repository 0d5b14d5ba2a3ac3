"""`corvo events`: events of jobs and queues, of the past and as they happen."""

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from corvo.client import events as api
from corvo.client.errors import ClientError, RequestFailed, Unreachable
from corvo.client_commands.failures import INTERRUPTED, OK, CommandFailed
from corvo.client_commands.filters import moment_of
from corvo.client_commands.options import Verb, own
from corvo.client_commands.records import FORMS, Column, Listing
from corvo.client_commands.session import Session
from corvo.command_table import COMMANDS
from corvo.times import MS, parse_time

_SILENT_S: Final = 30.0
"""The server sends something every 15 seconds; after this, the connection counts as lost."""
_PAST_IDLE_S: Final = 1.0
"""Without `--follow`, the events of the past are complete after this time without an event."""
_PAUSE_S: Final = 2.0

EVENTS: Final = Listing(
    "events",
    api.Event,
    lambda event: event.job_id or event.queue,
    (
        Column[api.Event]("at", lambda event, _: event.at),
        Column[api.Event]("type", lambda event, _: event.type),
        Column[api.Event]("queue", lambda event, _: event.queue),
        Column[api.Event]("job", lambda event, _: event.job_id),
        Column[api.Event]("state", lambda event, _: event.state),
        Column[api.Event]("attempt", lambda event, _: str(event.attempt or ""), is_wide=True),
        Column[api.Event]("by", lambda event, _: event.by),
        Column[api.Event]("why", lambda event, _: event.why),
    ),
)


class Options(argparse.Namespace):
    """What the parser has read."""

    queue: list[str]
    job: list[str]
    types: str | None
    since: str | None
    last_event_id: str | None
    follow: bool


def events(session: Session, options: argparse.Namespace) -> int:
    """`corvo events`."""
    got = own(Options, options)
    query: dict[str, str | int] = {}
    if got.queue:
        query["queues"] = ",".join(got.queue)
    if got.job:
        query["job_ids"] = ",".join(got.job)
    if got.types:
        query["types"] = got.types
    last_id = got.last_event_id or ""
    if not last_id and (got.since is not None or not got.follow):
        last_id = _number(got.since or "10m", session.now_ns())
    reader = _Reader(session, query, last_id)
    try:
        if got.follow:
            reader.follow()
        else:
            reader.past()
    except RequestFailed as error:
        if error.status == 410:
            then = ("start at the present:   corvo events -f", "the state of now:   corvo status")
            error.hints = (*error.hints, *then)
        raise
    except KeyboardInterrupt:
        session.say("")
        if reader.last_id:
            session.note(f"continue:   corvo events -f --from '{reader.last_id}'")
        return INTERRUPTED
    return OK


def _number(since: str, now_ns: int) -> str:
    """The id of all events since a moment: its milliseconds."""
    at_ns = parse_time(moment_of(since, now_ns))
    if at_ns is None:
        raise CommandFailed(
            "BAD_OPTION", f"--since {since!r} is invalid: expected 10m, or 2026-02-20T10:00:00Z"
        )
    return str(at_ns // MS)


class _Reader:
    """Events while they are read: each is written once, also after a lost connection."""

    def __init__(self, session: Session, query: dict[str, str | int], last_id: str) -> None:
        self._session = session
        self._query = query
        self.last_id = last_id
        self._seen: dict[int, tuple[int, int]] = {}
        """By shard, the last event: a number as an id can bring some again."""

    def past(self) -> None:
        """The events of the past, up to now."""
        ends_at_ns = self._session.now_ns()
        with self._session.listing(EVENTS) as records:
            for message in self._connect(_PAST_IDLE_S):
                event = self._take(message)
                if event is None:
                    continue
                if event.at_ns > ends_at_ns:
                    return
                records.add([msgspec.Raw(message.data)])

    def follow(self) -> None:
        """Events as they happen, until Ctrl-C; the connection is made again when it is lost."""
        away = False
        with self._session.listing(EVENTS) as records:
            while True:
                try:
                    for message in self._connect(_SILENT_S):
                        away = False
                        if self._take(message) is not None:
                            records.add([msgspec.Raw(message.data)])
                            sys.stdout.flush()
                except Unreachable as error:
                    if not away:
                        self._session.note(f"{error.message}; connecting again")
                    away = True
                except RequestFailed as error:
                    if error.status not in {429, 502, 503, 504}:
                        raise
                # A server that is being restarted gets time before the stream is asked for again.
                time.sleep(_PAUSE_S)

    def _connect(self, silent_s: float) -> Iterator[api.Message]:
        query = dict(self._query)
        if self.last_id:
            query["last_event_id"] = self.last_id
        return api.messages(self._session.client.stream(api.EVENTS, query, silent_s))

    def _take(self, message: api.Message) -> api.Event | None:
        """The event of a message, if it is new."""
        self.last_id = message.id or self.last_id
        if not message.data:
            return None
        event = _read(message.data)
        if event is None:
            return None
        place = (event.seq, event.number)
        if self._seen.get(event.shard, (-1, -1)) >= place:
            return None
        self._seen[event.shard] = place
        return event


def _read(data: bytes) -> api.Event | None:
    try:
        return msgspec.json.decode(data, type=api.Event)
    except msgspec.ValidationError as error:
        gone = msgspec.json.decode(data, type=api.Gone)
        if gone.code == "GONE":
            raise CommandFailed("GONE", gone.error) from error
        return None  # a kind of message that a later release sends
    except msgspec.DecodeError as error:
        raise ClientError("BAD_ANSWER", f"an event cannot be read: {error}") from error


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--follow", action="store_true", help="show events as they happen, until Ctrl-C"
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="events since this time: 10m, 2026-02-20T10:00:00Z (default: 10m; with -f: now)",
    )
    parser.add_argument("--from", dest="last_event_id", metavar="ID", help="events after this id")
    parser.add_argument(
        "--queue", action="append", default=[], metavar="QUEUE", help="events of this queue"
    )
    parser.add_argument(
        "--job", action="append", default=[], metavar="ID", help="events of this job"
    )
    parser.add_argument(
        "--types", metavar="TYPE[,...]", help="events of these types, such as dead,failed"
    )


VERBS: Final = {
    "events": Verb(
        COMMANDS["events"].summary,
        events,
        _add,
        FORMS,
        (
            "corvo events --since 1h --types dead",
            "corvo events -f --queue mail -o jsonl",
        ),
    )
}
