"""The simulator of whole replicas: fixed lives, seeds that failed, and bugs that it must find."""

import re
from pathlib import Path

import pytest

from tests.sim.bugs import Bug, mutated, source_of
from tests.sim.campaign import run
from tests.sim.failures import Outcome
from tests.sim.shards.kind import KIND
from tests.sim.shards.options import FAULTS, draw
from tests.sim.shards.planted import BY_NAME
from tests.sim.shards.words import NUMBERS
from tests.support.simulators import Simulator

ROOT = Path(__file__).parents[1]

SEEDS = 150
PORTIONS = 15
BUDGET = 5
"""Seeds from the recorded one on, within which a planted bug must be found."""
AS_SAMPLES = (
    "token-not-checked",
    "request-key-not-remembered",
    "watching-link-not-notified",
    "snapshot-keeps-the-old-machine",
    "membership-of-a-snapshot-not-noted",
    "stands-down-without-a-word",
    "stamps-follow-the-wall-clock",
    "half-of-a-batch",
    "window-skips-on-a-resend",
    "places-proposed-once",
    "pause-is-made-up-for",
    "moving-schedule-goes-on",
    "due-time-lost-on-the-way",
    "overlap-not-seen",
)
"""Hunted with the tests; `python -m tests.sim.shards --bugs` hunts all."""


SIMULATOR = Simulator(KIND)
sim, failures, found_seeds = SIMULATOR.command, SIMULATOR.failures, SIMULATOR.found_seeds


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_a_fixed_set_of_lives_breaks_no_rule(portion: int) -> None:
    seeds = list(range(1 + portion, 1 + SEEDS, PORTIONS))

    assert failures(seeds) == []


def test_the_simulator_knows_every_op_of_the_page() -> None:
    page = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)

    assert {name: int(number) for number, name in rows} == NUMBERS


def test_every_seed_that_ever_failed_is_well() -> None:
    assert failures(found_seeds()) == []


@pytest.mark.parametrize("seed", [2, 5])
def test_a_seed_gives_the_same_life_again(seed: int) -> None:
    first, second = run(seed, kind=KIND), run(seed, kind=KIND)

    assert first == second


def test_a_seed_gives_the_same_life_whatever_the_hash_seed() -> None:
    outputs = {sim("0x5", "--once", hash_seed=hash_seed).stdout for hash_seed in ("1", "2")}

    assert len(outputs) == 1
    assert "trace=" in outputs.pop()


def test_every_fault_is_on_in_some_life_and_off_in_another() -> None:
    lives = [draw(seed) for seed in range(1, 1 + SEEDS)]

    assert [fault for fault in FAULTS if all(life.has(fault) for life in lives)] == []
    assert [fault for fault in FAULTS if not any(life.has(fault) for life in lives)] == []


@pytest.mark.parametrize("bug", BY_NAME.values(), ids=lambda bug: bug.name)
def test_a_planted_bug_changes_the_product_in_one_place(bug: Bug) -> None:
    source = source_of(bug)

    assert mutated(bug, source) != source


@pytest.mark.parametrize("name", AS_SAMPLES)
def test_a_planted_bug_is_found_by_a_seed_that_is_well_without_it(name: str) -> None:
    assert SIMULATOR.has_found(BY_NAME[name], budget=BUDGET)


def test_the_exit_code_tells_what_went_wrong() -> None:
    bug = BY_NAME["token-not-checked"]
    hunted = sim("--bug", bug.name, "--hunt", f"{BUDGET}", "--from", f"{bug.seed}")

    replayed = sim(hunted.stdout.split()[0], "--bug", bug.name, "--once")

    assert replayed.returncode == Outcome.CORRECTNESS
    assert "CORRECTNESS" in replayed.stdout
