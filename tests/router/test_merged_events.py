"""Events of a cluster: what several routers have observed of one history, each change once."""

from collections.abc import Sequence
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.protocol.cluster import ClusterMap
from corvo.protocol.routers import ClusterEvent
from corvo.router.cluster.merged_events import TOGETHER_NS, merged
from corvo.router.history import EVENTS_MAX, History, Leadership, Members, Observed
from tests.router.clusters import MAP, with_node

NOW_NS: Final = 1_771_581_605_250_000_000
SECOND: Final = 1_000_000_000
BEGIN: Final = Observed(MAP)


class Router:
    """A router that observes."""

    def __init__(self, node: int, began: Observed = BEGIN, now_ns: int = NOW_NS) -> None:
        self.history: Final = History(began, now_ns, node=node)

    def see(self, observed: Observed, now_ns: int) -> None:
        self.history.observe(observed, now_ns)

    @property
    def events(self) -> list[ClusterEvent]:
        return self.history.kept(0)


def whole(*routers: Router) -> list[ClusterEvent]:
    return merged([router.events for router in routers])


def shown(events: Sequence[ClusterEvent]) -> list[tuple[str, int | None, int | None, int | None]]:
    return [(each.type, each.shard, each.node, each.term) for each in events]


def led(node: int | None, term: int) -> Observed:
    return replace(BEGIN, leaders={0: Leadership(node, term)})


def drained(version: int, *, is_draining: bool) -> Observed:
    return Observed(replace(with_node(MAP, 2, is_draining=is_draining), version=version))


def reached(*, is_up: bool) -> Observed:
    return replace(BEGIN, reachable={3: is_up})


# One change.


def test_an_election_that_three_routers_saw_is_one_event_of_the_first() -> None:
    routers = [Router(node) for node in (1, 2, 3)]
    for number, router in enumerate(routers):
        router.see(led(1, 7), NOW_NS + (3 - number) * SECOND)

    [event] = whole(*routers)

    assert (event.type, event.shard, event.node, event.term) == ("leader_elected", 0, 1, 7)
    assert event.at_ns == NOW_NS + SECOND
    assert event.seq % 1_000 == 3


def test_an_election_is_one_event_however_late_a_restarted_router_sees_it() -> None:
    first, restarted = Router(1), Router(2)
    first.see(led(1, 7), NOW_NS)
    restarted.see(led(1, 7), NOW_NS + 3_600 * SECOND)

    assert whole(first, restarted) == first.events


def test_a_leader_that_can_be_reached_again_is_no_election() -> None:
    router = Router(1)
    steps = [led(1, 7), led(None, 0), led(1, 7), led(None, 0), led(2, 8)]
    for number, observed in enumerate(steps):
        router.see(observed, NOW_NS + number * SECOND)

    assert shown(whole(router)) == [
        ("leader_elected", 0, 1, 7),
        ("leader_lost", 0, 1, 7),
        ("leader_reachable", 0, 1, 7),
        ("leader_lost", 0, 1, 7),
        ("leader_elected", 0, 2, 8),
    ]


def test_two_changes_that_one_router_saw_as_one_are_two() -> None:
    every, late = Router(1), Router(2)
    for version in (1, 2, 3):
        every.see(drained(version, is_draining=version != 2), NOW_NS + version * SECOND)
    late.see(drained(3, is_draining=True), NOW_NS)

    assert shown(whole(late, every)) == [
        ("node_draining", None, 2, None),
        ("node_undrained", None, 2, None),
        ("node_draining", None, 2, None),
    ]
    assert whole(late, every) == every.events


def test_a_change_of_the_map_is_one_event_for_a_router_that_was_cut_off() -> None:
    at_once, cut_off = Router(1), Router(2)
    at_once.see(drained(4, is_draining=True), NOW_NS)
    cut_off.see(drained(9, is_draining=True), NOW_NS + 3_600 * SECOND)

    assert whole(at_once, cut_off) == at_once.events


def group(voters: set[int], index: int) -> Observed:
    everybody = frozenset(voters)
    return replace(BEGIN, members={0: Members(everybody, everybody, index)})


def test_a_change_of_a_group_is_one_event_though_replicas_are_looked_at_in_turns() -> None:
    first = Router(1, group({1, 2}, 10))
    second = Router(2, group({1, 2}, 12))
    first.see(group({1, 2, 3}, 20), NOW_NS)
    second.see(group({1, 2, 3}, 22), NOW_NS + 9 * SECOND)
    later = group({1, 2}, 40)
    first.see(later, NOW_NS + 20 * SECOND)
    first.see(group({1, 2, 3}, 60), NOW_NS + 40 * SECOND)

    assert [each.type for each in whole(first, second)] == [
        "replica_added",
        "replica_promoted",
        "replica_removed",
        "replica_added",
        "replica_promoted",
    ]


def test_a_lost_connection_is_one_event_for_routers_that_notice_it_together() -> None:
    first, second, later = (Router(node, reached(is_up=True)) for node in (1, 2, 4))
    first.see(reached(is_up=False), NOW_NS)
    second.see(reached(is_up=False), NOW_NS + TOGETHER_NS)
    later.see(reached(is_up=False), NOW_NS + TOGETHER_NS + 1)

    assert whole(first, second) == first.events
    assert whole(first, second, later) == first.events + later.events


