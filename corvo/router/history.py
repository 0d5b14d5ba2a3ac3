"""What a router has observed of its cluster: leader changes, nodes, places and replicas.

    history = History(observed, now_ns, node=1)
    history.observe(observed_now, now_ns)
    history.after(seq, limit)

Two observations are compared, and each difference is an event. So changes that follow each other
very fast can be one event. Nothing of this is stored: a router that starts knows of no event, and
the routers of other nodes know of those before. Several routers observe one change, at different
times; the span of an event says which observations are of the same change
(`corvo.router.cluster.merged_events`).
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.protocol.cluster import ClusterMap, ClusterNode
from corvo.protocol.routers import ClusterEvent

EVENTS_MAX: Final = 5_000
"""Events that are kept. A cluster that is well has a few in a week."""
KEPT_NS: Final = 86_400 * 1_000_000_000
"""How long an event is kept."""

LEADER_ELECTED: Final = "leader_elected"
LEADER_LOST: Final = "leader_lost"
LEADER_REACHABLE: Final = "leader_reachable"
NODE_REACHABLE: Final = "node_reachable"
NODE_UNREACHABLE: Final = "node_unreachable"
NODE_JOINED: Final = "node_joined"
NODE_CHANGED: Final = "node_changed"
NODE_DRAINING: Final = "node_draining"
NODE_UNDRAINED: Final = "node_undrained"
NODE_REMOVED: Final = "node_removed"
SHARD_PLACED: Final = "shard_placed"
REPLICAS_SET: Final = "replicas_set"
OP_VERSION_RAISED: Final = "op_version_raised"
REPLICA_ADDED: Final = "replica_added"
REPLICA_PROMOTED: Final = "replica_promoted"
REPLICA_REMOVED: Final = "replica_removed"

_RESIDUES: Final = 1_000
"""Numbers of events are times in microseconds whose last three digits are those of the node. So two
routers number no two events alike, unless the numbers of their nodes end alike."""


class Leadership(msgspec.Struct, frozen=True):
    """Which node leads a shard."""

    node: int | None
    term: int  # without a leader, that of the last one


class Members(msgspec.Struct, frozen=True):
    """The group of a shard."""

    voters: frozenset[int]
    all: frozenset[int]
    index: int = 0  # of the last entry of the replica that has said so


class Observed(msgspec.Struct, frozen=True):
    """The cluster at one moment, as a router sees it."""

    map: ClusterMap
    leaders: Mapping[int, Leadership] = {}
    reachable: Mapping[int, bool] = {}
    """Of the nodes that were ever reached."""
    members: Mapping[int, Members] = {}
    """Of the shards whose replica has said so."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is different."""

    type: str
    text: str
    shard: int | None = None
    node: int | None = None
    term: int | None = None
    span: tuple[int, int] | None = None
    """See `ClusterEvent`."""


class History:
    """The latest events."""

    def __init__(self, observed: Observed, now_ns: int, *, node: int) -> None:
        """`node` is that of the router that observes."""
        self.began_ns: Final = now_ns
        self._residue: Final = node % _RESIDUES
        self._events: deque[ClusterEvent] = deque(maxlen=EVENTS_MAX)
        self._last = observed
        self._seq = 0

    @property
    def reached(self) -> frozenset[int]:
        """The nodes that were reached before."""
        return frozenset(self._last.reachable)

    @property
    def members(self) -> Mapping[int, Members]:
        """The groups as they were observed last."""
        return self._last.members

    def observe(self, observed: Observed, now_ns: int) -> None:
        """Compare the cluster with what it was."""
        observed = replace(observed, leaders=dict(self._leaders(observed)))
        for change in changes(self._last, observed):
            # Numbers are times, so that they rise from one life of the router to the next.
            now_number = now_ns // 1_000_000 * _RESIDUES + self._residue
            self._seq = max(self._seq + _RESIDUES, now_number)
            fields = msgspec.structs.asdict(change)
            self._events.append(ClusterEvent(seq=self._seq, at_ns=now_ns, **fields))
        self._last = observed
        while self._events and now_ns - self._events[0].at_ns > KEPT_NS:
            self._events.popleft()

    def _leaders(self, observed: Observed) -> Iterator[tuple[int, Leadership]]:
        """The leaders; without one, the term of the last leader is remembered."""
        for shard, leadership in observed.leaders.items():
            last = self._last.leaders.get(shard)
            is_lost = leadership.node is None and last is not None
            yield shard, Leadership(None, last.term) if last and is_lost else leadership

    def kept(self, now_ns: int) -> list[ClusterEvent]:
        """All events of a day, the oldest first."""
        return [each for each in self._events if now_ns - each.at_ns <= KEPT_NS]


