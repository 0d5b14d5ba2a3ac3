"""Segments: the files that hold the entries.

The header names the directory's instance, the segment's number, its first index, and what the
record before it was: term and chain. A record is

    length u32 · index u64 · term u64 · kind u8 · checksum u32 · data

and its checksum is the CRC-32C of everything from the header's own checksum to the end of this
record, the checksums themselves left out. So a record is intact only behind exactly those records
that it was written behind.

**Room.** Behind the last record of the segment that is being written there may be zeros, and the
next records overwrite them: a file that does not grow is synced in three quarters of the time.
Zeros are never a record, for no index is 0. A segment that is left or closed is cut to its records.

**Old bytes never pass for new.** Space is not used twice, save that zeros become records: a
conflicting tail is not overwritten but left behind, by a manifest that ends the segment before it
and a new segment with a new number. The two cuts that do happen before a segment is left, of all
that follows the last intact record at the start and of a write that was half done when the disk was
full, are synced before anything is written there. And should a disk bring back what was
cut: the chain there is the checksum of all bytes before, so it fits only if those are the same.
"""

import struct
from array import array
from collections.abc import Iterator
from typing import Final

import msgspec

from corvo.raft.checksum import chain
from corvo.raft.disk.damage import damaged
from corvo.raft.disk.envelope import checksum_of, seal, unseal
from corvo.raft.disk.filesystem import Files
from corvo.raft.disk.manifest import Extent
from corvo.raft.disk.marks import BLOCK_BYTES, DATA_START, Mark, MarkSlots, prefix, read_slots
from corvo.raft.errors import DiskFull
from corvo.raft.messages import Entry, Kind

MAGIC: Final = b"corvolog"
RECORD: Final = struct.Struct("<IQQBI")
_HEAD: Final = struct.Struct("<IQQB")  # what of a record's head its checksum covers
_CHECKSUM: Final = struct.Struct("<I")
_KINDS: Final = {kind.value: kind for kind in Kind}

WINDOW_BYTES: Final = 1 << 20
"""What is read at once when a file is read as a whole: enough that the calls do not count."""

ROOM_BYTES: Final = 256 << 10
"""The most zeros that are written behind records at once. Several hundred small entries fit, and
fifty shards take no more than 13 MB of a small disk for it."""


class SegmentHeader(msgspec.Struct, frozen=True, array_like=True):
    """What a segment says about itself."""

    instance: int
    sequence: int
    first_index: int
    previous_term: int
    previous_chain: int


class Link(msgspec.Struct, frozen=True):
    """The last record of a segment: the one behind it names its term and chain."""

    index: int
    term: int
    chain: int


class Torn(msgspec.Struct, frozen=True):
    """A tail that a crash left incomplete. It was never synced, so nobody was told of it."""

    file: str
    offset: int
    first_index: int  # the first entry that is not there
    bytes: int


