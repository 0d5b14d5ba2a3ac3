"""The cluster at one moment, by its map and what each replica says: what is well, and what is not.

A fault makes the cluster `degraded`, and a shard without a leader makes it `unavailable`. A note,
for instance that a node is draining, is shown as a reason too, and the cluster stays `healthy`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from corvo.clock_offsets import NO_CLOCKS, Clocks, apart
from corvo.protocol.cluster import ClusterMap, ClusterNode
from corvo.protocol.numbers import Numbers
from corvo.router.cluster.bodies import (
    DEGRADED,
    HEALTHY,
    UNAVAILABLE,
    ClusterView,
    NodeView,
    ReplicaView,
    ShardView,
)
from corvo.router.http.sse import render_digest
from corvo.router.shards.links import ReplicaLink

LAG_MAX: Final = 2_000
"""Entries that a replica may be behind. A busy leader proposes some hundred a second, and the
replicas are not asked at exactly the same moment."""


_NO_LEADER: Final = "it knows no leader"


class ReplicaSeen(msgspec.Struct, frozen=True):
    """A replica: the link to it, and its numbers, or why it does not say them."""

    link: ReplicaLink
    told: Numbers | str

    @property
    def numbers(self) -> Numbers | None:
        """Its numbers, if it answered."""
        return self.told if isinstance(self.told, Numbers) else None


class ShardSeen(msgspec.Struct, frozen=True):
    """The replicas of a shard to which there are links."""

    number: int
    replicas: tuple[ReplicaSeen, ...]
    linked_leader: int | None = None
    """The leader that requests go to."""
    term: int = 0
    error: str = ""
    """Why requests go nowhere."""

    def of(self, node: int) -> ReplicaSeen | None:
        """The replica on a node."""
        for replica in self.replicas:
            if replica.link.node == node:
                return replica
        return None

    @property
    def answers(self) -> dict[int, Numbers]:
        """The numbers of the replicas that answered, by their nodes."""
        return {
            each.link.node: numbers
            for each in self.replicas
            if (numbers := each.numbers) is not None
        }

    @property
    def led_by(self) -> Numbers | None:
        """The numbers of the leader; of two that say so, of the one in the higher term."""
        leading = [numbers for numbers in self.answers.values() if numbers.role == "leader"]
        return max(leading, key=lambda numbers: numbers.term, default=None)

    @property
    def leader(self) -> int | None:
        """The node of the leader."""
        led_by = self.led_by
        return led_by.replica if led_by is not None else self.linked_leader

    @property
    def best(self) -> Numbers | None:
        """The numbers of the leader, or else of the replica that knows of the latest entry."""
        latest = max(
            self.answers.values(), key=lambda numbers: (numbers.term, numbers.commit), default=None
        )
        return self.led_by or latest

    def seen_from(self, node: int) -> Numbers | str:
        """What the replica on a node says, or why nothing; without one there, what others say."""
        own = self.of(node)
        if own is not None:
            return own.told if own.link.is_up else own.link.error
        return self.best or self.error or "no replica has answered in time"


def group_of(numbers: Numbers) -> set[int]:
    """All members of a shard's group."""
    return {*numbers.voters, *numbers.outgoing, *numbers.learners}


class Finding(NamedTuple):
    """What is to be said of a thing, and whether it is a fault."""

    text: str
    is_fault: bool = True


Findings: TypeAlias = list[Finding]


def overview(
    known: ClusterMap, shards: Sequence[ShardSeen], *, own: int, clocks: Clocks = NO_CLOCKS
) -> ClusterView:
    """The whole; `own` is the node that says so."""
    faults = _few_nodes(known)
    nodes = []
    for node in known.nodes:
        shown, findings = node_view(node, known, shards, own=own, clocks=clocks)
        nodes.append(shown)
        faults += [f"{_named(node)}: {each.text}" for each in findings if each.is_fault]
    # A node that is unreachable is one reason, and not one for each of its replicas.
    away = {node.number for node in nodes if node.is_reachable is False}
    views = []
    for shard in shards:
        view, found = _shard(shard, known)
        views.append(view)
        faults += [text for number, text in found if number not in away]
    is_led = all(view.status != UNAVAILABLE for view in views)
    return ClusterView(
        status=(DEGRADED if faults else HEALTHY) if is_led else UNAVAILABLE,
        map_version=known.version,
        replicas=known.replicas,
        is_placed=known.is_placed,
        op_version=known.op_version,
        held_back_by=_holding_back(known),
        nodes=nodes,
        shards=views,
        reasons=faults,
    )


def _few_nodes(known: ClusterMap) -> list[str]:
    """A cluster of one node is one on purpose; of several, each is there to replace others."""
    count = len(known.carriers)
    if len(known.nodes) == 1 or count >= known.replicas:
        return []
    text = f"each shard is to have {known.replicas} replicas; nodes that can have one: {count}"
    return [f"{text}. Add a node"]


def _named(node: ClusterNode) -> str:
    return f"node {node.number} ({node.name})"


def _text(findings: Findings) -> str:
    return "; ".join(each.text for each in findings)


# Nodes.


