"""The bytes of a snapshot on their way: chunk by chunk, lost, resumed, mixed up with another's."""

import hashlib
import zlib

import pytest
from msgspec.structs import replace

from corvo.raft import Entry, Flow, Kind, Partial, Snapshot
from corvo.raft.messages import (
    AppendRequest,
    Heartbeat,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotPull,
)
from tests.raft.group import Group, members
from tests.raft.snapshotting import (
    STATE,
    chunk_of,
    chunks,
    left_behind,
    offsets,
    pulling,
    snapshot,
    stall_at,
    until_install,
    view,
)

# The stream.


def test_a_snapshot_travels_in_chunks_one_at_a_time() -> None:
    group = Group(3, chunk_bytes_max=4)
    made = left_behind(group)

    group.tick(1)

    stream = [
        (type(each).__name__, each.offset)
        for each in group.delivered
        if isinstance(each, SnapshotPull | SnapshotChunk)
    ]
    assert stream == [
        ("SnapshotPull", 0),
        ("SnapshotChunk", 0),
        ("SnapshotPull", 4),
        ("SnapshotChunk", 4),
        ("SnapshotPull", 8),
        ("SnapshotChunk", 8),
    ]
    assert group.storages[3].snapshot() == made


def test_a_snapshot_of_nothing_takes_one_empty_chunk() -> None:
    group = Group(3)
    group.isolate(3)
    group.elect(1)
    snapshot(group, 1, b"")
    group.heal()

    group.tick(1)

    assert offsets(group) == [0]
    assert group[3].statistics().applied == 1


def test_the_next_chunk_is_asked_for_only_when_the_last_is_durable() -> None:
    group = Group(3, chunk_bytes_max=4)
    left_behind(group)
    group.tick(3)
    group.slow_disks = {3}
    group.tick(1)
    group.store(3)
    group.settle()
    assert offsets(group) == [0]

    group.store(3)
    group.settle()

    assert offsets(group) == [0, 4]


def test_a_pull_or_a_chunk_that_was_lost_is_asked_for_again() -> None:
    group = Group(3, chunk_bytes_max=4, election_ticks=10)
    made = left_behind(group)
    stall_at(group, 4)
    group.tick(1)
    group.heal()
    assert group[3].statistics().snapshot_received == (4, 10)

    for _ in range(10):
        group.tick(1, 3)

    assert offsets(group) == [0, 4, 8]
    assert group.storages[3].snapshot() == made


@pytest.mark.parametrize(
    ("offset", "data", "checksum", "reason"),
    [
        (0, b"0123", None, "chunk_out_of_order"),
        (8, b"89", None, "chunk_out_of_order"),
        (4, b"4567", 1, "chunk_damaged"),
        (4, b"456789 and more", None, "chunk_damaged"),
        (4, b"", None, "chunk_damaged"),
    ],
    ids=["seen before", "too early", "wrong checksum", "beyond the end", "no bytes"],
)
def test_a_chunk_that_cannot_be_the_next_is_dropped(
    offset: int, data: bytes, checksum: int | None, reason: str
) -> None:
    group, made = pulling()

    group[3].step(
        SnapshotChunk(
            1,
            3,
            1,
            0,
            snapshot=made,
            offset=offset,
            data=data,
            checksum=zlib.crc32(data) if checksum is None else checksum,
        )
    )

    assert group[3].ready().write is None
    assert group[3].statistics().snapshot_received == (4, 10)
    assert group[3].statistics().refused == {reason: 1}


def test_a_second_copy_of_a_chunk_is_dropped_while_the_first_is_on_its_way_to_the_disk() -> None:
    group, made = pulling()
    chunk = chunk_of(made, 4, b"4567")

    group[3].step(chunk)
    group[3].step(chunk)
    write = group[3].ready().write
    group[3].step(chunk)

    assert write is not None
    assert write.chunk == chunk
    assert group[3].ready().write is None
    assert group[3].statistics().refused == {"chunk_out_of_order": 2}


