"""The cluster map in the state machine: who joins, leaves and is refused, and who hears of it."""

from typing import Final

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import structs
from msgspec.structs import replace

from corvo.protocol import cluster, wire
from corvo.protocol.cluster import ClusterMap, ClusterNode, first_map
from corvo.protocol.ops.base import Limits, Op, Rejected
from corvo.protocol.ops.cluster import (
    Announce,
    Announced,
    DrainNode,
    MapDone,
    RemoveNode,
    SetReplicas,
)
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.queries import GetMap, MapFound
from corvo.shard.ops import NUMBERS, admit
from corvo.shard.ops import cluster as cluster_ops
from corvo.shard.ops.cluster import Place, RaiseOpVersion
from tests.shard.map_twin import MapTwin
from tests.shard.replicas import Replicas
from tests.shard.shapes import Fields
from tests.shard.shard import Shard

SHARDS: Final = 2
NODES: Final = [ClusterNode(number=number, name=f"n{number}") for number in (1, 2, 3)]
FIRST: Final = first_map(NODES, shards=SHARDS, replicas=3)


def announced(number: int, *, instance: str = "", first: ClusterMap | None = FIRST) -> Announce:
    """A first node that starts."""
    return Announce(
        name=f"n{number}", number=number, instance=instance or f"dir-{number}", first=first
    )


def joining(name: str, instance: str) -> Announce:
    return Announce(name=name, instance=instance)


def began(*numbers: int) -> Shard:
    """A cluster of three nodes, some of which have been there."""
    shard = Shard(shards=SHARDS)
    for number in numbers or (1, 2, 3):
        shard.do(announced(number))
    return shard


def map_of(shard: Shard) -> ClusterMap:
    known = shard.tx.cluster_map
    assert known is not None
    return known


def join(shard: Shard, name: str, instance: str) -> int:
    """The number of a node that joins."""
    return accepted(shard, joining(name, instance)).number


def accepted(shard: Shard, op: Announce) -> Announced:
    done = shard.do(op)
    assert isinstance(done, Announced), done
    return done


def place(shard: Shard, *places: tuple[int, ...]) -> None:
    done = shard.do(Place(base=map_of(shard).version, places=places))
    assert isinstance(done, MapDone), done


def refusal(shard: Shard, op: Op) -> str:
    """The code of a refusal, after which nothing has changed."""
    before = shard.tx.cluster_map
    refused = shard.refused(op)
    assert shard.tx.cluster_map is before
    shard.reopen()
    assert shard.tx.cluster_map == before
    return refused.code


# The first map, and nodes that start.


def test_a_cluster_has_no_map_until_a_node_brings_the_first_one() -> None:
    shard = Shard(shards=SHARDS)

    codes = [
        refusal(shard, op)
        for op in (
            joining("a", "x"),
            DrainNode(number=1),
            RemoveNode(number=1, reason="lost"),
            SetReplicas(replicas=1),
            Place(base=1, places=((1,), (1,))),
        )
    ]

    assert codes == ["no_map"] * 5


def test_the_first_node_makes_the_map_that_all_first_nodes_agree_on() -> None:
    shard = Shard(shards=SHARDS)

    done = accepted(shard, announced(2))

    assert (done.number, done.map) == (2, map_of(shard))
    nodes = (NODES[0], replace(NODES[1], instance="dir-2"), NODES[2])
    assert done.map == replace(FIRST, version=1, nodes=nodes)
    shard.check_replay()


def test_the_map_is_stored_without_what_is_at_its_default() -> None:
    shard = Shard(shards=1)
    alone = first_map([ClusterNode(number=1, name="a")], shards=1, replicas=3)

    accepted(shard, Announce(name="a", number=1, instance="x", first=alone))

    assert shard.store.content()[b"m|cluster_map"] == (
        b"\x84\xa7version\x01\xa5nodes\x91\x83\xa6number\x01\xa4name\xa1a\xa8instance\xa1x"
        b"\xablast_number\x01\xa6places\x91\x91\x01"
    )


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_in_whatever_order_first_nodes_start_they_have_their_numbers(
    order: tuple[int, ...],
) -> None:
    shard = began(*order)

    known = map_of(shard)

    assert [node.instance for node in known.nodes] == ["dir-1", "dir-2", "dir-3"]
    assert (known.version, known.places, known.is_placed) == (3, FIRST.places, True)


