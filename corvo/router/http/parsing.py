"""The HTTP/1.1 parser: one strict reader for both lanes.

    reader.feed(bytes)   ->   reader.ready      requests that have come in whole
                              reader.refusal    why no more can be read from this connection
                              reader.rest       bytes behind a request that changes the protocol

The fast lane answers a request as it was read here. The slow lane is not handed the bytes as they
came but what `as_bytes` makes of the request. So the two lanes cannot disagree about where a
request ends, and a request that two servers could read in two ways gets a 400 from both.

`httptools` is strict by itself: no bare line feeds, no folded lines, never both a length and an
encoding. What it lets through, and RFC 9112 does not, is refused here.
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import Final, NoReturn

import msgspec
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from corvo.router.config import Limits
from corvo.router.http.messages import Problem, Request, bad_field

HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n"
"""How a client begins that speaks HTTP/2 without asking. Nothing else begins like this."""

_NAMES: Final = {
    spelling.encode(): name
    for name in (
        *("accept", "accept-encoding", "authorization", "connection", "content-length"),
        *("content-type", "corvo-min-seq", "host", "idempotency-key", "user-agent", "x-api-key"),
        *("x-request-id", "traceparent"),
    )
    for spelling in (name, name.title())
}
"""Spellings that nearly all clients use, so that they need not be made anew for each request."""
_METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
}
OF_ONE_HOP: Final = frozenset(
    {
        *("connection", "expect", "http2-settings", "keep-alive", "proxy-connection", "te"),
        *("trailer", "transfer-encoding", "upgrade"),
        # Of WebSocket: a small frame can become a large one before anybody has counted it.
        "sec-websocket-extensions",
    }
)
"""Headers that speak of this connection, or of how the body came: nobody behind us sees them."""


_ASKING: Final = frozenset({"expect", "content-encoding"})
"""Headers that ask something of the server: see `check_wishes`."""
_WITH_HOST: Final = re.compile(rb"(https?)://([^/?#@]+)(.*)", re.IGNORECASE)
_PORTS: Final = {"http": ":80", "https": ":443"}
"""What need not be said of a host, by the scheme."""
_PORTION_BYTES: Final = 1 << 10
"""Some twenty requests, if they are as short as can be: a quarter of a millisecond."""
_CHUNK_BYTES_MAX: Final = 8
"""What may surround each byte of a body in chunks; if they are of one byte, that is five."""


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that has come in whole, and what its lane has to know of it."""

    request: Request
    """Still without what stood behind the `?`."""
    query: str
    version: str
    """Of HTTP: `1.1` or `1.0`."""
    keeps: bool
    """Whether the connection can serve another one behind it."""
    is_websocket: bool = False


class _Refused(Exception):
    """Thrown through the parser, which makes another exception of it."""


