"""Elections: who may stand, who is elected, and how a vote is given."""

from itertools import product
from typing import Final

import pytest

from corvo.raft import Action, Change, Membership, Role, Step
from corvo.raft.messages import AppendRequest, AppendResponse, TimeoutNow, VoteRequest, VoteResponse
from corvo.raft.roles import become_candidate, become_follower, become_leader, become_pre_candidate
from tests.raft.group import Group, members, with_log
from tests.raft.lone import (
    Lone,
    accept,
    append,
    entries,
    heartbeat,
    in_role,
    vote,
    vote_request,
)

FIVE: Final = members(1, 2, 3, 4, 5)


def stand_at_once(group: Group, replica: int) -> None:
    """Make this follower a candidate without a pre-vote, as a call to take over does."""
    node = group[replica]
    source = node.leader or (2 if replica == 1 else 1)
    node.step(TimeoutNow(source, replica, node.term, 0))


def logs(group: Group) -> list[list[tuple[int, int]]]:
    """What each replica has on disk, as (index, term)."""
    return [
        [(index, storage.term(index)) for index in range(1, storage.last_index + 1)]
        for storage in group.storages.values()
    ]


# ---- Winning, losing, and neither.


@pytest.mark.conformance("R006a", "R006b")
@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("asks_first", [False, True])
def test_r006a_r006b_who_answers_and_whose_log_is_ahead_decides(
    size: int, *, asks_first: bool
) -> None:
    membership = members(*range(1, size + 1))
    for others in product(("well", "silent", "ahead"), repeat=size - 1):
        ahead = {replica: other == "ahead" for replica, other in enumerate(others, 2)}
        storages = {
            replica: with_log(membership, (1,) if ahead.get(replica) else (), term=1)
            for replica in membership.voters
        }
        group = Group(membership, storages=storages)
        for replica, other in enumerate(others, 2):
            if other == "silent":
                group.isolate(replica)

        if asks_first:
            group[1].campaign()
        else:
            stand_at_once(group, 1)
        group.settle()

        undecided = Role.PRE_CANDIDATE if asks_first else Role.CANDIDATE
        if 1 + others.count("well") > size / 2:
            expected = (Role.LEADER, 2)
        elif others.count("ahead") > size / 2:
            expected = (Role.FOLLOWER, 1 if asks_first else 2)
        else:
            expected = (undecided, 1 if asks_first else 2)
        assert (group.raft(1).role, group[1].term) == expected, others


@pytest.mark.conformance("R008")
def test_r008_a_learner_never_stands_for_election() -> None:
    learner = Lone(members(2, 3, learners=(1,)), term=1)

    sent = learner.tick(200)

    assert sent == []
    assert (learner.role, learner.node.term) == (Role.FOLLOWER, 1)


@pytest.mark.conformance("R009")
def test_r009_a_learner_that_was_made_a_voter_can_win() -> None:
    group = Group(members(1, 3, learners=(2,)))
    group.elect(1)
    group[1].propose_change(Change((Step(Action.ADD_VOTER, 2),)))
    group.settle()
    assert group[2].membership == members(1, 2, 3)

    group.isolate(1)
    group.elect(2)
    group.heal()
    group.tick(2)
    group.propose(2, b"by the new voter")

    assert group.leaders == [2]
    assert [group.normal(replica) for replica in (1, 2, 3)] == [[b"by the new voter"]] * 3


@pytest.mark.conformance("R009")
def test_r009_a_promoted_learner_counts_and_stands_by_its_own_membership() -> None:
    joint = Membership(voters=(1, 2), outgoing=(2,))
    lone = Lone(joint)

    lone.lead()

    assert (lone.role, lone.node.term) == (Role.LEADER, 1)


