"""Accepting connections: limits, TLS, and the orderly stop.

    accept  ->  room?  ->  TLS  ->  a conversation

Sockets are inherited, so that clients who come in while the router is started again wait instead of
being turned away. Of each bound on connections there is one place: `connections`.
"""

import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio
from hypercorn.typing import ASGIFramework
from trio.lowlevel import wait_readable

from corvo import clock
from corvo.router.config import BadRouterConfig, RouterConfig
from corvo.router.http.connections import Connections, Seat, no_room
from corvo.router.http.lines import READ_BYTES_MAX, Hangups, Line, LineBroken, PlainLine, TlsLine
from corvo.router.http.messages import Request
from corvo.router.http.rendering import date_line, head_of
from corvo.router.server.door import Door
from corvo.router.server.fast_lane import Conversation, FastLane
from corvo.router.server.slow_lane import Ends, SlowLane
from corvo.telemetry import Log

_ACCEPTS_MAX: Final = 64
"""In one go: others want to be served, too."""
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""What `accept` says when this process or machine can have no more sockets."""
_BREATH_S: Final = 0.1
"""How long nobody is let in when there is no room, and nobody who could make some."""
_RESWEEP_S: Final = 0.05
"""Between two sweeps when the first has left something to do: others want to be served, too."""
_CERTIFICATE_S: Final = 5.0
"""Between two looks whether there is a new certificate."""
_HEARD_OUT_MAX: Final = 64
"""Clients that were turned away and are heard out at a time."""
_HEAR_OUT_S: Final = 2.0
_KEEPALIVE: Final = (
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 15),
    (socket.TCP_KEEPCNT, 4),
)
"""A client whose machine is gone is found out after two minutes, also while it waits for work."""


async def serve(
    door: Door,
    app: ASGIFramework,
    config: RouterConfig,
    log: Log,
    *,
    stop: trio.Event,
    fast: bool = True,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until `stop` is set and what was under way has ended, or its time is over.

    `ready` is called when clients are let in.
    """
    server = Server(door, app, config, log)
    server.lane.is_open = fast
    await server.run([socket.socket(fileno=fd) for fd in config.listen], stop, ready)


