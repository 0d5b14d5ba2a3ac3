"""The manifest: a small file that lists the files of the log, and is replaced as a whole.

A segment or a snapshot exists for the log from the moment the manifest names it, and until the
moment it no longer does. Files it does not name are what a crash left between making or removing
them and saying so; they are removed at the next start. So rolling over, cutting a conflicting tail,
dropping old entries and installing a snapshot are each one replacement of this file, and a crash
leaves all of the step or none of it. And a file that it names and that is not there is damage,
never an empty log.
"""

import re
from typing import Final

import msgspec

from corvo.raft.disk.damage import damaged
from corvo.raft.disk.envelope import seal, unseal
from corvo.raft.disk.filesystem import TEMPORARY, Files, replace
from corvo.raft.messages import Snapshot

MANIFEST: Final = "manifest"
_MAGIC: Final = b"corvo-mf"


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """One segment, and how much of it belongs to the log."""

    first_index: int
    sequence: int
    last_index: int
    end: int
    """The offset behind the last record; what follows was cut off. 0 while it is still written."""
    chain: int  # the checksum of all records up to there

    @property
    def name(self) -> str:
        """The file."""
        return f"log-{self.first_index:016x}-{self.sequence:08x}.seg"


class StoredSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """One snapshot that can be streamed."""

    snapshot: Snapshot
    sequence: int

    @property
    def name(self) -> str:
        """The file."""
        return f"snapshot-{self.snapshot.index:016x}-{self.sequence:08x}.snap"


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """Everything that must change in one step."""

    base: Snapshot
    segments: tuple[Extent, ...] = ()  # oldest first; only the last is written to
    snapshot: StoredSnapshot | None = None
    sequence: int = 1
    """The next number for a file: no two files of a directory's life have the same."""
    repairing: bool = False
    """This replica lost what it had acknowledged and waits for a peer to mend it."""

    @property
    def names(self) -> list[str]:
        """The files it names."""
        names = [extent.name for extent in self.segments]
        return names if self.snapshot is None else [*names, self.snapshot.name]


def write_manifest(files: Files, manifest: Manifest) -> None:
    """Make this what counts."""
    replace(files, MANIFEST, seal(_MAGIC, manifest))


def read_manifest(files: Files) -> Manifest:
    """What counts."""
    if MANIFEST not in files.names():
        raise damaged(MANIFEST, 0, 0, "the file is missing, and with it the log")
    return unseal(files, MANIFEST, _MAGIC, Manifest, alone=True).content


def check_files(files: Files, manifest: Manifest) -> None:
    """Raise `LogDamaged` if a file that the manifest names is not there."""
    names = files.names()
    for extent in manifest.segments:
        if extent.name not in names:
            raise damaged(extent.name, 0, extent.first_index, "the file is missing")
    if manifest.snapshot is not None and manifest.snapshot.name not in names:
        index = manifest.snapshot.snapshot.index
        raise damaged(manifest.snapshot.name, 0, index, "the file is missing")


def number_of(name: str) -> int | None:
    """The number in the name of a segment or a snapshot; None for any other file."""
    found = re.fullmatch(r"log-[0-9a-f]{16}-([0-9a-f]{8,})\.seg", name)
    found = found or re.fullmatch(r"snapshot-[0-9a-f]{16}-([0-9a-f]{8,})\.snap", name)
    return int(found[1], 16) if found is not None else None


def orphans(files: Files, manifest: Manifest) -> list[str]:
    """Files of ours that nothing names."""
    named = frozenset(manifest.names)
    ours = [
        name for name in files.names() if number_of(name) is not None or name.endswith(TEMPORARY)
    ]
    return [name for name in ours if name not in named]
