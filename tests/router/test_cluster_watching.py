"""The history of a cluster, as it comes about: links and map say what changes, groups are asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
import trio.testing
from msgspec.structs import replace

from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap
from corvo.router.cluster import watching
from corvo.router.cluster.bodies import EventList, EventView
from corvo.router.cluster.overview import ShardSeen
from tests.router.clusters import MAP, Cluster, replica, up, with_node, without
from tests.router.nests import Nest, problem, run
from tests.router.test_shards import world
from tests.support.links import on_sockets

EVENTS = "/api/v1/cluster/events"


@asynccontextmanager
async def watched(known: ClusterMap = MAP) -> AsyncIterator[Cluster]:
    """A cluster that is watched, and whose first leaders have been seen."""
    cluster = Cluster(known)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watching.run, cluster.api)
        await trio.testing.wait_all_tasks_blocked()
        yield cluster
        nursery.cancel_scope.cancel()


async def events_of(cluster: Nest, **query: str) -> list[EventView]:
    await trio.testing.wait_all_tasks_blocked()
    return (await cluster.read(EventList, EVENTS, query=query)).events


async def types_of(cluster: Nest, after: int = 0) -> list[tuple[str, int | None, int | None]]:
    found = await events_of(cluster, after_seq=str(after))
    return [(each.type, each.shard, each.node) for each in found]


def test_changes_of_links_are_events() -> None:
    async def main() -> None:
        async with watched() as cluster:
            first = await events_of(cluster)
            cluster.see(without(3))
            cluster.of[1].known = replace(cluster.of[1].known, linked_leader=2, term=4)
            cluster.api._note_change()

            then = await types_of(cluster, first[-1].seq)

            assert [(each.type, each.shard, each.node, each.term) for each in first] == [
                ("leader_elected", 0, 1, 3),
                ("leader_elected", 1, 1, 3),
            ]
            assert then == [("node_unreachable", None, 3), ("leader_elected", 1, 2)]

    run(main)


def test_changes_of_the_map_are_events() -> None:
    async def main() -> None:
        async with watched() as cluster:
            last = (await events_of(cluster))[-1].seq

            draining = replace(with_node(MAP, 2, is_draining=True), version=1)
            cluster.api.topology.update(draining, {})

            assert await types_of(cluster, last) == [("node_draining", None, 2)]

    run(main)


def test_changes_of_groups_are_seen_after_a_while() -> None:
    async def main() -> None:
        async with watched() as cluster:
            await trio.sleep(watching.GROUPS_S + 1)
            last = (await events_of(cluster))[-1].seq
            learning = replica(1, learners=(4,))
            cluster.of[0].known = ShardSeen(0, (up(learning), up("silent", 2)), 1, 3)
            cluster.of[1].known = ShardSeen(1, (up("silent", 1),), 1, 3)

            await trio.sleep(watching.GROUPS_S)

            assert await types_of(cluster, last) == [("replica_added", 0, 4)]

    run(main)


def test_events_come_in_pages_and_say_who_has_seen_them() -> None:
    async def main() -> None:
        async with watched() as cluster:
            [one] = await events_of(cluster, limit="1")
            [other] = await events_of(cluster, limit="1", after_seq=str(one.seq))
            told = await cluster.read(EventList, EVENTS)

            assert (one.shard, other.shard) == (0, 1)
            assert told.node == 1
            assert told.events == [one, other]
            assert (told.partial, told.missing_nodes) == (True, [2, 3])
            assert one.text == "node 1 (n1) leads shard 0 in term 3"
            for query in (
                {"limit": "0"},
                {"limit": "1001"},
                {"after_seq": "-1"},
                {"after_seq": str(2**53)},
            ):
                refused = await cluster.ask("GET", EVENTS, query=query)
                assert problem(refused)[::3] == (400, next(iter(query)))

    run(main)


@on_sockets
async def test_a_link_that_opens_or_is_lost_and_a_leader_are_reported_at_once(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (there, _):
        shard = there.shards[0]
        seen: list[tuple[bool, int]] = []
        changed = trio.Event()

        def note() -> None:
            nonlocal changed
            links = shard.replicas()
            seen.append((any(link.is_up for link in links), shard.led_term))
            changed.set()
            changed = trio.Event()

        shard._on_change = note
        shard._links._linked = note
        replica_here = await there.replica(leads=False)
        while (True, 0) not in seen:
            await changed.wait()
        replica_here.say(wire.Leading(1, 5))
        while (True, 5) not in seen:
            await changed.wait()
        replica_here.left.set()
        while (False, 0) not in seen:
            await changed.wait()
