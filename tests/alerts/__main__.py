"""`python -m tests.alerts [SCENARIO ...]`: make causes of alerts real, and watch the alerts.

Needs Debian's package `prometheus`; the disk needs root, and the slow disk a C compiler.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import trio

from tests.alerts.firing import SCENARIOS, run


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.alerts", description=__doc__)
    parser.add_argument("scenario", nargs="*", choices=[[], *SCENARIOS], help="default: all")
    read = parser.parse_args()
    for name in read.scenario or SCENARIOS:
        print(f"{name}: {SCENARIOS[name].run.__doc__}", flush=True)
        with tempfile.TemporaryDirectory(prefix="alerts-") as directory:
            for each in trio.run(run, name, Path(directory)):
                labels = " ".join(f"{key}={value}" for key, value in each.labels.items())
                end = ", and ended" if each.has_ended else ""
                print(f"  {each.name} after {each.after_s} s{end}: {each.summary} ({labels})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
