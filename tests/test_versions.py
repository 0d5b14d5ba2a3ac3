"""Op versions: what each op needs, what is held back, and which release is to be installed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

import msgspec
import pytest
from msgspec.structs import replace

from corvo.protocol.cluster import OP_VERSION_FIRST, ClusterMap, ClusterNode, first_map
from corvo.protocol.ops.base import Op, Rejected
from corvo.protocol.ops.queues import Pause
from corvo.protocol.queries import QUERIES, Query
from corvo.protocol.versions import (
    fields_since,
    held_back,
    needed,
    newest,
    since,
    structs_of,
    too_old,
)
from corvo.protocol.wire import OP_VERSION
from corvo.shard.ops import OPS
from corvo.shard.ops.cluster import RaiseOpVersion
from corvo.shard.ops.schedules import FireSchedules
from corvo.shard.ops.transfer import Receive, ReceiveMany

RECORD: Final = Path(__file__).with_name("op_fields_version_3.json")
"""The fields of all structs of ops and queries, as they were in version 3. It never changes."""

ASKED: Final[list[type[msgspec.Struct]]] = [*OPS.values(), *QUERIES.values()]


class Item(msgspec.Struct, omit_defaults=True):
    name: str
    size: int = 0
    FIELDS_SINCE: ClassVar[Mapping[str, int]] = {"size": 5}


class Colour(msgspec.Struct, tag=True):
    SINCE: ClassVar[int] = 6


class Plain(msgspec.Struct, tag=True):
    inner: list["Plain"] = msgspec.field(default_factory=list)


class Paint(Op, frozen=True, kw_only=True):
    """Op with everything that can be later than itself."""

    items: list[Item] = msgspec.field(default_factory=list)
    by_name: dict[str, Item] = msgspec.field(default_factory=dict)
    pair: tuple[int, Item | None] = (0, None)
    how: Colour | Plain = msgspec.field(default_factory=Plain)
    SINCE: ClassVar[int] = 4
    FIELDS_SINCE: ClassVar[Mapping[str, int]] = {"by_name": 7}


def node(number: int, op_version: int, version: str = "") -> ClusterNode:
    name = "abc"[number - 1]
    return ClusterNode(number=number, name=name, op_version=op_version, version=version)


def cluster(op_version: int, *nodes: ClusterNode) -> ClusterMap:
    known = first_map(nodes or [node(1, op_version)], shards=1, replicas=3)
    return replace(known, op_version=op_version)


# What an op needs.


@pytest.mark.parametrize(
    ("op", "version"),
    [
        (Pause(queue="mail"), 1),
        (Paint(), 4),
        (Paint(items=[Item("a"), Item("b")]), 4),
        (Paint(items=[Item("a"), Item("b", 1)]), 5),
        (Paint(pair=(1, Item("b", 1))), 5),
        (Paint(how=Colour()), 6),
        (Paint(by_name={"a": Item("a")}), 7),
        (Paint(how=Plain([Plain()])), 4),
    ],
)
def test_an_op_needs_the_version_of_the_latest_thing_in_it(op: Op, version: int) -> None:
    assert needed(op) == version
    assert newest(type(op)) == (7 if isinstance(op, Paint) else 1)


def shape(kind: type[msgspec.Struct]) -> dict[str, dict[str, str]]:
    """The fields of a struct and of those within it, without later ones."""
    return {
        f"{each.__module__}.{each.__qualname__}": {
            field.encode_name: "required" if field.required else "has a default"
            for field in msgspec.structs.fields(each)
            if field.name not in fields_since(each)
        }
        for each in structs_of(kind)
        if since(each) <= OP_VERSION_FIRST
    }


def shapes() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for kind in ASKED:
        found |= shape(kind)
    return dict(sorted(found.items()))


def test_a_struct_or_a_field_that_is_new_says_since_which_op_version() -> None:
    """A new one raises `OP_VERSION`, and declares that by `SINCE` or `FIELDS_SINCE`."""
    assert shapes() == json.loads(RECORD.read_text())


@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: kind.__name__)
def test_every_op_and_query_declares_versions_that_there_are(kind: type[msgspec.Struct]) -> None:
    for each in structs_of(kind):
        later = fields_since(each)
        fields = {field.name: field for field in msgspec.structs.fields(each)}
        assert 1 <= since(each) <= OP_VERSION
        assert {*later} <= {*fields}
        assert all(since(each) < version <= OP_VERSION for version in later.values())
        assert not any(fields[name].required for name in later), "an older log lacks it"


def test_only_the_raise_is_proposed_by_leaders_and_newer_than_all_clusters() -> None:
    """A leader's own op needs a form that each cluster can decode, or must wait for the raise.

    There are schedules, and effects about them, only after the raise.
    """
    newer = {op for op in OPS.values() if op.PRIVATE and newest(op) > OP_VERSION_FIRST}

    assert newer == {RaiseOpVersion, FireSchedules, Receive, ReceiveMany}


# What is held back.


class Count(Query, frozen=True, kw_only=True):
    SINCE: ClassVar[int] = 9


def test_what_every_node_can_decode_is_not_held_back() -> None:
    assert held_back(Pause(queue="mail"), cluster(3)) is None
    assert held_back(Paint(items=[Item("a", 1)]), cluster(5)) is None
    assert held_back(Paint(), cluster(4)) is None


def test_what_a_node_cannot_decode_is_held_back_with_the_nodes_to_upgrade() -> None:
    known = cluster(4, node(1, 5, "1.5"), node(2, 4, "1.4"), node(3, 0))

    op = held_back(Paint(items=[Item("a", 1)]), known)
    query = held_back(Count(), cluster(8, node(1, 9), node(2, 9)))

    assert op == Rejected(
        "not_upgraded",
        "Paint needs op version 5, and the cluster has 4: upgrade node 2 (b: corvo 1.4, op version"
        " 4), node 3 (c: not started yet). Nothing was changed",
    )
    assert query == Rejected(
        "not_upgraded",
        "Count needs op version 9, and the cluster has 8: all nodes are upgraded, and the cluster"
        " is about to raise its version: try again. Nothing was changed",
    )


def test_a_release_that_is_too_old_is_told_which_one_to_install() -> None:
    known = cluster(5, node(1, 4, "1.4"), node(2, 5), node(3, 6, "1.6"))

    assert too_old(known, has=5, release="1.5") == ""
    assert too_old(known, has=4, release="1.4") == (
        "the cluster has op version 5, and this is corvo 1.4 with op version 4: install corvo 1.6,"
        " which node 3 runs"
    )
    assert too_old(cluster(5), has=4, release="1.4").endswith("install a newer release")
