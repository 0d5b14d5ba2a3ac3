"""Checksums of the files of a checkpoint, in a small text beside them.

    corvo checkpoint 1
    5f0e9f6c 409228 000005.ldb
    ...
    8a1c20b7

A table can rot without LevelDB noticing before it is read. With its size and CRC-32 noted when it
was new, a checkpoint that changed is neither started from nor sent to a peer. The last line is the
CRC-32 of everything before it.
"""

from collections.abc import Mapping
from typing import Final
from zlib import crc32

import msgspec

from corvo.errors import StoreDamaged

_TITLE: Final = "corvo checkpoint 1"

NAME: Final = "sums"
"""Of the file beside those that it lists."""


class Sum(msgspec.Struct, frozen=True):
    """Of one file."""

    size: int
    crc: int


def of(data: bytes) -> Sum:
    """The sum of bytes."""
    return Sum(len(data), crc32(data))


def encode(sums: Mapping[str, Sum]) -> bytes:
    """The text."""
    lines = [f"{sums[name].crc:08x} {sums[name].size} {name}\n" for name in sorted(sums)]
    text = "".join([f"{_TITLE}\n", *lines]).encode()
    return text + f"{crc32(text):08x}\n".encode()


def decode(data: bytes) -> dict[str, Sum]:
    """The sums, by name. Raises `StoreDamaged` for anything that `encode` did not write."""
    text, check = data[:-9], data[-9:]
    if check != f"{crc32(text):08x}\n".encode():
        raise StoreDamaged("the list of a checkpoint's files is not what was written")
    title, *lines = text.decode().splitlines()
    if title != _TITLE:
        raise StoreDamaged(f"a checkpoint of another version: {title}")
    sums = {}
    for line in lines:
        crc, size, name = line.split(" ")
        sums[name] = Sum(int(size), int(crc, 16))
    return sums
