"""Places where two threads meet, each tried with the interpreter switching as often as it can.

A thread that reads a field twice, while another one changes it, fails once in a million runs with
the usual switch interval. Here each pair runs side by side with an interval of a microsecond.
"""

import os
import re
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
import trio

from corvo.measures import LoopTimes
from corvo.mirror.follow.progress import Cursor, Page
from corvo.mirror.follow.writing import open_writing
from corvo.mirror.query.reading import Reading, TimeOver
from corvo.shard.driver.syncing import Syncer
from corvo.telemetry import Writer
from corvo.watchdog import Watchdog
from tests.mirror.pages import tables_in
from tests.mirror.test_writing import CURSOR, of_jobs
from tests.support.files import MemoryFiles
from tests.support.logs import append, entry, open_log

SWITCH_S: Final = 1e-6
JOIN_S: Final = 60.0
ROUNDS: Final = 2_000

TRIED: Final = {
    "corvo/client_commands/worker.py": "",  # reads and writes what it shares under one lock
    "corvo/kv": "tests/kv/test_checkpoints.py",
    "corvo/mirror/follow/checking.py": "",  # has a connection of its own, and reads a flag
    "corvo/mirror/follow/following.py": "test_flushing_the_file_disturbs_no_write",
    "corvo/mirror/process.py": "",  # opens the file, before another thread knows it
    "corvo/mirror/readers.py": "test_a_limit_begins_and_ends_while_another_thread_looks_at_it",
    "corvo/node_map.py": "",  # writes a value that never changes, and waits for it
    "corvo/router/server/serving.py": "",  # reads the times of two files, and shares nothing
    "corvo/shard/driver/copying.py": "",  # reads files that never change
    "corvo/shard/driver/process.py": "test_entries_are_read_while_they_are_synced",
    "corvo/shard/driver/snapshots.py": "",  # one task at a time has the copy, and files of its own
    "corvo/shard/driver/syncing.py": "test_every_sync_is_waited_for",
    "corvo/telemetry.py": "test_every_line_is_written_or_counted",
    "corvo/tui/fetching.py": "",  # hands over data that never change, under one lock
    "corvo/watchdog.py": "test_a_watchdog_watches_a_loop_that_counts",
}
"""By module that starts a thread: the test of what it shares, or why there is none."""


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    yield
    sys.setswitchinterval(usual)


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Do `work` again and again in another thread; what it raised is raised at the end."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            work()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            is_over.set()
        running.result(JOIN_S)


def test_every_module_with_a_thread_is_tried() -> None:
    starts = re.compile(r"\bThread\(|\bto_thread\.run_sync\(|ThreadPoolExecutor\(")
    root = Path(__file__).parents[1]
    found = {
        str(path.relative_to(root))
        for path in sorted((root / "corvo").rglob("*.py"))
        if starts.search(path.read_text())
    }

    assert found == {name for name in TRIED if name.endswith(".py")}
    assert {name for name in TRIED.values() if name.startswith("test_")} <= set(globals())


def test_a_limit_begins_and_ends_while_another_thread_looks_at_it() -> None:
    ticks = iter(range(1, 1 << 40))
    reading = Reading(sqlite3.connect(":memory:"), clock=lambda: next(ticks), now_ns=0)

    def look() -> None:
        for _ in range(50):
            reading.is_over()

    with beside(look):
        for _ in range(ROUNDS):
            with reading.until(1_000):
                reading.hurry(500)

    assert not reading.was_cut


def test_a_reader_that_is_interrupted_at_any_moment_can_read_on() -> None:
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    connection.execute("CREATE TABLE numbers AS SELECT value FROM json_each('[1,2,3,4,5,6,7,8]')")
    reading = Reading(connection, clock=lambda: 0, now_ns=0)
    sums: set[int] = set()

    with beside(connection.interrupt):
        for _ in range(ROUNDS):
            with suppress(TimeOver), reading.until(1), reading.snapshot():
                [(total,)] = reading.run("SELECT sum(value) FROM numbers").fetchall()
                sums.add(total)
            assert not connection.in_transaction

    assert sums <= {36}
    assert reading.run("SELECT sum(value) FROM numbers").fetchall() == [(36,)]


def test_flushing_the_file_disturbs_no_write(tmp_path: Path) -> None:
    writing, _ = open_writing(tmp_path, "rookery", 1, boot_id="one")

    with beside(writing.settle):
        for number in range(50):
            cursor = Cursor(0, number + 1, CURSOR.digest, CURSOR.now_ns)
            writing.write([Page(cursor, of_jobs(f"job-{number}"))])
            writing.check_place()
            assert writing.file_bytes > 0

    assert len(tables_in(writing.path)["jobs"]) == 50
    writing.close()


def test_entries_are_read_while_they_are_synced() -> None:
    storage = open_log(MemoryFiles())

    def read() -> None:
        last = storage.last_index
        if last > storage.base.index:
            found = storage.entries(storage.base.index + 1, last, 1 << 20)
            assert [each.index for each in found] == [
                *range(storage.base.index + 1, storage.base.index + 1 + len(found))
            ]

    for index in range(1, 200):
        storage.put(append(entry(index)))
        with beside(read):
            storage.sync()

    assert storage.last_index == 199


def test_every_sync_is_waited_for() -> None:
    synced: list[int] = []
    seen: list[int] = []
    syncer = Syncer(lambda: synced.append(len(synced)))

    async def main() -> None:
        syncer.start()
        for number in range(ROUNDS):
            is_skipped = number % 3 == 0
            (syncer.skip if is_skipped else syncer.begin)()
            await syncer.wait()
            if not is_skipped:
                syncer.unwrap()
                seen.append(len(synced))
        syncer.close()

    trio.run(main)

    assert seen == [*range(1, len(seen) + 1)]


def test_every_line_is_written_or_counted() -> None:
    reading, writing = os.pipe()
    writer = Writer(writing, pending_bytes_max=200)
    dropped: list[int] = []

    def note(count: int) -> bytes:
        dropped.append(count)
        return b""

    writer.on_drop = note
    said: list[bytes] = []

    def listen() -> None:
        while data := os.read(reading, 65_536):
            said.append(data)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    writer.start()
    with beside(lambda: writer.put(b"other\n")):
        for number in range(ROUNDS):
            writer.put(b"%d\n" % number)
    is_done = writer.close(timeout_s=JOIN_S)
    os.close(writing)
    listener.join(JOIN_S)
    os.close(reading)

    lines = b"".join(said).splitlines()
    ours = [int(line) for line in lines if line != b"other"]
    assert is_done
    assert ours == sorted(set(ours))
    assert len(ours) + sum(dropped) >= ROUNDS


def test_a_watchdog_watches_a_loop_that_counts() -> None:
    loop = LoopTimes()
    stalls: list[str] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Watchdog(loop, stalls.append, beat_s=JOIN_S, sample_s=0.0).run)
            for _ in range(ROUNDS):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    trio.run(main)

    assert loop.lag.count == sum(loop.lag.counts) > 0
    assert not stalls
