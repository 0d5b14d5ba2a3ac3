"""Changing the members: what each change leads to, when it counts, and what is refused."""

from random import Random

import pytest

from corvo.raft import (
    LEAVE,
    Change,
    ChangeRefused,
    Entry,
    Kind,
    Membership,
    MemoryStorage,
    Node,
    NotLeader,
    Role,
    Settings,
    Step,
)
from corvo.raft.membership import encode
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    HeartbeatResponse,
    ReadResponse,
    VoteRequest,
    VoteResponse,
)
from tests.raft.changing import add, change, learn, log_of, remove
from tests.raft.group import Group, members, raft_of


def outsider(group: Group, replica: int) -> Node:
    """A running replica that knows the group and is not, or not yet, one of it."""
    group.storages[replica] = MemoryStorage(group.membership)
    return group.start(replica)


def pending_change(group: Group, replica: int) -> int:
    leadership = group.raft(replica).leadership
    assert leadership is not None
    return leadership.pending_change


def agree(group: Group) -> bool:
    """Whether what was applied anywhere is a beginning of what was applied elsewhere."""
    longest = max(group.applied.values(), key=len)
    return all(applied == longest[: len(applied)] for applied in group.applied.values())


# One change at a time.


@pytest.mark.conformance("R080")
def test_r080_a_change_is_remembered_as_pending_until_it_is_applied() -> None:
    group = Group(3)
    group.elect(1)

    index = group[1].propose_change(Change((remove(3),)))

    assert index == 2
    assert pending_change(group, 1) == 2
    [entry] = group.raft(1).log.entries(2, 2, 100)
    assert entry == Entry(2, 1, Kind.CONFIG, encode(Change((remove(3),))))
    assert group[1].membership == members(1, 2, 3)


@pytest.mark.conformance("R081")
@pytest.mark.parametrize("second", [Change((remove(2),)), Change((learn(4),)), LEAVE])
def test_r081_a_second_change_is_refused_while_the_first_is_pending(second: Change) -> None:
    group = Group(3)
    group.elect(1)
    group[1].propose_change(Change((remove(3),)))
    before = group[1].statistics()

    with pytest.raises(ChangeRefused, match="the change at 2 is not applied yet"):
        group[1].propose_change(second)

    assert group[1].statistics() == before
    assert pending_change(group, 1) == 2


@pytest.mark.conformance("R081")
def test_r081_a_second_change_is_refused_until_the_joint_state_is_left() -> None:
    group = Group(3)
    group.elect(1)
    change(group, remove(3), auto=False)
    assert group[1].membership == Membership(voters=(1, 2), outgoing=(1, 2, 3))

    with pytest.raises(ChangeRefused, match="the group is joint"):
        group[1].propose_change(Change((learn(4),)))
    change(group, auto=False)
    change(group, learn(4))

    assert group[1].membership == members(1, 2, learners=[4])


def test_a_leader_knows_when_it_may_propose_a_change() -> None:
    group = Group(3)
    group.elect(1)
    told = [group[1].may_change, group[2].may_change]  # a follower never may
    group[1].propose_change(Change((learn(4),)))
    told.append(group[1].may_change)
    group.settle()
    told.append(group[1].may_change)
    change(group, remove(3), auto=False)
    told.append(group[1].may_change)  # the joint state is not left
    change(group, auto=False)
    told.append(group[1].may_change)
    group.isolate(2)
    group[1].transfer(2)
    told.append(group[1].may_change)

    assert told == [True, False, False, True, False, True, False]


@pytest.mark.conformance("R082")
@pytest.mark.parametrize(
    "tail",
    [(), (Change((remove(3),)),)],
    ids=["without a change", "with a change"],
)
def test_r082_a_new_leader_takes_its_uncommitted_tail_for_a_pending_change(
    tail: tuple[Change, ...],
) -> None:
    membership = members(1, 2, 3)
    group = Group(membership, storages={1: log_of(membership, *tail)})
    group.auto_apply = False
    group.elect(1)
    last = group[1].statistics().last_index
    assert group[1].statistics().commit == last
    assert pending_change(group, 1) == last - 1

    with pytest.raises(ChangeRefused, match=f"the change at {last - 1} is not applied yet"):
        group[1].propose_change(Change((learn(4),)))


