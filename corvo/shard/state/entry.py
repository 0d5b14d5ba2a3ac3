"""A log entry: a stamp and ops, in one batch.

    "CB1" | count:uvarint | (op:uvarint, length:uvarint, bytes) * count

The first record has the number 0 and is the leader's stamp: its time in nanoseconds and a throw of
dice, 8 and 4 bytes big-endian. Every other is an op, as `corvo.shard.ops` numbers them.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

MAGIC: Final = b"CB1"
STAMP: Final = 0
"""The number of the record that holds the stamp; no op has it."""
_VARINT_BYTES_MAX: Final = 10


class BadEntry(ValueError):
    """Bytes are not an entry."""


Record: TypeAlias = tuple[int, bytes]
"""An op's number and its JSON."""


class Stamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the leader alone may know, and says to all."""

    now_ns: int  # the time of every op in the entry, if none before was later
    dice: int = 0  # 32 bits of chance, for jitter


_STAMP_BYTES: Final = 12


def encode(stamp: Stamp, records: Iterable[Record]) -> bytes:
    """The entry of a stamp and ops."""
    parts = [
        bytes((STAMP, _STAMP_BYTES)),
        stamp.now_ns.to_bytes(8, "big"),
        stamp.dice.to_bytes(4, "big"),
    ]
    count = 1
    for op, body in records:
        assert op != STAMP, "an entry has one stamp"
        size = len(body)
        if op < 0x80 and size < 0x80:
            parts.append(bytes((op, size)))
        else:
            parts.append(_uvarint(op) + _uvarint(size))
        parts.append(body)
        count += 1
    return b"".join((MAGIC, _uvarint(count), *parts))


def decode(data: bytes) -> tuple[Stamp, list[Record]]:
    """The stamp and the ops of an entry. Raises `BadEntry`."""
    if data[:3] != MAGIC:
        raise BadEntry("it does not begin with CB1")
    count, at = _read_uvarint(data, 3)
    end = len(data)
    records: list[Record] = []
    for _ in range(count):
        # What nearly all records begin with: one byte, and one or two.
        if at + 2 < end and (op := data[at]) < 0x80 and data[at + 2] < 0x80:
            size = data[at + 1]
            at += 2
            if size >= 0x80:
                size += (data[at] << 7) - 0x80
                at += 1
        else:
            op, at = _read_uvarint(data, at)
            size, at = _read_uvarint(data, at)
        after = at + size
        if after > end:
            raise BadEntry("a record is cut short")
        records.append((op, data[at:after]))
        at = after
    if at != len(data):
        raise BadEntry("something follows the last record")
    if not records or records[0][0] != STAMP or len(records[0][1]) != _STAMP_BYTES:
        raise BadEntry("the first record is not a stamp")
    if any(op == STAMP for op, _ in records[1:]):
        raise BadEntry("a record behind the first is a stamp")
    stamp = records[0][1]
    now_ns, dice = int.from_bytes(stamp[:8], "big"), int.from_bytes(stamp[8:], "big")
    return Stamp(now_ns, dice), records[1:]


def _uvarint(number: int) -> bytes:
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    number = shift = 0
    for position in range(at, min(at + _VARINT_BYTES_MAX, len(data))):
        byte = data[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position + 1
        shift += 7
    raise BadEntry("a number does not end")
