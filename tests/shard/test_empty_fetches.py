"""Who waits for which queue, against a twin that keeps a list of pairs."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corvo.shard import empty_fetches
from corvo.shard.empty_fetches import EmptyFetchWatchers

QUEUES = ("a", "b", "c")
LINKS = st.integers(1, 4)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), LINKS, st.sampled_from(QUEUES)),
        st.tuples(st.just("take"), st.just(0), st.sampled_from(QUEUES)),
        st.tuples(st.just("forget"), LINKS, st.just("")),
        st.tuples(st.just("retry_at"), st.integers(1, 9), st.sampled_from(QUEUES)),
        st.tuples(st.just("take_due"), st.integers(1, 9), st.just("")),
        st.tuples(st.just("clear"), st.just(0), st.just("")),
    ),
    max_size=40,
)


@given(steps=STEPS)
@example(steps=[("add", 1, "a"), ("retry_at", 5, "a"), ("forget", 1, "")])
@example(steps=[("add", 1, "a"), ("retry_at", 5, "a"), ("take", 0, "a")])
def test_it_is_a_list_of_pairs_that_forgets_who_was_told(steps: list[tuple[str, int, str]]) -> None:
    kept = EmptyFetchWatchers()
    pairs: list[tuple[int, str]] = []
    retries: dict[str, int] = {}

    for step, number, queue in steps:
        match step:
            case "add":
                assert kept.add(number, queue) == []
                pairs += [(number, queue)] if (number, queue) not in pairs else []
            case "take":
                assert kept.take(queue) == [link for link, name in pairs if name == queue]
                pairs = [pair for pair in pairs if pair[1] != queue]
            case "forget":
                kept.forget(number)
                pairs = [pair for pair in pairs if pair[0] != number]
            case "retry_at":
                kept.retry_at(queue, number)
                retries[queue] = number
            case "take_due":
                due = sorted(name for name, at in retries.items() if at <= number)
                assert sorted(kept.take_due(number)) == due
                retries = {name: at for name, at in retries.items() if at > number}
            case _:
                kept.clear()
                pairs = []
        retries = {name: at for name, at in retries.items() if name in [it for _, it in pairs]}

        assert [queue in kept for queue in QUEUES] == [
            any(name == queue for _, name in pairs) for queue in QUEUES
        ]
        assert kept.next_ns == min(retries.values(), default=None)


def test_beyond_the_bound_those_of_the_oldest_queue_are_to_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(empty_fetches, "WATCHED_MAX", 3)
    kept = EmptyFetchWatchers()
    kept.add(1, "a")
    kept.add(2, "a")
    kept.add(1, "b")

    told = kept.add(1, "c")

    assert told == [(1, "a"), (2, "a")]
    assert "a" not in kept
    assert kept.add(3, "d") == []