def changes(before: Observed, after: Observed) -> Iterator[Change]:
    """The differences of two observations."""
    if before.map != after.map:
        span = _span(before.map.version, after.map.version)
        for change in _map_changes(before.map, after.map):
            yield replace(change, span=span)
    for node, is_up in sorted(after.reachable.items()):
        # The first link to a node is no news: the router has just started, or the node.
        if before.reachable.get(node, is_up) != is_up and after.map.node(node) is not None:
            yield Change(
                type=NODE_REACHABLE if is_up else NODE_UNREACHABLE,
                text=f"{_named(node, after.map)} {'can' if is_up else 'cannot'} be reached",
                node=node,
            )
    for shard, leadership in sorted(after.leaders.items()):
        if before.leaders.get(shard) != leadership:
            yield from _leader_changes(shard, leadership, before, after.map)
    for shard, members in sorted(after.members.items()):
        if shard in before.members:
            yield from _member_changes(shard, before.members[shard], members, after.map)


def _span(before: int, after: int) -> tuple[int, int]:
    """The positions between two observations. A position may not have risen: it is there still."""
    return before, max(after, before + 1)


def _named(number: int, known: ClusterMap) -> str:
    node = known.node(number)
    return f"node {number} ({node.name})" if node is not None else f"node {number}"


def _leader_changes(
    shard: int, leadership: Leadership, before: Observed, known: ClusterMap
) -> Iterator[Change]:
    last = before.leaders.get(shard)
    if leadership.node is not None:
        name, term = _named(leadership.node, known), leadership.term
        if last is not None and (last.node, last.term) == (None, term):
            yield Change(
                type=LEADER_REACHABLE,
                text=f"{name}, which leads shard {shard} in term {term}, can be reached again",
                shard=shard,
                node=leadership.node,
                term=term,
            )
            return
        yield Change(
            type=LEADER_ELECTED,
            text=f"{name} leads shard {shard} in term {term}",
            shard=shard,
            node=leadership.node,
            term=term,
            span=_span(term - 1, term),
        )
    elif last is not None and last.node is not None:
        yield Change(
            type=LEADER_LOST,
            text=f"shard {shard} has no leader that can be reached; the last was"
            f" {_named(last.node, known)}",
            shard=shard,
            node=last.node,
            term=last.term,
        )


def _member_changes(
    shard: int, before: Members, after: Members, known: ClusterMap
) -> Iterator[Change]:
    span = _span(before.index, after.index)
    for type_, nodes, what in (
        (REPLICA_ADDED, after.all - before.all, "has a new replica of"),
        (REPLICA_PROMOTED, after.voters - before.voters, "votes in"),
        (REPLICA_REMOVED, before.all - after.all, "has no replica any more of"),
    ):
        for node in sorted(nodes):
            text = f"{_named(node, known)} {what} shard {shard}"
            yield Change(type=type_, text=text, shard=shard, node=node, span=span)


# The map.


def _map_changes(before: ClusterMap, after: ClusterMap) -> Iterator[Change]:
    for node in after.nodes:
        yield from _node_changes(before.node(node.number), node)
    for node in before.nodes:
        if after.node(node.number) is None:
            removed = after.removal_of(node.number)
            why = f": {removed.reason}" if removed is not None else ""
            text = f"node {node.number} ({node.name}) was removed{why}"
            yield Change(type=NODE_REMOVED, text=text, node=node.number)
    if before.replicas != after.replicas:
        text = f"each shard is to have {after.replicas} replicas (before: {before.replicas})"
        yield Change(type=REPLICAS_SET, text=text)
    if before.op_version != after.op_version:
        text = f"the cluster has op version {after.op_version} (before: {before.op_version})"
        yield Change(type=OP_VERSION_RAISED, text=text)
    for shard, (old, new) in enumerate(zip(before.places, after.places, strict=True)):
        if old != new:
            text = (
                f"shard {shard} is to have its replicas on {_listed(new)}, the first as the leader"
                f" (before: {_listed(old)})"
            )
            yield Change(type=SHARD_PLACED, text=text, shard=shard)


def _node_changes(before: ClusterNode | None, after: ClusterNode) -> Iterator[Change]:
    name = f"node {after.number} ({after.name})"
    if before is None or (after.instance and not before.instance):
        where = f" at {after.address}" if after.address else ""
        text = f"{name} has joined{where}"
        yield Change(type=NODE_JOINED, text=text, node=after.number)
    elif _announced(before) != _announced(after):
        differing = ", ".join(
            f"{field} {getattr(after, field) or 'none'!s}"
            for field in _ANNOUNCED
            if getattr(before, field) != getattr(after, field)
        )
        text = f"{name} has reported: {differing}"
        yield Change(type=NODE_CHANGED, text=text, node=after.number)
    was_draining = before is not None and before.is_draining
    if after.is_draining != was_draining:
        type_ = NODE_DRAINING if after.is_draining else NODE_UNDRAINED
        how = (
            "is draining: its replicas move to other nodes"
            if after.is_draining
            else ("can have replicas again")
        )
        yield Change(type=type_, text=f"{name} {how}", node=after.number)


_ANNOUNCED: Final = ("name", "address", "url", "zone", "version")


def _announced(node: ClusterNode) -> list[object]:
    return [getattr(node, field) for field in _ANNOUNCED]


def _listed(place: tuple[int, ...]) -> str:
    return f"node{'s' * (len(place) > 1)} {', '.join(map(str, place))}"
