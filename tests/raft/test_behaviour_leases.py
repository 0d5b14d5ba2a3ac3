"""CheckQuorum and its other half: leaders that hear nobody go, and voters that hear one stay."""

from typing import Final

import pytest

from corvo.raft import MemoryStorage, Role
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tests.raft.group import Group, members
from tests.raft.lone import Lone, accept, append, heartbeat, pulse, vote, vote_request

TIMEOUT: Final = 10
"""Ticks of an election timeout, as settings have it unless told."""


@pytest.mark.conformance("R048")
def test_r048_a_leader_that_hears_a_majority_stays() -> None:
    lone = Lone(5)
    lone.lead()

    for _ in range(10):
        lone.tick(TIMEOUT - 1)
        lone.hear(pulse(2, 1), accept(3, 1, 0))
        lone.tick()

    assert (lone.role, lone.node.term) == (Role.LEADER, 1)


@pytest.mark.conformance("R049")
@pytest.mark.parametrize("heard", [(), (2,), (2, 2)])
def test_r049_a_leader_that_does_not_hear_a_majority_steps_down(heard: tuple[int, ...]) -> None:
    lone = Lone(5)
    lone.lead()
    lone.hear(pulse(2, 1), pulse(3, 1))
    lone.tick(TIMEOUT)

    lone.hear(*(pulse(peer, 1) for peer in heard))
    lone.tick(TIMEOUT - 1)
    before = lone.role
    lone.tick()

    assert before is Role.LEADER
    assert (lone.role, lone.node.term, lone.node.leader) == (Role.FOLLOWER, 1, None)


@pytest.mark.conformance("R048", "R049")
def test_r048_r049_a_leader_that_is_heard_one_way_only_gives_way() -> None:
    group = Group(3)
    group.elect(1)
    group.cut_links |= {(2, 1), (3, 1)}

    group.tick(times=5 * TIMEOUT)

    assert group.leaders in ([2], [3])
    assert {group[replica].leader for replica in (2, 3)} == {*group.leaders}


@pytest.mark.conformance("R049")
def test_r049_learners_do_not_keep_a_leader_in_office() -> None:
    lone = Lone(members(1, 2, 3, learners=(4, 5)))
    lone.lead()

    for _ in range(2 * TIMEOUT):
        lone.tick()
        lone.hear(pulse(4, 1), pulse(5, 1))

    assert lone.role is Role.FOLLOWER


@pytest.mark.conformance("R050")
def test_r050_voters_that_heard_a_leader_refuse_a_contender_until_that_is_past() -> None:
    group = Group(3)
    group.elect(1)
    group.cut(1, 3)
    group[3].forget_leader()

    group[3].campaign()
    group.settle()
    assert group.raft(3).role is Role.PRE_CANDIDATE
    assert group[2].statistics().refused == {"vote_in_lease": 1}

    group.isolate(1)
    group.tick(2, times=TIMEOUT)
    group[3].campaign()
    group.settle()

    assert (group[3].is_leader, group[3].term, group[2].leader) == (True, 2, 3)


@pytest.mark.conformance("R050")
def test_r050_even_a_vote_request_of_a_later_term_is_not_heard_in_the_lease() -> None:
    lone = Lone(seed=3)
    lone.hear(heartbeat(2, 1))
    before = lone.picture

    early = [lone.hear(vote_request(3, term)) for term in (2, 7)]
    unmoved = lone.picture == before
    lone.tick(TIMEOUT)
    late = lone.hear(vote_request(3, 7))

    assert (early, unmoved) == ([[], []], True)
    assert late == [VoteResponse(1, 3, 7, 0, pre=False, granted=True)]


@pytest.mark.conformance("R050")
def test_r050_an_append_renews_the_lease_as_a_heartbeat_does() -> None:
    lone = Lone(seed=3)

    answers = []
    for _ in range(4):
        lone.hear(append(2, 1))
        lone.tick(TIMEOUT - 1)
        answers.append(lone.hear(vote_request(3, 2)))

    assert answers == [[]] * 4
    assert (lone.role, lone.node.term) == (Role.FOLLOWER, 1)


@pytest.mark.conformance("R051")
def test_r051_a_group_that_has_heard_nobody_elects_at_once() -> None:
    group = Group(3)

    group[1].campaign()
    group.settle()
    first = (group.leaders, group[1].term)
    group.isolate(1)
    group.tick(2, 3, times=2 * TIMEOUT)
    group.heal()
    group.tick(times=1)

    assert first == ([1], 1)
    assert len(group.leaders) == 1
    assert group.leaders != [1], "the lease of the first has ended, so another was elected"
    assert {node.leader for node in group.nodes.values()} == {*group.leaders}


