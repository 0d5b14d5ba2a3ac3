"""`python -m tests.cluster failover --kills 50`, or `rolling`: real nodes, for longer than tests.

Exit code 1 when something was lost or doubled.
"""

import argparse
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from tests.cluster import failover, rolling


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kill = commands.add_parser("failover", help="kill leading nodes")
    kill.add_argument("--kills", type=int, default=50)
    kill.add_argument("--shards", type=int, default=4)
    roll = commands.add_parser("rolling", help="restart all nodes, one after the other")
    roll.add_argument("--rounds", type=int, default=3)
    roll.add_argument("--shards", type=int, default=4)
    read = parser.parse_args()
    return fail_over(read) if read.command == "failover" else restart(read)


def restart(read: argparse.Namespace) -> int:
    """Restart nodes, and say what came of it."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as directory:
        run = partial(rolling.run, Path(directory), rounds=read.rounds, shards=read.shards)
        seen = trio.run(run)
    print(f"{seen.jobs} jobs, {seen.repeated} requests repeated, {len(seen.failed)} failed twice")
    print("\n".join(sorted({*seen.failed})[:10]))
    print(f"{seen.missing} jobs are missing, {seen.doubled} are there twice")
    return bool(seen.missing or seen.doubled)


def fail_over(read: argparse.Namespace) -> int:
    """Kill nodes, and say what came of it."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as directory:
        seen = trio.run(
            partial(failover.run, Path(directory), kills=read.kills, shards=read.shards)
        )
    led = sorted(gap for kill in seen.kills for gap in kill.led_s)
    others = sorted(gap for kill in seen.kills for gap in kill.others_s)
    print(f"{len(seen.kills)} nodes killed, {seen.events} events")
    for name, gaps in (("shards that it led", led), ("other shards", others)):
        if len(gaps) > 1:
            cuts = statistics.quantiles(gaps, n=20)
            print(
                f"pause of {name}: p50 {cuts[9]:.3f} s, p95 {cuts[18]:.3f} s, most {gaps[-1]:.3f} s"
            )
    print(f"answers that were no success: {seen.oddities}")
    print("\n".join(seen.wrongs) or "nothing was lost or doubled")
    return bool(seen.wrongs)


if __name__ == "__main__":
    sys.exit(main())
