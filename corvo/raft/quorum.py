"""Majorities: what a group of voters has committed and how it voted.

A joint group has two sets of voters and needs a majority of each. An empty set agrees to
everything: it is the half that a group which is not joint does not have.
"""

import enum
from collections.abc import Callable, Collection, Mapping

INFINITE = 1 << 63
"""What an empty set of voters has committed: it never holds anything back."""


class Outcome(enum.Enum):
    """How a vote stands."""

    WON = "won"
    LOST = "lost"
    PENDING = "pending"


def majority(size: int) -> int:
    """The smallest number of voters that any two majorities of `size` share one of."""
    return size // 2 + 1


def committed(voters: Collection[int], acked: Callable[[int], int]) -> int:
    """The largest number that a majority has reached, where `acked` tells each voter's."""
    if not voters:
        return INFINITE
    reached = sorted((acked(voter) for voter in voters), reverse=True)
    return reached[majority(len(voters)) - 1]


def joint_committed(
    voters: Collection[int], outgoing: Collection[int], acked: Callable[[int], int]
) -> int:
    """What both halves of a joint group have reached."""
    return min(committed(voters, acked), committed(outgoing, acked))


def outcome(voters: Collection[int], votes: Mapping[int, bool]) -> Outcome:
    """How `voters` have voted; those not in `votes` may still do so."""
    if not voters:
        return Outcome.WON
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    missing = sum(1 for voter in voters if voter not in votes)
    needed = majority(len(voters))
    if granted >= needed:
        return Outcome.WON
    if granted + missing >= needed:
        return Outcome.PENDING
    return Outcome.LOST


def joint_outcome(
    voters: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]
) -> Outcome:
    """How a joint group has voted: one lost half loses, both must win."""
    halves = (outcome(voters, votes), outcome(outgoing, votes))
    if Outcome.LOST in halves:
        return Outcome.LOST
    if Outcome.PENDING in halves:
        return Outcome.PENDING
    return Outcome.WON
