"""One shard process, whole: its socket, its log with a sync for each write, its state.

A client in another process keeps some requests in flight over the unix socket, as a router does;
each worker of it enqueues, fetches and acknowledges in a circle, many jobs to a request or one. The
disk is that of the current directory. How many syncs it does in a second is measured before and
behind: nothing is acknowledged without one, but many requests share each.

On a machine of two cores the client has one of them, so what each used is in the table.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final, NamedTuple

import msgspec
import trio

from bench import workload
from bench.measure import Measurement
from corvo.connections import UnixAddress, dial
from corvo.link import LinkClient, open_client
from corvo.protocol import wire
from corvo.protocol.ops.work import Claim, Claims
from corvo.shard.config import ShardConfig
from corvo.shard.state.entry import Record

CLUSTER: Final = "bench"
MEASURED_S: Final = 4.0
WARMING_S: Final = 1.0
START_S_MAX: Final = 30.0
SYNC_BYTES: Final = 16 << 10  # an entry with a few hundred small ops
SYNCS: Final = 200


class Mode(NamedTuple):
    """What the client does."""

    name: str
    jobs: int
    """In each request."""
    workers: int
    """Each has one request in flight."""


MODES: Final = (
    Mode("64 jobs a request, 32 in flight", 64, 32),
    Mode("256 jobs a request, 16 in flight", 256, 16),
    Mode("single jobs, 256 in flight", 1, 256),
    Mode("single jobs, one in flight", 1, 1),
)


class Outcome(NamedTuple):
    """What a mode came to."""

    jobs: int
    seconds: float
    latencies: list[float]
    """Seconds of each request."""
    client_s: float
    """Of a processor."""
    server_s: float


class Load:
    """Workers that do the same over and over."""

    def __init__(self, client: LinkClient, mode: Mode) -> None:
        self._client = client
        self._mode = mode
        self._new = workload.enqueue(mode.jobs)
        self._take = workload.fetch(mode.jobs)
        self.jobs = 0
        self.latencies: list[float] = []

    async def work(self) -> None:
        """Be one worker until cancelled."""
        while True:
            await self._request(self._new)
            # Whoever takes has put in as many before, so there are enough for all.
            claims = _decode(await self._request(self._take)).jobs
            assert len(claims) == self._mode.jobs
            await self._done(claims)

    async def _done(self, claims: list[Claim]) -> None:
        await self._request(workload.ack(claims))
        self.jobs += len(claims)

    async def _request(self, record: Record) -> bytes:
        begun = perf_counter()
        answer = await self._client.submit(*record)
        self.latencies.append(perf_counter() - begun)
        assert isinstance(answer, wire.Reply), f"{answer}"
        assert not answer.code, f"{answer}"
        return answer.body


def measure(directory: Path) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist. The ratio is to one processor."""
    before = syncs_per_second(directory)
    for number, mode in enumerate(MODES):
        yield from _described(mode, _run(directory / str(number), mode))
    after = syncs_per_second(directory)
    yield Measurement("fdatasync of 16 KiB, plain", statistics.fmean((before, after)), "syncs/s")


def _described(mode: Mode, outcome: Outcome) -> Iterator[Measurement]:
    yield Measurement(f"process, {mode.name}", outcome.jobs / outcome.seconds, "jobs/s")
    cuts = statistics.quantiles(outcome.latencies, n=100)
    yield Measurement(f"{mode.name}: p50 of a request", cuts[49] * 1e3, "ms")
    yield Measurement(f"{mode.name}: p99 of a request", cuts[98] * 1e3, "ms")
    for who, used in (("process", outcome.server_s), ("client", outcome.client_s)):
        label = f"{mode.name}: processor of the {who}"
        yield Measurement(label, used / outcome.jobs * 1e6, "µs/job", used / outcome.seconds)


def _run(directory: Path, mode: Mode) -> Outcome:
    # Not in `directory`: the name of a socket may have no more than a hundred bytes or so.
    with TemporaryDirectory(prefix="corvo-") as place:
        socket = str(Path(place) / "socket")
        with _serving(directory, socket) as server:
            return trio.run(_measure, socket, mode, lambda: processor_seconds(server))


async def _measure(socket: str, mode: Mode, server_s: Callable[[], float]) -> Outcome:
    hello = wire.make_hello(_config(Path(), socket), wire.ROUTER, shard=0)
    async with (
        dial(UnixAddress(socket), hello) as link,
        open_client(link) as client,
        trio.open_nursery() as nursery,
    ):
        await _led(client)
        load = Load(client, mode)
        for _ in range(mode.workers):
            nursery.start_soon(load.work)
        await trio.sleep(WARMING_S)
        load.jobs = 0
        load.latencies.clear()
        begun, ours, theirs = perf_counter(), process_time(), server_s()
        await trio.sleep(MEASURED_S)
        outcome = Outcome(
            load.jobs,
            perf_counter() - begun,
            load.latencies.copy(),
            process_time() - ours,
            server_s() - theirs,
        )
        nursery.cancel_scope.cancel()
    return outcome


async def _led(client: LinkClient) -> None:
    """Return when there is a leader."""
    with trio.fail_after(START_S_MAX):
        answer = await client.submit(*workload.fetch())
        while not isinstance(answer, wire.Reply):
            await trio.sleep(0.02)
            answer = await client.submit(*workload.fetch())


def _config(directory: Path, socket: str) -> ShardConfig:
    return ShardConfig(
        cluster=CLUSTER, node=1, shard=0, shards=1, data_dir=str(directory), sockets={0: socket}
    )


@contextmanager
def _serving(directory: Path, socket: str) -> Iterator[int]:
    """A new shard process; it ends with the block."""
    config = _config(directory, socket)
    command = [sys.executable, "-m", "corvo", "shard"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(config) + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.stdin.close()  # which asks it to leave
    assert process.returncode == 0, f"the process left with {process.returncode}"


def processor_seconds(process: int) -> float:
    """What a process has had of the processors."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])  # of the program, and of the system for it
    return ticks / os.sysconf("SC_CLK_TCK")


def syncs_per_second(directory: Path) -> float:
    """How often something can be made durable, by appending to one file."""
    data = os.urandom(SYNC_BYTES)
    place = directory / "bench-syncs"
    opened = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    begun = perf_counter()
    for _ in range(SYNCS):
        os.write(opened, data)
        os.fdatasync(opened)
    taken = perf_counter() - begun
    os.close(opened)
    place.unlink()
    return SYNCS / taken


_decode: Final = msgspec.json.Decoder(Claims).decode
