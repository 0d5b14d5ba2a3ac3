"""Probes and metrics of a node in a cluster: of its own replicas, and of what it can reach."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.protocol.numbers import ClockNumbers, Numbers, QueueCounters, QueueCountersPage
from corvo.router.cluster.overview import ShardSeen
from corvo.router.http.messages import Response
from corvo.router.node.health import (
    UNLED_GRACE_S,
    Check,
    Health,
    Ready,
    Runtime,
    ShardReach,
    excused,
    readiness,
)
from tests.router.clusters import MAP, Cluster, ClusterShard, replica, up, with_node, without
from tests.router.nests import Nest, run
from tests.router.test_node_endpoints import lines_of, one_queue_each

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
        assert removed[1].error == (
            "cluster: node 3 (n3) was removed from the cluster by an operator: disk lost"
        )

    run(main)


def lose(shard: ClusterShard, lost_s: float) -> None:
    """Its leader cannot be reached, for so long."""
    shard.known = replace(shard.known, linked_leader=None, error="node 2: knows no leader")
    shard.lost_s = lost_s


def test_a_node_is_not_ready_while_the_leader_of_a_shard_is_being_elected() -> None:
    async def main() -> None:
        cluster = Cluster(ANNOUNCED)
        home, other = cluster.of
        lose(other, UNLED_GRACE_S - 0.1)

        status, ready = await ready_of(cluster)

        assert home.is_up
        assert (status, ready.status, ready.missing) == (503, "unavailable", ["shard-1"])
        assert "node 2: knows no leader" in ready.error

    run(main)


def test_a_node_that_stops_soon_is_not_ready_and_serves() -> None:
    async def main() -> None:
        cluster = Cluster(ANNOUNCED)
        before = await ready_of(cluster)

        cluster.api.is_leaving = True
        status, ready = await ready_of(cluster)

        assert before[0] == 200
        assert (status, ready.missing) == (503, ["router"])
        assert "the server is stopping" in ready.error
        assert not cluster.api.stopping.is_set(), "long polls and streams go on"

    run(main)


def test_a_node_is_ready_and_names_the_shard_that_has_had_no_leader_for_long() -> None:
    async def main() -> None:
        cluster = Cluster(ANNOUNCED)
        lose(cluster.of[1], UNLED_GRACE_S)
        why = "the shard is unavailable or has no leader: node 2: knows no leader"

        status, ready = await ready_of(cluster)
        cluster.api.stop()
        stopping = await ready_of(cluster)

        assert (status, ready.status, ready.code) == (200, "degraded", "")
        assert (ready.missing, ready.warnings) == (["shard-1"], [f"shard-1: {why}"])
        assert ready.checks[1] == Check("shard-1", False, why)
        assert (stopping[0], stopping[1].missing) == (503, ["shard-1", "router"])

    run(main)


def test_a_node_in_a_minority_is_never_ready() -> None:
    async def main() -> None:
        cluster = Cluster(ANNOUNCED)
        for each in cluster.of:
            lose(each, 3_600.0)

        status, ready = await ready_of(cluster)

        assert (status, ready.missing) == (503, ["shard-0", "shard-1"])

    run(main)


def test_a_shard_of_a_single_node_is_required_however_long_it_is_away() -> None:
    async def main() -> None:
        cluster = Cluster(replace(ANNOUNCED, nodes=ANNOUNCED.nodes[:1], places=((1,), (1,))))
        lose(cluster.of[1], 3_600.0)

        status, ready = await ready_of(cluster)

        assert (status, ready.missing) == (503, ["shard-1"])

    run(main)


@pytest.mark.parametrize(("lost_s", "status"), [(9.9, 503), (10.0, 200)])
def test_a_start_does_not_wait_for_a_shard_that_no_node_has(lost_s: float, status: int) -> None:
    async def main() -> None:
        cluster = Cluster(ANNOUNCED)
        lose(cluster.of[1], lost_s)
        cluster.of[1].known = replace(cluster.of[1].known, term=0)

        started = await cluster.ask("GET", "/startupz")

        assert started.status == status
        told = msgspec.json.decode(started.body, type=Ready)
        assert told.missing == ["shard-1"]

    run(main)


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 20)), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_the_rule_of_readiness(
    reached: list[tuple[bool, float]], is_alone: bool, is_stopping: bool
) -> None:
    shards = [
        ShardReach(shard=number, is_reached=is_reached, missing_s=missing_s, why="away")
        for number, (is_reached, missing_s) in enumerate(reached)
    ]
    stopping = Check("router", not is_stopping, "stopping")

    told = readiness(
        [*(each.check for each in shards), stopping],
        is_verbose=False,
        excused=excused(shards, is_alone=is_alone),
    )

    missing = [missing_s for is_reached, missing_s in reached if not is_reached]
    reaches_some = len(missing) < len(reached)
    is_lasting = all(missing_s >= UNLED_GRACE_S for missing_s in missing)
    expected = not missing or (not is_alone and reaches_some and is_lasting)
    assert told.is_ready == (expected and not is_stopping)
    assert len(told.missing) == len(missing) + is_stopping
    assert len(told.warnings) == (len(missing) if told.is_ready else 0)


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


def test_metrics_have_the_counters_of_own_replicas_and_zeros_for_other_queues() -> None:
    async def main() -> None:
        cluster = Cluster(ANNOUNCED)
        mail, sms = one_queue_each(2)
        for queue in (mail, sms):
            await cluster.ask("POST", "/api/v1/enqueue", {"queue": queue})
        cluster.of[0].counters = QueueCountersPage([QueueCounters(mail, (7,))])

        seen = lines_of(await cluster.ask("GET", "/metrics"))
        cluster.of[0].is_older = True
        older = lines_of(await cluster.ask("GET", "/metrics"))

        names = [f'corvo_jobs_enqueued_total{{queue="{queue}"}}' for queue in (mail, sms)]
        assert [seen[name] for name in names] == [7, 0]
        assert seen[f'corvo_jobs_dead_total{{queue="{mail}"}}'] == 0
        assert [older.get(name) for name in names] == [None, 0]
        assert older['corvo_shard_scrape_success{shard="0"}'] == 1

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
