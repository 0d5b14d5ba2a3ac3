"""Connections that the node has accepted from other nodes, and hands over to this process.

Each comes over a connection of its own to a Unix socket, as a file descriptor beside one byte.
"""

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from corvo import peer_preamble
from corvo.link import listen_unix

_FDS_MAX: Final = 1


async def serve_handed(
    path: str,
    handler: Callable[[trio.SocketStream], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call `handler` with each connection that is handed over at `path`, until cancelled."""
    listener = await listen_unix(path)
    task_status.started()
    await trio.serve_listeners(partial(_take, handler), [listener])


async def _take(
    handler: Callable[[trio.SocketStream], Awaitable[None]], stream: trio.SocketStream
) -> None:
    await trio.lowlevel.wait_readable(stream.socket)
    with socket.socket(fileno=stream.socket.fileno()) as bare:
        try:
            _, handed, _, _ = socket.recv_fds(bare, 1, _FDS_MAX)
        finally:
            bare.detach()
    await stream.aclose()
    for descriptor in handed:
        taken = trio.SocketStream(
            trio.socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
        )
        socket.close(descriptor)
        with suppress(trio.BrokenResourceError):
            await taken.send_all(peer_preamble.OK)
            await handler(taken)
        await taken.aclose()