@pytest.mark.conformance("R010")
def test_r010_a_learner_grants_a_vote_that_is_asked_of_it() -> None:
    learner = Lone(members(2, learners=(1,)), term=1)

    asked = learner.hear(vote_request(3, 2, pre=True))
    voted = learner.hear(vote_request(3, 2))

    assert asked == [VoteResponse(1, 3, 2, 0, pre=True, granted=True)]
    assert voted == [VoteResponse(1, 3, 2, 0, pre=False, granted=True)]
    assert learner.storage.hard_state.vote == 3


@pytest.mark.conformance("R011", "R012")
@pytest.mark.parametrize("asks_first", [False, True])
def test_r011_r012_each_replica_in_turn_can_take_over(*, asks_first: bool) -> None:
    group = Group(3)
    group.elect(3)

    for term, replica in enumerate((1, 2, 3, 1), 2):
        if asks_first:
            group.elect(replica)
        else:
            stand_at_once(group, replica)
            group.settle()

        assert group.leaders == [replica]
        assert [(node.leader, node.term) for node in group.nodes.values()] == [(replica, term)] * 3


@pytest.mark.conformance("R013", "R014")
@pytest.mark.parametrize("asks_first", [False, True])
def test_r013_r014_a_winner_replaces_newer_entries_that_were_never_committed(
    *, asks_first: bool
) -> None:
    storages = {
        1: with_log(FIVE, (1,)),
        2: with_log(FIVE, (1,)),
        3: with_log(FIVE, (2,)),  # it led term 2, and told nobody
        4: Lone(5, term=2, vote=3).storage,
        5: Lone(5, term=2, vote=3).storage,
    }
    group = Group(FIVE, storages=storages)

    def attempt() -> None:
        if asks_first:
            group[1].campaign()
        else:
            stand_at_once(group, 1)
        group.settle()

    attempt()
    assert (group.raft(1).role, group[1].term) == (Role.FOLLOWER, 2), "term 2 is taken"
    attempt()

    assert (group.leaders, group[1].term) == ([1], 3)
    assert logs(group) == [[(1, 1), (2, 3)]] * 5


# ---- Votes.


@pytest.mark.conformance("R015")
@pytest.mark.parametrize("role", Role)
def test_r015_a_vote_request_of_a_later_term_is_answered_in_any_role(role: Role) -> None:
    lone = in_role(role, term=2, terms=(1,))
    end = lone.log[-1]

    # A leader hears itself: only who was told to take over is let past.
    sent = lone.hear(vote_request(2, 3, last=end, forced=role is Role.LEADER))

    assert sent == [VoteResponse(1, 2, 3, 0, pre=False, granted=True)]
    assert (lone.role, lone.node.term, lone.node.leader) == (Role.FOLLOWER, 3, None)
    assert (lone.storage.hard_state.term, lone.storage.hard_state.vote) == (3, 2)


@pytest.mark.conformance("R016")
@pytest.mark.parametrize("role", Role)
def test_r016_a_pre_vote_changes_nothing_in_any_role(role: Role) -> None:
    lone = in_role(role, term=2, terms=(1,))
    lone.tick(3)
    before = lone.picture

    sent = lone.hear(vote_request(2, 3, last=lone.log[-1], pre=True))

    granted = [VoteResponse(1, 2, 3, 0, pre=True, granted=True)]
    assert sent == ([] if role is Role.LEADER else granted)
    assert lone.picture == before


@pytest.mark.conformance("R038")
@pytest.mark.parametrize("voted", [0, 2, 3])
@pytest.mark.parametrize("last", [(0, 0), (9, 1), (1, 2), (2, 2), (3, 2), (1, 3)])
def test_r038_a_follower_votes_by_log_and_earlier_vote(voted: int, last: tuple[int, int]) -> None:
    lone = Lone(terms=(2, 2), term=3, vote=voted)
    granted = voted in (0, 2) and last in [(2, 2), (3, 2), (1, 3)]

    sent = lone.hear(vote_request(2, 3, last=last))

    assert sent == [VoteResponse(1, 2, 3, 0, pre=False, granted=granted)]
    assert lone.raft.vote == (2 if granted else voted)


