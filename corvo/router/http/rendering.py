"""Responses as bytes, for HTTP/1.1."""

from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from corvo.router.http.messages import Response

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""For a client that asks before it sends its body."""

_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}
_NO_REASON_AT: Final = len("HTTP/1.1 200")
WITHOUT_BODY: Final = frozenset({204, 304})
"""Statuses that have none, nor a length of it."""


def date_line(now_ns: int) -> str:
    """The header that says when; it is made anew once a second, not for each answer."""
    return f"date: {formatdate(now_ns // 1_000_000_000, usegmt=True)}\r\n"


def head_of(response: Response, date: str, *, keeps: bool, is_chunked: bool = True) -> bytes:
    """What stands before the body, which HEAD has without it. `date` is `date_line`'s.

    A stream that is not sent in chunks, to a client of HTTP/1.0, ends with its connection.
    """
    status, body = response.status, response.body
    line = _LINES.get(status) or f"HTTP/1.1 {status} \r\n"
    headers = "".join([f"{name}: {value}\r\n" for name, value in response.headers])
    has_length = bool(body)
    if response.stream is not None:
        has_length = is_chunked
        chunked = "transfer-encoding: chunked\r\n" if is_chunked else ""
        frame = f"content-type: {response.content_type}\r\n{chunked}"
    elif body:
        frame = f"content-type: {response.content_type}\r\ncontent-length: {len(body)}\r\n"
    else:
        frame = "" if status in WITHOUT_BODY else "content-length: 0\r\n"
    close = "" if keeps else "connection: close\r\n"
    head = f"{line}{date}{frame}{headers}{close}\r\n"
    # Nothing that a client sent may end a header, or else it could write an answer of its own.
    lines = len(response.headers) + 3 + bool(frame) + has_length + bool(close)
    assert head.count("\n") == lines
    return head.encode("latin-1")


def with_reason(data: bytes) -> bytes:
    """What hypercorn sends, with the words behind the status that it leaves out.

    Some clients show nothing else of an answer that is an error.
    """
    end = _NO_REASON_AT + len(" \r\n")
    if data[_NO_REASON_AT:end] != b" \r\n" or not data.startswith(b"HTTP/1.1 "):
        return data
    line = _LINES.get(int(data[_NO_REASON_AT - 3 : _NO_REASON_AT]))
    return data if line is None else line.encode() + data[end:]
