"""A client that costs little: one HTTP/1.1 connection, one request at a time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httptools
import trio

_READ_BYTES: Final = 256 << 10
_HOST: Final = "Host: 127.0.0.1\r\n"
"""An open node answers nobody who calls it by another name."""


class Connection:
    """To the node. Bodies are bytes of JSON both ways."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._is_whole = False

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request; status and body of its answer."""
        await self.send(method, path, body)
        return await self.receive()

    async def send(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request."""
        head = f"{method} {path} HTTP/1.1\r\n{_HOST}Content-Length: {len(body)}\r\n\r\n"
        await self._stream.send_all(head.encode() + body)

    async def receive(self) -> tuple[int, bytes]:
        """Status and body of the next answer."""
        self._parts, self._is_whole = [], False
        while not self._is_whole:
            data = await self._stream.receive_some(_READ_BYTES)
            assert data, "the server has hung up"
            self._parser.feed_data(bytes(data))
        return self._parser.get_status_code(), b"".join(self._parts)

    # What the parser calls.

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        self._is_whole = True


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection; it is closed with the block."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        yield Connection(stream)
