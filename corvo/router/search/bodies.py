"""Bodies of searches, full text and the summary."""

from collections.abc import Mapping
from typing import Final

import msgspec

from corvo.protocol.jobs import FoundJob
from corvo.protocol.questions import Found, SearchBody, TextFound
from corvo.router.http.bodies import bad_body
from corvo.router.http.messages import bad_field
from corvo.router.metrics import Minute
from corvo.times import MINUTE_NS, format_time

QUERY_TEXT_MAX: Final = 400
"""Characters of one filter in a query: all of them together fit into the line of a request."""


# Searches.


class FoundBody(Found[FoundJob], frozen=True, kw_only=True, omit_defaults=True):
    """A page of jobs."""


class TextFoundBody(TextFound, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs that have the words, the best matches first."""


def read_query(query: Mapping[str, str]) -> SearchBody:
    """A search that is written as a query: `state=dead,held&tag=tenant:acme`. Raises `Problem`.

    What is empty is as if it were not there. For longer texts there is the body of
    `POST /api/v1/jobs/search`: all of a query is one line of the request.
    """
    for name in query:
        if len(query[name]) > QUERY_TEXT_MAX:
            raise bad_field(name, f"{name}: expected at most {QUERY_TEXT_MAX} characters")
    wanted: dict[str, object] = {name: query[name] for name in query if query[name]}
    if wanted.pop("tag", None):
        wanted["tags"] = _tag(query["tag"])
    try:
        return msgspec.convert(wanted, SearchBody, strict=False)
    except msgspec.ValidationError as error:
        raise bad_body(error, SearchBody) from None


def _tag(text: str) -> dict[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise bad_field("tag", "tag: expected name:value, such as tenant:acme")
    return {name: value}


# What goes on in each minute.


class MinuteView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went on in one minute."""

    minute: str
    enqueued: int
    completed: int
    failed: int
    started: int | msgspec.UnsetType = msgspec.UNSET
    dead: int | msgspec.UnsetType = msgspec.UNSET
    cancelled: int | msgspec.UnsetType = msgspec.UNSET


class Minutes(msgspec.Struct, frozen=True):
    """A `corvo.protocol.questions.Throughput`, read."""

    minutes: list[MinuteView]


read_minutes: Final = msgspec.json.Decoder(Minutes).decode


def minute_view(minute: Minute) -> MinuteView:
    """A minute, as far as a router knows it."""
    return MinuteView(
        minute=format_time(minute.number * MINUTE_NS),
        enqueued=minute.enqueued,
        completed=minute.completed,
        failed=minute.failed,
    )
