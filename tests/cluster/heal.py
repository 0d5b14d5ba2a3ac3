"""Nodes are cut off from each other under load and linked again, and in the end all is equal.

Producers, workers and chains of jobs use all nodes and all shards. In each round a node is cut off:
in both directions, or in one. Probes at that node try to write meanwhile, each with an id of its
own. What they are told is checked afterwards: a job that was accepted is there, and one of which it
was said that nothing was changed is not.

Where this user may make network namespaces, each node has one, and packets vanish. Otherwise all
processes of nodes are stopped by SIGSTOP, which can cut no single direction: the others are stopped
instead, so that the node which is left is a minority.
"""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

import msgspec
import trio

from tests.cluster.answers import Given, Page
from tests.cluster.comparing import Compared, compare
from tests.cluster.failover import Standing
from tests.cluster.nodes import (
    Cluster,
    Member,
    as_initial,
    cluster_of,
    members_in,
    members_of,
)
from tests.node.crowd import Crowd, queue_on
from tests.node.history import judge
from tests.node.http import Answer, Client, Lost
from tests.support.networks import Network, is_possible, network_of

NODES: Final = 3
_CALM: Final = 15
"""Successes of each shard before a cut, and after it."""
CUT_S: Final = (2.0, 12.0)
"""How long a cut lasts."""
_PROBE_S: Final = 0.25
_PAUSE_S: Final = 0.05
_ANSWERS_S: Final = 30.0
"""How long answers to probes are waited for."""
_STEPS: Final = 3
CUTS: Final = ("both ways", "out of it", "into it")


class Told(msgspec.Struct, frozen=True):
    """What a probe was told."""

    id: str
    queue: str
    sent_at: float
    seconds: float
    what: str
    """`accepted`, or the code and the outcome of a problem, or how the connection was lost."""


class Round(msgspec.Struct):
    """One cut."""

    cut: str
    led: int
    """Shards that the node led."""
    cut_s: float
    told: list[Told] = []
    back_s: float = 0.0
    """From healing to the first write that was accepted at the node."""
    wrongs: list[str] = []
    events: int = 0
    oddities: dict[str, int] = {}
    compared: Compared = msgspec.field(default_factory=Compared)
    last_s: float = 0.0
    """From the cut to the last write that the node accepted before it was healed."""


class Problem(msgspec.Struct):
    """An answer that is no success."""

    code: str = ""
    outcome: str = ""


