"""Replicas move to where the map places them: a node is drained, removed, lost and replaced."""

import shutil
from pathlib import Path

import trio

from corvo.child import MISCONFIGURED
from tests.cluster.answers import Node, Nodes, Page, Status
from tests.cluster.nodes import PATIENCE_S, Cluster, Member, as_initial, cluster_of, members_in
from tests.support.links import on_sockets

SECRET = "sixteen letters, or more"  # noqa: S105 -- of no cluster
JOBS = 40


async def nodes_of(cluster: Cluster, member: Member) -> dict[str, Node]:
    """The nodes as one of them shows them."""
    answer = await cluster.until(member, "GET", "/api/v1/cluster/nodes")
    return {node.name: node for node in answer.read(Nodes).nodes}


async def is_healthy_with(cluster: Cluster, voters: list[list[int]]) -> bool:
    """Whether just these nodes vote in each shard, and all replicas of the shards know it."""
    answer = await cluster.until(cluster[0], "GET", "/api/v1/cluster/status")
    view = answer.read(Status).cluster
    seen = [sorted(one.node for one in shard.replicas if one.is_voter) for shard in view.shards]
    return seen == voters and view.status == "healthy"


async def fill(cluster: Cluster, member: Member) -> None:
    """Put jobs into all shards."""
    for number in range(JOBS):
        job = {"queue": f"mail-{number % 7}", "payload": {"number": number}}
        await cluster.until(member, "POST", "/api/v1/enqueue", job, key=f"job-{number}")


async def check(cluster: Cluster, member: Member) -> None:
    """All jobs are there, whichever node is asked."""
    body = {"limit": 1, "consistency": "wait"}
    answer = await cluster.until(member, "POST", "/api/v1/jobs/search", body)
    with trio.move_on_after(PATIENCE_S):
        while answer.read(Page).is_behind:
            answer = await cluster.until(member, "POST", "/api/v1/jobs/search", body)
    page = answer.read(Page)
    assert (page.is_behind, page.total) == (False, JOBS), f"{answer}: {member.node.story()}"


def shards_of(member: Member) -> list[str]:
    """The shards of which a node has data."""
    return sorted(path.name for path in member.data.glob("shard-*"))


@on_sockets
async def test_a_drained_node_has_nothing_left_and_is_refused_once_it_was_removed(
    tmp_path: Path,
) -> None:
    members = await members_in(tmp_path, ["a", "b", "c", "d"], cluster__secret=SECRET)
    as_initial(members)
    first, last = members[0], members[3]
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        await fill(cluster, last)

        await cluster.until(first, "POST", "/api/v1/cluster/nodes/d/drain")
        with trio.fail_after(PATIENCE_S):
            while shards_of(last):
                await check(cluster, first)
        assert (await nodes_of(cluster, first))["d"].state == "draining"
        await check(cluster, last)
        reason = {"reason": "its rack moves"}
        await cluster.until(first, "POST", "/api/v1/cluster/nodes/d/remove", reason)

        last.kill()
        await cluster.gone(last)
        node = await cluster.start(last)
        with trio.fail_after(PATIENCE_S):
            assert await node.gone() == MISCONFIGURED
        [refused] = node.find("node.refused")
        assert "its rack moves" in str(refused["reason"])
        assert {*await nodes_of(cluster, first)} == {"a", "b", "c"}
        await check(cluster, first)


async def lose(cluster: Cluster, lost: Member) -> None:
    """Kill node c, with its disk, and have it removed."""
    lost.kill()
    await cluster.gone(lost)
    shutil.rmtree(lost.data)
    reason = {"reason": "its disk burned", "force": True}
    await cluster.until(cluster[0], "POST", "/api/v1/cluster/nodes/c/remove", reason)


async def until_fourth_votes(cluster: Cluster, member: Member) -> None:
    """Start a node, and wait until it votes in each shard as the fourth of the cluster.

    From then on, each of the others may fail.
    """
    await cluster.start(member)
    await member.node.hear("node.ready")
    with trio.fail_after(PATIENCE_S):
        while not await is_healthy_with(cluster, [[1, 2, 4], [1, 2, 4]]):
            await check(cluster, cluster[0])


@on_sockets
async def test_a_lost_node_is_replaced_and_nothing_is_missing(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c", "new"])
    as_initial(members[:3])
    first, lost, new = members[0], members[2], members[3]
    new.settings["cluster.join"] = first.peer
    async with cluster_of(members) as cluster:
        for member in members[:3]:
            await cluster.start(member)
        for member in members[:3]:
            await member.node.hear("node.ready")
        await fill(cluster, first)
        await lose(cluster, lost)
        await until_fourth_votes(cluster, new)
        assert {*await nodes_of(cluster, new)} == {"a", "b", "new"}
        members[1].kill()  # the new one is needed for a majority now
        await cluster.gone(members[1])
        await check(cluster, new)


@on_sockets
async def test_a_first_node_that_lost_its_disk_and_was_removed_joins_under_its_name(
    tmp_path: Path,
) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"])
    as_initial(members)
    first, lost = members[0], members[2]
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        await fill(cluster, first)
        await lose(cluster, lost)
        await until_fourth_votes(cluster, lost)
        assert {*await nodes_of(cluster, lost)} == {"a", "b", "c"}


@on_sockets
async def test_a_node_with_another_secret_is_refused(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b"], cluster__secret=SECRET)
    first, other = members
    first.settings["cluster.bootstrap"] = "on"
    other.settings |= {"cluster.join": first.peer, "cluster.secret": f"not {SECRET}"}
    async with cluster_of(members) as cluster:
        await cluster.start(first)
        await first.node.hear("node.ready")

        node = await cluster.start(other)
        with trio.fail_after(PATIENCE_S):
            assert await node.gone() == MISCONFIGURED

        [refused] = node.find("node.refused")
        assert "set cluster.secret to the same value on all nodes" in str(refused["reason"])
        assert not (other.data / "node.json").exists()
