"""How fast the durable log takes entries, beside plain writes and syncs of the same bytes.

For each size of entry: what the log takes without a sync, and with one for each group of 64; then
how many syncs a group cost, by counting. The ratio is to a loop of `os.write` (and `os.fdatasync`)
with the same bytes to a file in the same directory. The two take turns, for disks have moods.
"""

import os
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

from bench.measure import Measurement
from corvo.raft.disk.files import RealFiles
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.messages import Entry, Kind
from corvo.raft.ready import Write

ENTRY_BYTES: Final = (1 << 10, 4 << 10, 64 << 10)
GROUP: Final = 64
"""Entries that one sync serves: what gathers while the sync before it is under way."""
UNSYNCED_BYTES: Final = 48 << 20
"""Written in one round: below one segment, so that no sync hides in a new one."""
SYNCED_GROUPS: Final = 30
ROUNDS: Final = 7


class CountingFiles(RealFiles):
    """Counts the syncs of files."""

    syncs = 0

    def sync(self, name: str) -> None:
        super().sync(name)
        self.syncs += 1


def measurements() -> Iterator[Measurement]:
    """Measure on the disk of the current directory; that of temporary files may be memory."""
    with TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as directory:
        yield from measure(Path(directory))


def measure(directory: Path) -> Iterator[Measurement]:
    """Measure in `directory`, which must exist, and leave it as it was."""
    for size in ENTRY_BYTES:
        for groups, sync in ((UNSYNCED_BYTES // (size * GROUP), False), (SYNCED_GROUPS, True)):
            label = f"{size >> 10} KiB entries, {f'a sync per {GROUP}' if sync else 'not synced'}"
            plain, taken, ratio = compare(directory, size, groups, sync=sync)
            yield Measurement(f"log, {label}", taken, "MB/s", ratio)
            yield Measurement(f"plain, {label}", plain, "MB/s", None)
    yield Measurement("log, syncs of a file per group", syncs_per_group(directory), "syncs", None)


def compare(directory: Path, size: int, groups: int, *, sync: bool) -> tuple[float, float, float]:
    """Median megabytes a second of plain writes and of the log, and the median of their ratio."""
    megabytes = size * GROUP * groups / 1e6
    rates = []
    for _ in range(ROUNDS):
        plain = write_plainly(directory, size, groups, sync=sync)
        taken = append(directory, size, groups, sync=sync)
        rates.append((megabytes / plain, megabytes / taken, plain / taken))
    first, second, third = (statistics.median(column) for column in zip(*rates, strict=True))
    return first, second, third


def writes(size: int, groups: int) -> list[Write]:
    """Groups of entries, made beforehand: making them is not the log's work."""
    data = os.urandom(size)
    return [
        Write(
            token=group,
            entries=tuple(Entry(GROUP * group + n + 1, 1, Kind.NORMAL, data) for n in range(GROUP)),
        )
        for group in range(groups)
    ]


def append(directory: Path, size: int, groups: int, *, sync: bool) -> float:
    """Seconds it takes to put groups into a new log."""
    made = writes(size, groups + 1)
    place = directory / "bench-log"
    place.mkdir()
    storage = DiskStorage.open(RealFiles(place), Identity("bench", 1, 1))
    storage.put(made[0])
    storage.sync()  # the first segment is there
    begun = perf_counter()
    for write in made[1:]:
        storage.put(write)
        if sync:
            storage.sync()
    taken = perf_counter() - begun
    storage.close()
    shutil.rmtree(place)
    return taken


def write_plainly(directory: Path, size: int, groups: int, *, sync: bool) -> float:
    """Seconds it takes to write the same bytes with nothing around them."""
    buffer = os.urandom(size) * GROUP
    place = directory / "bench-plain"
    opened = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    begun = perf_counter()
    for _ in range(groups):
        os.write(opened, buffer)
        if sync:
            os.fdatasync(opened)
    taken = perf_counter() - begun
    os.close(opened)
    place.unlink()
    return taken


def syncs_per_group(directory: Path) -> float:
    """Counted, not measured: one."""
    place = directory / "bench-log"
    place.mkdir()
    files = CountingFiles(place)
    storage = DiskStorage.open(files, Identity("bench", 1, 1))
    made = writes(1 << 10, SYNCED_GROUPS + 1)
    storage.put(made[0])
    storage.sync()
    before = files.syncs
    for write in made[1:]:
        storage.put(write)
        storage.sync()
    counted = files.syncs - before
    storage.close()
    shutil.rmtree(place)
    return counted / SYNCED_GROUPS
