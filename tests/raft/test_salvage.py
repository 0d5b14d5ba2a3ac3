"""Damage below a durable state is set aside; damage above it is refused, and nothing is changed."""

from random import Random
from typing import Final

import pytest

from corvo.raft.disk.manifest import read_manifest
from corvo.raft.disk.marks import BLOCK_BYTES, DATA_START
from corvo.raft.disk.salvage import ASIDE, set_aside
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.errors import LogDamaged
from corvo.raft.messages import Entry, HardState, Membership
from tests.support.files import Crashed, MemoryFiles
from tests.support.logs import IDENTITY, append, entries, entry, see

ALONE: Final = Membership((1,), pins=((1, 77),))
LAST: Final = 12


def open_alone(files: MemoryFiles) -> DiskStorage:
    """A log of few entries a segment."""
    return DiskStorage.open(files, IDENTITY, ALONE, segment_bytes=DATA_START + 100)


def written(second_term: int = 7) -> MemoryFiles:
    """A log of several segments, of two terms; the second one begins with this entry."""
    files = MemoryFiles()
    storage = open_alone(files)
    for first in (1, 3, 5, 7, 9, 11):
        term = 1 if first < second_term else 2
        storage.put(append(*entries(first, first + 1, term), state=HardState(term, 1, first - 1)))
        storage.sync()
    storage.close()
    return files


INTACT: Final = written()
SEGMENTS: Final = read_manifest(INTACT.copy()).segments
TERMS: Final = {index: (1 if index < 7 else 2) for index in range(1, LAST + 1)}


def offsets() -> dict[tuple[str, int], int]:
    """Every byte of every record, and the index that it belongs to."""
    storage = open_alone(INTACT.copy())
    found = {}
    for segment in storage._log.segments:
        for index in range(segment.first_index, segment.last_index + 1):
            at = index - segment.first_index
            for offset in range(segment._offsets[at], segment._offsets[at + 1]):
                found[segment.name, offset] = index
    return found


OFFSETS: Final = offsets()


def behind(index: int) -> tuple[Entry, ...]:
    return tuple(entry(each, TERMS[each]) for each in range(index + 1, LAST + 1))


def salvage(files: MemoryFiles, index: int) -> tuple[str, ...]:
    return set_aside(files, index=index, term=TERMS[index])


def check(files: MemoryFiles, index: int) -> None:
    """The log begins behind the checkpoint, has all that follows, and goes on."""
    storage = open_alone(files)
    found = see(storage)
    assert (found.log.base.index, found.log.base.term) == (index, TERMS[index])
    assert found.log.base.membership == ALONE
    assert found.log.entries == behind(index)
    storage.put(append(entry(LAST + 1, 9), state=HardState(9, 1, LAST)))
    storage.sync()
    files.power_loss(Random(1))
    assert see(open_alone(files)).log.entries == (*behind(index), entry(LAST + 1, 9))


def test_there_are_several_segments() -> None:
    assert len(SEGMENTS) >= 3


@pytest.mark.parametrize("index", range(1, LAST + 1))
def test_every_byte_of_a_record_counts_above_the_checkpoint_alone(index: int) -> None:
    for (name, offset), damaged in OFFSETS.items():
        files = INTACT.copy()
        files.flip(name, offset, 1 << (offset % 8))
        before = files.contents()
        with pytest.raises(LogDamaged):
            open_alone(files.copy())

        if damaged < index:
            aside = salvage(files, index)
            assert aside == (f"{name}{ASIDE}",)
            assert files.contents()[aside[0]] == before[name]
            files.process_crash()
            check(files, index)
        elif damaged > index:
            with pytest.raises(LogDamaged):
                salvage(files, index)
            assert files.contents() == before
        else:
            judge(files, before, index)


def judge(files: MemoryFiles, before: dict[str, bytes], index: int) -> None:
    """The checkpoint's own record is needed if a record behind it has to be proved."""
    try:
        salvage(files, index)
    except LogDamaged:
        assert files.contents() == before
    else:
        files.process_crash()
        check(files, index)


