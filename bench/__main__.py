"""`python -m bench [name ...]`: measure, and print a table. `name:part` is a part of a bench.

The last column compares: with the calibration loop of the same run, so that numbers of two
machines, or of one machine on two days, can be laid side by side; or with what the row says.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from bench import (
    backlog,
    bulk,
    calibration,
    cluster,
    door,
    effects,
    fresh,
    listeners,
    log,
    mirror,
    node,
    raft_commit,
    schedules,
    search,
    shard_process,
    state_machine,
    top,
)
from bench.measure import Measurement


def main(arguments: list[str]) -> int:
    """Run the benches that are named, or all that are not long."""
    parts = {name: _part_of(name) for name in arguments if name.startswith("door:")}
    there_are = BENCHES | LONG | parts
    unknown = [name for name in arguments if name not in there_are]
    if unknown:
        print(f"unknown: {' '.join(unknown)}; there are: {' '.join(there_are)}", file=sys.stderr)
        return 2
    print(f"{'name':56} {'value':>14} {'unit':10} {'ratio':>9}")
    for name in arguments or BENCHES:
        for measured in there_are[name]():
            print(row(measured), flush=True)
    return 0


def row(measured: Measurement) -> str:
    """One line of the table."""
    ratio = "" if measured.ratio is None else f"{measured.ratio:.3f}"
    return f"{measured.name:56} {measured.value:14,.1f} {measured.unit:10} {ratio:>9}"


Bench: TypeAlias = Callable[[], Iterator[Measurement]]


def here(measure: Callable[[Path], Iterator[Measurement]]) -> Bench:
    """On the disk of this directory: the one for temporary files may be memory."""

    def measurements() -> Iterator[Measurement]:
        with TemporaryDirectory(prefix="bench-", dir=Path.cwd()) as directory:
            (Path(directory) / ".gitignore").write_text("*\n")  # not even by whoever adds all
            yield from measure(Path(directory))

    return measurements


def _part_of(name: str) -> Bench:
    return here(lambda directory: door.measure(directory, name.partition(":")[2]))


BENCHES: Final[dict[str, Bench]] = {
    "calibration": calibration.measurements,
    "raft_commit": raft_commit.measurements,
    "log": here(log.measure),
    "state_machine": here(state_machine.measure),
    "shard_process": here(shard_process.measure),
    "backlog": here(backlog.measure),
    "node": here(node.measure),
}

LONG: Final[dict[str, Bench]] = {
    "bulk": here(bulk.measure),
    "cluster": here(cluster.measure),
    "door": here(door.measure),
    "effects": here(effects.measure),
    "fresh": here(fresh.measure),
    "listeners": here(listeners.measure),
    "mirror": here(mirror.measure),
    "schedules": here(schedules.measure),
    "search": here(search.measure),
    "top": here(top.measure),
    "backlog_large": here(lambda directory: backlog.measure(directory, backlog.LARGE)),
}
"""Only when they are named: each takes minutes."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