def test_the_first_list_of_a_later_node_changes_nothing() -> None:
    shard = began()
    before = map_of(shard)
    other = first_map([*NODES, ClusterNode(number=4, name="n4")], shards=SHARDS, replicas=1)

    accepted(shard, announced(1, first=other))

    assert map_of(shard) == before


@pytest.mark.parametrize(
    "first",
    [
        first_map(NODES, shards=3, replicas=3),
        replace(FIRST, nodes=()),
        replace(FIRST, nodes=tuple(NODES[::-1])),
        replace(FIRST, nodes=(NODES[0], NODES[0])),
        replace(FIRST, nodes=(NODES[0], ClusterNode(number=2, name="n1"))),
        replace(FIRST, nodes=tuple(replace(node, instance="x") for node in NODES)),
        replace(FIRST, last_number=2),
        replace(FIRST, places=((1, 2), ())),
        replace(FIRST, places=((1, 2), (1, 1))),
        replace(FIRST, places=((1, 2), (4,))),
        replace(FIRST, replicas=2),
        first_map(
            [ClusterNode(number=number, name=f"n{number}") for number in range(1, 130)],
            shards=SHARDS,
            replicas=3,
        ),
    ],
)
def test_a_first_map_that_cannot_be_is_refused(first: ClusterMap) -> None:
    shard = Shard(shards=SHARDS)

    assert refusal(shard, announced(1, first=first)) == "bad_map"


def test_a_node_that_starts_again_is_known_by_its_directory() -> None:
    shard = began()
    before = map_of(shard).version
    again = Announce(
        name="renamed",
        instance="dir-2",
        address="10.0.0.7:9400",
        url="http://x",
        version="2",
        op_version=9,
        wire_version=8,
    )

    first = accepted(shard, again)
    second = accepted(shard, replace(again, number=2))

    assert (first.number, second.number) == (2, 2)
    assert first.map.version == second.map.version == before + 1
    assert first.map.node(2) == ClusterNode(
        number=2,
        name="renamed",
        address="10.0.0.7:9400",
        url="http://x",
        instance="dir-2",
        version="2",
        op_version=9,
        wire_version=8,
    )
    assert first.map.is_placed


def test_places_are_computed_again_for_a_node_that_joins_or_is_in_another_zone() -> None:
    shard = began()

    moved = accepted(shard, replace(announced(1), zone="b")).map
    place(shard, (1, 2, 3), (2, 3, 1))
    joined = accepted(shard, joining("n4", "dir-4"))

    assert not moved.is_placed
    assert (joined.number, joined.map.is_placed, joined.map.last_number) == (4, False, 4)
    assert joined.map.places == ((1, 2, 3), (2, 3, 1))


def test_a_directory_that_was_made_anew_or_copied_is_refused() -> None:
    shard = began(1, 2)

    assert refusal(shard, announced(1, instance="anew")) == "other_instance"
    assert refusal(shard, announced(1, instance="dir-2")) == "other_instance"
    assert refusal(shard, announced(3, instance="dir-2")) == "other_instance"
    assert refusal(shard, announced(9, instance="anew")) == "node_not_found"
    assert accepted(shard, announced(3)).number == 3


def test_two_nodes_never_have_the_same_name() -> None:
    shard = began(1, 2)

    assert refusal(shard, joining("n1", "dir-4")) == "name_taken"
    assert refusal(shard, joining("n3", "dir-4")) == "name_taken"
    assert refusal(shard, replace(announced(1), name="n2")) == "name_taken"
    assert refusal(shard, replace(announced(3), name="n2")) == "name_taken"
    shard.do(RemoveNode(name="n2", reason="lost"))
    assert join(shard, "n2", "dir-4") == 4


def test_a_cluster_has_so_many_nodes_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_ops, "NODES_MAX", 4)
    shard = began()
    join(shard, "n4", "dir-4")

    refused = refusal(shard, joining("n5", "dir-5"))
    again = join(shard, "n4", "dir-4")
    shard.do(RemoveNode(number=1, reason="lost"))

    assert (refused, again) == ("too_many_nodes", 4)
    assert join(shard, "n5", "dir-5") == 5


# Nodes that go.


def test_a_removed_node_is_refused_by_its_directory_and_its_number_with_the_reason() -> None:
    shard = began()

    done = shard.do(RemoveNode(number=2, reason="disk lost"))

    known = map_of(shard)
    assert done == MapDone("removed", known.version)
    assert (known.places, known.is_placed) == (((1, 3), (3, 1)), False)
    assert known.removal_of(2) == cluster.RemovedNode(
        number=2, name="n2", instance="dir-2", reason="disk lost", removed_ns=shard.now_ns
    )
    for op in (announced(2), announced(2, instance="anew"), joining("other", "dir-2")):
        assert refusal(shard, op) == "node_removed"
        assert "disk lost" in shard.refused(op).error
    assert join(shard, "n2", "anew") == 4
    shard.check_replay()


