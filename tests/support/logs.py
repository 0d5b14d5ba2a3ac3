"""What the tests of the durable log share: short words for entries, and the dumb twin of a log."""

import hashlib
from dataclasses import dataclass, field
from typing import Final

from corvo.raft.disk.filesystem import Files
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.marks import DATA_START
from corvo.raft.disk.segmented_log import RECENT_BYTES
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.messages import (
    NOBODY,
    Entry,
    HardState,
    Kind,
    Membership,
    Partial,
    Snapshot,
    SnapshotChunk,
)
from corvo.raft.ready import Write

IDENTITY: Final = Identity("rookery", 1, 77)
MEMBERSHIP: Final = Membership((1, 2, 3), pins=((1, 77),))
SEGMENT_BYTES: Final = DATA_START + 120
"""Full after a few entries."""


def open_log(
    files: Files, *, ballast_bytes: int = 0, recent_bytes: int = RECENT_BYTES
) -> DiskStorage:
    return DiskStorage.open(
        files,
        IDENTITY,
        MEMBERSHIP,
        segment_bytes=SEGMENT_BYTES,
        recent_bytes=recent_bytes,
        ballast_bytes=ballast_bytes,
    )


def entry(index: int, term: int = 1, data: bytes | None = None) -> Entry:
    data = data if data is not None else b"%d in %d" % (index, term)
    return Entry(index, term, Kind.NORMAL, data)


def entries(first: int, last: int, term: int = 1) -> tuple[Entry, ...]:
    return tuple(entry(index, term) for index in range(first, last + 1))


def append(*appended: Entry, state: HardState | None = None) -> Write:
    return Write(token=0, entries=appended, hard_state=state)


def vote(term: int, for_whom: int = NOBODY, commit: int = 0) -> Write:
    return Write(token=0, hard_state=HardState(term, for_whom, commit))


def snapshot_of(stream: bytes, index: int, term: int) -> Snapshot:
    return Snapshot(index, term, MEMBERSHIP, len(stream), hashlib.sha256(stream).digest())


def chunk(snapshot: Snapshot, stream: bytes, start: int, stop: int) -> Write:
    data = stream[start:stop]
    return Write(token=0, chunk=SnapshotChunk(1, 2, 3, 4, snapshot, start, data, 0))


def install(snapshot: Snapshot, *following: Entry, state: HardState | None = None) -> Write:
    return Write(token=0, hard_state=state, install=snapshot, entries=following)


@dataclass(frozen=True)
class Log:
    """All of a log that must survive, as plain values."""

    base: Snapshot
    entries: tuple[Entry, ...] = ()
    snapshot: Snapshot | None = None

    @property
    def last_index(self) -> int:
        return self.base.index + len(self.entries)

    def until(self, index: int) -> tuple[Entry, ...]:
        return self.entries[: index - self.base.index]


@dataclass(frozen=True)
class Seen:
    """What an opened log says it holds."""

    log: Log
    hard_state: HardState
    partial: Partial | None
    identity: Identity
    repairing: bool
    data: bytes


def see(storage: DiskStorage) -> Seen:
    """Read everything, by each way there is to read it."""
    first, last = storage.base.index + 1, storage.last_index
    held = tuple(storage.entries(first, last, 1 << 30)) if last >= first else ()
    assert [one.index for one in held] == list(range(first, last + 1))
    assert [storage.term(one.index) for one in held] == [one.term for one in held]
    assert storage.term(storage.base.index) == storage.base.term
    snapshot = storage.snapshot()
    data = b""
    if snapshot is not None:
        data = b"".join(storage.snapshot_data())
        assert storage.chunk(snapshot, 0, snapshot.size) == data
    return Seen(
        Log(storage.base, held, snapshot),
        storage.hard_state,
        storage.partial,
        storage.identity,
        storage.repairing,
        data,
    )


@dataclass
class Moment:
    """A log as it was after some step, and how much of it a crash may not take."""

    log: Log
    floor: int


