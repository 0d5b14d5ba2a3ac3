"""The guard sees the heads of frames, in whatever pieces they come."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from corvo.router.http.http2_guard import FRAME_BYTES_MAX, RESETS_MAX, Http2Guard

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, length: int, *, says: int | None = None) -> bytes:
    head = (length if says is None else says).to_bytes(3, "big") + bytes([kind, 0, 0, 0, 0, 1])
    return head + b"\xff" * length


def allows(guard: Http2Guard, data: bytes) -> bool:
    """Whether these bytes may be passed on as a whole."""
    guard.portion(data, 0, 1 << 30)
    return not guard.is_over


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=30),
    st.integers(1, 50),
)
def test_frames_pass_in_whatever_pieces(frames: list[tuple[int, int]], piece: int) -> None:
    data = PREFACE + b"".join(frame(kind, length) for kind, length in frames)
    guard = Http2Guard()

    assert all(allows(guard, data[at : at + piece]) for at in range(0, len(data), piece))
    assert not allows(guard, frame(0, 0, says=FRAME_BYTES_MAX + 1)[:9])


def test_the_largest_frame_passes_and_a_larger_one_does_not() -> None:
    guard = Http2Guard()

    assert allows(guard, PREFACE + frame(0, FRAME_BYTES_MAX))
    assert not allows(guard, frame(0, 0, says=FRAME_BYTES_MAX + 1))


def test_resets_are_counted() -> None:
    guard = Http2Guard()

    assert allows(guard, PREFACE + frame(3, 4) * RESETS_MAX + frame(1, 4))
    assert not allows(guard, frame(3, 4))