def test_a_removal_that_was_checked_for_an_earlier_map_is_refused() -> None:
    shard = began()
    base = map_of(shard).version
    shard.do(RemoveNode(number=3, reason="lost", base=base))

    assert refusal(shard, RemoveNode(number=2, reason="lost", base=base)) == "map_changed"
    assert shard.do(RemoveNode(number=2, reason="lost", base=base + 1)) == MapDone(
        "removed", base + 2
    )


def test_a_removal_that_is_checked_again_is_the_same_request() -> None:
    shard = began()
    first = shard.do(RemoveNode(number=3, reason="lost", base=3, request_key="r"))

    again = shard.do(RemoveNode(number=3, reason="lost", base=4, request_key="r"))
    other = shard.refused(RemoveNode(number=2, reason="lost", base=4, request_key="r"))

    assert first == again
    assert other.code == "request_key_reused"


def test_a_removed_node_whose_reason_is_forgotten_is_refused_by_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_ops, "REMOVED_MAX", 1)
    shard = began()
    shard.do(RemoveNode(number=3, reason="lost"))
    shard.do(RemoveNode(number=2, reason="lost"))

    assert [gone.number for gone in map_of(shard).removed] == [2]
    assert refusal(shard, announced(3)) == "node_removed"
    assert refusal(shard, announced(2)) == "node_removed"


@pytest.mark.parametrize("op", [DrainNode(number=9), DrainNode(name="n9")])
def test_a_node_that_is_unknown_is_neither_drained_nor_removed(op: DrainNode) -> None:
    shard = began()

    remove = RemoveNode(number=op.number, name=op.name, reason="lost")

    assert refusal(shard, op) == refusal(shard, remove) == "node_not_found"


def test_the_only_replica_of_a_shard_is_not_removed_and_neither_is_the_last_node() -> None:
    shard = began()
    shard.do(SetReplicas(replicas=1))
    place(shard, (1,), (2,))

    alone = refusal(shard, RemoveNode(number=2, reason="lost"))
    shard.do(RemoveNode(number=3, reason="lost"))
    shard.do(DrainNode(number=2))
    place(shard, (1,), (1,))
    shard.do(RemoveNode(number=2, reason="lost"))

    assert alone == "last_replica"
    assert refusal(shard, RemoveNode(number=1, reason="lost")) == "last_node"


def test_draining_is_undone_and_said_again_without_a_change() -> None:
    shard = began()
    before = map_of(shard).version

    done = [
        shard.do(DrainNode(name="n2")),
        shard.do(DrainNode(number=2)),
        shard.do(DrainNode(number=2, is_draining=False)),
        shard.do(DrainNode(number=2, is_draining=False)),
    ]

    assert done == [
        MapDone("draining", before + 1),
        MapDone("draining", before + 1),
        MapDone("not_draining", before + 2),
        MapDone("not_draining", before + 2),
    ]
    assert not map_of(shard).is_placed


def test_the_last_node_that_can_have_replicas_is_not_drained() -> None:
    shard = began()
    shard.do(DrainNode(number=1))
    shard.do(DrainNode(number=2))

    refused = refusal(shard, DrainNode(number=3))
    shard.do(RemoveNode(number=3, reason="lost"))

    assert refused == "last_node"
    assert map_of(shard).carriers == (1, 2)  # all that are left are draining
    place(shard, (1, 2), (2, 1))


def test_a_draining_node_stays_so_when_it_starts_again() -> None:
    shard = began()
    shard.do(DrainNode(number=2))

    node = accepted(shard, announced(2)).map.node(2)

    assert node is not None
    assert node.is_draining


# Places.


def test_places_for_an_earlier_map_are_refused() -> None:
    shard = began()
    base = map_of(shard).version
    shard.do(DrainNode(number=3))

    assert refusal(shard, Place(base=base, places=FIRST.places)) == "map_changed"
    assert refusal(shard, Place(base=base + 1, places=FIRST.places)) == "bad_places"
    place(shard, (1, 2), (2, 1))
    assert map_of(shard).is_placed
    assert refusal(shard, Place(base=base + 1, places=((1, 2), (2, 1)))) == "map_changed"


