"""Schedules on a whole node: how late their jobs are, and what they cost.

A job's id has its due time, and its event has the time of the entry that created it. The difference
is the lateness; the arrival of the event at a client is measured too. Three loads: schedules that
are due each second, with workers; schedules that are due within a minute; and as many that are due
in the same second, while another client sends requests.

An idle schedule should cost nothing: the processes of a node are measured for a minute without
schedules, and with 10,000 that are due in months. Cycles of jobs are measured by turns beside a
schedule that is due each second, and without it.

The load of the machine is beside each part: other programs make jobs late as well.
"""

import os
import shutil
import statistics
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter, sleep, time_ns
from typing import Final, NamedTuple

import msgspec
import trio

from bench.http_client import Connection, connected
from bench.measure import Measurement
from bench.node import CYCLE, load
from bench.server import Server, serving
from bench.shard_process import processor_seconds
from corvo.times import parse_time

EACH_SECOND: Final = 100
STEADY_S: Final = 30
_WARMING_S: Final = 2
MANY: Final = 10_000
IDLE_S: Final = 60.0
TURNS: Final = 4
_QUEUES: Final = 16
_WORKERS: Final = 16
_CREATORS: Final = 16
_AHEAD_S: Final = 5
"""The time from the last request to the first due time: the node has nothing else to do by then."""
_PATIENCE_S: Final = 300.0
_PAUSE_S: Final = 0.01
_READ_BYTES: Final = 256 << 10
_DATA: Final = b"\ndata: "


class Came(NamedTuple):
    """The job of a due time."""

    due_ns: int
    created_ns: int
    """The time of the entry that created it."""
    heard_ns: int
    """The arrival of its event at a client."""


class _Event(msgspec.Struct):
    job_id: str
    at_ns: int


class _Claim(msgspec.Struct):
    job_id: str
    lease_token: int


_decode_event: Final = msgspec.json.Decoder(_Event).decode
_decode_claim: Final = msgspec.json.Decoder(_Claim).decode


def measure(directory: Path) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist."""
    for name, part in (
        ("steady", _steady),
        ("crowds", _crowds),
        ("idle", _idle),
        ("cycles", _cycles),
    ):
        place = directory / name
        place.mkdir()
        with serving(place) as server:
            yield from part(server)


# Due each second.


def _steady(server: Server) -> Iterator[Measurement]:
    name = f"{EACH_SECOND} schedules due each second"
    yield _load_of(name)
    came = trio.run(_run_steady, server)
    yield from _lateness(name, came)


async def _run_steady(server: Server) -> list[Came]:
    wanted = EACH_SECOND * STEADY_S
    async with trio.open_nursery() as nursery:
        for number in range(_WORKERS):
            nursery.start_soon(_work, server.port, number)
        async with _events(server) as events:
            await _create(server, ["@every 1s"] * EACH_SECOND)
            for _ in range(_WARMING_S * EACH_SECOND):
                await anext(events)
            came = [await anext(events) for _ in range(wanted)]
        nursery.cancel_scope.cancel()
    return came


async def _work(port: int, number: int) -> None:
    queues = ",".join(f'"{_queue(each)}"' for each in range(_QUEUES))
    take = f'{{"queues":[{queues}],"worker_id":"w{number}","timeout":30}}'.encode()
    async with connected(port) as connection:
        while True:
            status, answer = await connection.ask("POST", "/api/v1/fetch", take)
            if status != 200:
                continue
            job = _decode_claim(answer)
            done = b'{"lease_token":%d}' % job.lease_token
            status, answer = await connection.ask("POST", f"/api/v1/ack/{job.job_id}", done)
            assert status == 200, answer


# Many, within a minute and in one second.


def _crowds(server: Server) -> Iterator[Measurement]:
    for name, spread_s in (("within a minute", 60), ("in the same second", 1)):
        label = f"{MANY:,} schedules due {name}"
        yield _load_of(label)
        alone, beside, came = trio.run(_run_crowd, server, spread_s)
        yield from _lateness(label, came)
        for who, latencies in (("before", alone), ("beside", beside)):
            yield from _percentiles(f"enqueue {who} {MANY:,} {name}", latencies)


async def _run_crowd(server: Server, spread_s: int) -> tuple[list[float], list[float], list[Came]]:
    """Seconds of another client's requests, before and beside; and the jobs."""
    begin = datetime.now(UTC) + timedelta(seconds=_creating_s(spread_s))
    moments = [begin + timedelta(seconds=number % spread_s) for number in range(MANY)]
    crons = [f"{at.second} {at.minute} {at.hour} {at.day} {at.month} *" for at in moments]
    async with _events(server) as events:
        await _create(server, crons, name=f"crowd{spread_s}")
        alone: list[float] = []
        beside: list[float] = []
        assert datetime.now(UTC) < begin - timedelta(seconds=_AHEAD_S), "creating took too long"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_enqueue, server, begin, alone, beside)
            with trio.fail_after(_PATIENCE_S):
                came = [await anext(events) for _ in range(MANY)]
            nursery.cancel_scope.cancel()
    return alone, beside, came


def _creating_s(spread_s: int) -> int:
    """The time from the first request that creates one of many schedules to the first due time."""
    return 90 + spread_s


