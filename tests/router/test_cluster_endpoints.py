"""What operators ask of a cluster, and do with it."""

from typing import Final

import msgspec
import pytest
import trio
from msgspec.structs import replace

from corvo.protocol.ops.base import Op, Rejected, TypedOp
from corvo.protocol.ops.cluster import HOME, DrainNode, MapDone, RemoveNode
from corvo.protocol.queries import Query
from corvo.router.cluster.bodies import NodeList, NodeView
from corvo.router.cluster.overview import ShardSeen
from corvo.router.node.health import ClusterStatus
from corvo.router.shards.links import Answer
from tests.router.clusters import MAP, Cluster, replica, up, without
from tests.router.nests import Nest, problem, run

REMOVE: Final = {"reason": "disk lost"}


async def status_of(cluster: Nest) -> ClusterStatus:
    return await cluster.read(ClusterStatus, "/api/v1/cluster/status")


def test_the_status_has_every_node_and_every_replica() -> None:
    async def main() -> None:
        cluster = Cluster()
        well = await status_of(cluster)
        cluster.see(without(3))

        degraded = await status_of(cluster)

        assert (well.mode, well.status, well.node_id) == ("multi-raft", "healthy", "1")
        assert isinstance(well.cluster, msgspec.Struct)
        assert [len(shard.replicas) for shard in well.cluster.shards] == [3, 3]
        assert well.cluster.map_version == cluster.map.version
        assert [group.state for group in well.groups] == ["Leader", "Leader"]
        assert [each.id for each in well.groups[0].nodes if each.self] == ["1"]
        assert isinstance(degraded.cluster, msgspec.Struct)
        assert degraded.status == degraded.cluster.status == "degraded"
        assert degraded.cluster.reasons == ["node 3 (n3): unreachable: connection refused"]

    run(main)


def test_a_replica_that_does_not_answer_holds_the_status_up_for_a_second() -> None:
    async def main() -> None:
        cluster = Cluster()
        for shard in cluster.of:
            shard.silent = frozenset({3})
        began = trio.current_time()

        status = await status_of(cluster)

        assert trio.current_time() - began == pytest.approx(1.0)
        assert isinstance(status.cluster, msgspec.Struct)
        assert status.cluster.shards[1].replicas[2].reason == "no answer within 1 s"
        assert status.cluster.shards[1].replicas[1].reason == ""

    run(main)


def test_a_node_without_a_replica_shows_what_the_leader_says() -> None:
    async def main() -> None:
        cluster = Cluster(replace(MAP, places=((2, 3), (1, 2, 3))))
        voters = (2, 3)
        leader = replica(2, role="leader", leader=2, voters=voters)
        other = replica(3, leader=2, voters=voters)
        cluster.of[0].known = ShardSeen(0, (up(leader), up(other)), 2, 3)

        status = await status_of(cluster)

        first = status.groups[0]
        assert (first.status, first.state, first.leader_id, first.node_id) == (
            "healthy",
            "Leader",
            "2",
            "1",
        )
        assert not [each for each in first.nodes if each.self]
        assert status.status == "healthy"

    run(main)


def test_without_a_leader_the_status_is_unavailable_and_comes_in_time() -> None:
    async def main() -> None:
        cluster = Cluster()
        electing = [up(replica(1, role="candidate", leader=None, term=4))]
        cluster.see(
            lambda seen: replace(
                without(2, 3)(seen),
                replicas=(*electing, *without(2, 3)(seen).replicas[1:]),
                linked_leader=None,
                error="node 1: knows no leader",
            )
        )

        status = await status_of(cluster)

        assert status.status == "unavailable"
        assert [group.status for group in status.groups] == ["no leader", "no leader"]

    run(main)


def test_a_server_alone_has_no_cluster_in_its_status_and_one_node() -> None:
    async def main() -> None:
        alone = Nest()
        for shard in alone.shards:
            vars(shard)["replicas"] = list

        nodes = await alone.read(NodeList, "/api/v1/cluster/nodes")
        refused = await alone.ask("POST", "/api/v1/cluster/nodes/1/drain")
        removal = await alone.ask("POST", "/api/v1/cluster/nodes/1/remove", REMOVE)

        assert [(node.number, node.name, node.is_self) for node in nodes.nodes] == [
            (1, "node-1", True)
        ]
        assert problem(refused)[:3] == (409, "NO_CLUSTER", "no_map")
        assert problem(removal)[:3] == (409, "NO_CLUSTER", "no_map")

    run(main)


