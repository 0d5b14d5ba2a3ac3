"""Nodes become clusters: first ones together, others by joining; wrong ones are told why."""

import shutil
from pathlib import Path

import msgspec
import trio

from corvo.child import MISCONFIGURED
from tests.cluster.nodes import (
    PATIENCE_S,
    Cluster,
    Member,
    as_initial,
    cluster_of,
    members_in,
)
from tests.support.links import on_sockets

QUEUES = [f"mail-{number}" for number in range(8)]


class Given(msgspec.Struct):
    """A job that was fetched."""

    job_id: str
    lease_token: int = 0


@on_sockets
async def test_three_nodes_that_start_together_are_one_cluster(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"])
    as_initial(members)
    async with cluster_of(members) as cluster:
        await cluster.start_all()

        for number, queue in enumerate(QUEUES):
            member = members[number % 3]
            await cluster.until(member, "POST", "/api/v1/enqueue", {"queue": queue}, key=queue)
        for number, queue in enumerate(QUEUES):
            member = members[(number + 1) % 3]
            asked = {"queues": [queue], "worker_id": "w"}
            job = (await cluster.until(member, "POST", "/api/v1/fetch", asked)).read(Given)
            done = await cluster.until(
                members[(number + 2) % 3],
                "POST",
                f"/api/v1/ack/{job.job_id}",
                {"lease_token": job.lease_token},
            )
            assert done.status == 200

        for member in members:
            assert await member.node.end() == 0


class Node(msgspec.Struct):
    """A node in the map, as the data directory has it."""

    number: int
    name: str


class Map(msgspec.Struct):
    """The map in a data directory."""

    version: int
    nodes: list[Node]
    places: list[list[int]]


def map_of(member: Member) -> Map:
    """The map that a node has kept."""
    return msgspec.json.decode((member.data / "cluster.json").read_bytes(), type=Map)


def is_placed(known: Map) -> bool:
    """Whether the four nodes are in the map, and each shard has three of them."""
    return len(known.nodes) == 4 and all(len(place) == 3 for place in known.places)


async def refused(cluster: Cluster, member: Member) -> str:
    """Start a node that must not start: the reason."""
    node = await cluster.start(member)
    with trio.fail_after(PATIENCE_S):
        code = await node.gone()
    assert code == MISCONFIGURED, node.events
    told = [str(one["reason"]) for one in node.find("node.refused")]
    return " ".join([*told, *node.texts])


@on_sockets
async def test_nodes_join_a_cluster_of_one_and_each_shard_gets_three_replicas(
    tmp_path: Path,
) -> None:
    members = await members_in(tmp_path, ["a", "b", "c", "d"])
    members[0].settings["cluster.bootstrap"] = "on"
    for member in members[1:]:
        member.settings["cluster.join"] = members[0].peer
    async with cluster_of(members) as cluster:
        await cluster.start(members[0])
        job = {"queue": "mail", "payload": {"to": "ada"}}
        made = await cluster.until(members[0], "POST", "/api/v1/enqueue", job, key="one")
        for member in members[1:]:
            await cluster.start(member)
            await member.node.hear("node.ready")

        fetched = {"queues": ["mail"], "worker_id": "w"}
        given = (await cluster.until(members[3], "POST", "/api/v1/fetch", fetched)).read(Given)

        assert given.job_id == made.read(Given).job_id
        with trio.fail_after(PATIENCE_S):
            while not is_placed(map_of(members[1])):
                await cluster.ask(members[1], "GET", "/api/v1/info")
        assert [node.name for node in map_of(members[1]).nodes] == ["a", "b", "c", "d"]


@on_sockets
async def test_wrong_nodes_are_refused_with_what_to_do(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "twin", "many", "self", "other"])
    first, second, twin, many, alone, other = members
    first.settings["cluster.bootstrap"] = "on"
    for member in (second, twin, many):
        member.settings["cluster.join"] = first.peer
    twin.settings["cluster.node_id"] = "a"
    many.settings["shards"] = "3"
    alone.settings["cluster.join"] = alone.peer
    other.settings["cluster.bootstrap"] = "on"
    for member in (second, twin, alone):
        del member.settings["shards"]
    async with cluster_of(members) as cluster:
        await cluster.start(first)
        await first.node.hear("node.ready")

        assert "has the name 'a': choose another name" in await refused(cluster, twin)
        assert "has 2 shards, and the setting shards is 3" in await refused(cluster, many)
        assert "this node itself" in await refused(cluster, alone)
        assert not (twin.data / "node.json").exists()
        assert not (many.data / "node.json").exists()

        await cluster.start(other)
        await other.node.hear("node.ready")
        assert await other.node.end() == 0
        del other.settings["cluster.bootstrap"]
        other.settings["cluster.join"] = first.peer
        assert "remove --join, or use another" in await refused(cluster, other)

        await cluster.start(second)
        await second.node.hear("node.ready")
        assert await second.node.end() == 0
        second.settings["cluster.bootstrap"] = "on"
        del second.settings["cluster.join"]
        assert "remove --bootstrap" in await refused(cluster, second)
        del second.settings["cluster.bootstrap"]
        second.settings["cluster.join"] = first.peer
        second.settings["cluster.node_id"] = "renamed"
        assert "belongs to node b, and cluster.node_id is renamed" in await refused(cluster, second)


@on_sockets
async def test_a_node_whose_directory_was_wiped_or_copied_is_refused(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"])
    as_initial(members)
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        with trio.fail_after(PATIENCE_S):
            await members[2].node.hear("cluster.map")
        members[2].kill()
        await cluster.gone(members[2])
        shutil.rmtree(members[2].data)

        reason = await refused(cluster, members[2])

        assert "has another data directory" in reason
