"""Who waits for which queue, against a twin that keeps a list of pairs."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corvo.shard import hunger
from corvo.shard.hunger import Hunger

QUEUES = ("a", "b", "c")
LINKS = st.integers(1, 4)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), LINKS, st.sampled_from(QUEUES)),
        st.tuples(st.just("feed"), st.just(0), st.sampled_from(QUEUES)),
        st.tuples(st.just("gone"), LINKS, st.just("")),
        st.tuples(st.just("refill"), st.integers(1, 9), st.sampled_from(QUEUES)),
        st.tuples(st.just("refilled"), st.integers(1, 9), st.just("")),
        st.tuples(st.just("clear"), st.just(0), st.just("")),
    ),
    max_size=40,
)


@given(steps=STEPS)
@example(steps=[("add", 1, "a"), ("refill", 5, "a"), ("gone", 1, "")])
@example(steps=[("add", 1, "a"), ("refill", 5, "a"), ("feed", 0, "a")])
def test_it_is_a_list_of_pairs_that_forgets_who_was_told(steps: list[tuple[str, int, str]]) -> None:
    kept = Hunger()
    pairs: list[tuple[int, str]] = []
    refills: dict[str, int] = {}

    for step, number, queue in steps:
        match step:
            case "add":
                assert kept.add(number, queue) == []
                pairs += [(number, queue)] if (number, queue) not in pairs else []
            case "feed":
                assert kept.feed(queue) == [link for link, name in pairs if name == queue]
                pairs = [pair for pair in pairs if pair[1] != queue]
            case "gone":
                kept.gone(number)
                pairs = [pair for pair in pairs if pair[0] != number]
            case "refill":
                kept.refill(queue, number)
                refills[queue] = number
            case "refilled":
                due = sorted(name for name, at in refills.items() if at <= number)
                assert sorted(kept.refilled(number)) == due
                refills = {name: at for name, at in refills.items() if at > number}
            case _:
                kept.clear()
                pairs = []
        refills = {name: at for name, at in refills.items() if name in [it for _, it in pairs]}

        assert [queue in kept for queue in QUEUES] == [
            any(name == queue for _, name in pairs) for queue in QUEUES
        ]
        assert kept.next_ns == min(refills.values(), default=None)


def test_beyond_the_bound_those_of_the_oldest_queue_are_to_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hunger, "HUNGRY_MAX", 3)
    kept = Hunger()
    kept.add(1, "a")
    kept.add(2, "a")
    kept.add(1, "b")

    told = kept.add(1, "c")

    assert told == [(1, "a"), (2, "a")]
    assert "a" not in kept
    assert kept.add(3, "d") == []
