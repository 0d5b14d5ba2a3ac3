"""The long forms: `python -m tests.node NAME --seconds N` breaks a node and prints what it saw."""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import trio

from tests.node import killing, mixed
from tests.node.gauges import Gauge, slope


def kill(directory: Path, seconds: float) -> None:
    seen = trio.run(lambda: killing.run(directory, seconds=seconds))
    by_victim: dict[str, list[float]] = {}
    for each in seen.kills:
        by_victim.setdefault(each.victim, []).append(max(each.gaps_s))
    for victim, gaps in by_victim.items():
        ordered = sorted(gaps)
        print(
            f"kill -9 of {victim}: {len(gaps)} times; longest gap without a success: "
            f"median {ordered[len(ordered) // 2]:.2f} s, worst {ordered[-1]:.2f} s"
        )
    print(f"{seen.events} events; not answered with yes: {seen.oddities}")
    print("\n".join(seen.wrongs) or "nothing is wrong")


def mix(directory: Path, seconds: float) -> None:
    seen = trio.run(lambda: mixed.run(directory, seconds=seconds))
    print(f"{seen.rounds} rounds; answers: {seen.statuses}")
    print("process   what         at first   warm       at last    slope a minute, once warm")
    for name, gauges in sorted(seen.gauges.items()):
        for what, of in MEASURES.items():
            points = [(gauge.at_s, float(of(gauge))) for gauge in gauges]
            say(name, what, points)
        print(f"{name:9} cpu          {gauges[-1].cpu_s / gauges[-1].at_s:.1%} of a core")
    say("disk", "KiB", [(disk.at_s, float(disk.kib)) for disk in seen.disk])
    say("disk", "segments", [(disk.at_s, float(disk.segments)) for disk in seen.disk])
    kib = [disk.kib for disk in seen.disk]
    print(f"disk: at most {max(kib)} KiB, in the later half {max(kib[len(kib) // 2 :])} KiB")


MEASURES: dict[str, Callable[[Gauge], int]] = {
    "RSS KiB": lambda gauge: gauge.rss_kib,
    "files": lambda gauge: gauge.files,
    "threads": lambda gauge: gauge.threads,
}


def say(name: str, what: str, points: list[tuple[float, float]]) -> None:
    """One line: the later half is what counts."""
    warm = points[len(points) // 2 :]
    print(
        f"{name:9} {what:8} {points[0][1]:12.0f} {warm[0][1]:10.0f} {warm[-1][1]:10.0f}"
        f" {slope(warm) * 60:+12.1f}"
        f"   {[round(y) for _, y in points[:: max(1, len(points) // 12)]]}"
    )


RUNS = {"kill": kill, "mixed": mix}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.node", description=__doc__)
    parser.add_argument("name", choices=sorted(RUNS))
    parser.add_argument("--seconds", type=float, default=60)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=f"corvo {told.name} ") as directory:
        RUNS[told.name](Path(directory), told.seconds)


if __name__ == "__main__":
    main()
