"""The log as a list of segments after a base, with its newest entries in memory.

The newest entries are also kept in memory, for they are applied, and sent to followers, right after
they were written. Everything else here happens in memory and in files that do not count yet. What
counts is decided by the manifest, which `DiskStorage` writes from `base` and `extents` once the
segments are synced.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from corvo.raft.disk.filesystem import Files
from corvo.raft.disk.manifest import Extent
from corvo.raft.disk.segments import ROOM_BYTES, Segment, SegmentHeader, create_segment
from corvo.raft.errors import Compacted, DiskFull, Unavailable
from corvo.raft.messages import Entry, Membership, Snapshot

RECENT_BYTES: Final = 4 << 20
"""Of entries kept in memory: four of the largest that ops gather into. What is older is read from
the disk."""
_ROOMS: Final = 64
"""No more than this part of a segment is room: small segments are for small disks."""
ENTRY_BYTES: Final = 200
"""What an entry takes in memory beside its data, about."""


class Recent:
    """The newest entries, as they were appended, up to so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: dict[int, Entry] = {}
        self._first = 0  # every index from here to the log's end is there, if any is
        self._bytes = 0

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Take in what was appended; whatever is there at its place or behind it is dropped."""
        kept = self._entries
        first = entries[0].index
        end = self._first + len(kept)
        if self._first <= first <= end:
            for index in range(first, end):
                self._bytes -= _held_bytes(kept.pop(index))
        else:
            self.clear()
        if not kept:
            self._first = first
        for entry in entries:
            kept[entry.index] = entry
            self._bytes += _held_bytes(entry)
        while self._bytes > self._bytes_max:
            self._bytes -= _held_bytes(kept.pop(self._first))
            self._first += 1

    def clear(self) -> None:
        """Drop everything."""
        self._entries.clear()
        self._bytes = 0

    def page(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Entries `first` to `last`, cut after `bytes_max`, but at least one; none that is older.

        Returns an empty list when the first is not there.
        """
        kept = self._entries
        found: list[Entry] = []
        if first not in kept:
            return found
        for index in range(first, last + 1):
            entry = kept[index]
            bytes_max -= entry.size
            if bytes_max < 0 and found:
                break
            found.append(entry)
        return found


def _held_bytes(entry: Entry) -> int:
    return entry.size + ENTRY_BYTES


class Numbers:
    """Gives each new file of a directory a number that no file had before."""

    def __init__(self, following: int) -> None:
        self.following = following

    def take(self) -> int:
        """The next one."""
        self.following += 1
        return self.following - 1


