"""Nodes that are about to join: they ask this node about its cluster, and are announced by it.

A node that joins knows neither the cluster nor where shard 0 is. It connects to any node, and this
router passes on the two requests that such a node may make.
"""

from contextlib import suppress
from typing import Final

import trio

from corvo.errors import WireError
from corvo.handover import serve_handed
from corvo.link import Link, LinkLost, accept_link
from corvo.protocol import wire
from corvo.protocol.ops import NUMBERS
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.ops.cluster import HOME, Announce
from corvo.protocol.queries import NUMBERS as QUERY_NUMBERS
from corvo.protocol.queries import GetMap
from corvo.router.api import Api
from corvo.router.http.messages import Problem
from corvo.router.shards.links import Answer

_OP: Final = NUMBERS[Announce]
_QUERY: Final = QUERY_NUMBERS[GetMap]


async def serve(api: Api) -> None:
    """Answer nodes that join until cancelled; returns at once for a server that runs alone."""
    if api.config.peer_socket:

        async def take(stream: trio.SocketStream) -> None:
            await _serve(api, stream)

        await serve_handed(api.config.peer_socket, take)


async def _serve(api: Api, stream: trio.SocketStream) -> None:
    hello = wire.make_hello(api.config, wire.ROUTER, shard=wire.ALL_SHARDS)
    with suppress(LinkLost, WireError):
        async with accept_link(stream, hello, security=api.config.security) as link:
            while requests := await link.receive(wire.FROM_ROUTER):
                for request in requests:
                    await _answer(api, link, request)


async def _answer(api: Api, link: Link, request: wire.Request) -> None:
    try:
        answer = await _pass_on(api, request)
    except Problem as problem:
        refused = Rejected(problem.reason or "unavailable", problem.error)
        link.send(wire.Reply(request.id, refused.code, encode_json(refused)))
    else:
        link.send(wire.Reply(request.id, "", answer.body, answer.index))


async def _pass_on(api: Api, request: wire.Request) -> Answer:
    shard = api.shards[HOME]
    match request:
        case wire.Submit(op=number) if number == _OP:
            return await shard.submit_bytes(number, request.body, may_repeat=True)
        case wire.Ask(query=number) if number == _QUERY:
            return await shard.ask(GetMap())
        case _:
            raise Problem(403, "FORBIDDEN", "a node that joins may not ask for this")