@pytest.mark.conformance("R082")
def test_r082_a_new_leader_takes_no_change_before_it_has_committed_anything() -> None:
    group = Group(3)
    group.passes = lambda message: isinstance(message, VoteRequest | VoteResponse)
    group.elect(1)

    with pytest.raises(ChangeRefused, match="has not committed anything in its term"):
        group[1].propose_change(Change((learn(4),)))
    group.heal()
    group.tick(1)
    change(group, learn(4))

    assert group[1].membership == members(1, 2, 3, learners=[4])


@pytest.mark.conformance("R080")
def test_r080_only_a_leader_takes_changes() -> None:
    group = Group(3)
    group.elect(1)

    with pytest.raises(NotLeader) as refusal:
        group[2].propose_change(Change((remove(3),)))

    assert refusal.value.leader == 1


# What changes lead to.


@pytest.mark.conformance("R083")
def test_r083_a_learner_that_follows_becomes_a_voter_by_way_of_the_joint_state() -> None:
    group = Group(members(1, learners=[2]))
    group.elect(1)
    group.tick(1)

    group[1].propose_change(Change((add(2),)))
    group.work(1)
    between = group[1].membership
    group.settle()

    assert between == Membership(voters=(1, 2), outgoing=(1,), auto_leave=True)
    assert {group[1].membership, group[2].membership} == {members(1, 2)}


@pytest.mark.conformance("R084")
def test_r084_a_replica_is_added_promoted_demoted_and_removed() -> None:
    group = Group(1)
    outsider(group, 2)
    group.elect(1)
    seen = []

    for step in (learn(2), add(2), learn(2), add(2), remove(2)):
        change(group, step)
        group.tick(1)
        seen.append(group[1].membership)

    assert seen == [
        members(1, learners=[2]),
        members(1, 2),
        members(1, learners=[2]),
        members(1, 2),
        members(1),
    ]
    assert group[1].is_leader


@pytest.mark.conformance("R084")
def test_r084_promoting_a_leader_that_votes_already_changes_nothing() -> None:
    group = Group(3)
    group.elect(1)

    change(group, add(1))

    assert {node.membership for node in group.nodes.values()} == {members(1, 2, 3)}
    assert group.leaders == [1]


@pytest.mark.conformance("R084")
def test_r084_a_voter_that_is_demoted_votes_until_the_joint_state_is_left() -> None:
    group = Group(3)
    group.elect(1)

    change(group, learn(3), auto=False)
    between = group[1].membership
    change(group, auto=False)

    assert between == Membership(voters=(1, 2), outgoing=(1, 2, 3), learners_next=(3,))
    assert group[3].membership == members(1, 2, learners=[3])
    assert not group.raft(3).is_promotable


@pytest.mark.conformance("R084")
def test_r084_a_leader_that_demotes_itself_stops_leading() -> None:
    group = Group(3)
    group.elect(1)

    change(group, learn(1))

    assert group.leaders in ([2], [3])
    assert {node.membership for node in group.nodes.values()} == {members(2, 3, learners=[1])}
    assert group[1].leader == group.leaders[0]


@pytest.mark.conformance("R085")
def test_r085_a_replica_just_added_gets_a_full_timeout_to_be_heard() -> None:
    group = Group(1, election_ticks=10)
    group.elect(1)
    group.tick(1, times=9)
    group[1].propose_change(Change((add(2),)), force=True)
    group.settle()
    assert group[1].membership.voters == (1, 2)

    group.tick(1)
    at_once = group[1].is_leader
    group.tick(1, times=9)
    just_before = group[1].is_leader
    group.tick(1)

    assert (at_once, just_before, group[1].is_leader) == (True, True, False)


