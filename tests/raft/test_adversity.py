"""Adversity: mail that comes again, networks with holes, leaders that sleep, clocks that burst.

The ids are of the conformance list: X08, X11, X12, X32.
"""

from collections.abc import Iterable
from itertools import combinations, pairwise, permutations

import pytest

from corvo.raft import Change, Entry, Kind, NotLeader, Role
from corvo.raft.messages import AppendRequest, AppendResponse
from tests.raft.changing import learn
from tests.raft.group import Group, with_log
from tests.raft.weather import Weather, assert_all_is_well

seeds = pytest.mark.parametrize("seed", range(10))

few_seeds = pytest.mark.parametrize("seed", range(4))

TIMEOUT_MAX = 20  # ticks: the longest of the default election timeouts


def log_of(group: Group, replica: int) -> list[Entry]:
    """What is on its disk, from the first entry on."""
    storage = group.storages[replica]
    return storage.entries(1, storage.last_index, 1 << 30)


# X08: old appends again.


@pytest.mark.conformance("X08")
def test_x08_an_old_append_again_does_not_cut_what_came_after_it() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a")
    old = next(
        message
        for message in group.delivered
        if isinstance(message, AppendRequest) and message.target == 2 and message.entries
    )
    group.propose(1, b"b", b"c")
    before = group[2].statistics()

    group[2].step(old)
    ready = group.ready(2)

    assert old.entries[-1].index == 1
    assert ready.write is None, "nothing is rewritten"
    assert ready.messages == (AppendResponse(2, 1, 1, 0, index=4, commit=4),)
    assert group[2].statistics() == before


@pytest.mark.conformance("X08")
def test_x08_an_old_append_again_does_not_cut_an_uncommitted_tail() -> None:
    group = Group(3)
    group.elect(1)
    group.passes = lambda message: not isinstance(message, AppendResponse)
    group.propose(1, b"a")
    old = next(
        message
        for message in reversed(group.delivered)
        if isinstance(message, AppendRequest) and message.target == 2 and message.entries
    )
    group.propose(1, b"b", b"c")

    group[2].step(old)
    ready = group.ready(2)

    assert ready.write is None
    assert ready.messages == (AppendResponse(2, 1, 1, 0, index=2, commit=1),)
    assert [entry.data for entry in log_of(group, 2)] == [b"", b"a", b"b", b"c"]


@pytest.mark.conformance("X08")
def test_x08_an_append_of_a_leader_of_the_past_changes_nothing() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a")
    group.elect(2)
    group.propose(2, b"b")
    late = AppendRequest(1, 3, 1, 0, 2, 1, (Entry(3, 1, Kind.NORMAL, b"late"),), 2)
    log = log_of(group, 3)

    group[3].step(late)
    ready = group.ready(3)

    assert ready.write is None
    assert ready.messages == (AppendResponse(3, 1, 2, 0, index=0),)
    assert log_of(group, 3) == log


@seeds
@pytest.mark.conformance("X08")
def test_x08_every_append_of_a_run_again_in_any_order_changes_no_log(seed: int) -> None:
    weather = Weather(3, seed)
    weather.wait_for_leader()
    for _ in range(2):
        weather.run(30)
        weather.group.isolate(weather.wait_for_leader())
        weather.run(40)
        weather.group.heal()
    weather.clear_up()
    group = weather.group
    group.slow_disks = set()
    appends = [message for message in group.delivered if isinstance(message, AppendRequest)]
    weather.random.shuffle(appends)
    before = [log_of(group, replica) for replica in (1, 2, 3)]

    for append in appends:
        group[append.target].step(append)
    group.settle()

    assert len(appends) > 50
    assert [log_of(group, replica) for replica in (1, 2, 3)] == before
    assert_all_is_well(weather)


# X11: networks with holes. A link is two one-way links unless it says otherwise.


def chain(*replicas: int) -> set[tuple[int, int]]:
    """Each is linked to the one before and the one behind."""
    forth = {*pairwise(replicas)}
    return forth | {(target, source) for source, target in forth}


def ring(*replicas: int) -> set[tuple[int, int]]:
    """A chain whose ends are linked."""
    return chain(*replicas, replicas[0])


def mesh(*replicas: int) -> set[tuple[int, int]]:
    """Each is linked to each."""
    return {*permutations(replicas, 2)}


def leave_only(weather: Weather, links: Iterable[tuple[int, int]]) -> None:
    """Cut every link but these."""
    weather.group.cut_links = {*permutations(weather.group.nodes, 2)} - {*links}


def calm(size: int, seed: int) -> Weather:
    """Mail that takes up to two rounds, and is not lost."""
    weather = Weather(size, seed, loss=0, doubling=0, rounds_late=1, slow_disks=False)
    weather.is_busy = weather.is_reading = False
    return weather


