"""Floods within one connection: how much of one is handled before others have a turn.

Nothing here takes time: a pause of a connection is a step of the mock clock, and what was handled
between two steps is counted. The table is data; `bench/floods.py` sends the same to a whole node.
"""

import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest
import trio
import trio.testing
from hypercorn.events import Event, RawData
from hypercorn.protocol import ProtocolWrapper
from hypothesis import given
from hypothesis import strategies as st

from corvo import telemetry
from corvo.router.api import Api
from corvo.router.config import Limits
from corvo.router.http.connections import Stage
from corvo.router.http.messages import Request, Response
from corvo.router.http.parsing import Reader
from corvo.router.http.websocket_guard import MESSAGE, WebSocketGuard
from corvo.router.routes import Found
from corvo.router.server.app import App
from corvo.router.server.door import Door
from corvo.router.server.fast_lane import Conversation
from corvo.router.server.serving import Server
from corvo.router.server.slow_lane import Ends
from corvo.router.server.turns import PAUSE_S
from tests.router.lanes import Endpoints, config_of, get, no_stream, post

BUDGET: Final = Limits().turn_events_max
READ_BYTES: Final = 64 << 10


class Script:
    """A client in memory: sends what it was told to, a read at a time, and keeps the answers."""

    fd = -1
    has_timed_out = False

    def __init__(self, reads: list[bytes]) -> None:
        self._reads = [read for read in reads if read]
        self.said: Counter[float] = Counter()
        """Sends, by their time."""
        self.answers = b""
        self.is_over = trio.Event()

    async def receive(self) -> bytes:
        await trio.testing.wait_all_tasks_blocked()
        return self._reads.pop(0) if self._reads else b""

    def offer(self, data: bytes) -> bytes:
        return data

    async def send(self, data: bytes | memoryview) -> None:
        self.said[trio.current_time()] += 1
        self.answers += data

    async def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


class Seen(NamedTuple):
    """What became of a flood."""

    script: Script
    fed: Counter[float]
    """Bytes that the parser of HTTP/1.1 was given, by the time."""
    handled: Counter[float]
    """Events that hypercorn was given, by the time."""
    answered: Counter[float]
    """Requests, likewise."""
    ended_at: float
    pauses: int


def flood(
    reads: list[bytes],
    *,
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits | None = None,
) -> Seen:
    """Let one connection send this."""
    fed: Counter[float] = Counter()
    handled: Counter[float] = Counter()
    answered: Counter[float] = Counter()
    feed, handle, answer = Reader.feed, ProtocolWrapper.handle, Door.answer_at

    def count_feed(self: Reader, data: bytes) -> None:
        fed[trio.current_time()] += len(data)
        feed(self, data)

    async def count_handle(self: ProtocolWrapper, event: Event) -> None:
        if isinstance(event, RawData):
            guard = WebSocketGuard()
            _, events = guard.portion(event.data, 0, 1 << 30)
            handled[trio.current_time()] += events
        await handle(self, event)

    async def count_answer(self: Door, found: Found | None, request: Request) -> Response:
        answered[trio.current_time()] += 1
        return await answer(self, found, request)

    monkeypatch.setattr(Reader, "feed", count_feed)
    monkeypatch.setattr(ProtocolWrapper, "handle", count_handle)
    monkeypatch.setattr(Door, "answer_at", count_answer)
    seen: list[Seen] = []

    async def main() -> None:
        config = config_of({})
        if limits is not None:
            config = config_of({"limits": limits})
        door = Door(Api(config), Endpoints().routes(), on_bug=lambda *_: None)
        door.api.keyring.replace([], now_s=0)
        log = telemetry.Log(
            lambda _: None, "router", telemetry.Style(is_text=True), telemetry.Level.INFO
        )
        server = Server(door, App(door, no_stream), config, log)
        server._sweep()
        script = Script(reads)
        seat = server.connections.enter(lambda: None)
        seat.move(Stage.IDLE)
        conversation = Conversation(server.lane, script, seat, Ends(("a", 1), ("b", 2)))
        await conversation.run()
        conversation.close()
        pauses = server.connections.pauses
        server.connections.leave(seat)
        seen.append(Seen(script, fed, handled, answered, trio.current_time(), pauses))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return seen[0]


