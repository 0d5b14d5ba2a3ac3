"""The counts of many runs are added up for the page about reliability."""

from pathlib import Path

import msgspec
import pytest

from chaos import counting
from chaos.counting import Summary
from chaos.faults import all_faults

WHAT = {"kill-node": "SIGKILL of a node", "loss": "lost packets"}


def run(code: int, verified: int, bug: str = "") -> Summary:
    return Summary(
        seed=1,
        version="1.0",
        nodes=3,
        shards=2,
        seconds=1_800,
        code=code,
        attempts={"ok": 1_000, "fail": 10, "info": 1},
        operations=4_000,
        faults={"kill-node": 5},
        verified={"kill-node": verified},
        events=3_000,
        bug=bug,
    )


def test_only_verified_faults_of_runs_that_count_are_added_up() -> None:
    counts = counting.table([run(0, 5), run(1, 4), run(2, 3)], WHAT)

    assert "| runs, and those that did not count | 2, 1 |" in counts
    assert "| hours | 1.0 |" in counts
    assert "| acknowledged operations | 8,000 |" in counts
    assert "| requests: acknowledged, rejected, unknown | 2,000, 20, 2 |" in counts
    assert "| runs in which a rule was broken | 1 |" in counts
    assert "| `kill-node` | SIGKILL of a node | 9 |" in counts
    assert "| `loss` | lost packets | 0 |" in counts


def test_runs_are_found_in_a_directory_of_runs(tmp_path: Path) -> None:
    for number in range(2):
        place = tmp_path / str(number)
        place.mkdir()
        (place / counting.SUMMARY).write_bytes(msgspec.json.encode(run(0, number)))

    assert [each.verified["kill-node"] for each in counting.read([tmp_path])] == [0, 1]


def test_runs_with_a_planted_bug_are_not_counted(tmp_path: Path) -> None:
    encoded = msgspec.json.encode(run(1, 5, bug="no-fencing"))
    (tmp_path / counting.SUMMARY).write_bytes(encoded)

    assert counting.read([tmp_path]) == []


def test_the_page_has_a_place_for_the_counts_of_all_faults() -> None:
    what = {name: fault.what for name, fault in all_faults().items()}
    page = counting.PAGE.read_text()

    written = counting.rewrite(page, counting.table([run(0, 5)], what))

    assert "| `kill-node` | SIGKILL of all processes of a node | 5 |" in written
    assert written.startswith(page[:100])
    with pytest.raises(ValueError, match="no place"):
        counting.rewrite("an empty page", "")
