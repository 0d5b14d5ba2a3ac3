"""The envelope of every file but two: its kind, its format version, and a checksum.

magic (8 bytes) · version u32 · length u32 · checksum u32 · content (msgpack), all little-endian.
The checksum is the CRC-32C of everything else in the envelope.
"""

import struct
from typing import Final, Generic, TypeVar

import msgspec

from corvo.raft.checksum import chain
from corvo.raft.disk.damage import damaged
from corvo.raft.disk.filesystem import DirectoryRefused, Files

VERSION: Final = 1
_BEGINNING: Final = struct.Struct("<8sII")
_CHECKSUM: Final = struct.Struct("<I")
HEAD_BYTES: Final = _BEGINNING.size + _CHECKSUM.size
Content = TypeVar("Content", bound=msgspec.Struct)


class Sealed(msgspec.Struct, Generic[Content], frozen=True):
    """A content that was found intact, with the checksum that proved it."""

    content: Content
    checksum: int


def seal(magic: bytes, content: msgspec.Struct, *, version: int = VERSION) -> bytes:
    """The envelope around `content`."""
    payload = msgspec.msgpack.encode(content)
    beginning = _BEGINNING.pack(magic, version, len(payload))
    return beginning + _CHECKSUM.pack(chain(chain(0, beginning), payload)) + payload


def checksum_of(envelope: bytes) -> int:
    """The checksum inside an envelope: it stands for the whole content."""
    checksum: int = _CHECKSUM.unpack_from(envelope, _BEGINNING.size)[0]
    return checksum


def unseal(
    files: Files, name: str, magic: bytes, kind: type[Content], *, alone: bool
) -> Sealed[Content]:
    """Read the envelope a file begins with; `alone` says that the file ends with it, too.

    Raises `LogDamaged` if it is not what was written, `DirectoryRefused` if it is newer than this.
    """
    head = files.read(name, 0, HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        raise damaged(name, len(head), 0, "the file ends within its header")
    found, version, length = _BEGINNING.unpack_from(head)
    payload = files.read(name, HEAD_BYTES, length) if length <= files.size(name) else b""
    checksum = checksum_of(head)
    if len(payload) != length or chain(chain(0, head[: _BEGINNING.size]), payload) != checksum:
        raise damaged(name, 0, 0, "the header's checksum does not match")
    if found != magic:
        raise damaged(name, 0, 0, f"this is a file of another kind: {found!r}")
    if version != VERSION:
        raise DirectoryRefused(f"{name} has format {version}; this program reads {VERSION}")
    if alone and files.size(name) != HEAD_BYTES + length:
        raise damaged(name, HEAD_BYTES + length, 0, "the file continues after its end")
    try:
        return Sealed(msgspec.msgpack.decode(payload, type=kind), checksum)
    except msgspec.DecodeError as error:
        raise damaged(name, HEAD_BYTES, 0, f"the header makes no sense: {error}") from error
