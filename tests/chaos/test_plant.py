"""Planted bugs: each still fits the product, and a run finds those that are quick to find."""

import importlib
from pathlib import Path

import msgspec
import pytest

from chaos import counting, nemesis, plant, verdict
from chaos.bugs import Bug, all_bugs
from chaos.cluster import machine
from chaos.commands import chosen
from chaos.faults import all_faults
from chaos.plant import Result, found_by
from chaos.planting import changed, source_of
from chaos.run import Options, run
from chaos.verdict import BROKEN, UNCOUNTED, Verdict
from chaos.workloads import all_workloads
from tests.chaos.test_short_run import unseen
from tests.chaos.wrong import by_events, to_clients
from tests.chaos.wrong.registry import WRONG
from tests.support.links import on_sockets

BUGS = all_bugs()
PLANTED = [bug for bug in BUGS.values() if bug.simulated is None]
SIMULATED = [bug for bug in BUGS.values() if bug.simulated is not None]
WRITTEN = {by_events.__name__, to_clients.__name__}
RULES = {rule for _, rule, build in WRONG if build.__module__ in WRITTEN}
"""Rules of which a wrong history was written by hand."""
AS_SAMPLES = ("urgent-jobs-backwards", "failed-step-goes-on")
"""Planted with the tests; `python -m chaos plant` plants all."""


def ids(bug: Bug) -> str:
    return bug.name


@pytest.mark.parametrize("bug", PLANTED, ids=ids)
def test_a_bug_changes_the_product_where_it_says_and_leaves_it_readable(bug: Bug) -> None:
    assert bug.changes
    for module in {change.module for change in bug.changes}:
        source = source_of(module)
        for change in bug.changes:
            if change.module == module:
                source = changed(source, change)
        compile(source, module, "exec")


@pytest.mark.parametrize("bug", PLANTED, ids=ids)
def test_a_bug_names_rules_that_have_wrong_histories_and_faults_that_exist(bug: Bug) -> None:
    assert bug.rules
    assert set(bug.rules) <= RULES
    assert chosen(bug.faults, all_faults()) or bug.faults == "none"
    assert chosen(bug.workloads, all_workloads())
    assert bug.seconds < plant.PATIENCE_S


@pytest.mark.parametrize("bug", SIMULATED, ids=ids)
def test_a_bug_that_is_simulated_is_one_of_its_simulator_and_has_a_reason(bug: Bug) -> None:
    simulated = bug.simulated
    assert simulated is not None
    at = f"{simulated.simulator}.bugs" if simulated.simulator == "tests.sim" else ""
    found = importlib.import_module(at or f"{simulated.simulator}.planted").BY_NAME

    assert simulated.bug in found
    assert simulated.reason
    assert not bug.changes


@pytest.mark.parametrize("name", AS_SAMPLES)
@on_sockets
async def test_a_run_of_real_processes_finds_a_planted_bug(name: str, tmp_path: Path) -> None:
    bug, workloads = BUGS[name], all_workloads()
    options = Options(
        directory=tmp_path,
        seed=bug.seed,
        nodes=1,
        seconds=4.0,
        warm_s=0.5,
        rate=bug.rate,
        workloads={each: workloads[each] for each in chosen(bug.workloads, workloads)},
        plan=nemesis.plan("1", 0.0, ()),
        lacks=machine.probe(),
        bug=bug,
    )

    await run(options, unseen)
    found = verdict.judge(tmp_path)

    assert found_by(bug, found), found


def broken(stage: str, rule: str) -> Verdict:
    encoded = msgspec.json.encode({"name": stage, "violations": [{"rule": rule}]})
    return Verdict(BROKEN, stage, [msgspec.Raw(encoded)])


def test_only_a_rule_of_the_bug_finds_it() -> None:
    bug = BUGS["urgent-jobs-last"]

    assert found_by(bug, broken("replay", "O3")) == "replay (O3)"
    assert found_by(bug, broken("outcomes", "D1")) == ""
    assert found_by(bug, Verdict(UNCOUNTED, "a node did not start")) == ""


def test_a_hunt_goes_on_with_other_seeds_until_one_finds_the_bug(tmp_path: Path) -> None:
    tried: list[int] = []

    def planted(bug: Bug, seed: int, directory: Path) -> Verdict:
        assert directory.parent == tmp_path
        tried.append(seed)
        return broken("replay", "O3") if seed == bug.seed + 2 else Verdict(0, "")

    result = plant.hunt(BUGS["urgent-jobs-last"], tmp_path, planted)

    first = BUGS["urgent-jobs-last"].seed
    assert tried == [first, first + 1, first + 2]
    assert (result.by, result.seed) == ("replay (O3)", first + 2)


def test_the_page_keeps_the_rows_of_bugs_that_were_not_planted_this_time() -> None:
    page = counting.PAGE.read_text()
    names = ["no-fencing", "urgent-jobs-last"]
    one, other = (Result(BUGS[name], "replay (O3)", 12.0, 7) for name in names)

    written = plant.rewrite(plant.rewrite(page, [one], names), [other], names)

    assert plant.row(one) in written
    assert plant.row(other) in written
    assert written.startswith(page[:100])
    with pytest.raises(ValueError, match="no place"):
        plant.rewrite("an empty page", [one], names)
