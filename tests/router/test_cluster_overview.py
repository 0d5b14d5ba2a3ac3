"""The state of a cluster: each thing that is not well has its reason, and the whole one status."""

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from corvo.clock_offsets import Clocks
from corvo.protocol.cluster import ClusterMap, alone
from corvo.protocol.numbers import ClockNumbers, Numbers
from corvo.router.cluster.bodies import ClusterView
from corvo.router.cluster.overview import LAG_MAX, ReplicaSeen, ShardSeen, overview
from tests.router.clusters import MAP, REFUSED, down, healthy, replica, shard, up, with_node


def seen(*shards: ShardSeen, known: ClusterMap = MAP) -> ClusterView:
    return overview(known, shards, own=1)


def one(third: ReplicaSeen, leader: Numbers | None = None) -> ClusterView:
    """Of a cluster in which one replica of shard 0, on node 3, is not like the others."""
    first = leader if leader is not None else replica(1)
    return seen(shard(up(first), up(replica(2)), third), healthy(1))


def test_a_cluster_that_is_well_has_no_reasons() -> None:
    view = seen(healthy(0), healthy(1))

    assert (view.status, view.reasons) == ("healthy", [])
    assert [(node.number, node.is_reachable, node.leads) for node in view.nodes] == [
        (1, True, [0, 1]),
        (2, True, []),
        (3, True, []),
    ]
    assert [node.replicas for node in view.nodes] == [[0, 1]] * 3
    assert {each.status for each in view.shards} == {"healthy"}
    assert not [each.reason for of in view.shards for each in of.replicas if each.reason]


def test_a_replica_has_its_indexes_its_lag_and_its_last_contact() -> None:
    clock = ClockNumbers("in_step", 2_000_000, 1)

    view = one(up(replica(3, applied=95, digest=0x2F)), replica(1, clock=clock))

    leader, _, third = view.shards[0].replicas
    assert (third.role, third.is_voter, third.term, third.applied) == ("follower", True, 3, 95)
    assert (leader.digest, third.digest) == ("00000001", "0000002f")
    assert (third.lag, third.contact_s, third.last_index) == (5, 0.25, 100)
    assert (leader.clock_ahead_ms, third.clock_ahead_ms) == (2, UNSET)
    assert view.status == "healthy"


def test_a_replica_that_copies_a_snapshot_shows_how_far_it_is() -> None:
    third = one(up(replica(3, snapshot_received=(30, 90)))).shards[0].replicas[2]

    assert (third.snapshot_received_bytes, third.snapshot_size_bytes) == (30, 90)
    assert one(up(replica(3))).shards[0].replicas[2].snapshot_size_bytes is UNSET


def test_a_wrong_wall_clock_is_a_fault_of_its_node() -> None:
    clocks = Clocks({2: 3_000_000, 3: -5_000_000_000}, {3: -5_000_000_000})

    view = overview(MAP, [healthy(0), healthy(1)], own=1, clocks=clocks)

    assert view.status == "degraded"
    assert view.reasons == [
        "node 3 (n3): its wall clock is 5.0 s behind those of other nodes: set it"
    ]
    assert [node.clock_ahead_ms for node in view.nodes] == [UNSET, 3, -5_000]


def test_other_time_zone_data_is_a_fault_of_the_older_node() -> None:
    clocks = Clocks(tz_versions={1: "2026.10", 2: "2026.9", 3: "2026.10"})

    view = overview(MAP, [healthy(0), healthy(1)], own=1, clocks=clocks)

    assert view.status == "degraded"
    [reason] = view.reasons
    assert reason == (
        "node 2 (n2): its time zone data is 2026.9, and others have 2026.10: install the same"
        " tzdata on all nodes, because the leader of a shard computes the due times of its"
        " schedules"
    )
    assert [node.tz_version for node in view.nodes] == ["2026.10", "2026.9", "2026.10"]


def test_other_time_zone_data_of_an_older_release_is_no_fault() -> None:
    nodes = tuple(replace(node, version="1.1" if node.number == 3 else "1.0") for node in MAP.nodes)
    clocks = Clocks(tz_versions={1: "2026.1", 3: "2026.2"})

    view = overview(replace(MAP, nodes=nodes), [healthy(0), healthy(1)], own=1, clocks=clocks)

    assert (view.status, view.reasons) == ("healthy", [])
    assert "its time zone data is 2026.1" in view.nodes[0].reason
    assert "time zone data" not in view.nodes[1].reason
    assert view.nodes[1].tz_version == ""


