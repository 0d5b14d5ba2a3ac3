"""What a router has observed of its cluster: each difference is one event, with time and number."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.protocol.cluster import ClusterNode, RemovedNode
from corvo.router.history import (
    EVENTS_MAX,
    KEPT_NS,
    History,
    Leadership,
    Members,
    Observed,
    changes,
)
from tests.router.clusters import MAP, with_node

NOW_NS: Final = 1_771_581_605_250_000_000
SECOND: Final = 1_000_000_000
BEGIN: Final = Observed(MAP)


def texts(before: Observed, after: Observed) -> list[tuple[str, str]]:
    return [(each.type, each.text) for each in changes(before, after)]


def led(node: int | None, term: int) -> Observed:
    return replace(BEGIN, leaders={0: Leadership(node, term)})


def test_what_is_the_same_is_no_event() -> None:
    observed = replace(led(1, 3), reachable={2: True}, members={0: group({1, 2})})

    assert texts(observed, observed) == []


def test_leaders_come_and_go() -> None:
    elected = ("leader_elected", "node 1 (n1) leads shard 0 in term 3")

    assert texts(BEGIN, led(1, 3)) == [elected]
    assert texts(led(2, 2), led(1, 3)) == [elected]
    assert texts(led(1, 2), led(1, 3)) == [elected]
    assert texts(led(1, 3), led(None, 3)) == [
        ("leader_lost", "shard 0 has no leader that can be reached; the last was node 1 (n1)")
    ]
    assert texts(BEGIN, led(None, 3)) == []


def test_a_node_that_is_reached_for_the_first_time_is_no_event() -> None:
    def reached(**nodes: bool) -> Observed:
        return replace(BEGIN, reachable={int(name[1:]): is_up for name, is_up in nodes.items()})

    assert texts(BEGIN, reached(n2=True)) == []
    assert texts(reached(n2=True), reached(n2=False)) == [
        ("node_unreachable", "node 2 (n2) cannot be reached")
    ]
    assert texts(reached(n2=False), reached(n2=True)) == [
        ("node_reachable", "node 2 (n2) can be reached")
    ]
    assert texts(reached(n9=True), reached(n9=False)) == []


def test_nodes_join_report_drain_and_leave() -> None:
    joining = ClusterNode(number=4, name="n4", address="host-4:9400", instance="dir-4")
    joined = replace(MAP, nodes=(*MAP.nodes, joining), last_number=4, version=1)
    gone = RemovedNode(number=3, name="n3", instance="", reason="disk lost", removed_ns=1)
    removed = replace(MAP, nodes=MAP.nodes[:2], removed=(gone,), version=1)

    def mapped(before: Observed, **changed: object) -> list[tuple[str, str]]:
        return texts(before, Observed(with_node(MAP, 2, **changed)))

    draining = Observed(with_node(MAP, 2, is_draining=True))
    assert texts(BEGIN, Observed(joined)) == [
        ("node_joined", "node 4 (n4) has joined at host-4:9400")
    ]
    assert texts(BEGIN, Observed(removed)) == [
        ("node_removed", "node 3 (n3) was removed: disk lost")
    ]
    assert mapped(BEGIN, instance="dir-2") == [
        ("node_joined", "node 2 (n2) has joined at host-2:9400")
    ]
    assert mapped(BEGIN, address="host-9:9400", version="0.2.0") == [
        ("node_changed", "node 2 (n2) has reported: address host-9:9400, version 0.2.0")
    ]
    assert mapped(BEGIN, is_draining=True) == [
        ("node_draining", "node 2 (n2) is draining: its replicas move to other nodes")
    ]
    assert mapped(draining) == [("node_undrained", "node 2 (n2) can have replicas again")]
    assert mapped(BEGIN, op_version=9) == []


def test_places_and_the_number_of_replicas_change() -> None:
    moved = replace(MAP, places=((1, 2, 3), (2, 1)), replicas=2, op_version=4)

    replicas, raised, (placed, text) = texts(BEGIN, Observed(moved))

    assert replicas == ("replicas_set", "each shard is to have 2 replicas (before: 3)")
    assert raised == ("op_version_raised", "the cluster has op version 4 (before: 3)")
    assert placed == "shard_placed"
    assert text == (
        "shard 1 is to have its replicas on nodes 2, 1, the first as the leader"
        " (before: nodes 2, 3, 1)"
    )


def group(voters: set[int], learners: frozenset[int] = frozenset()) -> Members:
    return Members(frozenset(voters), frozenset(voters) | learners)


def test_replicas_are_added_promoted_and_removed() -> None:
    def of(members: Members) -> Observed:
        return replace(BEGIN, members={0: members})

    three, learning, four = group({1, 2, 3}), group({1, 2, 3}, frozenset({4})), group({1, 2, 4})

    assert texts(BEGIN, of(three)) == []
    assert texts(of(three), of(learning)) == [
        ("replica_added", "node 4 has a new replica of shard 0")
    ]
    assert texts(of(learning), of(four)) == [
        ("replica_promoted", "node 4 votes in shard 0"),
        ("replica_removed", "node 3 (n3) has no replica any more of shard 0"),
    ]
    assert texts(of(three), BEGIN) == []


def test_events_have_numbers_that_rise_also_after_a_restart() -> None:
    first = History(BEGIN, NOW_NS, node=2)
    first.observe(led(1, 3), NOW_NS)
    first.observe(led(2, 4), NOW_NS)
    *_, last = first.kept(NOW_NS)
    second = History(BEGIN, NOW_NS + SECOND, node=2)
    second.observe(led(2, 5), NOW_NS + SECOND)

    [found] = second.kept(NOW_NS + SECOND)

    begin = NOW_NS // 1_000 + 2
    assert [each.seq for each in first.kept(NOW_NS)] == [begin, begin + 1_000]
    assert found.seq > last.seq
    assert (found.term, found.at_ns) == (5, NOW_NS + SECOND)


def test_an_event_is_kept_for_a_day() -> None:
    history = History(BEGIN, NOW_NS, node=2)
    history.observe(led(1, 3), NOW_NS)

    assert len(history.kept(NOW_NS + KEPT_NS)) == 1
    assert history.kept(NOW_NS + KEPT_NS + 1) == []
    history.observe(led(1, 3), NOW_NS + KEPT_NS + 1)
    assert not history._events


def test_no_more_events_are_kept_than_the_limit() -> None:
    history = History(BEGIN, NOW_NS, node=2)

    for term in range(EVENTS_MAX + 10):
        history.observe(led(1, term + 1), NOW_NS)

    found = history.kept(NOW_NS)
    assert len(found) == EVENTS_MAX
    assert found[-1].term == EVENTS_MAX + 10


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 50)), max_size=40))
def test_numbers_rise_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    history = History(BEGIN, NOW_NS, node=2)
    now_ns, expected = NOW_NS, 0
    last: int | None = None
    for node, millis in steps:
        now_ns += millis * 1_000_000
        leader = node or None
        expected += leader != last and (leader is not None or last is not None)
        last = leader
        history.observe(led(leader, 1), now_ns)

    seen = [each.seq for each in history.kept(now_ns)]

    assert len(seen) == expected
    assert seen == sorted({*seen})
