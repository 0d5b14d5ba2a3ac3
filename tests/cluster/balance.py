"""More nodes than replicas: no node has all shards, any node answers anything, and places balance.

A node is drained, removed and stopped, and another one joins, while a client puts jobs in at all
nodes and works on them. It repeats a failed request once, at another node.
"""

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import trio

from tests.cluster.answers import Given, Made, Node, Nodes, Page
from tests.cluster.comparing import Compared, compare
from tests.cluster.nodes import PATIENCE_S, Cluster, Member, as_initial, cluster_of, members_in
from tests.node.crowd import queue_on
from tests.node.http import Answer, Client, Lost

REPLICAS: Final = 3
ZONES: Final = 3
_NAMES: Final = ("a", "b", "c", "d", "e", "f")
_FIRST: Final = 5
_LOOK_S: Final = 0.5
_PAUSE_S: Final = 0.1
_API: Final = "/api/v1"
_NODES: Final = f"{_API}/cluster/nodes"
_LEADERS_APART: Final = 2


class Status(msgspec.Struct):
    """The status of the cluster."""

    status: str


class Stage(msgspec.Struct, frozen=True):
    """The places after one change."""

    name: str
    seconds: float
    replicas: dict[str, int]
    leaders: dict[str, int]


class Seen(msgspec.Struct):
    """The result of a run."""

    stages: list[Stage] = []
    answers: int = 0
    """Answers of each node to each kind of request about each shard."""
    requests: int = 0
    repeated: int = 0
    failed: list[str] = []
    """Requests that failed twice."""
    compared: Compared = msgspec.field(default_factory=Compared)


def by_zone(nodes: list[Node]) -> list[list[Node]]:
    """The nodes of each zone."""
    return [[node for node in nodes if node.zone == zone] for zone in {node.zone for node in nodes}]


def imbalance(nodes: list[Node], shards: int) -> str:
    """Why the places of replicas and leaders are not balanced; empty when they are.

    A node that is alone in its zone has a replica of each shard. Other nodes do not.
    """
    replicas = [len(node.replicas) for node in nodes]
    leaders = [len(node.leads) for node in nodes]
    if sum(replicas) != REPLICAS * shards or sum(leaders) != shards:
        return f"{sum(replicas)} replicas and {sum(leaders)} leaders of {shards} shards"
    for peers in by_zone(nodes):
        here = [len(node.replicas) for node in peers]
        if max(here) - min(here) > 1 or (len(peers) > 1 and max(here) == shards):
            return f"replicas of nodes: {replicas}"
    if max(leaders) - min(leaders) > _LEADERS_APART:
        return f"leaders of nodes: {leaders}"
    for shard in range(shards):
        zones = [node.zone for node in nodes if shard in node.replicas]
        if all(zones) and len({*zones}) < ZONES:
            return f"shard {shard} is in the zones {zones}"
    return ""


class Load:
    """A client that puts jobs in and works on them, and repeats what fails at another node."""

    def __init__(self, members: list[Member], shards: int, seen: Seen) -> None:
        self.members: Final = members
        """The nodes that it knows: changed while it runs."""
        self._queues = [queue_on(shard, shards, "light") for shard in range(shards)]
        self._seen = seen
        self._number = 0

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._number += 1
            await self._job(self._queues[self._number % len(self._queues)], f"l{self._number}")
            await trio.sleep(_PAUSE_S)

    async def _job(self, queue: str, key: str) -> None:
        made = await self._ask(f"{_API}/enqueue", {"queue": queue}, f"put-{key}")
        asked = {"queues": [queue], "worker_id": "w"}
        fetched = await self._ask(f"{_API}/fetch", asked, f"fetch-{key}")
        if made is None or fetched is None or fetched.status != 200:
            return
        given = fetched.read(Given)
        await self._ask(f"{_API}/ack/{given.job_id}", {"lease_token": given.lease_token})

    async def _ask(self, path: str, body: object, key: str = "") -> Answer | None:
        """The answer to the first request, or to the second one."""
        self._seen.requests += 1
        why = []
        for attempt in range(2):
            member = self.members[(self._number + attempt) % len(self.members)]
            client = Client(member.address)
            try:
                answer = await client.ask("POST", path, msgspec.json.encode(body), key)
                if answer.status < 300:
                    self._seen.repeated += attempt
                    return answer
                why.append(f"{answer.status} of {member.name}: {answer.body.decode()}")
            except Lost as lost:
                why.append(f"{member.name}: {lost}")
            finally:
                client.close()
        self._seen.failed.append(f"{path}: {why}")
        return None


