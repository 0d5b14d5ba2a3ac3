"""Effects on another shard: moved jobs, and the steps of chains, from one shard to another.

A node of four shards; all jobs go from a queue of one shard to a queue of another. A job counts as
there when it is in the count of its new queue, which its shard keeps. Last, the other shard stands
still while effects gather, so that the rate at which they are taken is seen alone: without the
requests that cause them.
"""

import json
import os
import signal
import statistics
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
import trio

from bench.http_client import Connection, connected
from bench.measure import Measurement
from bench.server import SHARDS, Server, Used, serving
from bench.shard_process import syncs_per_second
from corvo.placement import shard_of_queue

T = TypeVar("T", bound=msgspec.Struct)

MOVED: Final = 2_000
STEPS: Final = 300
GATHERED: Final = 20_000
READS: Final = 200
_BATCH: Final = 1_000
_ITEMS: Final = 500
_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.002
_SOURCE, _TARGET = 1, 2
"""The shards. Bulk operations wait in another one."""


class Moved(NamedTuple):
    """What came of a bulk move: seconds."""

    answered: float
    there: float
    """Until all jobs were in the count of the new queue."""


class Reads(NamedTuple):
    """What came of reading jobs by their ids right behind a move."""

    latencies: list[float]
    refused_s: float
    """From the first 503 to the last one of any job; 0 without one."""


class Gathered(NamedTuple):
    """What came of effects that gathered while their shard stood still."""

    seconds: float
    used: Used


class _Job(msgspec.Struct):
    job_id: str
    lease_token: int = 0


class _Jobs(msgspec.Struct):
    jobs: list[_Job]


class _Bulk(msgspec.Struct):
    affected: int


class _Queue(msgspec.Struct):
    pending: int


class _Total(msgspec.Struct):
    total: int


