"""The real disk: `Files` on the operating system's calls, the only I/O of the library."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from corvo.raft.disk.filesystem import DirectoryRefused
from corvo.raft.errors import DiskFull, LogFailed, RaftError

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_ROOT: Final = "the directory"


class RealFiles:
    """Files below `root`, which must exist. Keeps each file it has touched open until `close`.

    Reads may come from another thread than a `sync`; see `DiskStorage`.
    """

    def __init__(self, root: Path, *, is_read_only: bool = False) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self._mode: Final = os.O_RDONLY if is_read_only else os.O_RDWR
        self._open: dict[str, int] = {}

    def lock(self) -> None:
        """Lock the directory itself: the lock ends with the process, however it ends."""
        try:
            fcntl.flock(self._root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DirectoryRefused("the directory is in use by another process") from error

    def names(self, directory: str = "") -> list[str]:
        """What is in the directory, sorted."""
        try:
            with self._directory(directory) as opened:
                return sorted(os.listdir(opened))  # noqa: PTH208 -- by descriptor, not by path
        except OSError as error:
            raise _failure("list", directory or _ROOT, error) from error

    def size(self, name: str) -> int:
        """The bytes in a file."""
        try:
            return os.fstat(self._descriptor(name)).st_size
        except OSError as error:
            raise _failure("look at", name, error) from error

    def create(self, name: str) -> None:
        """A new, empty file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._open[name] = os.open(name, flags, 0o600, dir_fd=self._root)
        except OSError as error:
            raise _failure("create", name, error) from error

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Up to `length` bytes; the system may hand them out in pieces."""
        try:
            descriptor = self._descriptor(name)
            data = os.pread(descriptor, length, offset)
            while len(data) < length:
                more = os.pread(descriptor, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            raise _failure("read", name, error) from error

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Put all of `data` at `offset`, in one call unless the system takes less."""
        try:
            descriptor = self._descriptor(name)
            written = os.pwrite(descriptor, data, offset)
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], offset + written)
        except OSError as error:
            raise _failure("write", name, error) from error

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to `size`."""
        try:
            os.ftruncate(self._descriptor(name), size)
        except OSError as error:
            raise _failure("cut", name, error) from error

    def sync(self, name: str) -> None:
        """`fdatasync`: the bytes, and of the rest only what is needed to find them."""
        try:
            os.fdatasync(self._descriptor(name))
        except OSError as error:
            raise _failure("sync", name, error, has_room=True) from error

    def sync_names(self, directory: str = "") -> None:
        """`fsync` of the directory."""
        try:
            with self._directory(directory) as opened:
                os.fsync(opened)
        except OSError as error:
            raise _failure("sync", directory or _ROOT, error, has_room=True) from error

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, in place of whatever had it."""
        try:
            os.rename(source, target, src_dir_fd=self._root, dst_dir_fd=self._root)
            self._forget(target)
            if source in self._open:
                self._open[target] = self._open.pop(source)
        except OSError as error:
            raise _failure("rename", f"{source} to {target}", error) from error

    def unlink(self, name: str) -> None:
        """Remove a file."""
        try:
            os.unlink(name, dir_fd=self._root)
            self._forget(name)
        except OSError as error:
            raise _failure("remove", name, error) from error

    def make_directory(self, name: str) -> None:
        """A new, empty directory."""
        try:
            os.mkdir(name, 0o700, dir_fd=self._root)
        except OSError as error:
            raise _failure("make", name, error) from error

    def close(self) -> None:
        """Close everything, and with it give up the lock."""
        for name in list(self._open):
            self._forget(name)
        os.close(self._root)

    def _descriptor(self, name: str) -> int:
        opened = self._open.get(name)
        if opened is not None:
            return opened
        opened = os.open(name, self._mode | os.O_CLOEXEC, dir_fd=self._root)
        kept = self._open.setdefault(name, opened)
        if kept != opened:
            os.close(opened)  # another thread was quicker
        return kept

    def _forget(self, name: str) -> None:
        if name in self._open:
            os.close(self._open.pop(name))

    @contextmanager
    def _directory(self, name: str) -> Iterator[int]:
        opened = os.open(name or ".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._root)
        try:
            yield opened
        finally:
            os.close(opened)


def _failure(verb: str, name: str, error: OSError, *, has_room: bool = False) -> RaftError:
    """Our error for one of the system: a full disk is told from one that fails.

    At a sync there is no telling what a full one kept.
    """
    problem = f"cannot {verb} {name}: {error.strerror}"
    if error.errno in _NO_ROOM and not has_room:
        return DiskFull(problem)
    return LogFailed(problem)
