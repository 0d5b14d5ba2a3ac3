"""`python -m bench [name ...]`: measure, and print a table.

The last column compares: with the calibration loop of the same run, so that numbers of two
machines, or of one machine on two days, can be laid side by side; or with what the row says.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench import calibration, log, raft_commit
from bench.measure import Measurement


def main(arguments: list[str]) -> int:
    """Run the benches that are named, or all of them."""
    unknown = [name for name in arguments if name not in BENCHES]
    if unknown:
        print(f"unknown: {' '.join(unknown)}; there are: {' '.join(BENCHES)}", file=sys.stderr)
        return 2
    print(f"{'name':48} {'value':>14} {'unit':10} {'ratio':>9}")
    for name in arguments or BENCHES:
        for measured in BENCHES[name]():
            print(row(measured), flush=True)
    return 0


def row(measured: Measurement) -> str:
    """One line of the table."""
    ratio = "" if measured.ratio is None else f"{measured.ratio:.3f}"
    return f"{measured.name:48} {measured.value:14,.1f} {measured.unit:10} {ratio:>9}"


def log_here() -> Iterator[Measurement]:
    """On the disk of this directory: the one for temporary files may be memory."""
    with TemporaryDirectory(prefix="bench-", dir=Path.cwd()) as directory:
        yield from log.measure(Path(directory))


BENCHES: Final[dict[str, Callable[[], Iterator[Measurement]]]] = {
    "calibration": calibration.measurements,
    "raft_commit": raft_commit.measurements,
    "log": log_here,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
