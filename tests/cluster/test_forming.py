"""Nodes become clusters: first ones together, others by joining; wrong ones are told why."""

import os
import shutil
import signal
import threading
from pathlib import Path

import msgspec
import trio

from corvo.child import MISCONFIGURED
from corvo.datadir import open_directory
from tests.cluster.answers import Given
from tests.cluster.nodes import (
    PATIENCE_S,
    REAL,
    Cluster,
    Member,
    as_initial,
    cluster_of,
    members_in,
)
from tests.support.links import on_sockets
from tests.support.nodes import running

SECRET = "sixteen letters, or more"  # noqa: S105 -- of no cluster
QUEUES = [f"mail-{number}" for number in range(8)]


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


def listing(directory: Path) -> dict[str, bytes] | None:
    """Every file below a directory, with its content; None if there is no directory."""
    if not directory.exists():
        return None
    paths = sorted(directory.rglob("*"))
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b""
        for path in paths
    }


async def refused(cluster: Cluster, member: Member) -> str:
    """Start a node that must not start: its only line about that. It writes nothing."""
    before = listing(member.data)
    build = member.build
    member.build = build or "patient"  # without answers for two seconds, it may start otherwise
    node = await cluster.start(member)
    with trio.fail_after(PATIENCE_S):
        code = await node.gone()
    member.build = build
    assert code == MISCONFIGURED, node.events
    assert listing(member.data) == before
    told = [str(one["reason"]) for one in node.find("node.refused")]
    (line,) = [*told, *node.texts]
    return line


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
async def test_new_nodes_that_are_wrong_are_refused_with_what_to_do(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "twin", "many", "self", "lost", "lone", "thief"])
    first, twin, many, alone, lost, lone, thief = members
    first.settings |= {"cluster.bootstrap": "on", "cluster.secret": SECRET}
    for member in (twin, many, lone, thief):
        member.settings["cluster.join"] = first.peer
    for member in (twin, alone):
        del member.settings["shards"]
    for member in (twin, many):
        member.settings["cluster.secret"] = SECRET
    twin.settings["cluster.node_id"] = "a"
    many.settings["shards"] = "3"
    alone.settings["cluster.join"] = alone.peer
    lost.settings |= {"cluster.join": lone.peer, "cluster.join_wait_ms": "1100"}
    thief.settings["cluster.secret"] = SECRET + ", but of another cluster"
    thief.data.mkdir()  # a directory that is empty stays, and stays empty
    async with cluster_of(members) as cluster:
        await cluster.start(first)
        await first.node.hear("node.ready")

        reasons = {member.name: await refused(cluster, member) for member in members[1:]}

    assert "has the name 'a': choose another name" in reasons["twin"]
    assert "has 2 shards, and the setting shards is 3: remove the setting" in reasons["many"]
    assert "this node itself: name another node, or start" in reasons["self"]
    assert f"no node of a cluster has answered at {lone.peer} for 1.1 s" in reasons["lost"]
    assert "check the address and that a node runs there" in reasons["lost"]
    assert "set cluster.secret to the same value on all nodes" in reasons["lone"]
    assert "has a cluster secret, and the node that joins has none" in reasons["lone"]
    assert "is not that of" in reasons["thief"]
    assert [member.data.exists() for member in members[1:]] == [False] * 5 + [True]


@on_sockets
async def test_directories_that_belong_to_something_else_are_refused(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "other"])
    first, second, other = members
    first.settings["cluster.bootstrap"] = "on"
    second.settings["cluster.join"] = first.peer
    other.settings["cluster.bootstrap"] = "on"
    async with cluster_of(members) as cluster:
        await cluster.start(first)
        await first.node.hear("node.ready")
        for member in (second, other):
            await cluster.start(member)
            await member.node.hear("node.ready")
            assert await member.node.end() == 0

        # Of another cluster.
        del other.settings["cluster.bootstrap"]
        other.settings["cluster.join"] = first.peer
        assert "remove --join, or use another --data-dir" in await refused(cluster, other)

        # Of a node that has joined.
        good = dict(second.settings)
        wrong: dict[str, tuple[dict[str, str], str]] = {
            "bootstrap": ({"cluster.join": "", "cluster.bootstrap": "on"}, "remove --bootstrap"),
            "name": (
                {"cluster.node_id": "renamed"},
                "belongs to node b, and cluster.node_id is renamed",
            ),
            "shards": ({"shards": "3"}, "has 2 shards, and the setting shards is 3"),
            "secret": ({"cluster.secret": SECRET}, "set cluster.secret to the same value"),
        }
        for settings, reason in wrong.values():
            second.settings = {**good, **settings}
            if not second.settings["cluster.join"]:
                del second.settings["cluster.join"]
            assert reason in await refused(cluster, second)

        # All that it was told before was wrong, and has changed nothing.
        second.settings = good
        await cluster.start(second)
        await second.node.hear("node.ready")


@on_sockets
async def test_a_node_whose_directory_was_wiped_or_copied_is_refused(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"])
    as_initial(members)
    copy = (await members_in(tmp_path, ["copy"]))[0]
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        with trio.fail_after(PATIENCE_S):
            await members[2].node.hear("cluster.map")

        # A copy beside the node, at other ports, and with the same settings otherwise. The node
        # must not replace files meanwhile.
        members[2].kill()
        await cluster.gone(members[2])
        shutil.copytree(members[2].data, copy.data, ignore=shutil.ignore_patterns("run"))
        await cluster.start(members[2])
        await members[2].node.hear("node.ready")
        copy.settings |= {"cluster.node_id": "c"}
        reason = await refused(cluster, copy)
        assert f"node 3 (c) runs at {members[2].peer} already" in reason
        assert "is a copy of its data directory" in reason

        members[2].kill()
        await cluster.gone(members[2])
        shutil.rmtree(members[2].data)

        reason = await refused(cluster, members[2])

        assert "has another data directory" in reason


@on_sockets
async def test_a_node_of_a_test_has_ended_as_a_whole_after_it_was_cancelled(
    tmp_path: Path,
) -> None:
    (member,) = await members_in(tmp_path, ["a"])
    with trio.CancelScope() as scope:
        async with running(member.settings, REAL) as node:
            # A process that ends late: it stands still until a while after the cancellation.
            late = int(str((await node.hear("process.ready"))["pid"]))
            os.kill(late, signal.SIGSTOP)
            threading.Timer(1.0, os.kill, (late, signal.SIGCONT)).start()
            scope.cancel()
            await trio.sleep_forever()

    assert scope.cancelled_caught
    # Each process of the node has the lock of its directory.
    lock = open_directory(str(member.data)).try_lock()
    assert lock is not None
    os.close(lock)
