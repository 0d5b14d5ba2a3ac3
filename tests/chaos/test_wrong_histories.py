"""Wrong histories are rejected by the stage that owns the broken promise, and by none before."""

import pytest

from chaos.checks import check_records
from tests.chaos.story import worked
from tests.chaos.wrong import by_events, schedules, to_clients
from tests.chaos.wrong.registry import WRONG, Build
from tests.chaos.wrong.to_clients import blind, chained


def test_there_are_wrong_histories_for_each_stage() -> None:
    stages = [stage for stage, _, _ in WRONG]

    assert len(WRONG) > 110
    assert {build.__module__ for _, _, build in WRONG} == {
        by_events.__name__, schedules.__name__, to_clients.__name__,
    }  # fmt: skip
    assert set(stages) == {
        "sanity", "witness", "outcomes", "realtime", "replay", "schedules", "blackbox",
        "final", "search",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "rule", "build"), WRONG, ids=[build.__name__ for _, _, build in WRONG]
)
def test_a_wrong_history_is_rejected_by_its_stage_and_none_before(
    stage: str, rule: str, build: Build
) -> None:
    report = check_records(build())

    assert report.first_wrong() == stage, "\n".join(report.lines())
    found = next(one for one in report.stages if one.name == stage)
    assert rule in {one.rule for one in found.violations}, "\n".join(report.lines())


def test_the_histories_that_they_are_made_from_are_right() -> None:
    for story in (worked(), worked(witness=False), blind("a", "b"), chained(1)):
        report = check_records(story.records())

        assert report.is_ok, "\n".join(report.lines())
