"""Everything a node knows as one value, to see that something changed nothing.

The walk is blind: a field that is added to `Raft` tomorrow is part of the digest without being
named here. Left out is only what counts refusals, and what does not belong to the node.
"""

import enum
from collections import deque
from random import Random

import msgspec

from corvo.raft import Node
from corvo.raft.progress import Progress
from tests.raft.group import raft_of

_NOT_STATE = {"refused", "settings", "storage", "_storage"}
_PLAIN = (int, str, bytes, bool, enum.Enum, type(None))


def digest(node: Node) -> dict[str, object]:
    """The whole state of `node`, by the names of the fields of `Raft` and `Node`."""
    fields = {**vars(node), **vars(raft_of(node))}
    return {
        name: _frozen(value)
        for name, value in fields.items()
        if name not in _NOT_STATE and name != "_raft"
    }


def without(state: dict[str, object], *names: str) -> dict[str, object]:
    """The same but for these fields."""
    return {name: value for name, value in state.items() if name not in names}


def _frozen(value: object) -> object:
    """`value` in parts that can be compared, none of which will change under us."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, msgspec.Struct):
        return tuple(_frozen(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, tuple | list | deque):
        return tuple(_frozen(each) for each in value)
    if isinstance(value, dict):
        return tuple(
            (name, _frozen(each)) for name, each in value.items() if name not in _NOT_STATE
        )
    if isinstance(value, Random):
        return value.getstate()
    if isinstance(value, Progress):
        return tuple(_frozen(getattr(value, name)) for name in Progress.__slots__)
    return type(value).__name__, _frozen(vars(value))