@dataclass
class Twin:
    """The dumb twin of a log on disk: what it must hold, and what it may hold after a crash.

    `moments[0]` is what was synced last; those behind it are the steps since. What may be found is
    any of these logs, less an unsynced tail.
    """

    moments: list[Moment] = field(
        default_factory=lambda: [Moment(Log(Snapshot(0, 0, MEMBERSHIP)), 0)]
    )
    states: list[HardState] = field(default_factory=lambda: [HardState()])
    received: dict[Snapshot, int] = field(default_factory=dict)
    """Of each stream that may be found on arrival, how much at most."""
    stream: Snapshot | None = None
    noted: tuple[int, int | None] = (0, None)
    """An entry that somebody outside has been told of, and its checksum."""

    def note(self, storage: DiskStorage) -> None:
        """Tell somebody outside how far the log is."""
        index = storage.synced_index
        self.noted = (index, storage.checksum(index))

    def check_note(self, storage: DiskStorage) -> None:
        """What somebody was told is still so."""
        index, checksum = self.noted
        assert storage.last_index >= index
        assert None in (checksum, storage.checksum(index)) or storage.checksum(index) == checksum

    @property
    def log(self) -> Log:
        return self.moments[-1].log

    def put(self, write: Write) -> None:
        log, floor = self.log, self.moments[-1].floor
        if write.hard_state is not None:
            self.states.append(write.hard_state)
        if write.chunk is not None:
            self.stream = write.chunk.snapshot
            self.received[self.stream] = write.chunk.offset + len(write.chunk.data)
        if write.install is not None:
            new = write.install
            log = Log(Snapshot(new.index, new.term, new.membership), (), new)
            floor = new.index
            self.stream = None
        if write.entries:
            first = write.entries[0].index
            log = Log(log.base, log.until(first - 1) + write.entries, log.snapshot)
            floor = min(floor, first - 1)
        self.moments.append(Moment(log, floor))

    def synced(self) -> None:
        self.moments = [Moment(self.log, self.log.last_index)]
        self.states = self.states[-1:]
        self.received = {
            stream: size for stream, size in self.received.items() if stream == self.stream
        }

    def compacting(self, index: int, membership: Membership) -> None:
        """Compaction syncs first, so nothing at or below its index can be lost with it."""
        log = self.log
        term = log.entries[index - log.base.index - 1].term
        base = Snapshot(index, term, membership)
        kept = log.entries[index - log.base.index :]
        self.moments.append(Moment(Log(base, kept, log.snapshot), log.last_index))

    def snapshotting(self, snapshot: Snapshot) -> None:
        log = self.log
        self.moments.append(Moment(Log(log.base, log.entries, snapshot), log.last_index))

    def check(self, found: Seen, *, opened_before: bool = False) -> None:
        """Everything synced is there; nothing is there that never was.

        `opened_before`: power was lost while an earlier crash was mended.
        """
        assert any(self._may_be(found.log, moment) for moment in self.moments), found.log
        self._check_state(found.hard_state, found.log, opened_before=opened_before)
        assert found.identity == IDENTITY
        assert not found.repairing
        if found.partial is not None:
            assert found.partial.received <= self.received.get(found.partial.snapshot, 0)

    @staticmethod
    def _may_be(found: Log, moment: Moment) -> bool:
        whole = moment.log
        if (found.base, found.snapshot) != (whole.base, whole.snapshot):
            return False
        if not moment.floor <= found.last_index <= whole.last_index:
            return False
        return found.entries == whole.until(found.last_index)

    def _check_state(self, found: HardState, log: Log, *, opened_before: bool) -> None:
        last_term = log.entries[-1].term if log.entries else log.base.term
        said = [
            (state.term, state.vote) if state.term >= last_term else (last_term, NOBODY)
            for state in self.states
        ]
        if opened_before:
            # The first opening found entries of a later term and saved that term, without a vote;
            # the entries were lost after that. Nobody had voted in it, so it is no harm.
            entries = [entry for moment in self.moments for entry in moment.log.entries]
            said += [(entry.term, NOBODY) for entry in entries if entry.term > said[0][0]]
        assert (found.term, found.vote) in said
        assert found.commit <= max(state.commit for state in self.states)
        assert found.commit <= log.last_index

    def believe(self, found: Seen) -> None:
        """Go on from what was found."""
        self.moments = [Moment(found.log, found.log.last_index)]
        self.states = [found.hard_state]
        self.received = {}
        if found.partial is not None:
            self.stream = found.partial.snapshot
            self.received = {found.partial.snapshot: found.partial.received}
