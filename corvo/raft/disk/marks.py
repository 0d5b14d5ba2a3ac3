"""Files that grow and remember how far they were synced: segments, and snapshots on arrival.

    block 0   the header, in its envelope
    block 1   slot of the marks of even generation
    block 2   slot of the marks of odd generation
    from 12288 on, the data

A *mark* says: everything up to this offset was synced. It is written after that sync and without
one of its own, so it costs a write to the page cache. After a crash of the process it is exact;
after a loss of power it may be one sync behind, since the next sync makes it durable. It is never
ahead of the data. Of the two slots at most one is not durable, so one at least is always intact.
"""

import struct
from typing import Final

import msgspec

from corvo.raft.checksum import chain
from corvo.raft.disk.filesystem import Files

BLOCK_BYTES: Final = 4096
"""What a disk may lose as a whole when a write to any part of it goes wrong."""
DATA_START: Final = 3 * BLOCK_BYTES
_SLOT: Final = struct.Struct("<QQQI")
_CHECKSUM: Final = struct.Struct("<I")


class Mark(msgspec.Struct, frozen=True):
    """What was synced."""

    generation: int
    offset: int
    index: int
    chain: int  # the checksum of all data up to `offset`


class MarkSlots:
    """The two slots of one file. `seed` is its header's checksum: no other file's slot passes."""

    def __init__(self, files: Files, name: str, seed: int, mark: Mark) -> None:
        self.name = name
        self.mark = mark
        self._files = files
        self._seed = seed

    def write(self, *, offset: int, index: int, chain: int) -> None:
        """Say that everything up to `offset` is synced, in the slot of the older mark."""
        self.mark = Mark(self.mark.generation + 1, offset, index, chain)
        self._files.write(self.name, slot_offset(self.mark), encode_mark(self.mark, self._seed))


def prefix(header: bytes, seed: int, first: Mark) -> bytes:
    """The three blocks before the data; both slots hold the first mark."""
    double = msgspec.structs.replace(first, generation=first.generation + 1)
    blocks = (header, encode_mark(first, seed), encode_mark(double, seed))
    assert slot_offset(first) == BLOCK_BYTES
    assert max(len(block) for block in blocks) <= BLOCK_BYTES
    return b"".join(block.ljust(BLOCK_BYTES, b"\0") for block in blocks)


def read_slots(files: Files, name: str, seed: int) -> MarkSlots | None:
    """The newest intact mark, or None where both slots are bad."""
    marks = [mark for number in (0, 1) if (mark := decode_mark(files, name, seed, number))]
    if not marks:
        return None
    return MarkSlots(files, name, seed, max(marks, key=lambda mark: mark.generation))


def slot_offset(mark: Mark) -> int:
    """Where the mark belongs: generations take turns."""
    return BLOCK_BYTES * (1 + mark.generation % 2)


def encode_mark(mark: Mark, seed: int) -> bytes:
    """The bytes of one slot."""
    slot = _SLOT.pack(mark.generation, mark.offset, mark.index, mark.chain)
    return slot + _CHECKSUM.pack(chain(seed, slot))


def decode_mark(files: Files, name: str, seed: int, number: int) -> Mark | None:
    """The mark in a slot, or None where it is bad."""
    data = files.read(name, BLOCK_BYTES * (1 + number), _SLOT.size + _CHECKSUM.size)
    slot, checksum = data[: _SLOT.size], data[_SLOT.size :]
    if len(checksum) < _CHECKSUM.size or _CHECKSUM.pack(chain(seed, slot)) != checksum:
        return None
    return Mark(*_SLOT.unpack(slot))
