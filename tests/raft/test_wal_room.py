"""Room behind the entries of the log: zeros that the next entries overwrite."""

from random import Random
from typing import Final

import msgspec
import pytest

from corvo.raft.disk.marks import DATA_START
from corvo.raft.disk.segments import RECORD, ROOM_BYTES
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.errors import DiskFull
from tests.support.files import MemoryFiles
from tests.support.logs import IDENTITY, MEMBERSHIP, append, entries, entry, open_log

ENTRY: Final = RECORD.size + entry(1).size


def roomy(files: MemoryFiles) -> DiskStorage:
    """A log whose segments do not fill up."""
    return DiskStorage.open(files, IDENTITY, MEMBERSHIP)


def middling(files: MemoryFiles) -> DiskStorage:
    """A log whose room is a block."""
    return DiskStorage.open(files, IDENTITY, MEMBERSHIP, segment_bytes=256 << 10)


def segments(files: MemoryFiles) -> list[str]:
    return [name for name in files.names() if name.endswith(".seg")]


def written(files: MemoryFiles, name: str) -> int:
    """The size of a file without the zeros at its end."""
    return len(files.contents()[name].rstrip(b"\0"))


def test_small_entries_do_not_change_the_size_of_the_file() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    sizes = set()
    for index in range(1, 501):
        storage.put(append(entry(index)))
        storage.sync()
        sizes.add(files.size(segments(files)[0]))

    assert sizes == {DATA_START + ENTRY + ROOM_BYTES}


def test_room_is_made_again_once_it_is_used_up() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    sizes = set()
    for index in range(1, 21):
        storage.put(append(entry(index, data=b"x" * (ROOM_BYTES // 5))))
        sizes.add(files.size(segments(files)[0]))

    assert len(sizes) == 4
    storage.sync()
    files.power_loss(Random(1))
    assert roomy(files).last_index == 20


def test_entries_larger_than_the_room_make_none() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(entry(1, data=b"x" * ROOM_BYTES)))

    assert files.size(segments(files)[0]) == DATA_START + RECORD.size + ROOM_BYTES


def test_small_segments_have_little_room() -> None:
    files = MemoryFiles()
    storage = middling(files)
    storage.put(append(entry(1)))

    assert files.size(segments(files)[0]) == DATA_START + ENTRY + (1 << 12)


@pytest.mark.conformance("X29")
def test_room_is_no_torn_tail_and_is_given_back_at_a_start() -> None:
    files = MemoryFiles()
    storage = roomy(files)
    storage.put(append(*entries(1, 3)))
    storage.sync()
    files.process_crash()
    [name] = segments(files)

    storage = roomy(files)

    assert storage.recovery.torn is None
    assert storage.last_index == 3
    assert files.size(name) == written(files, name)


@pytest.mark.conformance("X29")
def test_a_loss_of_power_while_room_is_made_leaves_what_was_synced() -> None:
    """Of entry and room, and of the file's size, any part may be there."""
    last, sizes, torn = set(), set(), set()
    for seed in range(100):
        files = MemoryFiles(Random(seed))
        storage = middling(files)
        storage.put(append(entry(1)))
        storage.close()
        storage = middling(files)
        storage.put(append(*(entry(index, data=b"y" * 600) for index in (2, 3))))
        files.power_loss()
        [name] = segments(files)
        sizes.add(files.size(name) > written(files, name))

        storage = middling(files)

        last.add(storage.last_index)
        torn.add(storage.recovery.torn is None)
        storage.put(append(entry(storage.last_index + 1)))
        storage.sync()
        files.power_loss()
        assert middling(files).last_index == storage.last_index

    assert last == {1, 2, 3}
    assert sizes == torn == {True, False}


@pytest.mark.parametrize("seed", range(8))
def test_segments_that_are_left_and_a_log_that_is_closed_have_no_room(seed: int) -> None:
    files = MemoryFiles()
    storage = open_log(files)
    for one in (*entries(1, 7), entry(7, term=2)):  # rolls over, then cuts the second segment
        storage.put(append(one))
        storage.sync()
    files.power_loss(Random(seed))
    first, second, third = segments(files)
    assert files.size(first) == DATA_START + 4 * ENTRY
    assert files.size(second) == DATA_START + 3 * ENTRY
    assert files.size(third) > DATA_START + ENTRY
    storage = open_log(files)
    storage.put(append(entry(8, term=2)))
    storage.close()
    files.power_loss(Random(seed))

    assert files.size(third) == DATA_START + 2 * ENTRY


def test_entries_larger_than_the_room_need_their_own_space() -> None:
    files = MemoryFiles()
    storage = middling(files)
    storage.put(append(entry(1)))
    storage.sync()
    files.room = 4_000
    large = msgspec.structs.replace(entry(2), data=bytes(256 << 10))

    with pytest.raises(DiskFull):
        storage.put(append(large))

    assert storage.last_index == 1
    storage.put(append(entry(2)))
    assert storage.last_index == 2


@pytest.mark.conformance("X26")
def test_without_space_for_the_room_entries_are_taken_without_it() -> None:
    for space in (40, 4_000, ROOM_BYTES):
        files = MemoryFiles()
        storage = roomy(files)
        storage.put(append(entry(1)))
        storage.close()
        storage = roomy(files)
        files.room = space

        storage.put(append(entry(2)))

        storage.sync()
        files.power_loss(Random(1))
        assert roomy(files).last_index == 2
        assert files.room == space - ENTRY
