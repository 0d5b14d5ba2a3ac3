"""Events of a cluster: every node lists those of all, each once, also those of before its start."""

from pathlib import Path

import msgspec
import trio

from corvo.router.cluster.bodies import EventList
from tests.cluster.nodes import PATIENCE_S, Cluster, Member, as_initial, cluster_of, members_in
from tests.support.links import on_sockets

NODES = "/api/v1/cluster/nodes"


async def events_at(cluster: Cluster, member: Member) -> EventList:
    answer = await cluster.until(member, "GET", "/api/v1/cluster/events?limit=1000")
    return msgspec.json.decode(answer.body, type=EventList)


async def whole_at(cluster: Cluster, member: Member) -> EventList:
    """The events, when all nodes answer."""
    while (told := await events_at(cluster, member)).partial:
        await trio.lowlevel.checkpoint()
    return told


def elections(told: EventList) -> list[tuple[int | None, int | None]]:
    return [(each.shard, each.term) for each in told.events if each.type == "leader_elected"]


def drainings(told: EventList) -> list[str]:
    return [each.text for each in told.events if "drain" in each.type]


def is_missed(told: EventList) -> bool:
    """Whether the third node does not answer, and its loss is an event already."""
    return told.missing_nodes == [3] and "node_unreachable" in {each.type for each in told.events}


async def told_of_drains(cluster: Cluster, member: Member, count: int) -> EventList:
    """The events, when there are so many about drains, and each shard has had a leader."""
    while True:
        told = await whole_at(cluster, member)
        if len(drainings(told)) >= count and {shard for shard, _ in elections(told)} == {0, 1}:
            return told
        await trio.lowlevel.checkpoint()


@on_sockets
async def test_every_node_lists_the_events_of_all_once(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ["a", "b", "c"])
    as_initial(members)
    first, _, third = members
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        with trio.fail_after(PATIENCE_S):
            await cluster.until(first, "POST", f"{NODES}/c/drain", key="d")
            # Seen by a router: changes that follow each other very fast can be one event, or none.
            await told_of_drains(cluster, first, 1)
            await cluster.until(first, "POST", f"{NODES}/c/undrain", key="u")
            for member in members:
                told = await told_of_drains(cluster, member, 2)
                assert len(drainings(told)) == 2
                assert {shard for shard, _ in elections(told)} == {0, 1}
                assert len(elections(told)) == len({*elections(told)})

            third.kill()
            await cluster.gone(third)
            while not is_missed(partial := await events_at(cluster, first)):
                await trio.lowlevel.checkpoint()
            await cluster.start(third)
            restarted = await whole_at(cluster, third)

    assert partial.partial
    assert len(drainings(restarted)) == 2
    assert "node_unreachable" in {each.type for each in restarted.events}
    assert restarted.node == 3