@pytest.mark.parametrize(
    "other",
    [
        Snapshot(4, 1, members(1, 2, 3), 10, b"another checksum"),
        Snapshot(4, 1, members(1, 2, 3, 4), 10, b"another group"),
        Snapshot(9, 1, members(1, 2, 3), 10, b"another index"),
    ],
    ids=["other bytes", "other members", "other index"],
)
def test_x20_a_chunk_of_a_stream_that_was_not_offered_is_dropped(other: Snapshot) -> None:
    group, _ = pulling()

    group[3].step(chunk_of(other, 4, b"4567"))

    assert group[3].ready().write is None
    assert group[3].statistics().refused == {"chunk_of_another_stream": 1}


def test_a_pull_of_a_stream_that_was_not_offered_is_refused() -> None:
    group, made = pulling()
    other = Snapshot(made.index, made.term, made.membership, made.size, b"another checksum")

    group[1].step(SnapshotPull(3, 1, 1, 0, snapshot=other, offset=0))
    group[1].step(SnapshotPull(2, 1, 1, 0, snapshot=made, offset=0))
    group.work(1)

    assert group.mail == []
    assert group[1].statistics().refused == {"pull_of_another_stream": 2}


def test_a_pull_from_beyond_the_end_makes_the_leader_probe() -> None:
    group, made = pulling()

    group[1].step(SnapshotPull(3, 1, 1, 0, snapshot=made, offset=11))

    assert view(group, 3).flow is Flow.PROBE


def test_a_stream_whose_bytes_are_not_what_was_offered_is_pulled_anew() -> None:
    group, made = pulling()
    group[3].step(chunk_of(made, 4, b"????"))
    group.settle()
    group[3].step(chunk_of(made, 8, b"89"))
    group.settle()
    seen = group[3].statistics()
    assert (seen.snapshot_received, seen.applied) == (None, 0)
    assert seen.refused == {"snapshot_damaged": 1}
    group.heal()

    group.tick(1, times=35)

    assert group.storages[3].snapshot_data == STATE


# Streams that end, begin again and meet.


@pytest.mark.conformance("X19")
def test_x19_a_stream_goes_on_where_it_was_when_the_sender_comes_back() -> None:
    group, made = pulling()
    group.delivered.clear()
    group.heal()
    group.start(1)

    group.elect(1)
    group.tick(1, times=2)

    assert offsets(group) == [4, 8]
    assert group.storages[3].snapshot() == made


@pytest.mark.conformance("X19")
def test_x19_a_stream_goes_on_where_it_was_when_the_receiver_comes_back() -> None:
    group, made = pulling()
    group.delivered.clear()
    group.heal()
    assert group.storages[3].partial == Partial(made, 4)

    group.start(3)
    group.tick(1, times=40)

    assert offsets(group) == [4, 8]
    assert group.storages[3].snapshot() == made


@pytest.mark.conformance("X19")
def test_x19_a_stream_that_was_complete_when_the_receiver_stopped_is_installed_without_a_byte() -> (
    None
):
    group = Group(3, chunk_bytes_max=4)
    made = left_behind(group)
    group.slow_disks = {3}
    until_install(group, 3)
    group.slow_disks = set()
    group.delivered.clear()

    group.start(3)
    group.tick(1, times=40)

    assert offsets(group) == []
    assert group.storages[3].snapshot() == made
    assert group[3].statistics().applied == group[1].statistics().applied


@pytest.mark.conformance("X20")
def test_x20_a_chunk_of_the_older_stream_is_dropped_once_the_newer_has_begun() -> None:
    group, older = pulling()
    newer = Snapshot(6, 1, members(1, 2, 3), 8, b"newer")
    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=newer, goal=6))
    group.work(3)
    assert group.mail == [SnapshotPull(3, 1, 1, 0, snapshot=newer, offset=0)]

    group[3].step(chunk_of(older, 4, b"4567"))

    assert group[3].ready().write is None
    assert group[3].statistics().snapshot_received == (0, 8)
    assert group[3].statistics().refused == {"chunk_of_another_stream": 1}