def measure(directory: Path) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist."""
    yield Measurement("disk before", syncs_per_second(directory), "syncs/s", None)
    with serving(directory) as server:
        came = trio.run(bulk_move, server)
        name = f"bulk move of {MOVED:,}"
        yield Measurement(f"{name}: until it is answered", came.answered * 1e3, "ms", None)
        yield Measurement(f"{name}: until all are there", came.there * 1e3, "ms", None)
        for what, reads in trio.run(moved_and_read, server).items():
            yield from _times(f"GET of a job that was {what}", reads.latencies)
            label = f"GET of a job that was {what}: time of 503"
            yield Measurement(label, reads.refused_s * 1e3, "ms", None)
        yield Measurement(
            f"ack of {STEPS} first steps of chains: until all next ones are there",
            trio.run(chains_at_once, server) * 1e3,
            "ms",
            None,
        )
        yield from _times("one chain, from ack to the next step", trio.run(one_chain, server))
        gathered = trio.run(partial(gather, server, directory))
        rate = GATHERED / gathered.seconds
        yield Measurement(f"{GATHERED:,} chain steps that gathered: rate", rate, "effects/s", None)
        each = gathered.used.shards / GATHERED * 1e6
        yield Measurement("the same: processor of the shards", each, "µs/effect", None)
        moved = trio.run(partial(gather, server, directory, are_moves=True))
        rate = GATHERED / moved.seconds
        yield Measurement(f"{GATHERED:,} moves that gathered: rate", rate, "effects/s", None)
        each = moved.used.shards / GATHERED * 1e6
        yield Measurement("the same: processor of the shards", each, "µs/effect", None)
    yield Measurement("disk at the end", syncs_per_second(directory), "syncs/s", None)


def _times(label: str, seconds: list[float]) -> Iterator[Measurement]:
    cuts = statistics.quantiles(seconds, n=100)
    for cut, what in ((49, "p50"), (98, "p99")):
        yield Measurement(f"{label}: {what}", cuts[cut] * 1e3, "ms", None)


_numbers: Final = count()


def queue_of(shard: int) -> str:
    """A new queue of a shard."""
    names = (f"effects-{number}" for number in _numbers)
    return next(name for name in names if shard_of_queue(name, SHARDS) == shard)


# Moves.


async def bulk_move(server: Server) -> Moved:
    """Move all jobs of a queue at once."""
    source, target = queue_of(_SOURCE), queue_of(_TARGET)
    async with connected(server.port) as client:
        await _enqueue(client, [{"queue": source, "payload": n} for n in range(MOVED)])
        await _until_searched(client, source, MOVED)
        begun_s = trio.current_time()
        answered_s = 0.0

        async def move() -> None:
            nonlocal answered_s
            async with connected(server.port) as other:
                body = {"action": "move", "filter": {"queue": source}, "move_to_queue": target}
                came = await _post(other, "jobs/bulk", body, _Bulk)
                assert came.affected == MOVED, came
                answered_s = trio.current_time() - begun_s

        async with trio.open_nursery() as nursery:
            nursery.start_soon(move)
            await _until_pending(client, target, MOVED)
            there_s = trio.current_time() - begun_s
        return Moved(answered_s, there_s)


async def moved_and_read(server: Server) -> dict[str, Reads]:
    """Read jobs right behind a move, and others behind a move and their deletion."""
    found: dict[str, Reads] = {}
    async with connected(server.port) as client:
        for what in ("moved", "moved and deleted"):
            source, target = queue_of(_SOURCE), queue_of(_TARGET)
            jobs = await _enqueue(client, [{"queue": source, "payload": 1}] * MOVED)
            ids = [job.job_id for job in jobs]
            body = {"action": "move", "job_ids": ids, "move_to_queue": target}
            came = await _post(client, "jobs/bulk", body, _Bulk)
            assert came.affected == MOVED, came
            if what != "moved":
                await _until_pending(client, target, MOVED)
                await client.ask("DELETE", f"/api/v1/queues/{target}")
            found[what] = await _read(client, ids[-READS:], 200 if what == "moved" else 404)
    return found


async def _read(client: Connection, ids: list[str], wanted: int) -> Reads:
    latencies: list[float] = []
    refused: list[float] = []
    for job_id in ids:
        while True:
            begun_s = trio.current_time()
            status, answer = await client.ask("GET", f"/api/v1/jobs/{job_id}")
            latencies.append(trio.current_time() - begun_s)
            if status != 503:
                break
            refused += [begun_s, trio.current_time()]
        assert status == wanted, answer
    return Reads(latencies, refused[-1] - refused[0] if refused else 0.0)


# Chains.


async def chains_at_once(server: Server) -> float:
    """Seconds from the ack of many jobs to the next step of each."""
    source, target = queue_of(_SOURCE), queue_of(_TARGET)
    async with connected(server.port) as client:
        await _enqueue(client, [_chain(source, target)] * STEPS)
        acks = await _fetch(client, source, STEPS)
        begun_s = trio.current_time()
        async with connected(server.port) as other, trio.open_nursery() as nursery:
            nursery.start_soon(_ack, other, acks)
            await _until_pending(client, target, STEPS)
        return trio.current_time() - begun_s


async def one_chain(server: Server) -> list[float]:
    """Seconds from each ack to having the next step of one chain, to and fro."""
    queues = queue_of(_SOURCE), queue_of(_TARGET)
    taken: list[float] = []
    async with connected(server.port) as client:
        # A chain has few steps, and many chains have many.
        for _ in range(STEPS // 10):
            [chain] = [_chain(*(queues[n % 2] for n in range(11)))]
            await _enqueue(client, [chain])
            [job] = await _fetch(client, queues[0], 1)
            for n in range(1, 11):
                begun_s = trio.current_time()
                await _ack(client, [job])
                [job] = await _fetch(client, queues[n % 2], 1)
                taken.append(trio.current_time() - begun_s)
            await _ack(client, [job])
    return taken


def _chain(first: str, *others: str) -> dict[str, object]:
    more = [{"queue": queue, "payload": {"to": "someone@example.org"}} for queue in others]
    chain = {"steps": [{"queue": first}, *more]}
    return {"queue": first, "payload": {"n": 1}, "chain": chain}


# Effects that gather.


async def gather(server: Server, directory: Path, *, are_moves: bool = False) -> Gathered:
    """Let a shard take what gathered while it stood still."""
    source, target = queue_of(_SOURCE), queue_of(_TARGET)
    async with connected(server.port) as client:
        job = _chain(source, target)
        if are_moves:
            job = {"queue": source, "payload": {"n": 1}}
        ids = [job.job_id for job in await _enqueue(client, [job] * GATHERED)]
        acks = [] if are_moves else await _fetch(client, source, GATHERED)
        with _standing_still(server.shards[_TARGET]):
            if are_moves:
                body = {"action": "move", "job_ids": ids, "move_to_queue": target, "async": True}
                await _post(client, "jobs/bulk", body, msgspec.Struct)
                await _until_pending(client, source, 0)
            else:
                await _ack(client, acks)
        before, begun_s = server.used(), trio.current_time()
        await _until_pending(client, target, GATHERED)
        return Gathered(trio.current_time() - begun_s, server.used().since(before))


@contextmanager
def _standing_still(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


# Requests.


async def _post(client: Connection, path: str, body: object, kind: type[T]) -> T:
    status, answer = await client.ask("POST", f"/api/v1/{path}", json.dumps(body).encode())
    assert status in {200, 201, 202}, answer
    return msgspec.json.decode(answer, type=kind)


async def _enqueue(client: Connection, jobs: list[dict[str, object]]) -> list[_Job]:
    made: list[_Job] = []
    for begin in range(0, len(jobs), _BATCH):
        body = {"jobs": jobs[begin : begin + _BATCH]}
        made += (await _post(client, "enqueue/batch", body, _Jobs)).jobs
    return made


async def _fetch(client: Connection, queue: str, jobs: int) -> list[_Job]:
    taken: list[_Job] = []
    while len(taken) < jobs:
        body = {"queues": [queue], "count": min(_ITEMS, jobs - len(taken)), "wait_seconds": 5}
        taken += (await _post(client, "fetch/batch", body, _Jobs)).jobs
    return taken


async def _ack(client: Connection, jobs: list[_Job]) -> None:
    for begin in range(0, len(jobs), _ITEMS):
        acks = [msgspec.to_builtins(job) for job in jobs[begin : begin + _ITEMS]]
        await _post(client, "ack/batch", {"acks": acks}, msgspec.Struct)


async def _until_pending(client: Connection, queue: str, jobs: int) -> None:
    """Until the shard of a queue counts so many pending jobs."""

    async def is_so() -> bool:
        status, answer = await client.ask("GET", f"/api/v1/queues/{queue}")
        return status == 200 and msgspec.json.decode(answer, type=_Queue).pending == jobs

    await _until(is_so)


async def _until_searched(client: Connection, queue: str, jobs: int) -> None:
    """Until the mirror knows so many jobs of a queue."""
    body = json.dumps({"queue": queue, "limit": 1}).encode()

    async def is_so() -> bool:
        status, answer = await client.ask("POST", "/api/v1/jobs/search", body)
        return status == 200 and msgspec.json.decode(answer, type=_Total).total == jobs

    await _until(is_so)


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(_PATIENCE_S):
        while True:
            if await is_so():
                return
            await trio.sleep(_LOOK_S)
