"""Changes of membership, by way of the joint state, against a twin that makes them in one step."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.raft import LEAVE, Action, Change, ChangeRefused, Membership, Step
from corvo.raft.membership import (
    applied,
    changed,
    decode,
    encode,
    is_joint,
    members_of,
    voters_of,
)

ADD, LEARN, REMOVE = Action.ADD_VOTER, Action.ADD_LEARNER, Action.REMOVE

OF_THREE = Membership(voters=(1, 2, 3))


def change(*steps: tuple[Action, int], auto: bool = True) -> Change:
    return Change(tuple(Step(action, replica) for action, replica in steps), auto=auto)


def through(membership: Membership, *steps: tuple[Action, int]) -> Membership:
    """In and out again."""
    return changed(changed(membership, change(*steps)), LEAVE)


# ---- The twin: two plain sets, one step, no joint state.


class Twin:
    """Who votes and who learns; nothing else is known here."""

    def __init__(self, voters: set[int], learners: set[int]) -> None:
        self.voters = voters
        self.learners = learners

    def make(self, steps: list[tuple[Action, int]]) -> "Twin | None":
        """The twin afterwards, or None where nobody would be left to vote."""
        voters, learners = set(self.voters), set(self.learners)
        for action, replica in steps:
            if replica == 0:
                continue
            voters -= {replica}
            learners -= {replica}
            if action is ADD:
                voters |= {replica}
            elif action is LEARN:
                learners |= {replica}
        return Twin(voters, learners) if voters else None


steps_ = st.lists(st.tuples(st.sampled_from(Action), st.integers(0, 6)), min_size=1, max_size=5)


@pytest.mark.conformance("G01", "G09")
@settings(max_examples=1000)
@given(
    st.frozensets(st.integers(1, 6), min_size=1),
    st.frozensets(st.integers(1, 6)),
    st.lists(steps_, max_size=6),
)
def test_g09_changes_by_the_joint_road_end_where_the_twin_ends(
    voters: frozenset[int], learners: frozenset[int], changes: list[list[tuple[Action, int]]]
) -> None:
    twin = Twin(set(voters), set(learners - voters))
    membership = Membership(tuple(sorted(twin.voters)), learners=tuple(sorted(twin.learners)))

    for steps in changes:
        after = twin.make(steps)
        if after is None:
            with pytest.raises(ChangeRefused, match="no voter"):
                changed(membership, change(*steps))
            continue
        joint = changed(membership, change(*steps))
        check_joint(joint, before=membership, after=after)
        twin, membership = after, changed(joint, LEAVE)
        assert membership == Membership(
            tuple(sorted(twin.voters)), learners=tuple(sorted(twin.learners))
        )


def check_joint(joint: Membership, *, before: Membership, after: Twin) -> None:
    """What must hold while two majorities are needed."""
    assert joint.outgoing == before.voters
    assert joint.voters == tuple(sorted(after.voters))
    assert {*joint.learners, *joint.learners_next} == after.learners
    # Nobody has two roles in one half, and nobody is sent the log less than before.
    assert not {*joint.learners} & {*joint.voters, *joint.outgoing}
    assert {*joint.learners_next} <= {*joint.outgoing}
    assert not {*joint.learners_next} & {*joint.voters}
    assert {*before.voters} <= {*members_of(joint)}
    assert voters_of(joint) == tuple(sorted({*before.voters, *after.voters}))


# ---- The rules, one by one.


@pytest.mark.conformance("G01")
def test_g01_entering_puts_the_old_voters_beside_the_new() -> None:
    joint = changed(OF_THREE, change((ADD, 4), (REMOVE, 1)))

    assert joint == Membership(voters=(2, 3, 4), outgoing=(1, 2, 3), auto_leave=True)
    assert is_joint(joint)


@pytest.mark.conformance("G01")
def test_g01_a_change_made_twice_changes_nothing_the_second_time() -> None:
    once = through(OF_THREE, (ADD, 4), (LEARN, 5))

    assert through(once, (ADD, 4), (LEARN, 5)) == once
    assert changed(OF_THREE, change((ADD, 4), (ADD, 4))) == changed(OF_THREE, change((ADD, 4)))


@pytest.mark.conformance("G02")
def test_g02_a_joint_group_cannot_enter_again() -> None:
    joint = changed(OF_THREE, change((ADD, 4)))

    with pytest.raises(ChangeRefused, match="joint"):
        changed(joint, change((ADD, 5)))


@pytest.mark.conformance("G02")
def test_g02_a_group_that_is_not_joint_cannot_leave() -> None:
    with pytest.raises(ChangeRefused, match="not joint"):
        changed(OF_THREE, LEAVE)


@pytest.mark.conformance("G01")
@pytest.mark.parametrize("auto", [True, False])
def test_g01_whether_the_joint_state_ends_by_itself_is_forgotten_when_it_ends(auto: bool) -> None:
    joint = changed(OF_THREE, change((ADD, 4), auto=auto))

    assert joint.auto_leave is auto
    assert changed(joint, LEAVE) == Membership(voters=(1, 2, 3, 4))


@pytest.mark.conformance("G06")
def test_g06_the_last_voter_cannot_be_removed_nor_made_a_learner() -> None:
    for action in (REMOVE, LEARN):
        with pytest.raises(ChangeRefused, match="no voter"):
            changed(Membership(voters=(1,)), change((action, 1)))


@pytest.mark.conformance("G06")
def test_g06_a_group_without_voters_cannot_be_changed() -> None:
    with pytest.raises(ChangeRefused, match="without voters"):
        changed(Membership(learners=(1,)), change((ADD, 1)))


@pytest.mark.conformance("G04")
def test_g04_a_demoted_voter_votes_in_the_outgoing_half_until_it_is_left() -> None:
    joint = changed(OF_THREE, change((LEARN, 3)))

    assert joint == Membership(
        voters=(1, 2), outgoing=(1, 2, 3), learners_next=(3,), auto_leave=True
    )
    assert changed(joint, LEAVE) == Membership(voters=(1, 2), learners=(3,))


@pytest.mark.conformance("G05")
def test_g05_a_learner_is_promoted_and_learns_no_longer() -> None:
    membership = Membership(voters=(1, 2), learners=(3, 4))

    joint = changed(membership, change((ADD, 3)))

    assert joint == Membership(voters=(1, 2, 3), outgoing=(1, 2), learners=(4,), auto_leave=True)


@pytest.mark.conformance("G03")
def test_g03_the_last_word_about_a_replica_stands() -> None:
    assert through(OF_THREE, (LEARN, 3), (ADD, 3)) == OF_THREE
    assert through(OF_THREE, (REMOVE, 3), (LEARN, 3)) == Membership((1, 2), learners=(3,))
    assert through(OF_THREE, (LEARN, 3), (REMOVE, 3)) == Membership((1, 2))


@pytest.mark.conformance("G07")
def test_g07_removing_a_learner_or_a_stranger_leaves_the_voters_alone() -> None:
    membership = Membership(voters=(1, 2), learners=(3,))

    assert through(membership, (REMOVE, 3)) == Membership(voters=(1, 2))
    assert through(membership, (REMOVE, 9)) == membership


@pytest.mark.conformance("G08")
def test_g08_zero_is_no_replica_so_a_change_can_be_blanked_out() -> None:
    joint = changed(OF_THREE, change((ADD, 0), (LEARN, 0), (REMOVE, 0)))

    assert joint == Membership(voters=(1, 2, 3), outgoing=(1, 2, 3), auto_leave=True)
    assert changed(joint, LEAVE) == OF_THREE


# ---- Pins.


def test_a_pin_is_set_with_the_role_and_kept_through_changes_of_others() -> None:
    pinned = changed(changed(OF_THREE, Change((Step(ADD, 4, instance=77),))), LEAVE)

    assert pinned.pins == ((4, 77),)
    assert through(pinned, (LEARN, 4), (REMOVE, 1)).pins == ((4, 77),)
    assert changed(pinned, Change((Step(LEARN, 4, instance=78),))).pins == ((4, 78),)


def test_a_removed_voter_is_held_to_its_pin_until_it_no_longer_votes() -> None:
    pinned = Membership(voters=(1, 2, 3), pins=((2, 22), (3, 33)))

    joint = changed(pinned, Change((Step(REMOVE, 3, instance=44),)))

    assert joint.pins == ((2, 22), (3, 33))
    assert changed(joint, LEAVE).pins == ((2, 22),)


# ---- As bytes.

numbers = st.integers(0, 1 << 62)


@given(
    st.builds(
        Change,
        st.lists(
            st.builds(
                Step, st.sampled_from(Action), st.integers(0, 1 << 62), st.integers(0, 1 << 62)
            )
        ).map(tuple),
        st.booleans(),
    )
)
def test_a_change_survives_being_an_entry(made: Change) -> None:
    assert decode(encode(made)) == made


def test_the_bytes_of_a_change_are_those_of_version_one() -> None:
    made = Change((Step(ADD, 4, 7), Step(REMOVE, 1)), auto=False)

    assert encode(made) == bytes.fromhex("92 92 93 01 04 07 93 03 01 00 c2")


@pytest.mark.parametrize("data", [b"", b"\x92", b"\x92\x91\x93\x09\x01\x00\xc3", b"junk"])
def test_other_bytes_are_no_change(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(data)
    with pytest.raises(AssertionError, match="does not fit"):
        applied(OF_THREE, data)


def test_a_committed_change_is_applied_from_its_bytes() -> None:
    assert applied(OF_THREE, encode(change((ADD, 4)))).voters == (1, 2, 3, 4)
