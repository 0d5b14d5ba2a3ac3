"""Recovery at start: cuts a torn end, refuses damage, and makes the rest durable.

Everything is read and checked before anything is changed, so a refusal leaves all as it was found.
"""

from typing import Final

import msgspec

from corvo.raft.disk.damage import REPLACE, damaged
from corvo.raft.disk.filesystem import Files, write_again
from corvo.raft.disk.hard_state import HARD_STATE, HardStateFile, create_hard_state, read_hard_state
from corvo.raft.disk.identity import (
    IDENTITY,
    Identity,
    check_identity,
    create_identity,
    read_identity,
)
from corvo.raft.disk.manifest import (
    MANIFEST,
    Manifest,
    check_files,
    number_of,
    orphans,
    read_manifest,
    write_manifest,
)
from corvo.raft.disk.segmented_log import Numbers, SegmentedLog
from corvo.raft.disk.segments import Segment, Torn, open_segment
from corvo.raft.disk.snapshot_files import (
    INCOMING,
    Incoming,
    SnapshotFile,
    open_incoming,
    open_snapshot,
)
from corvo.raft.errors import DiskFull
from corvo.raft.messages import NOBODY, HardState, Membership, Snapshot

BALLAST: Final = "ballast"
_BALLAST_PIECE: Final = bytes(1 << 20)
_QUARANTINE: Final = "quarantine-"


class Recovery(msgspec.Struct, frozen=True):
    """What opening found and mended, for the driver to report."""

    created: bool = False  # whether the directory is new
    torn: Torn | None = None  # a tail that was cut
    removed: tuple[str, ...] = ()  # files that a crash left half made or half removed


class Found:
    """A directory in memory."""

    def __init__(
        self,
        identity: Identity,
        manifest: Manifest,
        hard_state: HardStateFile,
        log: SegmentedLog,
        snapshot: SnapshotFile | None,
    ) -> None:
        self.identity = identity
        self.manifest = manifest
        self.hard_state = hard_state
        self.log = log
        self.snapshot = snapshot
        self.incoming: Incoming | None = None
        self.recovery = Recovery()


def recover(
    files: Files, wanted: Identity, membership: Membership, *, segment_bytes: int, recent_bytes: int
) -> Found:
    """Open a directory, or make it; see `DiskStorage.open`."""
    files.lock()
    created = IDENTITY not in files.names()
    if created:
        make(files, wanted, membership)
    identity = read_identity(files)
    check_identity(identity, wanted)
    hard_state = read_hard_state(files)
    manifest = read_manifest(files)
    check_files(files, manifest)
    snapshot = None if manifest.snapshot is None else open_snapshot(files, manifest.snapshot)
    segments, torn = open_segments(files, identity, manifest)
    numbers = Numbers(manifest.sequence)
    log = SegmentedLog(
        files,
        manifest.base,
        segments,
        instance=identity.instance,
        numbers=numbers,
        segment_bytes=segment_bytes,
        recent_bytes=recent_bytes,
    )
    check_base(log)
    state = recovered_state(log, hard_state.state, repairing=manifest.repairing)
    # From here on the directory is known to be good, and may be changed.
    found = Found(identity, manifest, hard_state, log, snapshot)
    removed = settle(files, found, state)
    found.incoming = open_incoming(files)
    found.recovery = Recovery(created, torn, removed)
    return found


def make(files: Files, identity: Identity, membership: Membership) -> None:
    """A new directory. The identity comes last: without it, nothing was ever promised here."""
    refuse_remains(files)
    create_hard_state(files)
    write_manifest(files, Manifest(Snapshot(0, 0, membership)))
    create_identity(files, identity)


def refuse_remains(files: Files) -> None:
    """Tell a directory whose making was interrupted from one that lost its identity."""
    names = files.names()
    used = [name for name in names if number_of(name) or name.startswith(_QUARANTINE)]
    if INCOMING in names:
        used.append(INCOMING)
    if HARD_STATE in names and read_hard_state(files).state != HardState():
        used.append(HARD_STATE)
    if MANIFEST in names:
        manifest = read_manifest(files)
        if manifest != Manifest(manifest.base) or manifest.base.index:
            used.append(MANIFEST)
    if used:
        problem = f"the file is missing, and the directory was used: it has {used[0]}"
        raise damaged(IDENTITY, 0, 0, problem, action=REPLACE)