def test_a_node_that_is_away_is_one_reason_and_not_one_for_each_replica() -> None:
    away = [shard(up(replica(1)), up(replica(2)), down(3), number=number) for number in (0, 1)]

    view = seen(*away)

    assert view.status == "degraded"
    assert view.reasons == [f"node 3 (n3): unreachable: {REFUSED}"]
    assert view.nodes[2].is_reachable is False
    assert [each.status for each in view.shards] == ["degraded"] * 2
    third = view.shards[0].replicas[2]
    assert (third.is_reachable, third.is_voter, third.lag) == (False, True, 10)
    assert third.reason == f"unreachable: {REFUSED}"
    assert (third.contact_s, third.applied) == (40.0, UNSET)


@pytest.mark.parametrize(
    ("third", "reason"),
    [
        (down(3), f"unreachable: {REFUSED}"),
        (up("no answer within 1 s", 3), "no answer within 1 s"),
        (up(replica(3, is_repairing=True)), "it lost a part of its log and copies it"),
        (up(replica(3, disk_is_full=True)), "its disk is full"),
        (up(replica(3, snapshot_received=(30, 90))), "it copies a snapshot: 33 % of 90 bytes"),
        (up(replica(3, leader=None)), "it knows no leader"),
        (up(replica(3, voters=(1, 2, 4))), "it has not applied the last change of the members"),
        (up(replica(3, outgoing=(1, 2, 4))), "it has not applied the last change of the members"),
        (up(replica(3, applied=0)), ""),
    ],
)
def test_a_replica_that_is_not_well_says_why(third: ReplicaSeen, reason: str) -> None:
    view = one(third)

    assert view.shards[0].replicas[2].reason.startswith(reason)
    assert (view.status, view.shards[0].status) == (
        ("degraded",) * 2 if reason else ("healthy",) * 2
    )
    assert [text.partition(": ")[2].startswith(reason) for text in view.reasons] == [True] * bool(
        reason
    )


def test_a_replica_that_is_far_behind_is_a_reason() -> None:
    far = replica(1, commit=100 + LAG_MAX, applied=100 + LAG_MAX)

    assert one(up(replica(3)), far).status == "healthy"
    late = one(up(replica(3, applied=99)), far)

    assert late.reasons == [
        f"shard 0 on node 3 (n3): it is {LAG_MAX + 1} entries behind the leader"
    ]


def test_a_replica_that_is_missing_or_learns_or_leaves_says_so() -> None:
    missing = one(up(replica(3)), replica(1, voters=(1, 2)))
    learning = one(up(replica(3, applied=40)), replica(1, voters=(1, 2), learners=(3,)))
    leaving = seen(
        shard(up(replica(1)), up(replica(2)), up(replica(3))),
        healthy(1),
        known=replace(MAP, places=((1, 2), (1, 2, 3))),
    )

    assert missing.shards[0].replicas[2].reason == "it is not in the group yet: the leader adds it"
    assert learning.shards[0].replicas[2].reason == (
        "it is a learner, 60 entries behind: it votes when it has caught up"
    )
    assert missing.status == learning.status == "degraded"
    assert leaving.shards[0].replicas[2].reason.startswith("it is moved away")
    assert leaving.status == "healthy"


def test_a_member_on_a_node_without_a_link_is_shown_with_what_its_leader_knows() -> None:
    known = replace(MAP, places=((1, 2), (1, 2, 3)))

    view = seen(shard(up(replica(1)), up(replica(2))), healthy(1), known=known)

    third = view.shards[0].replicas[2]
    assert (third.node, third.is_voter, third.lag, third.is_reachable) == (3, True, 10, False)
    assert view.status == "healthy"
    assert view.nodes[2].replicas == [0, 1]


def test_a_shard_without_a_leader_makes_the_cluster_unavailable() -> None:
    lost = shard(up(replica(1, role="candidate", leader=None)), down(2), down(3), leader=None)

    view = seen(lost, healthy(1))

    assert (view.status, view.shards[0].status) == ("unavailable", "unavailable")
    assert view.shards[0].reason == "no leader: node 1: knows no leader"
    assert view.shards[0].leader is UNSET
    assert view.reasons == [
        "shard 0: no leader: node 1: knows no leader",
        f"shard 0 on node 2 (n2): unreachable: {REFUSED}",
        f"shard 0 on node 3 (n3): unreachable: {REFUSED}",
    ]
    assert view.shards[1].status == "healthy"


def test_of_two_that_say_they_lead_the_one_in_the_higher_term_does() -> None:
    new = replica(2, role="leader", leader=2, term=4, commit=200, applied=200)

    view = seen(shard(up(replica(1)), up(new), up(replica(3))), healthy(1))

    assert (view.shards[0].leader, view.shards[0].term) == (2, 4)
    assert view.shards[0].replicas[2].lag == 100
    assert [node.leads for node in view.nodes] == [[1], [0], []]


