"""Effects of ops on the cluster map, in the shard that stores it.

The rules are functions of a map: they return the changed one, which then gets the next version, or
a refusal.
"""

from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta
from msgspec.structs import replace

from corvo.protocol.cluster import (
    NODES_MAX,
    OP_VERSION_FIRST,
    REMOVED_MAX,
    ClusterMap,
    ClusterNode,
    RemovedNode,
    fault_of,
    fault_of_places,
)
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.cluster import (
    HOME,
    Announce,
    Announced,
    DrainNode,
    MapDone,
    MapOp,
    NodeOp,
    RemoveNode,
    SetReplicas,
)
from corvo.protocol.versions import OLDER_RELEASE, too_old
from corvo.shard.state.applying import apply
from corvo.shard.state.tx import Tx

MAP_CHANGED: Final = "map_changed"
"""Refusal of places that were computed, or a removal that was checked, for an earlier map."""

Places: TypeAlias = tuple[tuple[int, ...], ...]

_WRONG_SHARD: Final = Rejected("wrong_shard", f"the cluster map is kept in shard {HOME}")
_NO_MAP: Final = Rejected(
    "no_map", "the cluster has no map yet: start a node that has the list of first nodes"
)


class Place(MapOp, frozen=True, kw_only=True):
    """Set which nodes are to have a replica of each shard."""

    PRIVATE: ClassVar[bool] = True
    SINCE: ClassVar[int] = 3
    base: Annotated[int, Meta(ge=1)]
    """The version of the map that the places were computed for."""
    places: Places


class RaiseOpVersion(MapOp, frozen=True, kw_only=True):
    """Raise the op version of the cluster: every node can decode the ops of that version.

    It is the first op of version 4 that a cluster can have: only such nodes may raise it.
    """

    PRIVATE: ClassVar[bool] = True
    SINCE: ClassVar[int] = 4
    base: Annotated[int, Meta(ge=1)]
    """The version of the map in which all nodes have it."""
    op_version: Annotated[int, Meta(ge=4)]


# A node that starts.


@apply.register
def announce(op: Announce, tx: Tx) -> Announced | Rejected:
    """Let a node join, or update its row."""
    if tx.shard != HOME:
        return _WRONG_SHARD
    before = tx.cluster_map
    known = before or op.first
    if known is None:
        return _NO_MAP
    if before is None:
        fault = fault_of(known, shards=tx.shards)
        if fault:
            return Rejected("bad_map", f"the first map cannot be used: {fault}", field="first")
    found = _find(op, known)
    if isinstance(found, Rejected):
        return found
    # Not below the first version, which old logs have announced less than.
    if OP_VERSION_FIRST < known.op_version > op.op_version:
        return Rejected(OLDER_RELEASE, too_old(known, has=op.op_version, release=op.version))
    after = _with_node(op, known, found)
    if after != before:
        after = tx.put_map(after)
    return Announced(_number_of(op, after), after)


def _find(op: Announce, known: ClusterMap) -> ClusterNode | Rejected | None:
    """The node's row in the map; None for a node that joins."""
    removed = _why_removed(op, known)
    if removed is not None:
        return removed
    found = known.owner(op.instance)
    named = known.named(op.name)
    if found is not None:
        if op.number not in {0, found.number}:
            return Rejected(
                "other_instance",
                f"this is the data directory of node {found.number}, and not of node {op.number}:"
                " start it as the node that it belongs to",
            )
    elif op.number:
        found = known.node(op.number)
        if found is None:
            return Rejected(
                "node_not_found",
                f"the cluster has never had a node {op.number}: check the data directory, or let"
                " the node join with an empty one",
            )
        if found.instance:
            return Rejected(
                "other_instance",
                f"node {found.number} ({found.name}) has another data directory: this one was"
                f" copied, or created again. Remove node {found.number} from the cluster, and let"
                " this node join with an empty directory",
            )
    if named is not None and named is not found:
        return Rejected(
            "name_taken",
            f"node {named.number} has the name {named.name!r}: choose another name, or remove that"
            " node if it is lost",
            field="name",
        )
    if found is None and len(known.nodes) >= NODES_MAX:
        return Rejected(
            "too_many_nodes", f"the cluster has {NODES_MAX} nodes, the limit: remove one first"
        )
    return found


def _why_removed(op: Announce, known: ClusterMap) -> Rejected | None:
    """The refusal of a node that was removed from the cluster."""
    for removed in known.removed:
        if op.instance == removed.instance or op.number == removed.number:
            return Rejected(
                "node_removed",
                f"node {removed.number} ({removed.name}) was removed from the cluster:"
                f" {removed.reason}. To use it again, let it join with an empty data directory",
            )
    if 0 < op.number <= known.last_number and known.node(op.number) is None:
        return Rejected(
            "node_removed",
            f"node {op.number} was removed from the cluster long ago. To use it again, let it join"
            " with an empty data directory",
        )
    return None


def _number_of(op: Announce, known: ClusterMap) -> int:
    node = known.owner(op.instance)
    assert node is not None, "it was just written"
    return node.number


