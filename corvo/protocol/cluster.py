"""The cluster map: its nodes, their addresses, and which nodes are to have a replica of each shard.

Shard 0 keeps the map, as a document of its state; ops change it (`corvo.protocol.ops.cluster`), and
its version rises with each change. Routers read it there, and every process of a node gets it from
the router by way of the node. A process may have an older map: it then uses older addresses, which
costs a failed try, and never more, because who belongs to a shard is decided by the shard's own
Raft group. The map says who *is to* belong; the leader of each shard changes its group to that.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta

from corvo.errors import CorvoError
from corvo.protocol import wire

REPLICAS: Final = 3
"""Replicas of a shard, where the cluster has so many nodes."""

REPLICAS_MAX: Final = 7
"""Each write waits for a majority of them."""

NODES_MAX: Final = 128
"""Every process has the whole map in memory."""

REMOVED_MAX: Final = 1_000
"""Removed nodes that the map remembers, to tell them why they are refused."""

NAME_MAX: Final = 128
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z"
ADDRESS_MAX: Final = 300
INSTANCE_MAX: Final = 64
VERSION_MAX: Final = 64

REASON_MAX: Final = 500
"""Characters of the reason of a removal: every process has those of all removed nodes."""


OP_VERSION_FIRST: Final = 3
"""The op version of every cluster that has not raised it yet: clusters came with it."""


class BadAddress(CorvoError):
    """Not an address of the form HOST:PORT."""


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node, as the map has it."""

    number: Annotated[int, Meta(ge=1)]
    """It numbers the node's replicas too, and is never given to another node."""
    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX, pattern=NAME)]
    address: Annotated[str, Meta(max_length=ADDRESS_MAX)] = ""
    """HOST:PORT where its processes are reached by other nodes. A name is looked up for each try,
    so that a node may come back under another IP address."""
    url: Annotated[str, Meta(max_length=ADDRESS_MAX)] = ""  # of its HTTP API
    zone: Annotated[str, Meta(max_length=NAME_MAX)] = ""
    """Replicas of a shard are put into different zones, as far as there are some."""
    instance: Annotated[str, Meta(max_length=INSTANCE_MAX)] = ""
    """A random number that names its data directory; empty until the node was here once."""
    is_draining: bool = False  # it is to have no replicas
    version: Annotated[str, Meta(max_length=VERSION_MAX)] = ""  # the release that it runs
    op_version: int = 0
    wire_version: int = 0


class RemovedNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that was removed from the cluster."""

    number: int
    name: str
    instance: str
    reason: str
    removed_ns: int


class ClusterMap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it."""

    version: int = 0
    """It rises with each change. 0: made from the config of a first start, and not yet stored."""
    replicas: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] = REPLICAS
    nodes: tuple[ClusterNode, ...]  # by number
    last_number: int  # the greatest number that was ever given to a node
    places: tuple[tuple[int, ...], ...]
    """By shard: the nodes that are to have a replica of it. The first one should lead."""
    is_placed: bool = True  # whether the places are those for the nodes of now
    removed: tuple[RemovedNode, ...] = ()
    op_version: int = OP_VERSION_FIRST
    """Every node can decode the ops of this version, and later ones are not used yet. It is raised
    when all nodes have announced a greater one, and never lowered."""

    FIELDS_SINCE: ClassVar[Mapping[str, int]] = {"op_version": 4}

    def node(self, number: int) -> ClusterNode | None:
        """The node of that number; None for one that is not in the cluster."""
        for node in self.nodes:
            if node.number == number:
                return node
        return None

    def named(self, name: str) -> ClusterNode | None:
        """The node of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        return None

    def owner(self, instance: str) -> ClusterNode | None:
        """The node of a data directory."""
        for node in self.nodes:
            if node.instance == instance:
                return node
        return None

    @property
    def carriers(self) -> tuple[int, ...]:
        """Nodes that may be given replicas: those that are not draining, or all if all are."""
        staying = tuple(node.number for node in self.nodes if not node.is_draining)
        return staying or tuple(node.number for node in self.nodes)

    def shards_of(self, number: int) -> tuple[int, ...]:
        """The shards that are to have a replica on a node."""
        return tuple(shard for shard, place in enumerate(self.places) if number in place)

    def removal_of(self, number: int) -> RemovedNode | None:
        """How a node was removed, while that is remembered."""
        for removed in self.removed:
            if removed.number == number:
                return removed
        return None


def fault_of(known: ClusterMap, *, shards: int) -> str:
    """What is wrong with a map of a cluster of so many shards; empty for a map that can be used."""
    numbers = [node.number for node in known.nodes]
    if not 1 <= len(numbers) <= NODES_MAX:
        return f"{len(numbers)} nodes; expected 1 to {NODES_MAX}"
    if numbers != sorted({*numbers}) or numbers[-1] > known.last_number:
        return "the numbers of its nodes do not rise up to its last number"
    if len({node.name for node in known.nodes}) < len(numbers):
        return "two of its nodes have the same name"
    instances = [node.instance for node in known.nodes if node.instance]
    if len({*instances}) < len(instances):
        return "two of its nodes have the same data directory"
    return fault_of_places(known.places, known, shards=shards, allowed=numbers)


def fault_of_places(
    places: Sequence[Sequence[int]],
    known: ClusterMap,
    *,
    shards: int,
    allowed: Collection[int],
) -> str:
    """What is wrong with places in a map; empty if they can be used."""
    if len(places) != shards:
        return f"places for {len(places)} shards; the cluster has {shards}"
    for shard, place in enumerate(places):
        if not 1 <= len(place) <= known.replicas:
            return f"shard {shard} has {len(place)} places; expected 1 to {known.replicas}"
        if len({*place}) < len(place):
            return f"shard {shard} has two places on one node"
        for number in place:
            if number not in allowed:
                return f"shard {shard} has a place on node {number}, which may not have one"
    return ""


def first_map(
    nodes: Sequence[ClusterNode],
    *,
    shards: int,
    replicas: int,
    op_version: int = OP_VERSION_FIRST,
) -> ClusterMap:
    """The map of a cluster that is new: equal wherever it is made from the same nodes.

    Its places follow from a rule that no release changes, and are not the most even ones for many
    nodes: these are computed as soon as the map is stored. `op_version` may be greater than the
    first one where every node is known to have it.
    """
    ordered = tuple(sorted(nodes, key=lambda node: node.number))
    assert ordered, "a cluster has a node"
    numbers = [node.number for node in ordered]
    count = min(replicas, len(numbers))
    return ClusterMap(
        replicas=replicas,
        nodes=ordered,
        last_number=numbers[-1],
        places=tuple(
            tuple(numbers[(shard + place) % len(numbers)] for place in range(count))
            for shard in range(shards)
        ),
        is_placed=len(numbers) == count,
        op_version=op_version,
    )


def alone(number: int, shards: int) -> ClusterMap:
    """The map of a cluster of one node, made from its number alone."""
    node = ClusterNode(number=number, name=f"node-{number}")
    return first_map([node], shards=shards, replicas=REPLICAS, op_version=wire.OP_VERSION)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [HOST]:PORT. Raises `BadAddress`."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadAddress(f"{address!r}: write an IPv6 address in brackets, as in [::1]:9400")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise BadAddress(f"{address!r}: expected HOST:PORT, such as 10.0.0.5:9400")
    return host, int(port)