@pytest.mark.conformance("R086")
def test_r086_a_removed_follower_is_gone_from_members_and_progress() -> None:
    group = Group(3)
    group.elect(1)

    change(group, remove(3))

    assert group[1].membership == members(1, 2)
    assert [each.replica for each in group[1].statistics().progress] == [2]
    group.isolate(3)
    assert group.propose(1, b"x") == [4]
    assert group.normal(2) == [b"x"]


@pytest.mark.conformance("R087")
def test_r087_a_removed_learner_is_gone() -> None:
    group = Group(members(1, 2, learners=[3]))
    group.elect(1)

    change(group, remove(3))

    assert group[1].membership == members(1, 2)
    assert [each.replica for each in group[1].statistics().progress] == [2]


@pytest.mark.conformance("R087", "T04")
@pytest.mark.parametrize(
    ("membership", "steps"),
    [
        (members(1), (remove(1),)),
        (members(1), (learn(1),)),
        (members(1, learners=[2]), (remove(1),)),
        (members(1, 2), (remove(1), remove(2))),
    ],
)
def test_r087_t04_removing_the_last_voter_is_refused(
    membership: Membership, steps: tuple[Step, ...]
) -> None:
    group = Group(membership)
    group.elect(1)
    before = group[1].statistics()

    with pytest.raises(ChangeRefused, match="would leave no voter"):
        group[1].propose_change(Change(steps))

    assert group[1].statistics() == before


@pytest.mark.conformance("R086")
def test_r086_removing_who_is_not_there_changes_nothing() -> None:
    group = Group(3)
    group.elect(1)

    change(group, remove(9))

    assert group[1].membership == members(1, 2, 3)
    change(group, remove(3))
    assert group[1].membership == members(1, 2)


@pytest.mark.conformance("R088")
@pytest.mark.parametrize(
    ("membership", "may"),
    [
        (members(1), True),
        (members(1, 2, 3), True),
        (Membership(), False),
        (members(2, 3), False),
        (members(2, 3, learners=[1]), False),
        (Membership(voters=(2, 3), outgoing=(1, 2)), True),
        (Membership(voters=(2, 3), outgoing=(1, 2), learners_next=(1,)), True),
    ],
)
def test_r088_only_a_voter_may_campaign(membership: Membership, may: bool) -> None:
    node = Node(Settings(replica=1), MemoryStorage(membership), Random(1))

    node.campaign()

    assert raft_of(node).is_promotable is may
    assert (node.statistics().role is not Role.FOLLOWER) is may


@pytest.mark.conformance("R089")
def test_r089_members_are_listed_in_the_order_of_their_ids_however_they_came() -> None:
    group = Group(members(5))
    group.elect(5)

    for replica in (9, 3, 7, 1):
        change(group, learn(replica), leader=5)

    assert group[5].membership == members(5, learners=[1, 3, 7, 9])
    assert [each.replica for each in group[5].statistics().progress] == [1, 3, 7, 9]


@pytest.mark.conformance("R089")
def test_r089_several_steps_of_one_change_are_listed_in_order() -> None:
    group = Group(members(2, 5))
    group.elect(5)

    group[5].propose_change(Change((add(9), add(1), learn(8), learn(3)), auto=False), force=True)
    group.settle()

    assert group[5].membership == Membership(voters=(1, 2, 5, 9), outgoing=(2, 5), learners=(3, 8))


@pytest.mark.conformance("R090", "R091")
@pytest.mark.parametrize("size", [1, 3])
def test_r090_r091_a_leader_that_is_told_to_campaign_goes_on_leading(size: int) -> None:
    group = Group(size)
    group.elect(1)
    before = group[1].statistics()

    group[1].campaign()
    group.settle()

    assert group[1].statistics() == before
    assert group.mail == []


