"""Limits of HTTP/2 that hypercorn does not enforce.

It keeps a frame until it is whole, and only then finds it too large: sixteen megabytes, on each of
ten thousand connections. And a client that opens streams and resets them at once is within every
limit on streams that are open (CVE-2023-44487). Both show in the nine bytes before a frame.
"""

from typing import Final

FRAME_BYTES_MAX: Final = 16_384
"""What we allow in our settings, and what RFC 9113 starts with."""
RESETS_MAX: Final = 1_000
"""Of one connection. A client that takes back more than that in good faith connects again."""

_PREFACE_BYTES: Final = 24
_HEAD_BYTES: Final = 9
_RESET: Final = 3


class Http2Guard:
    """Follows the frames of one connection, from its first byte."""

    def __init__(self) -> None:
        self._skip = _PREFACE_BYTES  # bytes to come that are no frame's head
        self._head = b""  # what has come of one
        self._resets = 0

    def allows(self, data: bytes) -> bool:
        """Whether these bytes may be passed on. If not, nothing behind them may be, either."""
        at = 0
        while True:
            if self._skip:
                skipped = min(self._skip, len(data) - at)
                self._skip -= skipped
                at += skipped
            piece = data[at : at + _HEAD_BYTES - len(self._head)]
            if not piece:
                return True
            at += len(piece)
            self._head += piece
            if len(self._head) < _HEAD_BYTES:
                return True
            length = int.from_bytes(self._head[:3], "big")
            self._resets += self._head[3] == _RESET
            if length > FRAME_BYTES_MAX or self._resets > RESETS_MAX:
                return False
            self._skip = length
            self._head = b""
