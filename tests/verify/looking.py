"""Checks of a directory in this process, and what they find."""

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from corvo.kv.level import LevelStore
from corvo.verify.directories import verify_directory
from corvo.verify.report import Finding, Report


def verified(directory: Path) -> Report:
    """The report about a directory."""
    with tempfile.TemporaryDirectory() as scratch:
        return verify_directory(directory, Path(scratch), lambda _: None)


def damage_of(report: Report) -> list[Finding]:
    """All that is damaged."""
    return [finding for part in report.parts for finding in part.damage]


def notes_of(report: Report) -> list[Finding]:
    """All that is unusual."""
    return [finding for part in report.parts for finding in part.remarks]


def unchecked_of(report: Report) -> list[Finding]:
    """All that could not be checked."""
    return [finding for part in report.parts for finding in part.unchecked]


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Change one bit of a file; a negative offset counts from its end."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


def change(directory: Path, shard: int, writes: Mapping[bytes, bytes | None]) -> None:
    """Change keys of the live state of a shard that is stopped."""
    store = LevelStore(str(directory / f"shard-{shard}/state/live"), must_exist=True)
    store.write(writes)
    store.close()


def keys_of(directory: Path, shard: int, prefix: bytes) -> list[tuple[bytes, bytes]]:
    """Keys with a prefix, of a copy of the live state."""
    store = LevelStore(str(directory / f"shard-{shard}/state/live"), must_exist=True)
    found = store.scan(prefix, prefix + b"\xff", limit=1_000)
    store.close()
    return found


def content_of(directory: Path) -> dict[str, tuple[int, str]]:
    """Every name below a directory with its time and its content."""
    found = {}
    for path in sorted(directory.rglob("*")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(directory))] = (path.stat().st_mtime_ns, digest)
    return found
