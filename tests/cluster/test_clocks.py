"""Nodes whose wall clocks differ: refused at a start, and shown while they run."""

import re
from pathlib import Path

import msgspec
import trio

from corvo.router.cluster.bodies import ClusterView
from corvo.router.node.health import ClusterStatus
from corvo.time_zones import tz_version
from tests.cluster.nodes import PATIENCE_S, Cluster, Member, as_initial, cluster_of, members_in
from tests.cluster.test_forming import refused
from tests.support.links import on_sockets
from tests.support.nodes import ROOT


def set_clock(member: Member, ahead_s: float) -> None:
    """Set the wall clock of a node, whether or not it runs."""
    file = member.data.with_suffix(".clock")
    fresh = file.with_suffix(".new")
    fresh.write_text(str(ahead_s))
    fresh.rename(file)
    wrong = ROOT / "tests" / "support" / "wrong_clock"
    member.environment = {"WRONG_CLOCK": str(file), "PYTHONPATH": str(wrong)}


def apart(refusal: str, side: str) -> float:
    """By how many seconds the clocks differ. It is wrong by half of a round trip at most."""
    found = re.search(rf"is ([0-9.]+) s {side} that of the node at", refusal)
    assert found, refusal
    return float(found[1])


async def status_of(cluster: Cluster, member: Member, *, is_wrong: bool) -> ClusterStatus:
    """The status, once it shows a wrong clock, or is healthy."""
    with trio.fail_after(PATIENCE_S):
        while True:
            answer = await cluster.until(member, "GET", "/api/v1/cluster/status")
            told = msgspec.json.decode(answer.body, type=ClusterStatus)
            assert isinstance(told.cluster, msgspec.Struct)
            is_shown = any("wall clock" in reason for reason in told.cluster.reasons)
            # Under load, the cluster may be degraded for other reasons, too, for a while.
            if told.status == "degraded" and is_shown if is_wrong else told.status == "healthy":
                return told
            await trio.sleep(0.1)


@on_sockets
async def test_a_node_with_a_wrong_clock_does_not_join_and_does_not_start(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b"])
    first, second = members
    first.settings["cluster.bootstrap"] = "on"
    second.settings["cluster.join"] = first.peer
    async with cluster_of(members) as cluster:
        await cluster.start(first)
        await first.node.hear("node.ready")

        set_clock(second, 5_000)
        joining = await refused(cluster, second)
        assert not second.data.exists()

        set_clock(second, 0.1)
        await cluster.start(second)
        await second.node.hear("node.ready")
        assert await second.node.end() == 0
        set_clock(second, -5_000)
        starting = await refused(cluster, second)

        second.settings["cluster.clock_offset_max_ms"] = "6000s"
        await cluster.start(second)
        await second.node.hear("node.ready")

    assert "the wall clock of this node is " in joining
    assert "cluster.clock_offset_max_ms (500 ms): set the clock that is wrong" in joining
    assert 4_970 < apart(joining, "ahead of") < 5_030
    assert 4_970 < apart(starting, "behind") < 5_030


@on_sockets
async def test_a_clock_that_is_set_while_the_node_runs_is_shown_by_all_nodes(
    tmp_path: Path,
) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"])
    as_initial(members)
    set_clock(members[2], 0)
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        set_clock(members[2], 60)
        seen = [await status_of(cluster, member, is_wrong=True) for member in members]
        metrics = await cluster.until(members[0], "GET", "/metrics")
        set_clock(members[2], 0)
        right = await status_of(cluster, members[0], is_wrong=False)
        for member in members:
            assert await member.node.end() == 0

    for told in seen:
        assert told.status == "degraded"
        assert isinstance(told.cluster, msgspec.Struct)
        (reason,) = [each for each in told.cluster.reasons if "wall clock" in each]
        found = re.fullmatch(
            r"node 3 \(c\): its wall clock is ([0-9.]+) s ahead of those of other nodes: set it",
            reason,
        )
        assert found, reason
        assert 30 < float(found[1]) < 90
    shown = re.search(rb'corvo_cluster_clock_offset_seconds\{node="3"\} (\S+)', metrics.body)
    assert shown is not None
    assert 30 < float(shown[1]) < 90
    assert right.status == "healthy"


@on_sockets
async def test_nodes_with_other_time_zone_data_are_shown(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b"])
    as_initial(members)
    other = ROOT / "tests" / "support" / "other_tzdata"
    members[1].environment = {"OTHER_TZDATA": "1999.1", "PYTHONPATH": str(other)}
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        seen = [await time_zones_of(cluster, member) for member in members]
        for member in members:
            assert await member.node.end() == 0

    for told in seen:
        assert told.status == "degraded"
        assert isinstance(told.cluster, ClusterView)
        assert [node.tz_version for node in told.cluster.nodes] == [tz_version(), "1999.1"]
        (reason,) = [each for each in told.cluster.reasons if "time zone" in each]
        assert reason.startswith("node 2 (b): its time zone data is 1999.1, and others have ")


async def time_zones_of(cluster: Cluster, member: Member) -> ClusterStatus:
    """The status, once it has the time zone data of all nodes."""
    with trio.fail_after(PATIENCE_S):
        while True:
            answer = await cluster.until(member, "GET", "/api/v1/cluster/status")
            told = msgspec.json.decode(answer.body, type=ClusterStatus)
            assert isinstance(told.cluster, ClusterView)
            if told.status == "degraded" and all(node.tz_version for node in told.cluster.nodes):
                return told
            await trio.sleep(0.1)
