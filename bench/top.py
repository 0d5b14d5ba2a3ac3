"""What `corvo top` costs with a thousand queues: the server's processes, and the program itself.

A node has jobs in each of many queues. The use of the processors is read by turns while a `corvo
top` is stopped, and while it refreshes every second in a terminal of 140 columns and 45 lines; the
difference is what it costs. A busy machine has fewer refreshes than one a second, so they are
counted.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from bench.measure import Measurement
from bench.server import Server, serving
from bench.shard_process import processor_seconds
from corvo.client.calls import Client

QUEUES: Final = 1_000
JOBS: Final = 5
"""Pending jobs of each queue."""
TURNS: Final = 4
MEASURED_S: Final = 10.0
"""Of each turn."""
_BATCH: Final = 500
_SETTLING_S: Final = 3.0
_TURNING_S: Final = 1.0
_PAUSE_S: Final = 0.2
_READ_BYTES: Final = 1 << 16
_FIRST_LINE: Final = b"\x1b[1;1H"
"""Written at each refresh, since it has the time."""


def measure(directory: Path) -> Iterator[Measurement]:
    """Percent of a core at one refresh a second, while nothing changes and while jobs arrive."""
    with serving(directory) as server:
        _fill(server)
        yield from _compared(server, "unchanged")
        with _producing(server.url):
            yield from _compared(server, "changing")


def _compared(server: Server, what: str) -> Iterator[Measurement]:
    alone, beside = _Use(), _Use()
    with _top(server.url) as screen:
        sleep(_SETTLING_S)
        for _ in range(TURNS):
            os.kill(screen.process, signal.SIGSTOP)
            sleep(_TURNING_S)
            alone.add(*_used_in(server, screen))
            os.kill(screen.process, signal.SIGCONT)
            sleep(_TURNING_S)
            beside.add(*_used_in(server, screen))
    costs = [
        100 * (used - idle * beside.seconds / alone.seconds) / beside.refreshes
        for used, idle in zip(beside.used, alone.used, strict=True)
    ]
    title = f"top: {QUEUES} queues, {what}, each second"
    for name, cost in zip(("router", "mirror", "shards"), costs[:-1], strict=True):
        yield Measurement(f"{title}: {name}", cost, "% of core")
    yield Measurement(f"{title}: server", sum(costs[:-1]), "% of core")
    yield Measurement(f"{title}: corvo top", costs[-1], "% of core")


class _Use:
    """What processes used in some turns."""

    def __init__(self) -> None:
        self.used = [0.0] * 4
        self.seconds = 0.0
        self.refreshes = 0

    def add(self, used: list[float], seconds: float, refreshes: int) -> None:
        """Add a turn."""
        self.used = [before + now for before, now in zip(self.used, used, strict=True)]
        self.seconds += seconds
        self.refreshes += refreshes


@contextmanager
def _producing(url: str) -> Iterator[None]:
    """A few jobs a second, so that no two summaries are the same."""
    stopped = threading.Event()

    def produce() -> None:
        with Client([url]) as client:
            while not stopped.wait(_PAUSE_S):
                client.change("POST", "/api/v1/enqueue", {"queue": "queue-0001", "payload": {}})

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _fill(server: Server) -> None:
    with Client([server.url]) as client:
        names = [f"queue-{number % QUEUES:04}" for number in range(QUEUES * JOBS)]
        for begin in range(0, len(names), _BATCH):
            jobs = [{"queue": name, "payload": {}} for name in names[begin : begin + _BATCH]]
            client.change("POST", "/api/v1/enqueue/batch", {"jobs": jobs})


class _Screen:
    """A `corvo top` in a pseudo-terminal."""

    def __init__(self, process: int, terminal: int) -> None:
        self.process: Final = process
        self.refreshes = 0
        threading.Thread(target=self._drain, args=(terminal,), daemon=True).start()

    def _drain(self, terminal: int) -> None:
        try:
            while data := os.read(terminal, _READ_BYTES):
                self.refreshes += data.count(_FIRST_LINE)
        except OSError:
            return  # the other end is closed


def _used_in(server: Server, screen: _Screen) -> tuple[list[float], float, int]:
    """What router, mirror, shards and a screen use in some seconds, and its refreshes."""
    refreshes = screen.refreshes
    before, begun = _used(server, screen.process), monotonic()
    sleep(MEASURED_S)
    seconds = monotonic() - begun
    after = _used(server, screen.process)
    used = [now - then for then, now in zip(before, after, strict=True)]
    return used, seconds, screen.refreshes - refreshes


def _used(server: Server, process: int) -> list[float]:
    return [
        processor_seconds(server.router),
        processor_seconds(server.mirror),
        sum(map(processor_seconds, server.shards)),
        processor_seconds(process),
    ]


@contextmanager
def _top(url: str) -> Iterator[_Screen]:
    """A `corvo top` in a pseudo-terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 140, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "corvo", "top", "--server", url, "-d", "1s"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
    )
    os.close(theirs)
    try:
        yield _Screen(process.pid, ours)
    finally:
        os.write(ours, b"q")
        assert process.wait() == 0, "it ends with q"
