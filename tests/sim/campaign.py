"""Running seeds: one to look at, many to be sure."""

import multiprocessing
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from corvo.errors import CorvoError
from corvo.raft import RaftError
from tests.sim.failures import Outcome, Violation
from tests.sim.options import Options, draw
from tests.sim.timeline import Report
from tests.sim.world import World
from tests.support.files import Crashed

CRASHES: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    CorvoError,
    Crashed,
    LookupError,
    NameError,
    RaftError,
    RuntimeError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
"""What the code under test may raise when it is wrong."""

FOUND: Final = Path(__file__).with_name("found.txt")
_CHUNK: Final = 20
_HANGS_AFTER_S: Final = 900


def _draw(seed: int, without: tuple[str, ...]) -> Options:
    return draw(seed, without=without)


def _live(seed: int, without: tuple[str, ...]) -> Report:
    return World(draw(seed, without=without)).run()


class Kind(NamedTuple):
    """A kind of run."""

    command: str
    """The module that replays one."""
    draw: Callable[[int, tuple[str, ...]], Options]
    live: Callable[[int, tuple[str, ...]], Report]
    found: Path
    """Where seeds that failed are kept for ever."""


RAFT: Final = Kind("tests.sim", _draw, _live, FOUND)


class Ended(msgspec.Struct, frozen=True):
    """How a run ended."""

    seed: int
    outcome: Outcome
    what: str
    """The rule that was broken, or the type of what was raised."""
    detail: str
    report: Report | None = None
    traceback: str = ""


def run(seed: int, without: tuple[str, ...] = (), kind: Kind = RAFT) -> Ended:
    """One run. Nothing that goes wrong in it escapes."""
    try:
        report = kind.live(seed, without)
    except Violation as violation:
        return Ended(seed, violation.outcome, violation.rule, str(violation))
    except CRASHES as error:
        trace = traceback.format_exc()
        return Ended(seed, Outcome.CRASH, type(error).__name__, str(error), traceback=trace)
    return Ended(seed, Outcome.OK, "", "", report)


def run_twice(seed: int, without: tuple[str, ...] = (), kind: Kind = RAFT) -> Ended:
    """One run, and once more: both must be the same."""
    first, second = run(seed, without, kind), run(seed, without, kind)
    if first != second:
        return Ended(seed, Outcome.NONDETERMINISM, "trace", f"{first}\n{second}")
    return first


def replay(seed: int, without: tuple[str, ...], *, twice: bool, kind: Kind = RAFT) -> Outcome:
    """Run one seed and say everything about it."""
    print(kind.draw(seed, without))
    ended = run_twice(seed, without, kind) if twice else run(seed, without, kind)
    if ended.report is not None:
        print(f"{ended.report}\nok")
        return ended.outcome
    print(f"{ended.outcome.name} {ended.what}: {ended.detail}\n{ended.traceback}")
    return ended.outcome


def shrink(seed: int, without: tuple[str, ...], kind: Kind = RAFT) -> Outcome:
    """Leave out every fault that a failure does not need, and print the line that is left."""
    ended = run(seed, without, kind)
    if ended.outcome is Outcome.OK:
        print("ok: there is nothing to shrink")
        return ended.outcome
    for fault in kind.draw(seed, without).faults:
        fewer = run(seed, (*without, fault), kind)
        if (fewer.outcome, fewer.what) == (ended.outcome, ended.what):
            without, ended = (*without, fault), fewer
    print(f"{ended.outcome.name}: {ended.detail}")
    print(line_of(seed, without, kind), f"# {', '.join(kind.draw(seed, without).faults)}")
    return ended.outcome


def line_of(seed: int, without: Iterable[str] = (), kind: Kind = RAFT) -> str:
    """What to paste to see it again."""
    faults = (f"--without {name}" for name in without)
    return " ".join([f"python -m {kind.command} {seed:#x}", *faults])


# Many.


def chunk(seeds: range, kind: Kind = RAFT) -> tuple[list[Ended], Counter[str]]:
    """Some runs: those that failed, and what all of them were together."""
    failed: list[Ended] = []
    totals: Counter[str] = Counter()
    for seed in seeds:
        ended = run_twice(seed, kind=kind) if seed % 100 == 0 else run(seed, kind=kind)
        if ended.report is None:
            failed.append(ended)
            totals["seeds failed"] += 1
            continue
        totals.update(ended.report.counts)
        totals["events"] += ended.report.events
        totals["simulated seconds"] += ended.report.simulated_ns // 1_000_000_000
        totals["seeds"] += 1
    return failed, totals


