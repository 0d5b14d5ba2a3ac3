"""Clocks of nodes: a reading is as good as its round trip, and one wrong clock is found alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.clock_offsets import Reading, apart, judge, read_clock, refusal

MS = 1_000_000
BOUND = 500 * MS
sane = st.integers(-100 * MS, 100 * MS)
trips = st.integers(0, 100 * MS)


@given(st.integers(-(10**12), 10**12), trips, st.floats(0, 1))
def test_the_true_difference_is_within_the_reading(ahead: int, took: int, share: float) -> None:
    asked = 10**18
    shown = asked + round(took * share) + ahead

    reading = read_clock(shown, at_ns=asked + took, took_ns=took)

    assert abs(reading.ahead_ns - ahead) <= reading.within_ns + 1


@given(st.dictionaries(st.integers(2, 9), sane, min_size=1), st.integers(0, 2))
def test_clocks_that_agree_are_right(clocks: dict[int, int], within: int) -> None:
    readings = {node: Reading(ahead, within) for node, ahead in clocks.items()}

    assert judge(readings, own=1, bound_ns=BOUND).wrong_ns == {}
    assert (
        refusal({str(node): each for node, each in readings.items()}, nodes=9, bound_ns=BOUND) == ""
    )


@given(
    st.lists(sane, min_size=3, max_size=7),
    st.integers(0, 6),
    st.sampled_from([-1, 1]),
    st.integers(800 * MS, 10**15),
)
def test_every_node_finds_the_same_wrong_clock(
    clocks: list[int], which: int, side: int, by: int
) -> None:
    """Seen from each node, also from the one whose clock is wrong."""
    wrong = which % len(clocks)
    clocks[wrong] = side * by

    for own, base in enumerate(clocks):
        readings = {
            node: Reading(clock - base, 0) for node, clock in enumerate(clocks) if node != own
        }
        found = judge(readings, own=own, bound_ns=BOUND)
        assert found.wrong_ns.keys() == {wrong}
        assert (found.wrong_ns[wrong] > 0) == (side > 0)
        text = refusal(
            {str(n): r for n, r in readings.items()}, nodes=len(readings), bound_ns=BOUND
        )
        assert bool(text) == (own == wrong)


def test_of_two_nodes_each_takes_the_other_for_wrong() -> None:
    found = judge({2: Reading(-700 * MS, 0)}, own=1, bound_ns=BOUND)

    assert found.ahead_ns == {2: -700 * MS}
    assert found.wrong_ns == {2: -700 * MS}


def test_a_slow_answer_proves_nothing() -> None:
    assert not Reading(700 * MS, 300 * MS).exceeds(BOUND)
    assert judge({2: Reading(700 * MS, 300 * MS)}, own=1, bound_ns=BOUND).wrong_ns == {}


def test_a_wrong_node_that_runs_does_not_keep_the_right_ones_from_starting() -> None:
    wrong = {"a:1": Reading(5_000 * MS, MS)}

    assert refusal(wrong, nodes=2, bound_ns=BOUND) == ""
    assert refusal(wrong, nodes=1, bound_ns=BOUND) == (
        "the wall clock of this node is 5.0 s behind that of the node at a:1, more than"
        " cluster.clock_offset_max_ms (500 ms): set the clock that is wrong, and keep it right"
        " with NTP"
    )


@pytest.mark.parametrize(
    ("ahead_ns", "text"),
    [
        (5_040 * MS, "5.0 s ahead of"),
        (-700 * MS, "700 ms behind"),
        (10**15, "1000000.0 s ahead of"),
    ],
)
def test_a_difference_in_words(ahead_ns: int, text: str) -> None:
    assert apart(ahead_ns) == text
