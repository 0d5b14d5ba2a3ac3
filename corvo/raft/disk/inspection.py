"""Inspection of a log that is not opened: all of its damage, and what is intact. Changes nothing.

`recover` refuses a directory at the first damage. This reads on, so that all of it is known.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from corvo.raft.disk.damage import damaged
from corvo.raft.disk.envelope import unseal
from corvo.raft.disk.filesystem import DirectoryRefused, Files
from corvo.raft.disk.hard_state import HARD_STATE, decode_slot, read_hard_state
from corvo.raft.disk.identity import IDENTITY, Identity, read_identity
from corvo.raft.disk.manifest import MANIFEST, Extent, Manifest, orphans, read_manifest
from corvo.raft.disk.marks import decode_mark
from corvo.raft.disk.recovery import BALLAST
from corvo.raft.disk.segments import MAGIC, Segment, SegmentHeader, Torn, open_segment
from corvo.raft.disk.snapshot_files import INCOMING, open_incoming, open_snapshot
from corvo.raft.errors import LogDamaged, RaftError
from corvo.raft.messages import Entry, HardState

PAGE_BYTES: Final = 4 << 20
"""Of entries that are in memory at once; a single one may be larger."""
_OURS: Final = (IDENTITY, HARD_STATE, MANIFEST, BALLAST, INCOMING)
_ASIDE: Final = re.compile(r"quarantine-[0-9]+|log-.*\.seg\.damaged")


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it was written."""

    file: str
    problem: str
    offset: int = 0
    index: int = 0
    is_harmless: bool = False
    """Whether the next start mends or ignores it, and nothing is lost."""


class Inspected(msgspec.Struct):
    """What a directory has."""

    findings: list[Finding] = []
    files: int = 0
    bytes: int = 0
    identity: Identity | None = None
    hard_state: HardState | None = None
    manifest: Manifest | None = None
    segments: list[Segment] = []
    """Those that are intact, oldest first."""
    torn: Torn | None = None
    is_whole: bool = False
    """Whether all entries from the base to the end are intact."""

    @property
    def first_index(self) -> int:
        """The first entry that is in a segment; after the base without one."""
        base = self.manifest.base.index if self.manifest is not None else 0
        return self.segments[0].first_index if self.segments else base + 1

    @property
    def last_index(self) -> int:
        """The last entry that is in an intact segment; the base without one."""
        return self.segments[-1].last_index if self.segments else self.first_index - 1

    def pages(self, first: int, last: int) -> Iterator[list[Entry]]:
        """Entries that are in intact segments, a few megabytes at a time. Raises `LogDamaged`."""
        for segment in self.segments:
            begin, end = max(first, segment.first_index), min(last, segment.last_index)
            size = 0
            for index in range(begin, end + 1):
                size += segment.data_bytes(index)
                if size >= PAGE_BYTES or index == end:
                    yield segment.read(begin, index)
                    begin, size = index + 1, 0


def inspect(files: Files) -> Inspected:
    """Read every file of a log directory."""
    found = Inspected()
    names = files.names()
    if not names:
        found.findings.append(Finding(IDENTITY, "the directory is empty"))
        return found
    try:
        found.identity = read_identity(files) if IDENTITY in names else None
        if found.identity is None:
            found.findings.append(Finding(IDENTITY, "the file is missing"))
    except RaftError as error:
        _note(found, IDENTITY, error)
    try:
        found.hard_state = read_hard_state(files).state
        for number in (0, 1):
            if decode_slot(files, number) is None:
                problem = f"slot {number} is bad; the other slot is used"
                found.findings.append(Finding(HARD_STATE, problem, is_harmless=True))
    except RaftError as error:
        _note(found, HARD_STATE, error)
    try:
        found.manifest = read_manifest(files)
    except RaftError as error:
        _note(found, MANIFEST, error)
    if found.manifest is not None:
        _inspect_named(files, found, found.manifest)
    _inspect_incoming(files, found)
    _count(files, found)
    return found


def _note(found: Inspected, name: str, error: RaftError) -> None:
    if isinstance(error, LogDamaged):
        finding = Finding(error.file, error.problem, error.offset, error.index)
    else:
        finding = Finding(name, str(error))
    found.findings.append(finding)