@pytest.mark.conformance("X20")
def test_x20_a_late_offer_of_the_older_snapshot_does_not_end_the_newer_stream() -> None:
    group, older = pulling()
    newer = Snapshot(6, 1, members(1, 2, 3), 8, b"newer")
    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=newer, goal=6))
    group.work(3)
    group.mail.clear()

    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=older, goal=6))
    group.work(3)

    assert group.mail == []
    assert group[3].statistics().snapshot_received == (0, 8)
    assert group[3].statistics().refused == {"old_offer": 1}


@pytest.mark.conformance("X20")
def test_x20_a_chunk_that_no_write_has_taken_goes_with_the_stream_it_belongs_to() -> None:
    group, older = pulling()
    newer = Snapshot(6, 1, members(1, 2, 3), 8, b"newer")
    group[3].step(chunk_of(older, 4, b"4567"))

    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=newer, goal=6))

    assert group[3].ready().write is None
    group[3].step(chunk_of(newer, 0, b"abcd"))
    write = group[3].ready().write
    assert write is not None
    assert write.chunk == chunk_of(newer, 0, b"abcd")


@pytest.mark.conformance("X20")
@pytest.mark.parametrize("data", [b"4567", b"456789"], ids=["in the middle", "the last"])
def test_x20_an_older_chunk_that_becomes_durable_late_counts_for_nothing(data: bytes) -> None:
    group, older = pulling()
    newer = Snapshot(6, 1, members(1, 2, 3), 8, b"newer")
    group.slow_disks = {3}
    group[3].step(chunk_of(older, 4, data))
    group.work(3)
    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=newer, goal=6))
    group.work(3)
    group.mail.clear()

    group.store(3)
    group.work(3)

    assert (group.mail, group.writes[3]) == ([], [])
    assert group[3].statistics().snapshot_received == (0, 8)


@pytest.mark.conformance("X21")
def test_x21_a_second_snapshot_right_behind_the_first_replaces_it_half_way() -> None:
    group, older = pulling()
    group.heal()
    group.propose(1, b"d")
    newer = snapshot(group, 1, b"second state")
    group.delivered.clear()

    for _ in range(20):
        group.tick(1, 3)

    assert older.index < newer.index
    assert group.storages[3].snapshot() == newer
    assert group.storages[3].snapshot_data == b"second state"
    assert offsets(group) == [0, 4, 8]


@pytest.mark.conformance("X21")
def test_x21_a_second_snapshot_while_the_first_is_being_installed_waits_its_turn() -> None:
    group = Group(3)
    left_behind(group)
    group.slow_disks = {3}
    until_install(group, 3)
    newer = Snapshot(6, 1, members(1, 2, 3), 8, b"newer")

    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=newer, goal=6))
    group.work(3)
    assert group[3].statistics().snapshot_received is None
    group.store(3)
    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=newer, goal=6))

    assert group[3].statistics().applied == 4
    assert group[3].statistics().snapshot_received == (0, 8)


@pytest.mark.conformance("X21")
def test_x21_two_snapshots_one_after_the_other_are_both_installed() -> None:
    group = Group(3, chunk_bytes_max=4)
    first = left_behind(group)
    group.tick(1)
    assert group.storages[3].snapshot() == first
    group.isolate(3)
    group.propose(1, b"d", b"e")
    second = snapshot(group, 1, b"second state")
    group.heal()

    group.tick(1, times=3)

    assert group.storages[3].snapshot() == second
    assert group[3].describe_state() == group[1].describe_state()


