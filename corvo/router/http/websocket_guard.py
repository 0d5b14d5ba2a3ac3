"""The frames of a WebSocket before hypercorn sees them: how many of them one read has.

A message may come in fragments of one byte, or of none, and pings may come without end. Each costs
some 40 µs, so a read of 64 KiB would hold up everybody else for a third of a second.
"""

from typing import Final

MESSAGE: Final = 4
"""Events that a whole message counts as, since it is acted on; every other frame is one."""

_FINAL: Final = 0x80
_CONTROL: Final = 0x08
_MASKED: Final = 0x80


class WebSocketGuard:
    """Follows the frames of one connection, from the first one that its client sends."""

    def __init__(self) -> None:
        self._skip = 0  # bytes of a frame that are still to come
        self._head = b""  # what has come of one

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
            missing = _head_bytes(self._head) - len(self._head)
            piece = data[at : at + missing]
            at += len(piece)
            self._head += piece
            if len(self._head) == _head_bytes(self._head):
                first = self._head[0]
                events += MESSAGE if first & _FINAL and not first & _CONTROL else 1
                self._skip = _payload_bytes(self._head)
                self._head = b""


def _head_bytes(head: bytes) -> int:
    """How long the head is of which this has come."""
    if len(head) < 2:
        return 2
    mask = 4 if head[1] & _MASKED else 0
    return 2 + {126: 2, 127: 8}.get(head[1] & 0x7F, 0) + mask


def _payload_bytes(head: bytes) -> int:
    size = head[1] & 0x7F
    if size < 126:
        return size
    return int.from_bytes(head[2:4] if size == 126 else head[2:10], "big")
