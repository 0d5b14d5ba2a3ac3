"""A disk for each node: a file system in a file, which can be full and can lose its power.

The file of the disk has only what the file system has written to its device. So a copy of that
file, made while nodes write, is the disk after a loss of power: all that was not synced is missing.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

import trio

_BYTES: Final = 384 << 20
"""Room for the data of a run, and small enough to be filled within a second."""
_PIECE_BYTES: Final = 4 << 20
FILLER: Final = "filler"
_MOUNT: Final = "loop,noatime,commit=60,noauto_da_alloc"
"""The file system writes back by itself once a minute only, and does not guess that a file which
replaces another must be written: so a loss of power loses all that it may lose."""
_COPY_BYTES: Final = 1 << 20


class Disk:
    """The disk of one node, mounted on a folder."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image = image
        self.folder: Final = folder

    async def make(self) -> None:
        """Make the file system and mount it. Raises `CalledProcessError`."""
        with self._image.open("wb") as made:
            made.truncate(_BYTES)
        await _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self.folder.mkdir(exist_ok=True)
        await self.mount()

    async def mount(self) -> None:
        """Mount the file system. Raises `CalledProcessError`."""
        await _run("mount", "-o", _MOUNT, str(self._image), str(self.folder))

    async def unmount(self) -> None:
        """Unmount the file system. Raises `CalledProcessError` while it is in use."""
        await _run("umount", str(self.folder))

    async def lose_power(self) -> None:
        """Go back to what was written to the device. No process may use the disk meanwhile."""
        copy = self._image.with_suffix(".cut")
        await trio.to_thread.run_sync(_copy, self._image, copy)
        await self.unmount()
        copy.rename(self._image)
        await self.mount()

    @property
    def free_bytes(self) -> int:
        """The bytes that a process can still write."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, leave_bytes: int) -> None:
        """Fill the disk up to some bytes. It takes about a second, in the thread of the caller."""
        with (self.folder / FILLER).open("ab") as filler:
            while (left := self.free_bytes - leave_bytes) > 0:
                try:
                    os.posix_fallocate(
                        filler.fileno(), filler.seek(0, os.SEEK_END), min(left, _PIECE_BYTES)
                    )
                except OSError:
                    return

    def clear(self) -> None:
        """Remove what filled the disk."""
        (self.folder / FILLER).unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a file without the holes in it."""
    with source.open("rb") as read, target.open("wb") as written:
        written.truncate(source.stat().st_size)
        offset = 0
        while True:
            try:
                start = os.lseek(read.fileno(), offset, os.SEEK_DATA)
            except OSError:
                return  # only a hole is left
            end = os.lseek(read.fileno(), start, os.SEEK_HOLE)
            while start < end:
                data = os.pread(read.fileno(), min(_COPY_BYTES, end - start), start)
                os.pwrite(written.fileno(), data, start)
                start += len(data)
            offset = end


async def _run(*words: str) -> None:
    await trio.run_process(list(words), capture_stderr=True, stdin=subprocess.DEVNULL)
