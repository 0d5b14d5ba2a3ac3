"""Asking every replica of every shard for its numbers, each over its own link."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import trio

from corvo.protocol.cluster import ClusterMap
from corvo.protocol.numbers import Numbers
from corvo.protocol.ops.cluster import HOME
from corvo.protocol.queries import GetMap, GetNumbers, MapFound, Query
from corvo.router.api import Api
from corvo.router.cluster.overview import ReplicaSeen, ShardSeen
from corvo.router.http.messages import Problem
from corvo.router.shards.fan_out import together
from corvo.router.shards.links import Answer, Shard

DEADLINE_S: Final = 1.0
"""How long replicas have to answer."""
_SILENT: Final = f"no answer within {DEADLINE_S:.0f} s"


async def look(
    api: Api, *others: Callable[[], Awaitable[None]]
) -> tuple[ClusterMap, list[ShardSeen]]:
    """The cluster map, and each replica as it is now, as far as there are answers in time.

    `others` are asked meanwhile.
    """
    newest = [api.topology.map]

    async def read_map() -> None:
        with suppress(Problem):  # then that of this router is good enough to be shown
            found = await stored_map(api)
            if found is not None and found.version >= newest[0].version:
                newest[0] = found

    told: dict[tuple[int, int], Numbers | str] = {}
    with trio.move_on_after(DEADLINE_S):
        await together(
            [
                read_map,
                *others,
                *(
                    partial(_ask, shard, link.node, told)
                    for shard in api.shards
                    for link in shard.replicas()
                    if link.is_up
                ),
            ]
        )
    return newest[0], [_seen(shard, told) for shard in api.shards]


def _seen(shard: Shard, told: dict[tuple[int, int], Numbers | str]) -> ShardSeen:
    return ShardSeen(
        shard.number,
        tuple(
            ReplicaSeen(link, told.get((shard.number, link.node), _SILENT))
            for link in shard.replicas()
        ),
        shard.leader,
        shard.term,
        "" if shard.is_up else shard.last_error,
    )


async def _ask(shard: Shard, node: int, told: dict[tuple[int, int], Numbers | str]) -> None:
    answer = await shard.ask_replica(node, GetNumbers())
    told[shard.number, node] = answer if isinstance(answer, str) else _decode(answer.body)


def has_replica_here(api: Api, shard: Shard) -> bool:
    """Whether this node has a replica of a shard, or is to have one."""
    if api.config.map is None:
        return True
    return any(link.node == api.config.node for link in shard.replicas())


async def own_numbers(api: Api, shard: Shard) -> Numbers:
    """The numbers of this node's own replica of a shard. Raises `Problem`."""
    return _decode((await own_answer(api, shard, GetNumbers())).body)


async def own_answer(api: Api, shard: Shard, query: Query) -> Answer:
    """What this node's own replica of a shard answers about itself. Raises `Problem`."""
    if api.config.map is None:
        return await shard.ask(query)
    answer = await shard.ask_replica(api.config.node, query)
    if isinstance(answer, str):
        raise Problem(503, "UNHEALTHY", f"shard {shard.number} on this node: {answer}")
    return answer


def reachable(api: Api) -> dict[int, bool]:
    """Whether there is a link to a replica on each node that is to have one; and this node."""
    found = {api.config.node: True}
    for shard in api.shards:
        for link in shard.replicas():
            found[link.node] = link.is_up or found.get(link.node, False)
    return found


async def stored_map(api: Api) -> ClusterMap | None:
    """The map as shard 0 has it, None for a server that runs alone. Raises `Problem`."""
    return _decode_map((await api.shards[HOME].ask(GetMap())).body).map


_decode: Final = msgspec.json.Decoder(Numbers).decode
_decode_map: Final = msgspec.json.Decoder(MapFound).decode
