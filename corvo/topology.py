"""Where the replicas of each shard are, as one process knows it.

    topology = Topology(node=1, sockets={0: "/run/shard-0.sock"}, known=the_map, security=security)
    for route in topology.routes(3): ...

A process gets the cluster map and the sockets of its own node with its config, and again whenever
they change (`corvo.child.Update`). What it has may be old: then a link to a wrong place is refused,
and another one is tried.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import trio

from corvo.connections import PeerAddress, Route, UnixAddress
from corvo.kept_link import KeptLink
from corvo.link import LinkLost
from corvo.peer_security import PeerSecurity
from corvo.protocol.cluster import ClusterMap, alone, split_address
from corvo.protocol.wire import Hello, needing

NODE: Final = "node"
"""The target of a connection to a node itself, and not to one of its shards."""


def shard_target(shard: int) -> str:
    """The target of a connection to a node's replica of a shard."""
    return f"shard-{shard}"


class Topology:
    """The map and the sockets, as they are known now."""

    def __init__(
        self, *, node: int, known: ClusterMap, sockets: Mapping[int, str], security: PeerSecurity
    ) -> None:
        """`sockets` are those of the replicas on this node, by shard."""
        self.node: Final = node
        self.security: Final = security
        self.map = known
        self.sockets = dict(sockets)
        self._changed = trio.Event()

    def update(self, known: ClusterMap, sockets: Mapping[int, str]) -> None:
        """Take over what is known now. An older map than the one known changes nothing."""
        if known.version >= self.map.version:
            self.map = known
        self.sockets = dict(sockets)
        self._changed.set()
        self._changed = trio.Event()

    async def changes(self) -> None:
        """Wait until something changes."""
        await self._changed.wait()

    def route(self, shard: int, node: int) -> Route | None:
        """The way to a node's replica of a shard; None without an address of that node."""
        if node == self.node:
            path = self.sockets.get(shard)
            return Route(node, UnixAddress(path)) if path is not None else None
        return self._remote(node, shard_target(shard))

    def routes(self, shard: int) -> list[Route]:
        """The ways to the replicas of a shard: that of this node first, then by the map."""
        place = self.map.places[shard]
        nodes = sorted(place, key=lambda node: node != self.node)
        if self.node not in place and shard in self.sockets:
            nodes.append(self.node)  # it is being moved away, and still there
        found = (self.route(shard, node) for node in nodes)
        return [route for route in found if route is not None]

    def to_nodes(self) -> Iterator[Route]:
        """The ways to all other nodes themselves."""
        for node in self.map.nodes:
            if node.number != self.node:
                route = self._remote(node.number, NODE)
                if route is not None:
                    yield route

    def _remote(self, number: int, target: str) -> Route | None:
        node = self.map.node(number)
        if node is None or not node.address:
            return None
        host, port = split_address(node.address)
        address = PeerAddress(host, port, target, self.security, node.instance, self.map.op_version)
        return Route(number, address)

    def hello(self, ours: Hello) -> Hello:
        """The hello for other nodes: a release that is too old for the cluster is refused."""
        return needing(ours, self.map.op_version)

    def refusal(self, peer: Hello) -> str:
        """Why a process of another node is refused; empty for one that is not."""
        return refusal_of(self.map, peer.node, peer.instance)


def refusal_of(known: ClusterMap, node: int, instance: str = "") -> str:
    """Why a process of a node is refused; empty for a node that is in the cluster, or may be.

    A number that is greater than all that the map knows is that of a node which joined later. A
    node whose data directory was made anew has forgotten its votes.
    """
    found = known.node(node)
    if found is not None:
        if instance and found.instance and instance != found.instance:
            return (
                f"node {node} ({found.name}) has another data directory than the cluster knows: it"
                " is a copy, or a new one. Remove the node from the cluster, and let it join with"
                " an empty directory"
            )
        return ""
    if node > known.last_number:
        return ""
    removed = known.removal_of(node)
    what = f"node {node} is not in the cluster any more"
    if removed is not None:
        what = f"node {node} ({removed.name}) was removed from the cluster: {removed.reason}"
    return f"{what}; it can join again with an empty data directory, and gets another number"


class Nearest:
    """One way after the other to some replica of a shard, that of this node first.

    For a link that needs any replica, and not the leader: `KeptLink` asks before each try.
    """

    def __init__(self, topology: Topology, shard: int) -> None:
        self._topology = topology
        self._shard = shard
        self._tries = 0
        self.last: Route | None = None
        """The way that was given last."""

    def __call__(self) -> Route:
        """The next way to try. Raises `LinkLost` when none is known."""
        routes = self._topology.routes(self._shard)
        if not routes:
            reason = f"no node is known that has a replica of shard {self._shard}"
            raise LinkLost(reason, was_sent=False)
        self.last = routes[self._tries % len(routes)]
        self._tries += 1
        return self.last

    def reached(self) -> None:
        """A try was successful: the next one begins with the nearest again."""
        self._tries = 0

    async def keep(self, link: KeptLink) -> None:
        """Open a link anew when its replica is to leave the shard: it may get no more entries."""
        while True:
            await self._topology.changes()
            place = self._topology.map.places[self._shard]
            if self.last is not None and self.last.node not in place:
                self.reached()
                link.reopen()


class Surroundings(Protocol):
    """What the config of a process says about the cluster around it."""

    @property
    def node(self) -> int:
        """The number of its node."""

    @property
    def shards(self) -> int:
        """How many shards the cluster has."""

    @property
    def map(self) -> ClusterMap | None:
        """The map, as the node knew it; None for a cluster of this node alone."""

    @property
    def sockets(self) -> Mapping[int, str]:
        """Of the replicas on this node, by shard."""

    @property
    def security(self) -> PeerSecurity:
        """For links between nodes."""


def topology_of(config: Surroundings) -> Topology:
    """The topology that a process begins with."""
    known = config.map or alone(config.node, config.shards)
    return Topology(node=config.node, known=known, sockets=config.sockets, security=config.security)
