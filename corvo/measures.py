"""Histograms and process statistics, in the shape that metrics need."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec


class Histogram(msgspec.Struct):
    """Counts by upper bound. A measure that is equal to a bound belongs below it."""

    bounds: tuple[float, ...]
    """Rising; behind the last one there is a bucket for all that is greater."""
    counts: list[int]  # of each bucket by itself, the one behind the last bound included
    total: float = 0.0  # all measures together

    def observe(self, measure: float) -> None:
        """Count one in."""
        self.counts[bisect_left(self.bounds, measure)] += 1
        self.total += measure

    def observe_all(self, measures: Sequence[int], bounds: Sequence[float], unit: float) -> None:
        """Count in several, in a unit of which the bounds are given again.

        Where two clocks were compared, a measure can be less than 0; the sum never falls.
        """
        counts = self.counts
        for measure in measures:
            counts[bisect_left(bounds, measure)] += 1
        self.total += max(0, sum(measures)) / unit

    @property
    def count(self) -> int:
        """How many were counted in."""
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """A bound that so large a share of all measures does not exceed; 0 when there are none.

        What lies behind the last bound is told as that bound.
        """
        assert 0 < share <= 1
        if not self.count:
            return 0.0
        wanted = share * self.count
        seen = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return bound
        return self.bounds[-1]


def empty(bounds: Sequence[float]) -> Histogram:
    """A histogram that has seen nothing."""
    assert list(bounds) == sorted({*bounds}), "bounds rise"
    return Histogram(tuple(bounds), [0] * (len(bounds) + 1))


REQUEST_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds that a request took."""
DISK_S: Final = tuple(0.0001 * 2**n for n in range(14))
"""Seconds of a sync, or of an agreement: 0.1 ms to 0.8 s."""
LAG_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds that a task came too late, or that a collection of garbage took."""
LATE_S: Final = (*LAG_S, 60.0, 600.0, 3_600.0)
"""Seconds that something came after its time: up to hours, if no server was running."""
JOB_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0),
)
"""Seconds that a job waited or ran: milliseconds to hours."""
JOB_NS: Final = tuple(round(bound * 1e9) for bound in JOB_S)
POWERS: Final = tuple(float(2**n) for n in range(10))
"""Numbers of things: 1 to 512."""


class LoopTimes:
    """How an event loop does: see `corvo.watchdog`, which keeps it."""

    def __init__(self) -> None:
        self.lag: Final = empty(LAG_S)  # seconds by which the loop came too late
        self.collections: Final = empty(LAG_S)  # seconds that collections of garbage took
        self.stalls = 0  # how often the loop was stuck for more than a quarter of a second


class ProcessStats(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of one process at one moment: see `corvo.process_stats`."""

    cpu_user_s: float = 0.0
    cpu_system_s: float = 0.0
    resident_bytes: int = 0
    threads: int = 0
    descriptors: int = 0
    descriptors_max: int = 0
    started_s: float = 0.0  # time of its start, in seconds since 1970
