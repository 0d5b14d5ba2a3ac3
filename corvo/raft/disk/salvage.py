"""Damage that is not needed: a log that begins again after a state that is safe elsewhere.

A replica that is alone has no other member to get its log from. But once its state at some entry is
durable and verified, the entries up to it are not needed. So damage among these is set aside, and
the log begins after that entry. Damage after it is refused.

A record proves all records before it, because its checksum is chained. So after damage, the chain
is taken up right before that entry by what the record there says of it, and holds only if it leads
to the checksum in the mark, or in the manifest: nothing that was synced is lost unseen.

Damaged files are kept as `….seg.damaged`. The order, each step durable before the next:

1. rename such files back, if the manifest names them: this was cut short before;
2. write the entries after the state to a new segment, unless intact segments have them;
3. rename the damaged files;
4. replace the manifest. Before this step the log is as damaged as before, and all is done again.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from corvo.raft.disk.damage import damaged
from corvo.raft.disk.envelope import unseal
from corvo.raft.disk.filesystem import Files
from corvo.raft.disk.hard_state import read_hard_state
from corvo.raft.disk.identity import read_identity
from corvo.raft.disk.manifest import MANIFEST, Extent, Manifest, read_manifest, write_manifest
from corvo.raft.disk.marks import BLOCK_BYTES, DATA_START, read_slots
from corvo.raft.disk.segments import (
    MAGIC,
    RECORD,
    Segment,
    SegmentHeader,
    create_segment,
    open_segment,
    scan,
)
from corvo.raft.errors import LogDamaged
from corvo.raft.messages import Entry, Snapshot

ASIDE: Final = ".damaged"
_INDEX: Final = struct.Struct("<Q")
_BEFORE_INDEX: Final = 4  # bytes of a record before its index


class Rest(msgspec.Struct, frozen=True):
    """What follows an entry: all that the log needs."""

    last_index: int
    chain: int = 0  # at the entry
    entries: tuple[Entry, ...] = ()  # to be written again, or
    extents: tuple[Extent, ...] = ()  # intact segments


def set_aside(files: Files, *, index: int, term: int) -> tuple[str, ...]:
    """Let the log of a replica that is alone begin after an entry: the state there is safe.

    For a log that `DiskStorage.open` has refused; after this, it opens. Returns the files that were
    set aside. Raises `LogDamaged` if something else is damaged, or something after it: then
    nothing was changed.
    """
    files.lock()
    identity, hard_state = read_identity(files), read_hard_state(files).state
    manifest = take_back(files)
    members = manifest.base.membership
    if members.voters != (identity.replica,) or members.learners or manifest.repairing:
        raise damaged(MANIFEST, 0, index, "the replica is not alone")
    if index <= manifest.base.index:
        raise damaged(MANIFEST, 0, index, "the log begins after the checkpoint")
    segments = try_to_open(files, manifest, identity.instance)
    base = Snapshot(index, term, members)
    rest = find_rest(files, manifest, segments, base)
    if rest.last_index < max(index, hard_state.commit):
        raise damaged(MANIFEST, 0, rest.last_index + 1, "a committed entry is missing")
    present = files.names()
    bad = [
        extent.name
        for extent, segment in zip(manifest.segments, segments, strict=True)
        if segment is None and extent.name in present
    ]
    begin_after(files, manifest, base, rest, instance=identity.instance, bad=bad)
    return tuple(f"{name}{ASIDE}" for name in bad)


def take_back(files: Files) -> Manifest:
    """The manifest; the files that it names have their names again."""
    manifest = read_manifest(files)
    present = files.names()
    for name in manifest.names:
        if name not in present and f"{name}{ASIDE}" in present:
            files.rename(f"{name}{ASIDE}", name)
            files.sync_names()
    return manifest


def try_to_open(files: Files, manifest: Manifest, instance: int) -> list[Segment | None]:
    """The segments; None for one that is damaged or missing."""
    present = files.names()
    segments: list[Segment | None] = []
    for extent in manifest.segments:
        before = segments[-1] if segments else None
        previous = before.end if before is not None else None
        segment = None
        if extent.name in present:
            try:
                segment, _ = open_segment(files, extent, instance=instance, previous=previous)
            except LogDamaged:
                segment = None
        segments.append(segment)
    return segments


def find_rest(
    files: Files, manifest: Manifest, segments: list[Segment | None], base: Snapshot
) -> Rest:
    """What follows the base. Raises `LogDamaged` unless all of it is intact."""
    index = base.index
    if None not in segments:
        raise damaged(MANIFEST, 0, index, "no segment is damaged")
    at = max(at for at, segment in enumerate(segments) if segment is None)
    tail = [segment for segment in segments[at + 1 :] if segment is not None]
    if tail and tail[0].first_index <= index + 1:
        return rest_of_intact(manifest, tail, base)
    extent = manifest.segments[at]
    rest = resume(files, extent, index)
    if tail and tail[0].header.previous_chain != extent.chain:
        raise damaged(tail[0].name, 0, tail[0].first_index, "it does not follow the one before it")
    for segment in tail:
        more = segment.read(segment.first_index, segment.last_index)
        rest = replace(rest, entries=(*rest.entries, *more), last_index=segment.last_index)
    return rest


def rest_of_intact(manifest: Manifest, tail: list[Segment], base: Snapshot) -> Rest:
    """What follows the base, if intact segments have it."""
    last = tail[-1]
    needed = [segment for segment in tail if segment.last_index > base.index or segment is last]
    if needed[0].last_index >= base.index and needed[0].term(base.index) != base.term:
        raise damaged(needed[0].name, 0, base.index, "the checkpoint has another term")
    return Rest(last.last_index, extents=manifest.segments[-len(needed) :])


def resume(files: Files, extent: Extent, index: int) -> Rest:
    """What follows an entry in a damaged segment. Raises `LogDamaged` unless that is intact."""
    name = extent.name
    if name not in files.names():
        raise damaged(name, 0, index, "the file is missing")
    if extent.end:
        limit, goal = extent.end, End(extent.last_index, extent.end, extent.chain)
    else:
        sealed = unseal(files, name, MAGIC, SegmentHeader, alone=False)
        slots = read_slots(files, name, sealed.checksum)
        if slots is None:
            raise damaged(name, BLOCK_BYTES, index, "both marks are bad")
        limit, goal = files.size(name), End(slots.mark.index, slots.mark.offset, slots.mark.chain)
    data = files.read(name, DATA_START, limit - DATA_START)
    found = [
        (ends, entries)
        for anchor in (index - 1, index)
        for ends, entries in resumed(data, anchor)
        # A mark may be one sync behind the checkpoint. Then nothing after that was promised.
        if ends[-1].last >= index and (goal in ends or goal.last < index)
    ]
    if not found:
        raise damaged(name, DATA_START, index, "this entry or a later one is bad, too")
    ends, entries = max(found, key=lambda each: each[0][-1].last)
    [chain] = [end.chain for end in ends if end.last == index]
    needed = tuple(entry for entry in entries if entry.index > index)
    return Rest(ends[-1].last, chain, needed)


class End(NamedTuple):
    """The end of a record."""

    last: int
    offset: int
    chain: int


def resumed(data: bytes, anchor: int) -> Iterator[tuple[list[End], list[Entry]]]:
    """The entries after a record, and the ends of records from its own on.

    For each place where the record may be; it may be damaged, but for what it says of itself.
    """
    wanted = _INDEX.pack(anchor)
    at = data.find(wanted)
    while at >= 0:
        start = at - _BEFORE_INDEX
        if 0 <= start <= len(data) - RECORD.size:
            length, *_, chained = RECORD.unpack_from(data, start)
            offset = start + RECORD.size + length
            ends, entries = [End(anchor, DATA_START + offset, chained)], []
            for record in scan(data[offset:], first_index=anchor + 1, chained=chained):
                offset += RECORD.size + record.entry.size
                ends.append(End(record.entry.index, DATA_START + offset, record.chained))
                entries.append(record.entry)
            yield ends, entries
        at = data.find(wanted, at + 1)


def begin_after(
    files: Files, manifest: Manifest, base: Snapshot, rest: Rest, *, instance: int, bad: list[str]
) -> None:
    """Write what follows the base, set the damaged files aside, and replace the manifest."""
    extents = rest.extents
    if rest.entries:
        header = SegmentHeader(instance, manifest.sequence, base.index + 1, base.term, rest.chain)
        unfinished = Extent(header.first_index, header.sequence, 0, 0, 0)
        if unfinished.name in files.names():
            files.unlink(unfinished.name)
        segment = create_segment(files, header)
        segment.append(rest.entries)
        segment.sync()
        segment.mark()
        segment.sync()
        extents = (unfinished,)
    for name in bad:
        files.rename(name, f"{name}{ASIDE}")
    files.sync_names()
    sequence = manifest.sequence + 1
    write_manifest(files, replace(manifest, base=base, segments=extents, sequence=sequence))