def node_view(
    node: ClusterNode,
    known: ClusterMap,
    shards: Sequence[ShardSeen],
    *,
    own: int,
    clocks: Clocks = NO_CLOCKS,
) -> tuple[NodeView, Findings]:
    """A node, and what is to be said of it."""
    number = node.number
    member_of = [
        shard.number
        for shard in shards
        if _is_member(number, shard, known) or (node.is_draining and _may_join(node, shard, known))
    ]
    links = [seen.link for shard in shards if (seen := shard.of(number)) is not None]
    is_reachable = True if number == own else any(link.is_up for link in links) if links else None
    findings = []
    if is_reachable is False:
        findings.append(Finding(f"unreachable: {links[0].error}"))
    elif not node.address and len(known.nodes) > 1:
        findings.append(Finding("it has not reported an address to the cluster yet"))
    if number in clocks.wrong_ns:
        differs = apart(clocks.wrong_ns[number])
        findings.append(Finding(f"its wall clock is {differs} those of other nodes: set it"))
    if node.is_draining:
        findings.append(Finding(_drained(member_of), is_fault=False))
    findings += _older(node, known)
    findings += _other_time_zones(node, known, clocks.tz_versions)
    view = NodeView(
        number=number,
        name=node.name,
        address=node.address,
        url=node.url,
        zone=node.zone,
        version=node.version,
        op_version=node.op_version,
        tz_version=clocks.tz_versions.get(number, ""),
        state="draining" if node.is_draining else "active",
        is_self=number == own,
        is_reachable=msgspec.UNSET if is_reachable is None else is_reachable,
        clock_ahead_ms=_ms(clocks.ahead_ns.get(number)),
        leads=[shard.number for shard in shards if shard.leader == number],
        replicas=member_of,
        reason=_text(findings),
    )
    return view, findings


def _is_member(number: int, shard: ShardSeen, known: ClusterMap) -> bool:
    return number in (group_of(shard.best) if shard.best else known.places[shard.number])


def _may_join(node: ClusterNode, shard: ShardSeen, known: ClusterMap) -> bool:
    """Whether a node may have a replica of a shard soon, although the map or its leader has none.

    A drained node must stay without replicas. The leader of a shard may still follow an older map,
    and add the node as a learner: it is asked what it follows, and what it is changing. Without its
    answer nothing is known: the group may need the node for its majority.
    """
    leader = shard.led_by
    if leader is None or node.number in known.places[shard.number]:
        return True
    return leader.is_changing or 0 < leader.map_version < known.version


def _ms(ns: int | None) -> int | msgspec.UnsetType:
    return msgspec.UNSET if ns is None else round(ns / 1e6)


def _drained(member_of: list[int]) -> str:
    if not member_of:
        return "drained: it can be stopped and removed"
    return f"draining: {len(member_of)} of its replicas are not moved yet"


def _holding_back(known: ClusterMap) -> list[int]:
    """The nodes whose release keeps the others from using all of their ops."""
    greatest = max(node.op_version for node in known.nodes)
    if greatest <= known.op_version:
        return []
    return [node.number for node in known.nodes if node.op_version < greatest]


def _older(node: ClusterNode, known: ClusterMap) -> Findings:
    """A release that is older than that of others: usual while nodes are upgraded in turn."""
    if node.op_version and node.number in _holding_back(known):
        latest = max(known.nodes, key=lambda each: each.op_version)
        text = (
            f"it runs {_release(node)}, and others {_release(latest)}: upgrade it, so that the"
            f" cluster can use more than op version {known.op_version}"
        )
        return [Finding(text, is_fault=False)]
    versions = [each.version for each in known.nodes if each.version]
    newest = max(versions, key=_version_key, default="")
    if node.version and _version_key(node.version) < _version_key(newest):
        text = f"it runs version {node.version}, and others {newest}: upgrade it"
        return [Finding(text, is_fault=False)]
    return []


def _other_time_zones(
    node: ClusterNode, known: ClusterMap, versions: Mapping[int, str]
) -> Findings:
    """Time zone data that is older than that of others.

    Usual while nodes are upgraded in turn; a fault if a node of the same release has other data.
    """
    own = versions.get(node.number, "")
    newest = max(versions.values(), key=_version_key, default="")
    if not own or _version_key(own) >= _version_key(newest):
        return []
    text = (
        f"its time zone data is {own}, and others have {newest}: install the same tzdata on all"
        " nodes, because the leader of a shard computes the due times of its schedules"
    )
    newer = (known.node(number) for number, version in versions.items() if version == newest)
    return [Finding(text, any(each and each.version == node.version for each in newer))]


def _release(node: ClusterNode) -> str:
    return f"version {node.version} with op version {node.op_version}"


def _version_key(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]{1,9}", version)]


# Shards.