class Reader:
    """The requests of one connection, in their order."""

    def __init__(self, limits: Limits, peer: str = "") -> None:
        self.ready: Final[deque[Message]] = deque()
        self.refusal: Problem | None = None
        """Comes behind those that are ready; nothing more is read."""
        self.rest: bytes | None = None
        """Behind the last one that is ready the connection speaks something else: HTTP/2 if none
        was ready, and WebSocket if it asked for that."""
        self.body_bytes = 0
        """Of the body that is coming in."""
        self.pieces = 0
        """Of a body, in what was fed last."""
        self.is_in_head = False
        self.is_in_body = False
        self.wants_continue = False
        """Whether the client holds its body back until it is told that we want it."""
        self._limits = limits
        self._peer = peer
        self._opening: bytes | None = b""  # what may still become HTTP2_PREFACE
        self._is_over = False  # nothing counts behind a request that closes the connection
        self._parser = HttpRequestParser(self)
        self._begun = 0
        self._target = b""
        self._method = ""
        self._version = ""
        self._headers: dict[str, str] = {}
        self._headers_count = 0
        self._head_bytes = 0
        self._excess_bytes = (
            0  # that are no body, of reads that ended neither the head nor the body
        )
        self._body: bytes | bytearray = b""
        self._length = 0  # that the body says it has

    @property
    def is_idle(self) -> bool:
        """Whether we are between two requests."""
        return not (self.is_in_head or self.is_in_body or self._opening)

    @property
    def portion_bytes(self) -> int:
        """How much to feed at a time: so much may be many requests, or many pieces of a body.

        The rest of a body whose length is known is one piece.
        """
        return max(_PORTION_BYTES, self._length - self.body_bytes)

    def feed(self, data: bytes) -> None:
        """Take what has come in."""
        self.pieces = 0
        assert self.rest is None
        if self._opening is not None:
            data = self._opening + data
            if HTTP2_PREFACE.startswith(data[: len(HTTP2_PREFACE)]):
                if len(data) < len(HTTP2_PREFACE):
                    self._opening = data
                else:
                    self._opening = None
                    self.rest = data
                return
            self._opening = None
        if self.refusal is None and not self._is_over:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        was_in_head, was_in_body = self.is_in_head, self.is_in_body
        begun, body_bytes = self._begun, self.body_bytes
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._change(data[upgrade.args[0] :])
        except HttpParserCallbackError:
            assert self.refusal is not None, "only refusals are thrown through the parser"
        except HttpParserError as error:
            if not self._is_over:
                self.refuse(Problem(400, "PARSE_ERROR", f"the request is not HTTP/1.1: {error}"))
        is_going_on = (was_in_head, was_in_body) == (self.is_in_head, self.is_in_body)
        if (was_in_head or was_in_body) and is_going_on and begun == self._begun:
            # A header or the end of a chunk that does not come would be kept by the parser, and has
            # not been counted yet.
            self._excess_bytes += len(data) - (self.body_bytes - body_bytes)
            allowed = self._limits.header_bytes_max + _CHUNK_BYTES_MAX * self.body_bytes
            if self._excess_bytes > allowed and self.refusal is None:
                self.refuse(too_large_head(self._limits))

    def _change(self, rest: bytes) -> None:
        """A request asked for another protocol. WebSocket is one that we speak."""
        if self.ready and self.ready[-1].is_websocket:
            self.rest = rest
            return
        # We may go on as if it had not asked, as RFC 9110 7.8 has it; Java's own client asks for
        # HTTP/2 like this with its first request, whatever that is. The parser has given up on it.
        head = self._head_again()
        self._parser = HttpRequestParser(self)
        self._parse(head)
        if rest and self.refusal is None:
            self._parse(rest)

    def _head_again(self) -> bytes:
        headers = {name: value for name, value in self._headers.items() if name != "upgrade"}
        tokens = headers.pop("connection").lower().split(",")
        if "close" in [token.strip() for token in tokens]:
            headers["connection"] = "close"
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{self._method} {self._target.decode('ascii')} HTTP/1.1\r\n{lines}\r\n"
        return head.encode("latin-1")

    @property
    def unfinished(self) -> Request:
        """What is known of the request that is coming in, or was refused."""
        return Request(
            method=self._method or "GET",
            path=self._target.decode("latin-1"),
            headers=self._headers,
            peer=self._peer,
        )

    def close(self) -> None:
        """Let go of what is half read. We and the parser hold each other, and go only by and by."""
        del self._parser
        self._body = b""
        self.ready.clear()

    def refuse(self, problem: Problem) -> None:
        """Read nothing more."""
        self.refusal = problem
        self.is_in_head = self.is_in_body = False
        self._body = b""

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Another request begins."""
        self.is_in_head = True
        self.is_in_body = False
        self._begun += 1
        self._target = b""
        self._headers = {}
        self._headers_count = 0
        self._head_bytes = 0
        self._excess_bytes = 0

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or one behind a chunked body: those are counted, and of no use to anybody."""
        headers, limits = self._headers, self._limits
        self._headers_count += 1
        self._head_bytes += len(name) + len(value) + 4
        if self._headers_count > limits.headers_max or self._head_bytes > limits.header_bytes_max:
            self.refuse(too_large_head(limits))
            raise _Refused
        if self.is_in_body:
            return
        known = _NAMES.get(name) or name.decode("latin-1").lower()
        text = value.decode("latin-1").rstrip(" \t")
        if known not in headers:
            headers[known] = text
        elif known == "host":
            self._bad_request("expected one header `host`", field="host")
        else:
            headers[known] = join(known, headers[known], text)

    def on_headers_complete(self) -> None:
        """Only the body is missing."""
        parser, headers = self._parser, self._headers
        method = parser.get_method()
        self._method = _METHODS.get(method) or method.decode("ascii")
        self._version = parser.get_http_version()
        if self._head_bytes + len(self._target) > self._limits.header_bytes_max:
            self.refuse(too_large_head(self._limits))
            raise _Refused
        if self._version not in {"1.1", "1.0"}:
            self._bad_request("the request is not HTTP/1.1")
        if "host" not in headers and self._version == "1.1":
            self._bad_request("the header `host` is required", field="host")
        if self._target[:1] != b"/":
            self._read_whole_target()
        if "transfer-encoding" in headers and (
            headers["transfer-encoding"].lower() != "chunked" or self._version == "1.0"
        ):
            self._bad_request(
                "expected no transfer encoding other than `chunked`", field="transfer-encoding"
            )
        self._length = int(headers.get("content-length", 0))
        if self._length > self._limits.body_bytes_max:
            self.refuse(too_large_body(self._limits))
            raise _Refused
        if not _ASKING.isdisjoint(headers):
            self._check_wishes()
        self.is_in_head = False
        self.is_in_body = True

    def _check_wishes(self) -> None:
        try:
            check_wishes(self._headers)
        except Problem as problem:
            self.refuse(problem)
            raise _Refused from None
        # Of a client of HTTP/1.0 it has to be ignored (RFC 9110, 10.1.1).
        self.wants_continue = "expect" in self._headers and self._version == "1.1"

    def _read_whole_target(self) -> None:
        """A target with scheme and host in front is for proxies, and us: keep path and query of it.

        RFC 9112, 3.2.2, has the host of the target count, and not the header. A proxy before this
        server may have judged the request by the header, so two different hosts are refused.
        """
        if self._target == b"*" and self._method == "OPTIONS":
            return
        found = _WITH_HOST.fullmatch(self._target)
        if found is None or self._method == "CONNECT":
            self._bad_request("expected a path as the target of the request", field="path")
        scheme, host, rest = (part.decode("ascii") for part in found.groups())
        port = _PORTS[scheme.lower()]
        told = self._headers.setdefault("host", host)
        if _without(port, told) != _without(port, host):
            self._bad_request(
                f"the target names the host {host[:200]!r}, and the header `host` {told[:200]!r}:"
                " expected the same host in both",
                field="host",
            )
        self._target = (rest if rest[:1] == "/" else f"/{rest}").encode()

    def _bad_request(self, why: str, *, field: str = "") -> NoReturn:
        self.refuse(bad_field(field, why))
        raise _Refused

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self.body_bytes += len(data)
        if self.body_bytes > self._limits.body_bytes_max:
            self.refuse(too_large_body(self._limits))
            raise _Refused
        self.wants_continue = False
        self.pieces += 1
        if not self._body:
            self._body = data
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += data  # a list of pieces of one byte would take a hundred times as much

    def on_message_complete(self) -> None:
        """It is here."""
        headers = self._headers
        is_websocket = False
        if self._parser.should_upgrade():
            is_websocket = (
                self._method == "GET" and headers.get("upgrade", "").lower() == "websocket"
            )
            if not is_websocket:
                return  # `_change` reads it again
        whole = bytes(self._body)
        target = self._target.decode("ascii")
        path, _, query = target.partition("?")
        keeps = self._version == "1.1" and self._parser.should_keep_alive()
        if not OF_ONE_HOP.isdisjoint(headers):
            if is_websocket:
                headers.pop("content-length", None)  # what follows is no body
            if "transfer-encoding" in headers:
                headers["content-length"] = str(len(whole))
            headers = {name: value for name, value in headers.items() if name not in OF_ONE_HOP}
        self.ready.append(
            Message(
                request=Request(
                    method=self._method, path=path, headers=headers, body=whole, peer=self._peer
                ),
                query=query,
                version=self._version,
                keeps=keeps,
                is_websocket=is_websocket,
            )
        )
        self._is_over = not keeps
        self._method = ""  # what is refused before the next one has a method was not of this one
        self.is_in_body = False
        self.wants_continue = False
        self.body_bytes = self._length = 0
        self._body = b""


