"""The summary of dashboards: its shape, and one copy for all callers with the same queues."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec
import trio
from msgspec.structs import replace

from corvo.protocol.cluster import ClusterMap
from corvo.protocol.jobs import Time
from corvo.protocol.queries import QueueView
from corvo.protocol.questions import AsOf, IsBehind, SummaryQueue
from corvo.protocol.questions import Summary as Told
from corvo.router.caller import Caller
from corvo.scopes import Scope
from corvo.times import format_time_or_none

SUMMARY_S: Final = 1.0
SCOPES_MAX: Final = 64
"""Summaries that are kept: one of each scope."""


class SummaryWorkers(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers are heard of. Those that went long ago are not counted."""

    alive: int
    not_fetching: int


class SummaryShard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One shard at a glance."""

    shard: int
    status: str
    leader: int | None = None
    term: int = 0
    mirror: str


class SummaryNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node of a cluster at a glance."""

    number: int
    name: str
    state: str
    is_reachable: bool | msgspec.UnsetType = msgspec.UNSET
    """Unset of a node without replicas, to which there is no link."""


class SummaryCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at a glance, from the node that answers."""

    node: int
    replicas: int
    can_lose: int
    """Nodes that may fail, whichever they are, before a shard has no majority."""
    nodes: list[SummaryNode]


class SummaryBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything at a glance."""

    at: Time
    minute: Time | msgspec.UnsetType = msgspec.UNSET
    """The start of the minute that has not ended yet; left out while the mirror is away."""
    queues: list[SummaryQueue]
    totals: dict[str, int]
    workers: SummaryWorkers
    shards: list[SummaryShard]
    cluster: SummaryCluster | msgspec.UnsetType = msgspec.UNSET
    """Unset of a server that runs alone."""
    source: str
    as_of: AsOf = {}
    is_behind: IsBehind = msgspec.UNSET


def queues_at_a_glance(views: Iterable[QueueView]) -> list[SummaryQueue]:
    """Queues as the shards tell them, without rates."""
    return [
        SummaryQueue(
            name=view.queue.name,
            paused=view.queue.paused,
            draining=view.queue.draining,
            max_concurrency=view.queue.max_concurrency,
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


def with_workers(
    queues: Iterable[SummaryQueue], workers: Mapping[str, int] | None
) -> list[SummaryQueue]:
    """Queues with the numbers of their workers; None: these are not known."""

    def count(queue: SummaryQueue) -> int | msgspec.UnsetType:
        return workers.get(queue.name, 0) if workers is not None else msgspec.UNSET

    # A copy of each of many queues once a second is a cost, and few of them differ.
    return [
        queue if queue.workers == number else replace(queue, workers=number)
        for queue, number in ((queue, count(queue)) for queue in queues)
    ]


def summary_cluster(
    known: ClusterMap,
    *,
    own: int,
    reachable: Mapping[int, bool],
    voters: Mapping[int, Collection[int]],
) -> SummaryCluster:
    """A cluster by its map, the links of a node, and the voters of the shards that are known."""
    spare = []
    for shard, place in enumerate(known.places):
        voting = voters.get(shard) or place
        up = sum(reachable.get(node, False) for node in voting)
        spare.append(up - (len(voting) // 2 + 1))
    return SummaryCluster(
        node=own,
        replicas=known.replicas,
        can_lose=max(0, min(spare)),
        nodes=[
            SummaryNode(
                number=node.number,
                name=node.name,
                state="draining" if node.is_draining else "active",
                is_reachable=reachable.get(node.number, msgspec.UNSET),
            )
            for node in known.nodes
        ],
    )


def mirror_status(as_of: AsOf, shard: int) -> str:
    """How the mirror does with a shard, by an answer of it."""
    place = as_of.get(f"s{shard}")
    if place is None:
        return "away"
    return "following" if place.is_whole else "catching up"


NOTHING_TOLD: Final = Told(queues=[])


def continued(last: Told, told: Told) -> Told:
    """A whole summary of the mirror, from the last one and what changed since."""
    if told.changed is None:
        return told
    if not told.changed:
        return replace(told, queues=last.queues)
    changed = {queue.name: queue for queue in told.queues}
    gone = set(told.changed)
    kept = []
    for queue in last.queues:
        if queue.name not in gone:
            kept.append(queue)
        elif (now := changed.pop(queue.name, None)) is not None:
            kept.append(now)
    if changed:
        kept = sorted([*kept, *changed.values()], key=lambda queue: queue.name)
    return replace(told, queues=kept)


SumUp: TypeAlias = Callable[[Caller], Awaitable[SummaryBody]]


class Summaries:
    """Summaries of the last second, by what may be seen."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Scope], tuple[float, SummaryBody]] = {}
        self._told: dict[tuple[str, Scope], Told] = {}
        self._asking: Final = trio.Lock()

    def last(self, caller: Caller) -> Told:
        """What the mirror has told last, of what a caller may see; empty if nothing is kept."""
        return self._told.get((caller.namespace, caller.scope), NOTHING_TOLD)

    def keep(self, caller: Caller, told: Told) -> None:
        """Keep what the mirror has told: queues that do not change are not sent again."""
        if len(self._told) >= SCOPES_MAX:
            self._told.clear()
        self._told[caller.namespace, caller.scope] = told

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
