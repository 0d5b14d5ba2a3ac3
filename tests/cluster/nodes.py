"""Several nodes on one machine, each with all of its processes, that are started and killed."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo.plans import Programs
from tests.node.http import Address, Answer, Client, Lost
from tests.shard.processes import free_ports
from tests.support.nodes import Running, running

REAL: Final = Programs()
PATIENCE_S: Final = 60.0
"""How long anything may take before a test gives up."""
_LOOK_S: Final = 0.02


class Member:
    """One node of a cluster, whether or not it runs."""

    def __init__(self, directory: Path, name: str, http: int, peers: int) -> None:
        self.name: Final = name
        self.address: Final[Address] = ("127.0.0.1", http)
        self.peer: Final = f"127.0.0.1:{peers}"
        self.data: Final = directory / name
        self.settings: dict[str, str] = {
            "data_dir": str(self.data),
            "bind": f"127.0.0.1:{http}",
            "shards": "2",
            "log_level": "info",
            "cluster.node_id": name,
            "cluster.peer_bind": self.peer,
        }
        self.running: Running | None = None

    @property
    def node(self) -> Running:
        """The node, which runs."""
        assert self.running is not None, f"{self.name} does not run"
        return self.running

    def kill(self) -> None:
        """Kill the node, and so all of its processes: each leaves when its stdin closes."""
        pids = [int(str(one["pid"])) for one in self.node.find("process.ready")]
        for pid in (self.node.process.pid, *pids):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it was restarted since, or has ended


class Cluster:
    """Nodes, and what a client does with them."""

    def __init__(self, members: Sequence[Member], nursery: trio.Nursery) -> None:
        self.members: Final = list(members)
        self._nursery = nursery

    def __getitem__(self, number: int) -> Member:
        return self.members[number]

    async def start(self, member: Member) -> Running:
        """Start a node, and wait until its log says something."""
        await self._nursery.start(self._live, member)
        return member.node

    async def _live(
        self, member: Member, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with running(member.settings, REAL) as node:
            member.running = node
            task_status.started()
            await node.silent.wait()
        if member.running is node:
            member.running = None

    async def start_all(self) -> None:
        """Start every node, and wait until all are ready."""
        for member in self.members:
            await self.start(member)
        for member in self.members:
            await member.node.hear("node.ready")

    async def gone(self, member: Member) -> None:
        """Wait until a node and its processes have ended."""
        if member.running is not None:
            await member.running.silent.wait()

    # As a client.

    async def ask(
        self, member: Member, method: str, path: str, body: object = None, key: str = ""
    ) -> Answer:
        """One request to one node. Raises `Lost`."""
        client = Client(member.address)
        data = msgspec.json.encode(body) if body is not None else b""
        try:
            return await client.ask(method, path, data, key)
        finally:
            client.close()

    async def until(
        self, member: Member, method: str, path: str, body: object = None, key: str = ""
    ) -> Answer:
        """The same until it succeeds: a client that tries again."""
        last: object = None
        with trio.move_on_after(PATIENCE_S):
            while True:
                try:
                    answer = await self.ask(member, method, path, body, key)
                    if answer.status < 300:
                        return answer
                    last = answer
                except Lost as error:
                    last = error
                await trio.sleep(_LOOK_S)
        raise AssertionError(f"{method} {path} at {member.name}: {last}; {member.node.texts}")


async def members_in(directory: Path, names: Sequence[str], **settings: str) -> list[Member]:
    """New nodes. A setting's dot is written as two underscores."""
    ports = await free_ports(2 * len(names))
    made = []
    for number, name in enumerate(names):
        member = Member(directory, name, ports[2 * number], ports[2 * number + 1])
        member.settings |= {key.replace("__", "."): settings[key] for key in settings}
        made.append(member)
    return made


def as_initial(members: Sequence[Member]) -> None:
    """Make them the first nodes of one cluster."""
    told = ",".join(f"{member.name}={member.peer}" for member in members)
    for member in members:
        member.settings["cluster.initial_nodes"] = told


@asynccontextmanager
async def cluster_of(members: Sequence[Member]) -> AsyncIterator[Cluster]:
    """A cluster; whatever happens, its nodes end with the block."""
    async with trio.open_nursery() as nursery:
        yield Cluster(members, nursery)
        nursery.cancel_scope.cancel()
