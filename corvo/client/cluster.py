"""The cluster over HTTP: its nodes, the replicas of its shards, and what operators do with them."""

from typing import Final, TypeAlias

import msgspec

from corvo.client.calls import Client, new_request_key, read, segment
from corvo.client.connections import Answer

NODES: Final = "/api/v1/cluster/nodes"
STATUS: Final = "/api/v1/cluster/status"
EVENTS: Final = "/api/v1/cluster/events"
REPLICAS: Final = "/api/v1/cluster/replicas"

Unset: TypeAlias = msgspec.UnsetType


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster."""

    number: int
    name: str
    address: str = ""
    zone: str = ""
    version: str = ""
    state: str = ""
    is_reachable: bool | Unset = msgspec.UNSET
    """Unset of a node without replicas, to which there is no link."""
    leads: list[int] = []
    replicas: list[int] = []
    reason: str = ""

    @property
    def title(self) -> str:
        """The node in a sentence."""
        return f"node {self.number} ({self.name})" if self.name else f"node {self.number}"


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was removed."""

    number: int
    name: str
    reason: str
    removed_at: str


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes."""

    nodes: list[Node]
    replicas: int
    removed: list[Removed] = []


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica of a shard."""

    node: int
    is_reachable: bool
    is_voter: bool
    role: str = ""
    lag: int | Unset = msgspec.UNSET
    """Entries that it has not applied."""
    snapshot_received_bytes: int | Unset = msgspec.UNSET
    snapshot_size_bytes: int | Unset = msgspec.UNSET
    is_repairing: bool = False
    reason: str = ""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard and its replicas."""

    shard: int
    status: str
    term: int
    leader: int | Unset = msgspec.UNSET
    placed_on: list[int]
    replicas: list[Replica]
    reason: str = ""


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and shards, and a reason for each fault."""

    status: str
    replicas: int
    is_placed: bool = True
    """Whether the places of replicas are those for the nodes of now."""
    nodes: list[Node]
    shards: list[Shard]
    reasons: list[str]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a server: `cluster` is unset where it runs alone."""

    status: str
    shards: int = 1
    cluster: ClusterState | Unset = msgspec.UNSET


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the cluster."""

    seq: int
    type: str
    at: str
    text: str


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that the routers of the cluster have observed."""

    events: list[Event]
    since: str
    missing_nodes: list[int] = []
    """Nodes that have not answered. Events that only they have observed are missing."""


def get_status(client: Client) -> Answer:
    """A `Status`."""
    return client.get(STATUS)


def get_nodes(client: Client) -> Answer:
    """`Nodes`."""
    return client.get(NODES)


def get_node(client: Client, node: str) -> Answer:
    """A `Node`, by its number or name."""
    return client.get(f"{NODES}/{segment(node)}")


def get_events(client: Client, *, after_seq: int, limit: int) -> Answer:
    """`Events`, the oldest first."""
    return client.get(EVENTS, {"after_seq": after_seq, "limit": limit})


def read_node(client: Client, node: str) -> Node:
    """A node now."""
    return read(get_node(client, node), Node)


def drain_node(client: Client, node: str) -> Answer:
    """Move all replicas of a node to other nodes, in the background."""
    return _change(client, f"{NODES}/{segment(node)}/drain")


def undrain_node(client: Client, node: str) -> Answer:
    """Let a drained node have replicas again."""
    return _change(client, f"{NODES}/{segment(node)}/undrain")


def remove_node(client: Client, node: str, *, reason: str, is_forced: bool) -> Answer:
    """Remove a node for good."""
    body = {"reason": reason, **({"force": True} if is_forced else {})}
    return _change(client, f"{NODES}/{segment(node)}/remove", body)


def set_replicas(client: Client, replicas: int) -> Answer:
    """Set the number of replicas of each shard."""
    key = new_request_key()
    return client.change("PUT", REPLICAS, {"replicas": replicas}, request_key=key)


def _change(client: Client, path: str, body: object = None) -> Answer:
    return client.change("POST", path, body, request_key=new_request_key())