def test_what_one_router_sees_twice_happened_twice() -> None:
    routers = [Router(node, reached(is_up=True)) for node in (1, 2)]
    for step in range(4):
        for late, router in enumerate(routers):
            router.see(reached(is_up=step % 2 == 1), NOW_NS + (step * 3 + late) * SECOND // 10)

    assert whole(*routers) == routers[0].events


def test_numbers_of_two_routers_differ_also_at_one_moment() -> None:
    first, second = Router(1), Router(2)
    first.see(led(1, 7), NOW_NS)
    second.see(replace(BEGIN, leaders={1: Leadership(2, 3)}), NOW_NS)

    assert len({each.seq for each in whole(first, second)}) == 2


def test_the_most_events_that_are_kept_are_put_together_at_once() -> None:
    """No step of the search for an event is as long as the list."""
    routers = [Router(node) for node in (1, 2, 3)]
    for term in range(1, EVENTS_MAX + 1):
        for router in routers:
            router.see(led(1, term), NOW_NS)

    assert len(whole(*routers)) == EVENTS_MAX


# A whole history, and routers that see more or less of it.


class Truth:
    """A cluster over time: at each step it is otherwise in one way."""

    def __init__(self, steps: Sequence[int]) -> None:
        known: ClusterMap = MAP
        leader, term, index = 1, 1, 10
        voters = {1, 2}
        self.moments = [self._moment(known, leader, term, voters, index)]
        for step in steps:
            index += 1
            if step == 0:
                leader, term = leader % 3 + 1, term + 1
            elif step == 1:
                voters = voters ^ {3}
            else:
                node = known.node(step)
                assert node is not None
                draining = with_node(known, step, is_draining=not node.is_draining)
                known = replace(draining, version=known.version + 1)
            self.moments.append(self._moment(known, leader, term, voters, index))

    @staticmethod
    def _moment(
        known: ClusterMap, leader: int, term: int, voters: set[int], index: int
    ) -> Observed:
        members = {0: Members(frozenset(voters), frozenset(voters), index)}
        return Observed(known, leaders={0: Leadership(leader, term)}, members=members)


STEPS: Final = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=12)


def overlap(one: ClusterEvent, other: ClusterEvent) -> bool:
    assert one.span is not None
    assert other.span is not None
    is_alike = (one.type, one.shard, one.node, one.term) == (
        (other.type, other.shard, other.node, other.term)
    )
    return is_alike and max(one.span[0], other.span[0]) < min(one.span[1], other.span[1])


@given(STEPS, st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=3), st.integers(0, 100))
def test_with_one_router_that_saw_all_the_others_change_nothing(
    steps: list[int], looks: list[list[int]], late_s: int
) -> None:
    """The others begin at any time, and look at a few moments, later than the first one."""
    truth = Truth(steps).moments
    whole_time = Router(1, truth[0])
    for number, moment in enumerate(truth):
        whole_time.see(moment, NOW_NS + number * SECOND)
    others = []
    for node, seen in enumerate(looks, start=2):
        moments = [number for number in sorted(seen) if number < len(truth)]
        other = Router(node, replace(truth[moments[0]], leaders={}) if moments else BEGIN)
        for number in moments:
            other.see(truth[number], NOW_NS + (number + late_s) * SECOND + 1_000_000)
        others.append(other)

    found = whole(*others, whole_time)

    ours = [each for each in whole_time.events if each.term != 1]
    assert [each for each in found if each.term != 1] == ours


@given(STEPS, st.lists(st.lists(st.integers(0, 12), max_size=8), min_size=1, max_size=4))
def test_every_observation_is_told_of_by_one_event(
    steps: list[int], looks: list[list[int]]
) -> None:
    truth = Truth(steps).moments
    routers = []
    for node, seen in enumerate(looks, start=1):
        moments = [number for number in sorted(seen) if number < len(truth)]
        router = Router(node, truth[moments[0]] if moments else BEGIN)
        for number in moments:
            router.see(truth[number], NOW_NS + (number + node) * SECOND)
        routers.append(router)

    found = whole(*routers)

    observed = [event for router in routers for event in router.events]
    assert all(event in observed for event in found)
    assert [event.seq for event in found] == sorted(event.seq for event in found)
    for event in observed:
        assert any(overlap(event, told) for told in found)
    for number, one in enumerate(found):
        assert not any(overlap(one, other) for other in found[number + 1 :])


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 60), st.booleans()), min_size=1, max_size=20
    )
)
def test_observations_without_a_number_are_paired_within_the_time(
    looks: list[tuple[int, int, bool]],
) -> None:
    """The twin looks at all pairs: each event is the first of a group of different routers."""
    routers = [Router(node, reached(is_up=True)) for node in (1, 2, 3)]
    for node, second, is_up in sorted(looks, key=lambda look: look[1]):
        routers[node].see(reached(is_up=is_up), NOW_NS + second * SECOND)

    found = whole(*routers)

    for type_ in ("node_reachable", "node_unreachable"):
        groups: list[tuple[int, list[int]]] = []
        observed = sorted(
            (event.at_ns, event.seq, node)
            for node, router in enumerate(routers)
            for event in router.events
            if event.type == type_
        )
        for at_ns, _, node in observed:
            joined = [
                nodes
                for began, nodes in groups
                if at_ns - began <= TOGETHER_NS and node not in nodes
            ]
            if joined:
                joined[0].append(node)
            else:
                groups.append((at_ns, [node]))
        assert [each.at_ns for each in found if each.type == type_] == [at for at, _ in groups]
