"""Groups under load and in bad weather, each story with ten seeds.

After each, in good weather: equal logs, equal applied sequences, every acknowledged proposal
present. Through all of it: one sender of appends in a term (see `tests.raft.weather`).
"""

import pytest

from corvo.raft import AnyMessage
from corvo.raft.membership import Action
from corvo.raft.messages import VoteRequest, VoteResponse
from tests.raft.weather import Weather, assert_all_is_well

seeds = pytest.mark.parametrize("seed", range(10))


@seeds
@pytest.mark.conformance("H01")
def test_h01_a_group_under_load_agrees(seed: int) -> None:
    weather = Weather(5, seed)

    weather.wait_for_leader()
    weather.run(100)

    assert_all_is_well(weather)
    assert len(weather.acknowledged) > 50


@seeds
@pytest.mark.conformance("H02")
def test_h02_a_group_survives_leaders_cut_off_with_a_peer_again_and_again(seed: int) -> None:
    weather = Weather(5, seed)
    terms = []

    for _ in range(5):
        leader = weather.wait_for_leader()
        terms.append(weather.group[leader].term)
        others = [replica for replica in range(1, 6) if replica != leader]
        minority = {leader, weather.random.choice(others)}
        for one in minority:
            for other in {1, 2, 3, 4, 5} - minority:
                weather.group.cut(one, other)
        weather.run(60)
        weather.group.heal()
        weather.run(10)

    assert_all_is_well(weather)
    assert terms == sorted(set(terms)), "each time a new term began"


@seeds
@pytest.mark.conformance("H03")
def test_h03_questions_for_votes_that_are_late_do_not_hold_up_an_election(seed: int) -> None:
    weather = Weather(5, seed)
    weather.extra_late = lambda message: _up_to(weather, message, VoteRequest)

    terms = _terms_of_leaders_cut_off(weather)

    assert_all_is_well(weather)
    assert terms == sorted(set(terms)), "each time a new term began"


@seeds
@pytest.mark.conformance("H04")
def test_h04_votes_that_are_late_do_not_elect_two(seed: int) -> None:
    weather = Weather(5, seed)
    weather.extra_late = lambda message: _up_to(weather, message, VoteResponse)

    terms = _terms_of_leaders_cut_off(weather)

    assert_all_is_well(weather)
    assert terms == sorted(set(terms)), "each time a new term began"


def _terms_of_leaders_cut_off(weather: Weather) -> list[int]:
    """Three times, cut off whoever leads for long enough that others elect another."""
    terms = []
    for _ in range(3):
        leader = weather.wait_for_leader()
        terms.append(weather.group[leader].term)
        weather.group.isolate(leader)
        weather.run(40)
        weather.group.heal()
    terms.append(weather.group[weather.wait_for_leader()].term)
    return terms


def _up_to(weather: Weather, message: AnyMessage, late: type[VoteRequest | VoteResponse]) -> int:
    """Half an election timeout, at most, for messages of that sort."""
    return weather.random.randint(0, 5) if isinstance(message, late) else 0


@seeds
@pytest.mark.conformance("H05")
def test_h05_two_members_are_added_under_load(seed: int) -> None:
    weather = Weather(3, seed)
    weather.wait_for_leader()
    weather.run(30)

    for newcomer in (4, 5):
        weather.group.start(newcomer)
        weather.change(Action.ADD_LEARNER, newcomer)
        weather.change(Action.ADD_VOTER, newcomer)
        weather.run(10)

    assert_all_is_well(weather)
    assert weather.group[1].membership.voters == (1, 2, 3, 4, 5)


@seeds
@pytest.mark.conformance("H06")
def test_h06_two_followers_are_removed_under_load(seed: int) -> None:
    weather = Weather(5, seed)
    leader = weather.wait_for_leader()
    weather.run(30)
    first, second = [replica for replica in range(1, 6) if replica != leader][:2]

    weather.change(Action.REMOVE, first)
    weather.run(10)
    weather.change(Action.REMOVE, second)
    weather.run(60)

    assert_all_is_well(weather)
    assert weather.clear_up() == sorted({1, 2, 3, 4, 5} - {first, second})


@seeds
@pytest.mark.conformance("H07")
def test_h07_the_leader_is_removed_under_load_and_another_goes_on(seed: int) -> None:
    weather = Weather(5, seed)
    leader = weather.wait_for_leader()
    weather.run(30)

    weather.change(Action.REMOVE, leader)
    weather.run_until(lambda: not weather.group[leader].is_leader)
    done = len(weather.acknowledged)
    weather.wait_for_leader()
    weather.run(60)

    assert_all_is_well(weather)
    assert leader not in weather.clear_up()
    assert not weather.group[leader].is_leader
    assert len(weather.acknowledged) > done, "the new leader takes proposals"


@seeds
@pytest.mark.conformance("H08")
def test_h08_a_member_removed_while_it_was_cut_off_disturbs_nobody(seed: int) -> None:
    weather = Weather(5, seed)
    leader = weather.wait_for_leader()
    weather.run(30)
    gone = next(replica for replica in range(1, 6) if replica != leader)

    weather.group.isolate(gone)
    weather.change(Action.REMOVE, gone)
    weather.run(60)
    remaining = weather.clear_up()
    before = [(weather.group[replica].leader, weather.group[replica].term) for replica in remaining]
    weather.run(100)

    assert_all_is_well(weather)
    after = [(weather.group[replica].leader, weather.group[replica].term) for replica in remaining]
    assert gone not in remaining
    assert after == before, "the one that is gone asks for votes in vain"


@seeds
@pytest.mark.conformance("H09")
def test_h09_leadership_is_handed_over_under_load(seed: int) -> None:
    weather = Weather(5, seed, loss=0.02, rounds_late=1)
    handed_over = 0

    for _ in range(6):
        leader = weather.wait_for_leader()
        heir = weather.random.choice([other for other in range(1, 6) if other != leader])
        weather.group[leader].transfer(heir)
        weather.run(25)
        handed_over += weather.leader == heir

    assert_all_is_well(weather)
    assert handed_over >= 4, "late mail may spoil a transfer, but not many"
