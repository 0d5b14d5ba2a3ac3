"""Handing an open connection to another process of the node, over a Unix socket.

    await hand_over(path, stream)                   the process that has accepted the connection
    await serve_handed(path, handler)               the process that gets it

The connection itself is passed on (SCM_RIGHTS), so the first process is no longer part of it. The
second one writes the line `ok`: the other end reads it only from a process that has the connection.
"""

import socket
from array import array
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from typing import Final, NoReturn

import trio

from corvo import peer_preamble
from corvo.connections import listen_unix

TAKE_S: Final = 5.0
"""The time limit of handing over. A healthy process of this node needs less than a millisecond."""

_MARK: Final = b"\0"
"""A descriptor travels with at least one byte."""
_INT_BYTES: Final = array("i").itemsize


async def hand_over(path: str, stream: trio.SocketStream) -> None:
    """Pass a connection to the process that listens at `path`. Raises `OSError`.

    The caller closes its own end of it.
    """
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as local:
        await local.connect(path)
        descriptor = array("i", [stream.socket.fileno()])
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)
        await local.sendmsg([_MARK], [rights])


async def serve_handed(
    path: str,
    handler: Callable[[trio.SocketStream], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> NoReturn:
    """Run `handler` with each connection that is handed over at `path`, and close it afterwards.

    Raises `OSError` when this process cannot listen there, and what `handler` raises.
    """

    async def take(local: trio.SocketStream) -> None:
        handed: trio.SocketStream | None = None
        with trio.move_on_after(TAKE_S):
            handed = await _receive(local)
        await trio.aclose_forcefully(local)
        if handed is not None:
            try:
                if await _answer(handed):
                    await handler(handed)
            finally:
                await trio.aclose_forcefully(handed)

    async with await listen_unix(path) as listener:
        task_status.started()
        await trio.serve_listeners(take, [listener])


async def _answer(handed: trio.SocketStream) -> bool:
    """Tell the other end that this process has the connection; false when it is gone."""
    with trio.move_on_after(TAKE_S):
        try:
            await handed.send_all(peer_preamble.OK)
        except trio.BrokenResourceError:
            return False
        return True
    return False


async def _receive(local: trio.SocketStream) -> trio.SocketStream | None:
    """The connection that is handed over; None when something else comes, or nothing."""
    try:
        _, control, _, _ = await local.socket.recvmsg(
            len(_MARK), socket.CMSG_LEN(_INT_BYTES), socket.MSG_CMSG_CLOEXEC
        )
    except OSError:
        return None
    # Nothing waits from here on, so nothing that is cancelled can leave a descriptor open.
    with ExitStack() as undo:
        opened = _sockets(control, undo)
        if len(opened) != 1 or opened[0].type != socket.SOCK_STREAM:
            return None
        undo.pop_all()
    return trio.SocketStream(trio.socket.from_stdlib_socket(opened[0]))


def _sockets(control: Iterable[tuple[int, int, bytes]], undo: ExitStack) -> list[socket.socket]:
    """Sockets in control messages. Other descriptors are closed; `undo` closes the sockets."""
    descriptors = array("i")
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % _INT_BYTES])
    opened = []
    for descriptor in descriptors:
        try:
            opened.append(socket.socket(fileno=descriptor))
        except OSError:
            socket.close(descriptor)
        else:
            undo.callback(opened[-1].close)
    return opened
