"""What comes in from other nodes: nodes that are about to join, and routers with a question.

A node that joins knows neither the cluster nor where shard 0 is. It connects to any node, and this
router passes on the two requests that such a node may make, and shows it the wall clock. The router
of a node that is in the cluster asks for what this one has seen of workers and of the cluster, and
reports what clients have used of their rates (`corvo.router.shards.peers`).
"""

from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import trio

from corvo import clock
from corvo.connections import accept_link
from corvo.errors import WireError
from corvo.handover import serve_handed
from corvo.link import Link, LinkLost
from corvo.protocol import wire
from corvo.protocol.ops import NUMBERS
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.ops.cluster import HOME, Announce
from corvo.protocol.queries import NUMBERS as QUERY_NUMBERS
from corvo.protocol.queries import GetMap, MapFound
from corvo.protocol.routers import (
    GET_CLOCK,
    GET_EVENTS,
    GET_NODE_MAP,
    GET_SEEN_WORKERS,
    REPORT_USE,
    UNAVAILABLE,
    ClockShown,
    ObservedEvents,
    Received,
    SeenWorkers,
    UsedTokens,
)
from corvo.router.api import Api
from corvo.router.http.messages import Problem
from corvo.router.shards.links import Answer
from corvo.time_zones import tz_version

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
        hello = api.topology.hello(hello)
        async with accept_link(stream, hello, security=security, judge=judge) as link:
            while requests := await link.receive(wire.FROM_ROUTER):
                for request in requests:
                    await _answer(api, link, request)


def _refusal(api: Api, peer: wire.Hello) -> str:
    """Why a process of another node is refused. A node that joins is in no map yet."""
    return "" if peer.role == wire.JOINER else api.topology.refusal(peer)


async def _answer(api: Api, link: Link, request: wire.Request) -> None:
    asks_clock = isinstance(request, wire.Ask) and request.query == GET_CLOCK
    if link.peer.role == wire.ROUTER or asks_clock:
        link.send(_reply_to_router(api, request))
        return
    try:
        answer = await _pass_on(api, request)
    except Problem as problem:
        is_later = problem.status in {429, 503}
        refused = Rejected(UNAVAILABLE if is_later else problem.reason or "refused", problem.error)
        link.send(wire.Reply(request.id, refused.code, encode_json(refused)))
    else:
        link.send(wire.Reply(request.id, "", answer.body, answer.index))


def _reply_to_router(api: Api, request: wire.Request) -> wire.Reply:
    try:
        told = _answer_router(api, request)
    except (msgspec.MsgspecError, UnicodeError) as error:
        told = Rejected("bad_request", str(error))
    if isinstance(told, Rejected):
        return wire.Reply(request.id, told.code, encode_json(told))
    return wire.Reply(request.id, "", _encode_to_router(told))


def _answer_router(api: Api, request: wire.Request) -> msgspec.Struct:
    """The answer to the router of another node. Raises `MsgspecError` and `UnicodeError`."""
    now_ns = clock.now_ns()
    match request:
        case wire.Ask(query=number) if number == GET_SEEN_WORKERS:
            return SeenWorkers(list(api.sightings.shown(now_ns)))
        case wire.Ask(query=number) if number == GET_EVENTS:
            return ObservedEvents(api.history.kept(now_ns), api.history.began_ns)
        case wire.Ask(query=number) if number == GET_CLOCK:
            return ClockShown(now_ns, tz_version())
        case wire.Ask(query=number) if number == GET_NODE_MAP:
            return MapFound(api.topology.map)
        case wire.Ask(query=number, body=body) if number == REPORT_USE:
            nodes = len(api.topology.map.nodes)
            api.rates.pay(_decode_used(body).uses, nodes=nodes, now_s=trio.current_time())
            return Received()
        case _:
            return Rejected("unknown_query", "routers do not ask each other for this")


async def _pass_on(api: Api, request: wire.Request) -> Answer:
    shard = api.shards[HOME]
    match request:
        case wire.Submit(op=number) if number == _OP:
            return await shard.submit_bytes(number, request.body, may_repeat=True)
        case wire.Ask(query=number) if number == _QUERY:
            return await shard.ask(GetMap())
        case _:
            raise Problem(403, "FORBIDDEN", "a node that joins may not ask for this")


_encode_to_router: Final = msgspec.msgpack.Encoder().encode
_decode_used: Final = msgspec.msgpack.Decoder(UsedTokens).decode
