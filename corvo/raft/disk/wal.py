"""The durable log: `Storage` on files, with `put` and `sync` for the driver.

    identity                    whose directory this is                        (identity)
    hard-state                  term and vote, in two slots                    (hard_state)
    manifest                    which of the files below count                 (manifest)
    log-<index>-<number>.seg    the entries                                    (segments)
    snapshot-<index>-….snap     the newest snapshot that can be streamed       (snapshot_files)
    incoming.part               the snapshot that is being received            (snapshot_files)
    ballast                     room that can be set free when the disk is full
    quarantine-<n>/             what was set aside as damaged                  (recovery)

**Calls.** The driver's thread calls everything. `sync` alone may run on another thread; until it
has returned, only the reads of `Storage` may be called beside it. A write counts when a `sync` that
began after its `put` has returned.

**Cost.** A group of puts costs one sync of one file, which seldom grows. A changed hard state costs
two more for the vote and two for the commit; a new segment or a cut tail costs the new file, its
name, and the manifest.

**Failure.** After `DiskFull` everything is as it was before the call, but `sync` may have done a
part; either may be tried again. After anything else the object is of no more use: every later
call raises `LogFailed`, and the process should end. Opening again finds out what is true.

docs/formats.md has every byte, and what is concluded from each state that a crash can leave.
"""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final

import msgspec

from corvo.raft.checksum import chain
from corvo.raft.disk.filesystem import Files
from corvo.raft.disk.hard_state import HardStateFile
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.manifest import Manifest, StoredSnapshot, orphans, write_manifest
from corvo.raft.disk.recovery import BALLAST, Recovery, ensure_ballast, recover
from corvo.raft.disk.segmented_log import RECENT_BYTES, SegmentedLog
from corvo.raft.disk.snapshot_files import (
    INCOMING,
    UNFINISHED,
    Incoming,
    SnapshotFile,
    SnapshotWriter,
    begin_incoming,
)
from corvo.raft.errors import DiskFull, LogFailed, Unavailable
from corvo.raft.messages import Entry, HardState, Membership, Partial, Snapshot, SnapshotChunk
from corvo.raft.ready import Write

SEGMENT_BYTES: Final = 64 << 20
"""When a segment is full: small enough to be dropped soon after a snapshot, large enough that the
five syncs of beginning a new one do not count."""


