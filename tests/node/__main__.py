"""The long forms: `python -m tests.node NAME --seconds N` breaks a node and prints what it saw."""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from tests.node import (
    bulking,
    filling,
    flooding,
    killing,
    listening,
    memory,
    mixed,
    parking,
    stopping,
)
from tests.node.flood import KINDS
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


def bulk(directory: Path, seconds: float) -> None:
    rounds = max(1, round(seconds / 20))
    seen = trio.run(lambda: bulking.run(directory, jobs=20_000, kills=4, rounds=rounds))
    gaps = sorted(gap.seconds for gap in seen.gaps)
    print(
        f"{seen.jobs} jobs; the router was killed {seen.kills} times; until the bulk went on: "
        f"median {gaps[len(gaps) // 2]:.2f} s, worst {gaps[-1]:.2f} s"
    )
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


def park(directory: Path, seconds: float) -> None:
    seen = trio.run(lambda: parking.run(directory, workers=1_000, seconds=seconds))
    for name, cpu in seen.cpu_s.items():
        print(f"{name}: {cpu:.2f} s of CPU in {seen.seconds:.1f} s: {cpu / seen.seconds:.2%}")
    print(f"last indexes before and behind: {seen.indexes}")
    woken = sorted(seen.woken_s)
    print(
        f"{seen.given} of 1000 were given the job that was put in for them; from enqueue to worker:"
        f" median {woken[500] * 1e3:.1f} ms, p99 {woken[990] * 1e3:.1f} ms"
    )


def stop(directory: Path, seconds: float) -> None:
    until, took_s = time.monotonic() + seconds, list[float]()
    while not took_s or time.monotonic() < until:
        seen = trio.run(stopping.run, directory / str(len(took_s)))
        took_s.append(seen.took_s)
        print(
            f"exit code {seen.code} after {seen.took_s:.2f} s; fetches that waited: {seen.waits}; "
            f"streams: {seen.closes}; events: {seen.listened}; idle: {seen.idle}; "
            f"lost {len(seen.lost)} of {seen.promised}, "
            f"forgotten {len(seen.undone)}; {seen.texts}",
            flush=True,
        )
    print(f"from SIGTERM to the exit: {figures(took_s)}")


def full(directory: Path, seconds: float) -> None:
    rounds = max(3, round(seconds / 2))
    try:
        seen = trio.run(lambda: filling.run(directory, rounds=rounds))
    except filling.NoMount as error:
        print(f"not covered: {error}")
        return
    print(f"{rounds} times full; refusals: {Counter(seen.refusals)}; reads: {seen.reads}")
    print(f"back within {seen.back_s:.2f} s of room; ends: {len(seen.ends)}; {seen.oddities}")
    print("\n".join(seen.wrongs) or "nothing is wrong")


def flood(directory: Path, seconds: float) -> None:
    for kind in KINDS:
        for room in (100, 0):
            at = directory / f"{kind}-{room}"
            flooded = partial(flooding.run, at, kind, count=FLOOD, seconds=seconds, room=room)
            seen = trio.run(flooded)
            print(
                f"{FLOOD} {kind}, room for {room} more: let in {seen.came} times; the router took "
                f"{seen.router_cpu:.0%} of a core; kept: {figures(seen.kept_s)}; "
                f"new: {figures(seen.fresh_s)}; refused: {seen.refused or 'nobody'}"
            )


def listen(directory: Path, seconds: float) -> None:
    seen = trio.run(lambda: listening.run(directory, reconnects=RECONNECTS, seconds=seconds))
    print(
        f"{seen.events} events, {seen.kills} kills; cut off {seen.reconnects} times, "
        f"{seen.cuts_inside} times within an event; told: {seen.counts}"
    )
    print("\n".join(seen.wrongs) or "nothing is wrong")


def remember(directory: Path, seconds: float) -> None:
    every_s = min(60.0, seconds / 4)
    print("of each process: RSS/PSS/anonymous MiB; on the disk: MiB", flush=True)
    say_so = partial(print, flush=True)
    seen = trio.run(
        lambda: memory.run(
            directory,
            seconds=seconds,
            every_s=every_s,
            tell=lambda seen: say_so(memory.table(seen)),
        )
    )
    for name, (rss, own) in memory.slopes(seen).items():
        print(f"{name:9} in the later half: RSS {rss:+8.1f} KiB a minute, its own {own:+8.1f}")


RECONNECTS = 100
"""Of each client that listens, at least."""
FLOOD = 10_000


def figures(took_s: list[float]) -> str:
    """How long it took, in words."""
    if not took_s:
        return "never"
    ordered = [1e3 * each for each in sorted(took_s)]
    return (
        f"{len(ordered)} times, p50 {ordered[len(ordered) // 2]:.1f} ms, "
        f"p99 {ordered[len(ordered) * 99 // 100]:.1f} ms, worst {ordered[-1]:.1f} ms"
    )


RUNS = {
    "bulk": bulk,
    "flood": flood,
    "full": full,
    "kill": kill,
    "listen": listen,
    "memory": remember,
    "mixed": mix,
    "park": park,
    "stop": stop,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.node", description=__doc__)
    parser.add_argument("name", choices=sorted(RUNS))
    parser.add_argument("--seconds", type=float, default=60)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=f"corvo {told.name} ") as directory:
        RUNS[told.name](Path(directory), told.seconds)


if __name__ == "__main__":
    main()
