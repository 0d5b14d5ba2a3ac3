"""The cluster map: who is in it, and the map that equal configs make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.protocol.cluster import (
    BadAddress,
    ClusterNode,
    RemovedNode,
    alone,
    first_map,
    split_address,
)

NODES = [ClusterNode(number=number, name=f"n{number}") for number in (1, 2, 3, 4, 5)]


@given(st.permutations(NODES), st.integers(1, 20), st.integers(1, 7))
def test_a_first_map_is_the_same_in_any_order_and_spreads_replicas_and_leaders(
    nodes: list[ClusterNode], shards: int, replicas: int
) -> None:
    made = first_map(nodes, shards=shards, replicas=replicas)

    assert made == first_map(NODES, shards=shards, replicas=replicas)
    assert (made.version, made.last_number, len(made.places)) == (0, 5, shards)
    assert made.is_placed == (replicas >= 5)
    counts = dict.fromkeys(range(1, 6), 0)
    leads = dict.fromkeys(range(1, 6), 0)
    for place in made.places:
        assert len({*place}) == len(place) == min(replicas, 5)
        leads[place[0]] += 1
        for number in place:
            counts[number] += 1
    assert max(leads.values()) - min(leads.values()) <= 1
    assert max(counts.values()) - min(counts.values()) <= min(replicas, 5)
    assert sum(len(made.shards_of(number)) for number in counts) == sum(counts.values())


def test_a_node_is_found_by_number_and_name_and_a_removed_one_is_remembered() -> None:
    removed = RemovedNode(number=9, name="old", instance="ab", reason="disk lost", removed_ns=1)
    made = alone(1, 2)

    assert made.node(1) == made.named("node-1") == made.nodes[0]
    assert (made.node(2), made.named("x"), made.removal_of(9)) == (None, None, None)
    assert (
        type(made)(
            nodes=made.nodes, last_number=9, places=made.places, removed=(removed,)
        ).removal_of(9)
        is removed
    )


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("10.0.0.5:9400", ("10.0.0.5", 9400)),
        ("corvo-0.corvo:1", ("corvo-0.corvo", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_has_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address", ["", "host", ":9400", "host:", "host:x", "host:65536", "::1:9400", "host:-1", "h:²"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BadAddress):
        split_address(address)