@pytest.mark.conformance("R092")
def test_r092_an_entry_that_waits_for_a_removed_replica_commits_without_it() -> None:
    group = Group(2)
    group.elect(1)
    group[1].propose_change(Change((remove(2),)))
    group.work(1)
    group[1].step(AppendResponse(2, 1, 1, 0, index=2))
    group.work(1)
    assert group[1].membership == Membership(voters=(1,), outgoing=(1, 2), auto_leave=True)
    index = group[1].propose(b"pending")
    group.work(1)
    assert (index, group[1].statistics().commit) == (4, 2)

    group[1].step(AppendResponse(2, 1, 1, 0, index=3))
    group.work(1)

    assert group[1].membership == members(1)
    assert group[1].statistics().commit == 4
    assert group.normal(1) == [b"pending"]


# Leaving the joint state.


@pytest.mark.conformance("R081")
def test_r081_the_joint_state_is_left_once_however_slowly_entries_are_applied() -> None:
    group = Group(3, page_bytes_max=1)
    group.elect(1)
    group[1].propose_change(Change((remove(3),)))
    for data in (b"a", b"b", b"c"):
        group[1].propose(data)

    group.settle()

    changes = [entry.index for entry in group.applied[1] if entry.kind is Kind.CONFIG]
    assert changes == [2, 6]
    assert group[2].membership == members(1, 2)


@pytest.mark.conformance("R081", "R082")
def test_r081_r082_a_new_leader_leaves_the_joint_state_and_takes_no_order_to_do_so() -> None:
    before = members(1, 2, 3)
    storages = {replica: log_of(before, Change((remove(3),))) for replica in (1, 2, 3)}
    group = Group(before, storages=storages)
    for replica in (1, 2, 3):
        group.start(replica, applied=2)
    group.auto_apply = False
    group.elect(1)
    assert group[1].statistics().commit == 3

    with pytest.raises(ChangeRefused, match="the joint state ends by itself"):
        group[1].propose_change(LEAVE)
    group[1].advance(3)
    group.auto_apply = True
    group.settle()

    assert group[1].membership == members(1, 2)
    changes = [entry.index for entry in group.applied[1] if entry.kind is Kind.CONFIG]
    assert changes == [4]


# When a change counts.


@pytest.mark.conformance("R115")
def test_r115_nobody_campaigns_past_a_committed_change_that_is_not_applied() -> None:
    group = Group(3, election_ticks=10)
    group.elect(1)
    group.auto_apply = False
    change(group, learn(4))
    for replica in (1, 2, 3):
        assert group.raft(replica).has_unapplied_change
    group.isolate(1)

    group[2].forget_leader()
    group[2].campaign()
    group.tick(2, 3, times=40)
    waiting = {group[replica].statistics().role for replica in (2, 3)}
    group[2].advance(2)
    group[3].advance(2)
    group.auto_apply = True
    group.tick(2, 3, times=40)

    assert waiting == {Role.FOLLOWER}
    assert group.leaders[-1] in (2, 3)


@pytest.mark.conformance("R116")
def test_r116_an_heir_with_an_unapplied_change_does_not_take_over_until_it_is_applied() -> None:
    group = Group(3)
    group.elect(1)
    group.auto_apply = False
    change(group, learn(4))

    group[1].transfer(2)
    group.settle()
    before = (group.leaders, group[2].statistics().role, group[2].term)
    group[2].advance(2)
    group[1].transfer(1)
    group[1].transfer(2)
    group.settle()

    assert before == ([1], Role.FOLLOWER, 1)
    assert group.leaders == [2]


@pytest.mark.conformance("R115")
def test_r115_a_change_that_is_not_committed_keeps_nobody_from_campaigning() -> None:
    membership = members(1, 2, 3)
    group = Group(membership, storages={1: log_of(membership, Change((learn(4),)))})

    group[1].campaign()
    group.settle()

    assert group.leaders == [1]
    assert group[1].membership == members(1, 2, 3, learners=[4])


@pytest.mark.conformance("X16")
def test_x16_a_change_counts_from_when_it_is_applied_and_not_from_when_it_is_appended() -> None:
    group = Group(3)
    group.elect(1)
    group.auto_apply = False
    group[1].propose_change(Change((remove(3),), auto=False))
    group.settle()
    assert group[1].statistics().commit == 2
    before = [group[replica].membership for replica in (1, 2, 3)]

    group[1].advance(2)
    group[3].advance(2)

    joint = Membership(voters=(1, 2), outgoing=(1, 2, 3))
    assert before == [members(1, 2, 3)] * 3
    assert [group[replica].membership for replica in (1, 2, 3)] == [joint, members(1, 2, 3), joint]


