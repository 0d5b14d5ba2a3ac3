"""The feed: for each log entry, the keys of the documents that it changed, and its events.

Each entry's batch writes one `Row`: what the state's digest is behind it, the keys of the *fed*
documents that it wrote or removed, and what happened in it. A follower asks for what changed behind
the place that it has come to and gets each document once, as it is *now*: how often it changed in
between costs nothing. The digest tells that a place is one of the same log.

The rows are this replica's own. They are bounded by bytes, cut from the front and in no digest; a
checkpoint has them, for it is made of files. A state without a feed begins one where it stands, and
so does one that was worked on by a version that knows of none.

`Page` and `Walk` are what a follower is answered with. They are made in short steps, between which
more may be applied.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from corvo.errors import StoreDamaged
from corvo.kv.keys import (
    BATCH,
    COUNTS,
    EVENT,
    EVENT_CURSOR,
    JOB,
    JOB_ERROR,
    QUEUE_CONFIG,
    SCHEDULE,
    THROUGHPUT,
    WORKER,
    prefix_end,
)
from corvo.kv.store import Store

FED: Final = tuple(
    sorted(
        space.prefix
        for space in (JOB, JOB_ERROR, QUEUE_CONFIG, COUNTS, SCHEDULE, THROUGHPUT, BATCH, WORKER)
    )
)
"""What the keys of documents begin with that followers are told of, in order."""

FEED_BYTES_MAX: Final = 256 << 20
ROW_BYTES: Final = 32
"""What a row takes beside its value, about."""
CUT_ROWS: Final = 16
"""Rows that are cut in one go, and by an entry whose own row is small. One that adds more cuts
more, in proportion to what it adds: no row takes less than `ROW_BYTES`, so the bound is kept."""
CUT_BYTES_MORE: Final = 64 << 10
"""So much more than has to be is cut at most, but for a single row: rows are not all alike."""
EVENTS_BYTES_MAX: Final = 6 << 20
"""Of one entry. A message has all of an entry's events, so they must leave room in a frame."""
TEXT_MAX: Final = 200
"""Letters of a text in an event that is for people: `kind`, `by` and `why`."""
PAGE_BYTES: Final = 1 << 20
"""With so much in documents or events, a page ends with the entry."""
PART_BYTES: Final = 4 << 20
"""No page has more in documents, unless it is a single one: a page of changes ends within an entry
then. What a frame takes beyond it is for that one, and for events."""
STEP_DOCUMENTS: Final = 128
STEP_BYTES: Final = 256 << 10
"""What is read in one step: some milliseconds where it is not in any cache."""
_SCAN_DOCUMENTS: Final = 8
"""Read at once in a walk, before anybody knows how large they are."""
_ROW_DOCUMENTS: Final = 8
"""As how many documents an entry counts in a step."""
_ROW_BYTES_A_DOCUMENT: Final = 1 << 10

Told: TypeAlias = tuple[str | int | bytes, ...]
"""What happened: the fields of `wire.Happening` in order, those at the end left out that are at
their defaults."""

_EVENT: Final = EVENT.prefix
_BEGIN_KEY: Final = EVENT_CURSOR.prefix


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one entry changed."""

    digest: int  # the state's, behind the entry
    now_ns: int  # the entry's time
    bytes_total: int  # of all rows before this one, since there is a feed
    keys: tuple[bytes, ...]  # of fed documents that were written or removed; each once
    events: msgspec.Raw  # a list of `Told`, in msgpack; nil when they are too many to be told


class RowHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The beginning of a row."""

    digest: int
    now_ns: int
    bytes_total: int


class Begin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last entry of which there is no row any more."""

    index: int
    digest: int
    bytes_total: int = 0  # of all rows up to this one
    stale: int = 0
    """From here on rows are left of a feed that broke off, and count for nothing; 0 for none."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_row: Final = msgspec.msgpack.Decoder(Row).decode
_decode_head: Final = msgspec.msgpack.Decoder(RowHead).decode
_decode_begin: Final = msgspec.msgpack.Decoder(Begin).decode