class SegmentedLog:
    """Entries behind a base. `reshaped` says that the manifest no longer tells the truth."""

    def __init__(
        self,
        files: Files,
        base: Snapshot,
        segments: Sequence[Segment],
        *,
        instance: int,
        numbers: Numbers,
        segment_bytes: int,
        recent_bytes: int,
    ) -> None:
        self.base = base
        self.segments = tuple(segments)
        self.numbers = numbers
        self.reshaped = False
        self._files = files
        self._instance = instance
        self._segment_bytes = segment_bytes
        self._room_bytes = min(ROOM_BYTES, segment_bytes // _ROOMS)
        self._recent = Recent(recent_bytes)

    # Reading.

    @property
    def last_index(self) -> int:
        """The last entry's index, or the base's."""
        return self.segments[-1].last_index if self.segments else self.base.index

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The segments for the manifest. The end of the last is not told: it moves."""
        if not self.segments:
            return ()
        *done, last = self.segments
        growing = Extent(last.first_index, last.header.sequence, 0, 0, 0)
        return (*(segment.extent for segment in done), growing)

    def term(self, index: int) -> int:
        """The term of an entry, or of the base."""
        if index == self.base.index:
            return self.base.term
        self._check(index)
        return self.segment(index).term(index)

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Entries, cut after `bytes_max`, but at least one. From the disk unless they are new."""
        self._check(first)
        self._check(last)
        found = self._recent.page(first, last, bytes_max)
        if found:
            return found
        last = self._page_end(first, last, bytes_max)
        while first <= last:
            segment = self.segment(first)
            end = min(last, segment.last_index)
            found += segment.read(first, end)
            first = end + 1
        return found

    def _page_end(self, first: int, last: int, bytes_max: int) -> int:
        """The last entry that still fits; the first always does."""
        total = 0
        for index in range(first, last + 1):
            total += self.segment(index).data_bytes(index)
            if total > bytes_max and index > first:
                return index - 1
        return last

    def _check(self, index: int) -> None:
        if index <= self.base.index:
            raise Compacted(f"entry {index} is gone: the log begins behind {self.base.index}")
        if index > self.last_index:
            raise Unavailable(f"entry {index} is beyond the end of the log at {self.last_index}")

    def segment(self, index: int) -> Segment:
        """The one that holds an entry."""
        last = self.segments[-1]
        if index >= last.first_index:
            return last
        at = bisect_right(self.segments, index, key=lambda segment: segment.first_index)
        return self.segments[at - 1]

    # Changing.

    @property
    def shape(self) -> tuple[Snapshot, tuple[Segment, ...], bool]:
        """What to come back to, should the disk be full. Entries are not part of it."""
        return self.base, self.segments, self.reshaped

    @shape.setter
    def shape(self, shape: tuple[Snapshot, tuple[Segment, ...], bool]) -> None:
        self.base, self.segments, self.reshaped = shape

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Put entries behind the end, or in place of a tail that conflicts with them.

        After `DiskFull` everything is as it was.
        """
        first, last = entries[0].index, self.last_index
        assert self.base.index < first <= last + 1, "an append leaves no gap"
        assert entries[-1].index == first + len(entries) - 1, "entries follow one another"
        assert self.term(first - 1) <= entries[0].term, "terms never fall"
        cuts = first <= last
        if self.segments and not cuts and self.segments[-1].tail < self._segment_bytes:
            self.segments[-1].append(entries, room_bytes=self._room_bytes)
        else:
            if self.segments:
                self.segments[-1].trim()
            segment = self._begin(entries)
            if cuts:
                self._cut(first)
            self.segments = (*self.segments, segment)
            self.reshaped = True
        self._recent.append(entries)

    def _begin(self, entries: tuple[Entry, ...]) -> Segment:
        """A new segment that holds these entries, not yet part of the log."""
        first = entries[0].index
        previous_term = self.term(first - 1)
        previous_chain = 0
        if self.segments and first > self.segments[0].first_index:
            previous_chain = self.segment(first - 1).chain(first - 1)
        header = SegmentHeader(
            self._instance, self.numbers.take(), first, previous_term, previous_chain
        )
        segment = create_segment(self._files, header)
        try:
            segment.append(entries, room_bytes=self._room_bytes)
        except DiskFull:
            self._files.unlink(segment.name)
            raise
        return segment

    def _cut(self, first: int) -> None:
        """Leave behind everything from `first` on."""
        kept = [segment for segment in self.segments if segment.first_index < first]
        self.segments = tuple(kept)
        if kept and kept[-1].last_index >= first:
            kept[-1].keep(first - 1)

    def compact(self, *, index: int, membership: Membership) -> None:
        """Move the base up to `index`; segments that lie wholly below it are left behind."""
        self._check(index)
        self.base = Snapshot(index, self.term(index), membership)
        kept = [segment for segment in self.segments[:-1] if segment.last_index > index]
        self.segments = (*kept, self.segments[-1])
        self.reshaped = True

    def restart(self, base: Snapshot) -> None:
        """Begin anew behind an installed snapshot, with no entries."""
        self.base = base
        self.segments = ()
        self._recent.clear()
        self.reshaped = True

    def sync(self) -> None:
        """Make durable what was written: one sync for each segment that was written to."""
        for segment in self.segments:
            if segment.dirty:
                segment.sync()

    def mark(self) -> None:
        """Note in the segment being written that everything is synced, unless that is known."""
        if self.segments and self.segments[-1].slots.mark.offset < self.segments[-1].tail:
            self.segments[-1].mark()

    def settle(self) -> None:
        """Make durable what opening found."""
        if self.segments:
            self.segments[-1].settle()

    def close(self) -> None:
        """Give the room back, and make the mark durable, which otherwise waits for a sync."""
        if self.segments:
            self.segments[-1].trim()
            self.segments[-1].sync()