@pytest.mark.parametrize(
    "places",
    [
        ((1,),),
        ((1,), (2,), (3,)),
        ((1,), ()),
        ((1,), (2, 2)),
        ((1,), (4,)),
        ((1, 2, 3), (1, 2)),
    ],
)
def test_places_that_cannot_be_are_refused(places: tuple[tuple[int, ...], ...]) -> None:
    shard = began()
    shard.do(SetReplicas(replicas=2))

    assert refusal(shard, Place(base=map_of(shard).version, places=places)) == "bad_places"


def test_another_number_of_replicas_asks_for_places() -> None:
    shard = began()
    before = map_of(shard).version

    same = shard.do(SetReplicas(replicas=3))
    fewer = shard.do(SetReplicas(replicas=1))

    assert (same, fewer) == (MapDone("ok", before), MapDone("ok", before + 1))
    assert not map_of(shard).is_placed


def test_only_one_shard_has_the_map() -> None:
    shard = Shard(number=1, shards=SHARDS)

    codes = [refusal(shard, op) for op in (announced(1), DrainNode(number=1))]

    assert codes == ["wrong_shard"] * 2


# What is refused at the door.


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (joining("", "x"), "name"),
        (joining("a b", "x"), "name"),
        (joining("a\n", "x"), "name"),
        (joining("a", ""), "instance"),
        (replace(joining("a", "x"), number=-1), "number"),
        (replace(joining("a", "x"), address="x" * 301), "address"),
        (DrainNode(), "number"),
        (DrainNode(number=1, name="n1"), "number"),
        (RemoveNode(number=1, reason=""), "reason"),
        (RemoveNode(number=1, reason=" \t"), "reason"),
        (RemoveNode(number=1, reason="x" * 501), "reason"),
        (RemoveNode(reason="lost"), "number"),
        (SetReplicas(replicas=0), "replicas"),
        (SetReplicas(replicas=8), "replicas"),
    ],
)
def test_an_op_that_cannot_be_is_refused_by_the_field(op: Op, field: str) -> None:
    refused = admit(NUMBERS[type(op)], msgspec.json.encode(op), Limits())

    assert isinstance(refused, Rejected)
    assert (refused.code, refused.field) == ("bad_request", field)


def test_no_router_may_ask_for_places() -> None:
    op = Place(base=1, places=((1,),))

    refused = admit(NUMBERS[Place], msgspec.json.encode(op), Limits())

    assert isinstance(refused, Rejected)
    assert refused.code == "forbidden"


# The op version of the cluster.


def upgrade(shard: Shard, *numbers: int, op_version: int = 5) -> None:
    """Nodes that start again with another release."""
    for number in numbers:
        op = replace(announced(number), op_version=op_version, version=f"1.{op_version}")
        accepted(shard, op)


def raised(shard: Shard, op_version: int) -> RaiseOpVersion:
    return RaiseOpVersion(base=map_of(shard).version, op_version=op_version)


def test_the_op_version_is_raised_once_every_node_has_it_and_never_lowered() -> None:
    shard = began()
    upgrade(shard, 1, 2)

    early = refusal(shard, raised(shard, 5))
    upgrade(shard, 3)
    before = map_of(shard).version
    done = shard.do(raised(shard, 5))
    again = shard.do(raised(shard, 4))

    assert early == "older_release"
    assert done == MapDone("raised", before + 1) == again
    assert map_of(shard).op_version == 5
    assert map_of(shard).is_placed
    shard.check_replay()


def test_a_raise_that_was_proposed_for_an_earlier_map_is_refused() -> None:
    shard = began()
    upgrade(shard, 1, 2, 3)
    op = raised(shard, 5)

    upgrade(shard, 3, op_version=4)

    assert refusal(shard, op) == "map_changed"


def test_a_node_with_an_older_release_is_refused_after_the_raise_with_the_release_to_install() -> (
    None
):
    shard = began()
    upgrade(shard, 1, 2, 3)
    shard.do(raised(shard, 5))
    older = replace(announced(2), op_version=4, version="1.4")

    assert refusal(shard, older) == "older_release"
    assert refusal(shard, joining("n4", "dir-4")) == "older_release"
    assert shard.refused(older).error == (
        "the cluster has op version 5, and this is corvo 1.4 with op version 4: install corvo 1.5,"
        " which node 1 runs"
    )
    upgrade(shard, 2, op_version=6)