@pytest.mark.conformance("X16")
def test_x16_the_entry_of_a_change_is_committed_by_the_old_group_alone() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(3)

    group[1].propose_change(Change((add(4), add(5), add(6)), auto=False), force=True)
    group.settle()
    joint = group[1].membership
    index = group[1].propose(b"needs both halves")
    group.settle()

    assert joint == Membership(voters=(1, 2, 3, 4, 5, 6), outgoing=(1, 2, 3))
    assert group[1].statistics().commit == index - 1


@pytest.mark.conformance("X16")
def test_x16_a_change_that_was_overwritten_never_counted() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(1)
    group[1].propose_change(Change((remove(2), remove(3))))
    group.work(1)
    group[2].forget_leader()
    group[3].forget_leader()
    group[2].campaign()
    group.settle()
    group.heal()

    group.tick(2, times=2)

    assert group.leaders == [2]
    assert {node.membership for node in group.nodes.values()} == {members(1, 2, 3)}
    assert agree(group)


@pytest.mark.conformance("X16")
def test_x16_a_restarted_replica_has_the_membership_of_what_it_applied() -> None:
    group = Group(3)
    group.elect(1)
    change(group, remove(3), auto=False)
    change(group, auto=False)

    seen = []
    for applied in (1, 2, 3):
        group.applied[2] = group.applied[1][:applied]
        seen.append(group.start(2).membership)

    joint = Membership(voters=(1, 2), outgoing=(1, 2, 3))
    assert seen == [members(1, 2, 3), joint, members(1, 2)]


# Learners.


@pytest.mark.conformance("T06")
def test_t06_a_learner_answers_but_its_vote_counts_only_once_it_is_promoted() -> None:
    group = Group(members(1, 2, learners=[3]))
    group.isolate(2)
    group[1].campaign()
    group.work(1)
    asked = {each.target for each in group.mail}
    group[3].step(VoteRequest(1, 3, 1, 0, last_index=0, last_term=0, pre=True, forced=False))
    group[1].step(VoteResponse(3, 1, 1, 0, pre=True, granted=True))
    group.work()

    answers = [each for each in group.mail if each.source == 3]
    assert asked == {2}
    assert answers == [VoteResponse(3, 1, 1, 0, pre=True, granted=True)]
    assert group[1].statistics().role is Role.PRE_CANDIDATE


@pytest.mark.conformance("T06")
def test_t06_a_promoted_learner_elects() -> None:
    group = Group(members(1, 2, learners=[3]))
    group.elect(1)
    group.tick(1)
    change(group, add(3))
    group.isolate(2)

    group.start(1)
    group.elect(1)

    assert group.leaders == [1]
    assert group[1].membership == members(1, 2, 3)


@pytest.mark.conformance("T33")
def test_t33_a_read_is_answered_when_the_group_becomes_small_enough() -> None:
    group = Group(2)
    group.elect(1)
    group[1].propose_change(Change((remove(2),)))
    group.work(1)
    group[1].step(AppendResponse(2, 1, 1, 0, index=2))
    group.work(1)
    context = group[1].read_index()
    group.work(1)
    waiting = group.reads[1][:]

    group[1].step(AppendResponse(2, 1, 1, 0, index=3))
    group.work(1)

    assert waiting == []
    assert [(read.context, read.index) for read in group.reads[1]] == [(context, 2)]


