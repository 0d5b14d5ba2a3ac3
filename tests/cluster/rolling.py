"""All nodes of a cluster are restarted under load, one after the other.

Each client knows all addresses. It sends every request under a request key, and repeats it once, at
the next address, when it fails. What fails twice is counted, and every job that was acknowledged
must be there once.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

import msgspec
import trio

from tests.cluster.answers import Made
from tests.cluster.figures import Times
from tests.cluster.nodes import Cluster, Member, as_initial, cluster_of, members_in
from tests.cluster.syncing import bare_syncs
from tests.node.http import Answer, Client, Lost

CLIENTS: Final = 8
_CALM: Final = 200
"""Jobs that are acknowledged between two restarts."""


class Seen(msgspec.Struct):
    """What came of it."""

    jobs: int = 0
    repeated: int = 0
    failed: list[str] = []
    """What the second answer was, where it was no success either."""
    missing: int = 0
    doubled: int = 0
    times: Times = msgspec.field(default_factory=Times)
    """Of all requests."""
    bare: Times = msgspec.field(default_factory=Times)
    """Of syncs of a small file beside them."""


class Asked(Protocol):
    """A node, as its clients see it."""

    def client(self) -> Client: ...


class Load:
    """Clients at work, each with the addresses of all nodes."""

    def __init__(self, members: Sequence[Asked]) -> None:
        self._members = members
        self.seen: Final = Seen(failed=[])
        self._ids: list[str] = []
        self._is_closing = False
        self._moved = trio.Event()

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Clients at work; after the block, all jobs are looked up."""
        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(self._produce, number)
            await self.more()
            yield
            self._is_closing = True
        await self._look_up()

    async def more(self) -> None:
        """Wait until some more jobs were acknowledged."""
        wanted = self.seen.jobs + _CALM
        while self.seen.jobs < wanted:
            await self._moved.wait()

    async def _produce(self, number: int) -> None:
        clients = [member.client() for member in self._members]
        count = 0
        while not self._is_closing:
            count += 1
            at = (number + count) % len(clients)
            key = f"client-{number}-{count}"
            job = {"queue": f"mail-{count % 7}", "payload": {"key": key}}
            body = msgspec.json.encode(job)
            answer = await self._try(clients[at], body, key)
            if not isinstance(answer, Answer):
                self.seen.repeated += 1
                answer = await self._try(clients[(at + 1) % len(clients)], body, key)
            if isinstance(answer, Answer):
                self._ids.append(answer.read(Made).job_id)
                self.seen.jobs += 1
            else:
                self.seen.failed.append(answer)
            self._moved.set()
            self._moved = trio.Event()
        for client in clients:
            client.close()

    async def _try(self, client: Client, body: bytes, key: str) -> Answer | str:
        """The answer, or why there is none."""
        began = monotonic()
        try:
            answer = await client.ask("POST", "/api/v1/enqueue", body, key)
        except Lost as lost:
            return f"lost: {lost}"
        finally:
            self.seen.times.add(began)
        if answer.status in {200, 201}:
            return answer
        return f"{answer.status} {answer.body.decode()}"

    async def _look_up(self) -> None:
        """Each job that was acknowledged is there, and none is there twice."""
        self.seen.doubled = len(self._ids) - len({*self._ids})
        client = self._members[0].client()
        for job_id in self._ids:
            answer = await client.look(f"/api/v1/jobs/{job_id}")
            self.seen.missing += answer.status != 200
        client.close()


class Rolling(Load):
    """One run."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.members)
        self._cluster = cluster

    async def run(self, rounds: int) -> Seen:
        """Restart every node so many times."""
        directory = self._cluster[0].data.parent
        async with bare_syncs(directory) as bare, self.load():
            for _ in range(rounds):
                for member in self._cluster.members:
                    await self.restart(member)
        self.seen.bare = bare.times
        return self.seen

    async def restart(self, member: Member) -> None:
        """Restart one node."""
        assert await member.node.end() == 0
        await self._cluster.start(member)
        await member.node.hear("node.ready")
        await self.more()


async def run(directory: Path, *, rounds: int = 1, shards: int = 4) -> Seen:
    """Restart all nodes of a cluster of three so many times."""
    members = await members_in(directory, ("a", "b", "c"), shards=str(shards))
    as_initial(members)
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        return await Rolling(cluster).run(rounds)