class Chains:
    """Chains of jobs whose steps are on different shards, and workers for them, at all nodes."""

    def __init__(self, members: list[Member], shards: int, name: str) -> None:
        self.queues: Final = [
            queue_on(step % shards, shards, f"{name}{step}") for step in range(_STEPS)
        ]
        self.chains = 0
        self._done: list[set[str]] = [set() for _ in range(_STEPS)]
        self._members = members
        self._is_closing = False

    def close(self) -> None:
        """Begin no more chains; `run` ends when all are done."""
        self._is_closing = True

    @property
    def _is_over(self) -> bool:
        return self._is_closing and all(len(done) >= self.chains for done in self._done)

    async def run(self) -> None:
        """Begin chains, and work on them."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._produce)
            for step in range(_STEPS):
                nursery.start_soon(self._work, step)

    async def _produce(self) -> None:
        clients = [member.client() for member in self._members]
        steps = [{"queue": queue} for queue in self.queues]
        while not self._is_closing:
            self.chains += 1
            client = clients[self.chains % len(clients)]
            job = {"queue": self.queues[0], "chain": {"steps": steps}, "max_crashes": 100}
            await self._insist(client, "/api/v1/enqueue", job, f"{self.queues[0]}-{self.chains}")
            await trio.sleep(_PAUSE_S)
        _close(clients)

    async def _work(self, step: int) -> None:
        clients = [member.client() for member in self._members]
        count = 0
        while not self._is_over:
            count += 1
            client = clients[(count + step) % len(clients)]
            asked = {"queues": [self.queues[step]], "worker_id": f"s{step}", "lease_seconds": 3}
            given = await self._try(client, "/api/v1/fetch", {**asked, "wait_seconds": 1})
            if given is None or given.status != 200:
                continue
            job = given.read(Given)
            path = f"/api/v1/ack/{job.job_id}"
            answer = await self._insist(client, path, {"lease_token": job.lease_token})
            if answer.status == 200:
                self._done[step].add(job.job_id)
        _close(clients)

    async def _insist(self, client: Client, path: str, body: object, key: str = "") -> Answer:
        while True:
            answer = await self._try(client, path, body, key)
            if answer is not None:
                return answer

    async def _try(self, client: Client, path: str, body: object, key: str = "") -> Answer | None:
        try:
            answer = await client.ask("POST", path, msgspec.json.encode(body), key)
            if answer.status not in {429, 503}:
                return answer
        except Lost:
            pass
        await trio.sleep(_PAUSE_S)
        return None

    async def judge(self, cluster: Cluster) -> list[str]:
        """What is wrong, when all is done."""
        wrongs = []
        for step, queue in enumerate(self.queues):
            page = Page(0, is_behind=True)
            while page.is_behind:
                body = {"queue": queue, "limit": 1, "consistency": "wait"}
                found = await cluster.until(cluster[0], "POST", "/api/v1/jobs/search", body)
                page = found.read(Page)
            if not page.total == len(self._done[step]) == self.chains:
                wrongs.append(
                    f"step {step} of {self.chains} chains: {page.total} jobs, of which"
                    f" {len(self._done[step])} were acknowledged"
                )
        return wrongs


def _close(clients: list[Client]) -> None:
    for client in clients:
        client.close()


class Probes:
    """Writes at one node, one after the other on connections of their own."""

    def __init__(self, member: Member, shards: int, name: str) -> None:
        self.told: Final[list[Told]] = []
        self.accepted = trio.Event()
        """Replaced when it is to be waited for again."""
        self._refused = trio.Event()
        self._is_closing = False
        self._member = member
        self._name = name
        self._queues = [queue_on(shard, shards, "probe") for shard in range(shards)]

    def close(self) -> None:
        """Send no more."""
        self._is_closing = True

    async def run(self) -> None:
        """Send probes until closed, and wait for the answers."""
        number = 0
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                while not self._is_closing:
                    number += 1
                    nursery.start_soon(self._probe, number)
                    await trio.sleep(_PROBE_S)
                scope.deadline = trio.current_time() + _ANSWERS_S

    async def _probe(self, number: int) -> None:
        own = f"{self._name}-{number}"
        queue = self._queues[number % len(self._queues)]
        client = self._member.client()
        began = monotonic()
        what = ""
        try:
            # Every second one may be repeated by the router, and every other one may not.
            key = own if number % 4 < 2 else ""
            body = msgspec.json.encode({"queue": queue, "id": own})
            answer = await client.ask("POST", "/api/v1/enqueue", body, key)
            what = "accepted"
            if answer.status not in {200, 201}:
                problem = answer.read(Problem)
                what = f"{answer.status} {problem.code} {problem.outcome}"
        except Lost as lost:
            what = f"lost: {lost}"
        finally:
            client.close()
            what = what or "no answer"
            self.told.append(Told(own, queue, began, monotonic() - began, what))
        if what == "accepted":
            self.accepted.set()
        if what.startswith("503"):
            self._refused.set()
            self._refused = trio.Event()

    async def until_refused(self, since: float) -> None:
        """Wait until a probe was refused that was sent since then."""
        while not any(one.sent_at >= since and one.what.startswith("503") for one in self.told):
            await self._refused.wait()

    async def judge(self, cluster: Cluster) -> list[str]:
        """What is wrong, when all is healed."""
        wrongs = []
        client = cluster[0].client()
        for each in self.told:
            path = f"/api/v1/jobs/{each.queue}~{each.id}"
            found = await client.look(path)
            if each.what == "accepted" and found.status != 200:
                wrongs.append(f"{each.id} was accepted, and is lost: {found}")
            if each.what.endswith("not_applied") and found.status != 404:
                wrongs.append(f"{each.id} was told {each.what}, and is there")
        client.close()
        return wrongs


class Heal:
    """One run."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network | None,
        shards: int,
        dice: Random,
        cut_s: tuple[float, float],
        until_refused: bool,
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._shards = shards
        self._dice = dice
        self._cut_s = cut_s
        self._until_refused = until_refused
        self._kinds: list[str] = []

    async def run(self, rounds: int, tell: Callable[[Round], None]) -> list[Round]:
        """Cut and heal so many times."""
        seen = []
        for number in range(rounds):
            if not self._kinds:
                self._kinds = self._dice.sample(CUTS, k=len(CUTS))
            kind = self._kinds.pop() if self._network is not None else "the others stopped"
            seen.append(await self._round(f"r{number}", kind))
            tell(seen[-1])
        return seen

    async def _led(self) -> list[int]:
        """By node, how many shards it leads."""
        answer = await self._cluster.until(self._cluster[0], "GET", "/api/v1/cluster/status")
        leaders = [group.leader_id for group in answer.read(Standing).groups]
        return [leaders.count(str(number)) for number in range(1, NODES + 1)]

    async def _round(self, name: str, kind: str) -> Round:
        members = self._cluster.members
        clients = [member.client for member in members]
        crowd = Crowd(
            members[0].address, self._shards, clients=clients, each=2 * NODES, name=f"{name}c"
        )
        chains = Chains(members, self._shards, f"{name}s")
        led = await self._led()
        victim = self._dice.randrange(NODES)
        probes = Probes(members[victim], self._shards, name)
        cut_s = self._dice.uniform(*self._cut_s)
        seen = Round(kind, led[victim], cut_s)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crowd.run)
            nursery.start_soon(chains.run)
            await crowd.more(_CALM)
            async with trio.open_nursery() as probing:
                probing.start_soon(probes.run)
                await probes.accepted.wait()
                began = monotonic()
                async with self._cut(kind, victim):
                    await trio.sleep(cut_s)
                    if self._until_refused:
                        await probes.until_refused(began)
                    accepted = [each for each in probes.told if each.what == "accepted"]
                    ends = [each.sent_at + each.seconds for each in accepted]
                    seen.last_s = max(0.0, max(ends) - began)
                healed = monotonic()
                probes.accepted = trio.Event()
                await probes.accepted.wait()
                seen.back_s = monotonic() - healed
                probes.close()
            await crowd.more(_CALM)
            crowd.close()
            chains.close()
        seen.told = [each for each in probes.told if began <= each.sent_at < healed]
        seen.events, seen.oddities = len(crowd.history), crowd.oddities
        seen.wrongs = [
            *judge(crowd.history, await crowd.look_up()),
            *await chains.judge(self._cluster),
            *await probes.judge(self._cluster),
        ]
        seen.compared = await compare(members, self._shards)
        return seen

    @asynccontextmanager
    async def _cut(self, kind: str, victim: int) -> AsyncIterator[None]:
        """Cut a node off while the block lasts."""
        network, members = self._network, self._cluster.members
        others = [number for number in range(NODES) if number != victim]
        if network is None:
            for number in others:
                members[number].signal(signal.SIGSTOP)
            try:
                yield
            finally:
                for number in others:
                    members[number].signal(signal.SIGCONT)
            return
        for number in others:
            if kind != "into it":
                await network.cut(network.places[victim], network.places[number])
            if kind != "out of it":
                await network.cut(network.places[number], network.places[victim])
        yield
        await network.heal()


async def run(
    directory: Path,
    *,
    rounds: int = 1,
    shards: int = 3,
    seed: int = 1,
    cut_s: tuple[float, float] = CUT_S,
    until_refused: bool = False,
    tell: Callable[[Round], None] = lambda _: None,
) -> list[Round]:
    """Cut nodes of a cluster of three off, and heal, so many times.

    With `until_refused`, a cut lasts at least until a write at the node was refused.
    """
    heal = partial(Heal, shards=shards, dice=Random(seed), cut_s=cut_s, until_refused=until_refused)
    if not is_possible():
        members = await members_in(directory, ("a", "b", "c"), shards=str(shards))
        as_initial(members)
        async with cluster_of(members) as cluster:
            await cluster.start_all()
            return await heal(cluster, None).run(rounds, tell)
    async with network_of(NODES) as network:
        members = members_of(directory, network, shards=str(shards))
        as_initial(members)
        async with cluster_of(members) as cluster:
            await cluster.start_all()
            return await heal(cluster, network).run(rounds, tell)
