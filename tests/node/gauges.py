"""What the processes of a node take: memory, files, threads, time; and what is on the disk."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

_TICKS_S: Final = os.sysconf("SC_CLK_TCK")


class Gauge(msgspec.Struct, frozen=True):
    """One process at one moment."""

    at_s: float
    rss_kib: int
    files: int
    threads: int
    cpu_s: float


def look_at(pid: int, at_s: float) -> Gauge:
    """What a process takes now."""
    root = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (root / "status").read_text().splitlines() if ":" in line
    )
    return Gauge(
        at_s=at_s,
        rss_kib=int(status["VmRSS"].split()[0]),
        files=len(list((root / "fd").iterdir())),
        threads=int(status["Threads"]),
        cpu_s=cpu_s(pid),
    )


def cpu_s(pid: int) -> float:
    """Seconds that a process has computed, itself and for itself in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


class Disk(msgspec.Struct, frozen=True):
    """A data directory at one moment."""

    at_s: float
    kib: int
    segments: int
    """Files of the longest log of any shard."""


def look_at_disk(data: Path, at_s: float) -> Disk:
    """What a data directory takes now."""
    inodes: dict[int, int] = {}
    segments: dict[Path, int] = {}
    for folder, _, names in os.walk(data):
        for name in names:
            try:
                found = (Path(folder) / name).stat()
            except FileNotFoundError:
                continue  # it was just being removed
            inodes[found.st_ino] = found.st_blocks  # a table is often linked twice
        if Path(folder).name == "log":
            segments[Path(folder)] = sum(name.endswith(".seg") for name in names) or len(names)
    return Disk(at_s, sum(inodes.values()) // 2, max(segments.values(), default=0))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """By least squares: how much it rises in a second."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
