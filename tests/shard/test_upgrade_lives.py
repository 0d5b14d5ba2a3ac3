"""Whole lives of nodes that are upgraded and go back, also with planted bugs."""

import pytest

from tests.shard.planted_upgrades import BUGS, hunt
from tests.shard.upgrades import live
from tests.sim.bugs import Bug, mutated, source_of


@pytest.mark.parametrize("first", range(1, 201, 50))
def test_no_replica_is_given_what_it_does_not_know_and_the_last_build_is_used(first: int) -> None:
    lives = [live(seed) for seed in range(first, first + 50)]

    assert sum(len(life.acknowledged) for life in lives) > 50
    assert sum(len(life.group.refused) for life in lives) > 0
    assert any(life.used >= {1, 5, 6} for life in lives)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert mutated(bug, source_of(bug))

    told = hunt(bug)

    assert told.startswith("life "), told
