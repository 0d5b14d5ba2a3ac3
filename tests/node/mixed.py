"""A little of everything, for long: what a node takes must not rise with the time it runs."""

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import trio

from tests.node.gauges import Disk, Gauge, look_at, look_at_disk
from tests.node.http import Address, Client
from tests.node.nodes import house_in, pid_of
from tests.router.stream_client import connected
from tests.support.nodes import Running

CLERKS: Final = 6
STREAMS: Final = 2
_BREATH_S: Final = 0.01
"""A clerk's between two rounds: the load is to be steady, and not the most that is possible."""
SETTINGS: Final = {
    "retention": "20s",
    "shard__checkpoint_bytes": "4MiB",
    "shard__checkpoint_entries": "20000",
    "shard__keep_entries": "1000",
    "shard__segment_bytes": "1MiB",
}


class Given(msgspec.Struct):
    job_id: str
    lease_token: int


class GivenMany(msgspec.Struct):
    jobs: list[Given]


class Seen(msgspec.Struct):
    """What came of it."""

    rounds: int = 0
    gauges: dict[str, list[Gauge]] = {}
    disk: list[Disk] = []
    statuses: dict[str, int] = {}


class Mixed:
    """One run."""

    def __init__(self, address: Address, data: Path) -> None:
        self.seen: Final = Seen()
        self._address = address
        self._data = data
        self._first = [trio.Event() for _ in range(CLERKS + STREAMS)]
        """By clerk and then by stream, whether it has done a round."""

    async def run(self, node: Running, seconds: float, every_s: float) -> None:
        """Load it for so long, and look every now and then."""
        names = sorted(str(one["name"]) for one in node.find("process.ready"))
        pids = {"node": node.process.pid, **{name: pid_of(node, name) for name in names}}
        async with trio.open_nursery() as nursery:
            for number in range(CLERKS):
                nursery.start_soon(self._clerk, number)
            for number in range(STREAMS):
                nursery.start_soon(self._stream, number)
            # What each connection takes does not count as a rise.
            for first in self._first:
                await first.wait()
            began, at_s = trio.current_time(), 0.0
            while at_s < seconds:
                await trio.sleep_until(began + at_s + every_s)
                at_s = trio.current_time() - began
                for name, pid in pids.items():
                    self.seen.gauges.setdefault(name, []).append(look_at(pid, at_s))
                self.seen.disk.append(look_at_disk(self._data, at_s))
            nursery.cancel_scope.cancel()

    async def _clerk(self, number: int) -> None:
        dice = Random(number)
        queue = f"mixed-{number}"
        ids: list[str] = []
        with closing(Client(self._address)) as client:
            while True:
                self.seen.rounds += 1
                if self.seen.rounds % 50 == 0:
                    client.close()
                await self._put(client, queue, dice)
                ids = await self._take(client, queue, dice) or ids
                for page in ("queues", "metrics", "dead", "workers"):
                    if dice.random() < 0.05:
                        await self._ask(client, "GET", f"/api/v1/{page}")
                for job_id in ids[:2]:
                    await self._ask(client, "GET", f"/api/v1/jobs/{job_id}")
                self._first[number].set()
                await trio.sleep(_BREATH_S)

    async def _put(self, client: Client, queue: str, dice: Random) -> None:
        payload = {"text": "x" * dice.randrange(400)}
        one: dict[str, object] = {"queue": queue, "payload": payload, "retry_base_delay": "1s"}
        kind = dice.randrange(5)
        if kind == 0:
            one["unique_key"] = f"u{dice.randrange(100)}"
        elif kind == 1:
            one["delay_ms"] = dice.randrange(3_000)
        elif kind == 2:
            one["priority"] = dice.choice(["critical", "high"])
        elif kind == 3:
            one["expire_after"] = "10s"
        await self._ask(client, "POST", "/api/v1/enqueue", one)
        many = {"jobs": [{"queue": queue, "payload": payload} for _ in range(dice.randrange(1, 9))]}
        await self._ask(client, "POST", "/api/v1/enqueue/batch", many)

    async def _take(self, client: Client, queue: str, dice: Random) -> list[str]:
        asked = {
            "queues": [queue],
            "count": 12,
            "timeout": 1,
            "lease_seconds": 5,
            "worker_id": queue,
        }
        body = await self._ask(client, "POST", "/api/v1/fetch/batch", asked)
        jobs = msgspec.json.decode(body, type=GivenMany).jobs
        if not jobs:
            return []
        beats = {"jobs": {job.job_id: {"lease_token": job.lease_token} for job in jobs[:3]}}
        await self._ask(client, "POST", "/api/v1/heartbeat", beats)
        acks, fails = [], []
        for job in jobs:
            word: dict[str, object] = {"job_id": job.job_id, "lease_token": job.lease_token}
            fate = dice.random()
            if fate < 0.1:
                fails.append({**word, "error": "no luck", "retry_after_ms": 500})
            elif fate < 0.99:  # and one in a hundred is forgotten
                acks.append({**word, "result": {"done": True}})
        if acks:
            await self._ask(client, "POST", "/api/v1/ack/batch", {"acks": acks})
        if fails:
            await self._ask(client, "POST", "/api/v1/fail/batch", {"fails": fails})
        return [job.job_id for job in jobs]

    async def _ask(self, client: Client, method: str, path: str, body: object = None) -> bytes:
        data = msgspec.json.encode(body) if body is not None else b""
        answer = await client.ask(method, path, data)
        said = f"{answer.status} {path.split('/')[3]}"
        self.seen.statuses[said] = self.seen.statuses.get(said, 0) + 1
        assert answer.status < 300 or answer.status == 404, answer
        return answer.body

    async def _stream(self, number: int) -> None:
        queue = f"streamed-{number}"
        while True:
            async with connected(self._address[1]) as client:
                words: list[object] = []
                for frame in range(1, 500):
                    said = await client.ask(
                        {
                            "id": frame,
                            "acks": words,
                            "enqueues": [{"queue": queue, "payload": {"n": frame}}] * 5,
                            "fetch": {"queues": [queue], "count": 5, "wait_ms": 1_000},
                        }
                    )
                    self.seen.rounds += 1
                    jobs = msgspec.convert(said["jobs"], type=list[Given])
                    words = [msgspec.to_builtins(job) for job in jobs]
                    self._first[CLERKS + number].set()
                    await trio.sleep(_BREATH_S)


async def run(directory: Path, *, seconds: float, every_s: float = 5.0) -> Seen:
    """Load a node for so long; what was seen."""
    house = await house_in(directory, **SETTINGS)
    mixed = Mixed(house.address, house.data)
    async with house.open() as node:
        await mixed.run(node, seconds, every_s)
        code = await node.end()
    assert code == 0, code
    assert not node.texts, node.texts
    return mixed.seen
