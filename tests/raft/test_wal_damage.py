"""Bytes that change at rest: each is found, or is of no matter. Never a shorter log in silence.

A small directory with one file of every kind is damaged at every byte that anything ever reads, cut
at every length, and robbed of every file. Opening it must then raise `LogDamaged`, or show exactly
what was there.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

import msgspec
import pytest

from corvo.raft.disk.envelope import seal
from corvo.raft.disk.filesystem import DirectoryRefused
from corvo.raft.disk.hard_state import HARD_STATE, read_hard_state
from corvo.raft.disk.identity import IDENTITY as IDENTITY_FILE
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.manifest import MANIFEST, read_manifest, write_manifest
from corvo.raft.disk.marks import BLOCK_BYTES, DATA_START
from corvo.raft.disk.recovery import BALLAST, quarantine
from corvo.raft.disk.segmented_log import ENTRY_BYTES
from corvo.raft.disk.segments import RECORD
from corvo.raft.disk.snapshot_files import INCOMING
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.errors import DiskFull, LogDamaged, LogFailed
from corvo.raft.messages import HardState, Membership, Snapshot
from corvo.raft.ready import Write
from tests.support.files import Crashed, MemoryFiles
from tests.support.logs import (
    MEMBERSHIP,
    Seen,
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

IMAGE: Final = b"the state at 3"
STREAM: Final = b"the state at 90, on its way"
ARRIVING: Final = snapshot_of(STREAM, index=90, term=7)


def populated() -> MemoryFiles:
    """One file of each kind, all synced, as a crash of the process leaves them."""
    files = MemoryFiles()
    storage = open_log(files, ballast_bytes=100)
    for write in (
        append(*entries(1, 5), state=HardState(1, 1)),
        append(*entries(6, 7)),  # a second segment
        append(entry(7, 2), state=HardState(2, 3, 4)),  # cuts the second, begins a third
        append(entry(8, 2)),
        append(entry(9, 2)),
        chunk(ARRIVING, STREAM, 0, 20),
    ):
        storage.put(write)
        storage.sync()
    storage.make_snapshot(index=3, membership=MEMBERSHIP, data=[IMAGE])
    storage.compact(index=2, membership=MEMBERSHIP)
    files.process_crash()
    return files


INTACT: Final = populated()
NAMES: Final = sorted(INTACT.contents())
LAST: Final = max(name for name in NAMES if name.endswith(".seg"))
FIRST: Final = min(name for name in NAMES if name.endswith(".seg"))
MANIFESTED: Final = read_manifest(INTACT.copy())


def seen_of(files: MemoryFiles) -> Seen:
    return see(open_log(files))


SEEN: Final = seen_of(INTACT.copy())


def is_harmless(found: Seen) -> bool:
    """Equal in everything but two hints: how far was committed, and what a download had got."""
    hints_are_hints = found.hard_state.commit <= SEEN.hard_state.commit
    if found.partial is not None:
        assert SEEN.partial is not None
        assert found.partial.snapshot == SEEN.partial.snapshot
        hints_are_hints = hints_are_hints and found.partial.received <= SEEN.partial.received
    commit = replace_commit(found.hard_state, SEEN.hard_state.commit)
    return hints_are_hints and replace(found, partial=SEEN.partial, hard_state=commit) == SEEN


def replace_commit(state: HardState, commit: int) -> HardState:
    return HardState(state.term, state.vote, commit)


def judge(files: MemoryFiles) -> bool:
    """Whether damage was found; if not, it must be harmless. A refusal must change nothing."""
    before = files.contents()
    try:
        found = seen_of(files)
    except LogDamaged:
        assert files.contents() == before
        return True
    assert is_harmless(found)
    return False


def bytes_read(name: str) -> list[int]:
    """Every offset of a file that opening and reading ever look at."""
    files = INTACT.copy()
    files.reads = {}
    seen_of(files)
    size = len(INTACT.contents()[name])
    offsets = {
        offset
        for start, stop in files.reads.get(name, [])
        for offset in range(start, min(stop, size))
    }
    return sorted(offsets)


def must_be_found(name: str, offset: int) -> bool:
    """Whether a byte has a meaning, and there is no second copy of that.

    Not so are the slots, a download, and the room behind the last entry.
    """
    if name.endswith(".seg"):
        return not BLOCK_BYTES <= offset < DATA_START and offset < starts(INTACT, name)[-1]
    return name not in (HARD_STATE, INCOMING)


@pytest.mark.conformance("X28")
@pytest.mark.parametrize("name", NAMES)
def test_every_flipped_byte_is_found_or_harmless(name: str) -> None:
    for offset in bytes_read(name):
        for mask in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            files = INTACT.copy()
            files.flip(name, offset, mask)

            assert judge(files) == must_be_found(name, offset)


@pytest.mark.conformance("X28")
@pytest.mark.parametrize("name", NAMES)
def test_a_byte_that_is_never_read_is_harmless(name: str) -> None:
    read = set(bytes_read(name))
    unread = [offset for offset in range(len(INTACT.contents()[name])) if offset not in read]

    for offset in unread[::61]:
        files = INTACT.copy()
        files.flip(name, offset, 255)
        assert not judge(files)


def lengths(name: str) -> Iterator[int]:
    """Each length at which a cut could take a byte that is read, and some between."""
    read = set(bytes_read(name))
    size = len(INTACT.contents()[name])
    for length in range(size):
        if length % 64 == 0 or length in read or length - 1 in read:
            yield length


@pytest.mark.conformance("X29")
@pytest.mark.parametrize("name", NAMES)
def test_every_cut_is_found_or_harmless(name: str) -> None:
    for length in lengths(name):
        files = INTACT.copy()
        files.cut(name, length)

        judge(files)


@pytest.mark.conformance("X30")
@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_found_or_harmless(name: str) -> None:
    files = INTACT.copy()
    files.remove(name)

    assert judge(files) == (name not in (BALLAST, INCOMING))


@pytest.mark.conformance("X30")
def test_every_set_of_missing_files_is_found_or_harmless() -> None:
    needed = [name for name in NAMES if name not in (BALLAST, INCOMING)]
    for chosen in range(1, 2 ** len(needed) - 1):
        files = INTACT.copy()
        for position, name in enumerate(needed):
            if chosen >> position & 1:
                files.remove(name)

        assert judge(files)


# ---- A torn tail and damage, told apart by the mark.


def starts(files: MemoryFiles, name: str) -> list[int]:
    """Where each record of a segment begins, and where the last one ends."""
    content = files.contents()[name]
    offsets = [DATA_START]
    while content[offsets[-1] :].strip(b"\0"):
        length = RECORD.unpack_from(content, offsets[-1])[0]
        offsets.append(offsets[-1] + RECORD.size + length)
    return offsets


def with_unsynced_tail() -> MemoryFiles:
    """The same, and three entries behind the mark."""
    files = INTACT.copy()
    storage = DiskStorage.open(files, SEEN.identity)  # with room in the segment
    for index in (10, 11, 12):
        storage.put(append(entry(index, 2)))
    files.process_crash()
    return files


@pytest.mark.conformance("X29")
def test_a_cut_behind_the_mark_is_a_torn_tail_and_said() -> None:
    unsynced = with_unsynced_tail()
    offsets = starts(unsynced, LAST)
    for length in range(offsets[-4], offsets[-1]):
        files = unsynced.copy()
        files.cut(LAST, length)

        storage = open_log(files)

        whole = sum(end <= length for end in offsets) - 1
        assert storage.last_index == 6 + whole
        torn = storage.recovery.torn
        rest = unsynced.contents()[LAST][offsets[whole] : length].rstrip(b"\0")
        if not rest:
            assert torn is None
        else:
            assert torn is not None
            assert (torn.file, torn.offset, torn.first_index, torn.bytes) == (
                LAST,
                offsets[whole],
                7 + whole,
                len(rest),
            )
        assert files.size(LAST) == offsets[whole]


@pytest.mark.conformance("X29")
def test_a_cut_before_the_mark_is_damage() -> None:
    unsynced = with_unsynced_tail()
    offsets = starts(unsynced, LAST)
    for length in range(offsets[0], offsets[-4]):
        files = unsynced.copy()
        files.cut(LAST, length)

        with pytest.raises(LogDamaged, match="a synced record is bad"):
            open_log(files)


@pytest.mark.conformance("X28", "X29")
def test_zeros_in_the_middle_are_damage_before_the_mark_and_a_torn_tail_behind_it() -> None:
    """Zeros are room only where nothing but zeros follows, and nothing was synced."""
    unsynced = with_unsynced_tail()
    content = unsynced.contents()[LAST]
    offsets = starts(unsynced, LAST)
    marked, end = offsets[-4], offsets[-1]
    for start in range(DATA_START, end, 3):
        for stop in (start + 1, start + RECORD.size, start + 40, marked, end, len(content)):
            files = unsynced.copy()
            files.blank(LAST, start, max(start, stop))
            blanked = files.contents()[LAST]
            changed = [at for at in range(start, end) if blanked[at] != content[at]]
            if changed and changed[0] < marked:
                with pytest.raises(LogDamaged, match="a synced record is bad"):
                    open_log(files)
                continue

            storage = open_log(files)

            whole = sum(end <= (changed or [end])[0] for end in offsets) - 1
            assert storage.last_index == 6 + whole
            assert (storage.recovery.torn is None) == (not blanked[offsets[whole] :].strip(b"\0"))
            assert files.size(LAST) == offsets[whole]


FIELDS: Final = {"length": 0, "index": 4, "term": 12, "kind": 20, "checksum": 21, "body": 25}


@pytest.mark.conformance("X28")
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("record", [0, 1, 2])
def test_a_flip_before_the_mark_names_file_offset_and_index(field: str, record: int) -> None:
    files = INTACT.copy()
    offset = starts(files, LAST)[record]
    files.flip(LAST, offset + FIELDS[field], 0x10)

    with pytest.raises(LogDamaged) as caught:
        open_log(files)

    assert (caught.value.file, caught.value.offset, caught.value.index) == (
        LAST,
        offset,
        7 + record,
    )
    assert str(caught.value) == (
        f"{LAST} at offset {offset}, index {7 + record}: a synced record is bad; "
        "nothing was changed: quarantine this replica"
    )


@pytest.mark.conformance("X28")
@pytest.mark.parametrize("record", [0, 1, 4])
def test_a_flip_in_an_older_segment_names_file_offset_and_index(record: int) -> None:
    files = INTACT.copy()
    offset = starts(files, FIRST)[record]
    files.flip(FIRST, offset + FIELDS["body"], 0x10)

    with pytest.raises(LogDamaged, match="a synced record is bad") as caught:
        open_log(files)

    found = caught.value
    assert (found.file, found.offset, found.index) == (FIRST, offset, 1 + record)


@pytest.mark.conformance("X28")
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("record", [3, 4, 5])
def test_a_flip_behind_the_mark_is_a_torn_tail(field: str, record: int) -> None:
    files = with_unsynced_tail()
    offset = starts(files, LAST)[record]
    files.flip(LAST, offset + FIELDS[field], 0x10)

    storage = open_log(files)

    assert storage.last_index == 6 + record
    assert storage.recovery.torn is not None
    assert storage.recovery.torn.first_index == 7 + record


def test_an_entry_that_changes_while_the_log_is_open_is_found_when_it_is_read() -> None:
    files = INTACT.copy()
    storage = open_log(files)
    files.flip(FIRST, starts(INTACT, FIRST)[3] + FIELDS["body"], 1)

    assert storage.entries(3, 3, 100) == [entry(3)]
    with pytest.raises(LogDamaged, match="changed since it was written"):
        storage.entries(3, 5, 1000)


def test_what_was_just_appended_is_not_read_from_the_disk() -> None:
    files = INTACT.copy()
    storage = open_log(files, recent_bytes=3 * (ENTRY_BYTES + 30))
    storage.put(append(*entries(10, 18, term=2)))
    for name in files.names():
        if name.endswith(".seg"):
            files.truncate(name, DATA_START)

    assert storage.entries(16, 18, 1000) == list(entries(16, 18, term=2))
    assert storage.entries(17, 18, 1) == [entry(17, 2)]
    with pytest.raises(LogDamaged, match="changed since it was written"):
        storage.entries(15, 18, 1000)  # three are kept


def test_old_bytes_behind_a_new_tail_are_not_taken_for_entries() -> None:
    """What a disk might bring back behind a tail was written behind other bytes."""
    files = MemoryFiles()
    storage = open_log(files)
    storage.put(append(entry(1, data=b"a"), entry(2, data=b"b")))
    storage.sync()
    old = files.contents()[storage_segment(files)]
    second = DATA_START + RECORD.size + 1
    files = MemoryFiles()
    storage = open_log(files)
    storage.put(append(entry(1, data=b"c")))
    storage.sync()
    files.process_crash()
    name = storage_segment(files)
    files.write(name, second, old[second:])

    found = open_log(files)

    assert found.last_index == 1
    assert found.recovery.torn is not None


def storage_segment(files: MemoryFiles) -> str:
    (name,) = [name for name in files.names() if name.endswith(".seg")]
    return name


def test_a_record_whose_term_falls_is_not_an_entry() -> None:
    files = MemoryFiles()
    storage = open_log(files)
    storage.put(append(entry(1, 5)))
    storage.sync()
    segment = storage._log.segments[0]
    segment.append((entry(2, 4),))  # no driver can do this
    files.process_crash()

    assert open_log(files).last_index == 1


# ---- Files that are whole, and not of this log.


def damaged_manifest(**changes: object) -> MemoryFiles:
    files = INTACT.copy()
    write_manifest(files, msgspec.structs.replace(MANIFESTED, **changes))  # type: ignore[arg-type]
    return files


def test_a_segment_of_another_directory_is_refused() -> None:
    other = MemoryFiles()
    storage = DiskStorage.open(other, Identity("rookery", 1, 78), MEMBERSHIP)
    storage.put(append(*entries(1, 5)))
    storage.sync()
    files = INTACT.copy()
    files.put(FIRST, other.contents()[storage_segment(other)])

    with pytest.raises(LogDamaged, match="the segment of another log"):
        open_log(files)


def test_a_file_of_another_kind_is_refused() -> None:
    files = INTACT.copy()
    files.put(MANIFEST, files.contents()[IDENTITY_FILE])

    with pytest.raises(LogDamaged, match="another kind"):
        open_log(files)


def test_a_snapshot_in_anothers_place_is_refused() -> None:
    files = INTACT.copy()
    assert MANIFESTED.snapshot is not None
    name = MANIFESTED.snapshot.name
    twin = files.copy()
    storage = open_log(twin)
    made = storage.make_snapshot(index=4, membership=MEMBERSHIP, data=[b"another"])
    assert made.index == 4
    (other,) = [name for name in twin.names() if name.endswith(".snap")]
    files.put(name, twin.contents()[other])

    with pytest.raises(LogDamaged, match="another snapshot"):
        open_log(files)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"base": Snapshot(0, 0, MEMBERSHIP), "segments": MANIFESTED.segments[1:]}, "continue"),
        ({"base": Snapshot(99, 2, MEMBERSHIP)}, "do not continue the base"),
        ({"base": Snapshot(2, 7, MEMBERSHIP)}, "another term than its entry"),
        ({"base": Snapshot(0, 7, MEMBERSHIP)}, "another term than its entry"),
        ({"segments": MANIFESTED.segments[::2]}, "does not follow the one before it"),
    ],
)
def test_a_manifest_that_contradicts_the_segments_is_refused(
    changes: dict[str, object], problem: str
) -> None:
    with pytest.raises(LogDamaged, match=problem):
        open_log(damaged_manifest(**changes))


def test_a_segment_with_two_bad_marks_is_refused() -> None:
    files = INTACT.copy()
    files.flip(LAST, BLOCK_BYTES, 1)
    files.flip(LAST, 2 * BLOCK_BYTES, 1)

    with pytest.raises(LogDamaged, match="both marks are bad"):
        open_log(files)


@pytest.mark.parametrize("index", [6, 7, 8, 10, 1000, 0])
def test_a_mark_that_contradicts_the_records_is_refused(index: int) -> None:
    files = INTACT.copy()
    storage = open_log(files)
    segment = storage._log.segments[-1]
    segment.slots.write(offset=segment.tail, index=index, chain=segment.chain(9))
    files.process_crash()

    with pytest.raises(LogDamaged, match="the mark and the records disagree"):
        open_log(files)


def test_a_header_that_makes_no_sense_is_refused() -> None:
    files = INTACT.copy()
    files.put(IDENTITY_FILE, seal(b"corvo-id", Membership()))

    with pytest.raises(LogDamaged, match="makes no sense"):
        open_log(files)


@pytest.mark.parametrize("name", [IDENTITY_FILE, MANIFEST])
def test_a_file_that_goes_on_behind_its_end_is_refused(name: str) -> None:
    files = INTACT.copy()
    files.put(name, files.contents()[name] + b"\0")

    with pytest.raises(LogDamaged, match="continues after its end"):
        open_log(files)


def test_a_directory_of_a_newer_format_is_refused() -> None:
    files = INTACT.copy()
    files.put(IDENTITY_FILE, seal(b"corvo-id", SEEN.identity, version=2))

    with pytest.raises(DirectoryRefused, match="identity has format 2; this program reads 1"):
        open_log(files)


# ---- The commit index, which is a hint, and the wiped or restored directory.


@pytest.mark.conformance("X09")
def test_a_commit_index_beyond_the_log_is_taken_down_before_it_is_saved() -> None:
    files = INTACT.copy()
    storage = open_log(files)
    storage.put(vote(3, 1, commit=1000))
    storage.close()

    assert open_log(files).hard_state == HardState(3, 1, 9)


@pytest.mark.conformance("X09")
def test_a_saved_commit_index_beyond_the_log_means_that_entries_are_missing() -> None:
    files = INTACT.copy()
    read_hard_state(files).save(HardState(2, 3, 10))

    with pytest.raises(LogDamaged, match="entry 10 was committed, and the log ends at 9"):
        open_log(files)


@pytest.mark.conformance("X31")
def test_a_wiped_directory_comes_back_with_another_instance() -> None:
    wiped = DiskStorage.open(MemoryFiles(), Identity("rookery", 1, 1234), MEMBERSHIP)

    assert open_log(INTACT.copy()).identity.instance == 77
    assert wiped.identity.instance == 1234
    assert wiped.recovery.created


@pytest.mark.conformance("X31")
@pytest.mark.parametrize("kept", [name for name in NAMES if name not in (IDENTITY_FILE, BALLAST)])
def test_a_directory_that_was_wiped_in_part_is_not_taken_for_a_new_one(kept: str) -> None:
    files = MemoryFiles()
    files.put(kept, INTACT.contents()[kept])

    with pytest.raises(LogDamaged, match=r"the directory was used: it has .*replace this replica"):
        open_log(files)


@pytest.mark.conformance("X31")
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".seg")])
def test_a_segment_put_back_from_an_older_life_is_refused(name: str) -> None:
    """All but the last, of which an older copy is a shorter log: there the peers must notice."""
    files = MemoryFiles()
    storage = open_log(files)
    storage.put(append(*entries(1, 2)))
    storage.sync()
    older = files.contents()[storage_segment(files)]
    files = INTACT.copy()
    files.put(name, older)

    with pytest.raises(LogDamaged):
        open_log(files)


# ---- Quarantine.


@pytest.mark.conformance("X28", "X30")
def test_a_damaged_log_is_set_aside_and_an_empty_one_waits_for_repair() -> None:
    files = INTACT.copy()
    files.flip(FIRST, DATA_START, 1)
    with pytest.raises(LogDamaged):
        open_log(files)

    aside = quarantine(files, MEMBERSHIP)

    assert aside == "quarantine-1"
    assert files.names(aside) == [
        name for name in NAMES if name not in (IDENTITY_FILE, HARD_STATE, BALLAST)
    ]
    files.process_crash()
    storage = open_log(files)
    assert storage.repairing
    assert storage.identity == SEEN.identity
    assert (storage.base, storage.last_index) == (Snapshot(0, 0, MEMBERSHIP), 0)
    assert storage.hard_state == HardState(2, 3, 0)
    assert storage.snapshot() is None
    assert storage.partial is None


def test_a_repair_ends_when_a_peer_has_mended_the_log() -> None:
    files = INTACT.copy()
    quarantine(files)
    storage = open_log(files_again(files))
    storage.put(chunk(ARRIVING, STREAM, 0, len(STREAM)))
    storage.put(install(ARRIVING, entry(91, 7)))
    storage.sync()
    assert open_log(files_again(files)).repairing

    storage = open_log(files_again(files))
    storage.repaired()

    files.power_loss(Random(1))
    storage = open_log(files)
    assert not storage.repairing
    assert (storage.base.index, storage.last_index) == (90, 91)


def forgotten(term: int) -> Write:
    """A repair begins in a new term."""
    return Write(token=0, repair=True, hard_state=HardState(term))


def test_a_repair_that_begins_while_the_log_is_used_is_durable_with_it() -> None:
    files = INTACT.copy()
    storage = open_log(files)
    before = see(storage)
    storage.put(forgotten(9))
    storage.sync()

    files.power_loss(Random(1))

    after = see(open_log(files))
    assert after.repairing
    assert after.hard_state.term == 9
    assert (after.log, after.data) == (before.log, before.data)


def test_a_crash_at_every_step_leaves_no_new_term_without_the_repair() -> None:
    files = INTACT.copy()
    storage = open_log(files)
    first = len(files.steps)
    storage.put(forgotten(9))
    storage.sync()
    found = set()
    for number in range(first, len(files.steps)):
        for seed in range(10):
            again = INTACT.copy()
            storage = open_log(again)
            storage.put(forgotten(9))
            again.crash_at = (number, "after")
            with pytest.raises(Crashed):
                storage.sync()
            again.power_loss(Random(seed))
            opened = open_log(again)
            found.add((opened.repairing, opened.hard_state.term))

    assert found == {(False, 2), (True, 2), (True, 9)}


def test_a_repair_that_begins_on_a_full_disk_waits_for_room() -> None:
    files = INTACT.copy()
    storage = open_log(files)
    storage.put(forgotten(9))
    files.room = 0
    with pytest.raises(DiskFull):
        storage.sync()
    assert not open_log(files_again(files.copy())).repairing
    files.room = None

    storage.sync()

    assert open_log(files_again(files)).repairing


def test_a_second_repair_begins_after_the_first_has_ended() -> None:
    files = INTACT.copy()
    storage = open_log(files)
    storage.put(forgotten(9))
    storage.sync()
    storage.repaired()
    ended = open_log(files.copy()).repairing

    storage.put(forgotten(10))
    storage.sync()

    assert not ended
    assert open_log(files_again(files)).repairing


def files_again(files: MemoryFiles) -> MemoryFiles:
    """The same disk, after its process ended."""
    files.process_crash()
    return files


def test_every_quarantine_has_its_own_place_and_new_numbers() -> None:
    files = INTACT.copy()
    assert quarantine(files) == "quarantine-1"
    storage = open_log(files_again(files))
    storage.put(append(entry(1, 3)))
    storage.close()
    numbers = [name[-12:-4] for name in (*files.names("quarantine-1"), storage_segment(files))]

    assert quarantine(files) == "quarantine-2"
    assert quarantine(files_again(files)) == "quarantine-3"

    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("name", [IDENTITY_FILE, HARD_STATE])
@pytest.mark.parametrize("missing", [True, False])
def test_a_replica_that_does_not_know_its_vote_must_be_replaced(
    name: str, *, missing: bool
) -> None:
    files = INTACT.copy()
    if missing:
        files.remove(name)
    else:
        files.cut(name, 10)
    before = files.contents()

    with pytest.raises(LogDamaged, match="replace this replica under a new id"):
        quarantine(files)

    assert files.contents() == before


def test_what_was_set_aside_is_kept() -> None:
    for seed in range(20):
        files = INTACT.copy()
        aside = quarantine(files, MEMBERSHIP)
        before = files.names(aside)

        files.power_loss(Random(seed))

        assert files.names(aside) == before


def test_a_crash_at_every_step_of_a_quarantine_leaves_it_to_be_done_again() -> None:
    def damaged() -> MemoryFiles:
        files = INTACT.copy()
        files.flip(FIRST, DATA_START, 1)
        return files

    files = damaged()
    quarantine(files)
    for number in range(len(files.steps)):
        for seed in range(5):
            files = damaged()
            files.crash_at = (number, "after")
            with pytest.raises(Crashed):
                quarantine(files)
            files.power_loss(Random(seed))
            try:
                storage = open_log(files.copy())
            except LogDamaged:
                quarantine(files)
                storage = open_log(files_again(files))
            assert storage.repairing
            assert storage.last_index == 0
            assert storage.hard_state == HardState(2, 3, 0)


def test_a_quarantine_that_a_failed_sync_cut_short_takes_nothing_from_the_next() -> None:
    for seed in range(20):
        files = INTACT.copy()
        files.flip(MANIFEST, 20, 1)
        files.fail_sync(lost=False)
        with pytest.raises(LogFailed):
            quarantine(files, MEMBERSHIP)
        files.process_crash()
        quarantine(files, MEMBERSHIP)
        files.process_crash()

        files.power_loss(Random(seed))

        assert open_log(files).repairing