def test_before_a_raise_a_node_may_return_to_an_older_release() -> None:
    shard = began()
    upgrade(shard, 1, 2)

    upgrade(shard, 1, op_version=4)

    node = map_of(shard).node(1)
    assert node is not None
    assert node.op_version == 4


# Any order of ops, by a twin that has dictionaries.

_NAMES: Final = ("n1", "n2", "n3", "n4", "n5")
_DIRECTORIES: Final = ("dir-1", "dir-2", "dir-3", "dir-4", "dir-5", "dir-6")
_numbers: Final = st.integers(0, 6)


def shown(known: ClusterMap | None) -> Fields:
    """A map as JSON, with every field."""
    if known is None:
        return MapTwin(SHARDS).shown()
    whole: Fields = {name: getattr(known, name) for name in known.__struct_fields__}
    whole["nodes"] = [structs.asdict(node) for node in known.nodes]
    whole["removed"] = [structs.asdict(gone) for gone in known.removed]
    whole["places"] = [[*row] for row in known.places]
    return whole


class Maps(RuleBasedStateMachine):
    """One shard with a map, and the twin."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard(shards=SHARDS)
        self.twin = MapTwin(SHARDS)
        self.owners: dict[int, str] = {}
        """The first directory that each number had."""
        self.op_version = 0
        """The cluster's, as it was last."""

    def both(self, op: Op) -> None:
        before = self.shard.tx.cluster_map
        [answer] = self.shard.entry(op)
        after = self.shard.tx.cluster_map
        fields = msgspec.json.decode(msgspec.json.encode(op), type=Fields)
        expected = self.twin.do(type(op).__name__, fields, now_ns=self.shard.now_ns)
        assert answer.code == expected.get("code", "")
        if answer.code:
            assert after is before
            return
        answered = msgspec.json.decode(answer.body, type=Fields)
        assert answered.keys() == expected.keys()
        assert all(answered[name] == expected[name] for name in expected if name != "map")
        if after is not before:
            assert after is not None
            assert after.version == (before.version if before is not None else 0) + 1

    @rule(
        name=st.sampled_from(_NAMES),
        instance=st.sampled_from(_DIRECTORIES),
        number=_numbers,
        zone=st.sampled_from(("", "", "z")),
        op_version=st.sampled_from((0, 4, 5)),
        has_first=st.booleans(),
    )
    def announce(
        self, name: str, instance: str, number: int, zone: str, op_version: int, has_first: bool
    ) -> None:
        op = Announce(
            name=name,
            instance=instance,
            number=number,
            zone=zone,
            op_version=op_version,
            first=FIRST if has_first else None,
        )
        self.both(op)

    @rule(number=st.integers(1, 6), op_version=st.sampled_from((0, 4, 5)))
    def announce_as_configured(self, number: int, op_version: int) -> None:
        op = replace(announced(number), op_version=op_version)
        self.both(op)

    @rule(op_version=st.sampled_from((4, 5)))
    def upgrade_all(self, op_version: int) -> None:
        for number in self.twin.nodes:
            owner = self.twin.nodes[number].instance or f"dir-{number}"
            name = self.twin.nodes[number].name
            self.both(Announce(name=name, instance=owner, number=number, op_version=op_version))

    @rule(op_version=st.sampled_from((4, 5)), late=st.sampled_from((0, 0, 0, 1)))
    def raise_op_version(self, op_version: int, late: int) -> None:
        base = max(1, self.twin.version - late)
        op = RaiseOpVersion(base=base, op_version=op_version)
        self.both(op)

    @rule(pick=st.integers(0, 5))
    def join(self, pick: int) -> None:
        op = joining(_NAMES[pick % 5], _DIRECTORIES[pick])
        self.both(op)

    @rule(number=_numbers, name=st.sampled_from(_NAMES), is_draining=st.booleans())
    def drain(self, number: int, name: str, is_draining: bool) -> None:
        op = DrainNode(number=number, name="" if number else name, is_draining=is_draining)
        self.both(op)

    @rule(number=_numbers, name=st.sampled_from(_NAMES), late=st.sampled_from((None, None, 0, 1)))
    def remove(self, number: int, name: str, late: int | None) -> None:
        base = 0 if late is None else max(0, self.twin.version - late)
        op = RemoveNode(number=number, name="" if number else name, reason="lost", base=base)
        self.both(op)

    @rule(replicas=st.integers(1, 4))
    def set_replicas(self, replicas: int) -> None:
        op = SetReplicas(replicas=replicas)
        self.both(op)

    @rule(
        places=st.lists(st.lists(st.integers(1, 6), max_size=3), min_size=1, max_size=3),
        late=st.integers(0, 1),
    )
    def place(self, places: list[list[int]], late: int) -> None:
        rows = tuple(tuple(row) for row in places)
        op = Place(base=max(1, self.twin.version - late), places=rows)
        self.both(op)

    @precondition(lambda self: self.twin.nodes)
    @rule(count=st.integers(1, 4))
    def place_well(self, count: int) -> None:
        row = tuple(sorted(self.twin.carriers())[: min(count, self.twin.replicas)])
        op = Place(base=self.twin.version, places=(row,) * SHARDS)
        self.both(op)

    @rule()
    def restart(self) -> None:
        self.shard.reopen()

    @invariant()
    def is_as_the_twin_has_it(self) -> None:
        assert shown(self.shard.tx.cluster_map) == self.twin.shown()

    @invariant()
    def every_node_knows_the_ops_that_the_cluster_uses(self) -> None:
        known = self.shard.tx.cluster_map
        if known is not None:
            assert known.op_version >= self.op_version
            self.op_version = known.op_version
            for node in known.nodes:
                assert node.op_version >= known.op_version or known.op_version == 3

    @invariant()
    def no_number_is_used_twice(self) -> None:
        known = self.shard.tx.cluster_map
        for node in known.nodes if known is not None else ():
            if node.instance:
                assert self.owners.setdefault(node.number, node.instance) == node.instance

    @invariant()
    def every_shard_has_a_place(self) -> None:
        known = self.shard.tx.cluster_map
        if known is not None:
            fault = cluster.fault_of(replace(known, replicas=7), shards=SHARDS)
            assert not fault

    def teardown(self) -> None:
        self.shard.check_replay()


