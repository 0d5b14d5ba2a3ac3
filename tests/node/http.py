"""A client for tests: one connection, one request at a time, and a plain word when it is lost."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, TypeVar

import msgspec
import trio

Address = tuple[str, int]
T = TypeVar("T", bound=msgspec.Struct)

_READ_BYTES: Final = 64 << 10
_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.05


class Lost(Exception):
    """The connection ended before the answer was there as a whole."""


class Answer(msgspec.Struct, frozen=True):
    """What the server said."""

    status: int
    headers: dict[str, str]
    body: bytes

    def read(self, kind: type[T]) -> T:
        """The body, as what it is."""
        return msgspec.json.decode(self.body, type=kind)


def request(method: str, path: str, body: bytes = b"", key: str = "", api_key: str = "") -> bytes:
    """A request as it goes over the connection."""
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    if key:
        lines.append(f"idempotency-key: {key}")
    if api_key:
        lines.append(f"x-api-key: {api_key}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Client:
    """Somebody who asks; a connection that was lost is made anew with the next question."""

    def __init__(
        self,
        address: Address,
        api_key: str = "",
        *,
        make_socket: Callable[[], trio.socket.SocketType] = trio.socket.socket,
    ) -> None:
        self._address = address
        self._api_key = api_key
        self._make_socket = make_socket
        self._stream: trio.SocketStream | None = None
        self._rest = b""

    async def ask(self, method: str, path: str, body: bytes = b"", key: str = "") -> Answer:
        """Ask, and wait for the answer. Raises `Lost`."""
        is_done = False
        try:
            stream = await self._connect()
            await stream.send_all(request(method, path, body, key, self._api_key))
            answer = await self._read(stream)
            is_done = answer.headers.get("connection", "").lower() != "close"
            return answer
        except (OSError, trio.BrokenResourceError) as error:
            raise Lost(str(error)) from error
        finally:
            if not is_done:
                self.close()

    async def look(self, path: str) -> Answer:
        """The answer to a GET, which is repeated while a leader is missing."""
        last: object = None
        with trio.move_on_after(_PATIENCE_S):
            while True:
                try:
                    last = answer = await self.ask("GET", path)
                except Lost as lost:
                    last = lost
                else:
                    if answer.status != 503:
                        return answer
                await trio.sleep(_PAUSE_S)
        raise AssertionError(f"GET {path}: {last}")

    async def connect(self) -> trio.SocketStream:
        """The connection itself, for who wants to misuse it."""
        return await self._connect()

    def close(self) -> None:
        """Hang up."""
        if self._stream is not None:
            self._stream.socket.close()
        self._stream = None
        self._rest = b""

    async def _connect(self) -> trio.SocketStream:
        if self._stream is None:
            with ExitStack() as undo:
                made = undo.enter_context(self._make_socket())
                await made.connect(self._address)
                undo.pop_all()
            self._stream = trio.SocketStream(made)
        return self._stream

    async def _read(self, stream: trio.SocketStream) -> Answer:
        while b"\r\n\r\n" not in self._rest:
            await self._more(stream)
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if "transfer-encoding" in headers:
            body = await self._read_chunks(stream)
        else:
            body = await self._take(stream, int(headers.get("content-length", "0")))
        return Answer(int(first.split()[1]), headers, body)

    async def _read_chunks(self, stream: trio.SocketStream) -> bytes:
        parts = []
        while True:
            while b"\r\n" not in self._rest:
                await self._more(stream)
            size, _, self._rest = self._rest.partition(b"\r\n")
            parts.append(await self._take(stream, int(size, 16)))
            await self._take(stream, 2)
            if not parts[-1]:
                return b"".join(parts)

    async def _take(self, stream: trio.SocketStream, count: int) -> bytes:
        while len(self._rest) < count:
            await self._more(stream)
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    async def _more(self, stream: trio.SocketStream) -> None:
        data = await stream.receive_some(_READ_BYTES)
        if not data:
            raise Lost("the server hung up")
        self._rest += data
