"""Live a year of schedules.

python -m tests.sim.years                        10,000 schedules, a year: about five minutes
python -m tests.sim.years --seed 7 --schedules 200 --days 30
python -m tests.sim.years --bug NAME             the same with a planted bug
"""

import argparse
import importlib
import sys
import time

from tests.sim.bugs import plant
from tests.sim.shards.planted import BY_NAME


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser("python -m tests.sim.years", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--bug", choices=[*BY_NAME])
    given = parser.parse_args()
    if given.bug is not None:
        plant(BY_NAME[given.bug])
    # Imported only now: a planted bug must be there before the product is.
    year = importlib.import_module("tests.sim.years.year")
    failures = importlib.import_module("tests.sim.failures")
    begin = time.monotonic()
    life = year.Year(given.seed, schedules=given.schedules, days=given.days)
    try:
        life.run()
    except failures.Violation as violation:
        print(violation)
        return int(violation.outcome)
    for name, count in sorted(life.counts.items()):
        print(f"{count:>12,}  {name}")
    print(f"{time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
