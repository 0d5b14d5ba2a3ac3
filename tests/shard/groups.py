"""Groups of shard processes on several nodes that are not there, but for their ports."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import trio

from corvo.connections import PeerAddress, dial
from corvo.link import LinkClient, open_client
from corvo.peer_security import PeerSecurity
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap, ClusterNode, first_map, split_address
from corvo.protocol.ops.queues import Pause
from corvo.shard.config import ShardConfig
from corvo.topology import shard_target
from tests.shard.processes import Child, calling, config_in, launch, status, submit
from tests.support.peer_ports import peer_ports


def map_of(ports: Sequence[int], *, shards: int = 1, replicas: int = 7) -> ClusterMap:
    """The first map of a cluster with nodes at these ports, numbered from 1."""
    nodes = [
        ClusterNode(number=number, name=f"node-{number}", address=f"127.0.0.1:{port}")
        for number, port in enumerate(ports, 1)
    ]
    return first_map(nodes, shards=shards, replicas=replicas)


def group_in(
    directory: Path, known: ClusterMap, *, shard: int = 0, **changed: object
) -> list[ShardConfig]:
    """A replica of a shard on each node of the map."""
    return [
        config_in(
            directory,
            node=node.number,
            shard=shard,
            shards=len(known.places),
            data_dir=str(directory / f"data-{node.number}-{shard}"),
            sockets={shard: str(directory / f"s{node.number}-{shard}")},
            peer_socket=str(directory / f"p{node.number}-{shard}"),
            map=msgspec.to_builtins(known),
            **changed,
        )
        for node in known.nodes
    ]


def port_of(config: ShardConfig) -> int:
    """Where the node of a replica accepts connections."""
    assert config.map is not None
    node = config.map.node(config.node)
    assert node is not None
    return split_address(node.address)[1]


@asynccontextmanager
async def ports_of(configs: Sequence[ShardConfig]) -> AsyncIterator[None]:
    """The ports of the replicas' nodes."""
    targets: dict[int, dict[str, str]] = {}
    for each in configs:
        targets.setdefault(port_of(each), {})[shard_target(each.shard)] = each.peer_socket
    async with peer_ports(targets):
        yield


@asynccontextmanager
async def group(configs: Sequence[ShardConfig]) -> AsyncIterator[list[Child]]:
    """Processes that are killed with the block, and the ports of their nodes."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(ports_of(configs))
        yield await stack.enter_async_context(started(configs))


@asynccontextmanager
async def started(configs: Sequence[ShardConfig]) -> AsyncIterator[list[Child]]:
    """Processes that are killed with the block."""
    async with AsyncExitStack() as stack:
        children = []
        for config in configs:
            child = await launch(config)
            stack.push_async_callback(child.kill)
            children.append(child)
        for child in children:
            assert await child.wait_until_ready(), await child.last_words()
        yield children


async def leader_of(configs: Sequence[ShardConfig]) -> ShardConfig:
    """The replica that leads and has begun to."""
    while True:
        for config in configs:
            async with calling(config) as client:
                seen = await status(client)
                if seen.role == "leader":
                    answer = await submit(client, Pause(queue="other"))
                    if isinstance(answer, wire.Reply):
                        return config
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def calling_from_elsewhere(
    config: ShardConfig, *, node: int = 9
) -> AsyncIterator[LinkClient]:
    """A client on another node."""
    other = msgspec.structs.replace(config, node=node)
    hello = wire.make_hello(other, wire.ROUTER, shard=config.shard)
    target = shard_target(config.shard)
    address = PeerAddress("127.0.0.1", port_of(config), target, PeerSecurity())
    async with dial(address, hello) as link, open_client(link) as client:
        yield client
