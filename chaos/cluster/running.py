"""A cluster that runs: its nodes, its network, and the questions about it that faults need."""

import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from chaos.cluster import cleaning, machine
from chaos.cluster.disks import Disk
from chaos.cluster.network import CLIENTS, Network, PlainNetwork, open_network
from chaos.cluster.node import Node
from chaos.http import Answer, Connection, Lost, Site

_SECRET: Final = "only for this machine"  # noqa: S105 -- of no cluster that anyone uses
_HTTP_PORT: Final = 8080
_PEER_PORT: Final = 9400
_LOOK_S: Final = 0.1
START_S: Final = 60.0
"""How long a start may take before the run does not count."""
_ASK_S: Final = 3.0
_RESERVE: Final = 2
"""Nodes that can join in the course of a run."""

SETTINGS: Final = {
    "log_level": "info",
    "log_format": "json",
    "auth": "off",
    # Small, so that a run of minutes has many checkpoints, closed segments and snapshots.
    "shard.checkpoint_bytes": "2MiB",
    "shard.checkpoint_entries": "4000",
    "shard.keep_entries": "1000",
    "shard.segment_bytes": "1MiB",
    "shard.ballast_bytes": "1MiB",
    "shard.room_bytes_min": "16MiB",
    "mirror.room_bytes_min": "16MiB",
    "shard.grace_ms": "2s",
}
"""Settings of every node."""


class Leads(msgspec.Struct):
    """A node, as the list of nodes shows it."""

    number: int
    name: str
    state: str = ""
    leads: list[int] = []
    replicas: list[int] = []
    is_reachable: bool | None = None


class NodeList(msgspec.Struct):
    """The list of nodes."""

    nodes: list[Leads]


class Cluster:
    """The nodes of a run and their network."""

    def __init__(
        self, nodes: Sequence[Node], network: Network, shards: int, lacks: dict[str, str]
    ) -> None:
        self.nodes: Final = {node.name: node for node in nodes}
        self.network: Final = network
        self.shards: Final = shards
        self.lacks: Final = lacks
        """The abilities that this machine lacks, with the reasons."""

    @property
    def members(self) -> list[Node]:
        """The nodes that belong to the cluster."""
        return [node for node in self.nodes.values() if node.is_member]

    async def start(self, node: Node) -> None:
        """Start a node, and wait until it is ready or degraded. Raises `NotReady`."""
        node.start()
        await self.ready(node)

    async def ready(self, node: Node) -> None:
        """Wait until a node is ready or degraded. Raises `NotReady`."""
        with trio.move_on_after(START_S):
            while True:
                if not node.is_running:
                    raise NotReady(f"node {node.name} has ended; its log: {node.log}")
                answer = await self.ask(node, "GET", "/readyz")
                if answer is not None and answer.status == 200:
                    return
                await trio.sleep(_LOOK_S)
        raise NotReady(f"node {node.name} was not ready in {START_S:.0f} s; its log: {node.log}")

    async def ask(self, node: Node, method: str, path: str, body: object = None) -> Answer | None:
        """One request to one node; None without an answer in three seconds."""
        connection = Connection(node.site)
        data = b"" if body is None else msgspec.json.encode(body)
        try:
            with trio.move_on_after(_ASK_S):
                return await connection.ask(method, path, data)
        except Lost:
            return None
        finally:
            connection.close()
        return None

    async def overview(self) -> list[Leads]:
        """The nodes as the first one shows them that answers; empty without an answer."""
        for node in self.members:
            if node.is_running:
                answer = await self.ask(node, "GET", "/api/v1/cluster/nodes")
                if answer is not None and answer.status == 200:
                    return msgspec.json.decode(answer.body, type=NodeList).nodes
        return []


class NotReady(Exception):
    """A node did not start."""


def names_of(count: int) -> list[str]:
    """The names of nodes."""
    return [chr(ord("a") + number) for number in range(count)]


@asynccontextmanager
async def open_cluster(folder: Path, count: int, shards: int, seed: str) -> AsyncIterator[Cluster]:
    """A cluster that is ready. All of it ends with the block. Raises `NotReady`."""
    lacks = machine.probe()
    run = cleaning.run_name(os.getpid())
    names = names_of(count + _RESERVE)
    async with AsyncExitStack() as undo:
        network: Network = PlainNetwork()
        if machine.NETWORK not in lacks:
            network = await undo.enter_async_context(open_network(run, [*names, CLIENTS], seed))
        undo.push_async_callback(_unmount, folder)
        nodes = [
            await _make(folder, name, number, network, shards, is_disk=machine.DISK not in lacks)
            for number, name in enumerate(names)
        ]
        first = nodes[:count]
        undo.push_async_callback(_end, nodes)
        told = ",".join(f"{node.name}={node.peer}" for node in first)
        for node in first:
            if count > 1:
                node.settings["cluster.initial_nodes"] = told
            else:
                node.settings["cluster.bootstrap"] = "on"
            node.is_member = True
            node.start()
        cluster = Cluster(nodes, network, shards, lacks)
        for node in first:
            await cluster.ready(node)
        yield cluster


async def _make(
    folder: Path, name: str, number: int, network: Network, shards: int, *, is_disk: bool
) -> Node:
    home = folder / name
    disk = Disk(folder / f"{name}.disk", home) if is_disk else None
    if disk is None:
        home.mkdir()
    else:
        await disk.make()
    plain = isinstance(network, PlainNetwork)
    http, peers = (_HTTP_PORT, _PEER_PORT) if not plain else _plain_ports(number)
    address = network.address(name)
    site = Site(name, address, http, network.make_socket)
    node = Node(
        name,
        folder=home,
        site=site,
        peer=f"{address}:{peers}",
        prefix=network.prefix(name),
        disk=disk,
    )
    node.settings = {
        **SETTINGS,
        "data_dir": str(node.data),
        "bind": f"{address}:{http}",
        "shards": str(shards),
        "cluster.node_id": name,
        "cluster.peer_bind": node.peer,
    }
    node.environment["CORVO_CLUSTER__SECRET"] = _SECRET
    return node


def _plain_ports(number: int) -> tuple[int, int]:
    """Ports of a node where all nodes share the loopback address."""
    start = 20_000 + os.getpid() % 4_000 * 10
    return start + 2 * number, start + 2 * number + 1


async def _end(nodes: Sequence[Node]) -> None:
    with trio.CancelScope(shield=True):
        for node in nodes:
            await node.stop()


async def _unmount(folder: Path) -> None:
    with trio.CancelScope(shield=True):
        for place in cleaning.mounts(folder):
            await trio.run_process(["umount", "--lazy", place], check=False)


def remove(folder: Path) -> None:
    """Remove the data of a run."""
    shutil.rmtree(folder, ignore_errors=True)
