"""Simulate whole clusters.

    python -m tests.sim.clusters SEED                replay one run (decimal or 0x...)
    python -m tests.sim.clusters SEED --shrink       find out which faults a failure needs
    python -m tests.sim.clusters --minutes 10        fresh seeds, on every core
    python -m tests.sim.clusters --seeds N --from S  a counted number of them
    python -m tests.sim.clusters --bug NAME ...      the same with a planted bug
    python -m tests.sim.clusters --bugs [NAME ...]   how many seeds each planted bug takes

Exit codes are those of `python -m tests.sim`.
"""

import sys

from tests.sim.clusters.planted import BY_NAME
from tests.sim.command import main

if __name__ == "__main__":
    sys.exit(main(__doc__, "tests.sim.clusters", BY_NAME, "tests.sim.clusters.kind"))
