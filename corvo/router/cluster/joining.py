"""What comes in from other nodes: nodes that are about to join, and routers with a question.

A node that joins knows neither the cluster nor where shard 0 is. It connects to any node, and this
router passes on the two requests that such a node may make. The router of a node that is in the
cluster asks for what this one has seen of workers (`corvo.router.shards.peers`).
"""

from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import trio

from corvo import clock
from corvo.errors import WireError
from corvo.handover import serve_handed
from corvo.link import Link, LinkLost, accept_link
from corvo.protocol import wire
from corvo.protocol.ops import NUMBERS
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.ops.cluster import HOME, Announce
from corvo.protocol.queries import NUMBERS as QUERY_NUMBERS
from corvo.protocol.queries import GetMap
from corvo.protocol.routers import GET_SEEN_WORKERS, SeenWorkers
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
        security, judge = api.config.security, partial(_refusal, api)
        async with accept_link(stream, hello, security=security, judge=judge) as link:
            while requests := await link.receive(wire.FROM_ROUTER):
                for request in requests:
                    await _answer(api, link, request)


def _refusal(api: Api, peer: wire.Hello) -> str:
    """Why a process of another node is refused. A node that joins is in no map yet."""
    return "" if peer.role == wire.JOINER else api.topology.refusal(peer)


async def _answer(api: Api, link: Link, request: wire.Request) -> None:
    if link.peer.role == wire.ROUTER:
        _answer_router(api, link, request)
        return
    try:
        answer = await _pass_on(api, request)
    except Problem as problem:
        refused = Rejected(problem.reason or "unavailable", problem.error)
        link.send(wire.Reply(request.id, refused.code, encode_json(refused)))
    else:
        link.send(wire.Reply(request.id, "", answer.body, answer.index))


def _answer_router(api: Api, link: Link, request: wire.Request) -> None:
    """Answer the router of another node."""
    if isinstance(request, wire.Ask) and request.query == GET_SEEN_WORKERS:
        seen = SeenWorkers(list(api.sightings.shown(clock.now_ns())))
        link.send(wire.Reply(request.id, "", msgspec.msgpack.encode(seen)))
    else:
        refused = Rejected("unknown_query", "routers do not ask each other for this")
        link.send(wire.Reply(request.id, refused.code, encode_json(refused)))


async def _pass_on(api: Api, request: wire.Request) -> Answer:
    shard = api.shards[HOME]
    match request:
        case wire.Submit(op=number) if number == _OP:
            return await shard.submit_bytes(number, request.body, may_repeat=True)
        case wire.Ask(query=number) if number == _QUERY:
            return await shard.ask(GetMap())
        case _:
            raise Problem(403, "FORBIDDEN", "a node that joins may not ask for this")
