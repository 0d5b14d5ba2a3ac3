"""The durable log: what it costs, whom it serves, and what it does when there is no room."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from corvo.raft.disk.files import RealFiles
from corvo.raft.disk.filesystem import TEMPORARY, DirectoryRefused
from corvo.raft.disk.hard_state import HARD_STATE, SLOT_BYTES
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.marks import BLOCK_BYTES, DATA_START
from corvo.raft.disk.recovery import BALLAST, quarantine
from corvo.raft.disk.snapshot_files import INCOMING
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.errors import DiskFull, LogDamaged, LogFailed
from corvo.raft.messages import HardState, Membership, Partial
from corvo.raft.ready import Write
from tests.support.files import Crashed, MemoryFiles
from tests.support.logs import (
    IDENTITY,
    MEMBERSHIP,
    append,
    chunk,
    entries,
    entry,
    install,
    open_log,
    see,
    snapshot_of,
    vote,
)

STREAM = b"0123456789" * 10
RECEIVED = snapshot_of(STREAM, index=20, term=3)


def roomy(files: MemoryFiles) -> DiskStorage:
    """A log whose segments do not fill up."""
    return DiskStorage.open(files, IDENTITY, MEMBERSHIP)


def cost(files: MemoryFiles, action: Callable[[], object]) -> Counter[str]:
    """How often each file is synced by an action."""
    done = len(files.steps)
    action()
    return syncs(files, done)


def syncs(files: MemoryFiles, done: int) -> Counter[str]:
    """How often each file (or "", the directory) was synced since so many steps were done."""
    return Counter(
        step.name.partition("-0")[0]
        for step in files.steps[done:]
        if step.action in ("sync", "sync_names")
    )


# ---- What it costs.


@pytest.mark.conformance("X05")
def test_a_group_of_puts_costs_one_sync_of_one_file() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(entry(1), state=HardState(1, 1)))
    storage.sync()
    for last in range(1, 500, 10):
        done = len(files.steps)
        for index in range(last + 1, last + 11):
            storage.put(append(entry(index), state=HardState(1, 1)))
        storage.sync()

        assert syncs(files, done) == {"log": 1}
        files.power_loss(Random(last))
        storage = roomy(files)
        assert storage.last_index == last + 10


def test_a_group_is_one_write_of_entries_and_one_of_the_mark() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(entry(1)))
    storage.sync()
    done = len(files.steps)

    storage.put(append(*entries(2, 500)))
    storage.sync()

    assert [step.action for step in files.steps[done:]] == ["write", "sync", "write"]


def test_nothing_to_sync_costs_nothing() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(*entries(1, 5)))
    storage.sync()

    assert cost(files, storage.sync) == {}


def test_a_commit_that_must_be_remembered_is_on_both_slots_when_sync_returns() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(*entries(1, 5)))
    storage.sync()

    def commit() -> None:
        storage.put(vote(0, commit=4))
        storage.sync()

    assert cost(files, commit) == {HARD_STATE: 2}
    files.power_loss(Random(1))
    assert roomy(files).hard_state.commit == 4


@pytest.mark.conformance("X01")
def test_a_vote_is_on_both_slots_when_sync_returns() -> None:
    files = MemoryFiles()
    storage = roomy(files)

    def elect() -> None:
        storage.put(vote(3, 2))
        storage.sync()

    assert cost(files, elect) == {HARD_STATE: 2}
    for slot in (0, SLOT_BYTES):
        damaged = files.copy()
        damaged.flip(HARD_STATE, slot, 1)
        assert roomy(damaged).hard_state == HardState(3, 2)


@pytest.mark.conformance("X02")
def test_a_vote_that_was_not_synced_is_not_there() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(vote(3, 2))
    files.process_crash()

    assert roomy(files).hard_state == HardState()


def test_a_new_segment_costs_its_name_and_the_manifest() -> None:
    files = MemoryFiles()
    storage = open_log(files)

    def roll() -> None:
        storage.put(append(entry(1)))
        storage.sync()

    assert cost(files, roll) == {"log": 1, "": 2, "manifest.new": 1}


def test_a_sync_may_run_beside_reads(tmp_path: Path) -> None:
    storage = open_log(RealFiles(tmp_path))
    storage.put(chunk(RECEIVED, STREAM, 0, 100))
    storage.put(install(RECEIVED))
    with ThreadPoolExecutor(1) as worker:
        for index in range(21, 61):
            storage.put(append(entry(index, 3 + index // 10)))
            syncing = worker.submit(storage.sync)

            held = [storage.entries(21, index, 1 << 20) for _ in range(3)]
            streamed = storage.chunk(RECEIVED, 0, 100)

            syncing.result()
            assert [one.index for one in held[-1]] == list(range(21, index + 1))
            assert streamed in (None, STREAM)
    storage.close()


def test_segments_are_dropped_when_the_base_has_passed_them() -> None:
    files = MemoryFiles()
    storage = open_log(files)
    for index in range(1, 9):
        storage.put(append(entry(index, data=b"x" * 130)))
    storage.sync()
    assert sum(name.endswith(".seg") for name in files.names()) == 8

    storage.compact(index=5, membership=MEMBERSHIP)

    assert [name[4:20] for name in files.names() if name.endswith(".seg")] == [
        f"{index:016x}" for index in (6, 7, 8)
    ]


def test_an_entry_larger_than_a_window_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corvo.raft.disk.segments.WINDOW_BYTES", 100)
    files = MemoryFiles()
    storage = roomy(files)
    sizes = (10, 300, 0, 60, 20, 101, 75, 1000)
    for index, size in enumerate(sizes, start=1):
        storage.put(append(entry(index, data=b"x" * size)))
    storage.sync()
    before = see(storage)

    again = roomy(files)

    assert see(again).log == before.log
    assert [one.size for one in again.entries(1, 8, 1 << 20)] == list(sizes)


# ---- The commit index.


@pytest.mark.conformance("X09")
def test_the_commit_index_on_disk_never_speaks_of_what_is_not() -> None:
    """A write can replace an entry and commit it; no crash may show the old one as committed."""
    for seed in range(200):
        files = MemoryFiles(Random(seed))
        storage = roomy(files)
        storage.put(append(*entries(1, 5), state=HardState(1, 1)))
        storage.sync()
        storage.put(append(*entries(3, 5, term=2), state=HardState(2, 2, commit=5)))
        files.crash_at = (len(files.steps) + seed % 14, "after")
        with suppress(Crashed):
            storage.sync()
        files.power_loss()

        again = roomy(files)

        if again.hard_state.commit > 2:
            assert again.term(again.hard_state.commit) == 2


def test_the_commit_index_is_exact_after_a_crash_of_the_process() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    for index in range(1, 5):
        storage.put(append(entry(index), state=HardState(0, 0, index - 1)))
        storage.sync()
    files.process_crash()

    assert roomy(files).hard_state.commit == 3


def test_entries_of_a_term_that_was_not_synced_raise_the_term() -> None:
    """The page cache kept the entries, the vote was only in memory: nobody was told of it."""
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(entry(1), state=HardState(1, 1)))
    storage.sync()
    storage.put(append(entry(2, 4), state=HardState(4, 1)))
    files.process_crash()

    storage = roomy(files)

    assert storage.term(2) == 4
    assert storage.hard_state == HardState(4, 0)


def test_a_term_that_falls_is_a_bug() -> None:
    storage = roomy(MemoryFiles())
    storage.put(append(entry(1, 5), state=HardState(5, 1, 1)))
    with pytest.raises(AssertionError, match="terms never fall"):
        storage.put(vote(4))
    with pytest.raises(LogFailed):
        storage.sync()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (append(entry(3, 4)), "terms never fall"),
        (append(entry(3, 5), entry(5, 5)), "entries follow one another"),
        (append(entry(1, 6)), "what is committed is never cut"),
    ],
)
def test_an_append_that_raft_forbids_is_a_bug(write: Write, message: str) -> None:
    storage = roomy(MemoryFiles())
    storage.put(append(*entries(1, 2, term=5), state=HardState(5, 1, 1)))

    with pytest.raises(AssertionError, match=message):
        storage.put(write)


# ---- Whose directory it is.


def test_an_identity_is_made_once() -> None:
    files = MemoryFiles()
    first = DiskStorage.open(files, Identity("a", 1, 5), MEMBERSHIP)
    files.process_crash()

    again = DiskStorage.open(files, Identity("a", 1, 6), Membership((9,)))

    assert first.recovery.created
    assert not again.recovery.created
    assert again.identity == Identity("a", 1, 5)
    assert again.base.membership == MEMBERSHIP


@pytest.mark.conformance("X31")
@pytest.mark.parametrize("wanted", [Identity("b", 1, 5), Identity("a", 2, 5)])
def test_the_directory_of_another_is_refused_by_name(wanted: Identity) -> None:
    files = MemoryFiles()
    DiskStorage.open(files, Identity("a", 1, 5))
    files.process_crash()

    with pytest.raises(DirectoryRefused) as caught:
        DiskStorage.open(files, wanted)

    assert str(caught.value) == (
        "this directory belongs to replica 1 of cluster 'a', "
        f"not to replica {wanted.replica} of cluster {wanted.cluster!r}"
    )


def test_a_second_process_is_refused() -> None:
    files = MemoryFiles()
    roomy(files)

    with pytest.raises(DirectoryRefused, match="in use"):
        roomy(files.another_process())


def test_a_process_that_ends_lets_the_next_one_in(tmp_path: Path) -> None:
    first = DiskStorage.open(RealFiles(tmp_path), IDENTITY)
    first.put(append(*entries(1, 3)))
    first.close()

    second = DiskStorage.open(RealFiles(tmp_path), IDENTITY)

    assert second.last_index == 3
    second.close()


@pytest.mark.conformance("X30")
def test_a_directory_whose_making_was_interrupted_is_made_anew() -> None:
    whole = MemoryFiles()
    roomy(whole)
    for number in range(len(whole.steps)):
        for seed in range(10):
            files = MemoryFiles(Random(seed))
            files.crash_at = (number, "after")
            with pytest.raises(Crashed):
                roomy(files)
            files.power_loss()

            storage = roomy(files)

            assert see(storage) == see(roomy(MemoryFiles()))


# ---- Snapshots on arrival.


def arriving(files: MemoryFiles) -> DiskStorage:
    storage = roomy(files)
    for start in (0, 30):
        storage.put(chunk(RECEIVED, STREAM, start, start + 30))
        storage.sync()
    return storage


def test_what_was_received_survives_a_crash_of_the_process() -> None:
    files = MemoryFiles()
    arriving(files)
    files.process_crash()

    storage = roomy(files)

    assert storage.partial == Partial(RECEIVED, 60)
    assert storage.put(chunk(RECEIVED, STREAM, 60, 100))
    storage.put(install(RECEIVED))
    storage.sync()
    assert b"".join(storage.snapshot_data()) == STREAM


def test_only_what_was_synced_counts_as_received() -> None:
    files = MemoryFiles()
    storage = arriving(files)
    storage.put(chunk(RECEIVED, STREAM, 60, 90))
    files.process_crash()

    assert roomy(files).partial == Partial(RECEIVED, 60)


def test_a_chunk_costs_one_sync() -> None:
    files = MemoryFiles()
    storage = arriving(files)

    def receive() -> None:
        storage.put(chunk(RECEIVED, STREAM, 60, 90))
        storage.sync()

    assert cost(files, receive) == {INCOMING: 1}


@pytest.mark.parametrize("length", [0, 10, BLOCK_BYTES, DATA_START, DATA_START + 59])
def test_a_download_that_is_not_whole_up_to_its_mark_is_dropped(length: int) -> None:
    files = MemoryFiles()
    arriving(files)
    files.process_crash()
    files.cut(INCOMING, length)

    assert roomy(files).partial is None


def test_a_whole_download_survives_too() -> None:
    files = MemoryFiles()
    storage = arriving(files)
    storage.put(chunk(RECEIVED, STREAM, 60, 100))
    storage.sync()
    files.process_crash()

    storage = roomy(files)

    assert storage.partial == Partial(RECEIVED, 100)
    storage.put(install(RECEIVED))
    assert storage.base.index == 20


def test_a_stream_that_gave_way_to_another_never_comes_back() -> None:
    other = snapshot_of(b"another", index=30, term=3)
    found = set()
    for seed in range(50):
        files = MemoryFiles(Random(seed))
        storage = arriving(files)
        for start in (0, 3):
            storage.put(chunk(other, b"another", start, start + 3))
            storage.sync()
        files.power_loss()
        found.add(roomy(files).partial)

    assert found == {Partial(other, 3), Partial(other, 6)}


def test_a_snapshot_right_behind_another_waits_for_it() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(chunk(RECEIVED, STREAM, 0, 100))
    storage.put(install(RECEIVED))
    assert storage.snapshot() is None
    assert storage.base.index == 20
    other = snapshot_of(b"other", index=30, term=3)

    storage.put(chunk(other, b"other", 0, 5))
    storage.put(install(other))
    storage.sync()

    assert storage.snapshot() == other
    assert b"".join(storage.snapshot_data()) == b"other"
    assert sum(name.endswith(".snap") for name in files.names()) == 1


def test_a_snapshot_that_changed_is_found_when_it_is_read() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(*entries(1, 3)))
    storage.make_snapshot(index=2, membership=MEMBERSHIP, data=[STREAM])
    (name,) = [name for name in files.names() if name.endswith(".snap")]
    files.flip(name, DATA_START + 50, 1)

    with pytest.raises(LogDamaged, match="the snapshot changed"):
        list(storage.snapshot_data())


def test_a_snapshot_is_made_in_steps_while_the_log_goes_on() -> None:
    files = MemoryFiles()
    storage = open_log(files)  # small segments: the manifest is written again and again
    storage.put(append(*entries(1, 3)))
    storage.sync()

    writer = storage.begin_snapshot(index=2, membership=MEMBERSHIP)
    for number, at in enumerate(range(0, len(STREAM), 7)):
        writer.add(STREAM[at : at + 7])
        writer.sync()
        storage.put(append(*entries(4 + number, 4 + number)))
        storage.sync()
    sealed = writer.seal()
    before = storage.snapshot()
    is_kept = storage.keep_snapshot(writer, sealed)

    assert (before, is_kept) == (None, True)
    assert storage.snapshot() == sealed
    storage.close()
    again = open_log(files)
    assert again.snapshot() == sealed
    assert b"".join(again.snapshot_data()) == STREAM


def test_a_snapshot_that_is_dropped_leaves_nothing() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(*entries(1, 3)))
    names = files.names()

    writer = storage.begin_snapshot(index=2, membership=MEMBERSHIP)
    writer.add(STREAM)
    storage.drop_snapshot(writer)
    storage.drop_snapshot(writer)

    assert files.names() == names
    assert storage.snapshot() is None
    made = storage.make_snapshot(index=2, membership=MEMBERSHIP, data=[STREAM])
    assert storage.snapshot() == made


def test_a_snapshot_that_another_one_has_overtaken_is_not_kept() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(*entries(1, 9)))
    writer = storage.begin_snapshot(index=2, membership=MEMBERSHIP)
    writer.add(STREAM)
    sealed = writer.seal()
    storage.compact(index=5, membership=MEMBERSHIP)

    assert not storage.keep_snapshot(writer, sealed)
    assert storage.snapshot() is None
    assert not any(name.endswith(TEMPORARY) for name in files.names())


# ---- No room.


def unchanged_by_a_full_disk(
    prepare: Callable[[DiskStorage], None], act: Callable[[DiskStorage], object], rooms: range
) -> int:
    """Try `act` with ever more room; until it succeeds, it must leave everything as it was."""
    refused = 0
    for room in rooms:
        files = MemoryFiles()
        storage = open_log(files)
        prepare(storage)
        storage.close()
        storage = open_log(files)  # with no room behind the entries
        before = see(storage)
        files.room = room
        try:
            act(storage)
        except DiskFull:
            refused += 1
        else:
            break
        assert see(storage) == before
        crashed = files.copy()
        crashed.process_crash()
        assert see(open_log(crashed)).log == before.log
        files.room = None
        act(storage)
        storage.sync()
        after = see(storage)
        assert after != before
        storage.close()
        assert see(open_log(files)) == after
    return refused


def some_entries(storage: DiskStorage) -> None:
    storage.put(append(*entries(1, 3), state=HardState(1, 1)))


def some_entries_and(write: Write) -> Callable[[DiskStorage], None]:
    def prepare(storage: DiskStorage) -> None:
        some_entries(storage)
        storage.put(write)

    return prepare


SOME = append(*entries(4, 6), state=HardState(2, 3, 2))
CONFLICTING = append(*entries(2, 3, term=2), state=HardState(2, 0, 1))


@pytest.mark.conformance("X26")
def test_disk_full_at_each_byte_of_an_append() -> None:
    refused = unchanged_by_a_full_disk(some_entries, lambda storage: storage.put(SOME), range(200))

    assert refused == sum(25 + one.size for one in SOME.entries)


@pytest.mark.conformance("X26")
def test_disk_full_at_each_block_of_a_new_segment() -> None:
    refused = unchanged_by_a_full_disk(
        some_entries, lambda storage: storage.put(CONFLICTING), range(0, 20000, 128)
    )

    assert refused > DATA_START // 128


@pytest.mark.conformance("X26")
def test_disk_full_while_a_snapshot_arrives() -> None:
    refused = unchanged_by_a_full_disk(
        some_entries_and(chunk(RECEIVED, STREAM, 0, 30)),
        lambda storage: storage.put(chunk(RECEIVED, STREAM, 30, 70)),
        range(100),
    )

    assert refused == 40


@pytest.mark.conformance("X26")
def test_disk_full_before_a_snapshot_begins_to_arrive() -> None:
    refused = unchanged_by_a_full_disk(
        some_entries,
        lambda storage: storage.put(chunk(RECEIVED, STREAM, 0, 30)),
        range(0, 20000, 512),
    )

    assert refused > DATA_START // 512


@pytest.mark.conformance("X26")
def test_disk_full_behind_an_install_in_the_same_write() -> None:
    refused = unchanged_by_a_full_disk(
        some_entries_and(chunk(RECEIVED, STREAM, 0, 100)),
        lambda storage: storage.put(
            install(RECEIVED, *entries(21, 22, term=4), state=HardState(4, 2))
        ),
        range(0, 20000, 512),
    )

    assert refused > DATA_START // 512


@pytest.mark.conformance("X26")
def test_disk_full_while_a_snapshot_is_made() -> None:
    refused = unchanged_by_a_full_disk(
        some_entries,
        lambda storage: storage.make_snapshot(index=2, membership=MEMBERSHIP, data=[STREAM]),
        range(0, 20000, 64),
    )

    assert refused > DATA_START // 64


@pytest.mark.conformance("X26")
@pytest.mark.parametrize("is_synced", [True, False])
def test_disk_full_while_a_snapshot_that_was_made_is_kept(is_synced: bool) -> None:
    files = MemoryFiles()
    storage = open_log(files)
    some_entries(storage)
    storage.sync()
    writer = storage.begin_snapshot(index=2, membership=MEMBERSHIP)
    sealed = writer.seal()
    storage.put(append(*entries(4, 60)))
    storage.put(append(*entries(61, 62)))  # in another segment, which the manifest is to name
    if is_synced:
        storage.sync()
    files.room = 0
    with pytest.raises(DiskFull):
        storage.keep_snapshot(writer, sealed)
    files.room = None

    assert not any(name.startswith("snapshot") for name in files.names())
    assert storage.snapshot() is None
    made = storage.make_snapshot(index=2, membership=MEMBERSHIP, data=[STREAM])
    assert storage.snapshot() == made


@pytest.mark.conformance("X26")
def test_disk_full_while_the_log_is_compacted() -> None:
    refused = unchanged_by_a_full_disk(
        some_entries,
        lambda storage: storage.compact(index=2, membership=MEMBERSHIP),
        range(300),
    )

    assert refused > 40


@pytest.mark.conformance("X26")
def test_what_did_not_fit_never_turns_up_again() -> None:
    """Its first entries may be put again, alone; those behind them are as good as never written."""
    for seed in range(200):
        files = MemoryFiles(Random(seed))
        storage = roomy(files)
        storage.put(append(entry(1), state=HardState(1, 1)))
        storage.close()
        storage = roomy(files)  # with no room behind the entry
        files.room = 80
        with pytest.raises(DiskFull):
            storage.put(append(*entries(2, 5)))
        files.room = None
        storage.put(append(entry(2)))
        if seed % 2:
            storage.sync()
        files.power_loss()

        assert roomy(files).last_index in ((2,) if seed % 2 else (1, 2))


@pytest.mark.conformance("X26")
def test_a_sync_without_room_for_the_manifest_can_be_tried_again() -> None:
    files = MemoryFiles()
    storage = open_log(files)
    some_entries(storage)
    files.room = 10
    for _ in range(3):
        with pytest.raises(DiskFull):
            storage.sync()
        assert storage.last_index == 3
    files.room = None

    storage.sync()

    files.power_loss(Random(1))
    again = open_log(files)
    assert again.last_index == 3
    assert again.hard_state == HardState(1, 1)


@pytest.mark.conformance("X26")
def test_a_log_opens_on_a_full_disk() -> None:
    files = MemoryFiles()
    storage = open_log(files)
    some_entries(storage)
    storage.sync()
    storage.put(append(entry(4)))
    files.process_crash()
    files.room = 0

    storage = open_log(files, ballast_bytes=1_000)

    assert storage.last_index == 4
    files.room = 0  # without what the log gave back
    with pytest.raises(DiskFull):
        storage.put(append(entry(5)))
    assert storage.entries(4, 4, 100) == [entry(4)]
    assert BALLAST not in files.names()


@pytest.mark.conformance("X26")
def test_ballast_makes_room_and_comes_back() -> None:
    files = MemoryFiles()
    storage = open_log(files, ballast_bytes=3 << 20)
    assert files.size(BALLAST) == 3 << 20
    some_entries(storage)
    storage.close()
    storage = open_log(files, ballast_bytes=3 << 20)
    files.room = 0
    with pytest.raises(DiskFull):
        storage.put(SOME)

    assert storage.release_ballast()

    storage.put(SOME)
    assert not storage.release_ballast()
    storage.close()
    assert open_log(files, ballast_bytes=1000).last_index == 6
    assert files.size(BALLAST) == 1000


@pytest.mark.conformance("X26")
def test_disk_full_while_a_repair_ends() -> None:
    files = MemoryFiles()
    open_log(files)
    quarantine(files, MEMBERSHIP)
    storage = open_log(files)
    files.room = 10
    with pytest.raises(DiskFull):
        storage.repaired()
    assert see(storage).repairing
    files.room = None

    storage.repaired()

    assert not see(storage).repairing
    files.power_loss(Random(1))
    assert not see(open_log(files)).repairing


def test_ballast_is_made_anew_when_its_size_changes() -> None:
    files = MemoryFiles()
    for wanted, size in ((100, 100), (50, 100), (300, 300)):
        open_log(files, ballast_bytes=wanted)
        assert files.size(BALLAST) == size

    open_log(files)

    assert BALLAST not in files.names()


# ---- Closing, and what a crash leaves lying about.


def test_a_clean_stop_remembers_the_commit_index() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(*entries(1, 5)))
    storage.sync()
    storage.put(vote(1, 1, commit=4))
    storage.close()
    files.power_loss(Random(1))

    assert roomy(files).hard_state == HardState(1, 1, 4)


@pytest.mark.conformance("X28")
def test_after_a_clean_stop_even_the_last_entry_is_known_to_be_synced() -> None:
    for seed in range(20):
        files = MemoryFiles(Random(seed))
        storage = roomy(files)
        for index in (1, 2, 3):
            storage.put(append(entry(index)))
            storage.sync()
        storage.close()
        files.power_loss()
        (name,) = [name for name in files.names() if name.endswith(".seg")]
        files.flip(name, files.size(name) - 1, 1)

        with pytest.raises(LogDamaged, match="index 3: a synced record is bad"):
            roomy(files)


def test_what_nothing_names_is_removed_and_said() -> None:
    files = MemoryFiles()
    storage = open_log(files)
    some_entries(storage)
    storage.sync()
    storage.put(CONFLICTING)
    files.create("manifest.new")
    files.create("notes of an operator")
    files.process_crash()

    storage = open_log(files)

    assert storage.recovery.removed == ("log-0000000000000002-00000002.seg", "manifest.new")
    assert storage.last_index == 3
    assert "notes of an operator" in files.names()
    assert open_log(files).recovery.removed == ()


@pytest.mark.conformance("X29")
def test_a_torn_tail_is_cut_for_good() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(*entries(1, 3)))
    storage.sync()
    storage.put(append(*entries(4, 6)))
    files.process_crash()
    (name,) = [name for name in files.names() if name.endswith(".seg")]
    files.cut(name, len(files.contents()[name].rstrip(b"\0")) - 1)
    torn = roomy(files).recovery.torn
    assert torn is not None
    assert torn.first_index == 6

    files.power_loss(Random(5))

    storage = roomy(files)
    assert storage.recovery.torn is None
    assert storage.last_index == 5