@pytest.mark.conformance("T33")
def test_t33_a_read_of_a_follower_is_answered_when_the_group_becomes_small_enough() -> None:
    group = Group(4)
    group.elect(1)
    change(group, remove(4), auto=False)
    group.passes = lambda message: not isinstance(message, HeartbeatResponse)
    context = group[2].read_index()
    group.settle()
    group.isolate(3)
    assert group.reads[2] == []
    group[1].step(HeartbeatResponse(2, 1, 1, 0, round=1))
    group.work(1)
    # Two of three have answered, and two of the four that still count.
    assert [each for each in group.mail if isinstance(each, ReadResponse)] == []

    group.passes = lambda message: not isinstance(message, HeartbeatResponse)
    change(group, auto=False)

    assert [(read.context, read.index) for read in group.reads[2]] == [(context, 2)]


# Disjoint majorities (Ongaro, 2015).


@pytest.mark.conformance("X14")
@pytest.mark.parametrize(
    ("first", "second", "after"),
    [
        pytest.param(add(5), remove(1), members(2, 3, 4), id="an addition and a removal"),
        pytest.param(add(5), add(6), members(1, 2, 3, 4, 6), id="two additions"),
        pytest.param(remove(2), remove(1), members(2, 3, 4), id="two removals"),
    ],
)
def test_x14_changes_by_leaders_of_different_terms_never_reach_disjoint_majorities(
    first: Step, second: Step, after: Membership
) -> None:
    group = Group(4)
    outsider(group, 5)
    outsider(group, 6)
    group.elect(1)
    # Leader 1 gets its change no further than into its own log.
    group.isolate(1)
    group[1].propose_change(Change((first,)), force=True)
    group.tick(1, times=20)
    assert group.leaders == []
    # Leader 2 must not change anything before it has committed something in its own term ...
    group.passes = lambda message: isinstance(message, VoteRequest | VoteResponse)
    elect_without(group, 1, winner=2)
    with pytest.raises(ChangeRefused):
        group[2].propose_change(Change((second,)), force=True)
    # ... and does so as soon as it has.
    group.passes = lambda _: True
    group.tick(2)
    group[2].propose_change(Change((second,)), force=True)
    group.settle()
    group.tick(2)
    committed = group.applied[2][:]

    # Now everybody whom leader 1 counts on meets it, without those who know better.
    group.heal()
    group.isolate(2)
    group.isolate(3)
    for replica in (1, 4, 5, 6):
        group[replica].forget_leader()
    group[1].campaign()
    group.settle()
    won_without_the_second_change = group[1].is_leader
    group.tick(1, 4, 5, 6, times=40)
    group.heal()
    for _ in range(60):
        group.tick()

    assert not won_without_the_second_change
    assert agree(group)
    [leader] = group.leaders
    assert group.applied[leader][: len(committed)] == committed
    assert group[leader].membership == after


def elect_without(group: Group, *absent: int, winner: int) -> None:
    """Let this one win against a leader that does not hear of it."""
    for replica, node in group.nodes.items():
        if replica not in absent:
            node.forget_leader()
    group[winner].campaign()
    group.settle()
    assert group[winner].is_leader


# Voters that cannot vote yet.


@pytest.mark.conformance("X15")
def test_x15_a_replica_that_was_never_started_is_made_a_voter_only_by_force() -> None:
    group = Group(3)
    group.elect(1)
    before = group[1].statistics()

    with pytest.raises(ChangeRefused, match="replica 4 does not follow yet"):
        group[1].propose_change(Change((add(4),)))
    refused = group[1].statistics()
    group[1].propose_change(Change((add(4),)), force=True)
    group.settle()

    assert refused == before
    assert group[1].membership == members(1, 2, 3, 4)


@pytest.mark.conformance("X15")
def test_x15_a_learner_that_was_not_heard_is_not_made_a_voter() -> None:
    group = Group(3)
    group.elect(1)
    change(group, learn(4))

    with pytest.raises(ChangeRefused, match="replica 4 does not follow yet"):
        group[1].propose_change(Change((add(4),)))

    assert group[1].membership == members(1, 2, 3, learners=[4])


@pytest.mark.conformance("X15")
def test_x15_a_learner_that_fell_silent_is_not_made_a_voter() -> None:
    group = Group(members(1, 2, 3, learners=[4]), election_ticks=10)
    group.elect(1)
    group.tick(1)
    group.isolate(4)
    group.tick(1, 2, 3, times=21)

    with pytest.raises(ChangeRefused, match="replica 4 does not follow yet"):
        group[1].propose_change(Change((add(4),)))