def reads_of(data: bytes, times: int) -> list[bytes]:
    whole = data * times
    return [whole[at : at + READ_BYTES] for at in range(0, len(whole), READ_BYTES)]


# HTTP/1.1


def test_requests_that_come_together_are_answered_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = flood(reads_of(get("/hot"), 3_000), monkeypatch=monkeypatch)

    assert sum(seen.answered.values()) == 3_000
    assert max(seen.answered.values()) <= BUDGET + 1
    assert seen.script.answers.count(b"HTTP/1.1 200") == 3_000
    assert seen.pauses * PAUSE_S == pytest.approx(seen.ended_at)


def test_a_client_that_waits_for_its_answers_never_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [post("/hot", b"x" * 5_000)] * 200
    bodies = [post("/hot", b"x" * 200_000)[:READ_BYTES], *[b"x" * READ_BYTES] * 2]

    seen = flood([*requests, *bodies], monkeypatch=monkeypatch)

    assert sum(seen.answered.values()) == 200
    assert (seen.ended_at, seen.pauses) == (0.0, 0)


def test_requests_that_come_together_are_not_all_parsed_before_the_first_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = flood(reads_of(get("/hot"), 3_000), monkeypatch=monkeypatch)

    assert max(seen.fed.values()) <= 4 * 1_024


def test_chunks_of_one_byte_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"POST /hot HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"

    seen = flood([head, *reads_of(b"1\r\nx\r\n", 30_000), b"0\r\n\r\n"], monkeypatch=monkeypatch)

    assert max(seen.fed.values()) <= 1_024 * (BUDGET + 1)
    assert b'"body_bytes":30000' in seen.script.answers


def test_large_chunks_are_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"POST /hot HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"

    seen = flood([head, *reads_of(chunk, 100), b"0\r\n\r\n"], monkeypatch=monkeypatch)

    assert b'"body_bytes":3276800' in seen.script.answers
    assert seen.pauses == 0


@pytest.mark.parametrize("question", [get("/hot", "x: " + "y" * 500), post("/hot", b"x" * 500)])
def test_bytes_that_come_one_by_one_are_read_together(
    monkeypatch: pytest.MonkeyPatch, question: bytes
) -> None:
    seen = flood([bytes([byte]) for byte in question], monkeypatch=monkeypatch)

    assert b"HTTP/1.1 200" in seen.script.answers
    fed = [count for at, count in seen.fed.items() if at]
    assert max(fed) <= BUDGET
    assert seen.pauses >= 400 // BUDGET


def test_a_head_and_a_body_in_a_few_pieces_are_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    question = post("/hot", b"x" * 40)
    pieces = [question[at : at + 10] for at in range(0, len(question), 10)]

    seen = flood(pieces * 50, monkeypatch=monkeypatch)

    assert sum(seen.answered.values()) == 50
    assert seen.pauses == 0


