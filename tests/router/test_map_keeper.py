"""The keeper of the cluster map: the node is announced, and each newer map goes to who needs it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing

from corvo.child import Notice
from corvo.protocol.cluster import ClusterMap, ClusterNode, first_map
from corvo.protocol.ops.base import Op, encode_json
from corvo.protocol.ops.cluster import Announce, Announced
from corvo.protocol.queries import MapFound, Query
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Problem
from corvo.router.shards.links import Answer, Shards
from corvo.router.shards.map_keeper import CONFIRM_S, MapKeeper, NodeRefused
from corvo.telemetry import SILENT
from corvo.topology import topology_of

OWN = ClusterNode(number=1, name="a", address="127.0.0.1:9400", instance="ab")
FIRST = first_map([OWN], shards=1, replicas=3)


def version(number: int) -> ClusterMap:
    return msgspec.structs.replace(FIRST, version=number)


class Home:
    """Shard 0: it has a map, and answers or not."""

    def __init__(self) -> None:
        self.map: ClusterMap | None = None
        self.followers_maps: list[ClusterMap] = []
        self.problems: list[Problem] = []
        self.ops: list[Op] = []
        self.reads = 0

    async def submit(self, op: Op, *, shield: bool = False) -> Answer:
        await trio.lowlevel.checkpoint()
        if self.problems:
            raise self.problems.pop(0)
        self.ops.append(op)
        assert isinstance(op, Announce)
        if self.map is None:
            assert op.first is not None
            self.map = msgspec.structs.replace(op.first, version=1)
        return Answer(encode_json(Announced(1, self.map)), 7)

    async def ask(self, query: Query) -> Answer:
        await trio.lowlevel.checkpoint()
        if self.problems:
            raise self.problems.pop(0)
        self.reads += 1
        return Answer(encode_json(MapFound(self.map)), 7)

    async def ask_each_here(self, query: Query) -> list[Answer]:
        await trio.lowlevel.checkpoint()
        return [Answer(encode_json(MapFound(known)), 7) for known in self.followers_maps]


class World:
    """A keeper at work."""

    def __init__(self, own: ClusterNode | None, known: ClusterMap | None) -> None:
        config = RouterConfig(
            cluster="rookery", node=1, shards=1, sockets={0: "s"}, listen=[3], own=own, map=known
        )
        self.home = Home()
        self.topology = topology_of(config)
        self.told: list[Notice] = []
        shards = Shards(config, self.topology, pushed=lambda _, __: None, came_up=lambda _: None)
        shards._all[0] = self.home  # type: ignore[call-overload]  # all that the keeper needs
        self.maps_of_routers: list[ClusterMap] = []
        self.keeper = MapKeeper(
            config, shards, self.topology, self.told.append, self._read_maps_of_routers
        )

    async def _read_maps_of_routers(self) -> list[ClusterMap]:
        await trio.lowlevel.checkpoint()
        return self.maps_of_routers


@asynccontextmanager
async def keeping(made: World) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.keeper.run, SILENT)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


def jumping(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_the_first_announcement_brings_the_first_map() -> None:
    async def main() -> None:
        made = World(OWN, FIRST)
        async with keeping(made):
            [op] = made.home.ops
            assert isinstance(op, Announce)
            assert (op.name, op.number, op.instance, op.first) == ("a", 1, "ab", FIRST)
            assert made.told == [Notice(map=version(1))]
            assert made.topology.map == version(1)

    jumping(main)


def test_a_newer_map_is_read_when_the_shard_rings_and_an_equal_one_is_not_told() -> None:
    async def main() -> None:
        made = World(OWN, version(4))
        made.home.map = version(4)
        async with keeping(made):
            assert made.told == []
            made.keeper.ring()
            await trio.testing.wait_all_tasks_blocked()
            assert made.told == []
            made.home.map = version(5)
            made.keeper.ring()
            await trio.testing.wait_all_tasks_blocked()
            assert made.told == [Notice(map=version(5))]
            made.home.map = version(6)
            await trio.sleep(CONFIRM_S + 1)
            assert made.told[-1] == Notice(map=version(6))

    jumping(main)


def test_a_node_that_was_cut_off_while_all_replicas_were_moved_asks_other_routers() -> None:
    async def main() -> None:
        made = World(OWN, version(4))
        made.home.map = version(4)
        async with keeping(made):
            made.home.problems = [Problem(503, "LEADER_UNAVAILABLE", "no replica answers")]
            made.maps_of_routers = [version(3), version(9), version(4)]
            made.keeper.ring()
            await trio.testing.wait_all_tasks_blocked()

            assert made.told == [Notice(map=version(9))]
            assert made.topology.map == version(9)

    jumping(main)


def test_a_shard_that_is_away_is_tried_again() -> None:
    async def main() -> None:
        made = World(OWN, FIRST)
        made.home.problems = [Problem(503, "LEADER_UNAVAILABLE", "away")] * 3
        async with keeping(made):
            assert made.told == []
            await trio.sleep(5)
            assert made.told == [Notice(map=version(1))]

    jumping(main)


def test_a_map_without_the_node_of_the_leader_is_replaced_by_the_newest_of_a_follower() -> None:
    """The replica of this node cannot answer such a leader either, and so it has no newer map."""

    async def main() -> None:
        made = World(OWN, version(4))
        made.home.map = version(4)
        async with keeping(made):
            leader = msgspec.structs.replace(OWN, number=2, name="b")
            newer = msgspec.structs.replace(version(9), nodes=(OWN, leader), last_number=2)
            made.home.problems = [Problem(503, "LEADER_UNAVAILABLE", "node 2 is not known")] * 9
            made.home.followers_maps = [version(4), newer, version(4)]
            made.keeper.ring()
            await trio.testing.wait_all_tasks_blocked()
            assert made.told == [Notice(map=newer)]
            assert made.topology.map == newer

    jumping(main)


def test_a_node_that_is_too_old_for_the_cluster_ends_with_the_release_to_install() -> None:
    async def main() -> None:
        made = World(OWN, version(4))
        newer = msgspec.structs.replace(OWN, number=2, version="9.1", op_version=99)
        made.home.map = msgspec.structs.replace(version(5), nodes=(newer,), op_version=99)

        with pytest.raises(NodeRefused, match=r"has op version 99, .*: install corvo 9\.1, which"):
            await made.keeper.run(SILENT)

        assert made.told == []

    trio.run(main)


@pytest.mark.parametrize(
    "reason", ["node_removed", "other_instance", "name_taken", "older_release"]
)
def test_a_node_that_the_cluster_does_not_take_ends_with_the_reason(reason: str) -> None:
    async def main() -> None:
        made = World(OWN, FIRST)
        made.home.problems = [Problem(409, "X", "node 1 was removed: disk lost", reason=reason)]

        with pytest.raises(NodeRefused, match="disk lost"):
            await made.keeper.run(SILENT)

    jumping(main)


def test_a_server_that_runs_alone_announces_nothing() -> None:
    async def main() -> None:
        made = World(None, None)
        await made.keeper.run(SILENT)
        assert (made.home.ops, made.home.reads, made.keeper.is_announced) == ([], 0, True)

    jumping(main)
