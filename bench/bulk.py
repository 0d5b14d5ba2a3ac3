"""A hundred thousand dead jobs are retried by a filter, while others go on putting jobs in.

The jobs are in as many queues as there are shards, and then all in one. Producers send by a
timetable, each on a connection of its own, and what an enqueue took counts from when it was due: a
server that stalls cannot hide that by not being asked meanwhile. Bare syncs beside all that tell
when it was the disk that stalled.
"""

import json
import statistics
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
import trio

from bench.disk import probing
from bench.http_client import Connection, connected
from bench.measure import Measurement
from bench.server import Server, Used, serving

T = TypeVar("T", bound=msgspec.Struct)

JOBS: Final = 100_000
PRODUCERS: Final = 8
JOBS_A_SECOND: Final = 200
ALONE_S: Final = 5.0
_BATCH: Final = 1_000
_FETCH: Final = 512
_HANDS: Final = 4
_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.1


class Came(NamedTuple):
    """What came of one bulk."""

    seconds: float
    affected: int
    alone: "Took"
    """Before the bulk."""
    beside: "Took"
    used: Used


class Took(NamedTuple):
    """Seconds."""

    enqueues: list[float]
    syncs: list[float]


class _Job(msgspec.Struct):
    job_id: str
    lease_token: int


class _Jobs(msgspec.Struct):
    jobs: list[_Job]


class _Begun(msgspec.Struct):
    bulk_operation_id: str
    estimated_total: int


class _Status(msgspec.Struct):
    status: str
    processed: int
    affected: int
    by_code: dict[str, int]


class _Would(msgspec.Struct):
    total: int
    is_exact: bool


class _Answer(msgspec.Struct):
    dry_run: _Would


_read_answer: Final = msgspec.json.Decoder(_Answer).decode
_read_status: Final = msgspec.json.Decoder(_Status).decode


def measure(directory: Path, jobs: int = JOBS) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist."""
    for queues, name in ((("dead-0", "dead-1", "dead-2", "dead-3"), "4 queues"), (("dead",), "1")):
        at = directory / name
        at.mkdir()
        with serving(at) as server:
            came = trio.run(partial(retry, server, at, queues, jobs))
        label = f"retry of {came.affected:,} of {name}"
        yield Measurement(label, came.seconds, "s", None)
        yield Measurement(f"{label}: rate", came.affected / came.seconds, "jobs/s", None)
        for when, took in (("alone", came.alone), ("beside it", came.beside)):
            yield from _figures(f"enqueue {when}", took.enqueues)
            yield from _figures(f"bare sync {when}", took.syncs)
        for who, used in came.used._asdict().items():
            each = used / came.affected * 1e6
            yield Measurement(f"{label}: processor of the {who}", each, "µs/job", None)


def _figures(name: str, seconds: list[float]) -> Iterator[Measurement]:
    cuts = statistics.quantiles(seconds, n=100)
    for cut, what in ((49, "p50"), (98, "p99")):
        yield Measurement(f"{name}: {what}", cuts[cut] * 1e3, "ms", None)
    yield Measurement(f"{name}: worst", max(seconds) * 1e3, "ms", None)


async def retry(server: Server, place: Path, queues: tuple[str, ...], jobs: int) -> Came:
    """Make jobs, let them die, and retry them."""
    async with connected(server.port) as asking:
        await _fill(asking, queues, jobs)
        async with trio.open_nursery() as nursery:
            for _ in range(_HANDS):
                nursery.start_soon(_kill, server.port, queues)
        await _until_seen(asking, jobs)
        async with _going_on(server.port, place) as alone:
            await trio.sleep(ALONE_S)
        before = server.used()
        async with _going_on(server.port, place) as beside:
            begun_s = trio.current_time()
            asked = {"filter": {"state": ["dead"]}, "action": "retry", "async": True}
            begun = await _post(asking, "jobs/bulk", asked, _Begun)
            assert begun.estimated_total == jobs, begun
            status = await _until_done(asking, begun.bulk_operation_id)
            seconds = trio.current_time() - begun_s
        used = server.used().since(before)
        assert (status.status, status.affected) == ("completed", jobs), status
        return Came(seconds, status.affected, alone, beside, used)


async def _post(connection: Connection, path: str, body: object, kind: type[T]) -> T:
    status, answer = await connection.ask("POST", f"/api/v1/{path}", json.dumps(body).encode())
    assert status in {200, 201, 202}, answer
    return msgspec.json.decode(answer, type=kind)


async def _fill(connection: Connection, queues: tuple[str, ...], jobs: int) -> None:
    for first in range(0, jobs, _BATCH):
        batch = [
            {
                "queue": queues[number % len(queues)],
                "payload": {"to": f"someone-{number}@example.org", "template": "welcome"},
                "tags": {"tenant": f"t{number % 50}"},
            }
            for number in range(first, min(first + _BATCH, jobs))
        ]
        await _post(connection, "enqueue/batch", {"jobs": batch}, msgspec.Struct)


async def _kill(port: int, queues: tuple[str, ...]) -> None:
    """Fetch jobs, and let them die, until there are none."""
    async with connected(port) as connection:
        while True:
            wanted = {"queues": queues, "count": _FETCH, "wait_seconds": 0}
            given = await _post(connection, "fetch/batch", wanted, _Jobs)
            if not given.jobs:
                return
            fails = [
                {
                    "job_id": job.job_id,
                    "lease_token": job.lease_token,
                    "error": "SMTP timeout",
                    "retryable": False,
                }
                for job in given.jobs
            ]
            await _post(connection, "fail/batch", {"fails": fails}, msgspec.Struct)


async def _until_seen(connection: Connection, jobs: int) -> None:
    """Until the mirror knows that all of them are dead."""
    asked = {"filter": {"state": ["dead"]}, "action": "retry", "dry_run": True}
    with trio.fail_after(_PATIENCE_S):
        while True:
            status, answer = await connection.ask(
                "POST", "/api/v1/jobs/bulk", json.dumps(asked).encode()
            )
            if status == 200:
                would = _read_answer(answer).dry_run
                if would.is_exact and would.total == jobs:
                    return
            await trio.sleep(_LOOK_S)


async def _until_done(connection: Connection, bulk_id: str) -> _Status:
    with trio.fail_after(_PATIENCE_S):
        while True:
            status, answer = await connection.ask("GET", f"/api/v1/bulk/{bulk_id}")
            assert status == 200, answer
            came = _read_status(answer)
            if came.status not in {"queued", "running"}:
                return came
            await trio.sleep(_LOOK_S)


@asynccontextmanager
async def _going_on(port: int, place: Path) -> AsyncIterator[Took]:
    """Producers put jobs in while the block runs."""
    with probing(place) as syncs:
        async with trio.open_nursery() as nursery:
            took = Took([], syncs)
            is_over = trio.Event()
            for number in range(PRODUCERS):
                nursery.start_soon(_produce, port, number, took.enqueues, is_over)
            yield took
            is_over.set()


async def _produce(port: int, number: int, latencies: list[float], is_over: trio.Event) -> None:
    body = b'{"queue":"live-%d","payload":{"n":1}}' % number
    async with connected(port) as connection:
        due_s = trio.current_time() + number / JOBS_A_SECOND
        while not is_over.is_set():
            await trio.sleep_until(due_s)
            status, answer = await connection.ask("POST", "/api/v1/enqueue", body)
            assert status == 201, answer
            latencies.append(trio.current_time() - due_s)
            due_s += PRODUCERS / JOBS_A_SECOND
