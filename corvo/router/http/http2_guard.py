"""Limits of HTTP/2 that hypercorn does not enforce.

It keeps a frame until it is whole, and only then finds it too large: sixteen megabytes, on each of
ten thousand connections. And a client is within every limit of the protocol that sends nothing but
frames which ask for nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA (CVE-2019-9511 to
-9518), or streams that it resets as soon as they are open (CVE-2023-44487). All of that shows in
the nine bytes before a frame.
"""

from typing import Final, NamedTuple


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

REQUEST: Final = 8
"""Events that a request counts as; every other frame is one. It costs ten times as much as one of
HTTP/1.1."""

PREFACE_BYTES: Final = 24
"""What a client sends before its first frame."""
_HEAD_BYTES: Final = 9
_DATA: Final = 0
_HEADERS: Final = 1
_FREE: Final = frozenset({2, 8})
"""PRIORITY and WINDOW_UPDATE: some clients send them with each request and for each answer."""
_END_STREAM: Final = 0x1
_PADDED: Final = 0x8
_PADDING_MAX: Final = 256
"""Bytes of a padded frame that may all be padding."""
_FREE_A_FRAME: Final = 2
"""Such frames for each frame of data that was sent: for its stream, and for the connection."""
_FREE_MAX: Final = 1_000
"""Of those, how many may be left unsent: a client may do many at a time."""

TOO_LARGE: Final = "frame_size"
REASONS: Final = (
    "data",
    "headers",
    "priority",
    "rst_stream",
    "settings",
    "push_promise",
    "ping",
    "goaway",
    "window_update",
    "continuation",
)
"""Kinds of frames, by number: why a connection was ended."""
OTHER: Final = "unknown"


class Head(NamedTuple):
    """What stands before a frame."""

    length: int
    kind: int
    flags: int

    @property
    def is_control(self) -> bool:
        """Whether the frame brings no part of a request: not even an end, or a byte of a body."""
        if self.kind != _DATA:
            return self.kind != _HEADERS
        bytes_min = _PADDING_MAX if self.flags & _PADDED else 0
        return self.length <= bytes_min and not self.flags & _END_STREAM

    @property
    def name(self) -> str:
        """Its kind, in words."""
        return REASONS[self.kind] if self.kind < len(REASONS) else OTHER


class FrameHeads:
    """Finds the heads of frames, in whatever pieces they come."""

    def __init__(self, skip: int = 0) -> None:
        self._skip = skip  # bytes to come that are no frame's head
        self._head = b""  # what has come of one

    @property
    def is_between(self) -> bool:
        """Whether what comes next is a frame, or the rest of what is skipped."""
        return not self._head

    def skip(self, data: bytes, at: int) -> int:
        """Where the frame ends whose head was found last; the end of the data at most."""
        skipped = min(self._skip, len(data) - at)
        self._skip -= skipped
        return at + skipped

    def find(self, data: bytes, at: int) -> tuple[int, Head | None]:
        """Where the head ends that begins or goes on here; None if not all of it has come."""
        piece = data[at : at + _HEAD_BYTES - len(self._head)]
        head = self._head + piece
        at += len(piece)
        if len(head) < _HEAD_BYTES:
            self._head = head
            return at, None
        self._head = b""
        self._skip = int.from_bytes(head[:3], "big")
        return at, Head(self._skip, head[3], head[4])


class Http2Guard:
    """Follows the frames of one connection, from its first byte."""

    def __init__(self, control_max: int) -> None:
        self.over = ""
        """Why nothing more may be passed on: the kind of the frame that was too much, or its size.
        Empty while everything may."""
        self._control_max = control_max  # frames in a second, and at once
        self._control_left = float(control_max)
        self._free_left = 0  # frames that follow from what was sent
        self._now_s = 0.0
        self._heads = FrameHeads(PREFACE_BYTES)
        self._sent_heads = FrameHeads()

    def portion(self, data: bytes, at: int, budget: int, now_s: float) -> tuple[int, int]:
        """How far to pass these bytes on from `at`, and the events in that.

        A portion ends behind the frame that spends the budget, or with the data.
        """
        self._refill(now_s)
        heads = self._heads
        events = 0
        while True:
            at = heads.skip(data, at)
            if at == len(data) or (events >= budget and heads.is_between):
                return at, events
            begin = at
            at, head = heads.find(data, at)
            if head is None:
                continue
            self.over = self._judge(head)
            if self.over:
                return begin, events
            events += REQUEST if head.kind == _HEADERS else 1

    def sent(self, data: bytes) -> None:
        """Frames were sent. For those of data a client says that it has room for more."""
        at, heads = 0, self._sent_heads
        while (at := heads.skip(data, at)) < len(data):
            at, head = heads.find(data, at)
            if head is not None and head.kind == _DATA:
                self._free_left = min(self._free_left + _FREE_A_FRAME, _FREE_MAX)

    def _refill(self, now_s: float) -> None:
        since_s, self._now_s = max(0.0, now_s - self._now_s), now_s
        gained = since_s * self._control_max
        self._control_left = min(self._control_left + gained, self._control_max)

    def _judge(self, head: Head) -> str:
        """Why a frame is too much; empty if it is not."""
        if head.length > FRAME_BYTES_MAX:
            return TOO_LARGE
        if head.kind in _FREE and self._free_left:
            self._free_left -= 1
        elif head.is_control:
            self._control_left -= 1
        return head.name if self._control_left < 0 else ""