def _shard(shard: ShardSeen, known: ClusterMap) -> tuple[ShardView, list[tuple[int, str]]]:
    """A shard with its replicas; and its faults, each with the node of the replica, or 0."""
    place = known.places[shard.number]
    best, leader = shard.best, shard.leader
    linked = {seen.link.node for seen in shard.replicas}
    views = []
    faults: list[tuple[int, str]] = []
    reason = ""
    if leader is None:
        reason = f"no leader: {shard.error}" if shard.error else "no leader"
        faults.append((0, f"shard {shard.number}: {reason}"))
    for number in sorted({*place, *linked, *(group_of(best) if best is not None else ())}):
        view, findings = _replica(number, shard, place)
        views.append(view)
        node = known.node(number)
        name = _named(node) if node is not None else f"node {number}, which was removed"
        faults += [
            (number, f"shard {shard.number} on {name}: {each.text}")
            for each in findings
            if each.is_fault
        ]
    status = UNAVAILABLE if leader is None else DEGRADED if faults else HEALTHY
    term = max([shard.term, *(numbers.term for numbers in shard.answers.values())])
    shown = ShardView(
        shard=shard.number,
        status=status,
        leader=msgspec.UNSET if leader is None else leader,
        term=term,
        placed_on=list(place),
        replicas=views,
        reason=reason,
    )
    return shown, faults


def _replica(number: int, shard: ShardSeen, place: Sequence[int]) -> tuple[ReplicaView, Findings]:
    """A replica, and what is to be said of it."""
    seen, best = shard.of(number), shard.best
    voters = {*best.voters, *best.outgoing} if best is not None else set[int]()
    lag = _lag(number, shard)
    findings = [*_membership(number, shard, place, lag), *_state(seen, lag, number in place)]
    if shard.leader is None:  # said of the shard
        findings = [each for each in findings if each.text != _NO_LEADER]
    link = seen.link if seen is not None else ReplicaLink(number, is_up=False)
    contact_s = link.contact_s
    view = ReplicaView(
        node=number,
        is_reachable=link.is_up,
        is_voter=number in voters,
        lag=msgspec.UNSET if lag is None else lag,
        contact_s=msgspec.UNSET if contact_s is None else round(contact_s, 3),
        reason=_text(findings),
    )
    numbers = seen.numbers if seen is not None else None
    if numbers is None:
        return view, findings
    clock = numbers.clock
    received, size = numbers.snapshot_received or (msgspec.UNSET, msgspec.UNSET)
    told = msgspec.structs.replace(
        view,
        role=numbers.role,
        term=numbers.term,
        applied=numbers.applied,
        digest=render_digest(numbers.digest),
        first_index=numbers.first_index,
        last_index=numbers.last_index,
        checkpoint_index=numbers.counted.disk.checkpointed,
        snapshot_received_bytes=received,
        snapshot_size_bytes=size,
        clock_ahead_ms=msgspec.UNSET if clock is None else round(clock.ahead_ns / 1e6),
        is_repairing=numbers.is_repairing,
    )
    return told, findings


def _lag(number: int, shard: ShardSeen) -> int | None:
    """Committed entries that a replica has not applied, or its log lacks as its leader sees it."""
    led_by, seen = shard.led_by, shard.of(number)
    if led_by is None:
        return None
    if seen is not None and seen.numbers is not None:
        return max(0, led_by.commit - seen.numbers.applied)
    for peer in led_by.peers:
        if peer.replica == number:
            return max(0, led_by.commit - peer.match)
    return None


def _membership(number: int, shard: ShardSeen, place: Sequence[int], lag: int | None) -> Findings:
    """How the group of a shard differs from its place."""
    best = shard.best
    if best is None:
        return []
    if number not in group_of(best):
        if number in place:
            return [Finding("it is not in the group yet: the leader adds it")]
        return [Finding("it has left the group", is_fault=False)]
    if number not in place:
        return [Finding("it is moved away: it leaves the group after that", is_fault=False)]
    if number in best.learners:
        behind = "" if lag is None else f", {lag} entries behind"
        return [Finding(f"it is a learner{behind}: it votes when it has caught up")]
    own = shard.answers.get(number)
    if own is not None and (own.voters, own.outgoing) != (best.voters, best.outgoing):
        # If the leader fails now, the new one may need a majority of the voters of before.
        return [Finding("it has not applied the last change of the members")]
    return []


def _state(seen: ReplicaSeen | None, lag: int | None, is_placed: bool) -> Findings:
    """What is wrong with a replica itself; of one that leaves, no fault."""
    if seen is None:
        return [Finding("there is no link to it", is_placed)]
    if not seen.link.is_up:
        return [Finding(f"unreachable: {seen.link.error}", is_placed)]
    numbers = seen.numbers
    if numbers is None:
        return [Finding(str(seen.told), is_placed)]
    findings = []
    if numbers.snapshot_received is not None:
        received, size = numbers.snapshot_received
        percent = 100 * received // max(size, 1)
        findings.append(Finding(f"it copies a snapshot: {percent} % of {size} bytes", is_placed))
    if numbers.is_repairing:
        findings.append(Finding("it lost a part of its log and copies it: it does not vote"))
    if numbers.disk_is_full:
        findings.append(Finding("its disk is full", is_placed))
    if numbers.leader is None:
        findings.append(Finding(_NO_LEADER, is_placed))
    if lag is not None and lag > LAG_MAX and not numbers.is_repairing:
        findings.append(Finding(f"it is {lag} entries behind the leader", is_placed))
    return findings
