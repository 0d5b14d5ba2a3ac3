"""The port for other nodes: each connection names a process of this node, and is handed to it.

    port = PeerPort(listeners, find, node=2)
    await port.run(log)

The port reads one line (`corvo.peer_preamble`) and passes the connection on (`corvo.handover`). It
copies no byte of what follows and decides nothing about it: the process that gets the connection
checks who the other end is.
"""

import errno
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import trio

from corvo import peer_preamble
from corvo.connections import TcpAddress
from corvo.errors import WireError
from corvo.handover import hand_over
from corvo.peer_preamble import LINE_MAX
from corvo.telemetry import SILENT, Log
from corvo.topology import NODE, shard_target

CONNECTIONS_MAX: Final = 256
"""Connections that have not been handed over yet; more are closed at once."""

HAND_OVER_S: Final = 5.0
"""The time limit for the line, and for handing the connection over."""

_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
"""What `accept` says when this process or machine can have no more sockets."""
_PAUSE_S: Final = 0.1  # before another try then
_UNREAD_MAX: Final = 64 << 10
"""Bytes of a refused connection that are read, so that its end can read why before it is closed."""
_SHARD: Final = shard_target(0).removesuffix("0")


class _Refused(Exception):
    """The connection is not handed over, for this reason."""


class PeerPort:
    """Accepts connections of other nodes."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        find: Callable[[str], str | None],
        *,
        node: int,
    ) -> None:
        """`find` returns the path of the Unix socket of a process, such as `node` or `shard-3`.

        It returns None for a process that is not to be on this node. The caller closes `listeners`.
        """
        self._listeners: Final = listeners
        self._find = find
        self._node: Final = node
        self._open = 0
        self._was_full = False  # and that has been logged

    async def run(self, log: Log = SILENT) -> None:
        """Hand connections over until cancelled."""
        async with trio.open_nursery() as nursery:
            for listener in self._listeners:
                listener.setblocking(False)
                nursery.start_soon(self._accept, listener, nursery, log)
            await trio.sleep_forever()

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery, log: Log) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                accepted, _ = listener.accept()
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self._note_full(log, str(error))
                    await trio.sleep(_PAUSE_S)
                continue  # else the other end has left before it was accepted
            if self._open >= CONNECTIONS_MAX:
                accepted.close()
                self._note_full(log, f"{CONNECTIONS_MAX} connections have not named a process yet")
                continue
            self._open += 1
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
            nursery.start_soon(self._serve, stream, log)

    def _note_full(self, log: Log, why: str) -> None:
        if not self._was_full:
            self._was_full = True
            log.warning("peer_port.full", reason=why)

    async def _serve(self, stream: trio.SocketStream, log: Log) -> None:
        try:
            with trio.move_on_after(HAND_OVER_S), suppress(trio.BrokenResourceError):
                try:
                    await self._pass_on(stream)
                except (_Refused, WireError) as error:
                    log.debug("peer_port.refused", address=_address_of(stream), reason=str(error))
                    await _refuse(stream, str(error))
        finally:
            await trio.aclose_forcefully(stream)
            self._open -= 1
            self._was_full = self._was_full and self._open > 0

    async def _pass_on(self, stream: trio.SocketStream) -> None:
        target = peer_preamble.read_request(await _read_line(stream))
        path = self._find(target)
        if path is None:
            raise _Refused(self._missing(target))
        try:
            await hand_over(path, stream)
        except (FileNotFoundError, ConnectionError) as error:
            raise _Refused(f"{self._name(target)} is not running") from error
        except OSError as error:
            why = f"{self._name(target)} does not take connections: {error.strerror}"
            raise _Refused(why) from error

    def _name(self, target: str) -> str:
        return f"{'the router' if target == NODE else target} of node {self._node}"

    def _missing(self, target: str) -> str:
        if target.startswith(_SHARD):
            return f"node {self._node} has no replica of shard {target.removeprefix(_SHARD)}"
        return f"node {self._node} has no process named {target}"


async def _read_line(stream: trio.SocketStream) -> bytes:
    """The first line, without its end. Raises `WireError` when it is not the only thing that came.

    The end that dials waits for an answer. So nothing follows that would belong to the process.
    """
    data = b""
    while b"\n" not in data:
        if len(data) > LINE_MAX or not peer_preamble.may_be_request(data):
            return data  # which is refused
        received = await stream.receive_some(LINE_MAX)
        if not received:
            raise WireError("the connection ended within its first line")
        data += received
    line, _, rest = data.partition(b"\n")
    if rest and peer_preamble.may_be_request(line):
        raise WireError("bytes came after the first line, before it was answered")
    return line


async def _refuse(stream: trio.SocketStream, why: str) -> None:
    """Send the reason, and wait until the other end has read it, or has no time left.

    A socket that is closed on unread bytes discards what it has not delivered.
    """
    await stream.send_all(peer_preamble.refusal(why))
    await stream.send_eof()
    unread = 0
    while unread < _UNREAD_MAX and (data := await stream.receive_some(LINE_MAX)):
        unread += len(data)


def _address_of(stream: trio.SocketStream) -> str:
    with suppress(OSError):
        host, port = stream.socket.getpeername()[:2]
        return str(TcpAddress(host, port))
    return ""