class Segment:
    """One file of records, and in memory where each begins.

    For `n` records, `_offsets` and `_chains` have `n + 1` items: the last is the file's tail.
    """

    def __init__(self, files: Files, header: SegmentHeader, slots: MarkSlots, seed: int) -> None:
        self.name = slots.name
        self.header = header
        self.slots = slots
        self.dirty = False  # whether something was written and not synced
        self._files = files
        self._size = DATA_START  # of the file; what is behind the tail is zeros
        self._offsets = array("Q", [DATA_START])
        self._chains = array("I", [seed])
        self._terms = array("Q")

    @property
    def first_index(self) -> int:
        """The first entry's index, whether there is one or not."""
        return self.header.first_index

    @property
    def last_index(self) -> int:
        """The last entry's index."""
        return self.header.first_index + len(self._terms) - 1

    @property
    def tail(self) -> int:
        """The offset at which the next record goes."""
        return self._offsets[-1]

    def covers(self, mark: Mark) -> bool:
        """Whether the records up to the mark are those it was made for."""
        count = mark.index - self.first_index + 1
        if not 0 <= count < len(self._offsets):
            return False
        return (self._offsets[count], self._chains[count]) == (mark.offset, mark.chain)

    def term(self, index: int) -> int:
        """The term of an entry, or of the one right before the first."""
        if index < self.first_index:
            return self.header.previous_term
        return self._terms[index - self.first_index]

    def chain(self, index: int) -> int:
        """The checksum of everything up to and with an entry."""
        return self._chains[index - self.first_index + 1]

    def data_bytes(self, index: int) -> int:
        """The size of an entry."""
        at = index - self.first_index
        return self._offsets[at + 1] - self._offsets[at] - RECORD.size

    @property
    def extent(self) -> Extent:
        """All of it, for the manifest."""
        return Extent(
            self.first_index, self.header.sequence, self.last_index, self.tail, self._chains[-1]
        )

    @property
    def end(self) -> "Link":
        """What a segment behind this one must name."""
        return Link(self.last_index, self.term(self.last_index), self._chains[-1])

    def append(self, entries: tuple[Entry, ...], *, room_bytes: int = 0) -> None:
        """Write entries behind the tail, in one call, and room behind them if they need some.

        After `DiskFull` the records are as before. If the disk has no space for the
        room, the records are written without it.
        """
        offsets, chains, terms = array("Q"), array("I"), array("Q")
        offset, chained = self._offsets[-1], self._chains[-1]
        parts: list[bytes] = []
        for entry in entries:
            head = _HEAD.pack(len(entry.data), entry.index, entry.term, entry.kind)
            chained = chain(chain(chained, head), entry.data)
            parts += (head, _CHECKSUM.pack(chained), entry.data)
            offset += RECORD.size + len(entry.data)
            offsets.append(offset)
            chains.append(chained)
            terms.append(entry.term)
        records = b"".join(parts)
        needs_room = offset > self._size and len(records) <= room_bytes
        try:
            self._write(records + bytes(room_bytes) if needs_room else records)
        except DiskFull:
            if not needs_room:
                raise
            self._write(records)
        self._offsets += offsets
        self._chains += chains
        self._terms += terms

    def _write(self, data: bytes) -> None:
        try:
            self._files.write(self.name, self.tail, data)
        except DiskFull:
            # Synced at once: what was half written must not turn up behind what is written next.
            self.trim()
            self.sync()
            raise
        self.dirty = True
        self._size = max(self._size, self.tail + len(data))

    def trim(self) -> None:
        """Cut what follows the records. Not durable before `sync`."""
        if self._files.size(self.name) > self.tail:
            self._files.truncate(self.name, self.tail)
            self.dirty = True
        self._size = self.tail

    def keep(self, last_index: int) -> None:
        """Forget what is behind `last_index`. The bytes stay; the manifest says where to end."""
        count = last_index - self.first_index + 1
        assert 0 < count < len(self._offsets)
        del self._offsets[count + 1 :], self._chains[count + 1 :], self._terms[count:]

    def read(self, first: int, last: int) -> list[Entry]:
        """Entries, in one call to the disk, each checked against what was written."""
        at, end = first - self.first_index, last - self.first_index + 1
        start = self._offsets[at]
        data = self._files.read(self.name, start, self._offsets[end] - start)
        found = scan(data, first_index=first, chained=self._chains[at])
        entries = [record.entry for record in found]
        if len(entries) < last - first + 1:
            offset = self._offsets[at + len(entries)]
            problem = "an entry changed since it was written"
            raise damaged(self.name, offset, first + len(entries), problem)
        return entries

    def sync(self) -> None:
        """Make durable what was written."""
        self._files.sync(self.name)
        self.dirty = False

    def mark(self) -> None:
        """Note that everything here is synced."""
        assert not self.dirty
        self.slots.write(offset=self.tail, index=self.last_index, chain=self._chains[-1])

    def settle(self) -> None:
        """Make what was found behind the mark durable, and cut what follows it.

        Why writing it again: see `filesystem.write_again`. What the mark covers was synced.
        """
        mark = self.slots.mark
        self.trim()
        if self.tail > mark.offset:
            data = self._files.read(self.name, mark.offset, self.tail - mark.offset)
            self._files.write(self.name, mark.offset, data)
        self.sync()
        self.mark()

    def load(self, *, limit: int, last_term: int) -> None:
        """Take in every intact record before `limit`, up to the first that is not."""
        offset, index = self.tail, self.first_index
        while offset < limit:
            window = self._files.read(self.name, offset, min(WINDOW_BYTES, limit - offset))
            if self._needed(window) > len(window):
                window = self._files.read(
                    self.name, offset, min(self._needed(window), limit - offset)
                )
            before = offset
            for record in scan(window, first_index=index, chained=self._chains[-1]):
                if record.entry.term < last_term:
                    return
                last_term = record.entry.term
                offset += RECORD.size + record.entry.size
                index += 1
                self._offsets.append(offset)
                self._chains.append(record.chained)
                self._terms.append(last_term)
            if offset == before:
                return

    def written_behind(self, size: int) -> int:
        """The bytes behind the tail, up to the zeros at the end of the file: those are room."""
        written = self.tail
        for offset in range(self.tail, size, WINDOW_BYTES):
            found = self._files.read(self.name, offset, WINDOW_BYTES).rstrip(b"\0")
            if found:
                written = offset + len(found)
        return written - self.tail

    @staticmethod
    def _needed(window: bytes) -> int:
        """How many bytes the first record has, going by its length."""
        if len(window) < RECORD.size:
            return RECORD.size
        length: int = RECORD.unpack_from(window)[0]
        return RECORD.size + length