class Server:
    """One of these is a router's face."""

    def __init__(self, door: Door, app: ASGIFramework, config: RouterConfig, log: Log) -> None:
        hangups = Hangups()
        slow = SlowLane(app, config.limits, log, hangups)
        self.connections: Final = Connections(config.limits)
        read = door.api.metrics.read
        read("corvo_http_connections", lambda: len(self.connections.seats))
        read("corvo_http_pauses_total", lambda: self.connections.pauses)
        self.lane: Final = FastLane(door, self.connections, hangups, slow)
        door.api.metrics.aborts = slow.aborts
        self._config = config
        self._log = log
        self._certificate = _Certificate(config, log) if config.tls_cert else None
        self._was_full = False  # and that has been logged
        self._heard_out = 0
        self.now: Callable[[], float] = trio.current_time

    async def run(
        self,
        listeners: Sequence[socket.socket],
        stop: trio.Event,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """See `serve`."""
        self._sweep()
        async with trio.open_nursery() as upkeep:
            upkeep.start_soon(self._keep_sweeping)
            upkeep.start_soon(self.lane.hangups.run)
            if self._certificate is not None:
                upkeep.start_soon(self._certificate.keep_fresh)
            async with trio.open_nursery() as clients:
                await self._let_in(listeners, clients, stop, ready)
                self.connections.stop()
                await self.lane.slow.stop()
                upkeep.start_soon(self._cut_off)
            upkeep.cancel_scope.cancel()

    async def _let_in(
        self,
        listeners: Sequence[socket.socket],
        clients: trio.Nursery,
        stop: trio.Event,
        ready: Callable[[], None],
    ) -> None:
        try:
            async with trio.open_nursery() as doors:
                for listener in listeners:
                    listener.setblocking(False)
                    doors.start_soon(self._accept, listener, clients)
                ready()
                await stop.wait()
                doors.cancel_scope.cancel()
        finally:
            for listener in listeners:
                listener.close()
            if not stop.is_set():  # we are cancelled, and nobody may hold that up
                self.connections.cut_all()

    async def _cut_off(self) -> None:
        """End what has not ended by itself."""
        try:
            await trio.sleep(self._config.drain_ms / 1_000)
        finally:
            self.connections.cut_all()

    async def _keep_sweeping(self) -> None:
        has_more = False
        while True:
            pause_s = self.connections.sweep_s
            await trio.sleep(min(pause_s, _RESWEEP_S) if has_more else pause_s)
            has_more = self._sweep()

    def _sweep(self) -> bool:
        return self.connections.sweep(self.now(), date_line(clock.now_ns()))

    # Who comes in.

    async def _accept(self, listener: socket.socket, clients: trio.Nursery) -> None:
        while True:
            await wait_readable(listener)
            for _ in range(_ACCEPTS_MAX):
                try:
                    client, _ = listener.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in _NO_ROOM and not self._make_room(str(error)):
                        await trio.sleep(_BREATH_S)
                    break  # else it was gone before it was let in
                self._admit(client, clients)

    def _make_room(self, why: str) -> bool:
        if not self._was_full:
            self._was_full = True
            self._log.warning(
                "connections.full", open=len(self.connections.seats), why=why or "connections_max"
            )
        return self.connections.make_room()

    def _admit(self, client: socket.socket, clients: trio.Nursery) -> None:
        client.setblocking(False)
        ends = _prepare(client, self._config)
        if ends is None:
            client.close()
        elif self.connections.is_full and not self._make_room(""):
            self._turn_away(client, clients)
        else:
            self._was_full = self._was_full and self.connections.is_full
            scope = trio.CancelScope()
            seat = self.connections.enter(scope.cancel)
            clients.start_soon(self._talk, client, ends, scope, seat)

    async def _talk(
        self, client: socket.socket, ends: Ends, scope: trio.CancelScope, seat: Seat
    ) -> None:
        """One connection, from its first byte to its last."""
        line: Line = PlainLine(client, seat)
        conversation: Conversation | None = None
        try:
            with suppress(LineBroken):
                with scope:
                    alpn = "http/1.1"
                    if self._certificate is not None:
                        line = tls = TlsLine(client, self._certificate.context, seat)
                        alpn = await tls.shake_hands()
                    conversation = Conversation(self.lane, line, seat, ends)
                    await conversation.run(alpn)
                if conversation is not None and seat.refusal is not None:
                    await conversation.last_words()
        except Exception as error:  # noqa: BLE001 -- a bug in one connection must not end the others
            self.lane.slow.failed(ends.client[0], error)
        finally:
            if conversation is not None:
                conversation.close()
            self.lane.hangups.leave(line.fd)
            line.close()
            self.connections.leave(seat)

    def _turn_away(self, client: socket.socket, clients: trio.Nursery) -> None:
        """There is no room, and nobody can be asked to leave."""
        if self._certificate is not None or self._heard_out >= _HEARD_OUT_MAX:
            client.close()  # a few lines of plain text would only be taken for an attack
            return
        response = self.lane.door.turn_away(no_room(), Request(method="GET", path=""))
        with suppress(OSError):
            client.send(head_of(response, self.connections.date, keeps=False) + response.body)
            client.shutdown(socket.SHUT_WR)
        self._heard_out += 1
        clients.start_soon(self._hear_out, client)

    async def _hear_out(self, client: socket.socket) -> None:
        """Wait until a client that was turned away has read why, and gone."""
        try:
            with trio.move_on_after(_HEAR_OUT_S), suppress(OSError):
                while True:
                    await wait_readable(client)
                    if not client.recv(READ_BYTES_MAX):
                        break
        finally:
            client.close()
            self._heard_out -= 1


def _prepare(client: socket.socket, config: RouterConfig) -> Ends | None:
    """Set a socket up, and say whom it connects; None when it is gone already."""
    try:
        if client.family == socket.AF_UNIX:
            return Ends(client=("local", 0), server=("local", 0))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, config.limits.send_ms)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            client.setsockopt(socket.IPPROTO_TCP, option, value)
        return Ends(
            client=_address(client.getpeername()),
            server=_address(client.getsockname()),
            is_tls=bool(config.tls_cert),
        )
    except OSError:
        return None


def _address(name: tuple[str, int]) -> tuple[str, int]:
    """Host and port; a client of IPv4 is one also where it came in through an IPv6 socket."""
    return name[0].removeprefix("::ffff:"), name[1]


def load_context(certificate: str, key: str, *, has_http2: bool) -> ssl.SSLContext:
    """What TLS needs, from its files. Raises `BadRouterConfig`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["h2", "http/1.1"] if has_http2 else ["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise BadRouterConfig(f"tls_cert, tls_key: {certificate}, {key}: {error}") from error
    return context


class _Certificate:
    """The files of TLS as they are on the disk: a new certificate needs no new start."""

    def __init__(self, config: RouterConfig, log: Log) -> None:
        self._paths = (config.tls_cert, config.tls_key)
        self._log = log
        self._seen = self._stamps()  # before they are read, so that no change is missed
        self._has_http2 = config.has_http2
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        return load_context(*self._paths, has_http2=self._has_http2)

    async def keep_fresh(self) -> None:
        """Load it again when it has changed; what cannot be used is left alone."""
        while True:
            await trio.sleep(_CERTIFICATE_S)
            found = await trio.to_thread.run_sync(self._stamps)
            if found == self._seen:
                continue
            self._seen = found
            try:
                self.context = self._load()
                self._log.info("certificate.loaded", path=self._paths[0])
            except BadRouterConfig as error:
                self._log.error("certificate.refused", error=str(error))

    def _stamps(self) -> list[tuple[int, int]]:
        stamps = []
        for path in self._paths:
            try:
                found = Path(path).stat()
                stamps.append((found.st_mtime_ns, found.st_ino))
            except OSError:
                stamps.append((0, 0))  # it is just being replaced
        return stamps
