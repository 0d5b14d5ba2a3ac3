"""A router's face for tests: a real door with routes of our own, on a loopback socket, both lanes.

async with serving() as street:
    async with street.client() as client:
        answer = await client.ask(b"POST /hot HTTP/1.1 ...")
"""

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import h11
import msgspec
import trio

from corvo import telemetry
from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import NODE, found_by_path
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.connections import Stage
from corvo.router.http.messages import Problem, Request, Response, Sink, json_response
from corvo.router.routes import Route, Routes
from corvo.router.server.app import App
from corvo.router.server.door import Door
from corvo.router.server.serving import Server
from corvo.router.stream.stream import Channel

HOST: Final = b"host: corvo\r\n"


class Seen(msgspec.Struct):
    """What an endpoint was given, as it answers."""

    method: str
    path: str
    params: dict[str, str]
    query: dict[str, str]
    headers: dict[str, str]
    body: str
    body_bytes: int
    peer: str


class Endpoints:
    """Routes for tests, and what became of what was asked."""

    def __init__(self) -> None:
        self.calls = 0
        self.larges = 0
        self.parked = 0
        self.were_cancelled = 0
        self.given_back = 0
        self.changed = trio.Event()
        self.release = trio.Event()
        """Ends what waits."""
        self.answer_bytes = 10 << 20

    def routes(self) -> Routes:
        """Rows for tests. A streamed one takes the slow lane, though its answer has an end."""
        rows: list[tuple[str, str, Callable[[Api, Request], Awaitable[Response]], str]] = [
            ("POST", "/hot", self.echo, ""),
            ("GET", "/hot", self.echo, ""),
            ("POST", "/hot/{name}", self.echo, ""),
            ("POST", "/streamed", self.echo, "streamed"),
            ("GET", "/streamed", self.echo, "streamed"),
            ("POST", "/streamed/{name}", self.echo, "streamed"),
            ("POST", "/none", self.none, ""),
            ("POST", "/refused", self.refused, ""),
            ("POST", "/broken", self.broken, ""),
            ("POST", "/unended", self.unended, ""),
            ("POST", "/split", self.split, ""),
            ("POST", "/large", self.large, ""),
            ("GET", "/large", self.large, ""),
            ("POST", "/slow", self.wait, ""),
            ("POST", "/parked", self.wait, "parked"),
            ("GET", "/parked", self.wait, "parked"),
            ("POST", "/claimed", self.claim, "parked"),
        ]
        return Routes(
            Route(
                method=method,
                path=path,
                endpoint=endpoint,
                action=Action.OPEN,
                rights=found_by_path("name") if "{name}" in path else NODE,
                tag="Tests",
                summary="for tests",
                description="for tests",
                is_parked=kind == "parked",
                is_streamed=kind == "streamed",
            )
            for method, path, endpoint, kind in rows
        )

    def _note(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that an endpoint does."""
        while not condition():
            await self.changed.wait()

    async def echo(self, _: Api, request: Request) -> Response:
        self.calls += 1
        seen = Seen(
            method=request.method,
            path=request.path,
            params=request.params,
            query=request.query,
            headers=dict(sorted(request.headers.items())),
            body=request.body[:1_000].decode("latin-1"),
            body_bytes=len(request.body),
            peer=request.peer,
        )
        self._note()
        return json_response(seen, reached={0: 7})

    async def none(self, _: Api, __: Request) -> Response:
        return Response(status=204)

    async def refused(self, _: Api, __: Request) -> Response:
        raise Problem(429, "OVERLOADED", "later", retry_after_ms=1_500)

    async def broken(self, _: Api, __: Request) -> Response:
        return Response(status=200 // 0)

    async def unended(self, _: Api, __: Request) -> Response:
        """Streams, and its row does not say so."""

        async def stream(sink: Sink) -> None:
            await sink.send(b"x")

        return Response(stream=stream)

    async def split(self, _: Api, __: Request) -> Response:
        """A header that ends too early, and would begin another one."""
        return Response(headers=[("x-a", "b\r\nx-c: d")], undelivered=self.give_back)

    async def give_back(self) -> None:
        self.given_back += 1
        self._note()

    async def large(self, _: Api, __: Request) -> Response:
        self.larges += 1
        self._note()
        return Response(body=b"x" * self.answer_bytes, undelivered=self.give_back)

    async def claim(self, _: Api, __: Request) -> Response:
        """Claims something just when its client goes."""
        self.parked += 1
        self._note()
        with trio.move_on_after(10, shield=True):
            await self.release.wait()
        return Response(body=b"{}\n", undelivered=self.give_back)

    async def wait(self, _: Api, __: Request) -> Response:
        self.parked += 1
        self._note()
        try:
            await self.release.wait()
        except trio.Cancelled:
            self.were_cancelled += 1
            self._note()
            raise
        return Response(body=b"{}\n")


class Answer(msgspec.Struct):
    """What a client reads."""

    status: int
    headers: dict[str, str]
    body: bytes
    raw_headers: list[tuple[str, str]] = []


class Gone(Exception):
    """The server has closed the connection."""


class Client:
    """One connection."""

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def read(self, method: bytes = b"GET") -> Answer:
        """The next answer, whatever was asked. Raises `Gone`."""
        # Its own idea of what was sent does not matter; it is told that a request went out.
        trailing = self._h11.trailing_data[0]
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self._h11.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        self._h11.send(h11.EndOfMessage())
        if trailing:
            self._h11.receive_data(trailing)
        head: h11.Response | None = None
        body = b""
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                try:
                    data = await self.stream.receive_some(1 << 16)
                except trio.BrokenResourceError:
                    raise Gone from None
                if not data and head is None:
                    raise Gone
                self._h11.receive_data(bytes(data))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                pairs = [(name.decode(), value.decode()) for name, value in head.headers]
                return Answer(head.status_code, dict(pairs), bytes(body), pairs)
            elif isinstance(event, h11.ConnectionClosed):
                raise Gone

    async def ask(self, data: bytes, method: bytes = b"GET") -> Answer:
        await self.send(data)
        return await self.read(method)

    def close(self) -> None:
        raw = self.stream if isinstance(self.stream, trio.SocketStream) else None
        assert raw is not None
        raw.socket.close()

    async def is_closed(self) -> bool:
        """Wait until nothing more can come. False when something does."""
        try:
            return not self._h11.trailing_data[0] and not await self.stream.receive_some(1)
        except trio.BrokenResourceError:
            return True


@dataclass
class Street:
    """A server that runs."""

    server: Server
    endpoints: Endpoints
    port: int
    stop: trio.Event
    ended: trio.Event
    said: list[bytes] = field(default_factory=list)
    """By the log."""
    heard: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around the server."""
    passed_s: float = 0.0

    def pass_time(self, seconds: float) -> None:
        """Let connections have been at what they are at for so much longer."""
        self.passed_s += seconds
        self.server._sweep()

    async def until_stages(self, *stages: Stage) -> None:
        """Wait until all that are connected are at these, in the order they came in."""
        while [seat.stage for seat in self.server.connections.seats] != list(stages):
            await trio.lowlevel.checkpoint()

    def say(self, line: bytes) -> None:
        self.said.append(line)
        self.heard.set()
        self.heard = trio.Event()

    async def until_said(self, what: bytes) -> None:
        while not any(what in line for line in self.said):
            await self.heard.wait()

    @asynccontextmanager
    async def client(
        self, *, tls: ssl.SSLContext | None = None, receive_bytes: int | None = None
    ) -> AsyncIterator[Client]:
        raw = trio.socket.socket()
        if receive_bytes is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await raw.connect(("127.0.0.1", self.port))
        plain = trio.SocketStream(raw)
        try:
            if tls is None:
                yield Client(plain)
            else:
                secure = trio.SSLStream(
                    plain, tls, server_hostname="corvo.test", https_compatible=True
                )
                await secure.do_handshake()
                yield Client(secure)
        finally:
            raw.close()

    async def ask(self, data: bytes, method: bytes = b"GET") -> Answer:
        """One request on a connection of its own."""
        async with self.client() as client:
            return await client.ask(data, method)


async def no_stream(api: Api, request: Request, channel: Channel) -> None:
    """Say back what is said."""
    while True:
        message = await channel.receive()
        if message == "bye":
            await channel.close(1000, "")
            return
        await channel.send(message)


def config_of(told: Mapping[str, object]) -> RouterConfig:
    usual = {"cluster": "rookery", "node": 1, "shards": 1, "sockets": {0: "s"}, "listen": [0]}
    return msgspec.convert({**usual, "is_open": True, "has_http2": True, **told}, type=RouterConfig)


@asynccontextmanager
async def serving(
    *,
    fast: bool = True,
    limits: Limits | None = None,
    told: Mapping[str, object] | None = None,
    routes: Routes | None = None,
) -> AsyncIterator[Street]:
    """A server until the block ends, with no connection left behind."""
    config = msgspec.structs.replace(config_of(told or {}), limits=limits or Limits())
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    endpoints = Endpoints()

    def put(line: bytes) -> None:
        street.say(line)

    log = telemetry.Log(put, "router", telemetry.Style(is_text=True), telemetry.Level.INFO)
    bugs: list[BaseException] = []
    served = routes or endpoints.routes()
    door = Door(Api(config), served, on_bug=lambda _, error: bugs.append(error))
    door.api.keyring.replace([], now_s=0)
    server = Server(door, App(door, no_stream), config, log)
    server.lane.is_open = fast
    stop, ended = trio.Event(), trio.Event()
    street = Street(server, endpoints, listener.getsockname()[1], stop, ended)

    server.now = lambda: trio.current_time() + street.passed_s

    async def run() -> None:
        with street.scope:
            await server.run([listener], stop)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        try:
            yield street
        finally:
            stop.set()
            with trio.fail_after(20, shield=True):
                await ended.wait()
    assert not server.connections.seats
    assert server.connections.body_bytes == 0
    assert not server.lane.hangups._watched
    assert not server.lane.hangups._has_event


def post(path: str, body: bytes = b"", *headers: str) -> bytes:
    """A request as most clients send it."""
    lines = "".join(f"{header}\r\n" for header in headers)
    head = f"POST {path} HTTP/1.1\r\nhost: corvo\r\ncontent-length: {len(body)}\r\n{lines}\r\n"
    return head.encode("latin-1") + body


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    """The same without a body."""
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"{method} {path} HTTP/1.1\r\nhost: corvo\r\n{lines}\r\n".encode("latin-1")
