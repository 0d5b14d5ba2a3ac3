"""Places of replicas: which nodes are to have a replica of each shard, and which one should lead.

Three rules, each before the next: the replicas of a shard are spread evenly over zones; all nodes
have equally many replicas, as far as zones permit; and replicas stay where they are.

Members that may stay are kept first, and missing ones are put on the nodes with the fewest
replicas. Then replicas are passed on from nodes with more to nodes with at least two fewer, until
none can be. A pass may lead over several nodes, because zones can forbid the direct one: node A
gives a replica of one shard to B, and B gives one of another shard to C. The sets of nodes that are
spread evenly over zones are the bases of a matroid, so when no pass is left, no other places are
more even (separable convex functions on M-convex sets: Murota, Discrete Convex Analysis, 2003).
Preferred leaders are passed on in the same way among the members of their shards.

It is deterministic, so that the same nodes have the same places after a change of leader.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

Places: TypeAlias = tuple[tuple[int, ...], ...]

Hop: TypeAlias = tuple[int, int, int]
"""A node gives something of a shard to another node: shard, node, node."""

Hops: TypeAlias = Callable[[int], Iterable[Hop]]
"""What a node can give to others now, the best first."""

LOOKS_MAX: Final = 50_000
"""Hops that are looked at to save copies, for some 50 ms. In a large cluster more can be copied
than is needed, when many nodes come at once."""


class Candidate(msgspec.Struct, frozen=True):
    """A node that may have replicas."""

    number: int
    zone: str = ""


def place(
    nodes: Sequence[Candidate], places: Sequence[Sequence[int]], *, shards: int, replicas: int
) -> Places:
    """New places, from those of now; shards that have none yet may be missing at the end."""
    assert nodes, "a cluster has a node"
    plan = _Plan(nodes, places, shards=shards, count=min(replicas, len(nodes)))
    for shard in range(shards):
        plan.trim(shard)
    for shard in range(shards):
        plan.fill(shard)
    _level(plan.loads, plan.hops, plan.take)
    plan.save()
    return _led(plan.members, plan.before, plan.numbers)


class _Plan:
    """Members of all shards, while they are chosen."""

    def __init__(
        self,
        nodes: Sequence[Candidate],
        places: Sequence[Sequence[int]],
        *,
        shards: int,
        count: int,
    ) -> None:
        self.zones: Final = {node.number: node.zone for node in nodes}
        self.numbers: Final = sorted(self.zones)
        self.count: Final = count
        rows = [*places[:shards], *([()] * (shards - len(places)))]
        self.before: Final = [tuple(dict.fromkeys(row)) for row in rows]
        self.members: Final = [
            [number for number in row if number in self.zones] for row in self.before
        ]
        self.loads: Final = dict.fromkeys(self.numbers, 0)
        for row in self.members:
            for number in row:
                self.loads[number] += 1
        sizes = Counter(self.zones.values())
        self.each = max(
            each
            for each in range(count + 1)
            if sum(min(size, each) for size in sizes.values()) <= count
        )
        """Members that a shard has in each zone with so many nodes."""
        self.extra = count - sum(min(size, self.each) for size in sizes.values())
        """Zones in which it has one more."""
        self.looks_left = LOOKS_MAX

    def in_zones(self, shard: int) -> Counter[str]:
        """Number of a shard's members by zone."""
        return Counter(self.zones[number] for number in self.members[shard])

    def trim(self, shard: int) -> None:
        """Remove members beyond what a zone may have; then there are not too many in all, too."""
        row = self.members[shard]
        while row:
            zones = self.in_zones(shard)
            counts = list(zones.values())
            fullest = max(counts)
            is_even = sum(each > self.each for each in counts) <= self.extra
            if fullest <= self.each + 1 and is_even:
                return
            # Of the fullest zone, on the node with most replicas, and rather not the leader.
            number = max(
                (number for number in row if zones[self.zones[number]] == fullest),
                key=lambda number: (self.loads[number], number != row[0], row.index(number)),
            )
            row.remove(number)
            self.loads[number] -= 1

    def fill(self, shard: int) -> None:
        """Add the members that are missing."""
        row = self.members[shard]
        while len(row) < self.count:
            zones = self.in_zones(shard)
            number = min(
                (number for number in self.numbers if number not in row),
                key=lambda number: (zones[self.zones[number]], self.loads[number], number),
            )
            row.append(number)
            self.loads[number] += 1

    def hops(self, giver: int) -> Iterable[Hop]:
        """Replicas that a node can give to others: first those that cost the fewest copies."""
        return [hop for *_, hop in sorted(self._priced(giver))]

    def _priced(self, giver: int) -> Iterator[tuple[int, bool, Hop]]:
        """Each with the copies that it costs, and whether it takes away the leader."""
        for shard, row in enumerate(self.members):
            if giver not in row:
                continue
            zones, before = self.in_zones(shard), self.before[shard]
            crowd = zones[self.zones[giver]]
            for taker in self.numbers:
                zone = self.zones[taker]
                is_even = zone == self.zones[giver] or crowd == zones[zone] + 1
                if is_even and taker not in row:
                    copies = (giver in before) - (taker in before)
                    yield copies, before[:1] == (giver,), (shard, giver, taker)

    def take(self, hop: Hop) -> None:
        """Give a replica to another node."""
        shard, giver, taker = hop
        row = self.members[shard]
        row[row.index(giver)] = taker

    def save(self) -> None:
        """Let replicas stay where they are, if that only changes which nodes have one more."""
        for giver in self.numbers:
            while way := self._saving(giver):
                for hop in way:
                    self.take(hop)
                self.loads[giver] -= 1
                self.loads[way[-1][2]] += 1

    def _saving(self, giver: int) -> list[Hop]:
        """Hops from a node that cost one copy less, and leave the loads as even as they are."""
        back = [first for copies, _, first in sorted(self._priced(giver)) if copies < 0]
        for first in back:
            if self.loads[first[2]] < self.loads[giver]:
                return [first]
        for first in back:
            reached: dict[int, Hop | None] = {giver: None, first[2]: first}
            waiting = deque([first[2]])
            while waiting and self.looks_left > 0:
                number = waiting.popleft()
                way = _way_to(number, reached)
                if self.loads[number] < self.loads[giver]:
                    return way
                # Two hops of one shard might put both replicas into one zone.
                used = {shard for shard, *_ in way}
                for more, _, hop in sorted(self._priced(number)):
                    self.looks_left -= 1
                    if more > 0 or hop[0] in used:
                        continue
                    if hop[2] == giver:
                        return [*way, hop]
                    if hop[2] not in reached:
                        reached[hop[2]] = hop
                        waiting.append(hop[2])
        return []


