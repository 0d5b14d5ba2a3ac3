"""The long forms: `python -m tests.mirror kill --rounds 200` hurts a mirror and its shards.

`python -m tests.mirror fuzz --minutes 10` asks a node whatever can be asked.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import trio

from tests.mirror import fuzzing, killing


def kill(rounds: int, seed: int) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="c") as directory:
        seen = trio.run(lambda: killing.run(Path(directory), rounds=rounds, seed=seed))
    print(f"seed {seed}: {rounds} rounds in {time.monotonic() - began:.0f} s")
    print(f"deeds: {dict(seen.deeds)}")
    print(f"{seen.errands} errands done; refused: {dict(seen.refused)}")
    print(f"{seen.resets} resets; the file was made anew after damage {seen.made_anew} times")
    print(f"all rows compared {seen.compared} times, {seen.rows} in all: no difference")


def fuzz(minutes: float, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="c") as directory:
        seen = fuzzing.fuzz(Path(directory), examples=200, number=seed, minutes=minutes)
    print(f"{dict(sorted(seen.statuses.items()))}")
    print(f"{seen.compared} answers compared, {seen.found} jobs found: no difference, no 5xx")


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.mirror", description=__doc__)
    parser.add_argument("what", choices=["kill", "fuzz"])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    read = parser.parse_args()
    if read.what == "fuzz":
        fuzz(read.minutes, read.seed)
    else:
        kill(read.rounds, read.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
