"""The summary of dashboards: its shape, and one copy for all callers with the same queues."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

import msgspec
import trio

from corvo.protocol.jobs import Time
from corvo.protocol.queries import QueueView
from corvo.protocol.questions import AsOf, IsBehind, QueueSummary
from corvo.router.caller import Caller
from corvo.scopes import Scope
from corvo.times import format_time_or_none

SUMMARY_S: Final = 1.0
SCOPES_MAX: Final = 64
"""Summaries that are kept: one of each scope."""


class SummaryQueue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One queue at a glance."""

    name: str
    paused: bool
    counts: dict[str, int]
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
    leader: int | None = None
    mirror: str


class SummaryBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything at a glance."""

    at: Time
    queues: list[SummaryQueue]
    totals: dict[str, int]
    workers: SummaryWorkers
    shards: list[SummaryShard]
    source: str
    as_of: AsOf = {}
    is_behind: IsBehind = msgspec.UNSET


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
            oldest_pending_at=format_time_or_none(view.oldest_pending_ns) or msgspec.UNSET,
        )
        for view in views
        if view.exists
    ]


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


SumUp: TypeAlias = Callable[[Caller], Awaitable[SummaryBody]]


class Summaries:
    """Summaries of the last second, by what may be seen."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Scope], tuple[float, SummaryBody]] = {}
        self._asking: Final = trio.Lock()

    async def get(self, caller: Caller, sum_up: SumUp) -> SummaryBody:
        """One that is no older than a second. Raises `Problem`."""
        async with self._asking:
            seen = caller.namespace, caller.scope
            made_at, kept = self._kept.get(seen, (-SUMMARY_S, None))
            if kept is not None and trio.current_time() - made_at < SUMMARY_S:
                return kept
            asked_at = trio.current_time()
            told = await sum_up(caller.as_of({}))
            if len(self._kept) >= SCOPES_MAX:
                self._kept.clear()
            self._kept[seen] = asked_at, told
            return told