@pytest.mark.conformance("X15")
@pytest.mark.parametrize(("missing", "refused"), [(2, False), (3, True)])
def test_x15_a_learner_is_made_a_voter_when_it_lacks_no_more_than_is_allowed(
    missing: int, refused: bool
) -> None:
    group = Group(members(1, 2, 3, learners=[4]), promotion_lag_max=2)
    group.elect(1)
    group.tick(1)
    group.cut(1, 4)
    group.propose(1, *[b"x"] * missing)
    group.heal()

    if refused:
        with pytest.raises(ChangeRefused, match="replica 4 still lacks 3 entries"):
            group[1].propose_change(Change((add(4),)))
    else:
        change(group, add(4))

    expected = members(1, 2, 3, learners=[4]) if refused else members(1, 2, 3, 4)
    assert group[1].membership == expected


# A leader that removes itself.


@pytest.mark.conformance("X17")
def test_x17_a_leader_that_removes_itself_from_two_leaves_the_other_leading_alone() -> None:
    group = Group(2)
    group.elect(1)

    change(group, remove(1))

    assert group.leaders == [2]
    assert group[2].membership == members(2)
    group.isolate(1)
    group.propose(2, b"alone")
    assert group.normal(2) == [b"alone"]


@pytest.mark.conformance("X17")
def test_x17_a_removed_leader_of_two_stays_until_the_other_knows() -> None:
    group = Group(2)
    group.elect(1)
    group.passes = lambda message: not (isinstance(message, AppendRequest) and message.commit >= 3)
    group[1].propose_change(Change((remove(1),)))
    group.settle()
    assert group[1].membership == members(2)
    assert group[2].statistics().commit == 2
    group[1].step(HeartbeatResponse(2, 1, 1, 0, round=0, commit=2))
    still_leading = group[1].is_leader

    group.heal()
    group.tick(1)

    assert still_leading
    assert group.leaders == [2]
    assert group[2].membership == members(2)


@pytest.mark.conformance("X17")
def test_x17_the_other_of_two_learns_from_votes_that_it_is_alone() -> None:
    group = Group(2)
    group.elect(1)
    group.passes = lambda message: not (isinstance(message, AppendRequest) and message.commit >= 3)
    group[1].propose_change(Change((remove(1),)))
    group.settle()
    assert group[2].membership == Membership(voters=(2,), outgoing=(1, 2), auto_leave=True)

    # The leader is restarted and does not lead any more, but it still answers.
    group.heal()
    group.start(1)
    group.tick(2, times=45)

    assert group.leaders == [2]
    assert group[2].membership == members(2)


@pytest.mark.conformance("X17")
def test_x17_a_leader_that_removes_the_other_of_two_leads_alone() -> None:
    group = Group(2)
    group.elect(1)

    change(group, remove(2))

    assert group.leaders == [1]
    assert group[1].membership == members(1)
    group.isolate(2)
    group.propose(1, b"alone")
    assert group.normal(1) == [b"alone"]


@pytest.mark.conformance("X17")
def test_x17_a_removed_leader_goes_only_when_the_others_know_or_are_silent() -> None:
    group = Group(3, election_ticks=10)
    group.elect(1)
    group.tick(1)
    index = group[1].propose_change(Change((remove(1),)))
    group.passes = lambda message: (
        not (isinstance(message, AppendResponse | HeartbeatResponse) and message.commit > index)
    )
    group.settle()
    assert group[1].membership == members(2, 3)

    for _ in range(3):
        for replica in (2, 3):
            group[1].step(HeartbeatResponse(replica, 1, 1, 0, round=0, commit=0))
        for _ in range(10):
            group[1].tick()
        assert group[1].is_leader, "they live and may still need it"
    for _ in range(20):
        group[1].tick()

    assert not group[1].is_leader, "nobody answers: it has no majority behind it"
