"""Floods: what one client may send without end, for `python -m bench door`. One row each.

    python -m bench.floods NAME PORT

sends one of them until it is ended. It does as little as it can for that: bytes that were made
before are sent as fast as they are taken, and what is answered is thrown away. A connection that
the server ends is opened again at once.
"""

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

_HOST: Final = b"host: 127.0.0.1\r\n"
_PIECE_BYTES: Final = 64 << 10
_READ_BYTES: Final = 1 << 20


class Flood(NamedTuple):
    """One kind."""

    again: bytes
    """What is sent without end."""
    hello: bytes = b""
    """What is sent first on each connection."""
    then: bytes = b""
    """What is sent once `hello` was answered."""
    waits: bool = False
    """Whether `hello` has to be answered before anything else is sent."""
    step: int = _PIECE_BYTES
    """Bytes in one send."""
    goes: bool = False
    """Whether the connection is closed once `hello` was answered."""
    stuck: int = 0
    """Connections that send `hello` and read nothing, for what is to be held for them."""
    is_http2: bool = False


def _get(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers).encode()
    return f"{method} {path} HTTP/1.1\r\n".encode() + _HOST + lines + b"\r\n"


def _post(path: str, body: bytes) -> bytes:
    return _get(path, f"content-length: {len(body)}", method="POST") + body


# WebSocket: a mask of zeros changes nothing.


def _ws(first: int, payload: bytes = b"") -> bytes:
    assert len(payload) < 126
    return bytes([first, 0x80 | len(payload)]) + bytes(4) + payload


_UPGRADE: Final = _get(
    "/api/v1/stream",
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
)


# HTTP/2. Headers by the static table of HPACK, and names written out.

_DATA, _HEADERS, _PRIORITY, _RESET, _SETTINGS, _PING, _WINDOW, _MORE = 0, 1, 2, 3, 4, 6, 8, 9
_END_STREAM, _END_HEADERS = 1, 4


def _frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


def _packed(method: int, path: str) -> bytes:
    """`method` is its index: 2 is GET, 3 is POST. Then http, the authority, and the path."""
    authority = b"127.0.0.1"
    return (
        bytes([0x80 | method, 0x86, 0x01, len(authority)])
        + authority
        + bytes([0x04, len(path)])
        + path.encode()
    )


def _preface(window: int = 65_535) -> bytes:
    setting = (4).to_bytes(2, "big") + window.to_bytes(4, "big")
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, payload=setting)


def _opened(numbers: Iterator[int], path: str, *more: bytes) -> bytes:
    """A request on each of these streams, and what stands behind it with the stream's number."""
    head = _packed(2, path)
    return b"".join(
        _frame(_HEADERS, _END_HEADERS | _END_STREAM, stream, head)
        + b"".join(each.replace(b"\0\0\0\7", stream.to_bytes(4, "big")) for each in more)
        for stream in numbers
    )


def _odd(count: int) -> Iterator[int]:
    return iter(range(1, 2 * count, 2))


_LIVE: Final = "/livez"
_PAGE: Final = "/openapi.json"

