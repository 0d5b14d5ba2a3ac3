"""One node, whole: `corvo server` with four shards, and clients that speak HTTP to it.

Clients are `wrk` where many requests count, and this process where each single one does. Queues are
few, so that one shard has most of the work: spreading over shards needs processors for them, and
that is not what is asked here. The disk is that of the current directory; every answer waits for
it. How many syncs it does in a second is measured before each part and behind the last, since it
may differ by a factor of ten from one minute to the next.

On a machine of two cores the client has its share of both, so what each used is in the table. The
ratio of a rate is to the calibration loop; that of a time is how often the loop would have run in
it.
"""

import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import trio

from bench import stream_load, waiting
from bench.calibration import loops_per_second
from bench.measure import Measurement
from bench.server import Server, Used, serving
from bench.shard_process import syncs_per_second

WARMING_S: Final = 1
MEASURED_S: Final = 6
_SCRIPTS: Final = Path(__file__).parent / "wrk"


class Plan(NamedTuple):
    """What `wrk` is to do."""

    name: str
    script: str
    threads: int
    connections: int


LONE: Final = Plan("enqueues, 1 connection", "enqueue.lua", 1, 1)
SIXTEEN: Final = Plan("enqueues, 16 connections", "enqueue.lua", 1, 16)
ENQUEUE: Final = Plan("enqueues, 64 connections", "enqueue.lua", 1, 64)
CYCLE: Final = Plan("cycles, 16 connections", "cycle.lua", 16, 16)
BATCH: Final = Plan("batches of 100, 16 connections", "batch.lua", 1, 16)


class Report(msgspec.Struct):
    """What `wrk` has to tell."""

    requests: int
    cycles: int
    refused: int
    broken: int
    us: int
    p50_us: float
    p99_us: float


def measure(directory: Path) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist."""
    yield Measurement("calibration: plain Python", loops_per_second(), "loops/s", 1.0)
    has_wrk = shutil.which("wrk") is not None
    with serving(directory) as server:
        for name, part in PARTS.items():
            if name in _OF_WRK and not has_wrk:
                print(f"{name}: not covered, for there is no wrk (Debian: apt-get install wrk)")
                continue
            yield _disk(f"disk before {name}", directory)
            yield from part(server)
        yield _disk("disk at the end", directory)


def _disk(label: str, directory: Path) -> Measurement:
    return Measurement(label, syncs_per_second(directory), "syncs/s", None)


# Many requests.


def enqueue(server: Server, plan: Plan = ENQUEUE) -> Iterator[Measurement]:
    """Jobs, each in a request of its own."""
    report, used = load(server, plan)
    yield _rate(plan.name, report.requests / report.us * 1e6, "jobs/s")
    yield from _of_requests(plan.name, report, used)


def _cycle(server: Server) -> Iterator[Measurement]:
    report, used = load(server, CYCLE)
    assert report.cycles, "no job came to its end"
    yield _rate(CYCLE.name, report.cycles / report.us * 1e6, "cycles/s")
    yield from _of_requests(CYCLE.name, report, used)


def _batch(server: Server) -> Iterator[Measurement]:
    report, used = load(server, BATCH)
    yield _rate(BATCH.name, 100 * report.requests / report.us * 1e6, "jobs/s")
    yield from _of_requests(BATCH.name, report, used)


def load(server: Server, plan: Plan) -> tuple[Report, Used]:
    _wrk(server, plan, WARMING_S)
    before = server.used()
    report = _wrk(server, plan, MEASURED_S)
    used = server.used().since(before)
    assert report.refused == report.broken == 0, f"{plan.name}: {report}"
    return report, used


def _wrk(server: Server, plan: Plan, seconds: int) -> Report:
    command = ["wrk", "--latency", f"-t{plan.threads}", f"-c{plan.connections}", f"-d{seconds}s"]
    command += ["--timeout", "30s", "-s", plan.script, server.url]
    said = subprocess.run(command, cwd=_SCRIPTS, check=True, capture_output=True).stdout
    [line] = [one for one in said.splitlines() if one.startswith(b"report ")]
    return msgspec.json.decode(line.removeprefix(b"report "), type=Report)


def _of_requests(name: str, report: Report, used: Used) -> Iterator[Measurement]:
    yield _time(f"{name}: p50 of a request", report.p50_us / 1e6)
    yield _time(f"{name}: p99 of a request", report.p99_us / 1e6)
    yield from _processor(name, used, report.requests, "request")


# Each single one.


def _stream(server: Server, *, is_packed: bool) -> Iterator[Measurement]:
    came = trio.run(partial(stream_load.stream, server, is_packed=is_packed))
    name = f"stream of {'msgpack' if is_packed else 'JSON'}, 4 x 100"
    yield _rate(name, came.cycles / came.seconds, "cycles/s")
    yield from _percentiles(f"{name}: # of a frame", came.frames)
    yield from _processor(name, came.used, came.cycles, "cycle")


def _wake(server: Server) -> Iterator[Measurement]:
    came = trio.run(waiting.wake, server)
    name = "100 jobs/s, 16 parked"
    yield from _percentiles(f"{name}: # from enqueue to worker", came.latencies)
    yield from _processor(name, came.used, len(came.latencies), "job")


def _idle(server: Server) -> Iterator[Measurement]:
    came = trio.run(waiting.idle, server)
    name = "1,000 parked, no work"
    for who, used in (("router", came.used.router), ("shards", came.used.shards)):
        share = used / came.seconds
        yield Measurement(f"{name}: processor of the {who}", 100 * share, "% of one", None)
    yield Measurement(f"{name}: growth of the logs in 20 s", came.entries, "entries", None)


def _scrape(server: Server) -> Iterator[Measurement]:
    came = trio.run(waiting.scrape, server)
    name = "metrics of 1,000 queues"
    yield from _percentiles(f"{name}: # of a scrape", came.scrapes)
    yield Measurement(f"{name}: a page", came.page_bytes / 1e3, "kB", None)
    yield from _processor(name, came.used, len(came.scrapes), "scrape")
    yield from _percentiles("enqueue beside nobody: #", came.alone)
    yield from _percentiles("enqueue beside scrapes: #", came.beside)


Part = Callable[[Server], Iterator[Measurement]]

PARTS: Final[dict[str, Part]] = {
    "idling": _idle,  # first, since jobs that a client left behind are work: their leases end
    "enqueues": enqueue,
    "cycles": _cycle,
    "batches": _batch,
    "streams": partial(_stream, is_packed=True),
    "streams of JSON": partial(_stream, is_packed=False),
    "waking": _wake,
    "scrapes": _scrape,
}
_OF_WRK: Final = {"enqueues", "cycles", "batches"}


# Rows.


def _rate(name: str, value: float, unit: str) -> Measurement:
    return Measurement(name, value, unit, value / loops_per_second())


def _time(name: str, seconds: float) -> Measurement:
    return Measurement(name, seconds * 1e3, "ms", seconds * loops_per_second())


def _percentiles(label: str, seconds: list[float]) -> Iterator[Measurement]:
    cuts = statistics.quantiles(seconds, n=100)
    yield _time(label.replace("#", "p50"), cuts[49])
    yield _time(label.replace("#", "p99"), cuts[98])


def _processor(name: str, used: Used, number: int, what: str) -> Iterator[Measurement]:
    for who, seconds in used._asdict().items():
        each = seconds / number
        label = f"{name}: processor of the {who}"
        yield Measurement(label, each * 1e6, f"µs/{what}", each * loops_per_second())
