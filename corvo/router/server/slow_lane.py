"""The slow lane: WebSocket and HTTP/2, by way of hypercorn and quart-trio.

Hypercorn's protocol objects know no sockets: they are handed bytes, and hand out bytes. An exchange
is one request that has been read whole, answered by a protocol object of its own; behind it the
connection is ours again. WebSocket and HTTP/2 keep theirs until the connection ends.
"""

import math
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio
from h2.errors import ErrorCodes
from h2.events import StreamReset
from h2.exceptions import ProtocolError
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.logging import Logger
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState, HTTPScope

from corvo.router.config import Limits
from corvo.router.http.connections import LINGER_S, Seat, Stage
from corvo.router.http.http2_guard import FRAME_BYTES_MAX, Http2Guard
from corvo.router.http.http2_order import RoundRobin
from corvo.router.http.lines import Hangups, Line, LineBroken
from corvo.router.http.rendering import with_reason
from corvo.router.http.websocket_guard import WebSocketGuard
from corvo.router.server.turns import Turns
from corvo.telemetry import Log

_STREAMS_MAX: Final = 100
"""Of one HTTP/2 connection at a time; what RFC 9113 asks for at the least."""
_TOO_MANY: Final = b"too many control frames (limits.http2_control_max)"
_AT_ONCE: Final = 8
"""How many times the limit answers may have that were made at the same time."""
_OWN_HEADER_BYTES: Final = 1 << 10
"""What `parsing.as_bytes` may add to the headers that a client sent."""


@dataclass(frozen=True)
class Ends:
    """Whom a connection connects, and how."""

    client: tuple[str, int]
    server: tuple[str, int]
    is_tls: bool = False


class SlowLane:
    """What all exchanges share."""

    def __init__(self, app: ASGIFramework, limits: Limits, log: Log, hangups: Hangups) -> None:
        self.hangups: Final = hangups
        self.log: Final = log
        self.is_stopping = False
        self.send_s: Final = limits.send_ms / 1_000
        self.limits: Final = limits
        self.aborts: Final[Counter[str]] = Counter()
        """Connections and streams of HTTP/2 that were ended, by the limit that they exceeded."""
        self._app: Final = ASGIWrapper(app)
        self._config: Final = _configure(limits, log)
        self._context: Final = WorkerContext(None)

    def failed(self, peer: str, error: BaseException) -> None:
        """Log a bug, which ends one connection and no other."""
        self.log.bug("connection.failed", error, peer=peer)

    async def stop(self) -> None:
        """Have connections end with what they are at."""
        self.is_stopping = True
        await self._context.terminated.set()

    def protocol(
        self, group: TaskGroup, exchange: "Exchange", ends: Ends, alpn: str
    ) -> ProtocolWrapper:
        """A protocol object; what it spawns can find its exchange."""
        wrapper = ProtocolWrapper(
            self._app,
            self._config,
            self._context,
            group,
            ConnectionState({"exchange": exchange}),
            ends.is_tls,
            ends.client,
            ends.server,
            exchange.protocol_send,
            alpn,
        )
        if isinstance(wrapper.protocol, H2Protocol):
            wrapper.protocol.priority = RoundRobin()
            # Without WebSocket, whose frames no guard would see.
            settings = wrapper.protocol.connection.local_settings
            settings.enable_connect_protocol = 0
            settings.acknowledge()
        return wrapper


