"""Ops on the cluster map. Shard 0 stores it, and routers read it there.

A node announces itself at each start. Operators drain and remove nodes. New places are computed and
proposed by the leader of shard 0 itself: `corvo.shard.ops.cluster.Place`.
"""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from corvo.protocol.cluster import (
    ADDRESS_MAX,
    INSTANCE_MAX,
    NAME,
    NAME_MAX,
    REASON_MAX,
    REPLICAS_MAX,
    VERSION_MAX,
    ClusterMap,
    ClusterNode,
)
from corvo.protocol.ops.base import Limits, Rejected, TypedOp, bad_request, encode_json

HOME: Final = 0
"""The shard that stores the map: there is one, with one order of changes."""

Number: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 53)]
"""Of a node; 0 for none."""


class Announced(msgspec.Struct, frozen=True):
    """The result for a node that announced itself."""

    number: int
    map: ClusterMap


class Announce(TypedOp[Announced | Rejected], frozen=True, kw_only=True):
    """A node says at each start who it is: it joins, or its row in the map is updated."""

    NUMBER = 85
    SINCE = 3
    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX, pattern=NAME)]
    instance: Annotated[str, Meta(min_length=1, max_length=INSTANCE_MAX)]
    number: Number = 0
    """Its number, if it has one: from its data directory, or from the list of first nodes."""
    address: Annotated[str, Meta(max_length=ADDRESS_MAX)] = ""
    url: Annotated[str, Meta(max_length=ADDRESS_MAX)] = ""
    zone: Annotated[str, Meta(max_length=NAME_MAX)] = ""
    version: Annotated[str, Meta(max_length=VERSION_MAX)] = ""
    op_version: int = 0
    wire_version: int = 0
    first: ClusterMap | None = None
    """The map of its list of first nodes: used if the cluster has no map yet."""

    @property
    def is_safe_twice(self) -> bool:
        """A node that is known by its instance is not added again."""
        return True


def announcement(own: ClusterNode, *, number: int, first: ClusterMap | None = None) -> Announce:
    """The op with which a node announces itself; `number` is 0 for a node that joins."""
    return Announce(
        name=own.name,
        instance=own.instance,
        address=own.address,
        url=own.url,
        zone=own.zone,
        version=own.version,
        op_version=own.op_version,
        wire_version=own.wire_version,
        number=number,
        first=first,
    )


class MapDone(msgspec.Struct, frozen=True):
    """The result of another change of the map."""

    status: str
    version: int  # of the map after it


class MapOp(TypedOp[MapDone | Rejected], frozen=True, kw_only=True):
    """An op on a map that exists."""


class NodeOp(MapOp, frozen=True, kw_only=True):
    """An op on a node, by its number or its name."""

    number: Number = 0
    name: Annotated[str, Meta(max_length=NAME_MAX)] = ""

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse an op that names no node, or perhaps two."""
        if bool(self.number) == bool(self.name):
            return bad_request("number", "number: expected the number of a node, or else its name")
        return None


class DrainNode(NodeOp, frozen=True, kw_only=True):
    """Let a node have no replicas, or let it have some again."""

    NUMBER = 86
    SINCE = 3
    is_draining: bool = True

    @property
    def is_safe_twice(self) -> bool:
        """The second one changes nothing."""
        return True


class RemoveNode(NodeOp, frozen=True, kw_only=True):
    """Remove a node from the cluster: it is refused from then on, with the reason."""

    NUMBER = 87
    SINCE = 3
    reason: Annotated[str, Meta(min_length=1, max_length=REASON_MAX)]
    base: Annotated[int, Meta(ge=0)] = 0
    """The version of the map for which the voters were checked; 0 if they were not."""

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse an op without a reason."""
        if not self.reason.strip():
            return bad_request("reason", "reason: expected a text, such as 'disk lost'")
        return super().check(limits)

    def asked(self) -> bytes:
        """Its content: the same removal may be checked again for a later map."""
        return encode_json(replace(self, request_key="", earlier_key="", by="", base=0))


class SetReplicas(MapOp, frozen=True, kw_only=True):
    """Set how many replicas each shard is to have."""

    NUMBER = 89
    SINCE = 3
    replicas: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)]

    @property
    def is_safe_twice(self) -> bool:
        """The second one changes nothing."""
        return True
