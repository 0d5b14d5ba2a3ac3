"""Requests and answers about the cluster: its nodes, and the replicas of its shards."""

from typing import Annotated, Final

import msgspec

from corvo.protocol.cluster import ADDRESS_MAX, NAME_MAX, REASON_MAX, REPLICAS_MAX

Seconds = Annotated[float, msgspec.Meta(ge=0)]

HEALTHY: Final = "healthy"
DEGRADED: Final = "degraded"
UNAVAILABLE: Final = "unavailable"


# Answers.


class NodeView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node of the cluster."""

    number: int
    name: str
    address: str = ""
    url: str = ""
    zone: str = ""
    version: str = ""
    op_version: int = 0
    tz_version: str = ""
    state: str
    is_self: bool = False
    is_reachable: bool | msgspec.UnsetType = msgspec.UNSET
    """Not known of a node without replicas, to which there is no link."""
    clock_ahead_ms: int | msgspec.UnsetType = msgspec.UNSET
    """Its wall clock minus that of the node that answers."""
    leads: list[int]
    replicas: list[int]
    reason: str = ""


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A replica of a shard, on the node of its number."""

    node: int
    is_reachable: bool
    is_voter: bool
    role: str = ""
    term: int | msgspec.UnsetType = msgspec.UNSET
    applied: int | msgspec.UnsetType = msgspec.UNSET
    digest: str | msgspec.UnsetType = msgspec.UNSET
    """Of the state at `applied`, as in the id of an event."""
    first_index: int | msgspec.UnsetType = msgspec.UNSET
    last_index: int | msgspec.UnsetType = msgspec.UNSET
    lag: int | msgspec.UnsetType = msgspec.UNSET
    checkpoint_index: int | msgspec.UnsetType = msgspec.UNSET
    snapshot_received_bytes: int | msgspec.UnsetType = msgspec.UNSET
    snapshot_size_bytes: int | msgspec.UnsetType = msgspec.UNSET
    clock_ahead_ms: int | msgspec.UnsetType = msgspec.UNSET
    is_repairing: bool = False
    contact_s: Seconds | msgspec.UnsetType = msgspec.UNSET
    reason: str = ""


class ShardView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A shard, by what its replicas say."""

    shard: int
    status: str
    leader: int | msgspec.UnsetType = msgspec.UNSET
    term: int
    placed_on: list[int]
    replicas: list[ReplicaView]
    reason: str = ""


class ClusterView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster: nodes, and the replicas of each shard."""

    status: str
    map_version: int
    replicas: int
    is_placed: bool
    op_version: int
    held_back_by: list[int] = []
    nodes: list[NodeView]
    shards: list[ShardView]
    reasons: list[str]


class EventView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of the cluster."""

    seq: int
    type: str
    at: str
    at_ns: int
    shard: int | None = None
    node: int | None = None
    term: int | None = None
    text: str


class EventList(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that the routers of the cluster have seen."""

    events: list[EventView]
    node: int
    since: str
    partial: bool = False
    missing_nodes: list[int] = []


class RemovedView(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was removed."""

    number: int
    name: str
    reason: str
    removed_at: str


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of the cluster."""

    map_version: int
    replicas: int
    nodes: list[NodeView]
    removed: list[RemovedView]


class NodeDone(msgspec.Struct, frozen=True, kw_only=True):
    """A node was drained, or removed."""

    status: str
    node: str
    map_version: int


class ReplicasDone(msgspec.Struct, frozen=True, kw_only=True):
    """The number of replicas was set."""

    status: str
    replicas: int
    map_version: int


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The node is a member already."""

    status: str
    added: bool
    node_id: str
    addr: str


# Requests.


class RemoveBody(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node is to be removed."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_MAX)]
    force: bool | None = None


class ReplicasBody(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas each shard is to have."""

    replicas: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MAX)]


class JoinBody(msgspec.Struct, frozen=True, kw_only=True):
    """A node that should join, as corvo-go names it."""

    node_id: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MAX)]
    addr: Annotated[str, msgspec.Meta(max_length=ADDRESS_MAX)] | None = None
