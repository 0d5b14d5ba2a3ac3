"""The quart app of the slow lane: requests to the door, and WebSockets to the stream.

Quart routes nothing here: the route table does that, for both lanes. So a path that does not exist
and a method that is not allowed are answered as on the fast lane, never with a page of quart's own.

Over HTTP/1.1 a body has been read, and bounded, before it comes here. HTTP/2 brings its requests
side by side, so their bodies are read here, under the same bounds.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio
from hypercorn.typing import (
    ASGISendCallable,
    HTTPResponseBodyEvent,
    HTTPResponseStartEvent,
    HTTPScope,
    WebsocketScope,
)
from quart import Request as QuartRequest
from quart import Response as QuartResponse
from quart import Websocket
from quart.typing import ResponseTypes
from quart.utils import encode_headers
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection

from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.http.connections import LINGER_S, no_room, too_slow_body
from corvo.router.http.http2_guard import FRAME_BYTES_MAX
from corvo.router.http.messages import ClientGone, Problem, Request, Response, Sink
from corvo.router.http.params import check_parameters
from corvo.router.http.parsing import (
    OF_ONE_HOP,
    check_wishes,
    join,
    too_large_body,
    too_large_head,
)
from corvo.router.http.rendering import WITHOUT_BODY
from corvo.router.routes import Found
from corvo.router.server.door import Door, read_query
from corvo.router.server.slow_lane import Exchange
from corvo.router.stream.stream import Channel, ChannelClosed

STREAM_PATH: Final = "/api/v1/stream"

RunStream: TypeAlias = Callable[[Api, Request, Channel], Awaitable[None]]
GiveBack: TypeAlias = Callable[[], Awaitable[None]]
Stream: TypeAlias = Callable[[Sink], Awaitable[None]]


class TooManyAnswers(ClientGone):
    """A client does not read its answers, and asks for more."""


class _Connection(TrioASGIHTTPConnection):
    """One request, whose answer may have to be taken back when it does not arrive."""

    # Quart's trio half takes a nursery here and its other half does not; we only follow.
    async def handle_request(  # type: ignore[override]
        self, nursery: trio.Nursery, request: QuartRequest, send: ASGISendCallable
    ) -> None:
        """See the class above."""
        is_delivered = False
        try:
            response = await self.app.handle_request(request)
            stream: Stream | None = self.scope["state"].get("stream")
            if stream is None or request.method == "HEAD":
                await self._send_response(send, response)
                is_whole = True
            else:
                is_whole = await self._send_stream(send, response, stream)
            # Behind the last byte hypercorn awaits nothing that could be cancelled.
            is_delivered = is_whole and not exchange_of(self.scope).is_broken
        finally:
            exchange_of(self.scope).keep(-self.scope["state"].get("kept_bytes", 0))
            give_back: GiveBack | None = self.scope["state"].get("undelivered")
            if give_back is not None and not is_delivered:
                with trio.CancelScope(shield=True):
                    await give_back()
        nursery.cancel_scope.cancel()

    async def _send_stream(
        self, send: ASGISendCallable, response: ResponseTypes, stream: Stream
    ) -> bool:
        """Send an answer piece by piece. False when nobody reads it to its end."""
        exchange = exchange_of(self.scope)
        headers = encode_headers(response.headers)
        await send(
            HTTPResponseStartEvent(
                type="http.response.start", status=response.status_code, headers=headers
            )
        )
        try:
            await stream(_Sink(send, self.scope))
        except ClientGone as error:
            why = "answer_bytes" if isinstance(error, TooManyAnswers) else "stalled"
            await exchange.give_up(self.scope, why)
            await trio.lowlevel.checkpoint()
            return False
        number = exchange.number_of(self.scope)
        await send(_piece(b"", has_more=False))
        if self.scope["state"].get("is_unread"):
            await exchange.refuse_more(number)
        return True


class _Sink:
    """The way of a stream to its client."""

    def __init__(self, send: ASGISendCallable, scope: HTTPScope) -> None:
        self._send = send
        self._scope = scope
        self._exchange = exchange_of(scope)
        self.is_slow = False

    async def send(self, data: bytes) -> None:
        """See `Sink`."""
        if not data:
            return  # it would end nothing, and tell nobody anything
        until = trio.current_time() + self._exchange.send_s
        self._exchange.wait_until(until)
        with trio.CancelScope(deadline=until) as scope:
            await self._send(_piece(data, has_more=True))
            await self._exchange.drain(self._scope)
        if scope.cancelled_caught:
            self.is_slow = True
            raise ClientGone(f"a piece took more than {self._exchange.send_s:g} s")
        if self._exchange.is_broken:
            raise ClientGone("the connection is broken")


def _keep(body: bytes, scope: HTTPScope | WebsocketScope) -> Stream:
    """Keep an answer of HTTP/2 until it is sent: in pieces, since hypercorn copies what waits."""
    scope["state"]["kept_bytes"] = len(body)
    has_room = exchange_of(scope).keep(len(body))

    async def send(sink: Sink) -> None:
        if not has_room:
            raise TooManyAnswers
        for at in range(0, len(body), FRAME_BYTES_MAX):
            await sink.send(body[at : at + FRAME_BYTES_MAX])

    return send


def _piece(data: bytes, *, has_more: bool) -> HTTPResponseBodyEvent:
    return HTTPResponseBodyEvent(type="http.response.body", body=data, more_body=has_more)


class App(QuartTrio):
    """Quart, with our own way from a request to its answer."""

    asgi_http_class = _Connection

    def __init__(self, door: Door, run_stream: RunStream) -> None:
        super().__init__(__name__, static_folder=None)
        # Ours are tighter, and theirs would answer with a page.
        self.config["MAX_CONTENT_LENGTH"] = None
        self.config["BODY_TIMEOUT"] = None
        self._door = door
        self._run_stream = run_stream

    async def handle_request(self, request: QuartRequest) -> QuartResponse:
        """Answer a request."""
        scope = request.scope
        ours = _request_of(scope, request.method)
        found = self._door.find(ours.method, ours.path)
        try:
            ours.body = await self._take_in(request, ours, found)
            ours.query = read_query(scope["query_string"].decode("latin-1"))
        except Problem as problem:
            response = self._door.turn_away(problem, ours)
        else:
            response = await self._door.answer_at(found, ours)
        scope["state"]["undelivered"] = response.undelivered
        scope["state"]["stream"] = response.stream
        if scope["http_version"] == "2" and response.stream is None:
            scope["state"]["stream"] = _keep(response.body, scope)
        return _as_quart(response)

    async def handle_websocket(self, socket: Websocket) -> QuartResponse | None:
        """Have a stream served, or answer as to any request. Quart closes what is still open."""
        scope, api = socket.scope, self._door.api
        ours = _request_of(scope, "GET")
        if ours.path != STREAM_PATH:
            return _as_quart(await self._door.answer(ours))
        try:
            _check_version(scope)
            self._check_headers(ours)
            ours.query = read_query(scope["query_string"].decode("latin-1"))
            check_parameters(ours.query, ())
            ours.caller = await api.who(ours)
        except Problem as problem:
            return _as_quart(self._door.turn_away(problem, ours))
        ours.id = self._door.name(ours.headers)
        await socket.accept()
        await self._run_stream(api, ours, _Channel(socket, exchange_of(scope)))
        return None

    def _check_headers(self, request: Request) -> None:
        """Check and take out what the reader of HTTP/1.1 would have. Raises `Problem`.

        Over HTTP/2 the bound on headers is four times ours, with any setting of hypercorn.
        """
        limits, headers = self._door.api.limits, request.headers
        size = sum([len(name) + len(value) + 4 for name, value in headers.items()])
        if len(headers) > limits.headers_max or size > limits.header_bytes_max:
            raise too_large_head(limits)
        check_wishes(headers)
        request.headers = {name: value for name, value in headers.items() if name not in OF_ONE_HOP}

    async def _take_in(self, request: QuartRequest, ours: Request, found: Found | None) -> bytes:
        """Check the headers, and read the body. Raises `Problem`."""
        # Only reads are held up: other answers are small.
        waits = ours.method == "GET" or (found is not None and found.route.action is Action.READ)
        try:
            self._check_headers(ours)
            return await self._read_body(request, exchange_of(request.scope), waits=waits)
        except Problem:
            request.scope["state"]["is_unread"] = True
            with trio.move_on_after(LINGER_S):
                async for _ in request.body:
                    pass
                request.scope["state"]["is_unread"] = False
            raise

    async def _read_body(self, request: QuartRequest, exchange: Exchange, *, waits: bool) -> bytes:
        """The body; if it `waits`, once the client has read enough of earlier answers."""
        limits = self._door.api.limits
        body = bytearray()
        try:
            if (request.content_length or 0) > limits.body_bytes_max:
                raise too_large_body(limits)
            began = trio.current_time() + limits.body_grace_ms / 1_000
            with trio.CancelScope(deadline=began) as scope:
                async for data in request.body:
                    body += data
                    scope.deadline = began + len(body) / limits.body_rate_min
                    if not exchange.hold(len(data)):
                        raise no_room()
                    if len(body) > limits.body_bytes_max:
                        raise too_large_body(limits)
            if scope.cancelled_caught:
                raise too_slow_body(limits)
            if waits:
                await exchange.until_room()
        finally:
            exchange.hold(-len(body))
        return bytes(body)


class _Channel:
    """A WebSocket as streams want it."""

    def __init__(self, socket: Websocket, exchange: Exchange) -> None:
        self._socket = socket
        self._exchange = exchange

    async def receive(self) -> bytes | str:
        """The next message; when there will be none any more, quart cancels us."""
        message: bytes | str | None = await self._socket.receive()
        return b"" if message is None else message  # as quart has it, an empty one is none

    async def send(self, message: bytes | str) -> None:
        """Send a message. Raises `ChannelClosed`."""
        await self._socket.send(message)
        if self._exchange.is_broken:
            raise ChannelClosed("the connection is broken")

    async def close(self, code: int, reason: str) -> None:
        """Say why it ends. Raises `ChannelClosed`."""
        await self._socket.close(code, reason)
        if self._exchange.is_broken:
            raise ChannelClosed("the connection is broken")


def _check_version(scope: HTTPScope | WebsocketScope) -> None:
    """Raise `Problem` if a stream comes over HTTP/2."""
    if scope["http_version"] == "2":
        raise Problem(501, "UNSUPPORTED", "WebSocket is not available over HTTP/2: use HTTP/1.1")


def exchange_of(scope: HTTPScope | WebsocketScope) -> Exchange:
    """Through which connection a request came."""
    exchange = scope["state"]["exchange"]
    assert isinstance(exchange, Exchange)
    return exchange


def _request_of(scope: HTTPScope | WebsocketScope, method: str) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = join(name, headers[name], value) if name in headers else value
    client = scope["client"]
    return Request(
        method=method,
        path=scope["raw_path"].decode("latin-1"),
        headers=headers,
        peer=client[0] if client is not None else "",
    )


def _as_quart(response: Response) -> QuartResponse:
    made = App.response_class(response.body, response.status, content_type=response.content_type)
    made.headers.extend(response.headers)
    if response.stream is not None:
        del made.headers["content-length"]
    elif not response.body:
        del made.headers["content-type"]
        if response.status in WITHOUT_BODY:
            del made.headers["content-length"]
    return made
