"""A backup on disk: a folder, or a tar archive with the same files.

    manifest.json         what there is: `corvo.protocol.backups`
    shard-0/sums          the sums of the files of this shard's copy
    shard-0/CURRENT, MANIFEST-…, ….ldb      the copy, a LevelDB

A folder of backups has one folder for each, named after its time. Tables of LevelDB never change,
so a later backup shares those that are still the same with an earlier one, as hard links.
"""

import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Protocol, cast
from zlib import crc32

import msgspec

from corvo.client.errors import BadClientOption
from corvo.client_commands.failures import CommandFailed
from corvo.kv import directories
from corvo.kv.sums import NAME as SUMS
from corvo.kv.sums import Sum
from corvo.protocol.backups import FILE_NAME, FORMAT, MANIFEST, Manifest, folder_of
from corvo.protocol.wire import OP_VERSION

UNFINISHED: Final = ".unfinished"
_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z(-[0-9]+)?")
_BEGUN: Final = re.compile(rf"(backup-\w+|{_NAME.pattern}){re.escape(UNFINISHED)}")
_MEMBER: Final = re.compile(rf"{re.escape(MANIFEST)}|shard-(0|[1-9][0-9]*)/(.+)")
_FILE: Final = re.compile(FILE_NAME)
_PIECE: Final = 1 << 20
_MANIFEST_BYTES_MAX: Final = 64 << 20


def damaged(where: Path | str, why: str) -> CommandFailed:
    """The error of a backup that is not what was made."""
    return CommandFailed(
        "DAMAGED_BACKUP",
        f"{where} is damaged: {why}. Nothing was changed",
        hints=[
            "use another backup, or another copy of this one",
            f"see all damage:   corvo verify {where}",
        ],
    )


def is_backup(path: Path) -> bool:
    """Whether a path is that of a backup."""
    if path.is_dir():
        return (path / MANIFEST).exists()
    return path.suffix == ".tar" and path.is_file()


def backups_in(folder: Path) -> list[Path]:
    """The finished backups of a folder, the oldest first."""
    if not folder.is_dir():
        return []
    return sorted(
        path for path in folder.iterdir() if _NAME.fullmatch(path.name) and is_backup(path)
    )


def unfinished_in(folder: Path) -> list[Path]:
    """The folders of backups that are being made or removed, or were when a command was killed."""
    return sorted(
        path for path in folder.iterdir() if _BEGUN.fullmatch(path.name) and path.is_dir()
    )


def newest_in(path: Path) -> Path:
    """A backup itself, or the newest one of a folder of backups. Raises `BadClientOption`."""
    if is_backup(path):
        return path
    found = backups_in(path)
    if found:
        return found[-1]
    if not path.exists():
        raise BadClientOption(f"{path} does not exist", "pass a backup:   corvo backup makes one")
    raise BadClientOption(
        f"{path} is not a backup: it has no {MANIFEST}", "pass what corvo backup has made"
    )


def read_manifest(folder: Path) -> Manifest:
    """What a backup says of itself. Raises `CommandFailed`."""
    path = folder / MANIFEST
    try:
        return decode_manifest(path.read_bytes(), str(folder))
    except OSError as error:
        raise damaged(folder, f"{MANIFEST} cannot be read: {error.strerror}") from error


def decode_manifest(data: bytes, where: str) -> Manifest:
    """A manifest out of its JSON. Raises `CommandFailed`."""
    try:
        told = msgspec.json.decode(data, type=_Format)
        if told.format > FORMAT or told.op_version > OP_VERSION:
            raise CommandFailed(
                "NEWER_BACKUP",
                f"{where} was made by corvo {told.release}, and this release cannot read it",
                hints=["use the command of that release, or of a later one"],
            )
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise damaged(where, f"{MANIFEST} cannot be read: {error}") from error
    if [copy.shard for copy in manifest.shards] != [*range(len(manifest.shards))]:
        raise damaged(where, f"{MANIFEST} does not name each shard once")
    if not manifest.shards:
        raise damaged(where, f"{MANIFEST} names no shard")
    return manifest


class _Format(msgspec.Struct):
    format: int
    op_version: int
    release: str


