"""Where replicas are: ways to them, as the map and the node's own sockets say."""

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from corvo.connections import (
    PeerAddress,
    Route,
    UnixAddress,
    _check_instance,
    accept_link,
    listen_unix,
)
from corvo.kept_link import KeptLink
from corvo.link import Link, LinkLost, LinkRefused
from corvo.peer_security import PeerSecurity
from corvo.protocol.cluster import ClusterMap, ClusterNode, RemovedNode
from corvo.protocol.wire import FROM_FOLLOWER, MIRROR, REPLICA, make_hello
from corvo.topology import NODE, Nearest, Topology, refusal_of
from tests.support.links import Member, on_sockets

SECURITY = PeerSecurity(tls_ca="ca.pem")
MAP = ClusterMap(
    version=5,
    nodes=(
        ClusterNode(number=1, name="a", address="a:9400"),
        ClusterNode(number=2, name="b", address="b:9400"),
        ClusterNode(number=4, name="d"),
    ),
    last_number=4,
    places=((1, 2), (2, 1), (4, 2)),
    removed=(RemovedNode(number=3, name="c", instance="", reason="it burned", removed_ns=1),),
)


def made(sockets: dict[int, str], node: int = 1) -> Topology:
    return Topology(node=node, known=MAP, sockets=sockets, security=SECURITY)


def remote(node: int, host: str, target: str) -> Route:
    return Route(node, PeerAddress(host, 9400, target, SECURITY))


def test_the_replica_on_this_node_comes_first_and_one_without_an_address_does_not_come() -> None:
    topology = made({0: "/s0", 1: "/s1"})

    assert topology.routes(0) == [Route(1, UnixAddress("/s0")), remote(2, "b", "shard-0")]
    assert topology.routes(1) == [Route(1, UnixAddress("/s1")), remote(2, "b", "shard-1")]
    assert topology.routes(2) == [remote(2, "b", "shard-2")]
    assert list(topology.to_nodes()) == [remote(2, "b", NODE)]


def test_links_to_other_nodes_need_the_op_version_of_the_cluster() -> None:
    topology = made({0: "/s0"})
    ours = make_hello(Member(), REPLICA, shard=0)
    topology.update(msgspec.structs.replace(MAP, version=6, op_version=9), topology.sockets)

    [local, peer] = topology.routes(0)

    assert isinstance(local.address, UnixAddress)
    assert isinstance(peer.address, PeerAddress)
    assert peer.address.op_version == 9
    assert topology.hello(ours) == msgspec.structs.replace(ours, op_oldest=9)


def test_a_replica_that_is_moved_away_comes_last_while_it_is_there() -> None:
    topology = made({2: "/s2"})

    assert topology.routes(2) == [remote(2, "b", "shard-2"), Route(1, UnixAddress("/s2"))]
    assert topology.routes(0) == [remote(2, "b", "shard-0")]


@on_sockets
async def test_an_update_is_told_of_and_an_older_map_changes_nothing() -> None:
    topology = made({})
    newer = ClusterMap(version=6, nodes=MAP.nodes[:1], last_number=4, places=((1,), (1,), (1,)))
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(topology.changes)
            await trio.testing.wait_all_tasks_blocked()
            topology.update(newer, {0: "/s0"})

    assert (topology.map, topology.routes(0)) == (newer, [Route(1, UnixAddress("/s0"))])
    topology.update(MAP, {1: "/s1"})
    assert (topology.map, topology.sockets) == (newer, {1: "/s1"})


def test_the_nearest_is_tried_first_and_then_the_others_in_turn() -> None:
    topology = made({0: "/s0"})
    nearest = Nearest(topology, 0)

    assert [nearest().node for _ in range(4)] == [1, 2, 1, 2]
    assert nearest().node == 1
    nearest.reached()
    assert nearest().node == 1
    assert nearest.last == Route(1, UnixAddress("/s0"))


def test_without_any_way_the_reason_is_told() -> None:
    topology = Topology(
        node=1,
        known=ClusterMap(nodes=MAP.nodes[2:], last_number=4, places=((4,),)),
        sockets={},
        security=SECURITY,
    )

    with pytest.raises(LinkLost, match="replica of shard 0"):
        Nearest(topology, 0)()


def test_only_a_node_that_was_in_the_cluster_is_refused_by_the_map() -> None:
    told = [refusal_of(MAP, number) for number in (1, 4, 5)]
    forgotten = refusal_of(msgspec.structs.replace(MAP, removed=()), 3)

    assert told == ["", "", ""], "a node with a greater number joined later"
    assert "node 3 (c) was removed from the cluster: it burned" in refusal_of(MAP, 3)
    assert "node 3 is not in the cluster any more" in forgotten


@on_sockets
async def test_a_link_to_a_replica_that_is_to_leave_is_opened_anew(tmp_path: Path) -> None:
    """The replica here is in the place, and then it is not: another one is used."""
    opened: list[int] = []
    topology = made({0: str(tmp_path / "s1")})
    nearest = Nearest(topology, 0)

    async def serve(link: Link) -> None:
        assert nearest.last is not None
        opened.append(nearest.last.node)
        came.set()
        await trio.sleep_forever()

    async def answer(stream: trio.SocketStream) -> None:
        hello = make_hello(Member(), REPLICA, shard=0)
        with suppress(LinkLost):
            async with accept_link(stream, hello) as link:
                await link.receive(FROM_FOLLOWER)

    def find() -> Route:
        """The network: every way leads to the same socket."""
        nearest()
        return Route(0, UnixAddress(str(tmp_path / "s1")))

    kept = KeptLink("shard-0", find, make_hello(Member(), MIRROR, shard=0), serve)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            listener = await listen_unix(str(tmp_path / "s1"))
            nursery.start_soon(trio.serve_listeners, answer, [listener])
            nursery.start_soon(nearest.keep, kept)
            came = trio.Event()
            nursery.start_soon(kept.run)
            await came.wait()
            came = trio.Event()
            away = msgspec.structs.replace(MAP, version=6, places=((2,), (2, 1), (4, 2)))
            topology.update(away, {0: str(tmp_path / "s1")})
            await came.wait()
            nursery.cancel_scope.cancel()

    assert opened == [1, 2]


def test_a_node_with_another_data_directory_is_refused_by_both_ends() -> None:
    known = msgspec.structs.replace(
        MAP, nodes=(msgspec.structs.replace(MAP.nodes[0], instance="ab"), *MAP.nodes[1:])
    )
    topology = Topology(node=2, known=known, sockets={}, security=SECURITY)
    hellos = [
        make_hello(Member(node=1, instance=instance), REPLICA, shard=0)
        for instance in ("ab", "", "cd")
    ]
    address = PeerAddress("a", 9400, "shard-0", SECURITY, "ab")

    assert topology.route(0, 1) == Route(1, address)
    assert [bool(topology.refusal(hello)) for hello in hellos] == [False, False, True]
    assert "another data directory" in topology.refusal(hellos[2])
    for hello in hellos[:2]:
        _check_instance(address, hello)
    with pytest.raises(LinkRefused, match="another data directory"):
        _check_instance(address, hellos[2])
