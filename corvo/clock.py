"""The clocks: the only module that reads the time. Deciding code gets it as an argument."""

import time
from typing import Final

_APART_NS: Final = 1_000_000
_TRIES: Final = 10


def now_ns() -> int:
    """Nanoseconds since 1970, as this machine believes."""
    return time.time_ns()


def steady_ns() -> int:
    """Nanoseconds since some moment: for how long something took, whatever happens to the clock."""
    return time.monotonic_ns()


def elapsed_ns() -> int:
    """Nanoseconds since the boot of this machine, with the time that it was suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def elapsed_and_now_ns() -> tuple[int, int]:
    """`elapsed_ns` and `now_ns` of one moment."""
    gettime, boot = time.clock_gettime_ns, time.CLOCK_BOOTTIME
    for _ in range(_TRIES):
        elapsed, now = gettime(boot), time.time_ns()
        if gettime(boot) - elapsed <= _APART_NS:
            return elapsed, now
        # This process had to wait between the two.
    return gettime(boot), time.time_ns()
