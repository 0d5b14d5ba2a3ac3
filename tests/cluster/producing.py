"""Producers of a cluster: many jobs at once, and single ones all the time."""

from secrets import token_hex
from time import monotonic
from typing import Final

import msgspec
import trio

from tests.cluster.figures import Times
from tests.cluster.nodes import Cluster, Member
from tests.node.http import Client, Lost

_BATCH: Final = 1_000
_FILLERS: Final = 4
_QUEUES: Final = 16
_PAUSE_S: Final = 0.05


class Producers:
    """Clients that put jobs in, and insist on it."""

    def __init__(self, cluster: Cluster) -> None:
        self.times: Final = Times()
        """Of single enqueues."""
        self.repeated = 0
        self._cluster = cluster
        self._put = 0

    async def fill(self, jobs: int) -> None:
        """Put so many jobs in, as fast as the cluster takes them."""
        async with trio.open_nursery() as nursery:
            for number in range(_FILLERS):
                nursery.start_soon(self._fill, number, jobs // _FILLERS)

    async def _fill(self, number: int, jobs: int) -> None:
        client = Client(self._cluster[number % 3].address)
        for batch in range(0, jobs, _BATCH):
            queue = f"mail-{(number + batch // _BATCH) % _QUEUES}"
            count = min(_BATCH, jobs - batch)
            # Text that no compression makes smaller than half.
            jobs_of = [{"queue": queue, "payload": {"text": token_hex(100)}} for _ in range(count)]
            body = {"jobs": jobs_of}
            await self._insist(client, "/api/v1/enqueue/batch", body, f"fill-{number}-{batch}")
        client.close()

    async def produce(self, number: int, member: Member) -> None:
        """Put one job in after the other, until cancelled."""
        client = Client(member.address)
        try:
            while True:
                self._put += 1
                job = {"queue": f"mail-{self._put % _QUEUES}", "payload": {"number": self._put}}
                began = monotonic()
                await self._insist(client, "/api/v1/enqueue", job, f"put-{number}-{self._put}")
                self.times.add(began)
        finally:
            client.close()

    async def _insist(self, client: Client, path: str, body: object, key: str) -> None:
        data = msgspec.json.encode(body)
        while True:
            try:
                answer = await client.ask("POST", path, data, key)
                if answer.status < 300:
                    return
                assert answer.status in {429, 503}, answer
            except Lost:
                pass
            self.repeated += 1
            await trio.sleep(_PAUSE_S)
