"""Majorities against a stupid oracle that tries every set of voters there is."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.raft.quorum import (
    INFINITE,
    Outcome,
    committed,
    joint_committed,
    joint_outcome,
    majority,
    outcome,
)

Voters = tuple[int, ...]

# Every way in which two halves of up to three voters each can overlap, empty ones among them.
PAIRS: tuple[tuple[Voters, Voters], ...] = tuple(
    (incoming, outgoing)
    for incoming in ((), (1,), (1, 2), (1, 2, 3))
    for outgoing in ((), (1,), (2,), (1, 2), (2, 3), (3, 4), (1, 2, 3), (2, 3, 4), (4, 5, 6))
)

voters_up_to_seven = st.lists(st.integers(1, 9), max_size=7, unique=True).map(tuple)


def quorums(voters: Voters) -> Iterator[Voters]:
    """Every set of voters that is more than half of them."""
    for size in range(len(voters) + 1):
        if 2 * size > len(voters):
            yield from itertools.combinations(voters, size)


def committed_by_trying(voters: Voters, acked: Callable[[int], int]) -> int:
    """The best that any one quorum has reached together."""
    if not voters:
        return INFINITE
    return max(min(acked(voter) for voter in quorum) for quorum in quorums(voters))


def outcome_by_trying(halves: tuple[Voters, Voters], votes: dict[int, bool]) -> Outcome:
    """Won or lost when every way in which the missing votes can fall leads to the same."""
    everybody = sorted({*halves[0], *halves[1]})
    missing = [voter for voter in everybody if voter not in votes]
    ends = set()
    for wishes in itertools.product((True, False), repeat=len(missing)):
        full = {**votes, **dict(zip(missing, wishes, strict=True))}
        ends.add(
            all(
                not half or any(all(full[voter] for voter in quorum) for quorum in quorums(half))
                for half in halves
            )
        )
    if ends == {True}:
        return Outcome.WON
    return Outcome.LOST if ends == {False} else Outcome.PENDING


def lost_by_trying(halves: tuple[Voters, Voters], votes: dict[int, bool]) -> Outcome:
    """As `outcome_by_trying`, half by half: what one half cannot win, both together cannot."""
    ends = [outcome_by_trying((half, ()), votes) for half in halves]
    return next((end for end in (Outcome.LOST, Outcome.PENDING) if end in ends), Outcome.WON)


@pytest.mark.conformance("J01")
@pytest.mark.parametrize("size", range(1, 12))
def test_j01_two_majorities_always_share_a_voter_and_no_smaller_number_does(size: int) -> None:
    assert 2 * majority(size) > size
    assert 2 * (majority(size) - 1) <= size


@pytest.mark.conformance("J01")
@pytest.mark.parametrize("size", range(6))
def test_j01_the_committed_index_is_the_oracles_for_every_partial_knowledge(size: int) -> None:
    voters = tuple(range(1, size + 1))

    for known in itertools.product((0, 1, 2, 3), repeat=size):
        acked = dict(zip(voters, known, strict=True)).__getitem__
        assert committed(voters, acked) == committed_by_trying(voters, acked), known


@pytest.mark.conformance("J03")
@pytest.mark.parametrize(("incoming", "outgoing"), PAIRS)
def test_j03_a_joint_group_has_committed_what_both_halves_have(
    incoming: Voters, outgoing: Voters
) -> None:
    everybody = sorted({*incoming, *outgoing})

    for known in itertools.product((0, 1, 2), repeat=len(everybody)):
        acked = dict(zip(everybody, known, strict=True)).__getitem__
        both = [committed_by_trying(half, acked) for half in (incoming, outgoing)]
        assert joint_committed(incoming, outgoing, acked) == min(both), known


@pytest.mark.conformance("J02")
@pytest.mark.parametrize("size", range(6))
def test_j02_a_vote_is_decided_once_the_missing_votes_cannot_change_it(size: int) -> None:
    voters = tuple(range(1, size + 1))

    for cast in itertools.product((True, False, None), repeat=size):
        votes = votes_of(voters, cast)
        assert outcome(voters, votes) is outcome_by_trying((voters, ()), votes), cast


@pytest.mark.conformance("J04")
@pytest.mark.parametrize(("incoming", "outgoing"), PAIRS)
def test_j04_a_joint_vote_needs_both_halves_and_loses_with_either(
    incoming: Voters, outgoing: Voters
) -> None:
    everybody = tuple(sorted({*incoming, *outgoing}))

    for cast in itertools.product((True, False, None), repeat=len(everybody)):
        votes = votes_of(everybody, cast)
        result = joint_outcome(incoming, outgoing, votes)
        assert result is lost_by_trying((incoming, outgoing), votes), cast
        # Won and lost are never said too early, and won never too late.
        if result is not Outcome.PENDING:
            assert result is outcome_by_trying((incoming, outgoing), votes), cast
        else:
            assert outcome_by_trying((incoming, outgoing), votes) is not Outcome.WON, cast


def votes_of(voters: Voters, cast: tuple[bool | None, ...]) -> dict[int, bool]:
    pairs = zip(voters, cast, strict=True)
    return {voter: vote for voter, vote in pairs if vote is not None}


@pytest.mark.conformance("J01", "J03")
@given(voters_up_to_seven, voters_up_to_seven, st.lists(st.integers(0, 1 << 62), min_size=10))
def test_j03_the_oracle_agrees_on_groups_of_any_size(
    incoming: Voters, outgoing: Voters, known: list[int]
) -> None:
    acked = known.__getitem__

    assert committed(incoming, acked) == committed_by_trying(incoming, acked)
    assert joint_committed(incoming, outgoing, acked) == min(
        committed_by_trying(incoming, acked), committed_by_trying(outgoing, acked)
    )


@pytest.mark.conformance("J02", "J04")
@given(voters_up_to_seven, voters_up_to_seven, st.dictionaries(st.integers(1, 9), st.booleans()))
def test_j04_the_oracle_agrees_on_votes_of_any_size(
    incoming: Voters, outgoing: Voters, votes: dict[int, bool]
) -> None:
    assert outcome(incoming, votes) is outcome_by_trying((incoming, ()), votes)
    assert joint_outcome(incoming, outgoing, votes) is lost_by_trying((incoming, outgoing), votes)


@pytest.mark.conformance("J02")
def test_j02_votes_of_strangers_do_not_count() -> None:
    assert outcome((1, 2, 3), {4: True, 5: True, 6: True}) is Outcome.PENDING
    assert outcome((1, 2, 3), {1: True, 4: False, 5: False}) is Outcome.PENDING


@pytest.mark.conformance("J01", "J02")
def test_j01_nobody_holds_nothing_back() -> None:
    assert committed((), lambda _: 0) == INFINITE
    assert joint_committed((1,), (), lambda _: 7) == 7
    assert outcome((), {}) is Outcome.WON
    assert joint_outcome((1,), (), {}) is Outcome.PENDING
