"""The mirror: how fast it takes in what changed, how late it is, and what it costs the others.

First the writer alone, in this process: pages of changes as a shard sends them, decoded and written
with full text, by the processor seconds that they took. Then a whole node: a backlog that gathered
while the mirror stood still; a steady load, and how late its rows are; and what a stream gets
through with a mirror and without one, in turns.
"""

import os
import signal
import sqlite3
import statistics
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from random import Random
from time import process_time
from typing import Final, NamedTuple

import msgspec
import trio

from bench.measure import Measurement
from bench.server import SHARDS, Server, serving
from bench.shard_process import processor_seconds
from corvo.connections import UnixAddress, dial
from corvo.datadir import Identity
from corvo.link import LinkClient, open_client
from corvo.mirror.follow.progress import Cursor, Page
from corvo.mirror.follow.writing import NAME, open_writing
from corvo.model import Event, Job, State
from corvo.protocol import wire
from corvo.protocol.numbers import Numbers
from corvo.protocol.queries import NUMBERS as QUERY_NUMBERS
from corvo.protocol.queries import GetNumbers
from corvo.protocol.questions import LAG_BOUNDS_MS, NUMBERS, GetStanding, Standing
from tests.router.stream_client import connected

JOBS: Final = 100_000
PAGE: Final = 4_000
_EPOCH_NS: Final = 1_770_804_000_000_000_000
_S: Final = 1_000_000_000
_WORDS: Final = tuple(f"word{number:x}" for number in range(5_000))

STREAMS: Final = 4
LOAD_S: Final = 20.0
PER_SECOND: Final = 2_000
_FRAME: Final = 10
"""Jobs of one frame of the steady load."""
_FULL_FRAME: Final = 100
GATHER_S: Final = 10.0
TURNS: Final = 3