def test_a_node_is_read_by_its_number_and_by_its_name() -> None:
    async def main() -> None:
        cluster = Cluster()

        by_number = await cluster.read(NodeView, "/api/v1/cluster/nodes/2")
        by_name = await cluster.read(NodeView, "/api/v1/cluster/nodes/n2")
        unknown = await cluster.ask("GET", "/api/v1/cluster/nodes/9")
        wrong = await cluster.ask("GET", "/api/v1/cluster/nodes/a%20b")

        assert by_number == by_name
        assert (by_name.number, by_name.address, by_name.version) == (2, "host-2:9400", "0.1.0")
        assert problem(unknown)[:3] == (404, "NOT_FOUND", "node_not_found")
        assert problem(wrong) == (400, "VALIDATION_ERROR", "", "node")

    run(main)


def test_a_node_is_drained_and_undrained() -> None:
    async def main() -> None:
        cluster = Cluster()

        drained = await cluster.told("nodes/n3/drain")
        shown = await cluster.read(NodeView, "/api/v1/cluster/nodes/3")
        again = await cluster.told("nodes/3/drain")
        back = await cluster.told("nodes/3/undrain")

        version = cluster.map.version
        assert drained == (
            200,
            {"status": "draining", "node": "n3", "map_version": version - 1},
        )
        assert shown.state == "draining"
        assert again[1]["map_version"] == version - 1
        assert back[1] == {"status": "not_draining", "node": "3", "map_version": version}
        assert not any(node.is_draining for node in cluster.map.nodes)

    run(main)


def test_the_last_node_that_can_have_replicas_is_not_drained() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.told("nodes/1/drain")
        await cluster.told("nodes/2/drain")

        refused = await cluster.ask("POST", "/api/v1/cluster/nodes/3/drain")
        unknown = await cluster.ask("POST", "/api/v1/cluster/nodes/9/drain")

        assert problem(refused)[:3] == (409, "LAST_NODE", "last_node")
        assert problem(unknown)[:3] == (404, "NOT_FOUND", "node_not_found")

    run(main)


def test_a_dead_node_is_removed_with_the_reason_and_stays_in_the_list() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.see(without(3))

        removed = await cluster.told("nodes/n3/remove", REMOVE)

        assert removed == (
            200,
            {"status": "removed", "node": "n3", "map_version": cluster.map.version},
        )
        listed = await cluster.read(NodeList, "/api/v1/cluster/nodes")
        assert [node.number for node in listed.nodes] == [1, 2]
        assert [(each.number, each.reason) for each in listed.removed] == [(3, "disk lost")]
        missing = await cluster.ask("GET", "/api/v1/cluster/nodes/n3")
        assert problem(missing)[:3] == (404, "NOT_FOUND", "node_removed")

    run(main)


@pytest.mark.parametrize(
    ("away", "node", "force", "code"),
    [
        ((), 3, False, "NODE_NOT_DRAINED"),
        ((), 3, True, ""),
        ((), 1, False, "NODE_NOT_DRAINED"),
        ((3,), 3, False, ""),
        ((3,), 2, False, "NO_MAJORITY"),
        ((3,), 2, True, "NO_MAJORITY"),
        ((2, 3), 3, False, "NO_MAJORITY"),
        ((2, 3), 3, True, "NO_MAJORITY"),
    ],
)
def test_a_removal_is_refused_and_nothing_is_changed(
    away: tuple[int, ...], node: int, force: bool, code: str
) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.see(without(*away))
        before = cluster.map

        status, body = await cluster.told(f"nodes/{node}/remove", {**REMOVE, "force": force})

        assert (status, body.get("code", "")) == ((409, code) if code else (200, ""))
        assert (cluster.map == before) is bool(code)

    run(main)


def test_a_removal_goes_by_the_map_of_shard_0_and_not_by_an_older_one() -> None:
    async def main() -> None:
        cluster = Cluster()
        behind = replace(MAP, nodes=MAP.nodes[:2], places=((1, 2), (1, 2)))
        cluster.api.topology.map = behind

        refused = await cluster.told("nodes/3/remove", REMOVE)

        assert (refused[0], refused[1]["code"]) == (409, "NODE_NOT_DRAINED")

    run(main)


def test_a_removal_needs_a_reason() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.see(without(3))

        for body in ({}, {"reason": ""}, {"reason": "  "}):
            answer = await cluster.ask("POST", "/api/v1/cluster/nodes/3/remove", body)
            assert problem(answer)[0] == 400
            assert problem(answer)[3] == "reason"
        assert len(cluster.map.nodes) == 3

    run(main)


def test_a_removal_that_is_sent_again_under_its_key_has_the_first_answer() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.see(without(3))

        first = await cluster.told("nodes/3/remove", REMOVE, key="r-1")
        again = await cluster.told("nodes/3/remove", REMOVE, key="r-1")
        other = await cluster.told("nodes/3/remove", REMOVE)

        assert first == again
        assert (other[0], other[1]["reason"]) == (404, "node_not_found")

    run(main)


