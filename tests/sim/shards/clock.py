"""A machine's two clocks: elapsed time, which nobody can set, and the wall clock.

One oscillator drives both, and may be fast or slow. The wall clock may be set to anything.
"""

from typing import Final

BEGIN_NS: Final = 1_700_000_000_000_000_000
"""What a right wall clock shows when a run begins."""
DRIFT_PPM_MAX: Final = 50_000
_MILLION: Final = 1_000_000
_BOOT_NS: Final = 20_000_000_000
"""How long a machine has been running when its processes start."""


class Clock:
    """One machine's. It outlives processes."""

    def __init__(self) -> None:
        self.boots = 0
        self.sets = 0
        """How often the wall clock was set."""
        self._elapsed_ns = _BOOT_NS
        self._offset_ns = BEGIN_NS - _BOOT_NS
        self._since_ns = 0
        self._drift_ppm = 0
        self._is_frozen = False

    def elapsed_ns(self, now_ns: int) -> int:
        """The time since the boot, at a moment of the run."""
        if self._is_frozen:
            return self._elapsed_ns
        passed_ns = now_ns - self._since_ns
        return self._elapsed_ns + passed_ns + passed_ns * self._drift_ppm // _MILLION

    def wall_ns(self, now_ns: int) -> int:
        """What the wall clock shows at a moment of the run."""
        return max(1, self.elapsed_ns(now_ns) + self._offset_ns)

    def set(self, now_ns: int, by_ns: int) -> None:
        """Somebody sets the wall clock."""
        self.sets += 1
        self._offset_ns = self.wall_ns(now_ns) + by_ns - self.elapsed_ns(now_ns)

    def drift(self, now_ns: int, ppm: int) -> None:
        """From now on the oscillator gains or loses so many microseconds in a second."""
        self._settle(now_ns)
        self._drift_ppm = ppm

    def reboot(self, now_ns: int) -> None:
        """The machine starts again; its wall clock is kept by a battery."""
        wall_ns = self.wall_ns(now_ns)
        self._settle(now_ns)
        self.boots += 1
        self._elapsed_ns = _BOOT_NS
        self._offset_ns = wall_ns - _BOOT_NS
        self._is_frozen = False

    def freeze(self, now_ns: int) -> None:
        """The machine is a virtual one and stands still without knowing."""
        self._settle(now_ns)
        self._is_frozen = True

    def thaw(self, now_ns: int) -> None:
        """It goes on."""
        self._settle(now_ns)
        self._is_frozen = False

    def _settle(self, now_ns: int) -> None:
        self._elapsed_ns = self.elapsed_ns(now_ns)
        self._since_ns = now_ns

    def delay_ns(self, now_ns: int, until_ns: int) -> int:
        """How long it takes until so much time has elapsed since the boot; 0 if it has."""
        missing_ns = max(0, until_ns - self.elapsed_ns(now_ns))
        return -(-missing_ns * _MILLION // (_MILLION + self._drift_ppm))