def test_a_drained_node_is_no_fault_and_says_when_it_can_be_removed() -> None:
    draining = with_node(MAP, 3, is_draining=True)
    moved = replace(draining, places=((1, 2), (1, 2)), replicas=2)
    left = [
        shard(*(up(replica(node, voters=(1, 2))) for node in (1, 2)), number=number)
        for number in (0, 1)
    ]

    begun = seen(healthy(0), healthy(1), known=replace(draining, replicas=2))
    ended = seen(*left, known=moved)

    assert (begun.status, begun.nodes[2].state) == ("healthy", "draining")
    assert begun.nodes[2].reason == "draining: 2 of its replicas are not moved yet"
    assert (ended.status, ended.nodes[2].replicas) == ("healthy", [])
    assert ended.nodes[2].reason == "drained: it can be stopped and removed"
    assert ended.nodes[2].is_reachable is UNSET


@pytest.mark.parametrize(
    ("leader", "is_drained"),
    [
        ({"map_version": 7}, True),
        ({}, True),  # of a release that does not say it
        ({"map_version": 6}, False),
        ({"map_version": 7, "is_changing": True}, False),
        ({"role": "follower", "leader": None}, False),
    ],
)
def test_a_node_is_drained_once_no_leader_can_add_a_replica_to_it_again(
    leader: dict[str, object], is_drained: bool
) -> None:
    drained = with_node(MAP, 3, is_draining=True)
    known = replace(drained, places=((1, 2), (1, 2)), replicas=2, version=7)
    group = {"voters": (1, 2)}
    late = shard(up(replica(1, **group, **leader)), up(replica(2, voters=(1, 2, 3))))
    other = shard(up(replica(1, **group, map_version=7)), number=1)

    view = seen(late, other, known=known)

    assert view.nodes[2].replicas == ([] if is_drained else [0])


@pytest.mark.parametrize(
    "replicas",
    [
        (down(1), down(2)),
        (down(1), up(replica(2, voters=(1, 2)))),
        (up(replica(1, voters=(1, 2), role="candidate", leader=None)), down(2)),
    ],
    ids=["no replica answers", "a follower answers", "a candidate answers"],
)
def test_a_node_is_not_drained_while_no_leader_says_so(replicas: tuple[ReplicaSeen, ...]) -> None:
    drained = with_node(MAP, 3, is_draining=True)
    known = replace(drained, places=((1, 2), (1, 2)), replicas=2, version=7)
    silent = shard(*replicas)
    other = shard(up(replica(1, voters=(1, 2), map_version=7)), number=1)

    view = seen(silent, other, known=known)

    # Its replicas may be needed for a majority: a node that is said to be drained is stopped.
    assert view.nodes[2].replicas == [0]
    assert view.nodes[2].reason == "draining: 1 of its replicas are not moved yet"


def test_an_older_release_is_named_and_is_no_fault() -> None:
    older = with_node(MAP, 2, version="0.0.9")
    behind = with_node(with_node(with_node(MAP, 1, op_version=4), 2, op_version=3), 3, op_version=4)
    raised = replace(with_node(behind, 2, op_version=4), op_version=4)

    by_version = seen(healthy(0), healthy(1), known=older)
    by_ops = seen(healthy(0), healthy(1), known=behind)
    after = seen(healthy(0), healthy(1), known=raised)

    assert by_version.nodes[1].reason == "it runs version 0.0.9, and others 0.1.0: upgrade it"
    assert by_ops.nodes[1].reason == (
        "it runs version 0.1.0 with op version 3, and others version 0.1.0 with op version 4:"
        " upgrade it, so that the cluster can use more than op version 3"
    )
    assert (by_ops.op_version, by_ops.held_back_by) == (3, [2])
    assert (after.op_version, after.held_back_by) == (4, [])
    assert [node.op_version for node in after.nodes] == [4, 4, 4]
    assert [node.reason for node in after.nodes] == ["", "", ""]
    assert by_version.status == by_ops.status == "healthy"
    assert [by_version.nodes[0].reason, by_version.nodes[2].reason] == ["", ""]


def test_too_few_nodes_are_a_reason_but_not_in_a_cluster_of_one() -> None:
    few = seen(healthy(0), healthy(1), known=replace(MAP, replicas=5))
    single = shard(up(replica(1, voters=(1,), peers=[])))

    lonely = overview(alone(1, 1), [single], own=1)

    assert few.status == "degraded"
    assert few.reasons == [
        "each shard is to have 5 replicas; nodes that can have one: 3. Add a node"
    ]
    assert (lonely.status, lonely.reasons) == ("healthy", [])


def test_a_node_that_has_never_announced_itself_is_a_fault() -> None:
    view = seen(healthy(0), healthy(1), known=with_node(MAP, 3, address=""))

    assert view.reasons == ["node 3 (n3): it has not reported an address to the cluster yet"]
