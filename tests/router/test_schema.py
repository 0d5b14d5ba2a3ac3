"""The HTTP API keeps to its own document, as a stranger finds who has read nothing else."""

from pathlib import Path
from typing import Final

import trio

from tests.router.judging import Report, judge

OPTIONS: Final = ("--generation-deterministic", "--max-examples", "5")
CASES_MIN: Final = 2_500
"""Fewer would mean that something was passed over."""


def test_what_a_node_answers_is_what_its_document_says(tmp_path: Path) -> None:
    async def main() -> Report:
        with trio.fail_after(900):
            return await judge(tmp_path, *OPTIONS, is_open=False)

    report = trio.run(main)

    assert report.exit_code == 0, report.text
    assert report.complete
    assert {name: phase.status for name, phase in report.phases.items()} == dict.fromkeys(
        ("examples", "coverage", "fuzzing", "stateful"), "success"
    )
    operations = report.operations
    assert operations.tested == operations.selected
    assert operations.total == operations.selected + 1, "only what has no end is left out"
    assert report.test_cases.generated >= CASES_MIN