def chunks(first: int, count: int | None) -> Iterator[range]:
    """Seeds from `first` on, in portions."""
    done = 0
    while count is None or done < count:
        size = _CHUNK if count is None else min(_CHUNK, count - done)
        yield range(first + done, first + done + size)
        done += size


def campaign(*, first: int, count: int | None, minutes: float | None, kind: Kind = RAFT) -> Outcome:
    """Run seeds on every core; returns the first failure's outcome."""
    begin = time.monotonic()
    totals: Counter[str] = Counter()
    worst = Outcome.OK
    cores = multiprocessing.cpu_count()
    portions = chunks(first, count)
    # Forked, so that a planted bug is in the children as well.
    with multiprocessing.get_context("fork").Pool(cores) as pool:
        while minutes is None or time.monotonic() - begin < minutes * 60:
            # Not all at once: the pool would take every portion there ever is.
            some = list(islice(portions, 4 * cores))
            if not some:
                break
            for failed, part in pool.imap_unordered(partial(chunk, kind=kind), some):
                totals.update(part)
                for ended in failed:
                    worst = worst or ended.outcome
                    note(ended, kind)
    summary(totals, time.monotonic() - begin)
    return worst


def note(ended: Ended, kind: Kind = RAFT) -> None:
    """Tell of a failure in one line to paste, and keep the seed for ever."""
    print(f"{line_of(ended.seed, kind=kind)}  # {ended.outcome.name} {ended.what}", flush=True)
    with kind.found.open("a", encoding="utf-8") as file:
        file.write(f"{ended.seed:#x}  # {ended.outcome.name} {ended.what}\n")


def summary(totals: Counter[str], seconds: float) -> None:
    """What was done."""
    rate = totals["seeds"] / seconds
    print(f"{totals['seeds']} seeds in {seconds:.0f} s: {rate:.1f} a second")
    for name, count in sorted(totals.items()):
        print(f"  {count:>12,}  {name}")


# Planted bugs.


def report_hunt(first: int, budget: int, kind: Kind = RAFT) -> Outcome:
    """The first seed that fails, with whatever bug this process was started with, and as what."""
    for seed in range(first, first + budget):
        ended = run(seed, kind=kind)
        if ended.outcome is not Outcome.OK:
            print(seed, ended.what)
            return ended.outcome
    return Outcome.OK


def table(budget: int, ranges: int, names: list[str], kind: Kind = RAFT) -> Outcome:
    """How many seeds each planted bug takes, from several beginnings."""
    print(f"{'bug':<44} {'first seed':>10} {'median':>7} {'worst':>6}  found as", flush=True)
    missing = 0
    with ThreadPoolExecutor(max_workers=multiprocessing.cpu_count()) as pool:
        for name, found in zip(
            names, pool.map(lambda n: tried(n, budget, ranges, kind), names), strict=True
        ):
            needed = [number for number, _ in found]
            missing += max(needed) > budget
            first = f"{needed[0]}" if needed[0] <= budget else "-"
            kinds = ", ".join(sorted({how for _, how in found if how}))
            print(
                f"{name:<44} {first:>10} {median(needed):>7.0f} {max(needed):>6}  {kinds}",
                flush=True,
            )
    print(f"{len(names) - missing} of {len(names)} found within {budget} seeds each time")
    return Outcome.CORRECTNESS if missing else Outcome.OK


def tried(name: str, budget: int, ranges: int, kind: Kind) -> list[tuple[int, str]]:
    """For each range: the seeds needed, and as what the bug showed itself."""
    firsts = [1 + number * 100_000 for number in range(ranges)]
    return [search(name, first=first, budget=budget, kind=kind) for first in firsts]


def search(name: str, *, first: int, budget: int, kind: Kind) -> tuple[int, str]:
    """Hunt in a process of its own."""
    command = [sys.executable, "-m", kind.command, "--bug", name, "--hunt", str(budget)]
    try:
        done = subprocess.run(
            [*command, "--from", str(first)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_HANGS_AFTER_S,
        )
    except subprocess.TimeoutExpired:
        return budget + 1, "hangs"
    words = done.stdout.split()
    if len(words) < 2:
        return budget + 1, done.stderr[-300:]
    return int(words[0]) - first + 1, words[1]
