"""A search right behind an enqueue: how long it waits for the mirror, alone and under load.

The same client enqueues a job and searches for it at once, with no header. Beside that, the same
search with `consistency=stale`: the difference is the wait. The load is that of `bench.mirror`.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import trio

from bench.http_client import Connection, connected
from bench.measure import Measurement
from bench.mirror import PER_SECOND, Done, busy
from bench.server import Server, serving
from bench.shard_process import processor_seconds

LOAD_S: Final = 12.0
PAUSE_S: Final = 0.05
"""Between two samples: a client that only searches would have the mirror work without a pause."""
_WARM_S: Final = 2.0


class Sample(NamedTuple):
    """One search behind one enqueue."""

    seconds: float
    is_found: bool
    is_behind: bool


class _Made(msgspec.Struct):
    job_id: str


class _Page(msgspec.Struct):
    jobs: list[msgspec.Raw]
    is_behind: bool = False


def measure(directory: Path) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist."""
    for rate in (0, PER_SECOND):
        place = directory / f"at-{rate}"
        place.mkdir()
        with serving(place) as server:
            yield from _at(server, rate)


def _at(server: Server, rate: int) -> Iterator[Measurement]:
    name = f"{rate:,} lifecycles/s"
    for consistency in ("stale", "wait"):
        before = processor_seconds(server.mirror)
        samples, done = trio.run(_sample, server, rate, consistency)
        used = processor_seconds(server.mirror) - before
        taken = [sample.seconds * 1e3 for sample in samples]
        cuts = statistics.quantiles(taken, n=100)
        kind = f"{name}, {consistency}"
        yield Measurement(f"{kind}: a search behind an enqueue, p50", cuts[49], "ms")
        yield Measurement(f"{kind}: p95", cuts[94], "ms")
        yield Measurement(f"{kind}: p99", cuts[98], "ms")
        found = sum(sample.is_found for sample in samples)
        behind = sum(sample.is_behind for sample in samples)
        yield Measurement(f"{kind}: found", 100 * found / len(samples), "%")
        yield Measurement(f"{kind}: said that it is behind", 100 * behind / len(samples), "%")
        yield Measurement(f"{kind}: the mirror's processor", 100 * used / done.seconds, "% of one")
        if rate:
            yield Measurement(f"{kind}: done", done.cycles / done.seconds, "cycles/s")


async def _sample(server: Server, rate: int, consistency: str) -> tuple[list[Sample], Done]:
    """Samples for as long as a load lasts, and what the load came to."""
    samples: list[Sample] = []
    loads: list[Done] = []

    async def load() -> None:
        if rate:
            loads.append(await busy(server, LOAD_S, rate))
        else:
            await trio.sleep(LOAD_S)
            loads.append(Done(0, LOAD_S))

    async with connected(server.port) as client, trio.open_nursery() as nursery:
        nursery.start_soon(load)
        await trio.sleep(_WARM_S)
        while not loads:
            samples.append(await _one(client, f"fresh-{len(samples) % 8}", consistency))
            await trio.sleep(PAUSE_S)
    return samples, loads[0]


async def _one(client: Connection, queue: str, consistency: str) -> Sample:
    job = msgspec.json.encode({"queue": queue, "payload": {"n": 1}})
    status, body = await client.ask("POST", "/api/v1/enqueue", job)
    assert status == 201, body
    job_id = msgspec.json.decode(body, type=_Made).job_id
    wanted = {"queue": queue, "job_id_prefix": job_id, "limit": 1, "consistency": consistency}
    begun = trio.current_time()
    status, body = await client.ask("POST", "/api/v1/jobs/search", msgspec.json.encode(wanted))
    seconds = trio.current_time() - begun
    assert status == 200, body
    page = msgspec.json.decode(body, type=_Page)
    return Sample(seconds, bool(page.jobs), page.is_behind)