def _led(
    members: Sequence[Sequence[int]], before: Sequence[Sequence[int]], numbers: Sequence[int]
) -> Places:
    """Places with their members in order: the preferred leader, those of before, the new ones."""
    leads = dict.fromkeys(numbers, 0)
    leaders: list[int] = []
    for row, was in zip(members, before, strict=True):
        if was and was[0] in row:
            leads[was[0]] += 1
    for row, was in zip(members, before, strict=True):
        if was and was[0] in row:
            leaders.append(was[0])
        else:
            chosen = min(row, key=lambda number: (leads[number], number not in was, number))
            leads[chosen] += 1
            leaders.append(chosen)

    def hops(giver: int) -> Iterable[Hop]:
        led = [shard for shard, leader in enumerate(leaders) if leader == giver]
        led.sort(key=lambda shard: before[shard][:1] == (giver,))  # new leaders give first
        return [
            (shard, giver, taker)
            for shard in led
            for taker in sorted(members[shard])
            if taker != giver
        ]

    def take(hop: Hop) -> None:
        leaders[hop[0]] = hop[2]

    _level(leads, hops, take)
    return tuple(
        (leader, *_ordered([number for number in row if number != leader], was))
        for leader, row, was in zip(leaders, members, before, strict=True)
    )


def _ordered(row: Sequence[int], before: Sequence[int]) -> list[int]:
    known = [number for number in before if number in row]
    return [*known, *sorted(number for number in row if number not in before)]


def _level(loads: dict[int, int], hops: Hops, take: Callable[[Hop], None]) -> None:
    """Pass things on until no node has two more than one that it could pass something to."""
    while path := _pass(loads, hops):
        for hop in path:
            take(hop)
        loads[path[0][1]] -= 1
        loads[path[-1][2]] += 1


def _pass(loads: Mapping[int, int], hops: Hops) -> list[Hop]:
    """The hops from a node to one with at least two fewer; none if there is no such way.

    Nodes that were reached from one with more are not looked at again: from there, too, only nodes
    with as many can be reached. So a fruitless search looks at each node once.
    """
    reached: dict[int, Hop | None] = {}
    if max(loads.values()) - min(loads.values()) < 2:
        return []
    for load in sorted({*loads.values()}, reverse=True):
        starts = [number for number in loads if loads[number] == load and number not in reached]
        reached |= dict.fromkeys(starts)
        waiting = deque(starts)
        while waiting:
            for hop in hops(waiting.popleft()):
                taker = hop[2]
                if taker in reached:
                    continue
                reached[taker] = hop
                if loads[taker] <= load - 2:
                    return _way_to(taker, reached)
                waiting.append(taker)
    return []


def _way_to(number: int, reached: Mapping[int, Hop | None]) -> list[Hop]:
    way: list[Hop] = []
    hop = reached[number]
    while hop is not None:
        way.append(hop)
        hop = reached[hop[1]]
    return way[::-1]
