"""The simulator of whole clusters: fixed lives, seeds that failed, and bugs that it must find."""

from pathlib import Path

import pytest

from tests.sim.bugs import Bug, mutated, source_of
from tests.sim.clusters.kind import KIND
from tests.sim.clusters.options import FAULTS, draw
from tests.sim.clusters.planted import BY_NAME
from tests.support.simulators import Simulator

ROOT = Path(__file__).parents[1]

SEEDS = 24
PORTIONS = 4
BUDGET = 3
"""Seeds from the recorded one on, within which a planted bug must be found."""
AS_SAMPLES = (
    "drained-node-keeps-its-replicas",
    "data-removed-in-a-joint-group",
    "effects-not-sent-to-a-new-leader",
    "page-counts-for-all",
)
"""Hunted with the tests; `python -m tests.sim.clusters --bugs` hunts all."""


SIMULATOR = Simulator(KIND)
sim, failures, found_seeds = SIMULATOR.command, SIMULATOR.failures, SIMULATOR.found_seeds


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_a_fixed_set_of_lives_breaks_no_rule(portion: int) -> None:
    assert failures(list(range(1 + portion, 1 + SEEDS, PORTIONS))) == []


def test_every_seed_that_ever_failed_is_well() -> None:
    assert failures(found_seeds()) == []


def test_a_seed_gives_the_same_life_whatever_the_hash_seed() -> None:
    outputs = {sim("0x5", "--once", hash_seed=hash_seed).stdout for hash_seed in ("1", "2")}

    assert len(outputs) == 1
    assert "trace=" in outputs.pop()


def test_every_fault_is_on_in_some_life_and_off_in_another() -> None:
    lives = [draw(seed) for seed in range(1, 101)]

    assert [fault for fault in FAULTS if all(life.has(fault) for life in lives)] == []
    assert [fault for fault in FAULTS if not any(life.has(fault) for life in lives)] == []


@pytest.mark.parametrize("bug", BY_NAME.values(), ids=lambda bug: bug.name)
def test_a_planted_bug_changes_the_product_in_one_place(bug: Bug) -> None:
    source = source_of(bug)

    assert mutated(bug, source) != source


@pytest.mark.parametrize("name", AS_SAMPLES)
def test_a_planted_bug_is_found_by_a_seed_that_is_well_without_it(name: str) -> None:
    assert SIMULATOR.has_found(BY_NAME[name], budget=BUDGET)
