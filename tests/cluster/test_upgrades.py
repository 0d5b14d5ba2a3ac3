"""Nodes of two releases in one cluster, under load: the later one knows one op more."""

from pathlib import Path

import msgspec
import trio

from corvo.protocol.wire import OP_VERSION
from corvo.router.http.messages import ProblemBody
from corvo.router.node.health import ClusterStatus
from tests.cluster.nodes import PATIENCE_S, Cluster, Member, as_initial, cluster_of, members_in
from tests.cluster.rolling import Rolling
from tests.cluster.test_forming import refused
from tests.cluster.test_operating import STATUS, see
from tests.support.links import on_sockets

PAUSE = "/api/v1/queues/{}/pause"
QUEUES = ("mail-1", "mail-2", "mail-3")
"""In both shards."""
PATIENT = "1m"
"""How long requests wait for a leader: elections take longer on a busy machine."""


async def held_back(cluster: Cluster, member: Member) -> list[str]:
    """Use the new op at a node of the new release: why it is refused."""
    reasons = []
    for queue in QUEUES:
        answer = await cluster.ask(member, "POST", PAUSE.format(queue))
        problem = msgspec.json.decode(answer.body, type=ProblemBody)
        assert (answer.status, problem.code) == (503, "NOT_UPGRADED"), answer
        assert problem.outcome == "not_applied"
        reasons.append(problem.error)
    return reasons


async def standing(cluster: Cluster, member: Member) -> tuple[int, list[int]]:
    """The op version of the cluster, and the nodes that hold it back."""
    answer = await cluster.until(member, "GET", STATUS)
    view = msgspec.json.decode(answer.body, type=ClusterStatus).cluster
    assert isinstance(view, msgspec.Struct)
    return view.op_version, view.held_back_by


def is_raised(status: ClusterStatus) -> bool:
    assert isinstance(status.cluster, msgspec.Struct)
    return status.cluster.op_version == OP_VERSION + 1


def is_lower(status: ClusterStatus) -> bool:
    assert isinstance(status.cluster, msgspec.Struct)
    return status.cluster.op_version == OP_VERSION


async def use_the_new_op(cluster: Cluster, member: Member) -> None:
    """Wait for the raise, and use it."""
    await see(cluster, member, STATUS, ClusterStatus, is_raised)
    for queue in QUEUES:
        await cluster.until(member, "POST", PAUSE.format(queue))


def check(load: Rolling) -> None:
    seen = load.seen
    assert (seen.missing, seen.doubled, seen.failed) == (0, 0, [])


@on_sockets
async def test_old_nodes_are_upgraded_one_by_one_and_none_goes_back_after_that(
    tmp_path: Path,
) -> None:
    members = await members_in(tmp_path, ["a", "b", "c", "d"], limits__leader_wait_ms=PATIENT)
    *nodes, joining = members
    as_initial(nodes)
    first, second, third = nodes
    for member in members:
        member.build = "old"
    joining.settings["cluster.join"] = first.peer
    del joining.settings["shards"]
    async with cluster_of(nodes) as cluster:
        await cluster.start_all()
        await see(cluster, third, STATUS, ClusterStatus, is_lower)
        load = Rolling(cluster)
        async with load.load():
            # Old leaders, and a follower of the new release.
            first.build = "new"
            await load.restart(first)
            assert await standing(cluster, first) == (OP_VERSION, [2, 3])
            [*_, reason] = await held_back(cluster, first)
            assert "upgrade node 2 (b: corvo 1.4, op version" in reason
            second.build = "new"
            await load.restart(second)
            # A leader of the new release, and an old follower.
            await load.restart(third)
            assert await standing(cluster, second) == (OP_VERSION, [3])
            [*_, reason] = await held_back(cluster, second)
            assert "upgrade node 3 (c: corvo 1.4, op version" in reason
            # A node may go back until all are upgraded.
            first.build = "old"
            await load.restart(first)
            first.build = third.build = "new"
            await load.restart(first)
            await load.restart(third)
            await use_the_new_op(cluster, second)
        check(load)

        third.build = "old"
        assert await third.node.end() == 0
        by_directory = await refused(cluster, third)
        (third.data / "release.json").unlink()
        await cluster.start(third)
        with trio.fail_after(PATIENCE_S):
            # By the nodes that it asks at its start, or by links, if those do not answer in time.
            by_others = str((await third.node.hear_any("node.refused", "link.refused"))["reason"])
            await third.node.end()
        on_its_way = await refused(cluster, joining)

        versions = (
            f"op version {OP_VERSION + 1}, and this is corvo 1.4 with op version {OP_VERSION}"
        )
        assert f"{third.data} needs {versions}: install corvo 1.5" in by_directory
        for reason in (by_others, on_its_way):
            assert f"it has op version {OP_VERSION}, and" in reason
            assert f"needs {OP_VERSION + 1} or later; upgrade " in reason
            assert "to corvo '1.5'" in reason
        assert not (joining.data / "node.json").exists()
        # Nothing was written that keeps the later release from starting.
        third.build = "new"
        await cluster.start(third)
        await third.node.hear("node.ready")
        await use_the_new_op(cluster, third)


@on_sockets
async def test_a_new_leader_with_old_followers_waits_for_them(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"], limits__leader_wait_ms=PATIENT)
    as_initial(members)
    first, second, third = members
    first.build, second.build, third.build = "new", "old", "old"
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        load = Rolling(cluster)
        async with load.load():
            await held_back(cluster, first)
            third.build = "new"
            await load.restart(third)
            await held_back(cluster, first)
            assert await standing(cluster, third) == (OP_VERSION, [2])
            # A dead node holds the version back, too.
            second.kill()
            await cluster.gone(second)
            await load.more()
            [*_, reason] = await held_back(cluster, first)
            assert "node 2 (b: corvo 1.4" in reason
            second.build = "new"
            await cluster.start(second)
            await use_the_new_op(cluster, first)
        check(load)


@on_sockets
async def test_a_cluster_of_one_uses_its_release_at_once_and_takes_no_older_node(
    tmp_path: Path,
) -> None:
    members = await members_in(tmp_path, ["a", "b"])
    first, second = members
    first.settings["cluster.bootstrap"] = "on"
    second.settings["cluster.join"] = first.peer
    del second.settings["shards"]
    first.build, second.build = "new", "old"
    async with cluster_of(members) as cluster:
        await cluster.start(first)
        await first.node.hear("node.ready")

        await cluster.until(first, "POST", PAUSE.format("mail-1"))

        assert "upgrade it to corvo '1.5'" in await refused(cluster, second)
        second.build = "new"
        await cluster.start(second)
        with trio.fail_after(PATIENCE_S):
            await second.node.hear("node.ready")
