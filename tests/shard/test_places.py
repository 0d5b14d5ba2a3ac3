"""The group follows its place in the map: single steps, any of them, and whole lives."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.raft import Action, Change, Membership
from corvo.raft.membership import changed, members_of
from corvo.shard.membership import LAG_MAX, Follower, Group, Transfer, next_step
from tests.shard.places import BUGS, Placed, found_at, lives, planted
from tests.sim.bugs import Bug

READY = Follower(lag=0, is_active=True)
SLOW = Follower(lag=LAG_MAX + 1, is_active=True)
SILENT = Follower(lag=0, is_active=False)
FETCHING = Follower(lag=0, is_active=True, follows=False)


def group(voters: tuple[int, ...], learners: tuple[int, ...] = (), **states: Follower) -> Group:
    """Led by the first voter; `r4=SLOW` says how replica 4 is, and all others are ready."""
    told = {int(name[1:]): state for name, state in states.items()}
    followers = {it: told.get(it, READY) for it in (*voters, *learners)}
    membership = Membership(voters=tuple(sorted(voters)), learners=learners)
    return Group(voters[0], membership, followers, may_change=True)


def steps(change: object) -> list[tuple[Action, int]]:
    assert isinstance(change, Change)
    return [(step.action, step.replica) for step in change.steps]


def test_a_replacement_is_added_promoted_and_then_leads_to_the_end_of_the_other() -> None:
    place = (1, 2, 4)

    assert steps(next_step(group((1, 2, 3)), place)) == [(Action.ADD_LEARNER, 4)]
    assert steps(next_step(group((1, 2, 3), (4,)), place)) == [
        (Action.ADD_VOTER, 4),
        (Action.REMOVE, 3),
    ]
    assert next_step(group((1, 2, 4)), place) is None


@pytest.mark.parametrize("state", [SLOW, SILENT, FETCHING])
def test_a_replacement_that_is_not_ready_is_waited_for(state: Follower) -> None:
    assert next_step(group((1, 2, 3), (4,), r4=state), (1, 2, 4)) is None


def test_a_learner_that_nobody_wants_is_removed_at_once() -> None:
    step = next_step(group((1, 2, 3), (4, 5), r5=SLOW), (1, 2, 5))

    assert steps(step) == [(Action.REMOVE, 4)]


def test_a_leader_that_is_not_wanted_has_the_others_made_voters_hands_over_and_is_removed() -> None:
    place = (2, 3, 4)

    assert steps(next_step(group((1, 2, 3), (4,)), place)) == [(Action.ADD_VOTER, 4)]
    assert next_step(group((1, 2, 3, 4)), place) == Transfer(2, is_leaving=True)
    assert next_step(group((1, 2, 3, 4), r2=SLOW), place) == Transfer(3, is_leaving=True)
    assert steps(next_step(group((3, 1, 2, 4)), place)) == [(Action.REMOVE, 1)]


def test_the_first_of_the_place_is_to_lead_once_it_is_ready() -> None:
    assert next_step(group((1, 2, 3)), (2, 1, 3)) == Transfer(2, is_leaving=False)
    assert next_step(group((1, 2, 3), r2=SLOW), (2, 1, 3)) is None
    assert next_step(group((1, 2, 3), r2=SILENT), (2, 1, 3)) is None


def test_nobody_is_removed_while_the_others_could_not_go_on() -> None:
    assert next_step(group((1, 2, 3), r2=SILENT), (1, 2)) is None
    assert steps(next_step(group((1, 2, 3), r3=SILENT), (1, 2))) == [(Action.REMOVE, 3)]


def test_nothing_is_done_while_a_change_is_under_way() -> None:
    membership = Membership(voters=(1, 2), outgoing=(1, 2, 3))
    joint = Group(1, membership, {}, may_change=True)
    early = Group(1, Membership(voters=(1, 2, 3)), {}, may_change=False)

    assert next_step(joint, (1, 2, 4)) is None
    assert next_step(early, (1, 2, 4)) is None


# Any group, and any place.

NODES = st.integers(1, 6)
FOLLOWERS = st.builds(
    Follower,
    lag=st.sampled_from([0, LAG_MAX, LAG_MAX + 1]),
    is_active=st.booleans(),
    follows=st.booleans(),
)
PLACES = st.lists(NODES, min_size=1, max_size=5, unique=True).map(tuple)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    voters = draw(st.lists(NODES, min_size=1, max_size=5, unique=True))
    learners = draw(st.lists(NODES.filter(lambda it: it not in voters), max_size=3, unique=True))
    followers = {it: draw(FOLLOWERS) for it in (*voters[1:], *learners)}
    membership = Membership(voters=tuple(sorted(voters)), learners=tuple(sorted(learners)))
    return Group(voters[0], membership, followers, may_change=True)


def distance(voters: set[int], learners: set[int], place: tuple[int, ...]) -> int:
    """How many replicas are not what they should be."""
    wanted = {*place}
    return len(wanted ^ voters) * 2 + len(learners - wanted) - len(learners & wanted)


@given(groups(), PLACES)
def test_each_step_is_allowed_and_leads_nearer(found: Group, place: tuple[int, ...]) -> None:
    step = next_step(found, place)
    if isinstance(step, Transfer):
        assert step.heir in place
        assert step.heir in found.membership.voters
        assert found.followers[step.heir].is_ready
        assert step.is_leaving == (found.own not in place)
    elif step is not None:
        check_change(found, step, place)


def check_change(found: Group, change: Change, place: tuple[int, ...]) -> None:
    entered = changed(found.membership, change)
    left = changed(entered, Change())
    before, after = {*found.membership.voters}, {*left.voters}
    active = {found.own, *(it for it, each in found.followers.items() if each.is_active)}
    assert found.own in after
    assert len(after) >= min(len(before), len({*place}))
    assert 2 * len(after & active) > len(after)
    assert all(found.followers[new].is_ready for new in after - before)
    assert distance(after, {*left.learners}, place) < distance(
        before, {*found.membership.learners}, place
    )


@given(groups(), PLACES)
def test_a_healthy_group_arrives_wherever_it_begins(found: Group, place: tuple[int, ...]) -> None:
    membership, own = found.membership, found.own
    for _ in range(5):
        healthy: Mapping[int, Follower] = dict.fromkeys(members_of(membership), READY)
        step = next_step(Group(own, membership, healthy, may_change=True), place)
        if isinstance(step, Transfer):
            own = step.heir
        elif step is not None:
            membership = changed(changed(membership, step), Change())

    assert membership == Membership(voters=tuple(sorted(place)))
    assert own == place[0]


# Whole lives.


def test_a_group_moves_to_other_nodes_and_back_and_keeps_what_it_has() -> None:
    placed = Placed(1, 2, 3)

    for place in ((4, 5, 6), (4,), (3, 1, 2)):
        placed.newest = place
        for node in (*place, *placed.storages):
            placed.tell(node, place)
        placed.tick_until_there()

    assert placed.leader == 3
    assert {*placed.replicas[3].node.membership.voters} == {1, 2, 3}


@pytest.mark.parametrize("first", range(1, 201, 25))
def test_any_sequence_of_maps_leads_to_the_last_one(first: int) -> None:
    with planted():
        taken, acknowledged = lives(range(first, first + 25))

    assert taken > 25
    assert acknowledged > 250


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert found_at(bug, range(bug.seed, bug.seed + 20)) is not None