@pytest.mark.conformance("R038")
@pytest.mark.parametrize("role", Role)
def test_r038_who_stands_or_leads_has_voted_for_itself(role: Role) -> None:
    lone = in_role(role, term=3, terms=(2, 2))

    sent = lone.hear(vote_request(2, 3, last=(9, 3)))

    granted = role in (Role.FOLLOWER, Role.PRE_CANDIDATE)
    assert VoteResponse(1, 2, 3, 0, pre=False, granted=granted) in sent
    assert lone.raft.vote == (2 if granted else 1)


@pytest.mark.conformance("R038")
def test_r038_who_knows_the_leader_of_the_term_votes_for_nobody_else() -> None:
    lone = Lone()
    lone.hear(heartbeat(2, 1))

    sent = lone.hear(vote_request(3, 1, last=(9, 1)))

    assert sent == [VoteResponse(1, 3, 1, 0, pre=False, granted=False)]


@pytest.mark.conformance("R038")
@pytest.mark.parametrize("seed", range(20))
def test_r038_who_gave_its_vote_waits_a_whole_timeout_for_the_winner(seed: int) -> None:
    lone = Lone(term=1, seed=seed)

    lone.tick(9)
    lone.hear(vote_request(2, 1))

    assert lone.tick_until_it_asks() >= 10


@pytest.mark.conformance("R039")
@pytest.mark.parametrize("seed", range(20))
def test_r039_who_granted_a_pre_vote_waits_no_longer(seed: int) -> None:
    asked, unasked = Lone(term=1, seed=seed), Lone(term=1, seed=seed)

    asked.tick(9)
    asked.hear(vote_request(2, 2, pre=True))

    assert asked.tick_until_it_asks() + 9 == unasked.tick_until_it_asks()


@pytest.mark.conformance("R039")
@pytest.mark.parametrize("voted", [0, 2, 3])
@pytest.mark.parametrize("last", [(0, 0), (9, 1), (1, 2), (2, 2), (3, 2), (1, 3)])
def test_r039_a_pre_vote_for_a_later_term_is_granted_by_log_alone(
    voted: int, last: tuple[int, int]
) -> None:
    lone = Lone(terms=(2, 2), term=3, vote=voted)
    granted = last in [(2, 2), (3, 2), (1, 3)]

    sent = lone.hear(vote_request(2, 4, last=last, pre=True))

    term = 4 if granted else 3
    assert sent == [VoteResponse(1, 2, term, 0, pre=True, granted=granted)]
    assert lone.raft.vote == voted


@pytest.mark.conformance("R039")
def test_r039_a_pre_vote_is_not_answered_while_a_leader_is_fresh() -> None:
    lone = Lone(seed=3)
    lone.hear(append(2, 1))

    answers = []
    for _ in range(10):
        answers.append(lone.hear(vote_request(3, 2, pre=True)))
        lone.tick()
    late = lone.hear(vote_request(3, 2, pre=True))

    assert answers == [[]] * 10
    assert late == [VoteResponse(1, 3, 2, 0, pre=True, granted=True)]


# ---- Two at once.


@pytest.mark.conformance("R022")
def test_r022_of_two_contenders_one_leads_and_the_other_follows() -> None:
    group = Group(3)
    group.cut(1, 3)

    group[1].campaign()
    group[3].campaign()
    group.settle()

    # Both won the pre-vote; there was one vote in the term.
    assert [group.raft(replica).role for replica in (1, 3)] == [Role.LEADER, Role.CANDIDATE]

    group.heal()
    group.tick(1)

    assert group.leaders == [1]
    assert [(node.leader, node.term) for node in group.nodes.values()] == [(1, 1)] * 3
    assert logs(group) == [[(1, 1)]] * 3


