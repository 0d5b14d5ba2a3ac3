"""Handing leadership over: to whom, when, and everything that calls it off."""

from functools import partial

import pytest

from corvo.raft import (
    Action,
    Change,
    Flow,
    Membership,
    NotLeader,
    Refused,
    Role,
    Step,
    Transferring,
)
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    TimeoutNow,
    TransferRequest,
    VoteRequest,
    VoteResponse,
)
from tests.raft.group import Group, members
from tests.raft.snapshotting import left_behind, until_install


def led(group: Group) -> Group:
    """The group at rest under leader 1."""
    group.elect(1)
    return group


def handing_over(group: Group, *, heir: int) -> Group:
    """Leader 1 is handing over to a voter that lacks an entry and hears nothing."""
    led(group)
    group.isolate(heir)
    group.propose(1, b"x")
    group[1].transfer(heir)
    group.settle()
    assert group[1].statistics().transfer_to == heir
    return group


def orders(group: Group) -> list[int]:
    """Who has been told to campaign at once."""
    return [each.target for each in group.mail if isinstance(each, TimeoutNow)]


# Handing over.


@pytest.mark.conformance("R093")
def test_r093_leadership_goes_to_a_replica_that_has_the_whole_log_and_back() -> None:
    group = led(Group(3))

    group[1].transfer(2)
    group.settle()
    there = group.leaders
    group[2].transfer(1)
    group.settle()

    assert (there, group.leaders) == ([2], [1])
    assert [group[replica].leader for replica in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.conformance("R093")
def test_r093_an_heir_with_the_whole_log_is_told_at_once_and_needs_no_pre_vote() -> None:
    group = led(Group(3))

    group[1].transfer(2)
    group.work(1)
    told = orders(group)
    group.delivered.clear()
    group.settle()

    asked = [each for each in group.delivered if isinstance(each, VoteRequest)]
    assert told == [2]
    assert {(each.term, each.pre, each.forced) for each in asked} == {(2, False, True)}


@pytest.mark.conformance("R094")
def test_r094_a_follower_passes_the_request_to_the_leader_and_back() -> None:
    group = led(Group(3))

    group[2].transfer(2)
    group.settle()
    there = group.leaders
    group[1].transfer(1)
    group.settle()

    assert (there, group.leaders) == ([2], [1])


@pytest.mark.conformance("R094")
def test_r094_a_follower_may_ask_for_another_heir() -> None:
    group = led(Group(3))

    group[2].transfer(3)
    group.settle()

    assert group.leaders == [3]


@pytest.mark.conformance("R094")
def test_r094_a_replica_that_knows_no_leader_cannot_ask() -> None:
    group = Group(3)

    with pytest.raises(NotLeader) as refusal:
        group[2].transfer(3)

    assert refusal.value.leader is None
    assert not group[2].ready()


@pytest.mark.conformance("R094")
def test_r094_a_request_that_reaches_a_replica_which_does_not_lead_is_dropped() -> None:
    group = led(Group(3))

    group[2].step(TransferRequest(3, 2, 1, 0, heir=3))
    group.settle()

    assert group.leaders == [1]
    assert group[2].statistics().refused == {"heir": 1}


@pytest.mark.conformance("R095")
def test_r095_an_heir_is_elected_though_the_voters_hear_their_leader() -> None:
    group = led(Group(3))
    group.tick(times=3)
    assert all(group.raft(replica).in_lease for replica in (2, 3))

    group[1].transfer(2)
    group.settle()
    with_the_leaders_word = group.leaders
    group.tick(2)
    group[1].forget_leader()
    group[1].campaign()
    group.settle()

    assert with_the_leaders_word == [2]
    assert group.leaders == [2]


@pytest.mark.conformance("R096")
def test_r096_a_slow_heir_is_caught_up_before_it_is_told() -> None:
    group = handing_over(Group(3), heir=3)
    group.heal()

    group.tick(1)

    assert group.leaders == [3]
    assert group.normal(3) == [b"x"]


@pytest.mark.conformance("R096")
def test_r096_an_heir_is_told_by_the_acknowledgement_of_the_last_entry() -> None:
    group = led(Group(3))
    group.isolate(3)
    group.propose(1, b"x", b"y")
    group[1].transfer(3)
    group.work(1)

    group[1].step(AppendResponse(3, 1, 1, 0, index=2))
    group.work(1)
    early = orders(group)
    group[1].step(AppendResponse(3, 1, 1, 0, index=3))
    group.work(1)

    assert (early, orders(group)) == ([], [3])


@pytest.mark.conformance("R097")
def test_r097_an_heir_that_needs_a_snapshot_is_told_when_it_is_installed() -> None:
    group = Group(3)
    left_behind(group)
    group.slow_disks = {3}

    group[1].transfer(3)
    until_install(group, 3)
    [heir] = [each for each in group[1].statistics().progress if each.replica == 3]
    waiting = (group.leaders, heir.flow, group[1].statistics().transfer_to)
    group.slow_disks = set()
    group.store(3)
    group.settle()

    assert waiting == ([1], Flow.SNAPSHOT, 3)
    assert group.leaders == [3]
    assert group[3].statistics().first_index == 5


# To nobody.


@pytest.mark.conformance("R098")
def test_r098_a_transfer_to_the_leader_itself_does_nothing() -> None:
    group = led(Group(3))
    before = group[1].statistics()

    group[1].transfer(1)
    group.settle()

    assert group[1].statistics() == before


@pytest.mark.conformance("R099", "T05")
@pytest.mark.parametrize(
    ("membership", "heir"),
    [
        (members(1, 2), 9),
        pytest.param(members(1, 2, learners=[3]), 3, id="T05 a learner"),
    ],
)
@pytest.mark.parametrize("asked", [1, 2])
def test_r099_t05_a_transfer_to_who_is_no_voter_is_refused(
    membership: Membership, heir: int, asked: int
) -> None:
    group = led(Group(membership))
    before = group[asked].statistics()

    with pytest.raises(Refused, match=f"replica {heir} is not a voter"):
        group[asked].transfer(heir)

    assert group[asked].statistics() == before
    assert not group[asked].ready().messages


@pytest.mark.conformance("R099")
def test_r099_a_request_for_an_heir_that_the_leader_does_not_know_is_dropped() -> None:
    group = led(Group(3))

    group[1].step(TransferRequest(2, 1, 1, 0, heir=9))
    group.settle()

    assert group[1].statistics().transfer_to is None
    assert group[1].statistics().refused == {"heir": 1}


# Calling it off.


@pytest.mark.conformance("R100")
def test_r100_a_transfer_is_given_up_after_one_election_timeout() -> None:
    group = handing_over(Group(3, election_ticks=10), heir=3)

    group.tick(1, 2, times=9)
    before = group[1].statistics().transfer_to
    group.tick(1, 2)

    seen = group[1].statistics()
    assert (before, seen.transfer_to, seen.role, seen.term) == (3, None, Role.LEADER, 1)
    group.propose(1, b"y")
    assert group.normal(2) == [b"x", b"y"]


@pytest.mark.conformance("R100")
def test_r100_an_heir_whose_order_was_lost_leaves_the_leader_leading() -> None:
    group = led(Group(3, election_ticks=10))
    group.passes = lambda message: not isinstance(message, TimeoutNow)
    group[1].transfer(2)
    group.settle()

    group.tick(1, times=10)

    assert group.leaders == [1]
    assert group.propose(1, b"y") == [2]


@pytest.mark.conformance("R101")
def test_r101_while_a_transfer_is_under_way_proposals_are_refused() -> None:
    group = handing_over(Group(3), heir=3)
    before = group[1].statistics()

    with pytest.raises(Transferring, match="being handed to replica 3"):
        group[1].propose(b"late")
    with pytest.raises(Transferring):
        group[1].propose_change(Change((Step(Action.REMOVE, 2),)))

    assert group[1].statistics() == before
    assert group.applied[1][-1].data == b"x"


@pytest.mark.conformance("R101")
def test_r101_what_was_proposed_before_the_transfer_is_not_lost() -> None:
    group = led(Group(3))
    group[1].propose(b"before")

    group[1].transfer(2)
    group.settle()

    assert group.leaders == [2]
    assert [group.normal(replica) for replica in (1, 2, 3)] == [[b"before"]] * 3


@pytest.mark.conformance("R102")
def test_r102_a_vote_of_a_higher_term_ends_the_transfer_with_the_leadership() -> None:
    group = handing_over(Group(3), heir=3)

    # An election that somebody else was told to hold, long ago.
    group[1].step(VoteRequest(2, 1, 2, 0, last_index=2, last_term=1, pre=False, forced=True))
    group.work(1)

    seen = group[1].statistics()
    assert (seen.role, seen.term, seen.vote, seen.transfer_to) == (Role.FOLLOWER, 2, 2, None)
    with pytest.raises(NotLeader):
        group[1].propose(b"y")


@pytest.mark.conformance("R103", "R104")
@pytest.mark.parametrize(
    "action", [Action.REMOVE, Action.ADD_LEARNER], ids=["R103 removed", "R104 demoted"]
)
@pytest.mark.parametrize("auto", [True, False])
def test_r103_r104_a_transfer_to_a_voter_that_loses_its_vote_is_called_off(
    action: Action, auto: bool
) -> None:
    group = led(Group(4))
    group.isolate(4)
    group[1].propose_change(Change((Step(action, 4),), auto=auto))
    group[1].transfer(4)
    assert group[1].statistics().transfer_to == 4

    group.settle()

    assert group[1].statistics().transfer_to is None
    assert group.leaders == [1]
    group.propose(1, b"y")
    assert group.normal(1) == [b"y"]


@pytest.mark.conformance("R103")
def test_r103_a_voter_that_is_on_its_way_out_is_no_heir() -> None:
    group = led(Group(3))
    group[1].propose_change(Change((Step(Action.REMOVE, 3),), auto=False))
    group.settle()
    assert group[1].membership == Membership(voters=(1, 2), outgoing=(1, 2, 3))

    with pytest.raises(Refused, match="replica 3 is not a voter"):
        group[1].transfer(3)
    group[1].transfer(2)
    group.settle()

    assert group.leaders == [2]


@pytest.mark.conformance("R105")
def test_r105_a_transfer_to_the_leader_itself_calls_off_the_one_under_way() -> None:
    group = handing_over(Group(3), heir=3)

    group[1].transfer(1)

    assert group[1].statistics().transfer_to is None
    group.heal()
    group.tick(1, times=2)
    assert group.leaders == [1]
    group.propose(1, b"y")
    assert group.normal(3) == [b"x", b"y"]


@pytest.mark.conformance("R106")
def test_r106_a_second_transfer_to_another_replica_takes_the_place_of_the_first() -> None:
    group = handing_over(Group(3), heir=3)

    group[1].transfer(2)
    group.settle()

    assert group.leaders == [2]


@pytest.mark.conformance("R106")
def test_r106_a_second_transfer_to_another_replica_has_its_own_time() -> None:
    group = handing_over(Group(5, election_ticks=10), heir=3)
    group.isolate(2)
    group[1].step(AppendResponse(2, 1, 1, 0, index=2, rejected=True))
    group.tick(1, 4, 5, times=6)
    group.passes = lambda message: not isinstance(message, TimeoutNow)

    group[1].transfer(2)
    group.tick(1, 4, 5, times=9)
    before = group[1].statistics().transfer_to
    group.tick(1, 4, 5)

    assert (before, group[1].statistics().transfer_to) == (2, None)


@pytest.mark.conformance("R107")
def test_r107_asking_again_for_the_same_heir_gives_it_no_more_time() -> None:
    group = handing_over(Group(3, election_ticks=10), heir=3)
    group.tick(1, 2, times=9)

    group[1].transfer(3)
    group.tick(1, 2)

    assert group[1].statistics().transfer_to is None


# Those who are told.


@pytest.mark.conformance("R108")
def test_r108_a_removed_replica_that_is_told_to_campaign_stays_a_follower() -> None:
    group = led(Group(3))
    group[1].propose_change(Change((Step(Action.REMOVE, 3),)))
    group.settle()
    group.tick(1)
    assert group[3].membership == members(1, 2)
    before = group[3].statistics()

    group[3].step(TimeoutNow(1, 3, 1, 0))
    for pre in (True, False):
        group[3].step(VoteResponse(1, 3, 1, 0, pre=pre, granted=True))
    group.settle()

    assert group[3].statistics() == before
    assert group.leaders == [1]


@pytest.mark.conformance("R108")
def test_r108_a_replica_that_never_was_a_member_stays_a_follower() -> None:
    group = Group(members(1, 2))
    group.start(3)

    group[3].step(TimeoutNow(1, 3, 4, 0))
    group[3].step(VoteResponse(1, 3, 4, 0, pre=False, granted=True))
    group.work(3)

    assert group[3].statistics().role is Role.FOLLOWER
    assert group.mail == []


@pytest.mark.conformance("R108")
@pytest.mark.parametrize("role", [Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER])
def test_r108_only_a_follower_can_be_told_to_campaign(role: Role) -> None:
    group = Group(3)
    group[1].campaign()
    vote = partial(VoteResponse, 2, 1, 1, 0, granted=True)
    if role is not Role.PRE_CANDIDATE:
        group[1].step(vote(pre=True))
    group.work(1)
    if role is Role.LEADER:
        group[1].step(vote(pre=False))
    group.work(1)
    before = group[1].statistics()
    assert before.role is role

    group[1].step(TimeoutNow(2, 1, before.term, 0))

    assert group[1].statistics() == before


@pytest.mark.conformance("R108")
def test_r108_an_order_of_somebody_who_does_not_lead_is_not_followed() -> None:
    group = led(Group(3))
    before = group[2].statistics()

    group[2].step(TimeoutNow(3, 2, 1, 0))
    group.settle()

    assert group[2].statistics() == before
    assert [each for each in group.mail if isinstance(each, AppendRequest)] == []
