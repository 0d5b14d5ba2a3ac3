"""Messages as bytes: what travels between the replicas of one cluster.

    "CR" | version:1 | cluster:8 | crc32:4 | message (msgpack array, first its tag)

Numbers are big-endian; the checksum covers everything but itself. Where a frame ends is the link's
business. A frame of another version or cluster is refused, never guessed at.
"""

import struct
import zlib
from typing import Final

import msgspec

from corvo.raft.errors import FrameError
from corvo.raft.messages import AnyMessage

VERSION: Final = 1
_MAGIC: Final = b"CR"
_HEAD: Final = struct.Struct(">2sBQ")
_CHECKSUM: Final = struct.Struct(">I")
_PAYLOAD: Final = _HEAD.size + _CHECKSUM.size

FRAME_BYTES_MAX: Final = 16 << 20
"""An append of one entry as large as any may be, and room for what surrounds it."""


class Codec:
    """Encodes for one cluster, and decodes from it alone."""

    def __init__(self, cluster: int, *, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._head = _HEAD.pack(_MAGIC, VERSION, cluster)
        self._cluster = cluster
        self._bytes_max = bytes_max
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)

    def encode(self, message: AnyMessage) -> bytes:
        """One frame. Raises `FrameError` when the message is larger than any peer would take."""
        payload = self._encoder.encode(message)
        size = _PAYLOAD + len(payload)
        if size > self._bytes_max:
            raise FrameError("oversize", f"{size} bytes; at most {self._bytes_max}")
        return b"".join((self._head, _CHECKSUM.pack(self._sum(payload)), payload))

    def decode(self, frame: bytes) -> AnyMessage:
        """The message of one frame. Raises `FrameError` naming what is wrong with it."""
        if len(frame) > self._bytes_max:
            raise FrameError("oversize", f"{len(frame)} bytes; at most {self._bytes_max}")
        if len(frame) < _PAYLOAD:
            raise FrameError("short", f"{len(frame)} bytes; a frame has at least {_PAYLOAD}")
        magic, version, cluster = _HEAD.unpack_from(frame)
        if magic != _MAGIC:
            raise FrameError("magic", f"begins with {magic!r}: not a Raft frame")
        if version != VERSION:
            raise FrameError("version", f"version {version}; this replica speaks {VERSION}")
        if cluster != self._cluster:
            raise FrameError("cluster", f"from cluster {cluster:#x}, not {self._cluster:#x}")
        payload = frame[_PAYLOAD:]
        if _CHECKSUM.unpack_from(frame, _HEAD.size)[0] != self._sum(payload):
            raise FrameError("checksum", "the bytes changed on the way")
        try:
            return self._decoder.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            # Well-formed msgpack that is no message of ours, or nested beyond all reason.
            raise FrameError("message", str(error)) from error

    def _sum(self, payload: bytes) -> int:
        return zlib.crc32(payload, zlib.crc32(self._head))