@pytest.mark.conformance("X23")
def test_x23_a_new_leader_with_the_same_snapshot_goes_on_in_the_middle() -> None:
    group, made = pulling()
    group.delivered.clear()
    group.heal()

    group.elect(2)
    group.tick(2, times=2)

    assert [(each.source, each.offset) for each in chunks(group)] == [(2, 4), (2, 8)]
    assert group.storages[3].snapshot() == made


@pytest.mark.conformance("X23")
def test_x23_a_new_leader_with_other_bytes_of_the_same_index_begins_anew() -> None:
    group, older = pulling()
    other = group.storages[2].make_snapshot(
        index=older.index, membership=older.membership, data=b"abcdefghij"
    )
    group.delivered.clear()
    group.heal()

    group.elect(2)
    group.tick(2, times=2)

    assert [(each.source, each.offset) for each in chunks(group)] == [(2, 0), (2, 4), (2, 8)]
    assert group.storages[3].snapshot() == other
    assert group.storages[3].snapshot_data == b"abcdefghij"


@pytest.mark.conformance("X23")
def test_x23_a_new_leader_may_offer_an_older_snapshot_than_the_last_one_did() -> None:
    group = Group(3, chunk_bytes_max=4)
    left_behind(group)
    older = group.storages[2].snapshot()
    group.isolate(3)
    group.propose(1, b"d")
    newer = snapshot(group, 1, b"newer state")
    group.heal()
    stall_at(group, 4)
    group.tick(1)
    assert group[3].statistics().snapshot_received == (4, newer.size)
    group.heal()

    group.elect(2)
    group.tick(2, times=2)

    assert group.storages[3].snapshot() == older
    assert group.normal(3) == [b"d"]
    assert group[3].describe_state() == group[2].describe_state()


@pytest.mark.conformance("X23")
def test_x23_a_chunk_of_the_last_leader_is_dropped_under_the_new_one() -> None:
    group, made = pulling()
    group[3].step(Heartbeat(2, 3, 2, 0, commit=0, round=0))
    group.work(3)

    group[3].step(chunk_of(made, 4, b"4567", term=1))
    group[3].step(replace(chunk_of(made, 4, b"4567", term=2), source=2))

    assert group[3].ready().write is None
    assert group[3].statistics().refused == {"old_term": 1, "chunk_of_another_stream": 1}


@pytest.mark.conformance("X23")
def test_x23_nothing_is_pulled_while_no_leader_is_known() -> None:
    group, _ = pulling()
    group.slow_disks = {3}
    group[3].forget_leader()

    for _ in range(9):
        group[3].tick()
        group.work(3)

    assert group.mail == []


@pytest.mark.conformance("X23")
def test_x23_the_same_stream_offered_anew_does_not_write_a_chunk_twice() -> None:
    group, made = pulling()
    group.slow_disks = {3}
    group[3].step(chunk_of(made, 4, b"4567"))
    group.work(3)
    again = chunk_of(made, 4, b"4567")

    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=made, goal=4))
    group[3].step(again)
    group.work(3)
    group.store(3)

    assert group.storages[3].partial == Partial(made, 8)
    assert group[3].statistics().snapshot_received == (8, 10)


@pytest.mark.conformance("X23")
def test_x23_a_disk_that_is_slower_than_the_leaders_patience_still_gets_the_snapshot() -> None:
    group, made = pulling()
    group.heal()
    group.slow_disks = {3}
    group.tick(3, times=10)
    assert [write.chunk is not None for write in group.writes[3]] == [True]

    for _ in range(35):
        group.tick(1, 3)
    group.slow_disks = set()
    group.store(3)
    for _ in range(35):
        group.tick(1, 3)

    assert group.storages[3].snapshot() == made


