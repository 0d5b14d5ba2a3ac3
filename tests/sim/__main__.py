"""Simulate Raft groups.

    python -m tests.sim SEED                replay one run (decimal or 0x...)
    python -m tests.sim SEED --shrink       find out which faults a failure needs
    python -m tests.sim --minutes 10        fresh seeds, on every core
    python -m tests.sim --seeds N --from S  a counted number of them
    python -m tests.sim --bug NAME ...      the same with a planted bug
    python -m tests.sim --bugs [NAME ...]   how many seeds each planted bug takes

Exit codes: 0 well, 1 a rule was broken, 2 no progress, 3 the code under test raised something,
4 the same seed gave two different runs.
"""

import sys

from tests.sim.bugs import BY_NAME
from tests.sim.command import main

if __name__ == "__main__":
    sys.exit(main(__doc__, "tests.sim", BY_NAME, "tests.sim.kind"))
