"""A backup is taken: files from a server into a folder, or those that an earlier backup has."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from corvo.backup.stored import (
    UNFINISHED,
    Archive,
    backups_in,
    damaged,
    read_manifest,
    unfinished_in,
)
from corvo.client import backups as api
from corvo.client.calls import Client
from corvo.errors import StoreFailed
from corvo.kv import directories
from corvo.kv.sums import Sum
from corvo.protocol.backups import MANIFEST, HeldFile, Manifest, folder_of

LEFT_S: Final = 86_400.0
"""Age of the newest file of an unfinished backup that counts as left by a killed command."""
_MEMBER: Final = ".ldb"
_RECEIVED: Final = "the backup that was received"


class Pieces:
    """Pieces that arrive, as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, size: int, /) -> bytes:
        """So many bytes; fewer at the end."""
        found = [self._left]
        length = len(self._left)
        while length < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            found.append(piece)
            length += len(piece)
        data = b"".join(found)
        self._left = data[size:]
        return data[:size]


def take(
    client: Client, folder: Path, earlier: Path | None, step: Callable[[int], None]
) -> tuple[Manifest, int, int]:
    """Copy all shards of a cluster into an empty folder. Raises `ClientError`.

    Returns the manifest, the number of bytes that came, and of those that an earlier backup has.
    """
    held = _tables_of(earlier) if earlier is not None else {}
    received = shared = 0

    def count(size: int) -> None:
        nonlocal received
        received += size
        step(size)

    def begin(manifest: Manifest) -> None:
        nonlocal shared
        for copy in manifest.shards:
            place = folder / folder_of(copy.shard)
            for file in copy.files:
                key = HeldFile(copy.shard, file.name, file.size, file.crc32)
                if key in held:
                    place.mkdir(exist_ok=True)
                    if _share(key, held[key], place / file.name):
                        shared += file.size

    have = [msgspec.to_builtins(each) for each in held]
    stream = Pieces(api.download(client, have))
    archive = Archive(stream, _RECEIVED)
    manifest = archive.unpack(folder, begin, count)
    while stream.read(1 << 20):  # what is behind the end belongs to the answer
        pass
    for copy in manifest.shards:
        for file in copy.files:
            name = f"{folder_of(copy.shard)}/{file.name}"
            if not (folder / name).exists():
                raise damaged(_RECEIVED, f"{name} is missing")
            if archive.sums.get(name, Sum(file.size, file.crc32)) != Sum(file.size, file.crc32):
                raise damaged(_RECEIVED, f"the checksum or the size of {name} does not match")
    return manifest, received, shared


def _share(known: HeldFile, table: Path, target: Path) -> bool:
    """Take a table from an earlier backup. False if it is gone, or had to be copied."""
    try:
        return directories.link(table, target)
    except StoreFailed:  # a file system without hard links, or no more of them for this file
        shutil.copyfile(table, target)
        if directories.sum_up(target) != Sum(known.size, known.crc32):
            raise damaged(table, "its checksum or its size does not match") from None
        return False


def _tables_of(earlier: Path) -> dict[HeldFile, Path]:
    """The tables of an earlier backup that are whole: what is shared must not be damaged."""
    found = {}
    for copy in read_manifest(earlier).shards:
        for file in copy.files:
            path = earlier / folder_of(copy.shard) / file.name
            if not file.name.endswith(_MEMBER) or not path.is_file():
                continue
            there = directories.sum_up(path)
            if (there.size, there.crc) == (file.size, file.crc32):
                found[HeldFile(copy.shard, file.name, file.size, file.crc32)] = path
    return found


def settle(folder: Path, target: Path) -> None:
    """Make a finished backup durable, and give it its name."""
    for place in folder.iterdir():
        if place.is_dir():
            directories.sync_all(place)
    directories.sync(folder / MANIFEST)
    directories.sync(folder)
    folder.rename(target)
    directories.sync_names(target.parent)


def remove_left(parent: Path, now_s: float) -> list[Path]:
    """Remove what killed commands have left in a folder of backups. Returns those that are gone."""
    gone = []
    for folder in unfinished_in(parent):
        with suppress(OSError):  # it is being changed: another command works there
            if now_s - max(path.lstat().st_mtime for path in (folder, *folder.rglob("*"))) > LEFT_S:
                shutil.rmtree(folder)
                gone.append(folder)
    return gone


def remove_older(made: Path, keep: int) -> list[Path]:
    """Remove the oldest backups beside a new one, beyond a number. Returns those that are gone.

    The new one stays, also if a wrong clock has given others later names.
    """
    others = [path for path in backups_in(made.parent) if path.name != made.name]
    gone = others[: max(0, len(others) - (keep - 1))]
    for path in gone:
        discarded = path.with_name(path.name + UNFINISHED)
        path.rename(discarded)
        shutil.rmtree(discarded)
    return gone
