"""One suite for the log in memory and the log on disk: whoever reads cannot tell them apart."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from corvo.raft.disk.files import RealFiles
from corvo.raft.disk.segmented_log import RECENT_BYTES
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.errors import Compacted, Unavailable
from corvo.raft.messages import HardState, Membership, Partial, Snapshot
from corvo.raft.ready import Write
from corvo.raft.storage import MemoryStorage, Storage
from tests.support.files import MemoryFiles
from tests.support.logs import (
    MEMBERSHIP,
    append,
    chunk,
    entries,
    entry,
    install,
    open_log,
    snapshot_of,
    vote,
)

pytestmark = pytest.mark.conformance("N14")

LATER = Membership((2, 3))
STREAM = b"a state, as a stream of bytes"
RECEIVED = snapshot_of(STREAM, index=20, term=3)


class Subject(Protocol):
    """A storage, and what a driver does to it."""

    @property
    def storage(self) -> Storage: ...

    def put(self, write: Write) -> bool: ...

    def compact(self, index: int) -> None: ...

    def make_snapshot(self, index: int, data: bytes) -> Snapshot: ...

    def data(self) -> bytes: ...


class InMemory:
    def __init__(self) -> None:
        self._memory = MemoryStorage(MEMBERSHIP)

    @property
    def storage(self) -> Storage:
        return self._memory

    def put(self, write: Write) -> bool:
        return self._memory.put(write)

    def compact(self, index: int) -> None:
        self._memory.compact(index=index, membership=LATER)

    def make_snapshot(self, index: int, data: bytes) -> Snapshot:
        return self._memory.make_snapshot(index=index, membership=LATER, data=data)

    def data(self) -> bytes:
        return self._memory.snapshot_data


class OnDisk:
    """`again` opens the directory anew after each change, or leaves it open."""

    def __init__(self, disk: DiskStorage, again: Callable[[DiskStorage], DiskStorage]) -> None:
        self._disk = disk
        self._again = again

    @property
    def storage(self) -> Storage:
        return self._disk

    def put(self, write: Write) -> bool:
        intact = self._disk.put(write)
        self._disk.sync()
        self._disk = self._again(self._disk)
        return intact

    def compact(self, index: int) -> None:
        self._disk.compact(index=index, membership=LATER)
        self._disk = self._again(self._disk)

    def make_snapshot(self, index: int, data: bytes) -> Snapshot:
        made = self._disk.make_snapshot(index=index, membership=LATER, data=[data[:7], data[7:]])
        self._disk = self._again(self._disk)
        return made

    def data(self) -> bytes:
        return b"".join(self._disk.snapshot_data())


@pytest.fixture(
    params=[
        "memory",
        "disk",
        "disk, none recent",
        "disk, opened anew",
        "real disk",
        "real, opened anew",
    ]
)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    def files() -> RealFiles | MemoryFiles:
        return RealFiles(tmp_path) if "real" in request.param else kept

    def reopened(storage: DiskStorage) -> DiskStorage:
        storage.close()
        return open_log(files())

    def left_open(storage: DiskStorage) -> DiskStorage:
        return storage

    if request.param == "memory":
        yield InMemory()
        return
    kept = MemoryFiles()
    recent_bytes = 0 if "none recent" in request.param else RECENT_BYTES
    opened = open_log(files(), recent_bytes=recent_bytes)
    subject = OnDisk(opened, reopened if "anew" in request.param else left_open)
    yield subject
    subject._disk.close()


def test_a_new_log_begins_at_nothing(subject: Subject) -> None:
    storage = subject.storage

    assert storage.hard_state == HardState()
    assert storage.base == Snapshot(0, 0, MEMBERSHIP)
    assert storage.last_index == 0
    assert storage.term(0) == 0
    assert storage.partial is None
    assert storage.snapshot() is None
    assert storage.chunk(RECEIVED, 0, 10) is None


def test_the_hard_state_is_what_was_put_last(subject: Subject) -> None:
    subject.put(append(*entries(1, 3)))
    subject.put(vote(2, 3, commit=1))
    subject.put(vote(4, 0, commit=3))

    assert subject.storage.hard_state == HardState(4, 0, 3)


def test_entries_are_what_was_put(subject: Subject) -> None:
    for first in (1, 4, 7):
        subject.put(append(*entries(first, first + 2, term=first)))

    storage = subject.storage
    assert storage.last_index == 9
    assert [storage.term(index) for index in range(10)] == [0, 1, 1, 1, 4, 4, 4, 7, 7, 7]
    assert storage.entries(2, 8, 1000) == [
        *entries(2, 3),
        *entries(4, 6, term=4),
        *entries(7, 8, term=7),
    ]


@pytest.mark.parametrize(
    ("bytes_max", "count"), [(0, 1), (9, 1), (10, 1), (19, 1), (20, 2), (59, 5), (60, 6)]
)
def test_a_page_is_cut_by_bytes_and_never_empty(
    subject: Subject, bytes_max: int, count: int
) -> None:
    subject.put(append(*(entry(index, data=b"x" * 10) for index in range(1, 4))))
    subject.put(append(*(entry(index, data=b"x" * 10) for index in range(4, 8))))

    found = subject.storage.entries(1, 6, bytes_max)

    assert [one.index for one in found] == list(range(1, count + 1))


def test_no_entries_are_no_entries(subject: Subject) -> None:
    subject.put(append(*entries(1, 3)))

    assert subject.storage.entries(3, 2, 100) == []


@pytest.mark.parametrize("first", [1, 2, 4, 6, 9])
def test_an_append_replaces_a_tail(subject: Subject, first: int) -> None:
    for index in range(1, 9):
        subject.put(append(entry(index, data=b"x" * 40)))

    subject.put(append(*entries(first, first + 1, term=2)))

    storage = subject.storage
    assert storage.last_index == first + 1
    assert [one.term for one in storage.entries(1, first + 1, 1 << 20)] == [1] * (first - 1) + [
        2,
        2,
    ]


def test_what_is_beyond_or_below_is_refused(subject: Subject) -> None:
    subject.put(append(*entries(1, 8)))
    subject.compact(4)

    storage = subject.storage
    for index in (9, 100):
        with pytest.raises(Unavailable, match=f"entry {index} is beyond"):
            storage.term(index)
        with pytest.raises(Unavailable):
            storage.entries(6, index, 100)
    for index in (0, 3):
        with pytest.raises(Compacted, match=f"entry {index} is gone"):
            storage.term(index)
    for index in (1, 4):
        with pytest.raises(Compacted):
            storage.entries(index, 6, 100)


def test_compaction_moves_the_base(subject: Subject) -> None:
    for index in range(1, 9):
        subject.put(append(entry(index, data=b"x" * 40)))

    for base in (3, 4, 8):
        subject.compact(base)

        storage = subject.storage
        assert storage.base == Snapshot(base, 1, LATER)
        assert storage.term(base) == 1
        assert storage.last_index == 8
        if base < 8:
            assert len(storage.entries(base + 1, 8, 1000)) == 8 - base

    subject.put(append(entry(9, 2)))
    assert subject.storage.entries(9, 9, 10) == [entry(9, 2)]


@pytest.mark.parametrize("index", [0, 2, 9])
def test_what_cannot_be_compacted_is_refused(subject: Subject, index: int) -> None:
    subject.put(append(*entries(1, 8)))
    subject.compact(2)

    with pytest.raises(Unavailable):
        subject.compact(index)

    assert subject.storage.base.index == 2
    assert subject.storage.term(8) == 1


def test_a_snapshot_can_be_streamed(subject: Subject) -> None:
    subject.put(append(*entries(1, 8, term=3)))

    made = subject.make_snapshot(5, STREAM)

    storage = subject.storage
    assert made == Snapshot(5, 3, LATER, len(STREAM), made.checksum)
    assert storage.snapshot() == made
    assert storage.chunk(made, 0, 10) == STREAM[:10]
    assert storage.chunk(made, 25, 10) == STREAM[25:]
    assert storage.chunk(made, len(STREAM), 10) == b""
    assert storage.chunk(RECEIVED, 0, 10) is None
    assert subject.data() == STREAM


def test_only_the_newest_snapshot_is_kept(subject: Subject) -> None:
    subject.put(append(*entries(1, 8)))
    older = subject.make_snapshot(5, STREAM)

    newer = subject.make_snapshot(5, b"more")

    assert subject.storage.snapshot() == newer
    assert subject.storage.chunk(older, 0, 10) is None
    assert subject.data() == b"more"


def test_a_snapshot_of_what_is_gone_or_not_there_is_refused(subject: Subject) -> None:
    subject.put(append(*entries(1, 8)))
    subject.compact(5)

    for index in (4, 9):
        with pytest.raises(Unavailable):
            subject.make_snapshot(index, STREAM)

    assert subject.make_snapshot(5, STREAM).term == 1


def test_chunks_gather_until_the_snapshot_is_whole(subject: Subject) -> None:
    for start, stop in ((0, 10), (10, 11), (11, 29)):
        assert subject.put(chunk(RECEIVED, STREAM, start, stop))

        assert subject.storage.partial == Partial(RECEIVED, stop)
        assert subject.storage.snapshot() is None


def test_a_stream_can_begin_anew_or_give_way_to_another(subject: Subject) -> None:
    other = snapshot_of(b"another", index=30, term=3)
    subject.put(chunk(RECEIVED, STREAM, 0, 10))
    subject.put(chunk(RECEIVED, STREAM, 0, 12))
    assert subject.storage.partial == Partial(RECEIVED, 12)

    subject.put(chunk(other, b"another", 0, 3))

    assert subject.storage.partial == Partial(other, 3)


def test_a_whole_snapshot_that_is_not_what_was_offered_is_discarded(subject: Subject) -> None:
    subject.put(chunk(RECEIVED, STREAM, 0, 10))

    assert not subject.put(chunk(RECEIVED, STREAM.upper(), 10, 29))

    assert subject.storage.partial is None
    assert subject.put(chunk(RECEIVED, STREAM, 0, 29))


def test_an_installed_snapshot_is_the_state_and_the_base(subject: Subject) -> None:
    subject.put(append(*entries(1, 8)))
    subject.make_snapshot(5, b"old")
    subject.put(chunk(RECEIVED, STREAM, 0, 29))

    subject.put(install(RECEIVED))

    storage = subject.storage
    assert storage.base == Snapshot(20, 3, MEMBERSHIP)
    assert storage.last_index == 20
    assert storage.term(20) == 3
    assert storage.snapshot() == RECEIVED
    assert storage.partial is None
    assert subject.data() == STREAM
    with pytest.raises(Compacted):
        storage.entries(8, 8, 100)


def test_entries_follow_an_installed_snapshot_in_one_write(subject: Subject) -> None:
    subject.put(append(*entries(1, 25, term=2)))
    subject.put(chunk(RECEIVED, STREAM, 0, 29))

    subject.put(install(RECEIVED, *entries(21, 23, term=4)))

    assert subject.storage.last_index == 23
    assert subject.storage.entries(21, 23, 100) == list(entries(21, 23, term=4))


def test_an_empty_snapshot_is_one(subject: Subject) -> None:
    empty = snapshot_of(b"", index=9, term=1)
    assert subject.storage.partial is None

    made = subject.put(Write(token=0, chunk=chunk(empty, b"", 0, 0).chunk, install=empty))

    assert made
    assert subject.storage.snapshot() == empty
    assert subject.storage.last_index == 9


def test_an_append_that_leaves_a_gap_is_a_bug(tmp_path: Path) -> None:
    for storage in (MemoryStorage(), open_log(MemoryFiles())):
        with pytest.raises(AssertionError, match="leaves no gap"):
            storage.put(append(entry(2)))