@pytest.mark.conformance("X20", "X23")
def test_x20_x23_a_stream_offered_again_does_not_count_bytes_of_its_first_life() -> None:
    group, made = pulling()
    other = Snapshot(made.index, made.term, made.membership, 8, b"other")
    group.slow_disks = {3}
    group[3].step(chunk_of(made, 4, b"4567"))
    group.work(3)
    group[3].step(SnapshotOffer(2, 3, 2, 0, snapshot=other, goal=4))
    group[3].step(
        SnapshotChunk(2, 3, 2, 0, other, offset=0, data=b"ab", checksum=zlib.crc32(b"ab"))
    )
    group.work(3)
    group[3].step(SnapshotOffer(1, 3, 3, 0, snapshot=made, goal=4))
    group.work(3)
    group.mail.clear()

    group.store(3)
    group.work(3)

    assert group.storages[3].partial == Partial(other, 2)
    pulls = [each for each in group.mail if isinstance(each, SnapshotPull)]
    assert [each.offset for each in pulls if each.snapshot == made] == [0]
    assert group[3].statistics().snapshot_received == (0, 10)


@pytest.mark.conformance("X19")
def test_x19_a_late_chunk_of_a_first_attempt_is_dropped_while_the_second_is_being_written() -> None:
    group, made = pulling()
    for offset, data in ((4, b"????"), (8, b"89")):
        group[3].step(chunk_of(made, offset, data))
        group.settle()
    assert group[3].statistics().refused == {"snapshot_damaged": 1}
    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=made, goal=4))
    group.slow_disks = {3}
    group[3].step(chunk_of(made, 0, b"0123"))
    group.work(3)

    group[3].step(chunk_of(made, 4, b"4567"))
    group.work(3)
    group.store(3)

    assert group.storages[3].partial == Partial(made, 4)
    assert group[3].statistics().snapshot_received == (4, 10)


@pytest.mark.conformance("X23")
def test_x23_a_stream_that_the_log_of_a_new_leader_has_overtaken_is_forgotten() -> None:
    group = Group(3, chunk_bytes_max=4)
    group.isolate(3)
    group.elect(1)
    group.propose(1, b"a", b"b", b"c")
    snapshot(group, 1)
    group.heal()
    stall_at(group, 4)
    group.tick(1)
    assert group[3].statistics().snapshot_received == (4, 10)

    group.elect(2)
    group.tick(2)

    assert group.normal(3) == [b"a", b"b", b"c"]
    assert group[3].statistics().snapshot_received is None


def test_a_stream_that_appends_overtake_does_not_cut_what_they_brought() -> None:
    """The acknowledgement of those entries may be on its way already."""
    group = Group(3)
    group.slow_disks.add(3)
    made = Snapshot(2, 1, members(1, 2, 3), 4, hashlib.sha256(b"0123").digest())
    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=made, goal=2))
    group.work(3)
    group.store(3)
    group[3].step(chunk_of(made, 0, b"0123"))
    group.work(3)
    entries = tuple(Entry(index, 1, Kind.NORMAL, b"x") for index in range(1, 6))
    group[3].step(AppendRequest(1, 3, 1, 0, 0, 0, entries, commit=0))

    group.store(3)
    group.work(3)
    group.store(3)

    statistics = group[3].statistics()
    assert (statistics.last_index, statistics.stable, statistics.commit) == (5, 5, 2)
    assert statistics.snapshot_received is None
    assert group.storages[3].last_index == 5


def test_a_stream_that_was_complete_during_a_campaign_is_installed_afterwards() -> None:
    group = Group(3)
    group.slow_disks.add(3)
    made = Snapshot(2, 1, members(1, 2, 3), 4, hashlib.sha256(b"0123").digest())
    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=made, goal=2))
    group.work(3)
    group.store(3)
    group[3].step(chunk_of(made, 0, b"0123"))
    group.work(3)
    group[3].campaign()
    group.store(3)
    assert group[3].statistics().snapshot_received == (4, 4)

    group[3].step(Heartbeat(1, 3, 1, 0, commit=0, round=0))
    group[3].tick()
    group.work(3)
    group.store(3)

    assert group[3].statistics().applied == 2