class Record(msgspec.Struct, frozen=True):
    """An intact record, and the chain up to it."""

    entry: Entry
    chained: int


def scan(data: bytes, *, first_index: int, chained: int) -> Iterator[Record]:
    """Each record from the start of `data`, up to the first that is incomplete or bad."""
    offset = 0
    index = first_index
    while len(data) - offset >= RECORD.size:
        length, found, term, kind, checksum = RECORD.unpack_from(data, offset)
        begin = offset + RECORD.size
        head, body = data[offset : offset + _HEAD.size], data[begin : begin + length]
        chained = chain(chain(chained, head), body)
        if chained != checksum or len(body) < length or found != index or kind not in _KINDS:
            return
        yield Record(Entry(index, term, _KINDS[kind], body), chained)
        index += 1
        offset = begin + length


def create_segment(files: Files, header: SegmentHeader) -> Segment:
    """A new segment. It counts once it is synced and the manifest names it."""
    name = Extent(header.first_index, header.sequence, 0, 0, 0).name
    envelope = seal(MAGIC, header)
    seed = checksum_of(envelope)
    mark = Mark(0, DATA_START, header.first_index - 1, seed)
    files.create(name)
    try:
        files.write(name, 0, prefix(envelope, seed, mark))
    except DiskFull:
        files.unlink(name)
        raise
    second = msgspec.structs.replace(mark, generation=1)
    return Segment(files, header, MarkSlots(files, name, seed, second), seed)


def open_segment(
    files: Files, extent: Extent, *, instance: int, previous: Link | None
) -> tuple[Segment, Torn | None]:
    """Read a segment in full. `previous` is the record before it, if that is still there.

    Raises `LogDamaged` when anything that was synced is not as it was written. The only thing
    forgiven is a bad tail behind the mark of the segment that was still written.
    """
    sealed = unseal(files, extent.name, MAGIC, SegmentHeader, alone=False)
    header = sealed.content
    found = (header.instance, header.sequence, header.first_index)
    if found != (instance, extent.sequence, extent.first_index):
        raise damaged(extent.name, 0, extent.first_index, "this is the segment of another log")
    link = Link(header.first_index - 1, header.previous_term, header.previous_chain)
    if previous not in (None, link):
        raise damaged(extent.name, 0, extent.first_index, "it does not follow the one before it")
    slots = read_slots(files, extent.name, sealed.checksum)
    if slots is None:
        raise damaged(extent.name, BLOCK_BYTES, extent.first_index, "both marks are bad")
    segment = Segment(files, header, slots, sealed.checksum)
    size = files.size(extent.name)
    segment.load(limit=extent.end or size, last_term=header.previous_term)
    if extent.end:
        check_sealed(segment, extent)
        return segment, None
    check_marked(segment)
    torn = segment.written_behind(size)
    if not torn:
        return segment, None
    return segment, Torn(segment.name, segment.tail, segment.last_index + 1, torn)


def check_sealed(segment: Segment, extent: Extent) -> None:
    """Everything up to the end that the manifest names must be there."""
    if segment.extent != extent:
        index = segment.last_index + 1
        raise damaged(segment.name, segment.tail, index, "a synced record is bad")


def check_marked(segment: Segment) -> None:
    """Everything up to the mark must be there, and end where it says."""
    mark = segment.slots.mark
    index = segment.last_index + 1
    if segment.tail < mark.offset:
        raise damaged(segment.name, segment.tail, index, "a synced record is bad")
    if not segment.covers(mark):
        raise damaged(segment.name, mark.offset, mark.index, "the mark and the records disagree")