def _inspect_named(files: Files, found: Inspected, manifest: Manifest) -> None:
    """The files that a manifest names, and what they must be to each other."""
    before = len(found.findings)
    names = files.names()
    opened: list[Segment | None] = []
    for extent in manifest.segments:
        opened.append(_inspect_segment(files, found, extent, opened, manifest))
    found.segments = [segment for segment in opened if segment is not None]
    found.is_whole = len(found.findings) == before and found.identity is not None
    if found.is_whole:
        _inspect_base(found, manifest)
    if manifest.snapshot is not None:
        name = manifest.snapshot.name
        if name not in names:
            found.findings.append(Finding(name, "the file is missing"))
        else:
            try:
                open_snapshot(files, manifest.snapshot)
            except RaftError as error:
                _note(found, name, error)
    for name in orphans(files, manifest):
        problem = "is not named by the manifest; the next start removes it"
        found.findings.append(Finding(name, problem, is_harmless=True))
    for name in names:
        known = name in _OURS or name in manifest.names or name in orphans(files, manifest)
        if _ASIDE.fullmatch(name):
            problem = "was set aside at an earlier start; it may be removed"
            found.findings.append(Finding(name, problem, is_harmless=True))
        elif not known:
            found.findings.append(Finding(name, "is no file of a log", is_harmless=True))


def _inspect_segment(
    files: Files,
    found: Inspected,
    extent: Extent,
    opened: list[Segment | None],
    manifest: Manifest,
) -> Segment | None:
    name = extent.name
    if name not in files.names():
        found.findings.append(Finding(name, "the file is missing", 0, extent.first_index))
        return None
    if found.identity is None:
        return None  # the segment names the directory, which is not known
    before = opened[-1] if opened else None
    try:
        segment, torn = open_segment(
            files,
            extent,
            instance=found.identity.instance,
            previous=before.end if before is not None else None,
        )
        if opened and before is None:
            _check_follows(segment, manifest.segments[len(opened) - 1])
    except RaftError as error:
        _note(found, name, error)
        return None
    if torn is not None:
        found.torn = torn
        problem = f"{torn.bytes} bytes at its end were never synced; the next start cuts them"
        found.findings.append(Finding(name, problem, torn.offset, torn.first_index, True))
    seed = unseal(files, name, MAGIC, SegmentHeader, alone=False).checksum
    for number in (0, 1):
        if decode_mark(files, name, seed, number) is None:
            problem = f"mark {number} is bad; the other mark is used"
            found.findings.append(Finding(name, problem, is_harmless=True))
    return segment


def _check_follows(segment: Segment, before: Extent) -> None:
    """A segment after a damaged one. Raises `LogDamaged`."""
    if segment.header.previous_chain != before.chain:
        problem = "it does not follow the one before it"
        raise damaged(segment.name, 0, segment.first_index, problem)


def _inspect_base(found: Inspected, manifest: Manifest) -> None:
    """The base and the hard state against the entries."""
    base, last = manifest.base, found.last_index
    if found.segments:
        first = found.segments[0].first_index
        if not first - 1 <= base.index <= last:
            problem = f"the entries {first} to {last} do not continue the base, entry {base.index}"
            found.findings.append(Finding(MANIFEST, problem, 0, base.index))
            return
        holder = next(each for each in found.segments if max(base.index, first) <= each.last_index)
        if holder.term(base.index) != base.term:
            problem = "the base has another term than its entry"
            found.findings.append(Finding(MANIFEST, problem, 0, base.index))
    state = found.hard_state
    if state is not None and state.commit > last and not manifest.repairing:
        problem = f"entry {state.commit} was committed, and the log ends at {last}"
        found.findings.append(Finding(MANIFEST, problem, 0, state.commit))
    if manifest.repairing:
        problem = "the replica is under repair: it does not vote until a peer has sent a snapshot"
        found.findings.append(Finding(MANIFEST, problem, is_harmless=True))


def _inspect_incoming(files: Files, found: Inspected) -> None:
    if INCOMING not in files.names():
        return
    try:
        is_good = open_incoming(files) is not None
    except DirectoryRefused as error:
        _note(found, INCOMING, error)
        return
    if not is_good:
        problem = "a snapshot on arrival that cannot be used; the next start receives it again"
        found.findings.append(Finding(INCOMING, problem, is_harmless=True))


def _count(files: Files, found: Inspected) -> None:
    """How much was looked at."""
    for name in files.names():
        if _ASIDE.fullmatch(name) is None:
            try:
                found.bytes += files.size(name)
            except RaftError as error:
                if all(name != finding.file for finding in found.findings):
                    _note(found, name, error)
            else:
                found.files += 1