SPIN: Final = "a busy processor"
"""The name of what sends nothing at all."""
FLOODS: Final[dict[str, Flood]] = {
    # HTTP/1.1
    "pipelined requests": Flood(_get(_LIVE) * 1_000),
    "pipelined enqueues": Flood(_post("/api/v1/enqueue", b'{"queue":"flood","payload":1}') * 500),
    "pipelined paths that do not exist": Flood(_get("/nowhere") * 1_000),
    "pipelined wishes for HTTP/2": Flood(_get(_LIVE, "connection: upgrade", "upgrade: h2c") * 100),
    "chunks of one byte": Flood(
        b"1\r\n \r\n" * 10_000,
        _get("/api/v1/enqueue", "transfer-encoding: chunked", method="POST"),
    ),
    "header bytes one by one": Flood(_get(_LIVE, "x: " + "y" * 8_000), step=1),
    "body bytes one by one": Flood(_post("/api/v1/enqueue", b" " * 8_000), step=1),
    # Events
    "events opened and closed": Flood(b"", _get("/api/v1/events"), waits=True, goes=True),
    "heads of events": Flood(_get("/api/v1/events", method="HEAD") * 100),
    # The stream
    "WebSocket: fragments of one byte": Flood(
        _ws(0x00, b" ") * 9_000, _UPGRADE, _ws(0x01, b"{"), waits=True
    ),
    "WebSocket: fragments of nothing": Flood(
        _ws(0x00) * 9_000, _UPGRADE, _ws(0x01, b"{"), waits=True
    ),
    "WebSocket: pings": Flood(_ws(0x89) * 9_000, _UPGRADE, waits=True),
    "WebSocket: pongs": Flood(_ws(0x8A) * 9_000, _UPGRADE, waits=True),
    "WebSocket: empty messages": Flood(_ws(0x81) * 9_000, _UPGRADE, waits=True),
    "stream: frames with nothing": Flood(_ws(0x81, b'{"id":1}') * 1_000, _UPGRADE, waits=True),
    "stream: frames with one ack": Flood(
        _ws(0x81, b'{"id":1,"acks":[{"job_id":"s00_job_1"}]}') * 1_000, _UPGRADE, waits=True
    ),
    # HTTP/2
    "HTTP/2: SETTINGS": Flood(_frame(_SETTINGS) * 5_000, _preface(), is_http2=True),
    "HTTP/2: PING": Flood(_frame(_PING, payload=bytes(8)) * 3_000, _preface(), is_http2=True),
    "HTTP/2: PRIORITY": Flood(
        b"".join(_frame(_PRIORITY, 0, number, bytes(4) + b"\1") for number in range(3, 1_803, 2)),
        _preface(),
        is_http2=True,
    ),
    "HTTP/2: WINDOW_UPDATE": Flood(
        _frame(_WINDOW, 0, 1, b"\0\0\0\1") * 5_000,
        _preface() + _opened(iter([1]), "/api/v1/events"),
        is_http2=True,
    ),
    "HTTP/2: opened and reset": Flood(
        b"", _preface() + _opened(_odd(5_000), _LIVE, _frame(_RESET, 0, 7, bytes(4))), is_http2=True
    ),
    "HTTP/2: events opened and reset": Flood(
        b"",
        _preface() + _opened(_odd(900), "/api/v1/events", _frame(_RESET, 0, 7, bytes(4))),
        is_http2=True,
    ),
    "HTTP/2: CONTINUATION": Flood(
        _frame(_MORE, 0, 1) * 5_000,
        _preface() + _frame(_HEADERS, _END_STREAM, 1, _packed(2, _LIVE)),
        is_http2=True,
    ),
    "HTTP/2: empty DATA": Flood(
        _frame(_DATA, 0, 1) * 5_000,
        _preface() + _frame(_HEADERS, _END_HEADERS, 1, _packed(3, "/api/v1/enqueue")),
        is_http2=True,
    ),
    "HTTP/2: DATA of one byte": Flood(
        _frame(_DATA, 0, 1, b" ") * 5_000,
        _preface() + _frame(_HEADERS, _END_HEADERS, 1, _packed(3, "/api/v1/enqueue")),
        is_http2=True,
    ),
    "HTTP/2: requests and gone": Flood(
        b"", _preface() + _opened(_odd(90), _LIVE), waits=True, goes=True, is_http2=True
    ),
    "HTTP/2: requests without end": Flood(
        b"", _preface(1 << 20) + _opened(_odd(20_000), _LIVE), is_http2=True
    ),
    "HTTP/2: large answers without a window": Flood(
        b"", _preface(0) + _opened(_odd(90), _PAGE), stuck=25, is_http2=True
    ),
}


# Sending.


def spin() -> None:
    """Use a processor and nothing else: the control."""
    while True:
        json.dumps(list(range(1_000)))


def flood(kind: Flood, port: int) -> None:
    """Send it until killed."""
    if kind.stuck:
        kept = [_connect(port) for _ in range(kind.stuck)]
        for each in kept:
            each.sendall(kind.hello)
        while True:
            signal.pause()  # the connections stay open, and nothing else happens
    while True:
        try:
            _once(kind, _connect(port))
        except OSError:
            os.sched_yield()  # the node cut the connection; the flood goes on over another one


def _connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def _once(kind: Flood, client: socket.socket) -> None:
    with client:
        client.sendall(kind.hello)
        if kind.waits and not client.recv(_READ_BYTES):
            return
        if kind.goes:
            return
        client.sendall(kind.then)
        client.setblocking(False)
        at, again = 0, kind.again
        while True:
            readable, writable, _ = select.select([client], [client] if again else [], [])
            if readable and not client.recv(_READ_BYTES):
                return
            if writable:
                at += client.send(again[at : at + kind.step])
                at = 0 if at >= len(again) else at


def main(arguments: list[str]) -> int:
    """Flood, until the parent is gone."""
    name, port = arguments
    if name == SPIN:
        spin()
    else:
        flood(FLOODS[name], int(port))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
