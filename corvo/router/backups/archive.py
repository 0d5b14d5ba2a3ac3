"""A backup as a tar archive, made piece by piece. No I/O."""

import tarfile
from typing import Final

_BLOCK: Final = tarfile.BLOCKSIZE
END: Final = bytes(2 * _BLOCK)
"""The end of an archive. Without it, an archive was cut short."""


def header(path: str, size: int, *, at_s: int) -> bytes:
    """What comes before the bytes of a file."""
    entry = tarfile.TarInfo(path)
    entry.size = size
    entry.mtime = at_s
    entry.mode = 0o600
    return entry.tobuf(tarfile.USTAR_FORMAT)


def padding(size: int) -> bytes:
    """What comes after them, so that the next header begins a block."""
    return bytes(-size % _BLOCK)