@pytest.mark.conformance("R023")
def test_r023_a_contender_that_lost_does_not_disturb() -> None:
    group = Group(3)
    group.cut(1, 3)
    group.elect(1)
    group.propose(1, b"without 3")
    for _ in range(5):
        group[3].campaign()
        group.settle()
    assert (group.raft(3).role, group[3].term) == (Role.PRE_CANDIDATE, 1)

    group.heal()
    group[3].campaign()
    group.settle()
    assert (group.leaders, group[1].term) == ([1], 1), "nobody fresh answers a pre-vote"
    group.tick(1)

    assert [(node.leader, node.term) for node in group.nodes.values()] == [(1, 1)] * 3
    assert group.normal(3) == [b"without 3"]


@pytest.mark.conformance("R024")
def test_r024_a_candidate_that_was_cut_off_ends_with_the_leaders_log() -> None:
    group = Group(3)
    group.isolate(1)
    stand_at_once(group, 1)
    group.settle()
    group.elect(3)
    assert (group.raft(1).role, group[1].term) == (Role.CANDIDATE, 1)

    group.heal()
    group.tick(3)
    group.propose(3, b"for all")

    assert [(node.leader, node.term) for node in group.nodes.values()] == [(3, 1)] * 3
    assert logs(group) == [[(1, 1), (2, 1)]] * 3
    assert [group.normal(replica) for replica in (1, 2, 3)] == [[b"for all"]] * 3


@pytest.mark.conformance("R024", "R041")
def test_r024_r041_a_candidate_with_a_longer_log_gives_it_up_to_the_leader() -> None:
    lone = Lone(terms=(1, 1, 1), term=1)
    lone.stand()

    lone.hear(append(2, 2, after=(1, 1), new=entries(2, 2), commit=2))

    assert (lone.role, lone.log) == (Role.FOLLOWER, [(1, 1), (2, 2)])
    assert [entry.index for entry in lone.applied] == [1, 2]


@pytest.mark.conformance("R025", "R026")
@pytest.mark.parametrize("asks_first", [False, True])
def test_r025_r026_a_group_of_one_elects_itself_once_its_vote_is_durable(
    *, asks_first: bool
) -> None:
    lone = Lone(1)

    if asks_first:
        lone.node.campaign()
    else:
        lone.node.step(TimeoutNow(2, 1, 0, 0))
    before = lone.role
    lone.work()

    assert before is Role.CANDIDATE
    assert (lone.role, lone.node.term, lone.node.leader) == (Role.LEADER, 1, 1)


@pytest.mark.conformance("R031")
@pytest.mark.parametrize(
    ("ticks", "chance"), [(9, 0.0), (10, 0.1), (13, 0.4), (15, 0.6), (18, 0.9), (19, 1.0)]
)
def test_r031_the_chance_that_a_timeout_has_passed_grows_evenly(ticks: int, chance: float) -> None:
    nodes = [Lone(seed=seed) for seed in range(2000)]

    passed = sum(bool(lone.tick(ticks)) for lone in nodes)

    assert passed / len(nodes) == pytest.approx(chance, abs=0.03)


# ---- Changing roles.


@pytest.mark.conformance("R040")
@pytest.mark.parametrize("role", Role)
def test_r040_anybody_becomes_a_follower_but_not_of_an_earlier_term(role: Role) -> None:
    lone = in_role(role, term=2)

    with pytest.raises(AssertionError, match="terms only rise"):
        become_follower(lone.raft, 1, 0)
    become_follower(lone.raft, 3, 2)

    assert (lone.role, lone.node.term, lone.node.leader) == (Role.FOLLOWER, 3, 2)
    assert (lone.raft.vote, lone.raft.leadership) == (0, None)


