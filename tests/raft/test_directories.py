"""A number that was given again: late messages of the old data directory, and the new one."""

from functools import partial

import msgspec
import pytest

from corvo.raft import Change, ChangeRefused, Flow, MemoryStorage, ProgressView
from corvo.raft.messages import AppendResponse, VoteRequest
from tests.raft.changing import add, change, learn, remove
from tests.raft.group import Group, members

pytestmark = pytest.mark.conformance("X31")

OLD, NEW = 33, 44
late = partial(AppendResponse, 3, 1, 1, OLD)
"""What the old directory of replica 3 answered to leader 1, before replica 3 was removed."""


def added_again() -> Group:
    """Replica 3 was removed from the group, and added as a learner; it has not started yet."""
    group = Group(3, instance=OLD)
    group.elect(1)
    group.tick(1)
    change(group, remove(3))
    group.isolate(3)
    change(group, learn(3))
    return group


def start_anew(group: Group) -> None:
    """Replica 3 starts with an empty directory, and catches up."""
    group.heal()
    group.storages[3], group.applied[3] = MemoryStorage(), []
    group.settings = {**group.settings, "instance": NEW}
    group.start(3, returned=True)
    group.tick(1, times=4)


def third(group: Group) -> ProgressView:
    [progress] = [each for each in group[1].statistics().progress if each.replica == 3]
    return progress


def test_x31_a_late_answer_of_the_old_directory_makes_no_voter() -> None:
    group = added_again()

    group[1].step(late(1))

    assert third(group).is_active
    assert third(group).flow is Flow.REPLICATE
    with pytest.raises(ChangeRefused, match="replica 3 does not follow yet"):
        group[1].propose_change(Change((add(3),)))


def test_x31_a_new_directory_is_taken_after_a_late_answer_of_the_old_one() -> None:
    group = added_again()
    group[1].step(late(1))

    start_anew(group)
    change(group, add(3))
    group.isolate(2)
    group.propose(1, b"needs the vote of 3")

    assert group[1].membership == members(1, 2, 3)
    assert group.raft(1).instances[3] == NEW
    assert group.normal(1) == [b"needs the vote of 3"]
    assert "instance" not in group[1].statistics().refused


def test_x31_nothing_of_the_old_directory_counts_for_the_new_one() -> None:
    group = added_again()
    group[1].step(late(1))
    before = group.raft(1).log.last_index

    group[1].step(AppendResponse(3, 1, 1, NEW, index=1, rejected=True, wants_snapshot=True))

    assert (third(group).match, third(group).flow) == (0, Flow.PROBE)
    assert [each.replica for each in group[1].statistics().progress] == [2, 3]
    assert group.raft(1).log.last_index == before


def test_x31_a_late_answer_that_follows_the_new_directory_only_delays_it() -> None:
    group = added_again()
    start_anew(group)

    group[1].step(late(1))
    with pytest.raises(ChangeRefused, match="replica 3 does not follow yet"):
        group[1].propose_change(Change((add(3),)))
    group.tick(1, times=2)
    change(group, add(3))

    assert group[1].membership == members(1, 2, 3)
    assert group.raft(1).instances[3] == NEW


def test_x31_a_late_answer_is_refused_from_the_proposal_of_the_promotion_on() -> None:
    group = added_again()
    start_anew(group)

    group[1].propose_change(Change((add(3),)))
    group[1].step(late(1))
    group.settle()
    group[1].step(late(1))

    assert group[1].membership == members(1, 2, 3)
    assert group.raft(1).instances[3] == NEW
    assert group[1].statistics().refused["instance"] == 2


def test_x31_a_voter_keeps_its_directory_through_changes_of_others() -> None:
    group = Group(3, instance=OLD)
    group.elect(1)
    group.tick(1)

    change(group, learn(4))
    group[1].step(msgspec.structs.replace(late(1), instance=NEW))

    assert group.raft(1).instances[3] == OLD
    assert group[1].statistics().refused["instance"] == 1


def test_x31_a_follower_votes_for_the_new_directory_after_a_late_message_of_the_old_one() -> None:
    group = added_again()
    ask = VoteRequest(3, 2, 2, OLD, last_index=1, last_term=1, pre=True, forced=True)
    group[2].step(ask)

    start_anew(group)
    group[2].step(ask)
    change(group, add(3))
    group.isolate(1)
    group.elect(3)

    assert group[3].is_leader
    assert group[2].leader == 3


def test_x31_a_leader_that_was_elected_meanwhile_listens_to_the_new_directory() -> None:
    group = added_again()
    start_anew(group)
    group[2].step(VoteRequest(3, 2, 2, OLD, last_index=1, last_term=1, pre=True, forced=True))
    group.passes = lambda message: message.source != 2
    group[1].propose_change(Change((add(3),)))
    group.tick(1, times=21)
    group.heal()
    assert not group[1].is_leader

    group.elect(2)
    group.tick(2, times=4)
    group.isolate(1)
    group.propose(2, b"needs the vote of 3")

    assert group[2].membership == members(1, 2, 3)
    assert group.normal(2) == [b"needs the vote of 3"]
