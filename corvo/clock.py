"""The clock: the only module that reads the time of day. Deciding code gets it as an argument."""

import time


def now_ns() -> int:
    """Nanoseconds since 1970, as this machine believes."""
    return time.time_ns()


def steady_ns() -> int:
    """Nanoseconds since some moment: for how long something took, whatever happens to the clock."""
    return time.monotonic_ns()
