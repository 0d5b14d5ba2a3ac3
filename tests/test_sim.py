"""The simulator: fixed lives, every seed that ever failed, and the bugs that it must find."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.sim.bugs import BY_NAME, Bug, mutated, source_of
from tests.sim.campaign import run
from tests.sim.failures import Outcome
from tests.sim.options import FAULTS, draw
from tests.sim.planted import RARE
from tests.sim.world import World
from tests.support.simulators import Simulator

ROOT = Path(__file__).parents[1]

SEEDS = 300
PORTIONS = 30
BUDGET = 40
"""Seeds from the recorded one on, within which a planted bug must be found."""


SIMULATOR = Simulator()
sim, failures, found_seeds = SIMULATOR.command, SIMULATOR.failures, SIMULATOR.found_seeds


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


def test_a_life_goes_on_although_its_clients_only_read() -> None:
    readers = msgspec.structs.replace(draw(3), reads=1.0)

    report = World(readers).run()

    assert report.counts["writes acknowledged"] > 0


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


@pytest.mark.parametrize(
    "bug", [bug for bug in BY_NAME.values() if bug.name not in RARE], ids=lambda bug: bug.name
)
def test_a_planted_bug_is_found_by_a_seed_that_is_well_without_it(bug: Bug) -> None:
    assert SIMULATOR.has_found(bug, budget=BUDGET)


@pytest.mark.parametrize(("name", "test"), RARE.items())
def test_a_planted_bug_that_lives_seldom_show_is_found_by_another_test(
    name: str, test: str
) -> None:
    program = (
        "import sys, pytest; from tests.sim.bugs import BY_NAME, plant;"
        f" plant(BY_NAME[{name!r}]);"
        f" sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests/raft/{test}']))"
    )
    planted = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert planted.returncode == pytest.ExitCode.TESTS_FAILED, planted.stdout + planted.stderr
    assert "1 failed" in planted.stdout


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
