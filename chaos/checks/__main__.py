"""`python -m chaos.checks DIRECTORY`: check a history, and print the verdict."""

import sys
from pathlib import Path

import msgspec

from chaos import history
from chaos.checks import check
from chaos.checks.report import Report
from chaos.history import Op

SHOWN = 12
"""Ops whose records are printed."""


def records(directory: Path, report: Report) -> list[str]:
    """The records of the first ops that show a violation, as lines."""
    wanted: dict[int, None] = {}
    for stage in report.stages:
        for wrong in stage.violations:
            wanted.update(dict.fromkeys(wrong.ops))
    first = set(list(wanted)[:SHOWN])
    if not first:
        return []
    return [
        msgspec.json.encode(record).decode()
        for record in history.read(directory)
        if isinstance(record, Op) and record.n in first
    ]


def main(arguments: list[str]) -> int:
    """Print the report; 0 if nothing is wrong."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m chaos.checks DIRECTORY", file=sys.stderr)
        return 2
    directory = Path(arguments[0])
    if not history.files(directory):
        print(f"{directory} has no *.jsonl file", file=sys.stderr)
        return 2
    report = check(directory)
    print("\n".join(report.lines()))
    for line in records(directory, report):
        print(line)
    print(f"{'ok' if report.is_ok else 'WRONG'}; {report.peak_bytes / 1e6:,.0f} MB at the most")
    return 0 if report.is_ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
