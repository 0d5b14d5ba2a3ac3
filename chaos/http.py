"""A small client of the HTTP API for trio: one connection, and a plain error when it is lost."""

import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final

import msgspec
import trio

_READ_BYTES: Final = 64 << 10
_HEAD_BYTES_MAX: Final = 64 << 10


class Lost(Exception):
    """The connection ended, or could not be made."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent: Final = was_sent
        """Whether the server may have received any of the request."""


class Answer(msgspec.Struct, frozen=True):
    """An answer of a server."""

    status: int
    headers: dict[str, str]
    body: bytes


class Site(msgspec.Struct, frozen=True):
    """Where a node is reached."""

    name: str
    host: str
    port: int
    make_socket: Callable[[], socket.socket] = socket.socket
    headers: Mapping[str, str] = {}
    is_tls: bool = False


class Connection:
    """One connection to one node, which is made with the first request and after a loss."""

    def __init__(self, site: Site) -> None:
        self.site: Final = site
        self._stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] | None = None
        self._socket: trio.socket.SocketType | None = None
        self._rest = bytearray()

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request, and its answer. Raises `Lost`. A cancelled request closes the connection."""
        was_sent = is_done = False
        try:
            stream = await self._connect()
            was_sent = True
            await stream.send_all(self._request(method, path, body, headers or {}))
            answer = await self._read(stream)
            is_done = answer.headers.get("connection", "").lower() != "close"
            return answer
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise Lost(str(error) or type(error).__name__, was_sent=was_sent) from error
        finally:
            if not is_done:
                self.close()

    async def listen(self, path: str) -> Answer | None:
        """Begin an answer without an end, which `more` reads; or the whole answer, if it has one.

        Raises `Lost`.
        """
        try:
            stream = await self._connect()
            await stream.send_all(self._request("GET", path, b"", {}))
            status, headers = await self._read_head(stream)
            if status == 200:
                return None
            size = int(headers.get("content-length", "0"))
            return Answer(status, headers, await self._take(stream, size))
        except (OSError, trio.BrokenResourceError) as error:
            self.close()
            raise Lost(str(error), was_sent=True) from error

    async def more(self) -> bytes:
        """The next bytes of an answer without an end. Raises `Lost`."""
        stream = self._stream
        if stream is None:
            raise Lost("not connected", was_sent=True)
        if self._rest:
            taken, self._rest = bytes(self._rest), bytearray()
            return taken
        try:
            await self._more(stream)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise Lost(str(error), was_sent=True) from error
        taken, self._rest = bytes(self._rest), bytearray()
        return taken

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._stream = self._socket = None
        self._rest.clear()

    def _request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        site = self.site
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: {site.host}:{site.port}",
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in {**site.headers, **headers}.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body

    async def _connect(self) -> trio.abc.Stream:
        if self._stream is None:
            plain = self.site.make_socket()
            plain.setblocking(False)
            with ExitStack() as undo:
                made = undo.enter_context(trio.socket.from_stdlib_socket(plain))
                await made.connect((self.site.host, self.site.port))
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                undo.pop_all()
            self._socket = made
            plain_stream = trio.SocketStream(made)
            self._stream = plain_stream
            if self.site.is_tls:
                context = ssl.create_default_context()
                self._stream = trio.SSLStream(
                    plain_stream, context, server_hostname=self.site.host, https_compatible=True
                )
        return self._stream

    async def _read(self, stream: trio.abc.Stream) -> Answer:
        status, headers = await self._read_head(stream)
        if "transfer-encoding" in headers:
            body = await self._read_chunks(stream)
        else:
            body = await self._take(stream, int(headers.get("content-length", "0")))
        return Answer(status, headers, body)

    async def _read_head(self, stream: trio.abc.Stream) -> tuple[int, dict[str, str]]:
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            if len(self._rest) > _HEAD_BYTES_MAX:
                raise OSError("an answer whose headers have no end")
            await self._more(stream)
        first, *lines = self._rest[:end].decode("latin-1").split("\r\n")
        del self._rest[: end + 4]
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(first.split()[1]), headers

    async def _read_chunks(self, stream: trio.abc.Stream) -> bytes:
        parts = []
        while True:
            while (end := self._rest.find(b"\r\n")) < 0:
                await self._more(stream)
            size = int(self._rest[:end], 16)
            del self._rest[: end + 2]
            parts.append(await self._take(stream, size))
            await self._take(stream, 2)
            if not size:
                return b"".join(parts)

    async def _take(self, stream: trio.abc.Stream, count: int) -> bytes:
        while len(self._rest) < count:
            await self._more(stream)
        taken = bytes(self._rest[:count])
        del self._rest[:count]
        return taken

    async def _more(self, stream: trio.abc.Stream) -> None:
        data = await stream.receive_some(_READ_BYTES)
        if not data:
            raise OSError("the server closed the connection")
        self._rest += data
