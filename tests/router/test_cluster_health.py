"""Probes and metrics of a node in a cluster: of its own replicas, and of what it can reach."""

import msgspec
from msgspec.structs import replace

from corvo.protocol.numbers import ClockNumbers, Numbers
from corvo.router.cluster.overview import ShardSeen
from corvo.router.http.messages import Response
from corvo.router.node.health import Health, Ready, Runtime
from tests.router.clusters import MAP, Cluster, replica, up, with_node, without
from tests.router.nests import Nest, run
from tests.router.test_node_endpoints import lines_of

ANNOUNCED = msgspec.structs.replace(
    MAP, nodes=tuple(replace(node, instance=f"dir-{node.number}") for node in MAP.nodes)
)


async def ready_of(cluster: Nest) -> tuple[int, Ready]:
    answer = await cluster.ask("GET", "/readyz", query={"verbose": ""})
    return answer.status, msgspec.json.decode(answer.body, type=Ready)


def test_a_node_that_the_cluster_has_accepted_is_ready() -> None:
    async def main() -> None:
        status, ready = await ready_of(Cluster(ANNOUNCED))

        assert (status, ready.status, ready.warnings) == (200, "ok", [])
        assert [each.name for each in ready.checks] == ["shard-0", "shard-1", "cluster", "router"]

    run(main)


def test_a_node_is_not_ready_before_it_is_accepted_and_after_it_was_removed() -> None:
    async def main() -> None:
        cluster = Cluster()
        new = await ready_of(cluster)
        starting = Cluster(ANNOUNCED)
        starting.api.map_keeper.is_announced = False
        again = await ready_of(starting)
        cluster.see(without(3))
        await cluster.told("nodes/3/remove", {"reason": "disk lost"})
        gone = Cluster(ANNOUNCED)
        vars(gone.api)["config"] = replace(gone.api.config, node=3)
        gone.api.topology.map = cluster.map

        removed = await ready_of(gone)

        assert (new[0], new[1].missing) == (503, ["cluster"])
        assert (again[0], again[1].missing) == (503, ["cluster"])
        assert new[1].error == "cluster: the cluster has not accepted the node yet"
        assert (removed[0], removed[1].missing) == (503, ["cluster"])
        assert removed[1].error.endswith("it was removed: disk lost")

    run(main)


def test_a_node_is_ready_only_while_it_reaches_the_leader_of_each_shard() -> None:
    async def main() -> None:
        cluster = Cluster(ANNOUNCED)
        home, other = cluster.of
        other.known = replace(other.known, linked_leader=None, error="node 2: knows no leader")

        status, ready = await ready_of(cluster)

        assert home.is_up
        assert (status, ready.missing) == (503, ["shard-1"])
        assert "node 2: knows no leader" in ready.error

    run(main)


def test_a_draining_node_is_ready_and_warns() -> None:
    async def main() -> None:
        status, ready = await ready_of(Cluster(with_node(ANNOUNCED, 1, is_draining=True)))

        assert status == 200
        assert ready.warnings == ["the node is draining: its replicas are moved to other nodes"]

    run(main)


def test_warnings_are_of_the_nodes_own_replicas() -> None:
    async def main() -> None:
        cluster = Cluster(ANNOUNCED)
        apart = replica(2, role="leader", clock=ClockNumbers("faster", 9_000_000_000, 1))
        home = cluster.of[0]
        home.known = replace(home.known, replicas=(up(replica(1, role="follower")), up(apart)))

        _, ready = await ready_of(cluster)

        assert ready.warnings == []

    run(main)


def test_metrics_have_the_nodes_own_replicas_and_what_it_can_reach() -> None:
    async def main() -> None:
        cluster = Cluster(with_node(ANNOUNCED, 2, is_draining=True))
        led_elsewhere = (up(replica(1, role="follower", leader=2)), up(lead(2)))
        cluster.of[1].known = ShardSeen(1, led_elsewhere, 2, 3)
        cluster.see(without(3))

        seen = lines_of(await cluster.ask("GET", "/metrics"))

        assert seen['corvo_raft_is_leader{shard="0"}'] == 1
        assert seen['corvo_raft_is_leader{shard="1"}'] == 0
        assert seen['corvo_shard_replicas{shard="0"}'] == 3
        assert 'corvo_shard_replicas{shard="1"}' not in seen
        assert seen['corvo_shard_replica_lag_entries{shard="0",node="3"}'] == 10
        assert seen['corvo_cluster_nodes{state="active"}'] == 2
        assert seen['corvo_cluster_nodes{state="draining"}'] == 1
        assert seen["corvo_cluster_map_version"] == 0
        reached = [seen[f'corvo_cluster_node_reachable{{node="{node}"}}'] for node in (1, 2, 3)]
        assert reached == [1, 1, 0]

    run(main)


def lead(node: int) -> Numbers:
    return replica(node, role="leader", leader=node)


def test_a_node_without_a_replica_has_no_lines_of_the_shard_and_is_well() -> None:
    async def main() -> None:
        cluster = Cluster(replace(ANNOUNCED, places=((2, 3), (1, 2, 3))))
        cluster.of[0].known = ShardSeen(0, (up(lead(2)), up(replica(3, leader=2))), 2, 3)

        answer = await cluster.ask("GET", "/metrics")
        seen = lines_of(answer)
        status, ready = await ready_of(cluster)
        runtime = await cluster.read(Runtime, "/api/v1/debug/runtime")

        assert not [line for line in seen if line.startswith("corvo_raft") and 'shard="0"' in line]
        assert 'corvo_shard_scrape_success{shard="0"}' not in seen
        assert seen['corvo_shard_scrape_success{shard="1"}'] == 1
        assert seen["corvo_metrics_errors_total"] == 0
        assert seen["corvo_queues"] == 0
        assert (status, ready.status) == (200, "ok")
        assert ([*runtime.processes], runtime.gomaxprocs) == (["router", "shard-1"], 2)

    run(main)


def test_a_node_without_any_replica_is_healthy_while_a_shard_can_be_reached() -> None:
    async def main() -> None:
        cluster = Cluster(replace(ANNOUNCED, places=((2, 3), (2, 3))))
        cluster.see(lambda seen: ShardSeen(seen.number, (up(lead(2)),), 2, 3))

        healthy = await cluster.ask("GET", "/healthz")
        cluster.see(lambda seen: replace(seen, linked_leader=None))
        lost = await cluster.ask("GET", "/healthz")

        assert health_of(healthy) == Health("ok", "Follower", False)
        assert lost.status == 503

    run(main)


def health_of(answer: Response) -> Health:
    return msgspec.json.decode(answer.body, type=Health)
