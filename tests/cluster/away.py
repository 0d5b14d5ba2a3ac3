"""A node is away while the others work, comes back with its directory, and catches up under load.

Jobs are put in at an even rate at the two nodes that stay, and half of them are worked on. Four of
five jobs belong to one shard, so that shards need different ways to catch up: one whose log was cut
meanwhile needs a snapshot, another one gets the entries that it lacks.
"""

import os
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import trio

from corvo.placement import shard_of_queue
from corvo.protocol.numbers import Numbers
from tests.cluster.answers import Given
from tests.cluster.comparing import Compared, compare, numbers_of
from tests.cluster.figures import Times
from tests.cluster.nodes import Cluster, Member, as_initial, cluster_of, members_in
from tests.cluster.syncing import bare_syncs
from tests.node.gauges import cpu_s
from tests.node.http import Client, Lost

SHARDS: Final = 2
_NAMES: Final = ("a", "b", "c")
_LOOK_S: Final = 0.1
CALM_S: Final = 10.0
"""How long it is measured before and afterwards."""
_WORK: Final = 10
"""Jobs that are fetched and acknowledged together."""
_HEAVY: Final = 5
"""One job of so many belongs to the second shard."""


class GivenMany(msgspec.Struct):
    """Jobs that were fetched together."""

    jobs: list[Given]


class CaughtUp(msgspec.Struct, frozen=True):
    """How one replica caught up."""

    shard: int
    lacked: int
    """Entries that it did not have."""
    way: str
    seconds: float
    """From the start of its node."""


class Seen(msgspec.Struct):
    """The result of a run."""

    away_s: float
    jobs: int
    worked: int
    repeated: int
    caught_up: list[CaughtUp]
    times: dict[str, Times]
    """The time of each enqueue, by what went on meanwhile."""
    bare: dict[str, Times]
    """The same of bare syncs."""
    processor: float
    """Of all nodes and the clients, while the node was away, in cores."""
    compared: Compared


class Load:
    """Clients of the nodes that stay."""

    def __init__(self, members: list[Member], rate: float) -> None:
        self.times: Final = Times()
        self.jobs = 0
        self.worked = 0
        self.repeated = 0
        self._rate = rate
        self._addresses = [member.address for member in members]
        self._queues = [_queue_of(shard) for shard in range(SHARDS)]

    async def run(self) -> None:
        """Put jobs in and work on half of them, until cancelled."""
        clients = [[Client(address) for address in self._addresses] for _ in range(2)]
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._produce, clients[0])
                nursery.start_soon(self._work, clients[1])
        finally:
            for client in (*clients[0], *clients[1]):
                client.close()

    def _shard(self, number: int) -> int:
        return 1 if number % _HEAVY == 0 else 0

    async def _produce(self, clients: list[Client]) -> None:
        due, number = trio.current_time(), 0
        while True:
            number += 1
            due = max(due + 1 / self._rate, trio.current_time() - 1)
            await trio.sleep_until(due)
            job = {"queue": self._queues[self._shard(number)], "payload": {"number": number}}
            began = monotonic()
            await self._insist(clients, "/api/v1/enqueue", job, f"job-{number}")
            self.times.add(began)
            self.jobs += 1

    async def _work(self, clients: list[Client]) -> None:
        due, number = trio.current_time(), 0
        while True:
            number += 1
            due = max(due + 2 * _WORK / self._rate, trio.current_time() - 1)
            await trio.sleep_until(due)
            queue = self._queues[self._shard(number)]
            asked = {"queues": [queue], "worker_id": "w", "count": _WORK, "lease_seconds": 60}
            jobs = await self._insist(clients, "/api/v1/fetch/batch", asked)
            acks = {"acks": msgspec.to_builtins(msgspec.json.decode(jobs, type=GivenMany).jobs)}
            await self._insist(clients, "/api/v1/ack/batch", acks)
            self.worked += len(acks["acks"])

    async def _insist(self, clients: list[Client], path: str, body: object, key: str = "") -> bytes:
        """The answer, from the one node or the other."""
        data = msgspec.json.encode(body)
        while True:
            try:
                answer = await clients[0].ask("POST", path, data, key)
                if answer.status < 300:
                    return answer.body
                assert answer.status == 503, answer
            except Lost:
                pass
            self.repeated += 1
            clients.reverse()
            await trio.sleep(_LOOK_S)


