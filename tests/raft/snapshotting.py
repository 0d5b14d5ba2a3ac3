"""Groups in which somebody needs a snapshot: what the tests of snapshots share."""

import zlib

from corvo.raft import ProgressView, Snapshot
from corvo.raft.messages import SnapshotChunk
from tests.raft.group import Group

STATE = b"0123456789"
"""What a state machine hands over in these tests: ten bytes, so that offsets are easily read."""


def snapshot(group: Group, replica: int, data: bytes = STATE) -> Snapshot:
    """Let this replica keep a snapshot of what it has applied, and nothing else."""
    state = group[replica].describe_state()
    assert state is not None, "a replica that waits for its first state has none to keep"
    storage = group.storages[replica]
    made = storage.make_snapshot(index=state.index, membership=state.membership, data=data)
    storage.compact(index=state.index, membership=state.membership)
    return made


def left_behind(group: Group) -> Snapshot:
    """Replica 3 heard nothing of what 1, who leads, and 2 have committed and then compacted."""
    group.isolate(3)
    group.elect(1)
    group.propose(1, b"a", b"b", b"c")
    made = snapshot(group, 1)
    assert snapshot(group, 2) == made
    group.heal()
    return made


def stall_at(group: Group, offset: int) -> None:
    """No chunk from this offset on arrives any more."""
    group.passes = lambda message: (
        not (isinstance(message, SnapshotChunk) and message.offset >= offset)
    )


def view(group: Group, replica: int, *, leader: int = 1) -> ProgressView:
    """What the leader knows of this replica."""
    [found] = [each for each in group[leader].statistics().progress if each.replica == replica]
    return found


def offsets(group: Group) -> list[int]:
    """Where the chunks began that arrived."""
    return [each.offset for each in group.delivered if isinstance(each, SnapshotChunk)]


def chunk_of(snapshot: Snapshot, offset: int, data: bytes, *, term: int = 1) -> SnapshotChunk:
    """A chunk as leader 1 would send it to replica 3."""
    return SnapshotChunk(
        1, 3, term, 0, snapshot=snapshot, offset=offset, data=data, checksum=zlib.crc32(data)
    )


def until_install(group: Group, replica: int) -> None:
    """Let the slow disk of this replica do everything but the installing."""
    for _ in range(100):
        group.settle()
        if group.writes[replica] and group.writes[replica][0].install is not None:
            return
        if group.writes[replica]:
            group.store(replica, 1)
        else:
            group.tick(1)
    raise AssertionError("no snapshot is about to be installed")


def pulling() -> tuple[Group, Snapshot]:
    """Replica 3 has the first 4 of 10 bytes and waits for the rest."""
    group = Group(3, chunk_bytes_max=4)
    made = left_behind(group)
    stall_at(group, 4)
    group.tick(1)
    group.mail.clear()
    return group, made


def chunks(group: Group) -> list[SnapshotChunk]:
    """The chunks that arrived."""
    return [each for each in group.delivered if isinstance(each, SnapshotChunk)]
