"""A state on disk that no process has open: read in full, and changed in nothing.

LevelDB writes as it opens. So a scratch directory has copies of the small files and symbolic links
to the tables, which LevelDB only reads: what it writes, merges and removes is in the scratch alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from corvo.errors import StoreDamaged
from corvo.kv import directories
from corvo.kv.checkpoints import (
    CHECKPOINT,
    INSTALLED,
    SUMS,
    Ending,
    check_live,
    ending,
    numbered,
    sums_of,
)
from corvo.kv.level import LevelStore

_CACHE_BYTES: Final = 8 << 20
"""Of one store: all shards may be open at once."""


class Standing(msgspec.Struct, frozen=True):
    """What a directory has, and where the next start takes the state from."""

    after: Ending
    checkpoints: list[int]
    installed: list[int]
    has_live: bool
    live_damage: str = ""
    """Why the next start would not use the live store, though it was left in order."""

    @property
    def source(self) -> str:
        """The name of the directory that the next start takes; empty if it has an empty state."""
        if self.installed:
            return f"installed-{self.installed[-1]}"
        is_trusted = self.after not in {"machine crash", "distrust"}
        if self.has_live and is_trusted and not self.live_damage:
            return "live"
        return f"checkpoint-{self.checkpoints[-1]}" if self.checkpoints else ""


def standing_of(root: Path, boot_id: str) -> Standing:
    """What a directory has. Raises `StoreFailed` where it cannot be read."""
    live = root / "live"
    has_live = directories.exists(live)
    after = ending(root, boot_id)
    damage = ""
    if has_live and after not in {"machine crash", "distrust"}:
        try:
            check_live(live)
        except StoreDamaged as error:
            damage = str(error)
    return Standing(
        after=after,
        checkpoints=numbered(root, CHECKPOINT),
        installed=numbered(root, INSTALLED),
        has_live=has_live,
        live_damage=damage,
    )


def damaged_files(checkpoint: Path) -> Iterator[tuple[str, str]]:
    """The files of a checkpoint that are not what was written, each with what is wrong."""
    try:
        noted = sums_of(checkpoint)
    except StoreDamaged as error:
        yield SUMS, str(error)
        return
    for name, expected in noted.items():
        path = checkpoint / name
        if not directories.exists(path):
            yield name, "the file is missing"
        elif directories.sum_up(path) != expected:
            yield name, "its checksum or its size does not match"
    for name in directories.names(checkpoint):
        if name not in noted and name != SUMS:
            yield name, "is not one of the files of this checkpoint"


def open_copy(source: Path, scratch: Path) -> LevelStore:
    """Open what `source` has in the directory `scratch`, which is made. Raises `StoreError`."""
    directories.make(scratch)
    for name in directories.names(source):
        if name.endswith(".ldb"):
            directories.lead(scratch / name, source / name)
        elif name not in {SUMS, "LOCK", "LOG", "LOG.old"}:
            directories.write(scratch / name, directories.pieces(source / name))
    return LevelStore(str(scratch), must_exist=True, cache_bytes=_CACHE_BYTES)


def open_empty(scratch: Path) -> LevelStore:
    """An empty state in a directory that is made. Raises `StoreError`."""
    return LevelStore(str(scratch), cache_bytes=_CACHE_BYTES)
