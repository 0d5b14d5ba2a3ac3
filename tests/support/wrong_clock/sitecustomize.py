"""A wrong wall clock for whole nodes: Python imports this first, in every process of the node.

The file that `WRONG_CLOCK` names has the seconds by which the clock is ahead. It is read at each
look at the clock, so that a test can set the clock while the node runs.
"""

import os
import time
from pathlib import Path

_real = time.time_ns
_file = Path(os.environ["WRONG_CLOCK"])


def _wrong() -> int:
    return _real() + round(float(_file.read_text()) * 1e9)


time.time_ns = _wrong
