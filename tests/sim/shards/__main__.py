"""Simulate whole shards.

    python -m tests.sim.shards SEED                replay one run (decimal or 0x...)
    python -m tests.sim.shards SEED --shrink       find out which faults a failure needs
    python -m tests.sim.shards --minutes 10        fresh seeds, on every core
    python -m tests.sim.shards --seeds N --from S  a counted number of them
    python -m tests.sim.shards --bug NAME ...      the same with a planted bug
    python -m tests.sim.shards --bugs [NAME ...]   how many seeds each planted bug takes

Exit codes are those of `python -m tests.sim`.
"""

import sys

from tests.sim.command import main
from tests.sim.shards.planted import BY_NAME

if __name__ == "__main__":
    sys.exit(main(__doc__, "tests.sim.shards", BY_NAME, "tests.sim.shards.kind"))