def leaders_of(weather: Weather, rounds: int) -> list[tuple[int, int]]:
    """(term, leader) of each leadership seen in so many rounds."""
    seen: set[tuple[int, int]] = set()
    for _ in range(rounds):
        weather.round()
        seen |= {(weather.group[leader].term, leader) for leader in weather.group.leaders}
    return sorted(seen)


TOPOLOGIES = {
    "a chain of three": chain(1, 2, 3),
    "a chain of five": chain(1, 2, 3, 4, 5),
    "a ring of five": ring(1, 2, 3, 4, 5),
    "one linked to a single other": mesh(2, 3, 4, 5) | chain(1, 2),
    "a hub of five": chain(1, 3, 2) | chain(4, 3, 5),
    "one that hears and is not heard": mesh(2, 3, 4, 5) | {(other, 1) for other in (2, 3, 4, 5)},
    "one that is heard and does not hear": mesh(2, 3, 4, 5)
    | {(1, other) for other in (2, 3, 4, 5)},
    "a one-way ring between neighbours": mesh(1, 2, 3, 4, 5)
    - {(1, 2), (2, 3), (3, 4), (4, 5), (5, 1)},
    "two meshes that share one": mesh(1, 2, 3) | mesh(3, 4, 5),
}
SIZES = {name: max(max(link) for link in links) for name, links in TOPOLOGIES.items()}


@few_seeds
@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.conformance("X11")
def test_x11_a_new_group_finds_one_leader_and_keeps_it(name: str, seed: int) -> None:
    weather = calm(SIZES[name], seed)
    leave_only(weather, TOPOLOGIES[name])

    first = leaders_of(weather, 20 * TIMEOUT_MAX)
    later = leaders_of(weather, 10 * TIMEOUT_MAX)

    assert first, "somebody leads within twenty timeouts"
    assert later == first[-1:], "and goes on leading"


@few_seeds
@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.conformance("X11")
def test_x11_a_group_that_worked_has_one_leader_soon_after_links_fail(name: str, seed: int) -> None:
    weather = calm(SIZES[name], seed)
    leader = weather.wait_for_leader()
    weather.clear_up()
    leave_only(weather, TOPOLOGIES[name])

    first = leaders_of(weather, 20 * TIMEOUT_MAX)
    later = leaders_of(weather, 10 * TIMEOUT_MAX)

    assert len(first) <= 3, f"flapping: {first}, after {leader}"
    assert later == first[-1:]


@few_seeds
@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.conformance("X11")
def test_x11_whoever_leads_in_a_broken_network_gets_work_done(name: str, seed: int) -> None:
    weather = calm(SIZES[name], seed)
    leave_only(weather, TOPOLOGIES[name])
    weather.wait_for_leader()

    weather.is_busy = True
    weather.run(60)

    assert len(weather.acknowledged) > 20
    assert_all_is_well(weather)


@seeds
@pytest.mark.conformance("X11")
def test_x11_a_leader_that_sees_only_one_other_is_replaced(seed: int) -> None:
    weather = calm(5, seed)
    old = weather.wait_for_leader()
    weather.clear_up()
    others = [replica for replica in range(1, 6) if replica != old]
    leave_only(weather, mesh(*others) | chain(old, others[0]))

    leaders = leaders_of(weather, 20 * TIMEOUT_MAX)

    assert [leader for _, leader in leaders if leader != old] == [weather.leader]
    assert not weather.group[old].is_leader
    assert leaders_of(weather, 20 * TIMEOUT_MAX) == leaders[-1:], "and stays so"


@seeds
@pytest.mark.conformance("X11")
def test_x11_without_an_electable_majority_everybody_says_so(seed: int) -> None:
    # Only 3 sees a majority, and everybody else has an entry that 3 lacks: nobody can be elected.
    group = Group(5).membership
    storages = {replica: with_log(group, [1, 1], term=1) for replica in (1, 2, 4, 5)}
    storages[3] = with_log(group, [1], term=1)
    weather = calm(5, seed)
    weather.group = Group(5, seed=seed, storages=storages)
    leave_only(weather, chain(1, 3, 2) | chain(4, 3, 5))

    leaders = leaders_of(weather, 20 * TIMEOUT_MAX)

    assert leaders == []
    assert {weather.group[replica].term for replica in range(1, 6)} == {1}, "nobody is disturbed"
    for replica in range(1, 6):
        with pytest.raises(NotLeader) as refusal:
            weather.group[replica].propose(b"x")
        assert refusal.value.leader is None


# X12: a leader that sleeps.


