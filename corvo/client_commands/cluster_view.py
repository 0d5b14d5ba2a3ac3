"""Text about a cluster: nodes and shards in tables, and all that is not well as sentences."""

from collections.abc import Iterator, Sequence
from typing import Final

from corvo.client.cluster import (
    ClusterState,
    Events,
    Node,
    Nodes,
    Replica,
    Shard,
    Status,
)
from corvo.client_commands.tables import counted, pairs, plain, ranges, table

_COLUMNS_MAX: Final = 8
"""Nodes that are columns of the table of shards. Of more nodes, each shard lists its own."""
_NODE_HEADERS: Final = (
    "NODE",
    "NAME",
    "STATE",
    "LEADS",
    "REPLICAS",
    "ZONE",
    "ADDRESS",
    "VERSION",
    "REASON",
)


def status_text(status: Status) -> str:
    """The whole, the worst first."""
    state = status.cluster
    if not isinstance(state, ClusterState):
        return (
            f"status: {plain(status.status)}\n"
            f"one server with {counted(status.shards, 'shard')}; it is not a node of a cluster\n"
        )
    faults = "".join(f"  {plain(reason)}\n" for reason in state.reasons)
    notes = "".join(f"  {plain(note)}\n" for note in _notes(state))
    return "".join(
        (
            f"status: {plain(state.status)}\n{faults}\n",
            nodes_table(state.nodes),
            "\n",
            _shards_table(state),
            f"\nnotes:\n{notes}" if notes else "",
        )
    )


def nodes_text(nodes: Nodes) -> str:
    """All nodes, and those that were removed."""
    text = nodes_table(nodes.nodes)
    if nodes.removed:
        rows = [
            (str(each.number), each.name, _seconds(each.removed_at), each.reason)
            for each in nodes.removed
        ]
        text += "\nremoved:\n" + table(("NODE", "NAME", "AT", "REASON"), rows)
    return text


def nodes_table(nodes: Sequence[Node]) -> str:
    """A line for each node."""
    return table(
        _NODE_HEADERS,
        [
            (
                str(node.number),
                node.name,
                state_of(node),
                ranges(node.leads),
                ranges(node.replicas),
                node.zone,
                node.address,
                node.version,
                node.reason,
            )
            for node in nodes
        ],
    )


def node_text(node: Node) -> str:
    """One node."""
    reachable = {True: "yes", False: "no"}
    return pairs(
        (
            ("node", str(node.number)),
            ("name", node.name),
            ("state", state_of(node)),
            ("reachable", reachable.get(node.is_reachable is True, ""))
            if isinstance(node.is_reachable, bool)
            else ("reachable", "not known: it has no replicas"),
            ("leads", _shards(node.leads)),
            ("replicas", _shards(node.replicas)),
            ("zone", node.zone),
            ("address", node.address),
            ("version", node.version),
            ("reason", node.reason),
        )
    )


def _shards(numbers: Sequence[int]) -> str:
    if not numbers:
        return "none"
    return f"{'shard' if len(numbers) == 1 else 'shards'} {ranges(numbers)}"


def state_of(node: Node) -> str:
    """The state of a node in a word."""
    return "unreachable" if node.is_reachable is False else node.state


def events_text(found: Events) -> str:
    """Events, the oldest first."""
    missing = ranges(found.missing_nodes)
    note = f"no answer from node {missing}: events that only it has seen are missing\n"
    text = f"no event since {plain(found.since)}\n"
    if found.events:
        text = table(
            ("AT", "TYPE", "EVENT"),
            [(_seconds(each.at), each.type, each.text) for each in found.events],
        )
    return text + (note if found.missing_nodes else "")


def _seconds(at: str) -> str:
    """A time in UTC without its decimals."""
    return f"{at[:19]}Z"


# Shards.


def _shards_table(state: ClusterState) -> str:
    if len(state.nodes) > _COLUMNS_MAX:
        return table(
            ("SHARD", "STATUS", "TERM", "REPLICAS"),
            [
                (
                    str(shard.shard),
                    shard.status,
                    str(shard.term),
                    "; ".join(
                        f"{_name(state, each.node)}: {cell(each, shard)}" for each in shard.replicas
                    ),
                )
                for shard in state.shards
            ],
        )
    return table(
        ("SHARD", "STATUS", "TERM", *(node.name for node in state.nodes)),
        [
            (
                str(shard.shard),
                shard.status,
                str(shard.term),
                *(_cell_of(shard, node.number) for node in state.nodes),
            )
            for shard in state.shards
        ],
    )


def _cell_of(shard: Shard, node: int) -> str:
    return next((cell(each, shard) for each in shard.replicas if each.node == node), "-")


def cell(replica: Replica, shard: Shard) -> str:
    """A replica in a few words: its role, and the entries that it is behind."""
    if not replica.is_reachable:
        return "unreachable"
    if not replica.is_voter and replica.node not in shard.placed_on:
        return "left"
    received, size = replica.snapshot_received_bytes, replica.snapshot_size_bytes
    if isinstance(received, int) and isinstance(size, int):
        return f"copies {100 * received // max(size, 1)} %"
    if replica.is_repairing:
        return "repairs"
    if not replica.role:
        return "no answer"
    role = replica.role.replace("_", "-")
    if not replica.is_voter and role != "leader":
        role = "learner"
    return f"{role}, {replica.lag} behind" if replica.lag else role


def _notes(state: ClusterState) -> Iterator[str]:
    """Reasons of replicas that are no fault. Those of nodes are in their table."""
    for shard in state.shards:
        for replica in shard.replicas:
            note = f"shard {shard.shard} on {_title(state, replica.node)}: {replica.reason}"
            is_told = any(reason in note for reason in state.reasons)
            if replica.reason and replica.is_reachable and not is_told:
                yield note


def _title(state: ClusterState, number: int) -> str:
    node = _find(state, number)
    return node.title if node is not None else f"node {number}, which was removed"


def _name(state: ClusterState, number: int) -> str:
    node = _find(state, number)
    return node.name if node is not None else str(number)


def _find(state: ClusterState, number: int) -> Node | None:
    return next((node for node in state.nodes if node.number == number), None)