def join(name: str, before: str, value: str) -> str:
    """The value of a header that came again."""
    if not before or not value:
        return before or value
    return f"{before}; {value}" if name == "cookie" else f"{before}, {value}"


def too_large_head(limits: Limits) -> Problem:
    """What a client is told whose request does not come to its point."""
    return Problem(
        431,
        "HEADERS_TOO_LARGE",
        f"expected at most {limits.headers_max} headers with {limits.header_bytes_max} bytes",
    )


def too_large_body(limits: Limits) -> Problem:
    """What a client is told whose body is too large, as soon as that is known."""
    return Problem(
        413,
        "PAYLOAD_TOO_LARGE",
        f"expected a body of at most {limits.body_bytes_max} bytes (limits.body_bytes_max)",
    )


def check_wishes(headers: Mapping[str, str]) -> None:
    """Refuse what headers ask of a server that this one does not do. Raises `Problem`.

    A body is never decoded: one that is small can become a large one, and unpacking it would hold
    up everybody else. So it is refused before it is read.
    """
    expected = headers.get("expect")
    if expected is not None and expected.lower() != "100-continue":
        raise Problem(
            417,
            "EXPECTATION_FAILED",
            f"unknown expectation {expected[:200]!r}; expected 100-continue, or no header `expect`",
            field="expect",
        )
    encoding = headers.get("content-encoding", "")
    if encoding and encoding.lower() != "identity":
        raise Problem(
            415,
            "UNSUPPORTED_ENCODING",
            f"content-encoding {encoding[:200]!r}: expected a body that is not encoded",
            field="content-encoding",
        )


def _without(port: str, host: str) -> str:
    return host.lower().removesuffix(port)


def as_bytes(message: Message) -> bytes:
    """A request as hypercorn reads it, for the slow lane: nothing but what was read here."""
    request = message.request
    headers = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    if message.is_websocket:
        headers += "connection: upgrade\r\nupgrade: websocket\r\n"
    elif not message.keeps:
        headers += "connection: close\r\n"
    target = f"{request.path}?{message.query}" if message.query else request.path
    line = f"{request.method} {target} HTTP/{message.version}\r\n"
    return f"{line}{headers}\r\n".encode("latin-1") + request.body
