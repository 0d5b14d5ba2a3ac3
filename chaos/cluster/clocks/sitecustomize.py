"""The wall clock of a node, which can be wrong: Python imports this first, in every process of it.

The file that `WRONG_CLOCK` names has the seconds by which the clock is ahead. It is read again ten
times a second, so that a clock can jump while the node runs.
"""

import os
import time
from pathlib import Path

_LOOK_NS = 100_000_000

_real = time.time_ns
_monotonic = time.monotonic_ns
_file = Path(os.environ["WRONG_CLOCK"])
_ahead_ns = 0
_next_look = 0


def _wrong() -> int:
    global _ahead_ns, _next_look  # noqa: PLW0603 -- a module is all that can stand in for the clock
    if (now := _monotonic()) >= _next_look:
        _next_look = now + _LOOK_NS
        _ahead_ns = round(float(_file.read_text()) * 1e9)
    return _real() + _ahead_ns


time.time_ns = _wrong
