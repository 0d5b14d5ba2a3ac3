"""Limits of HTTP/2 that hypercorn does not enforce.

It keeps a frame until it is whole, and only then finds it too large: sixteen megabytes, on each of
ten thousand connections. And a client that opens streams and resets them at once is within every
limit on streams that are open (CVE-2023-44487). Both show in the nine bytes before a frame.
"""

from typing import Final


def _frame(kind: int, payload: bytes) -> bytes:
    """A frame of the whole connection."""
    return len(payload).to_bytes(3, "big") + bytes([kind]) + bytes(5) + payload


HTTP2_OFF: Final = _frame(4, b"") + _frame(
    7, bytes(4) + (0xD).to_bytes(4, "big") + b"HTTP/2 is switched off (http2): use HTTP/1.1"
)
"""For a client that speaks HTTP/2 unasked where it is off: SETTINGS, which has to come first, and
GOAWAY with HTTP_1_1_REQUIRED (RFC 9113, 7)."""
FRAME_BYTES_MAX: Final = 16_384
"""What we allow in our settings, and what RFC 9113 starts with."""
RESETS_MAX: Final = 1_000
"""Of one connection. A client that takes back more than that in good faith connects again."""

REQUEST: Final = 4
"""Events that a request counts as; every other frame is one."""

_PREFACE_BYTES: Final = 24
_HEAD_BYTES: Final = 9
_HEADERS: Final = 1
_RESET: Final = 3


class Http2Guard:
    """Follows the frames of one connection, from its first byte."""

    def __init__(self) -> None:
        self.is_over = False
        """Whether nothing more may be passed on."""
        self._skip = _PREFACE_BYTES  # bytes to come that are no frame's head
        self._head = b""  # what has come of one
        self._resets = 0

    def portion(self, data: bytes, at: int, budget: int) -> tuple[int, int]:
        """How far to pass these bytes on from `at`, and the events in that.

        A portion ends behind the frame that spends the budget, or with the data.
        """
        events = 0
        while True:
            skipped = min(self._skip, len(data) - at)
            self._skip -= skipped
            at += skipped
            if at == len(data) or (events >= budget and not self._head):
                return at, events
            begin = at
            piece = data[at : at + _HEAD_BYTES - len(self._head)]
            at += len(piece)
            self._head += piece
            if len(self._head) < _HEAD_BYTES:
                continue
            length, kind = int.from_bytes(self._head[:3], "big"), self._head[3]
            self._resets += kind == _RESET
            self.is_over = length > FRAME_BYTES_MAX or self._resets > RESETS_MAX
            if self.is_over:
                return begin, events
            events += REQUEST if kind == _HEADERS else 1
            self._skip = length
            self._head = b""
