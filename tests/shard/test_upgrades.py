"""Nodes are upgraded: when the op version is raised, and what is refused until then."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from corvo import __version__
from corvo.child import MISCONFIGURED
from corvo.errors import NewerEntry
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap, ClusterNode, first_map
from corvo.protocol.ops.base import Op, Rejected
from corvo.protocol.ops.cluster import Announce
from corvo.protocol.ops.queues import Pause, Resume
from corvo.protocol.versions import newest
from corvo.shard.driver.poison import Poison
from corvo.shard.driver.process import end
from corvo.shard.machine import decode_entry
from corvo.shard.ops.cluster import RaiseOpVersion
from corvo.shard.replica import Settings
from corvo.shard.state import entry
from corvo.shard.upkeep import PLACE_AGAIN_NS, Upkeep
from tests.shard.replicas import Replicas
from tests.shard.shard import Shard

OLD: Final = wire.OP_VERSION
NEW: Final = OLD + 1
NODES: Final = [ClusterNode(number=number, name=f"n{number}") for number in (1, 2, 3)]
FIRST: Final = first_map(NODES, shards=1, replicas=3)


def announced(number: int, op_version: int) -> Announce:
    return Announce(
        name=f"n{number}",
        instance=f"dir-{number}",
        number=number,
        op_version=op_version,
        version=f"1.{op_version}",
        first=FIRST,
    )


def map_of(shard: Shard) -> ClusterMap:
    known = shard.tx.cluster_map
    assert known is not None
    return known


def raises_due(upkeep: Upkeep, shard: Shard, now_ns: int = 0) -> list[RaiseOpVersion]:
    """The raises that a leader would propose now."""
    now_ns = now_ns or shard.clock_ns
    return [op for op in upkeep.due(shard.tx, now_ns) if isinstance(op, RaiseOpVersion)]


# Raising it.


def test_a_leader_raises_the_version_when_the_last_node_has_announced_it() -> None:
    shard = Shard(shards=1)
    upkeep = Upkeep(retention_ms=1, op_version=NEW)
    shard.do(announced(1, NEW))
    shard.do(announced(2, NEW))
    early = raises_due(upkeep, shard)
    shard.do(announced(3, OLD))
    shard.do(RaiseOpVersion(base=3, op_version=OLD))
    lower = raises_due(upkeep, shard)
    shard.do(announced(3, NEW))

    first = raises_due(upkeep, shard)
    again = raises_due(upkeep, shard, shard.clock_ns + PLACE_AGAIN_NS - 1)
    due_ns = upkeep.next_ns(shard.tx)
    later = raises_due(upkeep, shard, shard.clock_ns + PLACE_AGAIN_NS)

    assert (early, lower, again) == ([], [], [])
    assert first == later == [RaiseOpVersion(base=5, op_version=NEW)]
    assert due_ns == shard.clock_ns + PLACE_AGAIN_NS
    shard.do(first[0])
    assert raises_due(upkeep, shard, shard.clock_ns + 2 * PLACE_AGAIN_NS) == []


def test_a_leader_raises_the_version_no_higher_than_its_own() -> None:
    """Its node has announced a later release, and runs an older one again."""
    shard = Shard(shards=1)
    for number in (1, 2, 3):
        shard.do(announced(number, NEW))

    found = raises_due(Upkeep(retention_ms=1, op_version=OLD), shard)

    assert found == [RaiseOpVersion(base=3, op_version=OLD)]


# What a leader proposes.


def upgraded(op_version: int, *, new: tuple[int, ...] = ()) -> ClusterMap:
    """A map of three nodes, some of which run the new release."""
    nodes = [replace(node, op_version=NEW if node.number in new else OLD) for node in NODES]
    return replace(first_map(nodes, shards=1, replicas=3), op_version=op_version)


def answer_to(group: Replicas, op: Op) -> wire.Reply:
    request = group.submit(op)
    group.settle()
    answer = group.answer(request)
    assert isinstance(answer, wire.Reply)
    return answer


@pytest.fixture
def later_pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the op that pauses a queue be one that came with the new release."""
    monkeypatch.setattr(Pause, "SINCE", NEW)
    newest.cache_clear()
    yield
    newest.cache_clear()


@pytest.mark.usefixtures("later_pause")
def test_an_op_is_refused_until_the_map_of_the_leader_allows_it() -> None:
    group = Replicas(3)
    leader = group.replicas[1]
    last = leader.machine.applied

    leader.map = upgraded(OLD, new=(1, 3))
    refused = answer_to(group, Pause(queue="mail"))
    before = leader.machine.applied
    other = answer_to(group, Resume(queue="mail"))
    leader.map = upgraded(NEW, new=(1, 2, 3))
    taken = answer_to(group, Pause(queue="mail"))

    assert refused.code == "not_upgraded"
    reason = msgspec.json.decode(refused.body, type=Rejected).error
    assert "upgrade node 2 (n2: " in reason
    assert reason.endswith("Nothing was changed")
    assert before == last
    assert (other.code, taken.code) == ("", "")


def test_the_leader_of_shard_0_lets_the_map_follow_the_nodes() -> None:
    group = Replicas(3, settings=Settings(op_version=NEW))
    for replica in group.replicas.values():
        replica.map = FIRST
    for number in (1, 2, 3):
        group.do(announced(number, NEW))

    group.settle()

    known = group.replicas[2].machine.tx.cluster_map
    assert known is not None
    assert (known.version, known.op_version) == (4, NEW)


# Entries of a newer release.


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ((999, b"{}"), "op 999, which is unknown"),
        ((11, b'{"queue":"mail","until":7}'), "op Pause with Object contains unknown field"),
    ],
)
def test_an_entry_of_a_newer_release_is_refused_and_not_blamed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record: tuple[int, bytes],
    what: str,
) -> None:
    data = entry.encode(entry.Stamp(1, 1), [record])
    poison = Poison(tmp_path / "poison")
    replica = Replicas(1).replicas[1]
    replica.applying = 7

    with pytest.raises(NewerEntry) as refused, poison.watching(replica):
        decode_entry(data)

    assert end(refused.value) == MISCONFIGURED
    told = capsys.readouterr().err
    assert told.startswith("corvo shard: refused: the log of the shard has an entry of a newer")
    assert what in told
    assert f"this is corvo {__version__} with op version {OLD}: install" in told
    assert told.count("\n") == 1
    assert not (tmp_path / "poison").exists()
