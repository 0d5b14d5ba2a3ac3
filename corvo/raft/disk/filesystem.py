"""The protocol of a disk: a dozen synchronous calls below one directory.

`corvo.raft.disk.files.RealFiles` answers with the operating system; tests answer with a model of a
disk that loses, keeps and tears what was not synced. Both pass one conformance suite.

What the log assumes of a disk, and nothing more:

- `sync` makes durable what was written to a file before it, and the file's size; `sync_names` does
  the same for the names of a directory. What is not synced may be kept, lost or torn at 512 bytes,
  each write and each change of a name by itself, in any order.
- `rename` replaces its target in one step.
- A write changes no bytes outside its range, other than in the same block of 4,096.
- After a failed `sync` nothing is known about what it should have covered, even where reading it
  shows it: the page cache may be the only place that has it.
"""

from typing import Final, Protocol

from corvo.raft.errors import DiskFull, RaftError

TEMPORARY: Final = ".new"
"""How the names of unfinished files end. No one reads them after a crash."""


class DirectoryRefused(RaftError):
    """The directory is not one this process may use: in use, of another replica, or too new."""


class Files(Protocol):
    """Files below one directory. Names are relative; at most one directory deep.

    Every call that writes raises `DiskFull` when there is no room and `LogFailed` when anything
    else goes wrong. A write that raised `DiskFull` may have been carried out in part.
    """

    def lock(self) -> None:
        """Keep every other process out until `close`; raises `DirectoryRefused` if one is in."""

    def names(self, directory: str = "") -> list[str]:
        """What is in the directory, sorted."""

    def size(self, name: str) -> int:
        """The bytes in a file."""

    def create(self, name: str) -> None:
        """A new, empty file; there must be none of that name."""

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only where the file ends."""

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Put all of `data` at `offset`. Not durable before `sync`."""

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to `size`. Not durable before `sync`."""

    def sync(self, name: str) -> None:
        """Make the bytes and the size of a file durable; not its name."""

    def sync_names(self, directory: str = "") -> None:
        """Make the names in a directory durable."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, in place of whatever had it."""

    def unlink(self, name: str) -> None:
        """Remove a file."""

    def make_directory(self, name: str) -> None:
        """A new, empty directory."""

    def close(self) -> None:
        """Let go of everything, the lock too. Makes nothing durable."""


def replace(files: Files, name: str, data: bytes) -> None:
    """Make `data` the whole content of a file, durably, in one step.

    A crash leaves the old content or the new. After `DiskFull` it is the old.
    """
    temporary = name + TEMPORARY
    if temporary in files.names():
        files.unlink(temporary)
    files.create(temporary)
    try:
        files.write(temporary, 0, data)
    except DiskFull:
        files.unlink(temporary)
        raise
    files.sync(temporary)
    files.rename(temporary, name)
    files.sync_names()


def write_again(files: Files, name: str) -> None:
    """Make sure that the disk holds what reading shows.

    The process before this one may have ended because a sync failed. Then the page cache can hold
    bytes that it wrongly takes for written, and another sync would do nothing. Writing them anew
    makes them due again; and as they are the same bytes, no crash can tear them. Needs no room.
    """
    files.write(name, 0, files.read(name, 0, files.size(name)))
    files.sync(name)
