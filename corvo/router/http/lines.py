"""Bytes to and from one client, plain or TLS, and the detection of a client that hangs up.

A plain line goes to its socket without trio's streams: what can be sent at once is, and the task
that sends is not put behind all others for it. That is worth a third of a small request.
"""

import errno
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import trio
from trio.lowlevel import wait_readable, wait_writable

from corvo.errors import CorvoError
from corvo.router.http.connections import Seat, Stage

READ_BYTES_MAX: Final = 64 << 10
"""In one read: some hundred small requests that came in at once."""
_SEND_BYTES_MAX: Final = 64 << 10
"""In one piece through TLS: a client that takes less in `send_ms` does not read."""
_HANG_UP: Final = select.EPOLLRDHUP | select.EPOLLONESHOT
"""One event: the other side is closed. Errors and resets are always among them."""


class LineBroken(CorvoError):
    """What was sent did not leave as a whole, and never will."""


class Line(Protocol):
    """The way to one client. One task receives and one sends, at a time."""

    @property
    def fd(self) -> int:
        """The descriptor of its socket."""

    async def receive(self) -> bytes:
        """What has come in, at least one byte; none when nothing more will."""

    def offer(self, data: bytes) -> bytes | memoryview:
        """Send what leaves at once; returns the rest. Raises `LineBroken`."""

    async def send(self, data: bytes | memoryview) -> None:
        """Send all of it. Raises `LineBroken`; also when cancelled, only a part may have left."""

    async def finish(self) -> None:
        """Say that nothing more will be sent."""

    @property
    def has_timed_out(self) -> bool:
        """Whether the kernel gave it up because the client takes nothing (`TCP_USER_TIMEOUT`)."""

    def close(self) -> None:
        """End it, with what was not sent yet."""


class PlainLine:
    """A socket, and nothing in between."""

    def __init__(self, client: socket.socket, seat: Seat) -> None:
        self._socket = client
        self._seat = seat
        self.fd: Final = client.fileno()

    async def receive(self) -> bytes:
        """See `Line`."""
        while True:
            await wait_readable(self.fd)
            try:
                return self._socket.recv(READ_BYTES_MAX)
            except BlockingIOError:
                continue
            except OSError:
                return b""  # reset by the client, or given up by the kernel: nothing more will come

    def offer(self, data: bytes | memoryview) -> bytes | memoryview:
        """See `Line`."""
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return data
        except OSError as error:
            raise LineBroken(str(error)) from error
        return memoryview(data)[sent:] if sent < len(data) else b""

    async def send(self, data: bytes | memoryview) -> None:
        """See `Line`."""
        rest = self.offer(data)
        if rest:
            await self._send_rest(memoryview(rest))

    async def _send_rest(self, rest: memoryview) -> None:
        try:
            while rest:
                self._seat.move(Stage.SENDING)
                await wait_writable(self.fd)
                with suppress(BlockingIOError):
                    rest = rest[self._socket.send(rest) :]
        except OSError as error:
            raise LineBroken(str(error)) from error

    async def finish(self) -> None:
        """See `Line`."""
        with suppress(OSError):  # it is gone already
            self._socket.shutdown(socket.SHUT_WR)

    @property
    def has_timed_out(self) -> bool:
        """See `Line`."""
        return _has_timed_out(self._socket)

    def close(self) -> None:
        """See `Line`."""
        self._socket.close()


class TlsLine:
    """The same through TLS."""

    def __init__(self, client: socket.socket, context: ssl.SSLContext, seat: Seat) -> None:
        self._socket = client
        self._stream = trio.SSLStream(
            trio.SocketStream(trio.socket.from_stdlib_socket(client)),
            context,
            server_side=True,
            https_compatible=True,
        )
        self._seat = seat
        self.fd: Final = client.fileno()

    async def shake_hands(self) -> str:
        """Agree on keys, and on the protocol, which is returned. Raises `LineBroken`."""
        try:
            await self._stream.do_handshake()
        except trio.BrokenResourceError as error:
            raise LineBroken(str(error)) from error
        return self._stream.selected_alpn_protocol() or "http/1.1"

    async def receive(self) -> bytes:
        """See `Line`."""
        try:
            return bytes(await self._stream.receive_some(READ_BYTES_MAX))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    def offer(self, data: bytes) -> bytes | memoryview:
        """See `Line`. Not before it is encrypted, and that waits."""
        return data

    async def send(self, data: bytes | memoryview) -> None:
        """See `Line`."""
        try:
            for at in range(0, len(data), _SEND_BYTES_MAX):
                self._seat.move(Stage.SENDING)
                await self._stream.send_all(data[at : at + _SEND_BYTES_MAX])
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LineBroken(str(error)) from error

    async def finish(self) -> None:
        """See `Line`. TLS has no way to close one half, so this is all that can be done."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.transport_stream.send_eof()

    @property
    def has_timed_out(self) -> bool:
        """See `Line`."""
        return _has_timed_out(self._socket)

    def close(self) -> None:
        """See `Line`."""
        self._socket.close()


def _has_timed_out(client: socket.socket) -> bool:
    return client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ETIMEDOUT


class Hangups:
    """Tells at once when a client has closed its side, without reading what it sent before that.

    One task and one `epoll` for all: a fetch that waits costs no task of its own. A socket is
    registered when it is watched first, and stays so until its connection ends.
    """

    def __init__(self) -> None:
        self._epoll: Final = select.epoll()
        self._watched: dict[int, Callable[[], None]] = {}
        self._has_event: dict[int, bool] = {}
        """By registered socket, whether its only event has come."""

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                await wait_readable(self._epoll.fileno())
                for fd, _ in self._epoll.poll(0):
                    self._has_event[fd] = True
                    hung_up = self._watched.pop(fd, None)
                    if hung_up is not None:
                        hung_up()
        finally:
            self._watched.clear()  # a later `forget` or `leave` has nothing to undo
            self._has_event.clear()
            self._epoll.close()

    def watch(self, fd: int, hung_up: Callable[[], None]) -> None:
        """Call `hung_up` once if the other side is closed, or was before."""
        assert fd not in self._watched
        self._watched[fd] = hung_up
        has_event = self._has_event.get(fd)
        if has_event is None:
            self._has_event[fd] = False
            self._epoll.register(fd, _HANG_UP)
        elif has_event:  # between two watches
            self._epoll.modify(fd, _HANG_UP)

    def forget(self, fd: int) -> None:
        """End a watch."""
        self._watched.pop(fd, None)

    def leave(self, fd: int) -> None:
        """A connection ends. To be called before its socket is closed."""
        if self._has_event.pop(fd, None) is not None:
            self._epoll.unregister(fd)
