"""Removing a node: refused where it would stop a shard, and where the node can be drained."""

from itertools import combinations
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.protocol.cluster import ClusterMap, ClusterNode
from corvo.router.cluster.overview import ReplicaSeen, ShardSeen
from corvo.router.cluster.removal import refusal
from tests.router.clusters import MAP, down, healthy, replica, shard, up

OF_FIVE: Final = replace(
    MAP,
    nodes=(*MAP.nodes, *(ClusterNode(number=number, name=f"n{number}") for number in (4, 5))),
    last_number=5,
)


def refused(
    node: int, *shards: ShardSeen, force: bool = False, known: ClusterMap = MAP
) -> tuple[str, str]:
    """Code and text of the refusal; empty when there is none."""
    row = known.node(node)
    assert row is not None
    found = refusal(row, known, shards, own=1, force=force)
    return (found.code, found.error) if found is not None else ("", "")


def test_a_node_that_votes_and_can_be_reached_has_to_be_drained_first() -> None:
    code, error = refused(3, healthy(0), healthy(1))

    assert code == "NODE_NOT_DRAINED"
    assert error == (
        "node 3 (n3) is reachable and votes in shards 0, 1: drain it first, and remove it when it"
        ' has no replicas; or send "force": true'
    )
    assert refused(3, healthy(0), healthy(1), force=True) == ("", "")


def test_a_node_that_is_dead_can_be_removed_while_the_others_are_a_majority() -> None:
    dead = shard(up(replica(1)), up(replica(2)), down(3))

    assert refused(3, dead, replace(dead, number=1)) == ("", "")


@pytest.mark.parametrize("force", [False, True])
def test_a_node_is_never_removed_when_the_others_would_be_no_majority(force: bool) -> None:
    """Node 3 is dead, and so is node 2: with node 1 alone shard 1 stops for good."""
    stopped = shard(up(replica(1)), down(2), down(3), number=1)

    code, error = refused(2, healthy(0), stopped, force=force)

    assert code == "NO_MAJORITY"
    assert "shard 1 would have no majority of its voters: they are nodes 1, 2, 3" in error
    assert "of the others node 1 can be reached" in error


@pytest.mark.parametrize("force", [False, True])
def test_of_two_voters_neither_is_removed_even_if_both_are_there(force: bool) -> None:
    pair = shard(*(up(replica(node, voters=(1, 2))) for node in (1, 2)))

    code, _ = refused(2, pair, healthy(1), force=force)

    assert code == "NO_MAJORITY"


def test_a_voter_under_repair_does_not_count() -> None:
    damaged = shard(up(replica(1)), up(replica(2, is_repairing=True)), down(3))

    code, _ = refused(3, damaged, healthy(1), force=True)

    assert code == "NO_MAJORITY"


def test_a_node_that_was_removed_before_does_not_count_though_it_still_answers() -> None:
    known = replace(MAP, nodes=MAP.nodes[:2], places=((1, 2), (1, 2)))

    code, error = refused(2, healthy(0), healthy(1), force=True, known=known)

    assert code == "NO_MAJORITY"
    assert "of the others node 1 can be reached" in error


def test_while_the_voters_change_a_majority_of_both_sets_is_needed() -> None:
    joint = replica(1, voters=(1, 2, 4), outgoing=(1, 2, 3))
    of = shard(up(joint), up(replica(2)), down(3), up(replica(4)))
    blocked = shard(up(joint), down(2), up(replica(3)), up(replica(4)))

    assert refused(3, of, healthy(1), force=True, known=OF_FIVE) == ("", "")
    code, error = refused(3, blocked, healthy(1), force=True, known=OF_FIVE)

    assert code == "NO_MAJORITY"
    assert "nodes 1, 2, 3" in error


def test_a_learner_is_removed_without_more_ado() -> None:
    learning = [
        shard(
            up(replica(1, voters=(1, 2), learners=(3,))),
            up(replica(2)),
            up(replica(3)),
            number=number,
        )
        for number in (0, 1)
    ]

    assert refused(3, *learning) == ("", "")


@pytest.mark.parametrize("force", [False, True])
def test_without_a_leader_voters_are_not_known_for_certain(force: bool) -> None:
    electing = [up(replica(node, role="follower", leader=None)) for node in (1, 2)]
    of = shard(*electing, down(3), leader=None)
    not_yet = shard(
        *(up(replica(node, role="follower", voters=(1, 2))) for node in (1, 2)), leader=None
    )

    code, error = refused(3, of, healthy(1), force=force)

    assert code == "VOTERS_UNKNOWN"
    assert "shard 0 has no leader now" in error
    assert refused(3, not_yet, healthy(1), force=force)[0] == "VOTERS_UNKNOWN"


def test_a_shard_that_does_not_answer_blocks_only_nodes_that_may_vote_in_it() -> None:
    lost = shard(down(1), down(2), leader=None)
    elsewhere = replace(MAP, places=((1, 2), (1, 2, 3)))
    dead = shard(up(replica(1)), up(replica(2)), down(3), number=1)

    placed, _ = refused(3, shard(down(1), down(2), down(3), leader=None), dead, force=True)
    careful, error = refused(3, lost, dead, known=elsewhere)
    forced, _ = refused(3, lost, dead, force=True, known=elsewhere)

    assert (placed, careful, forced) == ("VOTERS_UNKNOWN", "VOTERS_UNKNOWN", "")
    assert 'or send "force": true' in error


@given(
    voters=st.sets(st.integers(1, 5), min_size=1),
    outgoing=st.sets(st.integers(1, 5)),
    alive=st.sets(st.integers(1, 5)),
    node=st.integers(1, 3),
    force=st.booleans(),
)
def test_a_removal_that_is_allowed_leaves_a_majority(
    voters: set[int], outgoing: set[int], alive: set[int], node: int, force: bool
) -> None:
    leader = min(alive, default=0)
    sets = (tuple(sorted(voters)), tuple(sorted(outgoing)))

    def said(number: int) -> ReplicaSeen:
        if number not in alive:
            return down(number)
        role = "leader" if number == leader else "follower"
        return up(replica(number, role=role, voters=sets[0], outgoing=sets[1]))

    of = shard(*(said(number) for number in range(1, 6)))

    code, _ = refused(node, of, healthy(1), force=force, known=OF_FIVE)

    staying = alive - {node}
    can_agree = all(
        any({*some} <= staying for some in combinations(one, len(one) // 2 + 1))
        for one in sets
        if one
    )
    votes = node in voters | outgoing
    if votes and not can_agree:
        assert code in {"NO_MAJORITY", "VOTERS_UNKNOWN"}
    elif alive:
        assert code == ("" if force else "NODE_NOT_DRAINED")
