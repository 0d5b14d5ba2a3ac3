"""One number, and how to get one that means something on a machine that is never quiet.

No test looks at a number: a machine that is busy with something else is not a bug.
"""

import gc
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time


@dataclass(frozen=True)
class Measurement:
    """What was measured, in which unit, and how it compares with the calibration of this run."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    """To the calibration, or to what `name` says; None where there is nothing to compare."""


def seconds(work: Callable[[], object]) -> float:
    """How long a processor was busy with `work`, without the garbage collector.

    Not for what waits for a disk. For what only computes, it is what a clock on the wall would
    show, had nobody else wanted the processor meanwhile.
    """
    with _no_collection():
        start = process_time()
        work()
        return process_time() - start


def median_seconds(work: Callable[[], object], *, rounds: int) -> float:
    """The median of several rounds: what a disturbance cannot move."""
    return statistics.median(seconds(work) for _ in range(rounds))


def compared(
    one: Callable[[], object], other: Callable[[], object], *, rounds: int
) -> tuple[float, float]:
    """Median seconds of `other`, and the median of what it takes for each second of `one`.

    Whatever disturbs a round disturbs both halves of it, and they take turns in being first.
    """
    taken, ratios = [], []
    for number in range(rounds):
        if number % 2:
            after, before = seconds(other), seconds(one)
        else:
            before, after = seconds(one), seconds(other)
        taken.append(after)
        ratios.append(after / before)
    return statistics.median(taken), statistics.median(ratios)


@contextmanager
def _no_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
