"""Reading requests: what is let in, what is refused, and that pieces make no difference."""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import h11
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.router.config import Limits
from corvo.router.http.parsing import Message, Reader, as_bytes
from tests.router.lanes import get, post

LIMITS: Final = Limits()
HOST: Final = b"host: corvo\r\n"
CHUNKED: Final = b"POST /t HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


def read(data: bytes, limits: Limits = LIMITS) -> Reader:
    reader = Reader(limits)
    reader.feed(data)
    return reader


def read_in_pieces(data: bytes, cuts: list[int]) -> Reader:
    """As a socket would give it: no more once something has been refused or handed over."""
    reader = Reader(LIMITS)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        if start == end or reader.refusal is not None:
            continue
        if reader.rest is not None:
            reader.rest += data[start:end]
        else:
            reader.feed(data[start:end])
    return reader


def outcome(reader: Reader) -> tuple[list[Message], int, str, bytes | None]:
    refusal = reader.refusal
    status, why = (0, "") if refusal is None else (refusal.status, refusal.error)
    return list(reader.ready), status, why, reader.rest


def test_a_request_is_read() -> None:
    reader = read(post("/api/v1/enqueue?a=1", b"{}", "X-A: b ", "x-a:\tc"))

    message = reader.ready.popleft()
    assert reader.refusal is None
    assert reader.is_idle
    assert message.query == "a=1"
    assert message.keeps
    assert msgspec.structs.asdict(message.request)["headers"] == {
        "host": "corvo",
        "content-length": "2",
        "x-a": "b, c",
    }
    assert (message.request.method, message.request.path) == ("POST", "/api/v1/enqueue")
    assert message.request.body == b"{}"


def test_several_requests_of_one_read_are_ready_in_their_order() -> None:
    reader = read(post("/a", b"1") + get("/b") + post("/c", b"3") + b"GET /d HT")

    assert [message.request.path for message in reader.ready] == ["/a", "/b", "/c"]
    assert reader.is_in_head


REFUSED: Final = {
    "a bare line feed": b"GET / HTTP/1.1\nhost: a\n\n",
    "a bare line feed between headers": b"GET / HTTP/1.1\r\nhost: a\nx: b\r\n\r\n",
    "a bare line feed at the end": b"GET / HTTP/1.1\r\nhost: a\r\n\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\nhost: a\rx: b\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\nhost: a\r\nx: a\r\n b\r\n\r\n",
    "a folded first line": b"GET / HTTP/1.1\r\n host: a\r\n\r\n",
    "a length and an encoding": (
        b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n"
    ),
    "an encoding and a length": (
        b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n"
    ),
    "two lengths": (
        b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}"
    ),
    "the same length twice": (
        b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}"
    ),
    "a list of lengths": b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 2, 2\r\n\r\n{}",
    "a signed length": b"POST / HTTP/1.1\r\n" + HOST + b"content-length: +2\r\n\r\n{}",
    "a negative length": b"POST / HTTP/1.1\r\n" + HOST + b"content-length: -2\r\n\r\n{}",
    "a hexadecimal length": b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 0x2\r\n\r\n{}",
    "an empty length": b"POST / HTTP/1.1\r\n" + HOST + b"content-length:\r\n\r\n",
    "a length beyond all": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"content-length: "
    + b"9" * 30
    + b"\r\n\r\n",
    "another encoding": b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: gzip\r\n\r\n",
    "two encodings": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "nearly an encoding": b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: xchunked\r\n\r\n",
    "an encoding twice": (
        b"POST / HTTP/1.1\r\n"
        + HOST
        + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "an encoding with a strange space": (
        b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n"
    ),
    "an encoding in HTTP/1.0": (
        b"POST / HTTP/1.0\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "a chunk with a bare line feed": (
        b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n"
    ),
    "a chunk longer than it says": (
        b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}{}\r\n0\r\n\r\n"
    ),
    "a chunk of 0x2": (
        b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n"
    ),
    "a negative chunk": (
        b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n"
    ),
    "a chunk beyond all": (
        b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n"
    ),
    "a space before the colon": b"GET / HTTP/1.1\r\nhost : a\r\n\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\nhost: a\r\n: b\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nhost: a\r\nx\r\n\r\n",
    "a name with a bracket": b"GET / HTTP/1.1\r\nhost: a\r\nx(y: b\r\n\r\n",
    "a zero in a value": b"GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\nx: a\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
    "no version": b"GET /\r\nhost: a\r\n\r\n",
    "another version": b"GET / HTTP/1.2\r\nhost: a\r\n\r\n",
    "an old version": b"GET / HTTP/0.9\r\nhost: a\r\n\r\n",
    "a later version": b"GET / HTTP/2.0\r\nhost: a\r\n\r\n",
    "another protocol": b"GET / HTPP/1.1\r\nhost: a\r\n\r\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
    "a tab in the target": b"GET /a\tb HTTP/1.1\r\nhost: a\r\n\r\n",
    "bytes in the target": b"GET /\xe9 HTTP/1.1\r\nhost: a\r\n\r\n",
    "a target that is no path": b"GET hot HTTP/1.1\r\nhost: a\r\n\r\n",
    "a target that is a query": b"GET ?a=b HTTP/1.1\r\nhost: a\r\n\r\n",
    "a request to a proxy": b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    "an unknown method": b"BREW / HTTP/1.1\r\nhost: a\r\n\r\n",
    "a method in small letters": b"get / HTTP/1.1\r\nhost: a\r\n\r\n",
    "a space in front": b" GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "another time HTTP/2": get("/") + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}
