"""Times that were measured, and their quantiles."""

import statistics
from time import monotonic
from typing import Final

import msgspec
import trio

_LOOK_S: Final = 0.02


class Times(msgspec.Struct):
    """When each thing began, by the monotonic clock of the machine, and how many seconds it took.

    The clock is the same in all processes.
    """

    taken: list[tuple[float, float]] = []

    def add(self, began: float) -> None:
        """Note that something ends now."""
        self.taken.append((began, monotonic() - began))

    def between(self, begin: float, end: float) -> "Times":
        """Those that began in this time."""
        return Times([each for each in self.taken if begin <= each[0] < end])

    async def until_one(self, begin: float) -> None:
        """Wait until something has ended that began since then."""
        while not any(began >= begin for began, _ in reversed(self.taken)):  # noqa: ASYNC110 -- a list has no event
            await trio.sleep(_LOOK_S)

    def quantile(self, percent: int) -> float:
        """The seconds that so many of a hundred did not exceed."""
        seconds = [each for _, each in self.taken]
        return statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1]

    def __str__(self) -> str:
        return in_ms([seconds for _, seconds in self.taken])


def in_ms(seconds: list[float]) -> str:
    """Quantiles in milliseconds."""
    if len(seconds) < 2:
        return f"{len(seconds)} times"
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    p50, p95, p99, most = (1e3 * each for each in (cuts[49], cuts[94], cuts[98], max(seconds)))
    return f"p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f}, max {most:.1f} ms of {len(seconds)}"
