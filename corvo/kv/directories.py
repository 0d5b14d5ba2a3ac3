"""File operations of checkpoints, one function each, and the errors that they raise.

Nothing here is made durable unless it says so. Directories are flat, as LevelDB's are.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from zlib import crc32

from corvo.errors import StoreFailed, StoreFull, StoreRefused
from corvo.kv.streams import PIECE_BYTES_MAX
from corvo.kv.sums import Sum

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


def lock(directory: Path) -> int:
    """Lock the directory itself: the lock ends with the process, however it ends."""
    with _failing(f"open {directory}"):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreRefused(f"{directory} is in use by another process") from error
    return descriptor


def unlock(descriptor: int) -> None:
    """Give up a lock."""
    os.close(descriptor)


def room(directory: Path) -> int:
    """The bytes that may still be written."""
    with _failing(f"look at {directory}"):
        found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


class Room:
    """The bytes that may still be written to a directory's disk, for use before every write.

    The directory is kept open: to find it again by its path costs four times as much.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with _failing(f"open {directory}"):
            self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def bytes(self) -> int:
        """The bytes, now."""
        try:
            found = os.fstatvfs(self._descriptor)
        except OSError as error:
            raise StoreFailed(f"cannot look at {self._directory}: {error.strerror}") from error
        return found.f_bavail * found.f_frsize

    def disk_bytes(self) -> int:
        """The size of the disk."""
        with _failing(f"look at {self._directory}"):
            found = os.fstatvfs(self._descriptor)
        return found.f_blocks * found.f_frsize

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._descriptor)


def names(directory: Path) -> list[str]:
    """What is in the directory, sorted."""
    with _failing(f"list {directory}"):
        return sorted(path.name for path in directory.iterdir())


def exists(path: Path) -> bool:
    """Whether there is anything of that name."""
    with _failing(f"look at {path}"):
        return path.exists()


def inode(path: Path) -> int:
    """Two names of one directory with the same number are one file."""
    with _failing(f"look at {path}"):
        return path.stat().st_ino


def make(directory: Path) -> None:
    """A new, empty directory."""
    with _failing(f"make {directory}"):
        directory.mkdir(mode=0o700)


def link(source: Path, target: Path) -> bool:
    """Give a file a second name. False when the first is gone."""
    with _failing(f"link {target}"):
        try:
            target.hardlink_to(source)
        except FileNotFoundError:
            return False
    return True


def lead(link: Path, target: Path) -> None:
    """Make a symbolic link to a file."""
    with _failing(f"make {link}"):
        link.symlink_to(target)


def read(path: Path) -> bytes:
    """All of a small file."""
    with _failing(f"read {path}"):
        return path.read_bytes()


def pieces(path: Path) -> Iterator[bytes]:
    """All of a file, a piece after the other."""
    with _failing(f"read {path}"), path.open("rb", buffering=0) as opened:
        while piece := opened.read(PIECE_BYTES_MAX):
            yield piece


def part(path: Path, offset: int) -> bytes:
    """A piece of a file."""
    with _failing(f"read {path}"), path.open("rb", buffering=0) as opened:
        opened.seek(offset)
        return opened.read(PIECE_BYTES_MAX)


def sum_up(path: Path) -> Sum:
    """Size and CRC of a file."""
    size = crc = 0
    for piece in pieces(path):
        size += len(piece)
        crc = crc32(piece, crc)
    return Sum(size, crc)


_SYNC_BYTES: Final = 8 << 20


def write(path: Path, data: Iterator[bytes]) -> Sum:
    """A new file.

    A large one is synced while it is written, so that no other sync waits for all of it at its end.
    """
    size = crc = unsynced = 0
    with _failing(f"write {path}"), path.open("xb") as opened:
        for piece in data:
            opened.write(piece)
            size += len(piece)
            crc = crc32(piece, crc)
            unsynced += len(piece)
            if unsynced >= _SYNC_BYTES:
                unsynced = 0
                opened.flush()
                os.fdatasync(opened.fileno())
    return Sum(size, crc)


def sync(path: Path) -> None:
    """Make a file or the names in a directory durable."""
    with _failing(f"sync {path}"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Held:
    """A file that somebody else writes by means of their own, held open to be synced."""

    def __init__(self, path: Path) -> None:
        """Made if it is not there."""
        self._path = path
        with _failing(f"open {path}"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def is_at(self, path: Path) -> bool:
        """Whether a path leads to it, still."""
        with _failing(f"look at {path}"):
            try:
                return path.stat().st_ino == os.fstat(self._descriptor).st_ino
            except FileNotFoundError:
                return False

    def sync(self, *, data_only: bool = False) -> None:
        """Make it durable; or the bytes, and of the rest only what is needed to find them."""
        with _failing(f"sync {self._path}"):
            (os.fdatasync if data_only else os.fsync)(self._descriptor)

    def close(self) -> None:
        """The process loses all locks that it has on the file, whoever took them."""
        os.close(self._descriptor)


def sync_names(directory: Path) -> None:
    """Make durable what was renamed or removed. Had it no room, nobody knows which name holds."""
    try:
        sync(directory)
    except StoreFull as error:
        raise StoreFailed(str(error)) from error


def sync_all(directory: Path) -> None:
    """Make a directory with all its files durable."""
    for name in names(directory):
        sync(directory / name)
    sync(directory)


def rename(source: Path, target: Path) -> None:
    """Give a file or directory another name, in place of a file that had it."""
    with _failing(f"rename {source} to {target.name}"):
        source.rename(target)


def remove_file(path: Path) -> None:
    """Remove a file."""
    with _failing(f"remove {path}"):
        path.unlink()


def remove(path: Path) -> None:
    """Remove a file, or a directory with its files; nothing when there is none."""
    with _failing(f"remove {path}"):
        if path.is_dir():
            for inside in path.iterdir():
                inside.unlink()
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Tell a full disk from one that fails."""
    try:
        yield
    except OSError as error:
        told = f"cannot {what}: {error.strerror}"
        if error.errno in _NO_ROOM:
            raise StoreFull(told) from error
        raise StoreFailed(told) from error