@pytest.mark.parametrize("index", range(1, LAST + 1))
def test_a_missing_or_cut_segment_counts_above_the_checkpoint_alone(index: int) -> None:
    for extent in SEGMENTS:
        for size in (None, 0, 100, DATA_START, DATA_START + 30):
            files = INTACT.copy()
            if size is None:
                files.remove(extent.name)
            else:
                files.cut(extent.name, size)
            before = files.contents()

            if extent.end and extent.last_index <= index:
                aside = salvage(files, index)
                assert aside == (() if size is None else (f"{extent.name}{ASIDE}",))
                files.process_crash()
                check(files, index)
            else:
                with pytest.raises(LogDamaged):
                    salvage(files, index)
                assert files.contents() == before


@pytest.mark.parametrize("block", [BLOCK_BYTES, 2 * BLOCK_BYTES])
def test_one_mark_is_enough(block: int) -> None:
    name = SEGMENTS[-1].name
    files = INTACT.copy()
    files.flip(SEGMENTS[0].name, DATA_START + 1, 1)
    files.flip(name, block, 1)

    salvage(files, LAST - 1)

    files.process_crash()
    assert see(open_alone(files)).log.entries == behind(LAST - 1)


def test_other_damage_is_refused() -> None:
    for name in ("manifest", "hard-state", "identity"):
        files = INTACT.copy()
        files.cut(name, 10)
        with pytest.raises(LogDamaged):
            salvage(files, LAST)
    with pytest.raises(LogDamaged, match="no segment is damaged"):
        salvage(INTACT.copy(), LAST)


@pytest.mark.parametrize(
    ("index", "term", "reason"),
    [
        (0, 0, "the log begins after the checkpoint"),
        (LAST + 1, 2, "a committed entry is missing"),
        (LAST - 1, 9, "the checkpoint has another term"),
    ],
)
def test_a_checkpoint_that_is_not_of_this_log_is_refused(
    index: int, term: int, reason: str
) -> None:
    files = damaged_at(1)
    before = files.contents()

    with pytest.raises(LogDamaged, match=reason):
        set_aside(files, index=index, term=term)

    assert files.contents() == before


def test_a_last_segment_of_another_log_is_refused() -> None:
    extent, last = SEGMENTS[-2:]
    assert extent.first_index < extent.last_index - 1
    files = damaged_at(extent.first_index)
    files.put(last.name, written(second_term=5).contents()[last.name])
    before = files.contents()

    with pytest.raises(LogDamaged, match="does not follow the one before it"):
        salvage(files, extent.first_index + 1)

    assert files.contents() == before


def test_a_replica_with_others_is_repaired_by_them() -> None:
    files = MemoryFiles()
    group = Membership((1, 2, 3), pins=((1, 77),))
    storage = DiskStorage.open(files, IDENTITY, group)
    storage.put(append(*entries(1, 9)))
    storage.close()

    with pytest.raises(LogDamaged, match="not alone"):
        salvage(files, 5)


def damaged_at(index: int) -> MemoryFiles:
    files = INTACT.copy()
    name, offset = max(place for place, found in OFFSETS.items() if found == index)
    files.flip(name, offset, 1)
    return files


@pytest.mark.parametrize("index", [2, 3, 6, 7, LAST - 1])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_step_leaves_all_to_the_next_start(index: int, when: str) -> None:
    whole = damaged_at(1)
    salvage(whole, index)
    steps = len(whole.steps)
    assert steps > 5

    for number in range(steps):
        for seed in range(12):
            files = damaged_at(1)
            files.crash_at = (number, "before" if when == "before" else "after")
            with pytest.raises(Crashed):
                salvage(files, index)
            if seed:
                files.power_loss(Random(seed))
            else:
                files.process_crash()
            start(files, index)

            aside = [name for name in files.contents() if name.endswith(ASIDE)]
            assert len(aside) == 1
            check(files, index)


def start(files: MemoryFiles, index: int) -> None:
    """What a start does."""
    try:
        open_alone(files)
    except LogDamaged:
        files.process_crash()
        salvage(files, index)
    files.process_crash()
