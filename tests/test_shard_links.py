"""Links to a shard of three replicas: the leader is found, followed and never guessed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from corvo import kept_link
from corvo.connections import Address, UnixAddress, accept_link, listen_unix
from corvo.connections import dial as dial_really
from corvo.link import Call, Link, LinkClient, LinkLost
from corvo.peer_security import PeerSecurity
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap, ClusterNode
from corvo.shard_links import ShardLinks
from corvo.telemetry import Log
from corvo.topology import Topology
from tests.support.links import Member, on_sockets


class Replica:
    """One replica, played by hand."""

    def __init__(self, node: int, path: str) -> None:
        self.node = node
        self.path = path
        self.links: list[Link] = []
        self.came = trio.Event()
        self.scope = trio.CancelScope()
        self.is_silent = False
        """From the next request on, nothing is heard of it: its machine is lost."""
        self.has_fallen_silent = trio.Event()

    async def serve(self, stream: trio.SocketStream) -> None:
        hello = wire.make_hello(Member(node=self.node), wire.REPLICA, shard=0)
        with trio.CancelScope() as self.scope:
            async with accept_link(stream, hello) as opened:
                self.links.append(opened)
                self.came.set()
                while await opened.receive(wire.FROM_ROUTER):
                    if self.is_silent:
                        self.has_fallen_silent.set()
                        await trio.sleep_forever()

    async def says(self, leader: int | None, term: int, *more: wire.Push) -> None:
        await self.came.wait()
        assert self.links[-1].send_many([wire.Leading(leader, term), *more])

    def dies(self) -> None:
        """Lose the link, and come back."""
        self.came = trio.Event()
        self.scope.cancel()


class World:
    """Three replicas, and the links of a router on node 1 to them."""

    def __init__(self, directory: Path) -> None:
        self.replicas = {node: Replica(node, str(directory / f"s{node}")) for node in (1, 2, 3)}
        nodes = tuple(
            ClusterNode(number=node, name=f"n{node}", address=f"h{node}:1") for node in (1, 2, 3)
        )
        self.map = ClusterMap(version=1, nodes=nodes, last_number=3, places=((1, 2, 3),))
        self.topology = Topology(
            node=1,
            known=self.map,
            sockets={0: self.replicas[1].path},
            security=PeerSecurity(),
        )
        self.news: list[wire.Push] = []
        self.seen: list[tuple[int | None, int]] = []
        self.changed = trio.Event()
        self.links = ShardLinks(
            0,
            self.topology,
            wire.make_hello(Member(node=1), wire.ROUTER, shard=0),
            pushed=self.news.append,
            changed=self.note,
        )

    def note(self) -> None:
        self.seen.append((self.links.leader_node, self.links.term))
        self.changed.set()
        self.changed = trio.Event()

    async def leads(self, node: int | None) -> LinkClient | None:
        """Wait until it does, as the links know it."""
        with trio.fail_after(10):
            while self.links.leader_node != node:
                await self.changed.wait()
        return self.links.leader


@asynccontextmanager
async def world(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    made = World(directory)
    real = dial_really

    def dial(address: Address, hello: wire.Hello, *, node: int, log: Log) -> object:
        """The network: each node's port leads to its replica."""
        return real(UnixAddress(made.replicas[node].path), hello, node=node)

    monkeypatch.setattr(kept_link, "dial", dial)
    async with trio.open_nursery() as nursery:
        for replica in made.replicas.values():
            listener = await listen_unix(replica.path)
            nursery.start_soon(trio.serve_listeners, replica.serve, [listener])
        nursery.start_soon(made.links.run)
        yield made
        nursery.cancel_scope.cancel()


@on_sockets
async def test_requests_go_to_the_replica_that_says_that_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        await made.replicas[1].says(2, 4)
        await made.replicas[3].says(2, 4)
        assert made.links.leader is None

        await made.replicas[2].says(2, 4)

        client = await made.leads(2)
        assert client is not None
        assert (client.peer.node, made.links.term) == (2, 4)


@on_sockets
async def test_of_two_that_say_so_the_one_of_the_higher_term_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        await made.replicas[3].says(3, 9)
        await made.leads(3)

        await made.replicas[2].says(2, 8)
        await made.replicas[3].says(3, 10)

        while made.links.term < 10:
            await made.changed.wait()
        assert made.links.leader_node == 3


@on_sockets
async def test_a_leader_that_is_lost_is_none_until_another_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        await made.replicas[2].says(2, 4)
        await made.leads(2)

        made.replicas[2].dies()
        await made.leads(None)
        await made.replicas[1].says(1, 5)

        await made.leads(1)
        assert made.seen == [(2, 4), (None, 4), (1, 5)]


@on_sockets
async def test_the_same_replica_in_another_term_is_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        await made.replicas[1].says(1, 4)
        await made.leads(1)

        await made.replicas[1].says(1, 6, wire.KeysChanged(3))

        while made.links.term < 6:
            await made.changed.wait()
        assert made.seen == [(1, 4), (1, 6)]