@seeds
@pytest.mark.conformance("X12")
def test_x12_a_leader_that_slept_answers_no_stale_read(seed: int) -> None:
    weather = Weather(5, seed, rounds_late=2)

    for _ in range(5):
        leader = weather.wait_for_leader()
        weather.run(10)
        weather.read(leader)
        weather.group.work(leader)
        weather.pause(leader)
        weather.run(100)
        # Its driver serves requests before it looks at the mail and the time.
        weather.read(leader)
        weather.group.work(leader)
        missed = weather.resume(leader)
        weather.read(leader)
        assert missed == 100
        weather.run(20)

    assert weather.reads_answered > 100
    assert_all_is_well(weather)


@seeds
@pytest.mark.conformance("X12")
def test_x12_sleeps_of_any_length_at_any_replica_let_no_stale_read_through(seed: int) -> None:
    weather = Weather(3, seed)

    for _ in range(20):
        replica = weather.random.randint(1, 3)
        weather.pause(replica)
        weather.run(weather.random.randint(1, 40))
        weather.read(replica)
        weather.group.work(replica)
        weather.resume(replica)
        weather.read(replica)
        weather.run(10)

    assert weather.reads_answered > 50
    assert_all_is_well(weather)


@pytest.mark.conformance("X12")
def test_x12_a_leader_that_slept_loses_its_reads_before_it_serves_again() -> None:
    group = Group(3)
    leader = group.elect(1)
    asked = leader.read_index()
    group.work(1)
    group.isolate(1)
    group.deliver()
    group.elect(2)

    leader.tick(missed=100)
    ready = group.ready(1)

    assert (ready.reads, ready.reads_lost) == ((), (asked,))
    with pytest.raises(NotLeader):
        leader.read_index()


# X32: ticks that come in a burst.


@pytest.mark.conformance("X32")
def test_x32_missed_ticks_count_as_one_for_a_follower() -> None:
    group = Group(3)
    group.elect(1)
    before = group[2].statistics()

    for _ in range(5):
        group[2].tick(missed=1000)

    assert group[2].statistics() == before
    assert not group.ready(2)
    assert group.raft(2).elapsed == 5


@pytest.mark.conformance("X32")
def test_x32_a_leader_goes_on_after_a_short_stall_and_steps_down_after_a_long_one() -> None:
    group = Group(3)
    leader = group.elect(1)

    leader.tick(missed=9)
    after_short = leader.is_leader
    group.settle()
    leader.tick(missed=10)

    assert after_short
    assert leader.statistics().role is Role.FOLLOWER
    assert leader.leader is None


@pytest.mark.conformance("X32")
def test_x32_a_leader_that_alone_votes_goes_on_after_any_stall() -> None:
    group = Group(1)
    leader = group.elect(1)
    term = leader.term

    leader.tick(missed=1_000)
    group.propose(1, b"after the stall")

    assert (leader.is_leader, leader.term) == (True, term)
    assert group.normal(1) == [b"after the stall"]


@pytest.mark.conformance("X32")
def test_x32_a_leader_that_alone_votes_steps_down_after_a_stall_within_a_change() -> None:
    group = Group(1)
    leader = group.elect(1)
    leader.propose_change(Change((learn(2),)))

    leader.tick(missed=1_000)

    assert not leader.is_leader


@pytest.mark.parametrize("replica", [1, 2, 3])
@pytest.mark.conformance("X32")
def test_x32_a_burst_of_plain_ticks_at_one_replica_moves_no_term(replica: int) -> None:
    group = Group(3)
    group.elect(1)

    for _ in range(9):
        group[replica].tick()
    for other in {1, 2, 3} - {replica}:
        group[other].tick()
    for _ in range(50):
        group[replica].tick()
    group.settle()
    group.tick(times=3)

    # The leader may have lost heart, since nobody answered between two checks; a follower may have
    # asked for votes. Neither was an election.
    assert {group[each].term for each in (1, 2, 3)} == {1}
    assert group.leaders == ([] if replica == 1 else [1])


@seeds
@pytest.mark.conformance("X32")
def test_x32_stalls_in_turn_do_not_depose_a_leader_that_stands_still_for_less(seed: int) -> None:
    weather = Weather(3, seed, loss=0, doubling=0, rounds_late=0, slow_disks=False)
    leader = weather.wait_for_leader()
    weather.clear_up()
    term = weather.group[leader].term

    for replica in (1, 2, 3) * 5:
        weather.pause(replica)
        # A follower may sleep for ever; a leader for less than the shortest timeout of the others.
        weather.run(8 if replica == leader else 80)
        weather.resume(replica)
        weather.run(3)

    assert [(leader, term)] == [(weather.leader, weather.group[leader].term)]


def test_the_topologies_are_what_their_names_say() -> None:
    assert chain(1, 2, 3) == {(1, 2), (2, 1), (2, 3), (3, 2)}
    assert ring(1, 2, 3) == mesh(1, 2, 3)
    assert len(mesh(1, 2, 3, 4)) == 2 * len([*combinations(range(4), 2)])
