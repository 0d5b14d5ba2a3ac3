"""Many workers who wait while there is no work: they cost nothing, and are woken when there is."""

from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.node.gauges import cpu_s
from tests.node.http import Address, Answer, Client
from tests.node.nodes import house_in, pid_of

QUEUES: Final = 50
_PAUSE_S: Final = 0.05


class Seen(msgspec.Struct):
    """What came of it."""

    seconds: float = 0.0
    cpu_s: dict[str, float] = {}
    """What each process computed meanwhile."""
    indexes: list[list[str]] = []
    """The last index of each shard's log, before and behind that."""
    woken_s: list[float] = []
    """From the enqueue of a job until its worker had it."""
    given: int = 0


class Group(msgspec.Struct):
    last_index: str


class ClusterStatus(msgspec.Struct):
    groups: list[Group]


async def last_indexes(client: Client) -> list[str]:
    """How long the logs are."""
    answer = await client.ask("GET", "/api/v1/cluster/status")
    return [group.last_index for group in answer.read(ClusterStatus).groups]


async def parked(client: Client) -> int:
    """How many fetches wait, as the node counts them."""
    page = (await client.ask("GET", "/api/v1/metrics")).body.decode()
    [line] = [each for each in page.splitlines() if each.startswith("corvo_fetch_waiters ")]
    return int(float(line.split()[-1]))


class Parking:
    """One run."""

    def __init__(self, address: Address) -> None:
        self.seen: Final = Seen()
        self._address = address
        self._answered, self._answers = trio.open_memory_channel[tuple[float, Answer]](1)

    async def wait(self, queue: str) -> None:
        """Be a worker who waits."""
        client = Client(self._address)
        body = msgspec.json.encode({"queues": [queue], "timeout": 60})
        answer = await client.ask("POST", "/api/v1/fetch", body)
        await self._answered.send((trio.current_time(), answer))
        client.close()

    async def run(self, pids: dict[str, int], workers: int, seconds: float) -> None:
        """Let them wait, and then give each one a job."""
        client, seen = Client(self._address), self.seen
        async with trio.open_nursery() as nursery:
            for number in range(workers):
                nursery.start_soon(self.wait, f"parked-{number % QUEUES}")
            await self._until_parked(client, workers)
            seen.indexes.append(await last_indexes(client))
            before = {name: cpu_s(pid) for name, pid in pids.items()}
            began = trio.current_time()
            await trio.sleep(seconds)
            seen.seconds = trio.current_time() - began
            seen.cpu_s = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
            seen.indexes.append(await last_indexes(client))
            await self._wake(client, workers)
        client.close()

    async def _until_parked(self, client: Client, workers: int) -> None:
        while True:
            if await parked(client) == workers:
                return
            await trio.sleep(_PAUSE_S)

    async def _wake(self, client: Client, workers: int) -> None:
        for number in range(workers):
            began = trio.current_time()
            body = msgspec.json.encode({"queue": f"parked-{number % QUEUES}"})
            answer = await client.ask("POST", "/api/v1/enqueue", body)
            assert answer.status == 201, answer
            at, answer = await self._answers.receive()
            self.seen.woken_s.append(at - began)
            self.seen.given += answer.status == 200


async def run(directory: Path, *, workers: int, seconds: float) -> Seen:
    """Park so many fetches for so long."""
    house = await house_in(directory)
    parking = Parking(house.address)
    async with house.open() as node:
        names = sorted(str(one["name"]) for one in node.find("process.ready"))
        await parking.run({name: pid_of(node, name) for name in names}, workers, seconds)
        code = await node.end()
    assert code == 0, code
    return parking.seen
