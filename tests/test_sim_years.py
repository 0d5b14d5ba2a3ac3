"""A month of schedules in some shards: each due time is fired once, and planted bugs are found."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.failures import Outcome
from tests.sim.years.calendar import due_times
from tests.sim.years.plans import S
from tests.sim.years.year import BEGIN_NS, Year

ROOT = Path(__file__).parents[1]
SMALL = ("--schedules", "60", "--days", "21")
BUGS = ("pause-is-made-up-for", "moving-schedule-goes-on")


@pytest.mark.parametrize("seed", [1, 2])
def test_each_due_time_is_fired_once(seed: int) -> None:
    life = Year(seed, schedules=60, days=21)

    due = life.run()

    assert 100 < life.counts["fired"] <= due
    assert all(life.counts[what] for what in ("client move", "leader changes", "restarts"))


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    command = [sys.executable, "-m", "tests.sim.years", *SMALL, "--bug", bug]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == Outcome.CORRECTNESS, done.stdout + done.stderr


def test_the_calendar_knows_changes_of_the_clocks() -> None:
    begin_s = BEGIN_NS // S
    hourly, nightly = ("0 * * * *", "Europe/Berlin"), ("30 2 * * *", "Europe/Berlin")
    found = due_times([hourly, nightly], begin_s, begin_s + 365 * 86_400)

    assert [len(found[each]) for each in (hourly, nightly)] == [365 * 24, 365]
    assert 1_774_746_000 in found[nightly]  # 29 March, 03:00 summer time: 02:30 does not exist
