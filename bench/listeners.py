"""What clients that follow events do to others: latency of lone enqueues beside many listeners.

    python -m bench.listeners read PORT COUNT
    python -m bench.listeners load PORT

are the two processes beside the one that measures. The first holds so many streams of events and
reads them with one `epoll`; the second puts jobs in, which is one event each, so many a second. In
the rows, `quiet` has neither; the ratios are to it.
"""

import json
import select
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter, sleep, time_ns
from typing import Final

import trio

from bench.http_client import connected
from bench.measure import Measurement
from bench.server import Server, serving

LISTENERS: Final = (0, 200, 1_000)
EVENTS: Final = 300
"""In a second."""
ROUNDS: Final = 3
MEASURED_S: Final = 6.0
SETTLING_S: Final = 2.0
_PAUSE_S: Final = 0.05
_LAST_S: Final = 2.0
"""By then the last events have arrived."""
_READ_BYTES: Final = 256 << 10
_QUEUES: Final = 8
_BATCH: Final = 10
_LONE: Final = b'{"queue":"lone","payload":1}'
_DATA: Final = b"\ndata: "
_LISTEN: Final = b"GET /api/v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def measure(directory: Path) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist."""
    with serving(directory) as server:
        trio.run(_enqueue, server.port)  # the first requests are slower than all others
        quiet = [trio.run(_enqueue, server.port) for _ in range(ROUNDS)]
        yield from _rows("quiet", quiet, quiet)
        for count in LISTENERS:
            yield from _beside(server, count, quiet)


def _beside(server: Server, count: int, quiet: list[list[float]]) -> Iterator[Measurement]:
    name = f"{count:,} listeners, {EVENTS} events/s"
    with _process("read", server.port, count) as reader:
        with _process("load", server.port, 0) as load:
            sleep(SETTLING_S)
            before, begun = server.used(), perf_counter()
            rounds = [trio.run(_enqueue, server.port) for _ in range(ROUNDS)]
            took = perf_counter() - begun
            share = server.used().since(before).router / took
            sent = _tell(load)
        sleep(_LAST_S)
        read = _tell(reader)
    yield from _rows(name, rounds, quiet)
    yield Measurement(f"{name}: router", 100 * share, "% of one")
    due = sent["events"] + sum(map(len, rounds))
    yield Measurement(f"{name}: sent", due / (took + SETTLING_S), "events/s")
    if count:
        yield Measurement(f"{name}: least read by one, of {due}", read["least"], "events")
        yield Measurement(f"{name}: most", read["most"], "events")
        yield Measurement(f"{name}: streams that ended", read["ended"], "streams")
        yield Measurement(f"{name}: an event's way, p50", read["late_ms"], "ms")


def _rows(name: str, rounds: list[list[float]], quiet: list[list[float]]) -> Iterator[Measurement]:
    for label, cut in (("p50", 49), ("p95", 94)):
        value = statistics.median(_cut(each, cut) for each in rounds)
        ratio = value / statistics.median(_cut(each, cut) for each in quiet)
        yield Measurement(f"{name}: {label}", value * 1e3, "ms", ratio)


def _cut(latencies: list[float], cut: int) -> float:
    return statistics.quantiles(latencies, n=100)[cut]


async def _enqueue(port: int) -> list[float]:
    """Seconds of the requests of a client that sends one now and then."""
    latencies: list[float] = []
    async with connected(port) as connection:
        until = perf_counter() + MEASURED_S
        while perf_counter() < until:
            begun = perf_counter()
            status, answer = await connection.ask("POST", "/api/v1/enqueue", _LONE)
            latencies.append(perf_counter() - begun)
            assert status == 201, answer
            await trio.sleep(_PAUSE_S)
    return latencies


# The processes beside it. They begin with a line, and end with one when they are told to.


@contextmanager
def _process(*what: str | int) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "bench.listeners", *map(str, what)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _tell(process: "subprocess.Popen[bytes]") -> dict[str, float]:
    out, _ = process.communicate(b"\n")
    told: dict[str, float] = json.loads(out)
    return told


def read(port: int, count: int) -> dict[str, float]:
    """Read the streams of so many listeners until told to end."""
    listeners = [_listener(port) for _ in range(count)]
    by_fd = {each.fileno(): each for each in listeners}
    tails = dict.fromkeys(by_fd, b"")
    seen = dict.fromkeys(by_fd, 0)
    late: list[float] = []
    poll = select.epoll()
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    print(flush=True)
    ended = 0
    while True:
        for fd, _ in poll.poll():
            if fd not in by_fd:
                counts = list(seen.values())
                return {
                    "least": min(counts, default=0),
                    "most": max(counts, default=0),
                    "ended": ended,
                    "late_ms": statistics.median(late) if late else 0.0,
                }
            data = by_fd[fd].recv(_READ_BYTES)
            if not data:
                poll.unregister(fd)
                ended += 1
                continue
            data = tails[fd] + data
            tails[fd] = data[1 - len(_DATA) :]
            seen[fd] += data.count(_DATA)
            at = data.find(b'"at_ns":')
            if at >= 0 and len(data) > at + 30:
                happened = int(data[at + 8 : data.index(b",", at)])
                late.append((time_ns() - happened) / 1e6)


def _listener(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(_LISTEN)
    answer = client.recv(_READ_BYTES)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return client


def load(port: int, _: int) -> dict[str, float]:
    """Put jobs in, which is an event each, until told to end."""
    print(flush=True)
    return {"events": trio.run(_batches, port)}


async def _batches(port: int) -> int:
    sent, begun = 0, monotonic()
    async with connected(port) as connection:
        while not select.select([sys.stdin], [], [], 0)[0]:
            jobs = [
                {
                    "queue": f"queue-{(sent + number) % _QUEUES}",
                    "payload": {"to": "ada@example.com"},
                }
                for number in range(_BATCH)
            ]
            body = json.dumps({"jobs": jobs}).encode()
            status, answer = await connection.ask("POST", "/api/v1/enqueue/batch", body)
            assert status in {200, 201}, answer
            sent += _BATCH
            await trio.sleep(max(0.0, begun + sent / EVENTS - monotonic()))
    return sent


def main(arguments: list[str]) -> int:
    """Be one of the two processes."""
    what, port, count = arguments
    told = {"read": read, "load": load}[what](int(port), int(count))
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
