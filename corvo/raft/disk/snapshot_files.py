"""Snapshots on disk: the one that is being received, and the one that is sent.

Both are the same file, laid out as `marks` says: the header names the snapshot, then comes the
stream. On arrival the marks tell how much of the stream is synced, and with which checksum.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

from corvo.raft.checksum import chain
from corvo.raft.disk.damage import damaged
from corvo.raft.disk.envelope import checksum_of, seal, unseal
from corvo.raft.disk.filesystem import TEMPORARY, Files
from corvo.raft.disk.manifest import StoredSnapshot
from corvo.raft.disk.marks import BLOCK_BYTES, DATA_START, Mark, MarkSlots, prefix, read_slots
from corvo.raft.errors import DiskFull, LogDamaged
from corvo.raft.messages import Partial, Snapshot, SnapshotChunk

INCOMING: Final = "incoming.part"
MAGIC: Final = b"corvosnp"
PIECE_BYTES: Final = 1 << 20
"""What is read at once when a stream is read as a whole: a chunk of the protocol."""


class SnapshotFile:
    """A whole snapshot."""

    def __init__(self, files: Files, name: str, stored: StoredSnapshot) -> None:
        self.name = name
        self.stored = stored
        self.snapshot = stored.snapshot
        self._files = files

    def chunk(self, offset: int, bytes_max: int) -> bytes:
        """Bytes of the stream; fewer only at its end."""
        return self._files.read(self.name, DATA_START + offset, bytes_max)

    def stream(self, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """The whole stream. Ends with `LogDamaged` when it was not what it should have been."""
        digest = hashlib.sha256()
        for offset in range(0, self.snapshot.size, piece_bytes):
            piece = self.chunk(offset, min(piece_bytes, self.snapshot.size - offset))
            digest.update(piece)
            yield piece
        if digest.digest() != self.snapshot.checksum:
            problem = "the snapshot changed since it was written"
            raise damaged(self.name, DATA_START, self.snapshot.index, problem)


def open_snapshot(files: Files, stored: StoredSnapshot) -> SnapshotFile:
    """Read a snapshot in full, and believe it."""
    found = unseal(files, stored.name, MAGIC, Snapshot, alone=False).content
    if found != stored.snapshot:
        raise damaged(stored.name, 0, stored.snapshot.index, "this is another snapshot")
    opened = SnapshotFile(files, stored.name, stored)
    for _ in opened.stream():
        pass
    return opened


UNFINISHED: Final = "snapshot" + TEMPORARY


class SnapshotWriter:
    """A snapshot that is being made, piece by piece. It counts once the manifest names it.

    Its methods may be called on another thread than those of the log, one at a time. After
    `DiskFull` it is to be given up.
    """

    def __init__(self, files: Files, unsized: Snapshot) -> None:
        """`unsized` says what it is of."""
        self.unsized: Final = unsized
        self._files = files
        self._digest = hashlib.sha256()
        self._size = 0
        files.create(UNFINISHED)

    def add(self, piece: bytes) -> None:
        """Write the next bytes of the stream."""
        self._files.write(UNFINISHED, DATA_START + self._size, piece)
        self._digest.update(piece)
        self._size += len(piece)

    def sync(self) -> None:
        """Make durable what was added, so that the end is not left with all of it."""
        self._files.sync(UNFINISHED)

    def seal(self) -> Snapshot:
        """All was added: say what it is, and make it durable."""
        of = self.unsized
        snapshot = Snapshot(of.index, of.term, of.membership, self._size, self._digest.digest())
        self._files.write(UNFINISHED, 0, seal(MAGIC, snapshot).ljust(BLOCK_BYTES, b"\0"))
        self._files.sync(UNFINISHED)
        return snapshot

    def name(self, snapshot: Snapshot, sequence: int) -> SnapshotFile:
        """Give what was sealed its name."""
        stored = StoredSnapshot(snapshot, sequence)
        self._files.rename(UNFINISHED, stored.name)
        return SnapshotFile(self._files, stored.name, stored)

    def give_up(self) -> None:
        """Leave nothing of it."""
        self._files.unlink(UNFINISHED)


class Incoming:
    """A snapshot that is being received into `incoming.part`."""

    def __init__(
        self, files: Files, snapshot: Snapshot, slots: MarkSlots, chained: int, *, is_named: bool
    ) -> None:
        self.snapshot = snapshot
        self.received = 0
        self._files = files
        self._slots = slots
        self._chained = chained
        self._digest = hashlib.sha256()
        self._dirty = False
        self._is_named = is_named  # whether the file's name is durable, too

    def twin(self) -> "Incoming":
        """One to come back to, should the next write fail."""
        twin = Incoming(
            self._files, self.snapshot, self._slots, self._chained, is_named=self._is_named
        )
        twin.received, twin._digest, twin._dirty = self.received, self._digest.copy(), self._dirty
        return twin

    @property
    def partial(self) -> Partial:
        """How far it is."""
        return Partial(self.snapshot, self.received)

    @property
    def is_intact(self) -> bool:
        """Whether a whole stream is what was offered."""
        assert self.received == self.snapshot.size
        return self._digest.digest() == self.snapshot.checksum

    def add(self, chunk: SnapshotChunk) -> None:
        """Write the next bytes. After `DiskFull` they are not there."""
        assert chunk.snapshot == self.snapshot, "chunks of one stream"
        assert chunk.offset == self.received, "chunks arrive in order"
        self._files.write(INCOMING, DATA_START + self.received, chunk.data)
        self._take(chunk.data)
        self._dirty = True

    def _take(self, data: bytes) -> None:
        self._chained = chain(self._chained, data)
        self._digest.update(data)
        self.received += len(data)

    def sync(self) -> None:
        """Make durable what was received, and then say so."""
        if self._dirty:
            self._files.sync(INCOMING)
            if not self._is_named:
                self._files.sync_names()
                self._is_named = True
            self._slots.write(
                offset=DATA_START + self.received, index=self.snapshot.index, chain=self._chained
            )
            self._dirty = False

    def restore(self) -> bool:
        """Take in what is there up to the mark; whether it is what was received."""
        mark = self._slots.mark
        while self.received < mark.offset - DATA_START:
            length = min(PIECE_BYTES, mark.offset - DATA_START - self.received)
            data = self._files.read(INCOMING, DATA_START + self.received, length)
            self._take(data)
            if len(data) < length:
                return False
        return self._chained == mark.chain


def begin_incoming(files: Files, snapshot: Snapshot) -> Incoming:
    """Receive anew; whatever was on arrival before is dropped."""
    if INCOMING in files.names():
        files.unlink(INCOMING)
    envelope = seal(MAGIC, snapshot)
    seed = checksum_of(envelope)
    mark = Mark(0, DATA_START, snapshot.index, seed)
    files.create(INCOMING)
    try:
        files.write(INCOMING, 0, prefix(envelope, seed, mark))
    except DiskFull:
        files.unlink(INCOMING)
        raise
    slots = MarkSlots(files, INCOMING, seed, mark)
    return Incoming(files, snapshot, slots, seed, is_named=False)


def open_incoming(files: Files) -> Incoming | None:
    """What was on arrival and is still good. If it is not, it is no loss: it is fetched anew.

    For a directory whose names are durable.
    """
    if INCOMING not in files.names():
        return None
    try:
        sealed = unseal(files, INCOMING, MAGIC, Snapshot, alone=False)
    except LogDamaged:
        return None
    slots = read_slots(files, INCOMING, sealed.checksum)
    if slots is None:
        return None
    incoming = Incoming(files, sealed.content, slots, sealed.checksum, is_named=True)
    is_good = incoming.restore() and incoming.received > 0
    is_whole = incoming.received == incoming.snapshot.size
    return incoming if is_good and (not is_whole or incoming.is_intact) else None
