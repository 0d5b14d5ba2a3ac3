"""Several nodes on one machine, each with all of its processes, that are started and killed."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo.plans import Programs
from tests.node.http import Address, Answer, Client, Lost
from tests.support.networks import Network, Place
from tests.support.nodes import Running, running
from tests.support.ports import free_ports

REAL: Final = Programs()
PATIENCE_S: Final = 60.0
"""How long anything may take before a test gives up."""
_LOOK_S: Final = 0.02
_SECRET: Final = "sixteen letters, or more"  # noqa: S105 -- of no cluster
_END_S: Final = 5.0


_BUILDS: Final = "tests.support.builds"


def programs_of(build: str) -> Programs:
    """The processes of a node of a build."""
    command = (sys.executable, "-P", "-m", _BUILDS, build)
    return Programs(
        shard=(*command, "shard"), router=(*command, "router"), mirror=(*command, "mirror")
    )


class Member:
    """One node of a cluster, whether or not it runs."""

    def __init__(
        self, directory: Path, name: str, http: int, peers: int, place: Place | None = None
    ) -> None:
        """`place` is the node's own in a network; else it is on loopback with the others."""
        self.name: Final = name
        self.place: Final = place
        self.address: Final[Address] = ("127.0.0.1", http)
        self.peer: Final = f"{'127.0.0.1' if place is None else place.address}:{peers}"
        self.data: Final = directory / name
        self.settings: dict[str, str] = {
            "data_dir": str(self.data),
            "bind": f"127.0.0.1:{http}",
            "shards": "2",
            "log_level": "info",
            "cluster.node_id": name,
            "cluster.peer_bind": self.peer,
        }
        self.environment: dict[str, str] = {}
        self.running: Running | None = None
        self.last: Running | None = None
        """The node as it was started last, whether or not it still runs."""
        self.build = ""
        """Which of the builds of `tests.support.builds` it runs; empty for the product as it is."""

    def client(self) -> Client:
        """A client of the node. Where nodes have places of their own, it is in that of the node."""
        if self.place is None:
            return Client(self.address)
        return Client(self.address, make_socket=self.place.make_socket)

    @property
    def node(self) -> Running:
        """The node, which runs."""
        said = "" if self.last is None else self.last.story()
        assert self.running is not None, f"{self.name} does not run: {said}"
        return self.running

    @property
    def pids(self) -> dict[str, int]:
        """The processes of the node by their names, the newest of each; `node` is its own."""
        found = {str(one["name"]): int(str(one["pid"])) for one in self.node.find("process.ready")}
        return {"node": self.node.process.pid, **found}

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the node."""
        for pid in self.pids.values():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # it has ended

    def kill(self) -> None:
        """Kill the node and all of its processes."""
        self.signal(signal.SIGKILL)


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
        prefix = () if member.place is None else member.place.prefix
        programs = programs_of(member.build) if member.build else REAL
        entry = (_BUILDS, member.build, "node") if member.build else ("tests.support.nodes",)
        async with running(
            member.settings, programs, prefix=prefix, entry=entry, **member.environment
        ) as node:
            member.running = member.last = node
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
        client = member.client()
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
        raise AssertionError(f"{method} {path} at {member.name}: {last}; {member.node.story()}")


async def members_in(directory: Path, names: Sequence[str], **settings: str) -> list[Member]:
    """New nodes. A setting's dot is written as two underscores."""
    ports = free_ports(2 * len(names))
    made = []
    for number, name in enumerate(names):
        member = Member(directory, name, ports[2 * number], ports[2 * number + 1])
        member.settings |= {key.replace("__", "."): settings[key] for key in settings}
        made.append(member)
    return made


def members_of(directory: Path, network: Network, **settings: str) -> list[Member]:
    """New nodes, each in a place of its own."""
    made = []
    for name, place in zip("abcdefgh", network.places, strict=False):
        member = Member(directory, name, 8080, 9400, place)
        member.settings |= {key.replace("__", "."): settings[key] for key in settings}
        member.settings["cluster.secret"] = _SECRET
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
        try:
            yield Cluster(members, nursery)
        finally:
            # Before its directory is removed, no process may write there.
            with trio.move_on_after(_END_S, shield=True):
                for member in members:
                    if (node := member.running) is not None:
                        member.kill()
                        await node.silent.wait()
            nursery.cancel_scope.cancel()