@pytest.mark.conformance("R051")
def test_r051_a_fresh_candidate_is_elected_without_waiting() -> None:
    lone = Lone()

    lone.win_pre_vote()
    lone.work()
    sent = lone.hear(vote(2, 1))

    assert lone.role is Role.LEADER
    assert [type(message) for message in sent] == [AppendRequest, AppendRequest]


@pytest.mark.conformance("R052")
def test_r052_a_replica_stuck_in_a_later_term_brings_the_leader_down_and_all_go_on() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(3)
    group[3].step(TimeoutNow(1, 3, 1, 0))  # only a call to take over raises a term alone
    group.settle()
    assert (group.raft(3).role, group[3].term) == (Role.CANDIDATE, 2)

    group.heal()
    group.delivered.clear()
    group.tick(1)

    told = [message for message in group.delivered if isinstance(message, AppendResponse)]
    assert AppendResponse(3, 1, 2, 0, index=0) in told
    assert (group.raft(1).role, group[1].term) == (Role.FOLLOWER, 2)

    group.tick(times=3 * TIMEOUT)

    assert len(group.leaders) == 1
    assert group[1].term == group[2].term == group[3].term >= 2
    assert {node.leader for node in group.nodes.values()} == {*group.leaders}


@pytest.mark.conformance("R052")
def test_r052_with_the_stuck_replica_fresh_votes_are_refused_but_it_is_not_left_alone() -> None:
    leader = Lone()
    leader.lead()

    ignored = leader.hear(vote_request(3, 5, last=(9, 4)))
    leader.hear(AppendResponse(3, 1, 5, 0, index=0))

    assert ignored == []
    assert (leader.role, leader.node.term) == (Role.FOLLOWER, 5)


@pytest.mark.conformance("R053")
def test_r053_a_replica_that_is_not_in_its_own_membership_follows_quietly() -> None:
    group = Group(
        members(1, 2), storages={1: MemoryStorage(members(1, 2)), 2: MemoryStorage(members(1))}
    )

    group.tick(2, times=5 * TIMEOUT)
    silent = not group.delivered
    group.elect(1)
    group.tick(times=5 * TIMEOUT)
    group.propose(1, b"x")

    assert silent
    assert (group.leaders, group.raft(2).role, group[2].leader) == ([1], Role.FOLLOWER, 1)
    assert group[2].term == 1
    assert group.normal(1) == group.normal(2) == [b"x"]


def late_heartbeat() -> tuple[Group, list[VoteRequest]]:
    """A group whose follower 3 heard its leader too late, and what it asked meanwhile."""
    group = Group(3)
    group.elect(1)
    group.passes = lambda message: not (isinstance(message, Heartbeat) and message.target == 3)
    for _ in range(2 * TIMEOUT):
        group[1].tick()
        group.settle()
        group[3].tick()
        if group.raft(3).role is not Role.FOLLOWER:
            break
    assert (group.raft(3).role, group[3].term) == (Role.PRE_CANDIDATE, 1)
    group.work()
    return group, [message for message in group.mail if isinstance(message, VoteRequest)]


@pytest.mark.conformance("R054")
def test_r054_a_slow_link_that_lets_a_follower_time_out_does_not_depose() -> None:
    group, asked = late_heartbeat()

    group.settle()
    group.heal()
    group.tick(1)

    assert [(message.pre, message.term) for message in asked] == [(True, 2), (True, 2)]
    assert (group.leaders, group[1].term) == ([1], 1)
    assert [(node.leader, node.term) for node in group.nodes.values()] == [(1, 1)] * 3


@pytest.mark.conformance("R055")
def test_r055_the_late_heartbeat_ends_the_followers_asking() -> None:
    group, _ = late_heartbeat()
    held, group.mail = group.mail, []
    group.heal()

    group.tick(1)
    follows = (group.raft(3).role, group[3].leader)
    group.mail = held
    group.settle()
    group[3].step(VoteResponse(2, 3, 2, 0, pre=True, granted=True))
    group.settle()

    assert follows == (Role.FOLLOWER, 1)
    assert (group.leaders, group[1].term) == ([1], 1)
    assert [(node.leader, node.term) for node in group.nodes.values()] == [(1, 1)] * 3
