"""A machine's wall clock: what it shows may be wrong, drift, and jump in both directions."""

from typing import Final

BEGIN_NS: Final = 1_700_000_000_000_000_000
"""What a right clock shows when a run begins."""
_MILLION: Final = 1_000_000


class Clock:
    """One machine's. It outlives processes."""

    def __init__(self) -> None:
        self._base_ns = BEGIN_NS
        self._since_ns = 0
        self._drift_ppm = 0

    def shows(self, now_ns: int) -> int:
        """What it shows at a moment of the run."""
        passed_ns = now_ns - self._since_ns
        return self._base_ns + passed_ns + passed_ns * self._drift_ppm // _MILLION

    def jump(self, now_ns: int, by_ns: int) -> None:
        """Somebody sets it."""
        self._base_ns = max(1, self.shows(now_ns) + by_ns)
        self._since_ns = now_ns

    def drift(self, now_ns: int, ppm: int) -> None:
        """From now on it gains or loses so many microseconds in a second."""
        self.jump(now_ns, 0)
        self._drift_ppm = ppm

    def delay_ns(self, now_ns: int, until_ns: int) -> int:
        """How long it takes until it shows a moment; 0 if it does, or shows a later one."""
        missing_ns = max(0, until_ns - self.shows(now_ns))
        return -(-missing_ns * _MILLION // (_MILLION + self._drift_ppm))
