"""Server-sent events as bytes, and the event ids by which a client resumes.

    id: s0=1042-8f3a22c1,s3=77-0badcafe.2
    event: completed
    data: {"seq":78, ...}

An id says of each shard up to which place in its log everything was given, what the state's digest
is there, and behind the dot how many events behind that place were given, too. The place alone
would not do: a log that was restored from an older copy has the same places, and other entries.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from corvo.router.http.messages import Problem, bad_field

CONTENT_TYPE: Final = "text/event-stream"
HEADERS: Final = (("cache-control", "no-store"), ("x-accel-buffering", "no"))
"""Nobody between us and the client is to keep anything, or to wait until there is more of it."""
KEEPALIVE: Final = b": still here\n\n"
KEEPALIVE_S: Final = 15.0
"""How long a stream may be silent: proxies take one that is for dead after a minute."""
RETRY: Final = b"retry: 2000\n"
"""How long a browser waits before it comes again, in milliseconds."""
ID_BYTES_MAX: Final = 8 << 10
"""Of an id that somebody sends: what some 200 shards need."""

_PLACE: Final = re.compile(
    r"s([0-9]{1,5})=([0-9]{1,18})-([0-9a-f]{8})(?:\.([0-9]{1,9}))?", re.ASCII
)


class Place(msgspec.Struct, frozen=True, gc=False):
    """How far a client has come in one shard's log."""

    index: int
    digest: int
    """Of the state behind the entry at `index`."""
    given: int = 0
    """Events behind `index` that it has, too."""


def render_place(shard: int, place: Place) -> str:
    """One shard's part of an id."""
    given = f".{place.given}" if place.given else ""
    return f"s{shard}={place.index}-{render_digest(place.digest)}{given}"


def render_digest(digest: int) -> str:
    """A digest of a state as users see it, here and in the state of the cluster."""
    return f"{digest:08x}"


def render(places: Mapping[int, Place]) -> str:
    """Places by shard, as an id."""
    return ",".join(render_place(shard, place) for shard, place in sorted(places.items()))


def parse(text: str, shards: int) -> dict[int, Place]:
    """Places out of an id; none out of an empty one. Raises `Problem`."""
    places: dict[int, Place] = {}
    if len(text) > ID_BYTES_MAX:
        raise _bad_id("the id is too long")
    for part in filter(None, text.strip().split(",")):
        found = _PLACE.fullmatch(part.strip())
        if found is None:
            raise _bad_id(f"{part.strip()[:40]!r} is invalid")
        shard, index, digest, given = found.groups()
        if int(shard) >= shards:
            raise _bad_id(f"unknown shard {shard}")
        if int(shard) in places:
            raise _bad_id(f"shard {shard} occurs twice")
        places[int(shard)] = Place(int(index), int(digest, 16), int(given or 0))
    return places


def _bad_id(why: str) -> Problem:
    return bad_field(
        "last_event_id",
        f"last_event_id: expected the id of an event, such as "
        f"s0=1042-8f3a22c1,s3=77-0badcafe.2: {why}",
    )


def frame(data: bytes, *, id_text: str = "", event: str = "") -> bytes:
    """One event. `data` is JSON, which may have the line ends of a client's payload."""
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"))
    head = f"id: {id_text}\n" if id_text else ""
    if event:
        head += f"event: {event}\n"
    return b"%bdata: %b\n\n" % (head.encode(), data)


def position(id_text: str) -> bytes:
    """An id without an event.

    A browser keeps it and tells the page nothing: an event without data is dispatched to nobody.
    """
    return b"id: %b\n\n" % id_text.encode()


def comment(text: str) -> bytes:
    """What every client passes over; it keeps the connection alive, and people read it."""
    assert "\n" not in text
    assert "\r" not in text
    return b": %b\n\n" % text.encode()
