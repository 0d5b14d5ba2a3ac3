"""A cluster that runs: its nodes, its network, and the questions about it that faults need."""

import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from chaos.bugs import Bug
from chaos.cluster import cleaning, machine, syncs
from chaos.cluster.disks import Disk
from chaos.cluster.network import CLIENTS, Network, open_network, open_relay
from chaos.cluster.node import Node
from chaos.http import Answer, Connection, Lost, Site

_SECRET: Final = "only for this machine"  # noqa: S105 -- of no cluster that anyone uses
_LOOK_S: Final = 0.1
START_S: Final = 60.0
"""How long a start may take before the run does not count."""
_ASK_S: Final = 3.0
_PATIENCE_S: Final = 20.0
"""How long a node is waited for before an operator does something about it."""
_LAG_MAX: Final = 50
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
    # On a busy machine a mirror of low priority would starve.
    "mirror.niceness": "0",
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
    clock_ahead_ms: int | None = None


class Replica(msgspec.Struct):
    """A replica of a shard."""

    node: int
    is_reachable: bool
    is_voter: bool
    role: str = ""
    applied: int = 0
    lag: int = 0
    is_repairing: bool = False


class ShardView(msgspec.Struct):
    """A shard."""

    shard: int
    term: int
    placed_on: list[int]
    replicas: list[Replica]
    leader: int | None = None


class View(msgspec.Struct):
    """The state of the cluster."""

    status: str
    is_placed: bool
    replicas: int
    nodes: list[Leads]
    shards: list[ShardView]
    reasons: list[str] = []


class _Status(msgspec.Struct):
    cluster: View | None = None


class NodeList(msgspec.Struct):
    """The list of nodes."""

    nodes: list[Leads]


