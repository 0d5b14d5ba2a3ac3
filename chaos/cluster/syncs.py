"""The syncs of a node: how long they take, how many fail, and how many there were."""

import os
import struct
import subprocess
from pathlib import Path
from typing import Final

import msgspec

_SOURCE: Final = Path(__file__).parent / "shim.c"
_LAYOUT: Final = struct.Struct("5i")
"""That of `struct control` in shim.c."""


class Counts(msgspec.Struct, frozen=True):
    """The content of the file that all processes of a node have mapped."""

    delay_ms: int = 0
    to_fail: int = 0
    syncs: int = 0
    delayed: int = 0
    failed: int = 0


def build(folder: Path) -> Path:
    """The library, compiled into a folder. Raises `CalledProcessError`."""
    made = folder / "syncs.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O2", "-o", str(made), str(_SOURCE), "-ldl"],
        check=True,
        capture_output=True,
    )
    return made


def create(path: Path) -> None:
    """Make the file of a node."""
    path.write_bytes(_LAYOUT.pack(*msgspec.structs.astuple(Counts())))


def read(path: Path) -> Counts:
    """The counts of a node."""
    return Counts(*_LAYOUT.unpack(path.read_bytes()))


def order(path: Path, *, delay_ms: int = 0, to_fail: int = 0) -> None:
    """Say how long a sync takes from now on, and how many of them are to fail."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(file, struct.pack("2i", delay_ms, to_fail), 0)
    finally:
        os.close(file)
