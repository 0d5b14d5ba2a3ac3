"""The protocol of a durable log, and a log in memory for tests.

The core only ever reads here. Writes travel outward in `Ready.write`; the driver carries them out
and reports them with `Node.stored`.
"""

import hashlib
from collections.abc import Sequence
from typing import Protocol

from corvo.raft.errors import Compacted, Unavailable
from corvo.raft.messages import Entry, HardState, Membership, Partial, Snapshot, SnapshotChunk
from corvo.raft.ready import Write


class Storage(Protocol):
    """The durable log as the core sees it. Calls are synchronous; they tell what is written."""

    @property
    def hard_state(self) -> HardState:
        """What was last written; asked once, when the node starts."""

    @property
    def base(self) -> Snapshot:
        """Where the log begins: its first entry is `base.index + 1`. Index 0 for a new log."""

    @property
    def last_index(self) -> int:
        """The last entry's index, or `base.index` when there are none."""

    @property
    def partial(self) -> Partial | None:
        """A snapshot that was being received when the process ended; asked once, at start."""

    def term(self, index: int) -> int:
        """The term of the entry at `index`, or of the base.

        Raises `Compacted` below the base and `Unavailable` beyond the end.
        """

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Entries `first` to `last`, both included, cut after `bytes_max` but never empty.

        Raises like `term`.
        """

    def snapshot(self) -> Snapshot | None:
        """The newest snapshot that can be streamed, or None while there is none."""

    def chunk(self, snapshot: Snapshot, offset: int, bytes_max: int) -> bytes | None:
        """Bytes of that snapshot from `offset`; None when it is no longer there."""


def page(entries: Sequence[Entry], start: int, stop: int, bytes_max: int) -> list[Entry]:
    """`entries[start:stop]`, cut after `bytes_max`, but with one entry at least if there is any.

    Looks at no more than it returns: the rest may be all that a slow follower has to catch up with.
    """
    total = 0
    for position in range(start, stop):
        total += entries[position].size
        if total > bytes_max and position > start:
            return list(entries[start:position])
    return list(entries[start:stop])


class MemoryStorage:
    """A log in memory that does what a driver is told to do with a `Write`.

    For tests, and for a node that need not outlive its process. `data` of a snapshot is kept whole.
    """

    def __init__(self, membership: Membership = Membership()) -> None:
        self.hard_state = HardState()
        self.base = Snapshot(0, 0, membership)
        self.partial: Partial | None = None
        self.repairing = False
        """Whether a write said so: the next node is to be started with `repair`."""
        self._entries: list[Entry] = []
        self._received = bytearray()
        self._snapshot: Snapshot | None = None
        self._data = b""

    @property
    def last_index(self) -> int:
        """The last entry's index, or the base's."""
        return self.base.index + len(self._entries)

    def term(self, index: int) -> int:
        """The term at `index`."""
        if index == self.base.index:
            return self.base.term
        return self._entries[self._position(index)].term

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Entries `first` to `last`, cut after `bytes_max`."""
        start, stop = self._position(first), self._position(last) + 1
        return page(self._entries, start, stop, bytes_max)

    def snapshot(self) -> Snapshot | None:
        """The snapshot made last, or received."""
        return self._snapshot

    def chunk(self, snapshot: Snapshot, offset: int, bytes_max: int) -> bytes | None:
        """Bytes of the snapshot made last, if it is the one meant."""
        if snapshot != self._snapshot:
            return None
        return self._data[offset : offset + bytes_max]

    # What a driver does with a `Write` and at checkpoints.

    def put(self, write: Write) -> bool:
        """Carry out everything a write asks for, at once.

        False when its chunk completed a snapshot that is not what was offered: that was discarded,
        and the driver says so with `Node.stored(token, intact=False)`.
        """
        self.repairing = self.repairing or write.repair
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        intact = write.chunk is None or self._receive(write.chunk)
        if write.install is not None:
            self._install(write.install)
        if write.entries:
            self._append(write.entries)
        return intact

    def make_snapshot(self, *, index: int, membership: Membership, data: bytes) -> Snapshot:
        """Keep `data` as the state at `index`, to be streamed to whoever needs it."""
        self._snapshot = Snapshot(
            index, self.term(index), membership, len(data), hashlib.sha256(data).digest()
        )
        self._data = data
        return self._snapshot

    def compact(self, *, index: int, membership: Membership) -> None:
        """Forget entries up to `index`; `membership` is the one in force there."""
        kept = self._entries[self._position(index) + 1 :]
        self.base = Snapshot(index, self.term(index), membership)
        self._entries = kept

    @property
    def snapshot_data(self) -> bytes:
        """The bytes of the newest snapshot: what a driver restores its state from."""
        return self._data

    def _position(self, index: int) -> int:
        if index <= self.base.index:
            raise Compacted(f"entry {index} is gone: the log begins behind {self.base.index}")
        if index > self.last_index:
            raise Unavailable(f"entry {index} is beyond the end of the log at {self.last_index}")
        return index - self.base.index - 1

    def _append(self, entries: tuple[Entry, ...]) -> None:
        first = entries[0].index
        assert self.base.index < first <= self.last_index + 1, "an append leaves no gap"
        del self._entries[first - self.base.index - 1 :]
        self._entries.extend(entries)

    def _receive(self, chunk: SnapshotChunk) -> bool:
        if chunk.offset == 0:
            self._received.clear()
        assert chunk.offset == len(self._received), "chunks arrive in order"
        self._received += chunk.data
        self.partial = Partial(chunk.snapshot, len(self._received))
        if self.partial.received < chunk.snapshot.size:
            return True
        if hashlib.sha256(self._received).digest() == chunk.snapshot.checksum:
            return True
        self.partial = None
        self._received.clear()
        return False

    def _install(self, snapshot: Snapshot) -> None:
        assert self.partial == Partial(snapshot, snapshot.size), "a whole snapshot was received"
        self._snapshot, self._data = snapshot, bytes(self._received)
        self.base = Snapshot(snapshot.index, snapshot.term, snapshot.membership)
        self._entries = []
        self.partial = None
        self._received.clear()