TestMaps = Maps.TestCase


# Who is told.


def map_from(group: Replicas, *, to: int = 1) -> ClusterMap | None:
    request = group.ask(GetMap(), to=to)
    group.settle()
    answer = group.answer(request, of=to)
    assert isinstance(answer, wire.Reply)
    assert not answer.code
    return msgspec.json.decode(answer.body, type=MapFound).map


def news_of(group: Replicas, number: int) -> list[tuple[int, int]]:
    """The links that were told of a map, and its version."""
    return [
        (client, message.version)
        for client, message in group.heard[number]
        if isinstance(message, wire.MapChanged)
    ]


ONE_SHARD: Final = first_map(NODES, shards=1, replicas=3)


def test_the_map_is_answered_by_a_leader_and_none_while_there_is_none() -> None:
    group = Replicas(3)

    before = map_from(group)
    group.do(announced(1, first=ONE_SHARD))
    group.elect(2, 3)

    assert before is None
    after = map_from(group, to=2)
    assert after is not None
    assert (after.version, after.node(1)) == (1, replace(NODES[0], instance="dir-1"))


def test_every_router_of_every_replica_is_told_before_the_answer_and_no_shard_is() -> None:
    group = Replicas(3)
    for replica in group.replicas.values():
        replica.joined(2)
        replica.joined(3, is_shard=True)

    request = group.submit(announced(1, first=ONE_SHARD))
    group.settle()

    for number in group.voters:
        assert news_of(group, number) == [(1, 1), (2, 1)]
    kinds = [type(message) for client, message in group.heard[1] if client == 1]
    assert wire.MapChanged in kinds[: kinds.index(wire.Reply)]
    assert isinstance(group.answer(request), wire.Reply)


def test_nobody_is_told_of_what_changed_nothing() -> None:
    group = Replicas()

    group.do(announced(1, first=ONE_SHARD))
    group.do(announced(1, first=ONE_SHARD))
    group.do(RemoveNode(number=9, reason="lost"))
    group.put(NewJob(queue="mail"))

    assert news_of(group, 1) == [(1, 1)]


def test_a_replica_that_was_given_a_snapshot_says_which_map_came_with_it() -> None:
    group = Replicas(3)
    group.cut_off[3] = None
    group.do(announced(1, first=ONE_SHARD))
    group.do(announced(2, first=ONE_SHARD))
    group.make_snapshot(1)
    group.cut_off.clear()

    group.tick(3, 1)

    machine = group.replicas[3].machine
    assert machine.digest == group.replicas[1].machine.digest
    assert machine.tx.cluster_map == group.replicas[1].machine.tx.cluster_map
    assert news_of(group, 3) == [(1, 2)]