class Cluster:
    """The nodes of a run and their network."""

    def __init__(
        self, nodes: Sequence[Node], network: Network, shards: int, lacks: Mapping[str, str]
    ) -> None:
        self.nodes: Final = {node.name: node for node in nodes}
        self.network: Final = network
        self.shards = shards
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

    async def view(self) -> View | None:
        """The state of the cluster as the first node shows it that answers."""
        for node in self.members:
            if node.is_running:
                answer = await self.ask(node, "GET", "/api/v1/cluster/status")
                if answer is not None and answer.status == 200:
                    return msgspec.json.decode(answer.body, type=_Status).cluster
        return None

    async def is_whole(self) -> bool:
        """Whether every replica of every shard is there, votes, and has almost all entries."""
        if len(self.members) == 1:
            answer = await self.ask(self.members[0], "GET", "/readyz")
            return answer is not None and answer.status == 200
        view = await self.view()
        if view is None:
            return False
        replicas = [each for shard in view.shards for each in shard.replicas]
        placed = sum(len(shard.placed_on) for shard in view.shards)
        return (
            view.is_placed
            and len(replicas) == placed
            and all(each.is_reachable and each.is_voter for each in replicas)
            and not any(each.is_repairing or each.lag > _LAG_MAX for each in replicas)
            and all(shard.leader is not None for shard in view.shards)
        )

    async def whole(self, seconds: float) -> bool:
        """Wait until every replica is there; whether that happened in time."""
        with trio.move_on_after(seconds):
            while not await self.is_whole():  # noqa: ASYNC110 -- processes far away
                await trio.sleep(_LOOK_S)
            return True
        return False

    async def until_done(self, method: str, path: str, body: object, but: Node) -> Answer:
        """An operator's request at any other node, until it is done. Raises `NotReady`."""
        last: Answer | None = None
        with trio.move_on_after(START_S):
            while True:
                for node in self.members:
                    if node is not but and node.is_running:
                        last = await self.ask(node, method, path, body)
                        if last is not None and last.status < 300:
                            return last
                await trio.sleep(_LOOK_S)
        said = b"no answer" if last is None else last.body[:300]
        raise NotReady(f"{method} {path}: {said.decode()}")

    async def recover(self, node: Node) -> str:
        """What an operator does for a node that is not well; which of it was needed.

        Raises `NotReady`.
        """
        if await self._is_well(node):
            return ""
        await node.stop()
        node.start()
        if await self._is_well(node):
            return "restarted"
        await self.replace(node)
        return "replaced"

    async def _is_well(self, node: Node) -> bool:
        """Whether a node and all of its replicas are well soon; a held process never will be."""
        with trio.move_on_after(_PATIENCE_S):
            while node.is_running and not node.has_logged(b'"process.held"', node.started_at):
                if node.pids() and await self.is_whole():
                    return True
                await trio.sleep(_LOOK_S)
        return False

    async def replace(self, node: Node) -> None:
        """Remove a node from the cluster, and let it join with an empty directory.

        Raises `NotReady`.
        """
        await node.stop()
        await self.remove(node)
        await self.join(node)

    async def remove(self, node: Node) -> None:
        """Remove a node from the cluster for good. Raises `NotReady`."""
        body = {"reason": "its disk is lost", "force": True}
        path = f"/api/v1/cluster/nodes/{node.name}/remove"
        await self.until_done("POST", path, body, but=node)
        node.is_member = False

    async def join(self, node: Node) -> None:
        """Let a node join with an empty directory. Raises `NotReady`."""
        assert not node.is_running, f"{node.name} runs"
        shutil.rmtree(node.data, ignore_errors=True)
        node.settings.pop("cluster.initial_nodes", "")
        node.settings.pop("cluster.bootstrap", "")
        others = [each.peer for each in self.members if each is not node]
        node.settings["cluster.join"] = ",".join(others)
        node.is_member = True
        await self.start(node)
        if not await self.whole(START_S):
            raise NotReady(f"the replicas of node {node.name} were not complete in time")

    async def drained(self, node: Node) -> None:
        """Wait until a node has no replicas. Raises `NotReady`."""
        with trio.move_on_after(START_S):
            while True:
                seen = [each for each in await self.overview() if each.name == node.name]
                if seen and not seen[0].replicas:
                    return
                await trio.sleep(_LOOK_S)
        raise NotReady(f"node {node.name} was not drained in time")

    async def overview(self, at: Node | None = None) -> list[Leads]:
        """The nodes as one shows them, or the first that answers; empty without an answer."""
        for node in self.members if at is None else [at]:
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
async def open_cluster(
    folder: Path,
    count: int,
    shards: int,
    seed: str,
    lacks: Mapping[str, str],
    settings: Mapping[str, str],
    bug: Bug | None = None,
) -> AsyncIterator[Cluster]:
    """A cluster that is ready. All of it ends with the block. Raises `NotReady`.

    `lacks` has the abilities that the machine lacks, or that are not to be used.
    """
    changes = {} if bug is None else {"CHAOS_BUG": msgspec.json.encode(bug.changes).decode()}
    run = cleaning.run_name(os.getpid())
    names = names_of(count + _RESERVE)
    async with AsyncExitStack() as undo:
        hosts = [*names, CLIENTS]
        network: Network
        if machine.PACKETS in lacks:
            network = await undo.enter_async_context(open_relay(hosts, seed))
        else:
            network = await undo.enter_async_context(open_network(run, hosts, seed))
        undo.push_async_callback(_unmount, folder)
        nodes = [
            await _make(folder, name, network, shards, is_disk=machine.DISK not in lacks)
            for name in names
        ]
        for node in nodes:
            node.settings |= settings
            node.environment |= changes
        if machine.SYNCS not in lacks:
            library = syncs.build(folder)
            for node in nodes:
                syncs.create(node.syncs)
                node.environment |= {"LD_PRELOAD": str(library), "CHAOS_SYNCS": str(node.syncs)}
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


async def _make(folder: Path, name: str, network: Network, shards: int, *, is_disk: bool) -> Node:
    home = folder / name
    disk = Disk(folder / f"{name}.disk", home) if is_disk else None
    if disk is None:
        home.mkdir()
    else:
        await disk.make()
    place = network.place(name)
    host, _, port = place.for_clients.rpartition(":")
    node = Node(
        name,
        folder=home,
        site=Site(name, host, int(port), network.make_socket),
        peer=place.advertised,
        prefix=network.prefix(name),
        disk=disk,
    )
    node.settings = {
        **SETTINGS,
        "data_dir": str(node.data),
        "bind": place.http,
        "shards": str(shards),
        "cluster.node_id": name,
        "cluster.peer_bind": place.peer,
        "cluster.advertise": place.advertised,
    }
    node.environment |= {"CORVO_CLUSTER__SECRET": _SECRET, **place.environment}
    return node


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
