"""What a node does while there is little to do: waking a parked fetch, idling, being looked at."""

import json
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter, perf_counter_ns
from typing import Final, NamedTuple

import msgspec
import trio

from bench.http_client import Connection, connected
from bench.server import Server, Used

WORKERS: Final = 16
JOBS_A_SECOND: Final = 100
LATENCY_JOBS: Final = 1_000
LATENCY_WARMING_JOBS: Final = 100
PARKED: Final = 1_000
IDLE_S: Final = 20.0
QUEUES: Final = 1_000
SCRAPES: Final = 30
GOOD_REQUESTS: Final = 1_000
_SETTLING_S_MAX: Final = 30.0
_LOOK_S: Final = 0.1


class Wakings(NamedTuple):
    """What came of jobs that met parked fetches."""

    latencies: list[float]
    """Seconds from sending a job to having it in the hands of a worker."""
    used: Used


class Idling(NamedTuple):
    """What parked fetches came to."""

    seconds: float
    used: Used
    entries: int
    """That the logs of all shards have grown by meanwhile."""


class Scraping(NamedTuple):
    """What looking at the metrics came to, and how a client fared that did something else."""

    scrapes: list[float]
    page_bytes: int
    alone: list[float]
    """Seconds of each request of the good client while nobody looked."""
    beside: list[float]
    used: Used


class _Payload(msgspec.Struct):
    sent_ns: int


class _Job(msgspec.Struct):
    job_id: str
    lease_token: int
    payload: _Payload


class _Group(msgspec.Struct):
    last_index: str


class _Status(msgspec.Struct):
    groups: list[_Group]


_decode_job: Final = msgspec.json.Decoder(_Job).decode
_decode_status: Final = msgspec.json.Decoder(_Status).decode


# From enqueue to a parked fetch.


async def wake(server: Server) -> Wakings:
    """One producer, and workers that wait."""
    tell, heard = trio.open_memory_channel[float](LATENCY_JOBS)
    async with trio.open_nursery() as nursery, connected(server.port) as producer:
        for number in range(WORKERS):
            nursery.start_soon(_work, server.port, number, tell)
        await _until_parked(producer, WORKERS)
        await _produce(producer, LATENCY_WARMING_JOBS)
        await _hear(heard, LATENCY_WARMING_JOBS)
        before = server.used()
        await _produce(producer, LATENCY_JOBS)
        used = server.used().since(before)
        latencies = await _hear(heard, LATENCY_JOBS)
        nursery.cancel_scope.cancel()
    return Wakings(latencies, used)


async def _hear(heard: trio.MemoryReceiveChannel[float], jobs: int) -> list[float]:
    with trio.fail_after(_SETTLING_S_MAX):
        return [await heard.receive() for _ in range(jobs)]


async def _produce(connection: Connection, jobs: int) -> None:
    """Send jobs by a timetable: what is late is sent at once, and not left out."""
    begun = trio.current_time()
    for number in range(jobs):
        await trio.sleep_until(begun + number / JOBS_A_SECOND)
        body = b'{"queue":"waking","payload":{"sent_ns":%d}}' % perf_counter_ns()
        status, answer = await connection.ask("POST", "/api/v1/enqueue", body)
        assert status == 201, answer


async def _work(port: int, number: int, tell: trio.MemorySendChannel[float]) -> None:
    take = b'{"queues":["waking"],"worker_id":"w%d","timeout":30}' % number
    async with connected(port) as connection:
        while True:
            status, answer = await connection.ask("POST", "/api/v1/fetch", take)
            had_ns = perf_counter_ns()
            if status != 200:
                continue
            job = _decode_job(answer)
            done = b'{"lease_token":%d}' % job.lease_token
            status, answer = await connection.ask("POST", f"/api/v1/ack/{job.job_id}", done)
            assert status == 200, answer
            await tell.send((had_ns - job.payload.sent_ns) / 1e9)


# Parked fetches, and no work.


async def idle(server: Server) -> Idling:
    """Many fetches that wait for what never comes."""
    _allow_files(PARKED * 2)
    take = b'{"queues":["idle"],"worker_id":"w","timeout":60}'
    async with AsyncExitStack() as stack, connected(server.port) as looking:
        for _ in range(PARKED):
            connection = await stack.enter_async_context(connected(server.port))
            await connection.send("POST", "/api/v1/fetch", take)
        await _until_parked(looking, PARKED)
        entries = await _entries(looking)
        await trio.sleep(1)  # what the looking has caused is not to be counted
        begun, before = perf_counter(), server.used()
        await trio.sleep(IDLE_S)
        seconds, used = perf_counter() - begun, server.used().since(before)
        assert await _parked(looking) == PARKED
        return Idling(seconds, used, await _entries(looking) - entries)


async def _until_parked(connection: Connection, fetches: int) -> None:
    with trio.fail_after(_SETTLING_S_MAX):
        parked = await _parked(connection)
        while parked < fetches:
            await trio.sleep(_LOOK_S)
            parked = await _parked(connection)


async def _parked(connection: Connection) -> int:
    """How many fetches wait."""
    status, page = await connection.ask("GET", "/api/v1/metrics")
    assert status == 200, page
    [line] = [one for one in page.splitlines() if one.startswith(b"corvo_fetch_waiters ")]
    return int(line.split()[1])


async def _entries(connection: Connection) -> int:
    """The last indexes of all shards, added up."""
    status, answer = await connection.ask("GET", "/api/v1/cluster/status")
    assert status == 200, answer
    return sum(int(group.last_index) for group in _decode_status(answer).groups)


def _allow_files(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise OSError(f"{needed} files are needed, and the limit is {hard}")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


# Being looked at.


async def scrape(server: Server) -> Scraping:
    """Look at the metrics of many queues, while a good client goes on."""
    async with connected(server.port) as good, connected(server.port) as looking:
        await _fill(good)
        await _good_requests(good, GOOD_REQUESTS // 10)
        alone = await _good_requests(good, GOOD_REQUESTS)
        beside: list[float] = []
        before = server.used()
        async with _going_on(good, beside):
            scrapes = [await _look(looking) for _ in range(SCRAPES)]
        used = server.used().since(before)
        page_bytes = max(look.page_bytes for look in scrapes)
        return Scraping([look.seconds for look in scrapes], page_bytes, alone, beside, used)


class _Look(NamedTuple):
    seconds: float
    page_bytes: int


async def _look(connection: Connection) -> _Look:
    begun = perf_counter()
    status, page = await connection.ask("GET", "/api/v1/metrics")
    assert status == 200, page
    return _Look(perf_counter() - begun, len(page))


async def _fill(connection: Connection) -> None:
    jobs = [{"queue": f"queue-{number}", "payload": number} for number in range(QUEUES)]
    body = json.dumps({"jobs": jobs}).encode()
    status, answer = await connection.ask("POST", "/api/v1/enqueue/batch", body)
    assert status in {200, 201}, answer


async def _good_requests(connection: Connection, requests: int) -> list[float]:
    return [await _good_request(connection) for _ in range(requests)]


async def _good_request(connection: Connection) -> float:
    begun = perf_counter()
    body = b'{"queue":"good","payload":1}'
    status, answer = await connection.ask("POST", "/api/v1/enqueue", body)
    assert status == 201, answer
    return perf_counter() - begun


@asynccontextmanager
async def _going_on(connection: Connection, latencies: list[float]) -> AsyncIterator[None]:
    """The good client goes on while the block runs."""
    is_over = False

    async def go_on() -> None:
        while not is_over:
            latencies.append(await _good_request(connection))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        yield
        is_over = True
