"""Endpoints of the cluster: its nodes, and what operators do with them."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from corvo import clock
from corvo.protocol.cluster import NAME, NAME_MAX, ClusterMap, ClusterNode
from corvo.protocol.ops.cluster import HOME, DrainNode, MapDone, RemoveNode, SetReplicas
from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import EVERYTHING, NODE, Rights
from corvo.router.cluster.asking import look, stored_map
from corvo.router.cluster.bodies import (
    EventList,
    EventView,
    JoinAnswer,
    JoinBody,
    NodeDone,
    NodeList,
    NodeView,
    RemoveBody,
    RemovedView,
    ReplicasBody,
    ReplicasDone,
)
from corvo.router.cluster.merged_events import merged
from corvo.router.cluster.overview import ShardSeen, node_view
from corvo.router.cluster.removal import refusal
from corvo.router.http.bodies import Body, body_of
from corvo.router.http.messages import Problem, Request, Response, bad_field, json_response
from corvo.router.http.params import number_of
from corvo.router.http.request_keys import request_key
from corvo.router.routes import Parameter, Route
from corvo.times import format_time

_NUMBER: Final = re.compile("[0-9]{1,15}")
_SEQ: Final = re.compile("[0-9]{1,16}")
_NAME: Final = re.compile(NAME)
_ATTEMPTS: Final = 3
"""Of a removal, while the map changes all the time."""
_SEQ_MAX: Final = 2**53 - 1
"""The greatest number that every client reads exactly."""
_EVENTS_MAX: Final = 1_000
"""Events of one answer."""
_REMOVED_MAX: Final = 100
"""Removed nodes in the list, the latest first."""


# Which node.


def _given(request: Request) -> tuple[int, str]:
    """The number, or else the name, of the node in the path. Raises `Problem`."""
    given = request.params["node"]
    if _NUMBER.fullmatch(given):
        return int(given), ""
    if len(given) > NAME_MAX or not _NAME.match(given):
        raise bad_field(
            "node",
            f"node: expected the number or the name of a node, such as 2; got {given[:60]!r}",
        )
    return 0, given


def _find(known: ClusterMap, number: int, name: str) -> ClusterNode | None:
    return known.node(number) if number else known.named(name)


def _missing(known: ClusterMap, number: int, name: str) -> Problem:
    for removed in reversed(known.removed):
        if number == removed.number or name == removed.name:
            return Problem(
                404,
                "NOT_FOUND",
                f"node {removed.number} ({removed.name}) was removed from the cluster:"
                f" {removed.reason}",
                reason="node_removed",
            )
    error = f"the cluster has no node {number or repr(name)}"
    return Problem(404, "NOT_FOUND", error, reason="node_not_found")


# Reading.


async def list_nodes(api: Api, _: Request) -> Response:
    """List the nodes of the cluster."""
    known, shards = await look(api)
    removed = sorted(known.removed, key=lambda each: -each.removed_ns)[:_REMOVED_MAX]
    return json_response(
        NodeList(
            map_version=known.version,
            replicas=known.replicas,
            nodes=[_view(api, node, known, shards) for node in known.nodes],
            removed=[
                RemovedView(
                    number=each.number,
                    name=each.name,
                    reason=each.reason,
                    removed_at=format_time(each.removed_ns),
                )
                for each in removed
            ],
        )
    )


async def get_node(api: Api, request: Request) -> Response:
    """Read a node of the cluster."""
    number, name = _given(request)
    known, shards = await look(api)
    node = _find(known, number, name)
    if node is None:
        raise _missing(known, number, name)
    return json_response(_view(api, node, known, shards))


def _view(api: Api, node: ClusterNode, known: ClusterMap, shards: Sequence[ShardSeen]) -> NodeView:
    return node_view(node, known, shards, own=api.config.node, clocks=api.clocks)[0]


async def list_events(api: Api, request: Request) -> Response:
    """List changes of the cluster, as the routers of all nodes have seen them."""
    limit = number_of(request, "limit", default=100, at_most=_EVENTS_MAX)
    given = request.query.get("after_seq", "0")
    if not (_SEQ.fullmatch(given) and int(given) <= _SEQ_MAX):
        raise bad_field("after_seq", "after_seq: expected the `seq` of an event, or 0")
    others = await api.peers.ask(api.peers.events)
    told = others.by_node.values()
    known = merged([api.history.kept(clock.now_ns()), *(each.events for each in told)])
    found = [each for each in known if each.seq > int(given)]
    return json_response(
        EventList(
            events=[
                EventView(
                    seq=each.seq,
                    type=each.type,
                    at=format_time(each.at_ns),
                    at_ns=each.at_ns,
                    shard=each.shard,
                    node=each.node,
                    term=each.term,
                    text=each.text,
                )
                for each in found[:limit]
            ],
            node=api.config.node,
            since=format_time(min([api.history.began_ns, *(each.began_ns for each in told)])),
            partial=not others.is_whole,
            missing_nodes=others.missing,
        )
    )


# Changing.


async def drain(api: Api, request: Request) -> Response:
    """Move all replicas of a node to other nodes."""
    return await _drain(api, request, is_draining=True)


async def undrain(api: Api, request: Request) -> Response:
    """Let a drained node have replicas again."""
    return await _drain(api, request, is_draining=False)


async def _drain(api: Api, request: Request, *, is_draining: bool) -> Response:
    number, name = _given(request)
    op = DrainNode(number=number, name=name, is_draining=is_draining)
    return await _change(api, request, op)


async def remove(api: Api, request: Request) -> Response:
    """Remove a node, unless a shard would lose the majority of its voters."""
    number, name = _given(request)
    body = body_of(request, _decode_remove)
    if not body.reason.strip():
        raise bad_field("reason", "reason: expected a text, such as 'disk lost'")
    attempt = 0
    while True:
        known = await stored_map(api)
        node = _find(known, number, name) if known is not None else None
        # Without the node in the map: the shard refuses it, or knows the request by its key.
        if known is not None and node is not None:
            _, shards = await look(api)
            refused = refusal(node, known, shards, own=api.config.node, force=bool(body.force))
            if refused is not None:
                raise Problem(409, refused.code, refused.error)
        op = RemoveNode(
            number=number,
            name=name,
            reason=body.reason,
            base=known.version if known is not None else 0,
        )
        try:
            return await _change(api, request, op, attempt)
        except Problem as problem:
            # The map has changed meanwhile: another node may be removed, so all is checked again.
            attempt += 1
            if problem.reason != "map_changed" or attempt == _ATTEMPTS:
                raise


async def _change(
    api: Api, request: Request, op: DrainNode | RemoveNode, attempt: int = 0
) -> Response:
    """Have an op carried out. A refusal is stored under its request key: each attempt has its own.

    The same request again makes the same attempts, and so comes to the same answer.
    """
    answer = await api.shards[HOME].submit(request_key(request).on(op, "cluster", attempt))
    done = _decode_done(answer.body)
    told = NodeDone(status=done.status, node=request.params["node"], map_version=done.version)
    return json_response(told, reached={HOME: answer.index})


async def set_replicas(api: Api, request: Request) -> Response:
    """Set how many replicas each shard has."""
    body = body_of(request, _decode_replicas)
    op = SetReplicas(replicas=body.replicas)
    answer = await api.shards[HOME].submit(request_key(request).on(op, "cluster"))
    done = _decode_done(answer.body)
    told = ReplicasDone(status=done.status, replicas=body.replicas, map_version=done.version)
    return json_response(told, reached={HOME: answer.index})


async def join(api: Api, request: Request) -> Response:
    """Check that a node has joined: here a node joins by itself."""
    request_key(request)
    body = body_of(request, _decode_join)
    known = await stored_map(api)
    number = int(body.node_id) if _NUMBER.fullmatch(body.node_id) else 0
    node = _find(known, number, body.node_id) if known is not None else None
    if node is None:
        own = (known or api.topology.map).node(api.config.node)
        address = own.address if own is not None and own.address else "HOST:9400"
        raise Problem(
            409,
            "JOIN_FROM_NODE",
            f"a node joins by itself: start it with `corvo server --join {address}`",
        )
    return json_response(
        JoinAnswer(status="ok", added=False, node_id=body.node_id, addr=body.addr or node.address)
    )


_decode_remove: Final = Body(RemoveBody)
_decode_replicas: Final = Body(ReplicasBody)
_decode_join: Final = Body(JoinBody)
_decode_done: Final = msgspec.json.Decoder(MapDone).decode

_row: Final = partial(Route, tag="Cluster", action=Action.ADMIN, rights=EVERYTHING)

_A_NODE: Final[dict[str, object]] = {
    "number": 2,
    "name": "corvo-1",
    "address": "10.0.0.2:9400",
    "zone": "eu-1b",
    "version": "0.1.0",
    "state": "active",
    "is_reachable": True,
    "leads": [1],
    "replicas": [0, 1],
}

ROUTES: Final[tuple[Route, ...]] = (
    _row(
        method="GET",
        path="/api/v1/cluster/nodes",
        endpoint=list_nodes,
        action=Action.READ,
        rights=NODE,
        summary="List the nodes of the cluster.",
        description="Lists the nodes of the cluster, and those that were removed.",
        gives={200: NodeList},
        gives_example={"map_version": 7, "replicas": 3, "nodes": [_A_NODE], "removed": []},
    ),
    _row(
        method="GET",
        path="/api/v1/cluster/nodes/{node}",
        endpoint=get_node,
        action=Action.READ,
        rights=Rights(where=NODE.where, names=frozenset({"node"})),
        summary="Read a node of the cluster.",
        description="Reads a node of the cluster, by its number or its name.",
        gives={200: NodeView},
        gives_example=_A_NODE,
        problems=(404,),
    ),
    _row(
        method="GET",
        path="/api/v1/cluster/events",
        endpoint=list_events,
        action=Action.READ,
        rights=NODE,
        summary="List changes of the cluster.",
        description=(
            "Lists changes of the cluster, the oldest first: leaders, nodes, places and replicas."
            " Any node answers for all: each change is listed once, as the first router has seen"
            " it. Changes are kept for a day. `partial` is true if a node did not answer."
        ),
        gives={200: EventList},
        gives_example={
            "events": [
                {
                    "seq": 1_771_581_605_250_002,
                    "type": "leader_elected",
                    "at": "2026-02-20T10:00:05.25Z",
                    "at_ns": 1_771_581_605_250_000_000,
                    "shard": 1,
                    "node": 2,
                    "term": 7,
                    "text": "node 2 (corvo-1) leads shard 1 in term 7",
                }
            ],
            "node": 1,
            "since": "2026-02-20T09:12:41Z",
            "partial": True,
            "missing_nodes": [3],
        },
        query=(
            Parameter(
                "after_seq", "integer", "Only events after this `seq`. Default: 0.", 0, _SEQ_MAX
            ),
            Parameter("limit", "integer", "Most events. Default: 100.", 1, _EVENTS_MAX),
        ),
    ),
    _row(
        method="POST",
        path="/api/v1/cluster/nodes/{node}/drain",
        endpoint=drain,
        summary="Move all replicas of a node to other nodes.",
        description=(
            "Moves all replicas of a node to other nodes, in the background. The node is drained"
            " when its `replicas` are empty."
        ),
        gives={200: NodeDone},
        problems=(404, 409),
    ),
    _row(
        method="POST",
        path="/api/v1/cluster/nodes/{node}/undrain",
        endpoint=undrain,
        summary="Let a drained node have replicas again.",
        description="Ends the draining of a node: it can have replicas again.",
        gives={200: NodeDone},
        problems=(404, 409),
    ),
    _row(
        method="POST",
        path="/api/v1/cluster/nodes/{node}/remove",
        endpoint=remove,
        summary="Remove a node from the cluster for good.",
        description=(
            "Removes a node from the cluster for good: the others refuse it, with the reason. A"
            " node that votes and can be reached must be drained first, unless `force` is true. A"
            " removal that would leave a shard without a majority of its voters is always"
            " rejected."
        ),
        takes=RemoveBody,
        takes_example={"reason": "disk lost"},
        gives={200: NodeDone},
        problems=(404, 409),
    ),
    _row(
        method="PUT",
        path="/api/v1/cluster/replicas",
        endpoint=set_replicas,
        summary="Set the number of replicas of each shard.",
        description=(
            "Sets the number of replicas that each shard is to have. With fewer nodes, each node"
            " has one."
        ),
        takes=ReplicasBody,
        takes_example={"replicas": 3},
        gives={200: ReplicasDone},
        problems=(409,),
    ),
    _row(
        method="POST",
        path="/api/v1/cluster/join",
        endpoint=join,
        summary="Legacy: check that a node has joined. A node joins with `--join`.",
        description=(
            "For scripts of corvo-go: answers `added: false` for a node of the cluster. For any"
            " other node it answers 409 with the command to use: a node joins when it is started"
            " with `--join`."
        ),
        takes=JoinBody,
        takes_example={"node_id": "corvo-1"},
        gives={200: JoinAnswer},
        problems=(409,),
    ),
)
