"""Where replicas are: ways to them, as the map and the node's own sockets say."""

import msgspec
import pytest
import trio
import trio.testing

from corvo.link import LinkLost, PeerAddress, Route, UnixAddress
from corvo.peer_security import PeerSecurity
from corvo.protocol.cluster import ClusterMap, ClusterNode, RemovedNode
from corvo.topology import NODE, Nearest, Topology, refusal_of
from tests.support.links import on_sockets

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


def test_a_replica_that_is_moved_away_is_used_while_it_is_there() -> None:
    topology = made({2: "/s2"})

    assert topology.routes(2) == [Route(1, UnixAddress("/s2")), remote(2, "b", "shard-2")]
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