@pytest.mark.conformance("R040")
@pytest.mark.parametrize("role", Role)
def test_r040_anybody_but_a_leader_campaigns(role: Role) -> None:
    asking, standing = in_role(role, term=2), in_role(role, term=2)

    if role is Role.LEADER:
        for become, lone in ((become_pre_candidate, asking), (become_candidate, standing)):
            with pytest.raises(AssertionError, match="does not campaign"):
                become(lone.raft)
            assert (lone.role, lone.node.term, lone.node.leader) == (Role.LEADER, 2, 1)
        return
    voted = asking.raft.vote
    become_pre_candidate(asking.raft)
    become_candidate(standing.raft)

    assert (asking.role, asking.node.term, asking.node.leader) == (Role.PRE_CANDIDATE, 2, None)
    assert asking.raft.vote == voted
    assert (standing.role, standing.node.term, standing.node.leader) == (Role.CANDIDATE, 3, None)
    assert standing.raft.vote == 1


@pytest.mark.conformance("R040")
@pytest.mark.parametrize("role", Role)
def test_r040_only_a_candidate_becomes_a_leader(role: Role) -> None:
    lone = in_role(role, term=2)

    if role is not Role.CANDIDATE:
        with pytest.raises(AssertionError, match="only a candidate is elected"):
            become_leader(lone.raft)
        assert lone.role is role
        return
    become_leader(lone.raft)

    assert (lone.role, lone.node.term, lone.node.leader) == (Role.LEADER, 2, 1)


@pytest.mark.conformance("R040")
def test_r040_a_candidate_whose_own_vote_is_not_durable_cannot_become_a_leader() -> None:
    lone = Lone()
    lone.win_pre_vote()

    with pytest.raises(AssertionError, match="is durable"):
        become_leader(lone.raft)


@pytest.mark.conformance("R041")
@pytest.mark.parametrize("role", Role)
def test_r041_every_role_gives_way_and_learns_its_leader_from_an_append_only(role: Role) -> None:
    voting, following = in_role(role, term=2), in_role(role, term=2)

    voting.hear(vote_request(2, 3, forced=role is Role.LEADER))
    following.hear(append(2, 3))

    assert (voting.role, voting.node.term, voting.node.leader) == (Role.FOLLOWER, 3, None)
    assert (following.role, following.node.term, following.node.leader) == (Role.FOLLOWER, 3, 2)
    kept = 1 if role is Role.LEADER else 0
    assert len(voting.log) == len(following.log) == kept


@pytest.mark.conformance("R042")
def test_r042_a_lonely_candidate_follows_after_a_heartbeat() -> None:
    group = Group(3)
    group.isolate(3)
    stand_at_once(group, 3)
    group.settle()
    group.elect(1)
    assert (group.raft(3).role, group[3].term) == (Role.CANDIDATE, 1)

    group.heal()
    group.passes = lambda message: not isinstance(message, AppendRequest)
    group.tick(1)

    assert (group.raft(3).role, group[3].term, group[3].leader) == (Role.FOLLOWER, 1, 1)
    assert (group.leaders, group[1].term) == ([1], 1)


@pytest.mark.conformance("R043")
def test_r043_a_lonely_candidate_follows_after_an_append() -> None:
    group = Group(3)
    group.passes = lambda message: (
        3 not in (message.source, message.target)
        or isinstance(message, AppendRequest | AppendResponse)
    )
    stand_at_once(group, 3)
    group.work()
    assert (group.raft(3).role, group[3].term) == (Role.CANDIDATE, 1)

    group.elect(1)

    assert (group.raft(3).role, group[3].term, group[3].leader) == (Role.FOLLOWER, 1, 1)
    assert logs(group) == [[(1, 1)]] * 3


# ---- Answers that come too late.


@pytest.mark.conformance("R044")
def test_r044_an_own_vote_that_is_durable_after_the_election_counts_for_nothing() -> None:
    lone = Lone()
    lone.win_pre_vote()
    write = lone.node.ready().write
    assert write is not None
    assert not lone.raft.votes

    lone.node.step(heartbeat(2, 1))
    lone.storage.put(write)
    lone.node.stored(write.token)
    lone.hear(vote(3, 1))

    assert (lone.role, lone.node.term, lone.node.leader) == (Role.FOLLOWER, 1, 2)
    assert lone.raft.votes == {}
    assert lone.storage.hard_state.vote == 1, "it is remembered all the same"


