"""The nemesis draws faults from a seed, and combines them so that the cluster can survive."""

from chaos.faults import all_faults
from chaos.faults.fault import Case, Fault, Harm
from chaos.nemesis import AHEAD, OVERLAP, OVERTAKEN, Active, Planned, Upcoming, may_start, plan

FAULTS = all_faults()


def lasting(name: str, *nodes: str) -> Active:
    return Active(fault=FAULTS[name], case=Case(nodes=list(nodes)), t=0)


def of_harm(harm: Harm) -> Fault:
    return next(fault for fault in FAULTS.values() if fault.harm is harm)


def test_a_seed_draws_the_same_faults_again_and_another_seed_others() -> None:
    first = plan("1", 600, FAULTS.values())

    assert plan("1", 600, list(reversed(list(FAULTS.values())))) == first
    assert plan("2", 600, FAULTS.values()) != first


def test_a_long_plan_has_every_fault_within_the_time_and_as_long_as_it_may_last() -> None:
    planned = plan("1", 9_000, FAULTS.values())

    assert {each.name for each in planned} == set(FAULTS)
    assert 8_900 < sum(each.gap_s for each in planned) < 9_100
    for each in planned:
        shortest, longest = FAULTS[each.name].seconds
        assert shortest - 0.01 <= each.seconds <= longest + 0.01
    assert [each.n for each in planned] == list(range(1, len(planned) + 1))


def test_a_plan_without_faults_is_empty() -> None:
    assert plan("1", 600, []) == []


def test_one_of_three_nodes_may_be_out_and_no_second_one() -> None:
    kill = FAULTS["kill-node"]

    assert may_start(kill, [], members=3)
    assert not may_start(kill, [lasting("kill-shard", "a")], members=3)
    assert may_start(kill, [lasting("kill-shard", "a")], members=5)
    assert not may_start(kill, [lasting("kill-shard", "a"), lasting("kill-node", "b")], members=5)


def test_a_node_that_is_alone_may_be_out() -> None:
    assert may_start(FAULTS["kill-node"], [], members=1)
    assert not may_start(FAULTS["isolate-node"], [], members=1)


def test_a_fault_that_takes_the_majority_stands_alone() -> None:
    everything = FAULTS["kill-all"]

    assert may_start(everything, [], members=3)
    assert not may_start(everything, [lasting("lost-answers", "a")], members=3)
    assert not may_start(FAULTS["lost-answers"], [lasting("kill-all", "a", "b", "c")], members=3)


def test_two_faults_of_the_network_do_not_last_at_once() -> None:
    one = lasting("lost-answers", "a")

    assert not may_start(FAULTS["lost-answers"], [one], members=3)


def test_the_number_of_faults_at_once_is_limited() -> None:
    many = [lasting("lost-answers", "a") for _ in range(OVERLAP)]

    assert not may_start(of_harm(Harm.NODE), many, members=9)


def names(upcoming: Upcoming, possible: str) -> list[str]:
    """The faults that are made one after another if only those of some names can be made."""

    def make(planned: Planned) -> str | None:
        return planned.name if planned.name in possible else None

    made = []
    while (name := upcoming.take(make)) is not None:
        made.append(name)
    return made


def planned(names: str) -> list[Planned]:
    return [Planned(n, 0.5, name, 1.0) for n, name in enumerate(names, start=1)]


def test_a_fault_that_cannot_be_made_yet_lets_later_ones_go_first_so_often() -> None:
    upcoming = Upcoming(planned("xabcdefgh"))

    assert names(upcoming, "abcdefgh") == list("abcdefgh")[:OVERTAKEN]
    assert names(upcoming, "xefgh") == list("xefgh")
    assert not upcoming


def test_faults_far_ahead_are_not_made_before_their_time() -> None:
    upcoming = Upcoming(planned("x" * AHEAD + "a"))

    assert names(upcoming, "a") == []
    assert upcoming


def test_every_fault_says_what_it_does_and_lasts_some_time() -> None:
    for fault in FAULTS.values():
        assert fault.what
        assert fault.weight > 0
        assert 0 <= fault.seconds[0] <= fault.seconds[1]
