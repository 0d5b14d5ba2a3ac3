"""Several named files as one stream of bytes with checksums: the form of a snapshot.

    magic | (header | check | data | check)* | end | check

A header is the length of the name, the size of the data, and the name; the end is a header without
name and data. Each check is the CRC-32 of *everything*
before it, so that a piece which is missing, doubled or out of place is found out as surely as one
that changed; and a header is checked before its sizes are believed.
"""

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from corvo.errors import StoreDamaged

MAGIC: Final = b"corvost1"
PIECE_BYTES_MAX: Final = 256 << 10  # a piece travels in one frame, and a chunk of Raft's is 1 MiB
NAME_BYTES_MAX: Final = 255  # what file systems allow
_HEADER: Final = Struct(">HQ")
_CHECK: Final = Struct(">I")


class Source(msgspec.Struct, frozen=True):
    """A file to be sent. `read` is called once, when its turn has come."""

    name: str
    size: int
    read: Callable[[], Iterable[bytes]]


def pack(sources: Iterable[Source]) -> Iterator[bytes]:
    """The stream, in pieces of at most `PIECE_BYTES_MAX`."""
    crc = crc32(MAGIC)
    yield MAGIC
    for source in sources:
        name = source.name.encode()
        assert 0 < len(name) <= NAME_BYTES_MAX, f"{source.name!r} is not a name for a file"
        header = _HEADER.pack(len(name), source.size) + name
        crc = crc32(header, crc)
        check = _CHECK.pack(crc)
        crc = crc32(check, crc)
        yield header + check
        sent = 0
        for piece in _cut(source.read()):
            crc = crc32(piece, crc)
            sent += len(piece)
            yield piece
        assert sent == source.size, f"{source.name} has {sent} bytes and was said to have another"
        check = _CHECK.pack(crc)
        crc = crc32(check, crc)
        yield check
    end = _HEADER.pack(0, 0)
    yield end + _CHECK.pack(crc32(end, crc))


def _cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), PIECE_BYTES_MAX):
            yield piece[start : start + PIECE_BYTES_MAX]


class Unpacking:
    """Reads a stream of `pack`, however it was cut. Raises `StoreDamaged` for any other bytes.

    `following` names the next file, and then `data` must be read to its end.
    """

    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = iter(stream)
        self._held = b""
        self._at = 0  # of `_held`, what lies before is used up
        self._crc = 0
        self._due = 0  # bytes of data that are still to come
        if self._exactly(len(MAGIC)) != MAGIC:
            raise StoreDamaged("this is not a stream of a checkpoint, or one of another version")

    def following(self) -> tuple[str, int] | None:
        """Name and size of the next file; None when there is none and the stream ended well."""
        assert self._due == 0, "the file before is read to its end"
        length, size = _HEADER.unpack(self._exactly(_HEADER.size))
        if length > NAME_BYTES_MAX:
            raise StoreDamaged(f"the stream of a checkpoint has a name of {length} bytes")
        name = self._exactly(length)
        self._check("a header")
        if not length:
            self._end()
            return None
        self._due = size
        return name.decode(), size

    def data(self) -> Iterator[bytes]:
        """The bytes of that file. They are worth nothing before all were read."""
        while self._due:
            piece = self._some(self._due)
            self._due -= len(piece)
            yield piece
        self._check("a file")

    def _end(self) -> None:
        if self._at < len(self._held) or any(self._stream):
            raise StoreDamaged("the stream of a checkpoint continues after its end")

    def _check(self, what: str) -> None:
        expected = self._crc
        (found,) = _CHECK.unpack(self._exactly(_CHECK.size))
        if found != expected:
            raise StoreDamaged(f"the stream of a checkpoint changed on its way, in {what}")

    def _exactly(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            taken += self._some(size - len(taken))
        return taken

    def _some(self, size_max: int) -> bytes:
        """At least one byte."""
        while self._at == len(self._held):
            following = next(self._stream, None)
            if following is None:
                raise StoreDamaged("the stream of a checkpoint ends too early")
            self._held, self._at = following, 0
        piece = self._held[self._at : self._at + size_max]
        self._at += len(piece)
        self._crc = crc32(piece, self._crc)
        return piece