def _with_node(op: Announce, known: ClusterMap, found: ClusterNode | None) -> ClusterMap:
    """The map with the node as it says that it is."""
    if found is None:
        number = known.last_number + 1
        node = _described(op, ClusterNode(number=number, name=op.name))
        return replace(known, nodes=(*known.nodes, node), last_number=number, is_placed=False)
    node = _described(op, found)
    return replace(
        known,
        nodes=tuple(node if each is found else each for each in known.nodes),
        is_placed=known.is_placed and node.zone == found.zone,
    )


def _described(op: Announce, node: ClusterNode) -> ClusterNode:
    return replace(
        node,
        name=op.name,
        instance=op.instance,
        address=op.address,
        url=op.url,
        zone=op.zone,
        version=op.version,
        op_version=op.op_version,
        wire_version=op.wire_version,
    )


# Other changes.


@apply.register
def apply_to_map(op: MapOp, tx: Tx) -> MapDone | Rejected:
    """Change a map that exists."""
    if tx.shard != HOME:
        return _WRONG_SHARD
    known = tx.cluster_map
    if known is None:
        return _NO_MAP
    match op:
        case DrainNode():
            status = "draining" if op.is_draining else "not_draining"
            changed = _drain(op, known)
        case RemoveNode():
            status = "removed"
            changed = _remove(op, known, tx.now_ns)
        case Place():
            status = "placed"
            changed = _place(op, known, tx.shards)
        case RaiseOpVersion():
            status = "raised"
            changed = _raise(op, known)
        case SetReplicas():
            status = "ok"
            changed = known
            if op.replicas != known.replicas:
                changed = replace(known, replicas=op.replicas, is_placed=False)
        case _:
            raise NotImplementedError(type(op).__name__)
    if isinstance(changed, Rejected):
        return changed
    if changed is not known:
        changed = tx.put_map(changed)
    return MapDone(status, changed.version)


def _named(op: NodeOp, known: ClusterMap) -> ClusterNode | Rejected:
    """The node that an op is about."""
    node = known.node(op.number) if op.number else known.named(op.name)
    if node is None:
        shown = op.number or repr(op.name)
        return Rejected("node_not_found", f"the cluster has no node {shown}")
    return node


def _drain(op: DrainNode, known: ClusterMap) -> ClusterMap | Rejected:
    node = _named(op, known)
    if isinstance(node, Rejected):
        return node
    if node.is_draining == op.is_draining:
        return known
    if op.is_draining and known.carriers == (node.number,):
        return Rejected(
            "last_node",
            f"node {node.number} ({node.name}) cannot be drained: no other node can have its"
            " replicas. Add a node first",
        )
    drained = replace(node, is_draining=op.is_draining)
    nodes = tuple(drained if each is node else each for each in known.nodes)
    return replace(known, nodes=nodes, is_placed=False)


def _remove(op: RemoveNode, known: ClusterMap, now_ns: int) -> ClusterMap | Rejected:
    node = _named(op, known)
    if isinstance(node, Rejected):
        return node
    if op.base not in {0, known.version}:
        return Rejected(
            MAP_CHANGED,
            f"the removal was checked for version {op.base} of the cluster map, which has version"
            f" {known.version}: check it again",
        )
    number = node.number
    if len(known.nodes) == 1:
        return Rejected("last_node", f"node {number} ({node.name}) is the last one of the cluster")
    for shard, place in enumerate(known.places):
        if place == (number,):
            return Rejected(
                "last_replica",
                f"node {number} ({node.name}) has the only replica of shard {shard}: drain the"
                " node first",
            )
    gone = RemovedNode(
        number=number,
        name=node.name,
        instance=node.instance,
        reason=op.reason,
        removed_ns=now_ns,
    )
    return replace(
        known,
        nodes=tuple(each for each in known.nodes if each is not node),
        places=tuple(tuple(each for each in place if each != number) for place in known.places),
        removed=(*known.removed, gone)[-REMOVED_MAX:],
        is_placed=False,
    )


def _place(op: Place, known: ClusterMap, shards: int) -> ClusterMap | Rejected:
    if op.base != known.version:
        return Rejected(
            MAP_CHANGED,
            f"the places are for version {op.base} of the cluster map, which has version"
            f" {known.version}: compute them again",
        )
    fault = fault_of_places(op.places, known, shards=shards, allowed=known.carriers)
    if fault:
        return Rejected("bad_places", f"the places cannot be used: {fault}", field="places")
    return replace(known, places=op.places, is_placed=True)


def _raise(op: RaiseOpVersion, known: ClusterMap) -> ClusterMap | Rejected:
    if op.base != known.version:
        return Rejected(
            MAP_CHANGED,
            f"op version {op.op_version} is for version {op.base} of the cluster map, which has"
            f" version {known.version}: look again which one all nodes have",
        )
    if op.op_version <= known.op_version:
        return known
    for node in known.nodes:
        if node.op_version < op.op_version:
            return Rejected(
                OLDER_RELEASE,
                f"node {node.number} ({node.name}) has op version {node.op_version}: upgrade it"
                f" before the cluster has op version {op.op_version}",
            )
    return replace(known, op_version=op.op_version)
