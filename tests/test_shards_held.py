"""Which shards a node has a replica of: by the map, and by what is in its directory."""

import msgspec

from corvo.protocol.cluster import ClusterMap, ClusterNode
from corvo.shards_held import ShardsHeld


def a_map(version: int, *places: tuple[int, ...]) -> ClusterMap:
    nodes = tuple(ClusterNode(number=number, name=f"n{number}") for number in (1, 2, 3))
    return ClusterMap(version=version, nodes=nodes, last_number=3, places=places)


def test_a_node_has_the_shards_that_are_placed_on_it_and_those_in_its_directory() -> None:
    held = ShardsHeld(2, a_map(1, (1, 2), (1, 3), (1, 3)), [2])

    assert held.here == [0, 2]


def test_a_shard_that_was_started_for_the_first_map_is_there_until_it_is_removed() -> None:
    held = ShardsHeld(2, a_map(0, (1, 2), (2, 3)), [])

    assert held.take(a_map(4, (1, 2), (1, 3)))
    assert held.here == [0, 1]

    held.unneeded(1)
    assert held.take_removable() == [1]
    held.removed(1)
    assert held.here == [0]


def test_a_replica_is_removed_when_neither_the_map_nor_its_shard_needs_it() -> None:
    held = ShardsHeld(2, a_map(1, (1, 2), (2, 3)), [0, 1])

    held.unneeded(1)
    assert held.take_removable() == []
    assert held.take(a_map(2, (1, 2), (1, 3)))
    assert held.take_removable() == []  # what was reported before the map is not believed
    held.unneeded(1)
    assert held.take_removable() == [1]
    assert held.take_removable() == []
    held.removed(1)
    assert held.here == [0]


def test_a_report_is_forgotten_when_a_map_places_the_shard_here_again() -> None:
    held = ShardsHeld(2, a_map(2, (1, 2), (1, 3)), [0, 1])

    held.unneeded(1)
    assert held.take(a_map(3, (1, 2), (2, 3)))
    assert held.take(a_map(4, (1, 2), (1, 3)))

    assert held.take_removable() == []


def test_an_older_map_changes_nothing() -> None:
    held = ShardsHeld(2, a_map(2, (1, 2)), [0])

    assert not held.take(msgspec.structs.replace(held.map))
    assert not held.take(a_map(1, (1, 3)))
    assert held.here == [0]


def test_a_shard_that_is_placed_here_again_while_its_data_are_removed_is_still_held() -> None:
    held = ShardsHeld(2, a_map(2, (1, 2), (1, 3)), [0, 1])

    held.unneeded(1)
    assert held.take_removable() == [1]
    assert held.take(a_map(3, (1, 2), (2, 3)))
    held.removed(1)

    assert held.here == [0, 1]