def problems_of(folder: Path, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The files of a backup that are not what was made, each with what is wrong."""
    for copy in manifest.shards:
        place = folder / folder_of(copy.shard)
        if not copy.files:
            continue
        for file in copy.files:
            path = place / file.name
            if not path.is_file():
                yield f"{place.name}/{file.name}", "the file is missing"
                continue
            found = directories.sum_up(path)
            if (found.size, found.crc) != (file.size, file.crc32):
                yield f"{place.name}/{file.name}", "its checksum or its size does not match"
        if not (place / SUMS).is_file():
            yield f"{place.name}/{SUMS}", "the file is missing"


# Out of an archive.


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """So many bytes; fewer at the end."""


class Archive:
    """A tar archive of a backup, while it is read from its beginning."""

    def __init__(self, stream: Readable, where: str) -> None:
        self.sums: Final[dict[str, Sum]] = {}
        """By the names of files of copies that it had: what they are."""
        self._where = where
        self._stream = stream

    def unpack(
        self,
        folder: Path,
        begin: Callable[[Manifest], None],
        step: Callable[[int], None],
    ) -> Manifest:
        """Write its files into a folder. Raises `CommandFailed` for one that is cut short.

        `begin` gets the manifest before the other files, and `step` the bytes that were written.
        """
        manifest: Manifest | None = None
        stream = cast("IO[bytes]", self._stream)  # of which a tar file in this mode only reads
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    source = archive.extractfile(member) if member.isfile() else None
                    if source is None or not _MEMBER.fullmatch(member.name):
                        raise damaged(self._where, f"{member.name!r} is not a file of a backup")
                    if manifest is None:
                        if member.name != MANIFEST or member.size > _MANIFEST_BYTES_MAX:
                            raise damaged(self._where, f"it does not begin with {MANIFEST}")
                        data = source.read()
                        manifest = decode_manifest(data, self._where)
                        _write(folder / MANIFEST, iter([data]))
                        begin(manifest)
                        continue
                    self._unpack_file(folder, member.name, source, step)
        except (tarfile.TarError, EOFError) as error:
            raise damaged(
                self._where, f"the archive is cut short, or is another file ({error})"
            ) from error
        if manifest is None:
            raise damaged(self._where, "it is empty")
        return manifest

    def _unpack_file(
        self, folder: Path, name: str, source: IO[bytes], step: Callable[[int], None]
    ) -> None:
        place, _, file = name.partition("/")
        if file != SUMS and not _FILE.fullmatch(file):
            raise damaged(self._where, f"{name!r} is not a file of a backup")
        (folder / place).mkdir(exist_ok=True)

        def pieces() -> Iterator[bytes]:
            while piece := source.read(_PIECE):
                step(len(piece))
                yield piece

        self.sums[name] = _write(folder / name, pieces())


def _write(path: Path, pieces: Iterator[bytes]) -> Sum:
    size = crc = 0
    with path.open("xb") as opened:
        for piece in pieces:
            opened.write(piece)
            size += len(piece)
            crc = crc32(piece, crc)
    return Sum(size, crc)


def pack(folder: Path, manifest: Manifest, target: Path) -> None:
    """Write a backup's folder as a tar archive, synced, with its manifest first.

    It is written inside the folder, which only its owner may read, and which is removed after a
    failure.
    """
    unfinished = folder / f"archive{UNFINISHED}"
    unfinished.touch(mode=0o600)
    with tarfile.open(unfinished, "w", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(folder / MANIFEST, MANIFEST)
        for copy in manifest.shards:
            place = folder_of(copy.shard)
            for name in sorted([file.name for file in copy.files] + [SUMS] * bool(copy.files)):
                archive.add(folder / place / name, f"{place}/{name}")
    directories.sync(unfinished)
    unfinished.rename(target)
    directories.sync_names(target.parent)


@contextmanager
def opened(path: Path, scratch: Path) -> Iterator[tuple[Path, Manifest]]:
    """The folder of a backup: its own, or one in the scratch directory with what an archive has.

    Raises `CommandFailed`.
    """
    if path.is_dir():
        yield path, read_manifest(path)
        return
    folder = scratch / "unpacked"
    folder.mkdir()
    try:
        with path.open("rb") as stream:
            manifest = Archive(stream, str(path)).unpack(folder, lambda _: None, lambda _: None)
        yield folder, manifest
    finally:
        shutil.rmtree(folder, ignore_errors=True)