"""Smuggling and nonsense: two servers might read each in two ways, or one in none."""


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_what_could_be_read_in_two_ways_is_refused(data: bytes) -> None:
    reader = read(data)

    assert reader.refusal is not None
    assert reader.refusal.status == 400
    assert not [message for message in reader.ready if message.request.path != "/"]


@given(
    st.lists(
        st.sampled_from(
            [
                *REFUSED.values(),
                get("/a"),
                post("/b?c=d", b"x" * 30, "expect: 100-continue"),
                b"\r\n",
                CHUNKED + b"2;e=f\r\n{}\r\n0\r\nx: y\r\n\r\n",
                b"GET /u HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
                b"GET /w HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                get("/last", "connection: close"),
            ]
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.integers(0, 10_000), max_size=8),
)
def test_it_makes_no_difference_in_which_pieces_bytes_come(
    parts: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(parts)

    assert outcome(read_in_pieces(data, cuts)) == outcome(read(data))


@pytest.mark.parametrize("data", [post("/a?b", b"{}", "x: y"), get("/c")])
def test_a_request_can_come_byte_by_byte(data: bytes) -> None:
    assert outcome(read_in_pieces(data, list(range(len(data))))) == outcome(read(data))


@given(
    st.sampled_from(["GET", "POST", "DELETE"]),
    st.text("abc/%?=&.-_~", max_size=20),
    st.lists(st.tuples(st.text("abc-", min_size=1), st.text("de f\t", max_size=9)), max_size=5),
    st.binary(max_size=40),
    st.sampled_from(["1.1", "1.0"]),
    st.booleans(),
)
def test_the_slow_lane_reads_what_was_read_here(
    method: str,
    target: str,
    headers: list[tuple[str, str]],
    body: bytes,
    version: str,
    chunked: bool,
) -> None:
    head = f"{method} /{target} HTTP/{version}\r\nhost: h\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers)
    if chunked and version == "1.1":
        pieces = f"{len(body):x}\r\n".encode() + body + b"\r\n" if body else b""
        data = f"{head}transfer-encoding: chunked\r\n\r\n".encode() + pieces + b"0\r\n\r\n"
    else:
        data = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    message = read(data).ready.popleft()

    connection = h11.Connection(h11.SERVER)
    connection.receive_data(as_bytes(message))
    events = []
    while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        events.append(event)

    request, *rest = events
    assert isinstance(request, h11.Request)
    path, _, query = f"/{target}".partition("?")
    assert request.method.decode() == method
    assert request.target.decode() == (f"{path}?{query}" if query else path)
    seen = {name.decode(): value.decode() for name, value in request.headers}
    seen.pop("connection", None)
    assert seen == message.request.headers
    assert b"".join(part.data for part in rest if isinstance(part, h11.Data)) == body
    assert isinstance(rest[-1], h11.EndOfMessage)
    assert message.request.body == body


@given(
    st.sampled_from([b"GET", b"POST", b"M-SEARCH", b"PROPFIND"]),
    st.binary(max_size=12),
    st.lists(st.tuples(st.binary(min_size=1, max_size=6), st.binary(max_size=12)), max_size=3),
)
def test_the_slow_lane_can_read_whatever_is_let_in(
    method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    reader = read(method + b" /" + target + b" HTTP/1.1\r\nhost: a\r\n" + lines + b"\r\n")

    for message in reader.ready:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(as_bytes(message))
        assert isinstance(connection.next_event(), h11.Request)


# Limits.


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes() -> None:
    limits = Limits(body_bytes_max=10)

    fits = read(post("/", b"x" * 10), limits)
    beyond = read(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\n\r\n", limits)

    assert len(fits.ready) == 1
    assert beyond.refusal is not None
    assert (beyond.refusal.status, beyond.refusal.code) == (413, "PAYLOAD_TOO_LARGE")


def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large() -> None:
    limits = Limits(body_bytes_max=10)
    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"

    reader = read(head + b"6\r\n" + b"x" * 6 + b"\r\n", limits)
    assert (reader.refusal, reader.body_bytes) == (None, 6)
    reader.feed(b"ffff\r\n" + b"x" * 5)

    assert reader.refusal is not None
    assert reader.refusal.status == 413


@pytest.mark.parametrize(
    "headers",
    [
        b"".join(b"h%d: x\r\n" % number for number in range(101)),
        b"x: " + b"y" * 20_000 + b"\r\n",
        b"x" * 20_000 + b": y\r\n",
        b"".join(b"h%d: %s\r\n" % (number, b"x" * 500) for number in range(50)),
    ],
    ids=["many", "a long value", "a long name", "long together"],
)
@pytest.mark.parametrize("is_ended", [True, False])
def test_headers_without_end_are_refused(headers: bytes, is_ended: bool) -> None:
    data = b"GET / HTTP/1.1\r\nhost: a\r\n" + headers
    if is_ended:
        data += b"\r\n"
    else:
        data = data.removesuffix(b"\r\n")
    reader = Reader(LIMITS)
    for at in range(0, len(data), 1_000):
        if reader.refusal is None:
            reader.feed(data[at : at + 1_000])

    assert reader.refusal is not None
    assert (reader.refusal.status, reader.refusal.code) == (431, "HEADERS_TOO_LARGE")


def test_a_target_without_end_is_refused() -> None:
    reader = read(b"GET /")
    for _ in range(20):
        if reader.refusal is None:
            reader.feed(b"x" * 1_000)

    assert reader.refusal is not None
    assert reader.refusal.status == 431


@pytest.mark.parametrize("piece", [b"0\r\nx: ", b"0\r\n", b"1;", b"1;a="])
def test_what_surrounds_a_body_may_not_be_without_end(piece: bytes) -> None:
    reader = read(CHUNKED + b"1\r\nx\r\n" + piece)
    for _ in range(20):
        if reader.refusal is None:
            reader.feed(b"y" * 1_000)

    assert reader.refusal is not None
    assert reader.refusal.status == 431


def test_a_body_may_come_in_the_smallest_chunks() -> None:
    reader = read(CHUNKED)
    for _ in range(10_000):
        reader.feed(b"1\r\nx\r\n")
    reader.feed(b"0\r\n\r\n")

    assert reader.ready.popleft().request.body == b"x" * 10_000


def test_each_body_is_counted_for_itself() -> None:
    reader = read(post("/a", b"x" * 10) * 3, Limits(body_bytes_max=10))

    assert len(reader.ready) == 3
    assert reader.refusal is None


def test_headers_behind_a_body_are_counted_and_forgotten() -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"

    few = read(head + b"x: y\r\nhost: b\r\n\r\n").ready.popleft()
    many = read(head + b"x: y\r\n" * 100)

    assert few.request.headers == {"host": "a", "content-length": "0"}
    assert many.refusal is not None
    assert many.refusal.status == 431


def test_many_small_requests_do_not_count_as_one_large_head() -> None:
    reader = read(b"GE")
    reader.feed(b"T" + get("/a").removeprefix(b"GET") + get("/a") * 999 + get("/b")[:30])
    reader.feed(get("/b")[30:])

    assert reader.refusal is None
    assert len(reader.ready) == 1_001


# Other protocols.


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_a_wish_for_http2_is_passed_over(body: bytes) -> None:
    wish = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")

    reader = read(post("/a", body, *wish, "x: y") + get("/b"))

    first, second = reader.ready
    assert first.request.body == body
    assert first.keeps
    assert first.request.headers == {"host": "corvo", "content-length": str(len(body)), "x": "y"}
    assert second.request.path == "/b"


def test_a_websocket_is_the_last_thing_that_is_read() -> None:
    wish = ("connection: upgrade", "upgrade: websocket", "sec-websocket-extensions: pmd")

    reader = read(get("/a", *wish) + b"\x81\x00")

    (message,) = reader.ready
    assert message.is_websocket
    assert reader.rest == b"\x81\x00"
    assert as_bytes(message) == (
        b"GET /a HTTP/1.1\r\nhost: corvo\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    )


@pytest.mark.parametrize("cut", [0, 1, 3, 15, 16, 20])
def test_http2_is_found_by_how_it_begins(cut: int) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    reader = Reader(LIMITS)

    if cut:
        reader.feed(preface[:cut])
        assert not reader.is_idle or reader.rest is not None
    if reader.rest is None:
        reader.feed(preface[cut:])
    else:
        reader.rest += preface[cut:]

    assert reader.rest == preface
    assert not reader.ready


def test_nothing_counts_behind_a_request_that_closes() -> None:
    reader = read(get("/a", "connection: close") + get("/b"))

    (message,) = reader.ready
    assert not message.keeps
    assert reader.refusal is None


def test_http_1_0_closes() -> None:
    (message,) = read(b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").ready

    assert not message.keeps
    assert message.version == "1.0"


def test_a_target_with_a_host_is_a_path_to_us() -> None:
    reader = read(get("http://corvo/a/b?c=d") + get("http://corvo"))

    first, second = reader.ready
    assert (first.request.path, first.query) == ("/a/b", "c=d")
    assert second.request.path == "/"
    assert as_bytes(first).startswith(b"GET /a/b?c=d HTTP/1.1\r\n")


def test_whoever_waits_to_be_asked_for_a_body_is_to_be_asked() -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"

    waiting, impatient, together = read(head), read(head + b"{"), read(head + b"{}")

    assert waiting.wants_continue
    assert not impatient.wants_continue
    assert not together.wants_continue


@pytest.mark.parametrize(
    "request_of",
    [
        lambda body: (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        ),
        lambda body: (
            b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
            + b"".join(b"a\r\n%s\r\n" % body[at : at + 10] for at in range(0, len(body), 10))
            + b"0\r\n\r\n"
        ),
    ],
    ids=["at length", "in chunks"],
)
def test_large_bodies_come_one_after_the_other(request_of: Callable[[bytes], bytes]) -> None:
    data = request_of(b"x" * 200_000)
    reader = Reader(Limits())

    for _ in range(3):
        for at in range(0, len(data), 65_536):
            reader.feed(data[at : at + 65_536])

    assert reader.refusal is None
    assert [len(message.request.body) for message in reader.ready] == [200_000] * 3