async def _enqueue(
    server: Server, begin: datetime, alone: list[float], beside: list[float]
) -> None:
    async with connected(server.port) as connection:
        while True:
            latencies = beside if datetime.now(UTC) >= begin else alone
            begun = perf_counter()
            status, answer = await connection.ask(
                "POST", "/api/v1/enqueue", b'{"queue":"good","payload":1}'
            )
            assert status == 201, answer
            latencies.append(perf_counter() - begun)
            await trio.sleep(_PAUSE_S)


# Idle.


def _idle(server: Server) -> Iterator[Measurement]:
    yield _load_of("idle node")
    without = _share(server)
    crons = [f"{number % 60} {number % 24} {number % 28 + 1} */6 *" for number in range(MANY)]
    trio.run(_create, server, crons)
    sleep(_AHEAD_S)
    yield _load_of(f"{MANY:,} idle schedules")
    beside = _share(server)
    yield Measurement("idle node: processor", 100 * without, "% of one")
    yield Measurement(f"{MANY:,} idle schedules: processor", 100 * beside, "% of one")
    yield Measurement("difference", 100 * (beside - without), "% of one")


def _share(server: Server) -> float:
    """The share of one processor that all processes of a node use while nothing is asked."""
    node = _parent_of(server.router)
    processes = [node, server.router, server.mirror, *server.shards]
    begun, before = perf_counter(), sum(map(processor_seconds, processes))
    sleep(IDLE_S)
    return (sum(map(processor_seconds, processes)) - before) / (perf_counter() - begun)


def _parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


# Beside cycles of jobs.


def _cycles(server: Server) -> Iterator[Measurement]:
    if shutil.which("wrk") is None:
        print("cycles: not covered, for there is no wrk (Debian: apt-get install wrk)")
        return
    yield _load_of("cycles")
    trio.run(_create, server, ["@every 1s"])
    rates: dict[str, list[float]] = {"pause": [], "resume": []}
    for turn in range(TURNS):
        for what in ("pause", "resume") if turn % 2 else ("resume", "pause"):
            trio.run(_ask, server, f"/api/v1/schedules/{_queue(0)}~s-0/{what}")
            report, _ = load(server, CYCLE)
            rates[what].append(report.cycles / report.us * 1e6)
    without, beside = rates["pause"], rates["resume"]
    ratio = statistics.median(one / other for one, other in zip(beside, without, strict=True))
    yield Measurement("cycles, no schedule", statistics.median(without), "cycles/s", 1.0)
    name = "cycles, a schedule due each second"
    yield Measurement(name, statistics.median(beside), "cycles/s", ratio)


async def _ask(server: Server, path: str) -> None:
    async with connected(server.port) as connection:
        status, answer = await connection.ask("POST", path)
        assert status == 200, answer


# What the parts share.


def _queue(number: int) -> str:
    return f"queue-{number % _QUEUES}"


async def _create(server: Server, crons: Sequence[str], name: str = "s") -> None:
    """Create a schedule for each expression."""

    async def create(first: int) -> None:
        async with connected(server.port) as connection:
            for number in range(first, len(crons), _CREATORS):
                await _create_one(connection, f"{name}-{number}", _queue(number), crons[number])

    async with trio.open_nursery() as nursery:
        for first in range(_CREATORS):
            nursery.start_soon(create, first)


async def _create_one(connection: Connection, name: str, queue: str, cron: str) -> None:
    body = {"name": name, "queue": queue, "cron": cron, "payload": {"due": "{{due_at}}"}}
    data = msgspec.json.encode(body)
    status, answer = await connection.ask("POST", "/api/v1/schedules", data)
    assert status == 201, answer


@asynccontextmanager
async def _events(server: Server) -> AsyncIterator[AsyncIterator[Came]]:
    """The jobs of due times that are created from now on."""
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with stream:
        request = b"GET /api/v1/events?types=enqueued HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        await stream.send_all(request)
        answer = bytes(await stream.receive_some(_READ_BYTES))
        assert answer.startswith(b"HTTP/1.1 200"), answer
        yield _come(stream)


async def _come(stream: trio.SocketStream) -> AsyncIterator[Came]:
    rest = b""
    while data := await stream.receive_some(_READ_BYTES):
        heard_ns = time_ns()
        *whole, rest = (rest + bytes(data)).split(b"\n\n")
        for each in whole:
            _, found, line = each.partition(_DATA)
            if not found:
                continue
            event = _decode_event(line.partition(b"\n")[0])
            due_ns = parse_time(event.job_id.rpartition("@")[2]) if "@" in event.job_id else None
            if due_ns is not None:
                yield Came(due_ns, event.at_ns, heard_ns)


def _load_of(name: str) -> Measurement:
    return Measurement(f"{name}: load of the machine", os.getloadavg()[0], "processes")


def _lateness(name: str, came: Sequence[Came]) -> Iterator[Measurement]:
    created = [(each.created_ns - each.due_ns) / 1e9 for each in came]
    heard = [(each.heard_ns - each.due_ns) / 1e9 for each in came]
    yield from _percentiles(f"{name}: due to created", created)
    yield from _percentiles(f"{name}: due to event at a client", heard)


def _percentiles(name: str, seconds: Sequence[float]) -> Iterator[Measurement]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    for label, value in (("p50", cuts[49]), ("p99", cuts[98]), ("max", max(seconds))):
        yield Measurement(f"{name}, {label}", value * 1e3, "ms")