@on_sockets
async def test_only_the_leader_has_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, monkeypatch) as made:
        await made.replicas[2].says(1, 4, wire.WorkAvailable(("old",)))
        await made.replicas[1].says(1, 4)
        await made.leads(1)

        await made.replicas[1].says(1, 5, wire.WorkAvailable(("new",)))

        while not made.news:
            await trio.lowlevel.checkpoint()
        assert made.news == [wire.WorkAvailable(("new",))]


@on_sockets
async def test_who_refuses_a_request_does_not_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        await made.replicas[1].says(1, 4)
        client = await made.leads(1)
        assert client is not None

        made.links.not_leader(client, 3)
        assert made.links.leader_node == 1
        made.links.not_leader(client, 4)

        await made.leads(None)
        assert made.links.any is not None
        assert "node 1: knows no leader" in made.links.last_error


LOOKS = 4
"""The first one sees the hello, and at each other one a sign of life is asked for."""


@on_sockets
async def test_a_leader_that_is_silent_while_a_request_waits_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        made.replicas[2].is_silent = True
        await made.replicas[2].says(2, 4)
        client = await made.leads(2)
        assert client is not None
        call = client.begin(1, b"{}")
        assert isinstance(call, Call)
        await made.replicas[2].has_fallen_silent.wait()

        for _ in range(LOOKS):
            made.links.look()
        await trio.testing.wait_all_tasks_blocked()
        assert made.links.leader is client
        made.links.look()

        with pytest.raises(LinkLost) as lost:
            await client.finish(call)
        assert lost.value.was_sent
        assert made.links.leader is not client


@on_sockets
async def test_a_leader_that_is_there_is_kept_however_long_a_request_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        await made.replicas[2].says(2, 4)
        client = await made.leads(2)
        assert client is not None
        client.begin(1, b"{}")
        [_, member, _] = made.links.members

        for _ in range(3 * LOOKS):
            contact = member.contact
            made.links.look()
            made.links.look()
            while member.contact == contact:
                await trio.lowlevel.checkpoint()

        assert made.links.leader is client


@pytest.mark.parametrize(("node", "calls"), [(2, 0), (1, 1)])
@on_sockets
async def test_a_silent_leader_is_kept_where_nothing_waits_and_on_the_own_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: int, calls: int
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        made.replicas[node].is_silent = True
        await made.replicas[node].says(node, 4)
        client = await made.leads(node)
        assert client is not None
        for _ in range(calls):
            client.begin(1, b"{}")
            await made.replicas[node].has_fallen_silent.wait()

        for _ in range(3 * LOOKS):
            made.links.look()
        await trio.testing.wait_all_tasks_blocked()

        assert made.links.leader is client


@on_sockets
async def test_replicas_come_and_go_with_the_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        await made.replicas[3].says(3, 4)
        await made.leads(3)

        fewer = msgspec.structs.replace(made.map, version=2, places=((1, 2),))
        made.topology.update(fewer, {0: made.replicas[1].path})

        await made.replicas[1].says(1, 5)
        await made.leads(1)
        while 3 in made.links._members:
            await trio.lowlevel.checkpoint()
        again = msgspec.structs.replace(made.map, version=3, places=((3, 1),))
        made.replicas[3].came = trio.Event()
        made.topology.update(again, {0: made.replicas[1].path})
        await made.replicas[3].says(3, 7)
        await made.leads(3)


@on_sockets
async def test_a_leader_that_is_moved_away_is_linked_until_another_one_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        for replica in made.replicas.values():
            await replica.says(3, 4)
        client = await made.leads(3)

        fewer = msgspec.structs.replace(made.map, version=2, places=((1, 2),))
        made.topology.update(fewer, {0: made.replicas[1].path})

        for _ in range(20):  # the new map is used within a few turns of the tasks
            await trio.lowlevel.checkpoint()
        assert made.links.leader is client
        await made.replicas[2].says(2, 5)
        await made.leads(2)
        while len(made.links.members) > 2:
            await trio.lowlevel.checkpoint()
        assert made.seen == [(3, 4), (2, 5)]


@on_sockets
async def test_a_leader_that_the_map_does_not_name_is_found_by_those_that_follow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        fewer = msgspec.structs.replace(made.map, version=2, places=((1, 2),))
        made.topology.update(fewer, {0: made.replicas[1].path})
        while len(made.links.members) != 2:
            await trio.lowlevel.checkpoint()

        await made.replicas[1].says(3, 4)
        made.replicas[3].came = trio.Event()
        await made.replicas[3].says(3, 4)

        await made.leads(3)


@on_sockets
async def test_a_leader_that_was_removed_from_the_map_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        for replica in made.replicas.values():
            await replica.says(3, 4)
        await made.leads(3)

        removed = msgspec.structs.replace(
            made.map, version=2, nodes=made.map.nodes[:2], places=((1, 2),)
        )
        made.topology.update(removed, {0: made.replicas[1].path})

        await made.leads(None)


@on_sockets
async def test_without_any_replica_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, monkeypatch) as made:
        assert made.links.leader is None
        made.topology.update(msgspec.structs.replace(made.map, version=2, places=((9,),)), {})
        while made.links._members:
            await trio.lowlevel.checkpoint()

        assert made.links.last_error == "no node is known that has a replica"
