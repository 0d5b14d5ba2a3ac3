"""The quart app of the slow lane: requests to the door, and WebSockets to the stream.

Quart routes nothing here: the route table does that, for both lanes. So what is not there, or not
allowed, is answered as it is everywhere else, and never with a page of quart's own.

Over HTTP/1.1 a body has been read, and bounded, before it comes here. HTTP/2 brings its requests
side by side, so their bodies are read here, under the same bounds.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

import trio
from hypercorn.typing import ASGISendCallable, HTTPScope, WebsocketScope
from quart import Request as QuartRequest
from quart import Response as QuartResponse
from quart import Websocket
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from werkzeug.datastructures import Headers
from werkzeug.exceptions import RequestEntityTooLarge

from corvo.router.api import Api
from corvo.router.config import Limits
from corvo.router.connections import no_room, too_slow
from corvo.router.door import Door, read_query
from corvo.router.http import Problem, Request, Response
from corvo.router.parsing import too_large_body, too_large_head
from corvo.router.refusing import turn_away
from corvo.router.slow_lane import Exchange
from corvo.router.stream import Channel, ChannelClosed

STREAM_PATH: Final = "/api/v1/stream"

RunStream: TypeAlias = Callable[[Api, Request, Channel], Awaitable[None]]
GiveBack: TypeAlias = Callable[[], Awaitable[None]]


def make_app(door: Door, run_stream: RunStream) -> "App":
    """The app. `run_stream` serves a WebSocket that was accepted until it ends."""
    return App(door, run_stream)


class _Connection(TrioASGIHTTPConnection):
    """One request, whose answer may have to be taken back when it does not arrive."""

    async def handle_request(
        self, nursery: trio.Nursery, request: QuartRequest, send: ASGISendCallable
    ) -> None:
        """See the class above."""
        is_delivered = False
        try:
            response = await self.app.handle_request(request)
            await self._send_response(send, response)
            # Behind the last byte hypercorn awaits nothing that could be cancelled.
            is_delivered = not exchange_of(self.scope).is_broken
        finally:
            give_back: GiveBack | None = self.scope["state"].get("undelivered")
            if give_back is not None and not is_delivered:
                with trio.CancelScope(shield=True):
                    await give_back()
        nursery.cancel_scope.cancel()


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
        ours = _request_of(scope, scope["method"])
        try:
            if len(scope_headers(scope)) > self._door.api.limits.headers_max:
                raise too_large_head(self._door.api.limits)
            ours.query = read_query(scope["query_string"].decode("latin-1"))
            ours.body = await _read_body(request, self._door.api.limits)
        except Problem as problem:
            return _quart_response(turn_away(self._door, problem, ours))
        response = await self._door.answer(ours)
        scope["state"]["undelivered"] = response.undelivered
        return _quart_response(response)
