"""The simulator: fixed lives, every seed that ever failed, and the bugs that it must find."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.bugs import BY_NAME, Bug, mutated, source_of
from tests.sim.campaign import FOUND, line_of, run
from tests.sim.failures import Outcome
from tests.sim.options import FAULTS, draw

ROOT = Path(__file__).parents[1]

SEEDS = 300
PORTIONS = 30
BUDGET = 40
"""Seeds from the recorded one on, within which a planted bug must be found."""


def sim(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.sim", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


def failures(seeds: list[int]) -> list[str]:
    ended = [run(seed) for seed in seeds]
    return [
        f"{line_of(one.seed)}  # {one.outcome.name} {one.detail}"
        for one in ended
        if one.outcome is not Outcome.OK
    ]


def found_seeds() -> list[int]:
    lines = FOUND.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0], 0) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_a_fixed_set_of_lives_breaks_no_rule(portion: int) -> None:
    seeds = list(range(1 + portion, 1 + SEEDS, PORTIONS))

    assert failures(seeds) == []


def test_every_seed_that_ever_failed_is_well() -> None:
    assert failures(found_seeds()) == []


@pytest.mark.parametrize("seed", [3, 14, 15])
def test_a_seed_gives_the_same_life_again(seed: int) -> None:
    first, second = run(seed), run(seed)

    assert first == second


def test_a_seed_gives_the_same_life_whatever_the_hash_seed() -> None:
    outputs = {sim("0x2a", hash_seed=hash_seed).stdout for hash_seed in ("1", "2")}

    assert len(outputs) == 1
    assert "trace=" in outputs.pop()


def test_leaving_a_fault_out_changes_nothing_else() -> None:
    with_all = draw(9)

    fewer = draw(9, without=(with_all.faults[0],))

    assert fewer.faults == with_all.faults[1:]
    assert fewer.limits == with_all.limits


def test_every_fault_is_on_in_some_life_and_off_in_another() -> None:
    lives = [draw(seed) for seed in range(1, 1 + SEEDS)]

    assert [fault for fault in FAULTS if all(life.has(fault) for life in lives)] == []
    assert [fault for fault in FAULTS if not any(life.has(fault) for life in lives)] == []


# Planted bugs.


@pytest.mark.parametrize("bug", BY_NAME.values(), ids=lambda bug: bug.name)
def test_a_planted_bug_changes_the_product_in_one_place(bug: Bug) -> None:
    source = source_of(bug)

    assert mutated(bug, source) != source


@pytest.mark.parametrize("bug", BY_NAME.values(), ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_a_seed_that_is_well_without_it(bug: Bug) -> None:
    hunt = sim("--bug", bug.name, "--hunt", f"{BUDGET}", "--from", f"{bug.seed}")

    assert hunt.returncode in {Outcome.CORRECTNESS, Outcome.LIVENESS, Outcome.CRASH}, hunt.stderr
    assert failures([int(hunt.stdout.split()[0])]) == []


# The command line.


def test_the_exit_code_of_a_life_without_a_fault_is_0() -> None:
    replayed = sim("0x2a")

    assert replayed.returncode == Outcome.OK
    assert replayed.stdout.endswith("ok\n")


@pytest.mark.parametrize(
    ("bug", "outcome"),
    [
        ("vote-for-everybody", Outcome.CORRECTNESS),
        ("joint-state-never-left", Outcome.LIVENESS),
        ("append-commits-before-it-agrees", Outcome.CRASH),
    ],
)
def test_the_exit_code_tells_what_went_wrong(bug: str, outcome: Outcome) -> None:
    replayed = sim(f"{BY_NAME[bug].seed}", "--bug", bug)

    assert replayed.returncode == outcome
    assert outcome.name in replayed.stdout


def test_a_counted_campaign_ends_with_a_summary() -> None:
    counted = sim("--seeds", "4", "--from", "1")

    assert counted.returncode == Outcome.OK
    assert re.match(r"4 seeds in \d+ s", counted.stdout)
    assert re.search(r"[1-9]\d*  reads checked", counted.stdout)
