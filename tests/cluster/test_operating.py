"""An operator and a cluster: a node is drained and removed, another one dies and is removed."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from corvo.router.cluster.bodies import EventList, NodeList, NodeView
from corvo.router.http.messages import ProblemBody
from corvo.router.node.health import ClusterStatus, Ready
from tests.cluster.nodes import PATIENCE_S, Cluster, Member, as_initial, cluster_of, members_in
from tests.support.links import on_sockets

T = TypeVar("T")
NODES = "/api/v1/cluster/nodes"
STATUS = "/api/v1/cluster/status"


async def see(
    cluster: Cluster, member: Member, path: str, kind: type[T], wanted: Callable[[T], bool]
) -> T:
    """Ask until the answer is as wanted."""
    with trio.move_on_after(PATIENCE_S):
        while True:
            answer = await cluster.until(member, "GET", path)
            told = msgspec.json.decode(answer.body, type=kind)
            if wanted(told):
                return told
            await trio.sleep(0.05)
    raise AssertionError(f"{path} at {member.name}: {answer.body!r}")


def is_healthy(status: ClusterStatus) -> bool:
    return status.status == "healthy"


def misses_second(status: ClusterStatus) -> bool:
    """Whether the cluster is degraded because node 2 cannot be reached."""
    assert isinstance(status.cluster, msgspec.Struct)
    reasons = status.cluster.reasons
    is_missed = any(reason.startswith("node 2 (b): unreachable") for reason in reasons)
    return is_missed and status.status == "degraded"


async def unready(cluster: Cluster, member: Member) -> Ready:
    """Wait until a node is not ready."""
    with trio.fail_after(PATIENCE_S):
        while True:
            answer = await cluster.ask(member, "GET", "/readyz")
            if answer.status != 200:
                return msgspec.json.decode(answer.body, type=Ready)
            await trio.sleep(0.05)


async def refused(
    cluster: Cluster, member: Member, node: str, code: str, **body: object
) -> ProblemBody:
    """Why a node is not removed. A shard may answer too late to be counted: then it is another."""
    path, told = f"{NODES}/{node}/remove", {"reason": "test", **body}
    with trio.fail_after(PATIENCE_S):
        while True:
            answer = await cluster.ask(member, "POST", path, told)
            assert answer.status == 409, answer
            problem = msgspec.json.decode(answer.body, type=ProblemBody)
            if problem.code == code:
                return problem


@on_sockets
async def test_nodes_are_drained_and_removed_and_no_removal_stops_a_shard(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c", "d"])
    as_initial(members)
    first, second, third, _ = members
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        await see(cluster, first, STATUS, ClusterStatus, is_healthy)

        # A node that is there is drained first.
        await refused(cluster, first, "c", "NODE_NOT_DRAINED")
        await cluster.until(second, "POST", f"{NODES}/c/drain")
        await see(cluster, second, f"{NODES}/c", NodeView, lambda node: not node.replicas)
        await cluster.until(first, "POST", f"{NODES}/c/remove", {"reason": "its rack moves"})
        listed = await see(cluster, second, NODES, NodeList, lambda nodes: bool(nodes.removed))
        gone = await unready(cluster, third)
        removed = await third.node.hear("cluster.removed")

        # A node that is dead is removed at once, unless a shard needs another one.
        second.kill()
        await cluster.gone(second)
        await see(cluster, first, STATUS, ClusterStatus, misses_second)
        await refused(cluster, first, "d", "NO_MAJORITY", force=True)
        await cluster.until(first, "POST", f"{NODES}/2/remove", {"reason": "dead"})
        job = await cluster.until(first, "POST", "/api/v1/enqueue", {"queue": "mail"}, key="one")
        seen = await see(
            cluster,
            first,
            "/api/v1/cluster/events",
            EventList,
            lambda told: [each.type for each in told.events].count("node_removed") == 2,
        )

    assert [(each.name, each.reason) for each in listed.removed] == [("c", "its rack moves")]
    assert gone.error.endswith("was removed from the cluster by an operator: its rack moves")
    assert removed["reason"] == "its rack moves"
    assert job.status == 201
    types = {each.type for each in seen.events}
    assert {"leader_elected", "node_joined", "node_draining", "shard_placed"} <= types
