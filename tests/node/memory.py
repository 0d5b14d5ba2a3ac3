"""The memory of each process of a node under a steady load, for as long as one likes.

A table that is read through a memory map counts as resident, and the kernel takes its pages back
when it needs them. So what a process has for itself (anonymous memory) is shown apart.
"""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.node.gauges import slope
from tests.node.http import Address, Client
from tests.node.mixed import GivenMany
from tests.node.nodes import house_in, pid_of
from tests.support.nodes import Running

RATE: Final = 360
"""Jobs a second: enqueued, fetched and acknowledged."""
BATCH: Final = 6
CLERKS: Final = 12
_QUEUES: Final = 24


class Memory(msgspec.Struct, frozen=True):
    """One process at one moment, in KiB."""

    at_s: float
    rss: int
    pss: int
    own: int
    """What it shares with no file and no other process."""


class Files(msgspec.Struct, frozen=True):
    """What is on the disk at one moment, in KiB."""

    at_s: float
    jobs: int
    log: int
    state: int
    mirror: int


class Seen(msgspec.Struct):
    """What came of it."""

    memory: dict[str, list[Memory]] = {}
    files: list[Files] = []
    jobs: int = 0


def look_at_memory(pid: int, at_s: float) -> Memory:
    """What a process holds now."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    found = {
        name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)
    }
    return Memory(at_s, found["Rss"], found["Pss"], found["Anonymous"])


def kib_below(directories: list[Path]) -> int:
    """The room that the files in these directories take, each counted once."""
    blocks = {}
    for directory in directories:
        for folder, _, names in os.walk(directory):
            for name in names:
                try:
                    found = (Path(folder) / name).stat()
                except FileNotFoundError:
                    continue  # it was just being removed
                blocks[found.st_ino] = found.st_blocks
    return sum(blocks.values()) // 2


class Steady:
    """One run."""

    def __init__(self, address: Address, data: Path) -> None:
        self.seen: Final = Seen()
        self._address = address
        self._data = data

    async def run(
        self, node: Running, seconds: float, every_s: float, tell: Callable[[Seen], None]
    ) -> None:
        """Load it for so long, at least until a job is done, and look every now and then."""
        names = sorted(str(one["name"]) for one in node.find("process.ready"))
        pids = {"node": node.process.pid, **{name: pid_of(node, name) for name in names}}
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(CLERKS):
                nursery.start_soon(self._clerk, number, began)
            nursery.start_soon(self._reader)
            at_s = 0.0
            while at_s < seconds or not self.seen.jobs:
                await trio.sleep_until(began + at_s + every_s)
                at_s = trio.current_time() - began
                for name, pid in pids.items():
                    self.seen.memory.setdefault(name, []).append(look_at_memory(pid, at_s))
                self.seen.files.append(self._files(at_s))
                tell(self.seen)
            nursery.cancel_scope.cancel()

    def _files(self, at_s: float) -> Files:
        shards = list(self._data.glob("shard-*"))
        return Files(
            at_s=at_s,
            jobs=self.seen.jobs,
            log=kib_below([shard / "log" for shard in shards]),
            state=kib_below([shard / "state" for shard in shards]),
            mirror=kib_below([self._data / "mirror"]),
        )

    async def _clerk(self, number: int, began: float) -> None:
        """Do a share of the work, at its pace."""
        pause_s = BATCH * CLERKS / RATE
        due_s = began + number * pause_s / CLERKS
        payload = {"text": "x" * 200, "by": number}
        with closing(Client(self._address)) as client:
            for turn in range(number, 1 << 40, CLERKS):
                await trio.sleep_until(due_s)
                due_s = max(due_s + pause_s, trio.current_time() - 10 * pause_s)
                queue = f"steady-{turn % _QUEUES}"
                jobs = [{"queue": queue, "payload": payload}] * BATCH
                await self._ask(client, "POST", "/api/v1/enqueue/batch", {"jobs": jobs})
                asked = {"queues": [queue], "count": BATCH, "wait_seconds": 1}
                body = await self._ask(client, "POST", "/api/v1/fetch/batch", asked)
                given = msgspec.json.decode(body, type=GivenMany).jobs
                acks = [{**msgspec.to_builtins(job), "result": {"done": True}} for job in given]
                if acks:
                    await self._ask(client, "POST", "/api/v1/ack/batch", {"acks": acks})
                self.seen.jobs += len(acks)

    async def _reader(self) -> None:
        """Somebody who looks at the dashboard."""
        with closing(Client(self._address)) as client:
            while True:
                await self._ask(client, "GET", "/api/v1/queues")
                await self._ask(client, "GET", "/metrics")
                filters = {"queue": "steady-1", "limit": 50}
                await self._ask(client, "POST", "/api/v1/jobs/search", filters)
                await trio.sleep(2)

    async def _ask(self, client: Client, method: str, path: str, body: object = None) -> bytes:
        data = msgspec.json.encode(body) if body is not None else b""
        # A mirror that has just started, and all others, may be slow.
        while (answer := await client.ask(method, path, data)).status in {429, 503}:
            pass
        assert answer.status < 300, answer
        return answer.body


def table(seen: Seen) -> str:
    """The last look at each process, in one line."""
    files = seen.files[-1]
    shown = [f"{files.at_s / 60:6.1f} min {files.jobs:8} jobs"]
    for name, looks in seen.memory.items():
        last = looks[-1]
        shown.append(f"{name} {last.rss // 1024}/{last.pss // 1024}/{last.own // 1024}")
    shown.append(f"log {files.log >> 10} state {files.state >> 10} mirror {files.mirror >> 10} MiB")
    return "  ".join(shown)


def slopes(seen: Seen) -> dict[str, tuple[float, float]]:
    """How much each process rises in a minute in the later half, in KiB: all, and its own."""
    found = {}
    for name, looks in seen.memory.items():
        half = looks[len(looks) // 2 :]
        rss = slope([(look.at_s, float(look.rss)) for look in half]) * 60
        found[name] = rss, slope([(look.at_s, float(look.own)) for look in half]) * 60
    return found


async def run(
    directory: Path,
    *,
    seconds: float,
    every_s: float = 60.0,
    tell: Callable[[Seen], None] = lambda seen: None,
    **settings: str,
) -> Seen:
    """Load a node steadily for so long; what was seen."""
    house = await house_in(directory, **{"shards": "4", **settings})
    steady = Steady(house.address, house.data)
    async with house.open() as node:
        await steady.run(node, seconds, every_s, tell)
        code = await node.end()
    assert code == 0, code
    assert not node.texts, node.texts
    return steady.seen
