"""Op versions: which one an op or a query needs, and the refusal while a node is older.

A struct that came with a later op version says so by `SINCE`, and its later fields by
`FIELDS_SINCE`; that goes for the structs within it too. A field at its default is not encoded, so
an op needs the version of a later field only if the field is set.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

import msgspec
from msgspec import inspect

from corvo.protocol.cluster import ClusterMap, ClusterNode
from corvo.protocol.ops.base import Rejected

NOT_UPGRADED: Final = "not_upgraded"
"""Refusal of an op or a query that a node of the cluster does not know yet."""
OLDER_RELEASE: Final = "older_release"
"""Refusal of a node whose op version is lower than the cluster's."""


def since(kind: type) -> int:
    """The op version that a struct came with."""
    found: int = getattr(kind, "SINCE", 1)
    return found


def fields_since(kind: type) -> Mapping[str, int]:
    """The op versions that fields of a struct came with, if later than the struct."""
    found: Mapping[str, int] = getattr(kind, "FIELDS_SINCE", {})
    return found


@cache
def newest(kind: type[msgspec.Struct]) -> int:
    """The greatest op version that a value of a struct can need."""
    return max(
        version
        for struct in structs_of(kind)
        for version in (since(struct), *fields_since(struct).values())
    )


def structs_of(kind: type[msgspec.Struct]) -> list[type]:
    """A struct, and all structs that it can have within it."""
    found: dict[type, None] = {}
    _collect(inspect.type_info(kind), found)
    return [*found]


def _collect(info: inspect.Type, found: dict[type, None]) -> None:
    if isinstance(info, inspect.StructType):
        if info.cls in found:
            return
        found[info.cls] = None
    for part in _parts(info):
        _collect(part, found)


def _parts(info: inspect.Type) -> Iterator[inspect.Type]:
    match info:
        case inspect.StructType(fields=fields):
            yield from (field.type for field in fields)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            yield item
        case inspect.DictType(key_type=key, value_type=value):
            yield from (key, value)
        case inspect.TupleType(item_types=items) | inspect.UnionType(types=items):
            yield from items
        case _:
            return


def needed(value: object) -> int:
    """The op version that a process must have to decode a value."""
    match value:
        case msgspec.Struct():
            return max(_versions(value))
        case list() | tuple():
            return max(map(needed, value), default=1)
        case dict():
            return max(map(needed, value.values()), default=1)
        case _:
            return 1


def _versions(value: msgspec.Struct) -> Iterator[int]:
    kind = type(value)
    yield since(kind)
    later = fields_since(kind)
    for field in msgspec.structs.fields(kind):
        found = getattr(value, field.name)
        yield needed(found)
        if field.name in later and found != _default(field):
            yield later[field.name]


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


# What is refused.


def held_back(asked: msgspec.Struct, known: ClusterMap) -> Rejected | None:
    """The refusal of an op or a query that not every node of the cluster can decode."""
    has = known.op_version
    if newest(type(asked)) <= has:
        return None
    needs = needed(asked)
    if needs <= has:
        return None
    told = f"{type(asked).__name__} needs op version {needs}, and the cluster has {has}"
    older = [_named(node) for node in known.nodes if node.op_version < needs]
    fix = (
        f"upgrade {', '.join(older)}"
        if older
        else "all nodes are upgraded, and the cluster is about to raise its version: try again"
    )
    return Rejected(NOT_UPGRADED, f"{told}: {fix}. Nothing was changed")


def _named(node: ClusterNode) -> str:
    runs = f"corvo {node.version}, op version {node.op_version}"
    return f"node {node.number} ({node.name}: {runs if node.op_version else 'not started yet'})"


def too_old(known: ClusterMap, *, has: int, release: str) -> str:
    """Why a release must not run in the cluster, and which one may; empty if it may."""
    needs = known.op_version
    if has >= needs:
        return ""
    told = f"the cluster has op version {needs}, and this is corvo {release} with op version {has}"
    for node in known.nodes:
        if node.op_version >= needs and node.version:
            return f"{told}: install corvo {node.version}, which node {node.number} runs"
    return f"{told}: install a newer release"