def test_memory_of_a_body_in_tiny_chunks_is_that_of_the_body() -> None:
    reader = Reader(Limits())
    reader.feed(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    tracemalloc.start()
    try:
        for _ in range(1_000):
            reader.feed(b"2\r\nab\r\n" * 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert reader.body_bytes == 200_000
    assert peak < 3 * reader.body_bytes


# WebSocket


UPGRADE: Final = get(
    "/api/v1/stream",
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
).replace(b"host: corvo", b"host: localhost")


def ws(first: int, payload: bytes = b"") -> bytes:
    """A frame of a client, whose mask changes nothing."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([first]) + length + bytes(4) + payload


FLOODS: Final = {
    "fragments of one byte": (ws(0x01, b"x"), ws(0x00, b"x"), ws(0x80)),
    "fragments of nothing": (ws(0x01), ws(0x00), ws(0x80)),
    "pings": (b"", ws(0x89), b""),
    "pongs": (b"", ws(0x8A), b""),
    "empty messages": (b"", ws(0x81), b""),
    "small messages": (b"", ws(0x81, b"{}"), b""),
    "small packed messages": (b"", ws(0x82, b"x"), b""),
}


@pytest.mark.parametrize(("first", "again", "last"), FLOODS.values(), ids=FLOODS)
def test_frames_are_handled_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, first: bytes, again: bytes, last: bytes
) -> None:
    reads = reads_of(again, 1_000)
    bye = ws(0x81, b"bye")

    seen = flood([UPGRADE, first, *reads, last + bye], monkeypatch=monkeypatch)

    assert sum(seen.handled.values()) >= 1_000
    frames = [count for at, count in seen.handled.items() if at]
    assert max(frames) <= 2 * BUDGET  # two reads may meet in a turn
    assert seen.pauses >= 1_000 // BUDGET - 10


def test_without_the_budget_a_read_is_handled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same flood, and a budget that is never spent."""
    limits = Limits(turn_events_max=1_000)
    reads = reads_of(ws(0x00, b"x"), 900)

    seen = flood([UPGRADE, ws(0x01, b"x"), *reads], monkeypatch=monkeypatch, limits=limits)

    assert max(seen.handled.values()) >= 900
    assert seen.pauses == 0


def test_a_few_frames_of_one_read_are_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = [ws(0x89) + ws(0x82, b"x" * 3_000), ws(0x89) * BUDGET] * 25

    seen = flood([UPGRADE, *reads, ws(0x81, b"bye")], monkeypatch=monkeypatch)

    assert seen.pauses == 0


def test_frames_that_come_with_the_handshake_are_read_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = flood([UPGRADE + ws(0x81, b"hi") + ws(0x81, b"bye")], monkeypatch=monkeypatch)

    assert seen.script.answers.startswith(b"HTTP/1.1 101 ")
    assert b"\r\n\r\n\x81\x02hi" in seen.script.answers


# HTTP/2


def http2_frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(4)
LOOPBACK: Final = b"\x82\x86\x01\x01a\x04\x04/hot"
"""GET of /hot, in HPACK."""


def test_a_request_of_http2_has_the_pause_of_two_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [http2_frame(1, LOOPBACK, 5, stream) for stream in range(1, 121, 2)]

    seen = flood([PREFACE + b"".join(requests)], monkeypatch=monkeypatch)

    assert max(seen.answered.values()) == 1
    assert sum(seen.answered.values()) == 60
    assert seen.ended_at == pytest.approx(59 * 2 * PAUSE_S)


def test_requests_of_http2_that_come_one_by_one_never_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = [http2_frame(1, LOOPBACK, 5, stream) for stream in range(1, 121, 2)]

    seen = flood([PREFACE, *requests], monkeypatch=monkeypatch)

    assert sum(seen.answered.values()) == 60
    assert (seen.ended_at, seen.pauses) == (0.0, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from([0x00, 0x01, 0x80, 0x81, 0x82, 0x89, 0x8A]), st.integers(0, 400)),
        max_size=30,
    ),
    st.integers(1, 60),
    st.integers(1, 5),
)
def test_portions_end_where_frames_do_and_lose_nothing(
    frames: list[tuple[int, int]], piece: int, budget: int
) -> None:
    data = b"".join(ws(first, b"\xff" * size) for first, size in frames)
    ends = set(_ends(frames))
    guard = WebSocketGuard()
    at, events = 0, 0

    for start in range(0, len(data), piece):
        read, within = data[start : start + piece], 0
        while within < len(read):
            end, spent = guard.portion(read, within, budget)
            assert end > within
            assert spent < budget + MESSAGE
            if end < len(read):
                assert spent >= budget
                assert start + end in ends
            within, events = end, events + spent
        at += len(read)

    assert at == len(data)
    assert events == sum(MESSAGE if first & 0x80 and not first & 0x08 else 1 for first, _ in frames)


def _ends(frames: list[tuple[int, int]]) -> Iterator[int]:
    at = 0
    for first, size in frames:
        at += len(ws(first, b"x" * size))
        yield at