class Balance:
    """One run."""

    def __init__(self, cluster: Cluster, shards: int, tell: Callable[[Stage], None]) -> None:
        self.seen: Final = Seen(stages=[], failed=[])
        self._cluster = cluster
        self._shards = shards
        self._tell = tell

    async def run(self) -> Seen:
        """Take a node out, and add another."""
        members, cluster = self._cluster.members, self._cluster
        first, leaving, new = members[0], members[_FIRST - 1], members[_FIRST]
        load = Load(members[:_FIRST], self._shards, self.seen)
        for member in members[:_FIRST]:
            await cluster.start(member)
        for member in members[:_FIRST]:
            await member.node.hear("node.ready")
        await self._settle(f"{_FIRST} nodes", load.members)
        await self._check_answers(load.members, "early")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await cluster.until(first, "POST", f"{_NODES}/{leaving.name}/drain")
            await self._until_empty(leaving)
            reason = {"reason": "its rack moves"}
            await cluster.until(first, "POST", f"{_NODES}/{leaving.name}/remove", reason)
            load.members.remove(leaving)
            await leaving.node.end()
            await self._settle("one removed", load.members)
            await cluster.start(new)
            await new.node.hear("node.ready")
            load.members.append(new)
            await self._settle("one added", load.members)
            nursery.cancel_scope.cancel()
        await self._check_answers(load.members, "late")
        self.seen.compared = await compare(load.members, self._shards)
        return self.seen

    async def _nodes(self) -> list[Node]:
        answer = await self._cluster.until(self._cluster[0], "GET", _NODES)
        return answer.read(Nodes).nodes

    async def _until_empty(self, member: Member) -> None:
        """Wait until a node has no replicas."""
        while True:
            left = [node.replicas for node in await self._nodes() if node.name == member.name]
            if not any(left):
                return
            await trio.sleep(_LOOK_S)

    async def _settle(self, name: str, members: list[Member]) -> None:
        """Wait until places are balanced and all is well."""
        began = monotonic()
        nodes: list[Node] = []
        why = "not looked at yet"
        with trio.move_on_after(2 * PATIENCE_S):
            while why:
                await trio.sleep(_LOOK_S)
                nodes = await self._nodes()
                why = imbalance(nodes, self._shards)
                path = f"{_API}/cluster/status"
                status = await self._cluster.until(self._cluster[0], "GET", path)
                if status.read(Status).status != "healthy":
                    why = why or status.body.decode()
        assert not why, f"{name}: {why}: {nodes}"
        assert {node.name for node in nodes} == {member.name for member in members}
        stage = Stage(
            name,
            monotonic() - began,
            {node.name: len(node.replicas) for node in nodes},
            {node.name: len(node.leads) for node in nodes},
        )
        self.seen.stages.append(stage)
        self._tell(stage)

    async def _check_answers(self, members: list[Member], name: str) -> None:
        """Let each node answer each kind of request about each shard."""
        cluster = self._cluster
        for shard in range(self._shards):
            queue = queue_on(shard, self._shards, name)
            for number, member in enumerate(members):
                job = {"queue": queue, "payload": {"by": member.name}}
                key = f"{queue}-{number}"
                made = await cluster.until(member, "POST", f"{_API}/enqueue", job, key)
                job_id = made.read(Made).job_id
                found = await cluster.until(member, "GET", f"{_API}/jobs/{job_id}")
                assert found.read(State).state == "pending"
                asked = {"queues": [queue], "worker_id": "w"}
                given = (await cluster.until(member, "POST", f"{_API}/fetch", asked)).read(Given)
                assert given.job_id == job_id
                token = {"lease_token": given.lease_token}
                await cluster.until(member, "POST", f"{_API}/ack/{job_id}", token)
                assert await self._found(member, queue) == number + 1
                self.seen.answers += 5

    async def _found(self, member: Member, queue: str) -> int:
        """How many jobs of a queue are completed, by the mirror of a node."""
        body = {"queue": queue, "state": ["completed"], "limit": 1, "consistency": "wait"}
        while True:
            answer = await self._cluster.until(member, "POST", f"{_API}/jobs/search", body)
            page = answer.read(Page)
            if not page.is_behind:
                return page.total


class State(msgspec.Struct):
    """A job."""

    state: str


async def run(
    directory: Path,
    *,
    shards: int = 8,
    zones: bool = False,
    tell: Callable[[Stage], None] = lambda _: None,
    **settings: str,
) -> Seen:
    """Five nodes, of which one is replaced."""
    members = await members_in(
        directory, _NAMES, shards=str(shards), cluster__replicas=str(REPLICAS), **settings
    )
    for number, member in enumerate(members):
        if zones:
            member.settings["cluster.zone"] = f"zone-{number % ZONES}"
    as_initial(members[:_FIRST])
    members[_FIRST].settings["cluster.join"] = members[0].peer
    del members[_FIRST].settings["shards"]
    async with cluster_of(members) as cluster:
        return await Balance(cluster, shards, tell).run()
