"""Places of replicas: even over zones and nodes, with as few copies as there can be."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.protocol.cluster import ClusterNode, first_map
from corvo.replica_placement import Candidate, Places, place

Rows: TypeAlias = Sequence[Sequence[int]]

_numbers: Final = st.integers(1, 7)
_zones: Final = st.sampled_from(([""], ["a", "b"], ["a", "b", "c"], ["a", "a", "a", "b"]))


@st.composite
def clusters(draw: st.DrawFn, *, most: int = 5) -> list[Candidate]:
    """Some nodes, in one zone or several."""
    zones = draw(_zones)
    numbers = draw(st.lists(_numbers, min_size=1, max_size=most, unique=True))
    return [Candidate(number, draw(st.sampled_from(zones))) for number in numbers]


@st.composite
def moments(draw: st.DrawFn) -> tuple[list[Candidate], Places, int]:
    """Nodes, places that were computed for others or are of any kind, and a number of replicas."""
    nodes = draw(clusters())
    shards = draw(st.integers(1, 3))
    if draw(st.booleans()):
        before = place(draw(clusters(most=6)), (), shards=shards, replicas=draw(st.integers(1, 4)))
    else:
        row = st.lists(_numbers, max_size=4, unique=True).map(tuple)
        before = tuple(draw(st.lists(row, min_size=shards, max_size=shards)))
    return nodes, before, draw(st.integers(1, 4))


def crowding(nodes: Sequence[Candidate], places: Rows) -> int:
    """The smaller, the more evenly the replicas of each shard are spread over zones."""
    zones = {node.number: node.zone for node in nodes}
    counts = [Counter(zones[number] for number in row) for row in places]
    return sum(count * count for each in counts for count in each.values())


def loads_of(nodes: Sequence[Candidate], places: Rows) -> list[int]:
    counts = Counter(number for row in places for number in row)
    return [counts[node.number] for node in nodes]


def leads_of(nodes: Sequence[Candidate], places: Rows) -> list[int]:
    counts = Counter(row[0] for row in places)
    return [counts[node.number] for node in nodes]


def copies(before: Rows, after: Rows) -> int:
    """Replicas that have to be made."""
    return sum(len({*row} - {*was}) for was, row in zip(before, after, strict=True))


def squares(counts: Sequence[int]) -> int:
    return sum(count * count for count in counts)


def all_places(
    nodes: Sequence[Candidate], *, shards: int, replicas: int
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to place the replicas."""
    numbers = [node.number for node in nodes]
    rows = list(combinations(numbers, min(replicas, len(numbers))))
    yield from product(rows, repeat=shards)


# All rules, compared with a search of everything.


@settings(deadline=None)
@given(moments())
def test_no_other_places_are_more_even_or_need_fewer_copies(
    moment: tuple[list[Candidate], Places, int],
) -> None:
    nodes, before, replicas = moment

    after = place(nodes, before, shards=len(before), replicas=replicas)

    best = min(
        (crowding(nodes, other), squares(loads_of(nodes, other)), copies(before, other))
        for other in all_places(nodes, shards=len(before), replicas=replicas)
    )
    loads = squares(loads_of(nodes, after))
    assert (crowding(nodes, after), loads, copies(before, after)) == best


@settings(deadline=None)
@given(moments())
def test_no_other_leaders_among_the_same_members_are_more_even(
    moment: tuple[list[Candidate], Places, int],
) -> None:
    nodes, before, replicas = moment

    after = place(nodes, before, shards=len(before), replicas=replicas)

    best = min(squares([*Counter(leaders).values()]) for leaders in product(*after))
    assert squares(leads_of(nodes, after)) == best


@given(moments())
def test_places_are_whole_and_the_same_for_nodes_in_any_order(
    moment: tuple[list[Candidate], Places, int],
) -> None:
    nodes, before, replicas = moment

    after = place(nodes, before, shards=len(before), replicas=replicas)

    assert after == place(nodes[::-1], before, shards=len(before), replicas=replicas)
    numbers = {node.number for node in nodes}
    for row in after:
        assert len(row) == len({*row}) == min(replicas, len(nodes))
        assert {*row} <= numbers


@given(moments())
def test_places_that_are_computed_again_stay(
    moment: tuple[list[Candidate], Places, int],
) -> None:
    nodes, before, replicas = moment
    once = place(nodes, before, shards=len(before), replicas=replicas)

    assert place(nodes, once, shards=len(before), replicas=replicas) == once


