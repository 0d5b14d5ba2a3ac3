"""The guard sees the heads of frames, in whatever pieces they come; hyperframe is its twin."""

from collections import Counter
from itertools import accumulate, pairwise
from typing import Final

import hyperframe.frame as hf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from priority.priority import DeadlockError, DuplicateStreamError, MissingStreamError

from corvo.router.http.http2_guard import (
    FRAME_BYTES_MAX,
    PREFACE_BYTES,
    REASONS,
    REQUEST,
    TOO_LARGE,
    FrameHeads,
    Http2Guard,
)
from corvo.router.http.http2_order import RoundRobin

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CONTROL_MAX: Final = 10


def frame(kind: int, length: int, flags: int = 0) -> bytes:
    head = length.to_bytes(3, "big") + bytes([kind, flags, 0, 0, 0, 1])
    return head + b"\xff" * length


def feed(guard: Http2Guard, data: bytes, now_s: float = 0.0) -> str:
    """Why not all of these bytes may be passed on; empty if they may."""
    guard.portion(data, 0, 1 << 30, now_s)
    return guard.over


def cut(data: bytes, pieces: list[int]) -> list[bytes]:
    """Data in pieces of these sizes, over and over."""
    ends = [0, *accumulate(pieces * (len(data) // sum(pieces) + 1))]
    return [data[a:b] for a, b in pairwise(ends) if data[a:b]]


FRAMES: Final = st.one_of(
    st.builds(hf.DataFrame, st.just(1), data=st.binary(max_size=40)),
    st.builds(
        lambda data, pad: hf.DataFrame(1, data=data, pad_length=pad, flags=["PADDED"]),
        st.binary(max_size=9),
        st.integers(0, 255),
    ),
    st.builds(lambda data: hf.DataFrame(1, data=data, flags=["END_STREAM"]), st.binary(max_size=9)),
    st.builds(hf.HeadersFrame, st.just(1), data=st.binary(max_size=40)),
    st.builds(hf.PriorityFrame, st.just(1)),
    st.builds(hf.RstStreamFrame, st.just(1)),
    st.builds(hf.SettingsFrame, st.just(0), settings=st.just({4: 65_535})),
    st.builds(hf.PingFrame, st.just(0), opaque_data=st.just(bytes(8))),
    st.builds(hf.GoAwayFrame, st.just(0)),
    st.builds(hf.WindowUpdateFrame, st.just(1), window_increment=st.just(9)),
    st.builds(hf.ContinuationFrame, st.just(1), data=st.binary(max_size=40)),
)
PIECES: Final = st.lists(st.integers(1, 60), min_size=1, max_size=5)


@given(st.lists(FRAMES, max_size=40), PIECES)
def test_heads_are_found_in_whatever_pieces_they_come(
    frames: list[hf.Frame], pieces: list[int]
) -> None:
    data = PREFACE + b"".join(each.serialize() for each in frames)
    heads, found = FrameHeads(PREFACE_BYTES), Counter[str]()

    for piece in cut(data, pieces):
        at = heads.skip(piece, 0)
        while at < len(piece):
            at, head = heads.find(piece, at)
            if head is not None:
                found[head.name] += 1
            at = heads.skip(piece, at)

    assert found == Counter(_name(each) for each in frames)


@given(st.lists(FRAMES, max_size=40), PIECES, st.integers(1, 5))
def test_everything_passes_up_to_the_frame_that_is_too_much(
    frames: list[hf.Frame], pieces: list[int], budget: int
) -> None:
    written = [each.serialize() for each in frames]
    data = PREFACE + b"".join(written)
    guard, passed, events = Http2Guard(CONTROL_MAX), 0, 0

    for piece in cut(data, pieces):
        at = 0
        while at < len(piece) and not guard.over:
            end, more = guard.portion(piece, at, budget, 0.0)
            assert more < budget + REQUEST
            passed, events, at = passed + end - at, events + more, end
        if guard.over:
            break

    too_much = [at for at, each in enumerate(frames) if _asks_for_nothing(each)][CONTROL_MAX:]
    if not too_much:
        assert (guard.over, passed) == ("", len(data))
        return
    bad = too_much[0]
    end = len(PREFACE) + sum(map(len, written[:bad]))
    assert guard.over == _name(frames[bad])
    assert end <= passed < end + 9  # of its head, a part may have come before
    assert events == sum(
        REQUEST if isinstance(each, hf.HeadersFrame) else 1 for each in frames[:bad]
    )


def _name(each: hf.Frame) -> str:
    assert each.type is not None
    return REASONS[each.type]


def _asks_for_nothing(each: hf.Frame) -> bool:
    if isinstance(each, hf.DataFrame):
        ends = "END_STREAM" in each.flags
        # What is padded so much may be padding alone: the head does not say.
        padded = "PADDED" in each.flags and each.body_len <= 256
        return not ends and (padded or not each.data)
    return not isinstance(each, hf.HeadersFrame)


def test_the_largest_frame_passes_and_a_larger_one_does_not() -> None:
    guard = Http2Guard(CONTROL_MAX)

    assert feed(guard, PREFACE + frame(0, FRAME_BYTES_MAX)) == ""
    assert feed(guard, frame(0, FRAME_BYTES_MAX + 1)[:9]) == TOO_LARGE


@pytest.mark.parametrize("kind", [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255])
def test_a_flood_of_any_kind_is_too_much(kind: int) -> None:
    guard = Http2Guard(CONTROL_MAX)

    assert feed(guard, PREFACE + frame(kind, 0) * CONTROL_MAX) == ""
    assert feed(guard, frame(kind, 0)) == (REASONS[kind] if kind < len(REASONS) else "unknown")


def test_the_budget_is_for_a_second() -> None:
    guard = Http2Guard(CONTROL_MAX)

    assert feed(guard, PREFACE + frame(6, 8) * CONTROL_MAX, 100.0) == ""
    for tenth in range(1, 100):
        assert feed(guard, frame(6, 8), 100.0 + tenth / 10 + 1e-6) == ""
    assert feed(guard, frame(6, 8), 109.9) == "ping"


@pytest.mark.parametrize("kind", [2, 8])
def test_a_client_that_reads_may_say_so(kind: int) -> None:
    guard = Http2Guard(CONTROL_MAX)
    feed(guard, PREFACE)
    for _ in range(50):
        answer = frame(1, 20) + frame(0, 16_384)
        for at in range(0, len(answer), 1_000):
            guard.sent(answer[at : at + 1_000])
        assert feed(guard, frame(kind, 5) * 2) == ""

    assert feed(guard, frame(kind, 5) * CONTROL_MAX) == ""
    assert feed(guard, frame(kind, 5)) == REASONS[kind]


def test_requests_and_bodies_are_no_control_frames() -> None:
    guard = Http2Guard(CONTROL_MAX)

    assert feed(guard, PREFACE + (frame(1, 20) + frame(0, 1) + frame(0, 0, 1)) * 500) == ""


# The order of streams.


def test_streams_send_by_turns() -> None:
    order = RoundRobin()
    for stream in (1, 3, 5):
        order.insert_stream(stream)
    order.block(3)

    assert [next(order) for _ in range(4)] == [1, 5, 1, 5]
    order.unblock(3)
    order.remove_stream(1)
    assert sorted(next(order) for _ in range(2)) == [3, 5]
    order.block(3)
    order.block(5)
    with pytest.raises(DeadlockError):
        next(order)


def test_streams_are_known_once() -> None:
    order = RoundRobin()
    order.insert_stream(1)

    with pytest.raises(DuplicateStreamError):
        order.insert_stream(1)
    order.remove_stream(1)
    for what in (order.block, order.unblock, order.remove_stream):
        with pytest.raises(MissingStreamError):
            what(1)


def test_priorities_are_ignored() -> None:
    order = RoundRobin()

    for stream in range(3, 9_999, 2):
        order.reprioritize(stream, depends_on=stream + 2)

    with pytest.raises(DeadlockError):
        next(order)