def test_a_removal_waits_for_shard_0_and_changes_nothing_without_it() -> None:
    async def main() -> None:
        cluster = Cluster()
        before = cluster.map
        cluster.of[HOME].is_away = True

        status, body = await cluster.told("nodes/3/remove", REMOVE)

        assert (status, body["code"]) == (503, "LEADER_UNAVAILABLE")
        assert cluster.map == before

    run(main)


def test_a_removal_is_not_done_without_the_map_of_shard_0() -> None:
    """Shard 0 is back just after the map could not be read: nothing was checked."""

    async def main() -> None:
        cluster = Cluster()
        before = cluster.map
        home = cluster.of[HOME]
        asked = home.ask

        async def ask(query: Query) -> Answer:
            home.is_away = True
            try:
                return await asked(query)
            finally:
                home.is_away = False

        vars(home)["ask"] = ask

        status, body = await cluster.told("nodes/3/remove", {**REMOVE, "force": True})

        assert (status, body["code"]) == (503, "LEADER_UNAVAILABLE")
        assert cluster.map == before

    run(main)


def test_two_removals_at_once_do_not_count_on_each_other() -> None:
    async def main() -> None:
        cluster = Cluster()
        answers: list[int] = []

        async def remove(node: int) -> None:
            body = {**REMOVE, "force": True}
            answers.append((await cluster.told(f"nodes/{node}/remove", body))[0])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(remove, 2)
            nursery.start_soon(remove, 3)

        assert sorted(answers) == [200, 409]
        assert len(cluster.map.nodes) == 2

    run(main)


def test_a_removal_is_checked_again_when_another_router_changes_the_map_meanwhile() -> None:
    """Router 2 removes node 2 just when router 1 has checked that node 3 can go."""

    async def main() -> None:
        cluster = Cluster()
        home = cluster.of[HOME]
        submit = home.submit
        others = [RemoveNode(number=2, reason="by another router")]

        async def submit_late(op: Op, *, shield: bool = False) -> Answer:
            if others:
                home.machine.do(others.pop())
            return await submit(op, shield=shield)

        vars(home)["submit"] = submit_late
        body = {**REMOVE, "force": True}

        status, refused = await cluster.told("nodes/3/remove", body, key="k")

        assert (status, refused["code"]) == (409, "NO_MAJORITY")
        assert [node.number for node in cluster.map.nodes] == [1, 3]

    run(main)


def test_a_removal_that_succeeds_in_the_end_has_the_same_answer_under_its_key() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.see(without(3))
        home = cluster.of[HOME]
        submit = home.submit
        others: list[TypedOp[MapDone | Rejected]] = [DrainNode(number=1)]

        async def submit_late(op: Op, *, shield: bool = False) -> Answer:
            if others:
                home.machine.do(others.pop())
            return await submit(op, shield=shield)

        vars(home)["submit"] = submit_late

        first = await cluster.told("nodes/3/remove", REMOVE, key="k")
        again = await cluster.told("nodes/3/remove", REMOVE, key="k")

        assert first[0] == 200
        assert first == again

    run(main)


def test_a_removal_ends_if_the_map_changes_all_the_time() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.see(without(3))
        home = cluster.of[HOME]
        submit = home.submit
        count = 0

        async def submit_late(op: Op, *, shield: bool = False) -> Answer:
            nonlocal count
            count += 1
            home.machine.do(DrainNode(number=1, is_draining=count % 2 == 1))
            return await submit(op, shield=shield)

        vars(home)["submit"] = submit_late

        status, refused = await cluster.told("nodes/3/remove", REMOVE)

        assert (status, refused["code"], count) == (409, "MAP_CHANGED", 3)

    run(main)


def test_the_number_of_replicas_is_set() -> None:
    async def main() -> None:
        cluster = Cluster()

        done = await cluster.told("replicas", {"replicas": 5}, method="PUT")
        wrong = await cluster.ask("PUT", "/api/v1/cluster/replicas", {"replicas": 8})

        assert done == (
            200,
            {"status": "ok", "replicas": 5, "map_version": cluster.map.version},
        )
        assert cluster.map.replicas == 5
        assert problem(wrong)[0] == 400

    run(main)


def test_joining_over_http_is_answered_with_the_command_or_that_it_was_done() -> None:
    async def main() -> None:
        cluster = Cluster()

        member = await cluster.told("join", {"node_id": "n2", "addr": "host-2:9000"})
        numbered = await cluster.told("join", {"node_id": "2"})
        status, refused = await cluster.told("join", {"node_id": "n9", "addr": "host-9:9400"})

        assert member == (
            200,
            {"status": "ok", "added": False, "node_id": "n2", "addr": "host-2:9000"},
        )
        assert numbered[1]["addr"] == "host-2:9400"
        assert (status, refused["code"]) == (409, "JOIN_FROM_NODE")
        assert refused["error"] == (
            "a node joins by itself: start it with `corvo server --join host-1:9400`"
        )

    run(main)
