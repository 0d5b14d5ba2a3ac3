"""Telling the node that a replica does not belong to its shard any more.

It does not when the cluster map does not place the shard here, and the shard's leader names a group
without this replica. The leader is asked, because a replica that is removed may never receive the
entry which says so. It is asked again before it is believed: by then the others know of the removal
too, and none of them needs the vote of this replica any more.
"""

from typing import Final

import msgspec
import trio

from corvo.link import LinkClient, LinkLost
from corvo.protocol import wire
from corvo.protocol.numbers import Numbers
from corvo.protocol.ops.base import encode_json
from corvo.protocol.queries import NUMBERS, GetNumbers
from corvo.shard.config import ShardConfig
from corvo.shard_links import ShardLinks
from corvo.topology import Topology

EVERY_S: Final = 1.0
"""Between two questions: several heartbeats of a leader."""
TIMES: Final = 2

_decode: Final = msgspec.json.Decoder(Numbers).decode


async def wait_until_unneeded(config: ShardConfig, topology: Topology) -> None:
    """Wait until this replica belongs to its shard no more."""
    hello = wire.make_hello(config, wire.ROUTER, shard=config.shard)
    while True:
        await _wait_until_not_placed(config, topology)
        links = ShardLinks(config.shard, topology, hello)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(links.run)
            is_unneeded = await _is_unneeded(config, topology, links)
            nursery.cancel_scope.cancel()
        if is_unneeded:
            return


async def _wait_until_not_placed(config: ShardConfig, topology: Topology) -> None:
    while config.node in topology.map.places[config.shard]:
        await topology.changes()


async def _is_unneeded(config: ShardConfig, topology: Topology, links: ShardLinks) -> bool:
    """Wait until the leader's group has no place for this replica; False once the map has one."""
    times = 0
    while times < TIMES:
        await trio.sleep(EVERY_S)
        if config.node in topology.map.places[config.shard]:
            return False
        client = links.leader
        is_outside = client is not None and await _is_outside(client, config.node)
        times = times + 1 if is_outside else 0
    return True


async def _is_outside(client: LinkClient, node: int) -> bool:
    """Whether the replica at the other end leads a group without that node."""
    with trio.move_on_after(EVERY_S):
        try:
            answer = await client.ask(NUMBERS[GetNumbers], encode_json(GetNumbers()))
        except LinkLost:
            return False
        if isinstance(answer, wire.Reply) and not answer.code:
            return leads_without(_decode(answer.body), node)
    return False


def leads_without(seen: Numbers, node: int) -> bool:
    """Whether a replica leads a group without that node."""
    return seen.role == "leader" and node not in {*seen.voters, *seen.outgoing, *seen.learners}
