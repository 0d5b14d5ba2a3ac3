"""The ports at which nodes accept each other's connections, of nodes that are not there."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

from corvo import peer_preamble


@asynccontextmanager
async def peer_ports(ports: Mapping[int, Mapping[str, str]]) -> AsyncIterator[None]:
    """Accept connections at each port, and hand them over: to sockets by the names of targets."""
    async with trio.open_nursery() as nursery:
        for port, targets in ports.items():
            listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, partial(_hand_over, targets), listeners)
        yield
        nursery.cancel_scope.cancel()


async def _hand_over(targets: Mapping[str, str], stream: trio.SocketStream) -> None:
    line = b""
    with suppress(trio.BrokenResourceError):
        while not line.endswith(b"\n"):
            data = await stream.receive_some(1)
            if not data:
                return
            line += data
        target = targets[peer_preamble.read_request(line[:-1])]
        try:
            process = await trio.open_unix_socket(target)
        except OSError as error:
            await stream.send_all(peer_preamble.refusal(f"{target}: {error}"))
            return
        bare = socket.socket(fileno=process.socket.fileno())
        socket.send_fds(bare, [b"\0"], [stream.socket.fileno()])
        bare.detach()
        await process.aclose()
        await stream.aclose()