def open_segments(
    files: Files, identity: Identity, manifest: Manifest
) -> tuple[list[Segment], Torn | None]:
    """Read every segment in full; each must continue the one before it."""
    segments: list[Segment] = []
    torn = None
    previous = None
    for extent in manifest.segments:
        segment, torn = open_segment(files, extent, instance=identity.instance, previous=previous)
        segments.append(segment)
        previous = segment.end
    return segments, torn


def check_base(log: SegmentedLog) -> None:
    """The base lies within the entries, or right before them."""
    if not log.segments:
        return
    index, first = log.base.index, log.segments[0].first_index
    if not first - 1 <= index <= log.last_index:
        problem = f"the entries {first} to {log.last_index} do not continue the base"
        raise damaged(MANIFEST, 0, index, problem)
    if log.segment(max(index, first)).term(index) != log.base.term:
        raise damaged(MANIFEST, 0, index, "the base has another term than its entry")


def recovered_state(log: SegmentedLog, saved: HardState, *, repairing: bool) -> HardState:
    """Term, vote and commit index, as they follow from all there is."""
    term, vote = saved.term, saved.vote
    if log.term(log.last_index) > term:
        # Entries that were put together with the first word of their term and never synced.
        # A vote in that term would have been synced before anybody heard of it: there is none.
        term, vote = log.term(log.last_index), NOBODY
    commit = min(saved.commit, log.last_index)
    if commit < saved.commit and not repairing:
        # It is saved only after the entries it speaks of.
        problem = f"entry {saved.commit} was committed, and the log ends at {log.last_index}"
        raise damaged(MANIFEST, 0, saved.commit, problem)
    return HardState(term, vote, commit)


def settle(files: Files, found: Found, state: HardState) -> tuple[str, ...]:
    """Make all that was accepted durable, and remove what nothing names.

    Needs no room, so a log can be opened on a full disk.
    """
    write_again(files, IDENTITY)
    write_again(files, MANIFEST)
    files.sync_names()
    # Only now: the manifest may have had its name in the cache alone, and the one before it, which
    # a loss of power would bring back, names some of these.
    removed = orphans(files, found.manifest)
    for name in removed:
        files.unlink(name)
    found.hard_state.save(state)
    found.log.settle()
    return tuple(removed)


def ensure_ballast(files: Files, size: int) -> None:
    """Occupy room that can be set free later; if there is none, do without."""
    if BALLAST in files.names():
        if files.size(BALLAST) >= size > 0:
            return
        files.unlink(BALLAST)
    if size == 0:
        return
    files.create(BALLAST)
    try:
        for offset in range(0, size, len(_BALLAST_PIECE)):
            files.write(BALLAST, offset, _BALLAST_PIECE[: size - offset])
        files.sync(BALLAST)
    except DiskFull:
        files.unlink(BALLAST)


def quarantine(files: Files, membership: Membership = Membership()) -> str:
    """Set a damaged log aside and begin an empty one that is `repairing`; returns where it went.

    Who this is, and how it voted, is kept. If that is damaged too, this raises `LogDamaged`: the
    replica must be replaced under a new id, for it could vote twice. A crash half way leaves a
    directory that still does not open; this can then be done again.
    """
    files.lock()
    if IDENTITY not in files.names():
        raise damaged(IDENTITY, 0, 0, "the file is missing", action=REPLACE)
    read_identity(files)
    read_hard_state(files)
    names = files.names()
    aside = next(
        name for n in range(1, len(names) + 2) if (name := f"{_QUARANTINE}{n}") not in names
    )
    files.make_directory(aside)
    numbers = {name: number for name in names if (number := number_of(name)) is not None}
    for name in (*numbers, MANIFEST, INCOMING):
        if name in names:
            files.rename(name, f"{aside}/{name}")
    # Those before it, too: a quarantine that was cut short may have left names in the cache alone.
    for directory in [name for name in files.names() if name.startswith(_QUARANTINE)]:
        files.sync_names(directory)
    files.sync_names()
    sequence = 1 + max(numbers.values(), default=0)
    write_manifest(files, Manifest(Snapshot(0, 0, membership), sequence=sequence, repairing=True))
    return aside
