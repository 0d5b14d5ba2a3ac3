"""What the mirror answers, as HTTP shows it: pages of jobs, full text, a dashboard's summary."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from corvo.protocol.jobs import FoundJob, Time
from corvo.protocol.queries import QueueView
from corvo.protocol.questions import AsOf, Found, QueueSummary, SearchBody, TextFound
from corvo.router.queues import exists
from corvo.router.words import bad_body, bad_field
from corvo.times import MINUTE_NS, format_time

QUERY_TEXT_MAX: Final = 400
"""Characters of one filter in a query: all of them together fit into the line of a request."""


# Searches.


class FoundBody(Found[FoundJob], frozen=True, kw_only=True, omit_defaults=True):
    """A page of jobs."""


class TextFoundBody(TextFound, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs that have the words, the best matches first."""


_GIVEN: Final = frozenset(SearchBody.__struct_fields__) - {"tags", "state"}


def read_query(query: Mapping[str, str]) -> SearchBody:
    """A search that is written as a query: `state=dead,held&tag=tenant:acme`. Raises `Problem`.

    What is empty is as if it were not there, and so are names that no filter has. For longer texts
    there is the body of `POST /api/v1/jobs/search`: all of a query is one line of the request.
    """
    for name in query:
        if len(query[name]) > QUERY_TEXT_MAX:
            raise bad_field(name, f"{name}: expected at most {QUERY_TEXT_MAX} characters")
    given: dict[str, object] = {name: query[name] for name in query if query[name]}
    wanted = {name: given[name] for name in given if name in _GIVEN}
    if query.get("state"):
        wanted["state"] = query["state"].split(",")
    if query.get("tag"):
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
    """When it began."""
    enqueued: int
    completed: int
    failed: int
    """Attempts that failed."""
    started: int | msgspec.UnsetType = msgspec.UNSET
    dead: int | msgspec.UnsetType = msgspec.UNSET
    cancelled: int | msgspec.UnsetType = msgspec.UNSET


class Minutes(msgspec.Struct, frozen=True):
    """A `corvo.protocol.questions.Throughput`, read."""

    minutes: list[MinuteView]


read_minutes: Final = msgspec.json.Decoder(Minutes).decode


def minute_view(number: int, *, enqueued: int, completed: int, failed: int) -> MinuteView:
    """A minute since 1970, as far as a router knows it."""
    at = format_time(number * MINUTE_NS)
    return MinuteView(minute=at, enqueued=enqueued, completed=completed, failed=failed)


# The summary.


class SummaryQueue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One queue at a glance."""

    name: str
    paused: bool
    counts: dict[str, int]
    """Jobs by state."""
    enqueued_1m: int | msgspec.UnsetType = msgspec.UNSET
    """Within the last whole minute; rates are left out while the mirror is away."""
    completed_1m: int | msgspec.UnsetType = msgspec.UNSET
    failed_1m: int | msgspec.UnsetType = msgspec.UNSET
    oldest_pending_at: Time | msgspec.UnsetType = msgspec.UNSET


class SummaryWorkers(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers are heard of. Those that went long ago are not counted."""

    alive: int
    not_fetching: int


class SummaryShard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One shard at a glance."""

    shard: int
    status: str
    """`up`, or `away` while it has no leader that can be reached."""
    leader: int | None = None
    mirror: str
    """`following`; `catching up` while a full pass is under way; `away`."""


class SummaryBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything at a glance."""

    at: Time
    """The server's clock."""
    queues: list[SummaryQueue]
    totals: dict[str, int]
    """Jobs by state, in all of these queues."""
    workers: SummaryWorkers
    shards: list[SummaryShard]
    source: str
    """`mirror`, and `shards` while that is away."""
    as_of: AsOf = {}


def summary_queues(told: Iterable[QueueSummary]) -> list[SummaryQueue]:
    """Queues as the mirror tells them."""
    return [
        SummaryQueue(
            name=queue.name,
            paused=queue.is_paused,
            counts=queue.counts,
            enqueued_1m=queue.enqueued_1m,
            completed_1m=queue.completed_1m,
            failed_1m=queue.failed_1m,
            oldest_pending_at=queue.oldest_pending_at or msgspec.UNSET,
        )
        for queue in told
    ]


def queues_at_a_glance(views: Iterable[QueueView]) -> list[SummaryQueue]:
    """Queues as the shards tell them, without rates."""
    return [
        SummaryQueue(
            name=view.queue.name,
            paused=view.queue.paused,
            counts=view.counts,
            oldest_pending_at=_or_unset(view.oldest_pending_ns),
        )
        for view in views
        if exists(view)
    ]


def _or_unset(at_ns: int) -> str | msgspec.UnsetType:
    return format_time(at_ns) if at_ns else msgspec.UNSET


def totals(queues: Iterable[SummaryQueue]) -> dict[str, int]:
    """Jobs by state, in all of some queues."""
    sums: dict[str, int] = {}
    for queue in queues:
        for state, count in queue.counts.items():
            sums[state] = sums.get(state, 0) + count
    return sums


def mirror_status(as_of: AsOf, shard: int) -> str:
    """How the mirror does with a shard, by an answer of it."""
    place = as_of.get(f"s{shard}")
    if place is None:
        return "away"
    return "following" if place.is_whole else "catching up"
