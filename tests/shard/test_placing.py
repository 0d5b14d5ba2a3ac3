"""The leader of shard 0 proposes places when the nodes have changed, once for each map."""

from typing import Final

import pytest

from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap, ClusterNode, first_map
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.cluster import Announce, DrainNode, RemoveNode, SetReplicas
from corvo.shard.ops.cluster import Place
from corvo.shard.upkeep import PLACE_AGAIN_NS, Upkeep
from tests.shard.replicas import Replicas
from tests.shard.shard import MS, Shard
from tests.support.memory import MemoryStore

NODES: Final = [ClusterNode(number=number, name=f"n{number}") for number in (1, 2)]
SHARDS: Final = 2
FIRST: Final = first_map(NODES, shards=SHARDS, replicas=3)


def announced(number: int) -> Announce:
    return Announce(name=f"n{number}", instance=f"dir-{number}", number=number, first=FIRST)


def joining(number: int, zone: str = "") -> Announce:
    return Announce(name=f"n{number}", instance=f"dir-{number}", zone=zone)


def map_in(group: Replicas, number: int = 1) -> ClusterMap:
    known = group.replicas[number].machine.tx.cluster_map
    assert known is not None
    return known


def places_due(upkeep: Upkeep, shard: Shard, now_ns: int = 0) -> list[Op]:
    """Places that a leader would propose now."""
    return [op for op in upkeep.due(shard.tx, now_ns or shard.clock_ns) if isinstance(op, Place)]


def proposed(group: Replicas) -> list[Place]:
    """All places that are in the log, refused ones included."""
    return [op for ops in group.log() for op in ops if isinstance(op, Place)]


# What is due.


def test_places_are_proposed_once_for_a_map_and_again_after_a_pause() -> None:
    shard = Shard(shards=SHARDS)
    upkeep = Upkeep(retention_ms=1)
    shard.do(announced(1))
    before = places_due(upkeep, shard)
    shard.do(joining(3))
    now_ns = shard.clock_ns

    first = places_due(upkeep, shard)
    again = places_due(upkeep, shard, now_ns + PLACE_AGAIN_NS - 1)
    due_ns = upkeep.next_ns(shard.tx)
    later = places_due(upkeep, shard, now_ns + PLACE_AGAIN_NS)

    assert (before, again) == ([], [])
    assert first == later == [Place(base=2, places=((1, 2, 3), (2, 1, 3)))]
    assert due_ns == now_ns + PLACE_AGAIN_NS


def test_another_map_has_other_places_at_once() -> None:
    shard = Shard(shards=SHARDS)
    upkeep = Upkeep(retention_ms=1)
    shard.do(announced(1))
    shard.do(joining(3))
    places_due(upkeep, shard)

    shard.do(DrainNode(number=2))

    assert places_due(upkeep, shard) == [Place(base=3, places=((1, 3), (3, 1)))]


def test_a_leader_that_has_just_started_knows_that_places_are_due() -> None:
    shard = Shard(shards=SHARDS)
    shard.do(announced(1))
    shard.do(SetReplicas(replicas=1))

    shard.reopen()

    assert places_due(Upkeep(retention_ms=1), shard) == [Place(base=2, places=((1,), (2,)))]


def test_nothing_is_read_from_the_store_to_see_that_no_places_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = Shard(shards=SHARDS)
    upkeep = Upkeep(retention_ms=1)
    shard.do(announced(1))
    upkeep.due(shard.tx, shard.clock_ns)
    reads: list[object] = []
    monkeypatch.setattr(MemoryStore, "get", lambda *key: reads.append(key))
    monkeypatch.setattr(MemoryStore, "keys", lambda *keys, **limits: reads.append(keys))
    monkeypatch.setattr(MemoryStore, "scan", lambda *keys, **limits: reads.append(keys))

    assert upkeep.due(shard.tx, shard.clock_ns + MS) == []
    assert reads == []


# Leaders.


def test_a_node_that_joins_is_given_its_places() -> None:
    group = Replicas(3, shards=SHARDS)

    group.do(announced(1))
    group.do(announced(2))
    group.do(joining(3))

    known = map_in(group)
    assert (known.version, known.is_placed) == (4, True)
    assert known.places == ((1, 2, 3), (2, 1, 3))
    assert map_in(group, 2) == map_in(group, 3) == known


def test_a_group_comes_to_rest_after_each_change() -> None:
    group = Replicas(shards=SHARDS)
    group.do(announced(1))
    ops: list[Op] = [
        joining(3, zone="b"),
        joining(4, zone="b"),
        DrainNode(number=1),
        RemoveNode(number=2, reason="lost"),
        SetReplicas(replicas=1),
        DrainNode(number=1, is_draining=False),
    ]

    for op in ops:
        answer = group.do(op)
        assert isinstance(answer, wire.Reply)
        assert not answer.code, answer.body
        known = map_in(group)
        assert known.is_placed
        assert {number for place in known.places for number in place} <= {*known.carriers}

    assert map_in(group).version == 1 + 2 * len(ops)


def test_places_for_a_map_that_changed_meanwhile_are_computed_again() -> None:
    group = Replicas(shards=SHARDS)
    group.do(announced(1))
    group.slow[1] = None
    group.submit(joining(3))
    group.work(1)
    group.submit(DrainNode(number=2))  # in the log before places for node 3
    group.store(1)
    group.work(1)
    group.slow.clear()

    group.settle()

    known = map_in(group)
    # Joined, drained, and placed once: the places for the map between were refused.
    assert (known.version, known.is_placed) == (4, True)
    assert known.places == ((1, 3), (3, 1))
    assert [op.base for op in proposed(group)] == [2, 3]


def test_a_new_leader_proposes_the_places_that_the_one_before_did_not() -> None:
    group = Replicas(3, shards=SHARDS)
    group.do(announced(1))
    group.slow[1] = None  # so that it proposes nothing after the op
    group.submit(joining(3))
    group.settle()
    group.tick(3, 1)
    before = [(known.version, known.is_placed) for known in (map_in(group, 2), map_in(group, 3))]
    group.cut_off[1] = None

    group.elect(2, 3)

    assert before == [(2, False)] * 2
    assert (map_in(group, 2).version, map_in(group, 3).is_placed) == (3, True)