# Larger clusters, that change by one node.

_sizes: Final = st.tuples(st.integers(1, 12), st.integers(1, 24), st.integers(1, 7))


def evenly(counts: Sequence[int]) -> bool:
    return max(counts) - min(counts) <= 1


@given(_sizes)
def test_without_zones_loads_and_leaders_differ_by_at_most_one(size: tuple[int, int, int]) -> None:
    count, shards, replicas = size
    nodes = [Candidate(number) for number in range(1, count + 1)]

    places = place(nodes, (), shards=shards, replicas=replicas)

    assert evenly(loads_of(nodes, places))
    assert evenly(leads_of(nodes, places))


@given(_sizes)
def test_a_node_that_is_added_gets_its_share_and_nothing_else_moves(
    size: tuple[int, int, int],
) -> None:
    count, shards, replicas = size
    nodes = [Candidate(number) for number in range(1, count + 1)]
    before = place(nodes, (), shards=shards, replicas=replicas)
    more = [*nodes, Candidate(count + 1)]

    after = place(more, before, shards=shards, replicas=replicas)

    total = sum(map(len, after))
    gained = [{*row} - {*was} for was, row in zip(before, after, strict=True)]
    assert all(each <= {count + 1} for each in gained)
    assert copies(before, after) <= -(-total // len(more))
    led_anew = [row[0] for was, row in zip(before, after, strict=True) if was[0] != row[0]]
    assert len(led_anew) <= -(-shards // len(more))
    assert evenly(loads_of(more, after))
    assert evenly(leads_of(more, after))


@given(_sizes, st.data())
def test_only_the_replicas_of_a_node_that_goes_are_copied(
    size: tuple[int, int, int], data: st.DataObject
) -> None:
    count, shards, replicas = size
    nodes = [Candidate(number) for number in range(1, count + 2)]
    before = place(nodes, (), shards=shards, replicas=replicas)
    gone = data.draw(st.sampled_from(nodes))
    fewer = [node for node in nodes if node is not gone]

    after = place(fewer, before, shards=shards, replicas=replicas)

    # Nodes that have a replica of a shard cannot take another one, so one more may have to move.
    had = sum(gone.number in row for row in before)
    assert copies(before, after) <= 2 * had
    assert evenly(loads_of(fewer, after))
    assert evenly(leads_of(fewer, after))


@given(_sizes, st.integers(2, 4))
def test_a_shard_is_in_as_many_zones_as_it_can_be(size: tuple[int, int, int], zones: int) -> None:
    count, shards, replicas = size
    nodes = [Candidate(number, f"z{number % zones}") for number in range(1, count + 1)]

    places = place(nodes, (), shards=shards, replicas=replicas)

    wanted = min(zones, count, replicas)
    assert all(len({number % zones for number in row}) == wanted for row in places)


def test_a_node_alone_in_its_zone_has_a_replica_of_each_shard() -> None:
    nodes = [Candidate(1, "a"), Candidate(2, "a"), Candidate(3, "a"), Candidate(4, "b")]

    places = place(nodes, (), shards=6, replicas=3)

    assert loads_of(nodes, places) == [4, 4, 4, 6]


def test_loads_are_levelled_over_another_zone_if_the_direct_way_is_closed() -> None:
    """Node 1 gives its replica of shard 0 to node 2, which gives that of shard 1 to node 3."""
    nodes = [Candidate(1, "a"), Candidate(2, "a"), Candidate(3, "b"), Candidate(4, "b")]
    before = ((1, 3), (1, 4), (1, 3), (1, 4))

    after = place(nodes, before, shards=4, replicas=2)

    assert loads_of(nodes, after) == [2, 2, 2, 2]
    assert copies(before, after) == 2


def test_a_leader_stays_first_and_new_members_stand_last() -> None:
    nodes = [Candidate(number) for number in (1, 2, 3, 5)]

    after = place(nodes, ((3, 4, 1), (2, 4, 3)), shards=2, replicas=3)

    assert after == ((3, 1, 5), (2, 3, 1))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_first_map_of_a_small_cluster_has_these_places(count: int) -> None:
    nodes = [ClusterNode(number=number, name=f"n{number}") for number in range(1, count + 1)]
    first = first_map(nodes, shards=8, replicas=3)

    after = place([Candidate(node.number) for node in nodes], first.places, shards=8, replicas=3)

    assert first.is_placed
    assert after == first.places