class DiskStorage:
    """A log on disk. Make it with `DiskStorage.open`."""

    def __init__(
        self,
        files: Files,
        identity: Identity,
        *,
        manifest: Manifest,
        hard_state: HardStateFile,
        log: SegmentedLog,
        snapshot: SnapshotFile | None,
        incoming: Incoming | None,
        recovery: Recovery,
    ) -> None:
        self.identity = identity
        self.hard_state = hard_state.state
        self.recovery = recovery  # what opening found and mended
        self.repairing = manifest.repairing
        """Whether this replica lost what it had acknowledged, and no peer has mended it yet."""
        self._manifest = manifest  # as it is on the disk
        self._files = files
        self._hard_state_file = hard_state
        self._log = log
        self._snapshot = snapshot
        self._incoming = incoming
        self._writer: SnapshotWriter | None = None  # of a snapshot that is being made
        self._guard = _Guard()
        self.synced_index = log.last_index
        """Every entry up to it is durable."""

    @classmethod
    def open(
        cls,
        files: Files,
        identity: Identity,
        membership: Membership = Membership(),
        *,
        segment_bytes: int = SEGMENT_BYTES,
        recent_bytes: int = RECENT_BYTES,
        ballast_bytes: int = 0,
    ) -> "DiskStorage":
        """Open a directory, or make it. Everything that is accepted is durable when this returns.

        `identity.instance` and `membership` are used when the directory is made; afterwards it has
        its own. Raises `DirectoryRefused` for a directory that is in use, or another replica's, and
        `LogDamaged` when bytes are not what was written; then nothing was changed. See
        `recovery.quarantine` for what to do about it.
        """
        found = recover(
            files, identity, membership, segment_bytes=segment_bytes, recent_bytes=recent_bytes
        )
        ensure_ballast(files, ballast_bytes)
        return cls(
            files,
            found.identity,
            manifest=found.manifest,
            hard_state=found.hard_state,
            log=found.log,
            snapshot=found.snapshot,
            incoming=found.incoming,
            recovery=found.recovery,
        )

    # What the core asks: see `Storage`.

    @property
    def base(self) -> Snapshot:
        """Where the log begins."""
        return self._log.base

    @property
    def last_index(self) -> int:
        """The last entry's index, or the base's."""
        return self._log.last_index

    @property
    def partial(self) -> Partial | None:
        """A snapshot on arrival."""
        return self._incoming.partial if self._incoming is not None else None

    def term(self, index: int) -> int:
        """The term at `index`."""
        self._guard.check()
        return self._log.term(index)

    def checksum(self, index: int) -> int | None:
        """A checksum of an entry by itself; None when it is not there."""
        if not self.base.index < index <= self.last_index:
            return None
        [entry] = self.entries(index, index, 1)
        return chain(chain(0, entry.term.to_bytes(8, "little")), entry.data)

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Entries `first` to `last`, cut after `bytes_max`.

        Raises `LogDamaged` when they changed on the disk and are not so new that memory has them.
        """
        self._guard.check()
        return self._log.entries(first, last, bytes_max)

    def snapshot(self) -> Snapshot | None:
        """The newest snapshot that can be streamed; one that was installed is, once it counts."""
        if self._snapshot is None or self._arrived is not None:
            return None
        return self._snapshot.snapshot

    def chunk(self, snapshot: Snapshot, offset: int, bytes_max: int) -> bytes | None:
        """Bytes of the newest snapshot, if it is the one meant."""
        self._guard.check()
        if self._snapshot is None or self.snapshot() != snapshot:
            return None
        return self._snapshot.chunk(offset, bytes_max)

    def snapshot_data(self) -> Iterator[bytes]:
        """The newest snapshot's stream, to restore a state from.

        Ends with `LogDamaged` when that is not what was written: use nothing before it ended well.
        """
        self._guard.check()
        assert self._snapshot is not None, "there is a snapshot to restore from"
        return self._snapshot.stream()

    # What a driver does with a `Write`.

    def put(self, write: Write) -> bool:
        """Carry out everything a write asks for; it counts after the next `sync`.

        False when its chunk completed a snapshot that is not what was offered: that was discarded.
        After `DiskFull` nothing of the write was done, save that a snapshot on arrival may be gone.
        """
        with self._guard:
            if self._arrived is not None and write.chunk is not None:
                self._sync()  # rare: a snapshot right behind another
            shape, snapshot = self._log.shape, self._snapshot
            incoming = self._incoming.twin() if self._incoming is not None else None
            try:
                intact = self._carry_out(write)
            except DiskFull:
                self._log.shape, self._snapshot = shape, snapshot
                begun = write.chunk is not None and write.chunk.offset == 0
                self._incoming = None if begun else incoming
                raise
            self.repairing = self.repairing or write.repair
            if write.hard_state is not None:
                assert write.hard_state.term >= self.hard_state.term, "terms never fall"
                self.hard_state = write.hard_state
            return intact

    def _carry_out(self, write: Write) -> bool:
        intact = write.chunk is None or self._receive(write.chunk)
        if write.install is not None:
            self._install(write.install)
        if write.entries:
            committed = max(self.hard_state.commit, self.base.index)
            assert write.entries[0].index > committed, "what is committed is never cut"
            self._log.append(write.entries)
            self.synced_index = min(self.synced_index, write.entries[0].index - 1)
        return intact

    @property
    def _arrived(self) -> SnapshotFile | None:
        """A snapshot that was installed in memory, and still has the name of the incoming one."""
        is_arrived = self._snapshot is not None and self._snapshot.name == INCOMING
        return self._snapshot if is_arrived else None

    def sync(self) -> None:
        """Make everything put before durable. When this returns, it counts."""
        with self._guard:
            self._sync()

    def _sync(self) -> None:
        self._save_repair()
        self._save_vote()
        if self._incoming is not None:
            self._incoming.sync()
        if (arrived := self._arrived) is not None:
            self._name_snapshot(arrived)
        self._log.sync()
        if self._log.reshaped:
            self._publish()
        self._log.mark()
        self._save_commit()
        self.synced_index = self._log.last_index

    def _save_repair(self) -> None:
        """That repair began goes before its term: without it, a restart would have a vote."""
        if self.repairing and not self._manifest.repairing:
            self._write_manifest(msgspec.structs.replace(self._manifest, repairing=True))

    def _write_manifest(self, manifest: Manifest) -> None:
        write_manifest(self._files, manifest)
        self._manifest = manifest

    def _save_vote(self) -> None:
        """The vote goes first: an entry of a term may not outlive the term itself."""
        saved, wanted = self._hard_state_file.state, self.hard_state
        if (saved.term, saved.vote) != (wanted.term, wanted.vote):
            self._hard_state_file.save(HardState(wanted.term, wanted.vote, saved.commit))

    def _save_commit(self) -> None:
        """The commit of a hard state goes last: it may speak of what was only now synced."""
        commit = min(self.hard_state.commit, self.last_index)
        if commit > self._hard_state_file.state.commit:
            self._hard_state_file.save(msgspec.structs.replace(self.hard_state, commit=commit))

    def _publish(self) -> None:
        """Let the manifest say what is in memory, and remove what it no longer names."""
        self._files.sync_names()
        manifest = Manifest(
            self._log.base,
            self._log.extents,
            self._snapshot.stored if self._snapshot is not None else None,
            self._log.numbers.following,
            self.repairing,
        )
        self._write_manifest(manifest)
        self._log.reshaped = False
        for name in orphans(self._files, manifest):
            if name != UNFINISHED or self._writer is None:
                self._files.unlink(name)

    def _receive(self, chunk: SnapshotChunk) -> bool:
        incoming = self._incoming
        if chunk.offset == 0:
            self._incoming = None
            incoming = begin_incoming(self._files, chunk.snapshot)
        assert incoming is not None, "a snapshot is received from its beginning"
        incoming.add(chunk)
        if incoming.received < chunk.snapshot.size or incoming.is_intact:
            self._incoming = incoming
            return True
        self._incoming = None
        self._files.unlink(INCOMING)
        return False

    def _install(self, snapshot: Snapshot) -> None:
        """Make a received snapshot the state. Here only memory changes; `_sync` takes the steps.

        1. sync the received file            4. write the new manifest aside    7. sync the name
        2. give it its name                  5. sync it                         8. remove old files
        3. sync the name                     6. rename it over the old one      9. mark the segment

        A crash up to 5 leaves the old state, from 7 on the new one, and at 6 one of the two.
        """
        assert self.partial == Partial(snapshot, snapshot.size), "a whole snapshot was received"
        stored = StoredSnapshot(snapshot, self._log.numbers.take())
        self._snapshot = SnapshotFile(self._files, INCOMING, stored)
        self._incoming = None
        self._log.restart(Snapshot(snapshot.index, snapshot.term, snapshot.membership))

    def _name_snapshot(self, arrived: SnapshotFile) -> None:
        self._files.sync(INCOMING)
        self._files.rename(INCOMING, arrived.stored.name)
        arrived.name = arrived.stored.name

    # What a driver does at checkpoints.

    def make_snapshot(
        self, *, index: int, membership: Membership, data: Iterable[bytes]
    ) -> Snapshot:
        """Keep `data` as the state at `index`, durably; the snapshot before it is removed."""
        writer = self.begin_snapshot(index=index, membership=membership)
        with self._guard:
            try:
                for piece in data:
                    writer.add(piece)
                sealed = writer.seal()
            except DiskFull:
                self.drop_snapshot(writer)
                raise
        self.keep_snapshot(writer, sealed)
        return sealed

    # The same in steps, while the log goes on.

    def begin_snapshot(self, *, index: int, membership: Membership) -> SnapshotWriter:
        """Begin to make a snapshot of the state at `index`; one at a time.

        Pieces are added to the writer, which is sealed then, on any thread. Then it is kept, or it
        is dropped at any time.
        """
        assert self._writer is None, "one snapshot is made at a time"
        with self._guard:
            unsized = Snapshot(index, self._log.term(index), membership)
            self._writer = SnapshotWriter(self._files, unsized)
            return self._writer

    def keep_snapshot(self, writer: SnapshotWriter, sealed: Snapshot) -> bool:
        """Keep what was sealed, durably; the snapshot before it is removed.

        False when the log no longer reaches back to it, because another one was installed
        meanwhile: then it is dropped. May run on another thread, as `sync` may.
        """
        assert writer is self._writer, "it is the one being made"
        if sealed.index < self.base.index:
            self.drop_snapshot(writer)
            return False
        with self._guard:
            try:
                self._sync()
            except DiskFull:
                self.drop_snapshot(writer)
                raise
            made = writer.name(sealed, self._log.numbers.take())
            self._writer = None
            before = self._snapshot
            self._snapshot = made
            try:
                self._publish()
            except DiskFull:
                self._snapshot = before
                self._files.unlink(made.name)
                raise
            return True

    def drop_snapshot(self, writer: SnapshotWriter) -> None:
        """Leave nothing of a snapshot that is being made."""
        if writer is self._writer:
            self._writer = None
            writer.give_up()

    def compact(self, *, index: int, membership: Membership) -> None:
        """Forget entries up to `index`, durably; `membership` is the one in force there.

        Room is set free by whole segments, and never of the one that is being written.
        """
        with self._guard:
            self._sync()
            before = self._log.shape
            self._log.compact(index=index, membership=membership)
            try:
                self._publish()
            except DiskFull:
                self._log.shape = before
                raise

    def repaired(self) -> None:
        """A peer has mended this replica: it may vote and lead again. Durable."""
        with self._guard:
            self._sync()
            self.repairing = False
            try:
                self._publish()
            except DiskFull:
                self.repairing = True
                raise

    def release_ballast(self) -> bool:
        """Set the ballast's room free; False when there was none. A later start brings it back."""
        with self._guard:
            has_ballast = BALLAST in self._files.names()
            if has_ballast:
                self._files.unlink(BALLAST)
                self._files.sync_names()
            return has_ballast

    def close(self) -> None:
        """Stop cleanly: sync, the mark too, and let go of the directory."""
        try:
            with self._guard:
                self._sync()
                self._log.close()
        finally:
            self._files.close()


class _Guard:
    """A block at whose end the log is of no more use, unless it ended well or with a plain refusal.

    It knows nothing of a single block, so one may be entered by several threads.
    """

    __slots__ = ("is_usable",)

    def __init__(self) -> None:
        self.is_usable = True

    def check(self) -> None:
        """Raise `LogFailed` once the log has failed."""
        if not self.is_usable:
            raise LogFailed("this log failed before; it must be opened again")

    def __enter__(self) -> None:
        """Raises `LogFailed`."""
        self.check()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Note whether the log can be used any more."""
        if error is not None and not isinstance(error, DiskFull | Unavailable):
            self.is_usable = False