def row_key(index: int) -> bytes:
    """Where the row of an entry is."""
    return _EVENT + index.to_bytes(8, "big")


class Feed:
    """The rows of one state: how they are added and cut, and what is known of each place."""

    def __init__(self, store: Store, *, applied: int, digest: int, bytes_max: int) -> None:
        self._store = store
        self._bytes_max = bytes_max
        self.index = applied  # the last entry
        self._digest = digest  # the state's, behind that entry
        self.begin = Begin(applied, digest)  # behind this entry there are rows of all
        self._is_begun = False  # whether the store says where it begins
        self._bytes_total = 0
        data = store.get(_BEGIN_KEY)
        if data is not None:
            self._go_on(_decode_begin(data))

    def _go_on(self, begin: Begin) -> None:
        """Go on behind the last row, unless whoever had the store since wrote none."""
        last = self._store.get(row_key(self.index))
        if begin.index == self.index:
            self._bytes_total = begin.bytes_total
        elif begin.index < self.index and last is not None:
            self._bytes_total = _decode_head(last).bytes_total + len(last) + ROW_BYTES
        else:
            self.begin = msgspec.structs.replace(self.begin, stale=begin.stale or begin.index + 1)
            return
        self.begin = begin
        self._is_begun = True

    def append(
        self,
        writes: dict[bytes, bytes | None],
        index: int,
        digest: int,
        now_ns: int,
        keys: Sequence[bytes],
        told: Sequence[Told],
    ) -> None:
        """Add an entry's row to what the entry writes, and cut what is too much."""
        row = _encode((digest, now_ns, self._bytes_total, keys, told))
        if len(row) > EVENTS_BYTES_MAX:
            row = _encode((digest, now_ns, self._bytes_total, keys, _bounded(told)))
        if not self._is_begun:
            self._is_begun = True
            writes[_BEGIN_KEY] = _encode(self.begin)
        if self.begin.stale:
            self._clean(writes)
        size = len(row) + ROW_BYTES
        if self._bytes_total + size - self.begin.bytes_total > self._bytes_max:
            self._cut(writes, size)
        writes[_EVENT + index.to_bytes(8, "big")] = row
        self.index = index
        self._digest = digest
        self._bytes_total += size

    def _cut(self, writes: dict[bytes, bytes | None], size: int) -> None:
        """Remove the oldest rows, to make room for one of that size."""
        begin = self.begin
        first = begin.index
        last = min(first + CUT_ROWS + size // ROW_BYTES, self.index)
        enough = self._bytes_total + size - self._bytes_max  # all rows up to the last to be cut
        while begin.index < last and begin.bytes_total < enough:
            begin = self._begin_behind(begin, min(CUT_ROWS, last - begin.index), enough)
        for index in range(first + 1, begin.index + 1):
            writes[row_key(index)] = None
        self._move(writes, begin)

    def _begin_behind(self, begin: Begin, rows: int, enough: int) -> Begin:
        """The begin so many rows further on, or fewer where they are large."""
        while True:
            index = begin.index + rows
            data = self._data(index)
            head = _decode_head(data)
            total = head.bytes_total + len(data) + ROW_BYTES
            if rows == 1 or total <= enough + CUT_BYTES_MORE:
                return Begin(index, head.digest, total, begin.stale)
            rows = max(1, rows // 4)

    def _clean(self, writes: dict[bytes, bytes | None]) -> None:
        """Remove some of the rows that count for nothing."""
        begin = self.begin
        stop = row_key(begin.index + 1)
        left = self._store.keys(row_key(begin.stale), stop, limit=CUT_ROWS)
        for key in left:
            writes[key] = None
        is_done = len(left) < CUT_ROWS
        stale = 0 if is_done else int.from_bytes(left[-1][len(_EVENT) :], "big") + 1
        self._move(writes, msgspec.structs.replace(begin, stale=stale))

    def _move(self, writes: dict[bytes, bytes | None], begin: Begin) -> None:
        self.begin = begin
        writes[_BEGIN_KEY] = _encode(begin)

    def digest_at(self, index: int) -> int | None:
        """What the digest was behind an entry; None where the feed does not know."""
        if not self.begin.index <= index <= self.index:
            return None
        if index == self.index:
            return self._digest
        if index == self.begin.index:
            return self.begin.digest
        return _decode_head(self._data(index)).digest

    def index_before(self, since_ns: int) -> int:
        """The last entry before a time, or the begin: behind it is all that is known since then.

        No entry has an earlier time than the one before it.
        """
        known = range(self.begin.index + 1, self.index + 1)
        return self.begin.index + bisect_left(known, since_ns, key=self.time_of)

    def time_of(self, index: int) -> int:
        """The time of an entry behind the begin."""
        return _decode_head(self._data(index)).now_ns

    def row(self, index: int) -> tuple[Row, int]:
        """The row of an entry behind the begin, and how large it is."""
        data = self._data(index)
        return _decode_row(data), len(data)

    def _data(self, index: int) -> bytes:
        data = self._store.get(row_key(index))
        if data is None:
            raise StoreDamaged(f"the feed has no row of entry {index}")
        return data


def _bounded(told: Sequence[Told]) -> msgspec.Raw:
    """Events that go into one message: with shorter texts, with none, or else nil."""
    for letters in (TEXT_MAX, 0):
        events = _encode([_shortened(each, letters) for each in told])
        if len(events) <= EVENTS_BYTES_MAX:
            return msgspec.Raw(events)
    return _UNTOLD


def _shortened(told: Told, letters: int) -> Told:
    return tuple(
        field[:letters] if at in _TEXTS and isinstance(field, str) else field
        for at, field in enumerate(told)
    )


_TEXTS: Final = (3, 6, 7)
"""Where the texts for people are: `kind`, `by` and `why`."""
_UNTOLD: Final = msgspec.Raw(b"\xc0")  # nil


class Page:
    """What changed behind a place, up to some other: an answer to a follower, in the making.

    It ends where an entry does, unless that entry's documents alone are too large. Then `more` is
    the last of its keys, in their order, that are told; with that key one asks for the rest.

    It ends before an entry whose events are too many to be told. There is nothing to be told behind
    a place right before such an entry but `gap`, the first place to go on from.
    """

    def __init__(
        self,
        store: Store,
        feed: Feed,
        *,
        after: int,
        digest: int,
        after_key: bytes,
        keys_max: int,
        wants_documents: bool,
        wants_events: bool,
    ) -> None:
        self._store = store
        self._feed = feed
        self._first = after
        # Documents are looked up as they are then or later. What changes from here on is told from
        # its own entry on, even if a document was looked up before.
        self._last = feed.index
        self._after_key = after_key
        self._keys_max = keys_max
        self._wants_documents = wants_documents
        self._wants_events = wants_events
        self._row: Row | None = None  # under way
        self._left: list[bytes] = []  # its keys that are not looked up, the next one last
        self._last_key = b""
        self._bytes = 0
        self._events = 0
        self.index = after  # all entries up to this one are told
        self.digest = digest
        self.now_ns = 0
        self.more = b""
        self.gap: Begin | None = None
        self.pairs: dict[bytes, bytes | None] = {}
        self.events: list[tuple[int, int, msgspec.Raw]] = []
        """Index, time and events of each entry that has some."""

    @property
    def is_overtaken(self) -> bool:
        """Whether the feed was cut before anything was told."""
        return self.index == self._first < self._feed.begin.index

    def advance(self) -> bool:
        """Do some more of it. Returns whether it is made."""
        left = STEP_DOCUMENTS
        bytes_max = self._bytes + STEP_BYTES
        while left > 0 and self._bytes < bytes_max:
            if self._row is None:
                size = self._open()
                if size is None:
                    return True
                left -= _ROW_DOCUMENTS + size // _ROW_BYTES_A_DOCUMENT
            while self._left and left > 0 and self._bytes < bytes_max:
                left -= 1
                if not self._look_up(self._left.pop()):
                    self._break_off()
                    return True
            if not self._left:
                self._close()
        return False

    def _open(self) -> int | None:
        """Begin with the next entry; returns the size of its row, or None at the end."""
        feed = self._feed
        is_enough = self._bytes >= PAGE_BYTES or self._events >= self._keys_max
        if self.index == self._last or self.index < feed.begin.index or is_enough:
            return None
        row, size = feed.row(self.index + 1)
        is_first = self.index == self._first
        # An older version wrote all of them, however many there were.
        is_untold = row.events == _UNTOLD or len(row.events) > EVENTS_BYTES_MAX
        if self._wants_events and is_untold:
            if is_first:
                self.gap = Begin(self.index + 1, row.digest)
            return None
        if self._wants_documents:
            pairs = self.pairs
            new = [key for key in row.keys if key not in pairs]
            if len(pairs) + len(new) > self._keys_max and not is_first:
                return None
            # In the order of the keys, so that a part of them has an end.
            new.sort(reverse=True)
            if is_first and self._after_key:
                del new[len(new) - bisect_right(new[::-1], self._after_key) :]
            self._left = new
        self._row = row
        return size

    def _look_up(self, key: bytes) -> bool:
        """Tell of a document; False when there is no room for it."""
        data = self._store.get(key)
        size = len(key) + (len(data) if data is not None else 0)
        if self.pairs and self._bytes + size > PART_BYTES:
            return False
        self.pairs[key] = data
        self._bytes += size
        self._last_key = key
        return True

    def _close(self) -> None:
        """An entry is told as a whole."""
        row = self._row
        assert row is not None
        self._row = None
        self.index += 1
        self.digest = row.digest
        self.now_ns = row.now_ns
        if self._wants_events and len(row.events) > 1:
            self.events.append((self.index, row.now_ns, row.events))
            self._bytes += len(row.events)
            if not self._wants_documents:
                self._events += _count(row.events)

    def _break_off(self) -> None:
        """The documents of an entry are too large for one page.

        Where others are told as a whole before it, it is begun anew with the next page: that some
        of its documents are told already does no harm.
        """
        assert self._row is not None
        if self.index == self._first:
            self.more = self._last_key
            self.now_ns = self._row.now_ns


def _count(events: msgspec.Raw) -> int:
    """How many there are: what a list in msgpack begins with."""
    data = bytes(memoryview(events)[:5])
    if data[0] < _LIST_16:
        return data[0] & 0x0F
    return int.from_bytes(data[1:3] if data[0] == _LIST_16 else data[1:5], "big")


_LIST_16: Final = 0xDC


class Walk:
    """A page of all documents, in the order of their keys and as they are now, in the making."""

    def __init__(self, store: Store, *, after: bytes, keys_max: int) -> None:
        self._store = store
        self._after = after
        self._left = keys_max
        self._bytes = 0
        self.pairs: list[tuple[bytes, bytes]] = []
        self.last = b""  # all keys up to this one are told; empty at the end of all

    def advance(self) -> bool:
        """Do some more of it. Returns whether it is made."""
        documents = len(self.pairs) + STEP_DOCUMENTS
        bytes_max = self._bytes + STEP_BYTES
        while len(self.pairs) < documents and self._bytes < bytes_max:
            prefix = next((prefix for prefix in FED if self._after < prefix_end(prefix)), None)
            if prefix is None:
                self.last = b""
                return True
            if not self._scan(prefix) or self._left == 0 or self._bytes >= PAGE_BYTES:
                return True
        return False

    def _scan(self, prefix: bytes) -> bool:
        """Go on with the documents of a space; False when there is no room for the next one.

        Neighbours may be of very different sizes, so each is looked at before it is told.
        """
        start = max(prefix, self._after + b"\0") if self._after else prefix
        limit = min(self._left, _SCAN_DOCUMENTS)
        found = self._store.scan(start, prefix_end(prefix), limit=limit)
        for pair in found:
            size = len(pair[0]) + len(pair[1])
            if self.pairs and self._bytes + size > PART_BYTES:
                return False
            self.pairs.append(pair)
            self._left -= 1
            self._bytes += size
            self._after = self.last = pair[0]
        if len(found) < limit:
            # A key that ends a space is as good as its last document.
            self._after = self.last = prefix_end(prefix)
        return True
