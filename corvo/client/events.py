"""Events over HTTP: server-sent events as messages, read by one connection at a time."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

EVENTS: Final = "/api/v1/events"


class Message(msgspec.Struct, frozen=True):
    """A message of a stream; one without data only moves the position."""

    data: bytes
    id: str = ""
    """Position behind the message, to continue from."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a job or queue."""

    shard: int
    seq: int
    number: int
    type: str
    at: str = ""
    at_ns: int = 0
    job_id: str = ""
    queue: str = ""
    state: str = ""
    attempt: int = 0
    by: str = ""
    why: str = ""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an answer that events after an id are no longer stored."""

    error: str = ""
    last_event_id: str = ""
    code: str = ""


def messages(lines: Iterable[bytes]) -> Iterator[Message]:
    """Messages out of lines. A message that the end of the connection cuts is left out."""
    data: list[bytes] = []
    last_id = ""
    for line in lines:
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id":
            last_id = value.decode()
        elif name == b"data":
            data.append(value)
        elif not name and not value and not line.startswith(b":"):
            if data or last_id:
                yield Message(b"\n".join(data), last_id)
            data = []