def _queue_of(shard: int) -> str:
    return next(
        queue
        for queue in (f"mail-{number}" for number in range(1_000))
        if shard_of_queue(queue, SHARDS) == shard
    )


def processor_s(members: list[Member]) -> float:
    """Seconds of processor time that these nodes and this process have used."""
    pids = [pid for member in members for pid in member.pids.values()]
    return sum(cpu_s(pid) for pid in (os.getpid(), *pids))


class Away:
    """One run."""

    def __init__(self, cluster: Cluster, rate: float, calm_s: float) -> None:
        self._cluster = cluster
        self._calm_s = calm_s
        self._load = Load(cluster.members[:2], rate)
        self._phases: dict[str, tuple[float, float]] = {}

    async def run(self, directory: Path, away_s: float) -> Seen:
        """Take the last node away for so long."""
        *staying, lost = self._cluster.members
        async with bare_syncs(directory, 0.1) as bare, trio.open_nursery() as nursery:
            nursery.start_soon(self._load.run)
            await self._spend("all nodes there", self._calm_s)
            had = [await self._numbers(lost, shard) for shard in range(SHARDS)]
            lost.kill()
            await self._cluster.gone(lost)
            used = processor_s(staying)
            began = monotonic()
            await self._spend("one away", away_s)
            used = processor_s(staying) - used
            cores = used / (monotonic() - began)
            began = monotonic()
            await self._cluster.start(lost)
            caught_up = await self._catch_up(lost, staying, had)
            self._phases["it catches up"] = (began, monotonic())
            await self._spend("all nodes there again", self._calm_s)
            nursery.cancel_scope.cancel()
        compared = await compare(self._cluster.members, SHARDS)
        load = self._load
        return Seen(
            away_s=away_s,
            jobs=load.jobs,
            worked=load.worked,
            repeated=load.repeated,
            caught_up=caught_up,
            times={name: load.times.between(*phase) for name, phase in self._phases.items()},
            bare={name: bare.times.between(*phase) for name, phase in self._phases.items()},
            processor=cores,
            compared=compared,
        )

    async def _spend(self, name: str, seconds: float) -> None:
        began = monotonic()
        await trio.sleep(seconds)
        await self._load.times.until_one(began)
        self._phases[name] = (began, monotonic())

    async def _numbers(self, member: Member, shard: int) -> Numbers:
        while (found := await numbers_of(member, shard)) is None:  # noqa: ASYNC110 -- another process
            await trio.sleep(_LOOK_S)
        return found

    async def _catch_up(
        self, lost: Member, staying: list[Member], had: list[Numbers]
    ) -> list[CaughtUp]:
        """Wait until each replica of a node has all that the others had when the node began."""
        began = monotonic()
        found: list[CaughtUp] = []

        async def watch(shard: int) -> None:
            others = [await self._numbers(member, shard) for member in staying]
            # The one with the longest log: none may lead just now, or the node itself again.
            most = max(others, key=lambda each: each.last_index)
            last = had[shard].last_index
            way = "the log"
            if last + 1 < most.first_index:
                way = f"a snapshot: the log begins at {most.first_index}, and it had {last}"
            lacked = most.last_index - last
            while (await self._numbers(lost, shard)).applied < most.last_index:  # noqa: ASYNC110 -- another process
                await trio.sleep(_LOOK_S)
            found.append(CaughtUp(shard, lacked, way, monotonic() - began))

        async with trio.open_nursery() as nursery:
            for shard in range(SHARDS):
                nursery.start_soon(watch, shard)
        return sorted(found, key=lambda each: each.shard)


async def run(
    directory: Path, *, minutes: float = 1.0, rate: float = 100.0, calm_s: float = CALM_S
) -> Seen:
    """Take one of three nodes away for so long, under a load of so many jobs a second."""
    members = await members_in(directory, _NAMES, shards=str(SHARDS))
    as_initial(members)
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        return await Away(cluster, rate, calm_s).run(directory, 60 * minutes)