class Exchange:
    """One connection while hypercorn has it."""

    def __init__(self, lane: SlowLane, line: Line, seat: Seat, ends: Ends, turns: Turns) -> None:
        self.is_broken = False
        """Whether something that was to be sent has not left."""
        self.send_s: Final = lane.send_s
        """How long a piece of a stream may take."""
        self._lane = lane
        self._line = line
        self._seat = seat
        self._ends = ends
        self._turns = turns
        self._until = math.inf  # what is sent has to have left by then
        self._is_handed_over = False
        self._is_idle = False
        self._begun = trio.Event()  # it was answered, or that has begun
        self._held_bytes = 0
        self._ended = trio.Event()  # hypercorn is done with it, or the client is gone
        self._reading = trio.CancelScope()
        self._sends: dict[trio.CancelScope, None] = {}
        self._send_lock = trio.Lock()
        self._protocol: ProtocolWrapper | None = None
        self._guard: Http2Guard | None = None  # while it is HTTP/2
        self._answer_bytes = 0  # of answers that are kept until they are sent
        self._has_room = trio.Event()

    async def answer(self, data: bytes, *, is_parked: bool) -> bool:
        """Have one whole request answered. Returns whether the connection can serve another one.

        A client that goes away ends only what may wait for long.
        """
        if is_parked:
            self._lane.hangups.watch(self._line.fd, self._hung_up)
        try:
            async with TaskGroup() as group:
                protocol = self._begin(group, "http/1.1")
                await protocol.handle(RawData(data))
                await self._ended.wait()
                await protocol.handle(Closed())
        except* Exception as group_of:  # noqa: BLE001 -- hypercorn's bugs end one connection
            self._failed(group_of)
        finally:
            if is_parked:
                self._lane.hangups.forget(self._line.fd)
        return self._is_idle and not self.is_broken

    def _hung_up(self) -> None:
        self.is_broken = True  # what could still be sent, nobody would read
        self._ended.set()

    async def hand_over(self, head: bytes, data: bytes, alpn: str = "http/1.1") -> None:
        """Let hypercorn have the connection until it ends.

        `head` is the request that asked for that, if any, and `data` what was read behind it.
        """
        self._is_handed_over = self._is_idle = True
        try:
            async with TaskGroup() as group:
                protocol = self._begin(group, alpn)
                await protocol.initiate()
                with self._reading:
                    if head:
                        await protocol.handle(RawData(head))
                        # Hypercorn refuses frames that come before, and forgets its app then.
                        await self._begun.wait()
                    if isinstance(protocol.protocol, H2Protocol):
                        await self._read_http2(protocol.protocol, data)
                    else:
                        await self._read(protocol, data)
                await protocol.handle(Closed())
        except* Exception as group_of:  # noqa: BLE001 -- hypercorn's bugs end one connection
            self._failed(group_of)
        if self._guard is not None and self._guard.over:
            # It would be back at once, and a new connection costs more than a frame.
            self._seat.move(Stage.LINGERING)
            await trio.sleep(LINGER_S)

    async def _read(self, protocol: ProtocolWrapper, data: bytes) -> None:
        """Pass on what the client sends, a portion at a time."""
        guard = WebSocketGuard()
        while data := data or await self._line.receive():
            end, events = guard.portion(data, 0, self._lane.limits.turn_events_max)
            await protocol.handle(RawData(data[:end]))
            data = data[end:]
            if self._ended.is_set():
                return
            if data:
                await self._turns.spend(events)

    async def _read_http2(self, protocol: H2Protocol, data: bytes) -> None:
        """The same, until the client has sent too many frames that ask for nothing."""
        limits = self._lane.limits
        guard = self._guard = Http2Guard(limits.http2_control_max)
        while data := data or await self._line.receive():
            end, events = guard.portion(data, 0, limits.turn_events_max, trio.current_time())
            await protocol.handle(RawData(data[:end]))
            data = data[end:]
            if self._ended.is_set():
                return
            if guard.over:
                self._lane.aborts[guard.over] += 1
                protocol.connection.close_connection(ErrorCodes.ENHANCE_YOUR_CALM, _TOO_MANY)
                await self.protocol_send(RawData(protocol.connection.data_to_send()))
                return
            if data:
                await self._turns.spend(events)

    def _begin(self, group: TaskGroup, alpn: str) -> ProtocolWrapper:
        self._protocol = self._lane.protocol(group, self, self._ends, alpn)
        return self._protocol

    def _failed(self, error: ExceptionGroup[Exception]) -> None:
        self.is_broken = True
        self._lane.failed(self._ends.client[0], error)

    # What others ask of it.

    def cut(self) -> None:
        """Send no more, not even what is being sent."""
        for scope in self._sends:
            scope.cancel()

    def wait_until(self, until: float) -> None:
        """What is sent next has to have left by then.

        Not where others send beside it: of theirs, nothing may be cut off in the middle.
        """
        if not self._is_handed_over:
            self._until = until

    async def drain(self, scope: HTTPScope) -> None:
        """Wait until what was sent of an answer so far has left.

        Over HTTP/2 a client may open no window for it, and hypercorn keeps what is sent meanwhile,
        without a bound.
        """
        protocol, number = self._http2, self.number_of(scope)
        if protocol is not None and number in protocol.stream_buffers:
            await protocol.stream_buffers[number].drain()

    @property
    def _http2(self) -> H2Protocol | None:
        """The protocol object of HTTP/2; None for HTTP/1.1, which sends one answer at a time."""
        protocol = self._protocol.protocol if self._protocol is not None else None
        return protocol if isinstance(protocol, H2Protocol) else None

    def number_of(self, scope: HTTPScope) -> int:
        """The stream of HTTP/2 on which a request is answered; 0 if it has ended."""
        streams = self._http2.streams.items() if self._http2 is not None else ()
        return next((number for number, stream in streams if stream.scope is scope), 0)

    async def give_up(self, scope: HTTPScope, why: str) -> None:
        """Send nothing more of an answer, and no end: nobody may take what was sent for the whole.

        Over HTTP/2 other answers go on, and `why` is counted.
        """
        protocol = self._http2
        if protocol is None:
            self.drop()
            return
        number = self.number_of(scope)
        if self.is_broken or not number:
            return  # the client is gone, or has reset it
        self._lane.aborts[why] += 1
        with suppress(ProtocolError):
            protocol.connection.reset_stream(number, ErrorCodes.ENHANCE_YOUR_CALM)
        # As if the client had: what hypercorn keeps for it goes.
        await protocol._handle_events([StreamReset(stream_id=number)])  # noqa: SLF001

    async def refuse_more(self, number: int) -> None:
        """Read nothing more of a request that was answered before its end.

        Hypercorn has forgotten it by then, and takes it amiss when it goes on.
        """
        protocol = self._http2
        if protocol is not None and number:
            with suppress(ProtocolError):
                protocol.connection.reset_stream(number, ErrorCodes.NO_ERROR)
            await self.protocol_send(RawData(protocol.connection.data_to_send()))

    async def until_room(self) -> None:
        """Wait until the client has read enough of earlier answers."""
        while self._answer_bytes >= self._lane.limits.http2_answers_bytes:
            await self._has_room.wait()

    def keep(self, answer_bytes: int) -> bool:
        """So much more of answers is kept, or less. False when that is too much.

        Requests that were under way at the same time can go beyond the limit together, and so can
        those that do not wait for room.
        """
        is_alone = not self._answer_bytes
        self._answer_bytes += answer_bytes
        if answer_bytes < 0:
            self._has_room.set()
            self._has_room = trio.Event()
        bound = self._lane.limits.http2_answers_bytes * _AT_ONCE
        return is_alone or self._answer_bytes <= bound

    def drop(self) -> None:
        """Wait for this client no longer, whatever else is sent to it."""
        self.is_broken = True
        self._seat.cut()

    def hold(self, body_bytes: int) -> bool:
        """So much more of a body is kept, or less. False when there is no room for it."""
        self._held_bytes += body_bytes
        return self._seat.hold(self._held_bytes)

    async def protocol_send(self, event: Event) -> None:
        """What hypercorn has to say: bytes to be sent, that it is idle or not, or that it ends."""
        assert self._protocol is not None
        match event:
            case RawData(data=data):
                if self._guard is not None:
                    self._guard.sent(data)
                if self.is_broken or self._seat.is_cut or not data:
                    return
                if not await self._send(data):
                    self._end()
                    await self._protocol.handle(Closed())
            case Updated(idle=is_idle):
                self._is_idle = is_idle
                if self._seat.stage is not Stage.SENDING:
                    self._move()
                if is_idle and (not self._is_handed_over or self._lane.is_stopping):
                    self._end()
            case Closed():
                self._end()
                await self._protocol.handle(Closed())

    def _move(self) -> None:
        self._seat.move(Stage.IDLE if self._is_idle else Stage.ANSWERING)

    def _end(self) -> None:
        self._ended.set()
        self._reading.cancel()

    async def _send(self, data: bytes) -> bool:
        if not self._begun.is_set():
            self._begun.set()
            data = with_reason(data)
        # Whoever is cancelled in the middle of a frame would break the frames of all others. So
        # nobody is, but by `cut` or `wait_until`, behind which nothing follows.
        with trio.CancelScope(shield=True, deadline=self._until) as scope:
            self._sends[scope] = None
            try:
                async with self._send_lock:
                    await self._line.send(data)
            except LineBroken:
                self.is_broken = True
            finally:
                del self._sends[scope]
        if scope.cancelled_caught:
            self.is_broken = True
        if self._seat.stage is Stage.SENDING and not self._sends:
            self._move()
        return not self.is_broken


# Hypercorn's settings. What is not here is for what we do ourselves: sockets, timers, processes.


def _configure(limits: Limits, log: Log) -> Config:
    config = _Config(log)
    config.include_server_header = False
    config.h11_max_incomplete_size = limits.header_bytes_max + _OWN_HEADER_BYTES
    config.h2_max_concurrent_streams = _STREAMS_MAX
    config.h2_max_inbound_frame_size = FRAME_BYTES_MAX
    config.h2_max_header_list_size = limits.header_bytes_max
    config.keep_alive_max_requests = sys.maxsize
    config.max_app_queue_size = 10
    config.websocket_max_message_size = limits.body_bytes_max
    return config


class _Config(Config):
    def __init__(self, log: Log) -> None:
        self._own_log = _Logger(self, log)

    @property
    def log(self) -> Logger:
        return self._own_log


class _Logger(Logger):
    """Hypercorn's log: it has something to say only when the app has failed."""

    def __init__(self, config: Config, log: Log) -> None:
        config.errorlog = None
        super().__init__(config)
        self._log = log

    async def exception(self, message: str, *_: object, **__: object) -> None:
        error = sys.exception()
        assert error is not None, "it is called where one is handled"
        self._log.bug("app.failed", error, what=message)