@pytest.mark.conformance("R044")
def test_r044_an_own_vote_of_an_earlier_term_does_not_count_in_a_later_one() -> None:
    lone = Lone()
    lone.win_pre_vote()
    first = lone.node.ready().write
    lone.win_pre_vote()
    second = lone.node.ready().write
    assert first is not None
    assert second is not None
    assert (lone.role, lone.node.term) == (Role.CANDIDATE, 2)

    lone.node.step(vote(2, 2))
    lone.node.stored(first.token)
    early = (lone.role, dict(lone.raft.votes))
    lone.node.stored(second.token)

    assert early == (Role.CANDIDATE, {2: True})
    assert lone.role is Role.LEADER


@pytest.mark.conformance("R045")
def test_r045_answers_to_a_pre_vote_count_for_nothing_once_a_leader_is_known() -> None:
    lone = Lone(5)
    lone.node.campaign()
    lone.work()
    assert lone.raft.votes == {1: True}

    sent = lone.hear(heartbeat(2, 1), *(vote(peer, 2, pre=True) for peer in (3, 4, 5)))

    assert (lone.role, lone.node.term, lone.node.leader) == (Role.FOLLOWER, 1, 2)
    assert not [message for message in sent if isinstance(message, VoteRequest)]


@pytest.mark.conformance("R046")
def test_r046_an_answer_to_the_pre_vote_is_not_a_vote() -> None:
    lone = Lone(5)
    lone.node.campaign()
    for peer in (2, 3):
        lone.node.step(vote(peer, 1, pre=True))
    assert (lone.role, lone.raft.votes) == (Role.CANDIDATE, {})
    write = lone.node.ready().write
    assert write is not None

    for peer in (4, 5):
        lone.node.step(vote(peer, 1, pre=True))
        lone.node.step(vote(peer, 1))

    assert (lone.role, lone.raft.votes) == (Role.CANDIDATE, {4: True, 5: True})

    lone.storage.put(write)
    lone.node.stored(write.token)

    assert lone.role is Role.LEADER, "its own, durable vote makes three of five"


@pytest.mark.conformance("R046")
@pytest.mark.parametrize("term", [1, 2])
def test_r046_an_answer_that_comes_after_the_own_vote_counted_is_not_one_either(term: int) -> None:
    lone = Lone(3)
    lone.stand()

    lone.hear(vote(2, term, pre=True))

    assert (lone.role, lone.node.term, lone.raft.votes) == (Role.CANDIDATE, 1, {1: True})


@pytest.mark.conformance("R046")
def test_r046_a_late_vote_does_not_answer_the_pre_vote_that_follows() -> None:
    lone = Lone(3)
    lone.stand()
    lone.tick_until_it_asks()

    lone.hear(vote(2, 1))

    assert (lone.role, lone.node.term, lone.raft.votes) == (Role.PRE_CANDIDATE, 1, {1: True})


@pytest.mark.conformance("R046")
def test_r046_a_majority_without_the_own_vote_waits_for_it_to_be_durable() -> None:
    lone = Lone(3)
    lone.win_pre_vote()
    write = lone.node.ready().write
    assert write is not None

    lone.node.step(vote(2, 1))
    lone.node.step(vote(3, 1))
    early = lone.role
    lone.storage.put(write)
    lone.node.stored(write.token)

    assert (early, lone.role) == (Role.CANDIDATE, Role.LEADER)
    assert lone.log == [(1, 1)]
    lone.work()
    lone.hear(accept(2, 1, 1))
    assert [(entry.index, entry.term) for entry in lone.applied] == [(1, 1)]
