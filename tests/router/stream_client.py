"""A client of the stream, written from `docs/stream.md` alone: for tests, and for the bench.

    async with connected(port) as client:
        reply = await client.ask({"id": 1, "fetch": {"queues": ["mail"]}})

What it is told, it hands out as it came: mappings of plain values. Frames are sent as JSON, or as
msgpack where `packed` says so; then the caller gives its own JSON as bytes, and gets it as bytes.
"""

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

PATH: Final = "/api/v1/stream"
_READ_BYTES: Final = 256 << 10

Reply = dict[str, object]

_encode_json: Final = msgspec.json.Encoder().encode
_encode_packed: Final = msgspec.msgpack.Encoder().encode
_decode_json: Final = msgspec.json.Decoder(Reply).decode
_decode_packed: Final = msgspec.msgpack.Decoder(Reply).decode


class Refused(Exception):
    """The handshake was answered with something else than a stream."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body!r}")
        self.status = status
        self.body = body


class Closed(Exception):
    """The stream is over: with a code, if the server gave one, or else with 1006."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class Client:
    """One stream. One task sends and one task receives; they may be the same."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream: Final = stream
        self.pongs = 0
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._messages: deque[bytes | str] = deque()
        self._fragments: list[bytes | bytearray | str] = []
        self._accepted = False
        self._refusal: tuple[int, bytes] | None = None
        self._closed: Closed | None = None

    async def open(self, host: str, headers: Sequence[tuple[str, str]], query: str = "") -> None:
        """Shake hands. Raises `Refused`."""
        raw = [(name.encode(), value.encode()) for name, value in headers]
        request = Request(host=host, target=PATH + query, extra_headers=raw)
        await self.stream.send_all(self._connection.send(request))
        while not self._accepted:
            await self._read()

    async def send(self, frame: Mapping[str, object], *, packed: bool = False) -> None:
        """Send a frame."""
        await self.send_message(_encode_packed(frame) if packed else _encode_json(frame).decode())

    async def send_message(self, message: bytes | str) -> None:
        """Send a message as it is."""
        await self.stream.send_all(self.as_bytes(message))

    def as_bytes(self, message: bytes | str) -> bytes:
        """A message as it goes over the connection."""
        event = TextMessage(message) if isinstance(message, str) else BytesMessage(message)
        return self._connection.send(event)

    async def receive_message(self) -> bytes | str:
        """The next message as it came. Raises `Closed`."""
        while not self._messages:
            if self._closed is not None:
                raise self._closed
            await self._read()
        return self._messages.popleft()

    async def receive(self) -> Reply:
        """The next answer. Raises `Closed`."""
        message = await self.receive_message()
        return _decode_json(message) if isinstance(message, str) else _decode_packed(message)

    async def ask(self, frame: Mapping[str, object], *, packed: bool = False) -> Reply:
        """Send a frame, and have its answer. Nothing else is to be under way."""
        await self.send(frame, packed=packed)
        reply = await self.receive()
        assert reply["id"] == frame["id"], f"an answer to {reply['id']}"
        return reply

    async def ping(self) -> None:
        """Ask for a sign of life."""
        await self.stream.send_all(self._connection.send(Ping()))

    async def close(self) -> None:
        """Leave in order."""
        await self.stream.send_all(self._connection.send(CloseConnection(1000)))
        try:
            while True:
                await self.receive_message()
        except Closed:
            return

    async def _read(self) -> None:
        try:
            data = await self.stream.receive_some(_READ_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if not data:
            self._closed = self._closed or Closed()
            if not self._accepted:
                raise self._closed
            return
        self._connection.receive_data(bytes(data))
        for event in self._connection.events():
            match event:
                case TextMessage() | BytesMessage():
                    self._take(event)
                case AcceptConnection():
                    self._accepted = True
                case CloseConnection(code=code, reason=reason):
                    self._closed = Closed(code, reason or "")
                case Ping():
                    await self.stream.send_all(self._connection.send(event.response()))
                case Pong():
                    self.pongs += 1
                case RejectConnection(status_code=status, has_body=has_body):
                    self._refusal = status, b""
                    if not has_body:
                        raise Refused(status, b"")
                case RejectData(data=part, body_finished=is_last):
                    assert self._refusal is not None
                    self._refusal = self._refusal[0], self._refusal[1] + part
                    if is_last:
                        raise Refused(*self._refusal)

    def _take(self, event: TextMessage | BytesMessage) -> None:
        self._fragments.append(event.data)
        if event.message_finished:
            fragments, self._fragments = self._fragments, []
            if isinstance(event, TextMessage):
                self._messages.append("".join(str(part) for part in fragments))
            else:
                self._messages.append(
                    b"".join(part for part in fragments if not isinstance(part, str))
                )


@asynccontextmanager
async def connected(
    port: int,
    headers: Sequence[tuple[str, str]] = (),
    host: str = "127.0.0.1",
    *,
    query: str = "",
) -> AsyncIterator[Client]:
    """A stream to a server; it is cut off when the block ends. Raises `Refused`."""
    stream = await trio.open_tcp_stream(host, port)
    try:
        client = Client(stream)
        await client.open(f"{host}:{port}", headers, query)
        yield client
    finally:
        await trio.aclose_forcefully(stream)