def measure(directory: Path) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist."""
    yield from drain(directory / "alone")
    for name, part in (("backlog", _backlog), ("late", _late)):
        place = directory / name
        place.mkdir()
        with serving(place) as server:
            yield from part(server, place)
    yield from _cost(directory)


# The writer alone.


def drain(directory: Path, jobs: int = JOBS) -> Iterator[Measurement]:
    """Three changes of each job: made, given out, completed."""
    writing, _ = open_writing(directory, "rookery", 1, boot_id="one")
    took = 0.0
    index = 0
    for state in (State.PENDING, State.ACTIVE, State.COMPLETED):
        of_state = 0.0
        for first in range(0, jobs, PAGE):
            index += PAGE
            frame = wire.encode(_changes(index, range(first, first + PAGE), state))
            begun = process_time()
            [changes] = wire.FrameReader().receive(frame, wire.TO_FOLLOWER)
            assert isinstance(changes, wire.Changes)
            writing.write([Page(Cursor(0, changes.index), changes.pairs)])
            of_state += process_time() - begun
        yield Measurement(f"writer: jobs that become {state.word}", jobs / of_state, "jobs/s")
        took += of_state
    writing.close()
    yield Measurement("writer: all of these changes", 3 * jobs / took, "jobs/s")
    yield Measurement("writer: the file", (directory / NAME).stat().st_size / (1 << 20), "MiB")


def _changes(index: int, numbers: range, state: State) -> wire.Changes:
    encode = msgspec.msgpack.encode
    jobs = [_job(number, state) for number in numbers]
    pairs = tuple((b"j|" + job.id.encode(), encode(job)) for job in jobs)
    return wire.Changes(1, index, index, _EPOCH_NS, index, pairs)


def _job(number: int, state: State) -> Job:
    """One whose payload has some 150 bytes; it is the same in every state."""
    dice = Random(number)
    at_ns = _EPOCH_NS + number * 50_000
    words = " ".join(dice.choices(_WORDS, k=12))
    trail = (Event(at_ns, "enqueued"),)
    job = Job(
        id=f"s00_job_{number:026d}",
        queue=f"queue-{number % 8}",
        state=state,
        payload=msgspec.json.encode({"to": f"user{number}@example.com", "text": words}),
        created_ns=at_ns,
        order_ns=at_ns,
        trail=trail,
        tags={"tenant": f"t{number % 50}"},
    )
    if state is State.PENDING:
        return job
    job = msgspec.structs.replace(
        job,
        attempt=1,
        worker_id=f"worker-{number % 20}",
        hostname="host",
        started_ns=at_ns + _S,
        lease_ms=30_000,
        lease_expires_ns=at_ns + 31 * _S,
        trail=(*trail, Event(at_ns + _S, "fetched", "worker-1")),
    )
    if state is State.ACTIVE:
        return job
    return msgspec.structs.replace(
        job,
        lease_expires_ns=0,
        completed_ns=at_ns + 2 * _S,
        finished_ns=at_ns + 2 * _S,
        trail=(*job.trail, Event(at_ns + 2 * _S, "completed", "worker-1")),
    )


# A node.


def _backlog(server: Server, place: Path) -> Iterator[Measurement]:
    """What gathered while the mirror stood still, and how fast it is taken in."""
    os.kill(server.mirror, signal.SIGSTOP)
    trio.run(busy, server, GATHER_S, 0)
    before = processor_seconds(server.mirror)
    os.kill(server.mirror, signal.SIGCONT)
    seconds = trio.run(_catch_up, place)
    used = processor_seconds(server.mirror) - before
    jobs = _rows(place)
    yield Measurement("a backlog", jobs, "jobs")
    yield Measurement("a backlog: taken in", jobs / seconds, "jobs/s")
    yield Measurement("a backlog: for a second of the mirror's processor", jobs / used, "jobs/s")


def _late(server: Server, place: Path) -> Iterator[Measurement]:
    """A steady load."""
    before = processor_seconds(server.mirror)
    began = trio.run(_standing, place)
    done = trio.run(busy, server, LOAD_S, PER_SECOND)
    ended = trio.run(_standing, place)
    used = processor_seconds(server.mirror) - before
    counts = [
        after - first for after, first in zip(ended.lag_seconds, began.lag_seconds, strict=True)
    ]
    name = f"{PER_SECOND:,} lifecycles/s"
    yield Measurement(f"{name}: done", done.cycles / done.seconds, "cycles/s")
    for share in (0.5, 0.99):
        late = _quantile(counts, share)
        yield Measurement(f"{name}: rows are late, p{share * 100:.0f} at most", late, "ms")
    yield Measurement(f"{name}: the mirror's processor", 100 * used / done.seconds, "% of one")


def _quantile(counts: list[int], share: float) -> float:
    """The upper bound of the class in which it lies."""
    wanted, seen = share * sum(counts), 0
    for bound, count in zip(LAG_BOUNDS_MS, counts, strict=False):
        seen += count
        if seen >= wanted:
            return bound
    return float("inf")


def _cost(directory: Path) -> Iterator[Measurement]:
    """The same load with a mirror and without, in turns: machines have moods."""
    rates: dict[str, list[float]] = {"on": [], "off": []}
    for turn in range(TURNS):
        for flag, of_flag in rates.items():
            place = directory / f"cost-{turn}-{flag}"
            place.mkdir()
            with serving(place, "--mirror", flag) as server:
                done = trio.run(busy, server, GATHER_S, 0)
            of_flag.append(done.cycles / done.seconds)
    on, off = (statistics.median(of_flag) for of_flag in rates.values())
    yield Measurement("4 streams, mirror on", on, "cycles/s")
    yield Measurement("4 streams, mirror off; the ratio is to on", off, "cycles/s", off / on)


class Done(NamedTuple):
    """What a load came to."""

    cycles: int
    seconds: float


async def busy(server: Server, seconds: float, per_second: int) -> Done:
    """Streams of workers: as fast as they can, or so many lifecycles in a second together."""
    done = [0] * STREAMS
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(STREAMS):
            nursery.start_soon(_stream, server.port, number, seconds, per_second, done)
    return Done(sum(done), trio.current_time() - begun)


async def _stream(port: int, number: int, seconds: float, per_second: int, done: list[int]) -> None:
    """Enqueue, fetch, and acknowledge what the frame before brought."""
    queue, batch = f"stream-{number}", _FRAME if per_second else _FULL_FRAME
    pause_s = STREAMS * batch / per_second if per_second else 0.0
    payload = {"to": "ada@example.com", "n": 1}
    new: list[dict[str, object]] = [{"queue": queue, "payload": payload}] * batch
    fetch: dict[str, object] = {"queues": [queue], "count": batch, "worker_id": queue}
    acks: list[_Taken] = []
    async with connected(port) as client:
        begun = trio.current_time()
        frame = 0
        while trio.current_time() < begun + seconds:
            frame += 1
            sent = _Frame(frame, acks, new, fetch)
            await client.send_message(msgspec.json.encode(sent).decode())
            reply = msgspec.json.decode(await client.receive_message(), type=_Reply)
            assert reply.error is None, reply
            acks = reply.jobs
            done[number] += len(acks)
            if pause_s:
                await trio.sleep_until(begun + frame * pause_s)


class _Taken(msgspec.Struct):
    job_id: str
    lease_token: int


class _Reply(msgspec.Struct):
    id: int
    jobs: list[_Taken] = []
    error: msgspec.Raw | None = None


class _Frame(msgspec.Struct):
    id: int
    acks: list[_Taken]
    enqueues: list[dict[str, object]]
    fetch: dict[str, object]


# The processes themselves.


async def _catch_up(place: Path) -> float:
    """Seconds until the mirror has everything that there is now."""
    begun = trio.current_time()
    places = {}
    for number in range(SHARDS):
        async with _calling(place, f"shard-{number}", number) as client:
            answer = await client.ask(QUERY_NUMBERS[GetNumbers], b"{}")
            assert isinstance(answer, wire.Reply)
            places[number] = msgspec.json.decode(answer.body, type=Numbers).applied
    await _standing(place, places)
    return trio.current_time() - begun


async def _standing(place: Path, least: dict[int, int] | None = None) -> Standing:
    """What the mirror says of itself, once it has come so far."""
    question = msgspec.json.encode(GetStanding(min_seq=least or {}))
    async with _calling(place, "mirror", wire.ALL_SHARDS) as client:
        while True:
            answer = await client.ask(NUMBERS[GetStanding], question)
            if isinstance(answer, wire.Reply) and not answer.code:
                return msgspec.json.decode(answer.body, type=Standing)


def _calling(place: Path, name: str, shard: int) -> AbstractAsyncContextManager[LinkClient]:
    identity = msgspec.json.decode((place / "data" / "node.json").read_bytes(), type=Identity)

    @asynccontextmanager
    async def calling() -> AsyncIterator[LinkClient]:
        hello = wire.make_hello(identity, wire.ROUTER, shard=shard)
        address = UnixAddress(str(place / "data" / "run" / f"{name}.sock"))
        async with dial(address, hello) as link, open_client(link) as client:
            yield client

    return calling()


def _rows(place: Path) -> int:
    with closing(sqlite3.connect(place / "data" / "mirror" / NAME)) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM jobs")
    return int(count)
