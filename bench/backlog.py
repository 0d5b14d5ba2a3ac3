"""Whether a fetch costs the same, and memory stays the same, however many jobs there are.

A process for each backlog builds it through the state machine, in large entries. Then all of them
take turns: a job comes in, the oldest is fetched (this alone is timed) and done, so that the
backlog stays what it is. The same again after a restart: what was in memory is gone, the system has
forgotten the files, and only the cursor says where the queue begins. The first job in and the first
out meet all of that and are shown by themselves, measured once; the median of the many behind them
finds things warm again.

The oldest job of a long queue has to be read from a table; the only one of an empty queue is still
in memory. So some difference is real, and it does not grow.

Memory is what a process has for itself (`RssAnon`). LevelDB also maps its tables, and what of them
counts as resident is the system's cache, which it takes back when somebody needs it.
"""

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from bench import workload
from bench.measure import Measurement
from bench.workload import OPS_AN_ENTRY, Shard
from corvo.kv import level, tables

ROUNDS: Final = 40
FETCHES_A_ROUND: Final = 10
JOBS_AN_ENTRY: Final = 1_000
FETCH_MAX: Final = 500
WAITING: Final = 1_000
"""Pending jobs beside those that are completed: a queue with nothing in it gives nothing."""

MEMORY_MAX: Final = (
    # A cached document counts for its size and `HELD_BYTES`: that is what the bound is about.
    tables.CACHE_BYTES_MAX
    + level.CACHE_BYTES
    + 2 * level.WRITE_BUFFER_BYTES
    + (32 << 20)  # the indexes of a thousand open tables, heads, and what the allocator holds back
)
"""What a process may take beside what it took when its store was empty."""


class Backlog(NamedTuple):
    """How many jobs there are before anything is measured."""

    name: str
    pending: int
    completed: int = 0


SMALL: Final = (Backlog("nothing pending", 0), Backlog("100,000 pending", 100_000))
LARGE: Final = (
    *SMALL,
    Backlog("1,000,000 pending", 1_000_000),
    Backlog("1,000,000 completed", WAITING, 1_000_000),
)


class Memory(NamedTuple):
    """Bytes of this process in memory: its own, and of files."""

    own: int
    mapped: int


class Result(NamedTuple):
    """What one process has found out."""

    fetches: dict[int, list[float]]
    """Seconds for an entry with so many fetches of one job each."""
    memory: Memory


class Built:
    """A process with a backlog; see `_serve` for what it can be told."""

    def __init__(self, backlog: Backlog, directory: Path) -> None:
        self.backlog = backlog
        context = get_context("spawn")  # a fork would begin with our memory
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, backlog, directory))
        self._process.start()
        theirs.close()

    def wait(self) -> Memory:
        """Memory before anything was built; returns when it is."""
        memory = self._ours.recv()
        assert isinstance(memory, Memory)
        return memory

    def run(self, order: str) -> Result:
        """Have it do something."""
        self._ours.send(order)
        result = self._ours.recv()
        assert isinstance(result, Result)
        return result

    def close(self) -> None:
        """End it."""
        self._ours.send("end")
        self._process.join()
        assert self._process.exitcode == 0


def measure(directory: Path, backlogs: tuple[Backlog, ...] = SMALL) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist. The ratio is to the first backlog."""
    with ExitStack() as stack:
        built = []
        for number, backlog in enumerate(backlogs):
            process = Built(backlog, directory / str(number))
            stack.callback(process.close)
            built.append(process)
        empty = [process.wait() for process in built]
        yield from _fetches(built, "")
        yield from _memory(built, empty)
        for process in built:
            process.run("restart")
            [first] = process.run("first").fetches[1]
            label = f"first in and out after a restart, {process.backlog.name}"
            yield Measurement(label, first * 1e6, "µs")
        yield from _fetches(built, ", after a restart")


def _fetches(built: list[Built], words: str) -> Iterator[Measurement]:
    """Rounds by turns, and the median of each."""
    taken: dict[tuple[int, int], list[float]] = {}
    for _ in range(ROUNDS):
        for number, process in enumerate(built):
            for count, seconds in process.run("measure").fetches.items():
                taken.setdefault((count, number), []).extend(seconds)
    for count in (1, OPS_AN_ENTRY):
        first = statistics.median(taken[count, 0])
        for number, process in enumerate(built):
            median = statistics.median(taken[count, number])
            label = f"{count} fetched of {process.backlog.name}{words}"
            yield Measurement(label, median * 1e6, "µs", median / first)


def _memory(built: list[Built], empty: list[Memory]) -> Iterator[Measurement]:
    for process, before in zip(built, empty, strict=True):
        memory = process.run("memory").memory
        grown = memory.own - before.own
        label = f"memory beside an empty one, {process.backlog.name}"
        yield Measurement(label, grown / 1e6, "MB", grown / MEMORY_MAX)
        label = f"tables mapped, {process.backlog.name}"
        yield Measurement(label, memory.mapped / 1e6, "MB")


# The process of one backlog.


def _serve(link: "Connection[Memory | Result, str]", backlog: Backlog, directory: Path) -> None:
    """Build a backlog, then do as told until told to end."""
    shard = Shard(directory)
    before = memory_now()
    _build(shard, backlog)
    link.send(before)
    while (order := link.recv()) != "end":
        fetches: dict[int, list[float]] = {}
        match order:
            case "measure":
                fetches = {
                    count: [_time_fetch(shard, count) for _ in range(FETCHES_A_ROUND)]
                    for count in (1, OPS_AN_ENTRY)
                }
            case "first":
                # The first to touch the queue, whichever that is, looks for where it begins.
                coming = shard.apply(workload.enqueue()).wall
                fetches = {1: [coming + shard.apply(workload.fetch()).wall]}
            case "restart":
                shard.close()
                _forget_files(directory)
                shard = Shard(directory)
            case _:
                assert order == "memory"
        link.send(Result(fetches, memory_now()))
    shard.close()


def _build(shard: Shard, backlog: Backlog) -> None:
    for _ in range(0, backlog.completed, JOBS_AN_ENTRY):
        shard.apply(workload.enqueue(JOBS_AN_ENTRY))
        for _ in range(0, JOBS_AN_ENTRY, FETCH_MAX):
            shard.apply(workload.fetch(FETCH_MAX))
            shard.apply(workload.ack(workload.claimed(shard.answers)))
    for _ in range(0, backlog.pending, JOBS_AN_ENTRY):
        shard.apply(workload.enqueue(JOBS_AN_ENTRY))


def _time_fetch(shard: Shard, count: int) -> float:
    """Seconds of an entry with `count` fetches."""
    shard.apply(*[workload.enqueue()] * count)
    seconds = shard.apply(*[workload.fetch()] * count).wall
    claims = workload.claimed(shard.answers)
    assert len(claims) == count
    shard.apply(*(workload.ack([claim]) for claim in claims))
    return seconds


def memory_now() -> Memory:
    """What this process has in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    own, mapped = (int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssFile"))
    return Memory(own, mapped)


def _forget_files(directory: Path) -> None:
    """Have the system drop what it has of these files, as if they were not read for long."""
    for path in directory.iterdir():
        opened = os.open(path, os.O_RDONLY)
        os.fsync(opened)  # what is not written yet cannot be dropped
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(opened)
