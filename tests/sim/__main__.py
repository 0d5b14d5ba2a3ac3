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

import argparse
import importlib
import secrets
import sys

from tests.sim import bugs


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("seed", nargs="?", type=lambda text: int(text, 0))
    parser.add_argument("--without", action="append", default=[], metavar="FAULT")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--once", action="store_true", help="do not compare with a second run")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--from", dest="first", type=lambda text: int(text, 0))
    parser.add_argument("--bug", choices=list(bugs.BY_NAME))
    parser.add_argument("--bugs", nargs="*", choices=[*bugs.BY_NAME, []], metavar="NAME")
    parser.add_argument("--hunt", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=int, default=400)
    parser.add_argument("--ranges", type=int, default=3)
    given = parser.parse_args()
    if given.bug is not None:
        bugs.plant(given.bug)
    # Imported only now: a planted bug must be there before the product is.
    campaign = importlib.import_module("tests.sim.campaign")
    first = given.first if given.first is not None else secrets.randbits(40) * 1000
    if given.bugs is not None:
        names = given.bugs or list(bugs.BY_NAME)
        return int(campaign.table(given.budget, given.ranges, names))
    if given.hunt is not None:
        return int(campaign.report_hunt(first, given.hunt))
    if given.seed is not None:
        without = tuple(given.without)
        if given.shrink:
            return int(campaign.shrink(given.seed, without))
        return int(campaign.replay(given.seed, without, twice=not given.once))
    if given.minutes is None and given.seeds is None:
        parser.error("give a SEED, --minutes, --seeds or --bugs")
    return int(campaign.campaign(first=first, count=given.seeds, minutes=given.minutes))


if __name__ == "__main__":
    sys.exit(main())
