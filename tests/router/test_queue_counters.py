"""Counters of queues on the page of metrics: which are shown, and all others together."""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.measures import ProcessStats
from corvo.model import STATES
from corvo.protocol.numbers import COUNTED, QueueNumbers
from corvo.router.metrics import OTHER, OtherQueues
from corvo.router.node.families import render
from corvo.router.node.scrape import (
    NOTHING,
    QUEUES_MAX,
    Queues,
    ShardScrape,
    as_known,
    counters_of,
)
from tests.router.test_metrics import numbers, scrape, text, whole
from tests.support.promtool import needs_promtool, promtool

QUEUES: Final = 3
"""Queues with lines of their own, in most tests."""


def row(count: int) -> tuple[int, ...]:
    """Everything has happened so often."""
    return (count,) * len(COUNTED)


def shown(names: Mapping[str, int] | list[str], queues_max: int = QUEUES) -> Queues:
    """Queues, as the leaders told them."""
    queues = Queues(queues_max)
    nothing = (0,) * len(STATES)
    queues.add(QueueNumbers(name, nothing, False, 0) for name in sorted(names))
    queues.settle()
    return queues


def shard(
    counts: Mapping[str, int] | None,
    *,
    started_s: float = 1.0,
    others: int = 0,
    is_whole: bool = True,
) -> ShardScrape:
    """What shard 0 told."""
    counted = replace(numbers().counted, stats=ProcessStats(started_s=started_s))
    return ShardScrape(
        number=0,
        calls_in_flight=0,
        numbers=replace(numbers(), counted=counted),
        counters=None if counts is None else {name: row(each) for name, each in counts.items()},
        others=row(others),
        is_whole=is_whole,
    )


def all_of(
    queues: Queues,
    shards: Sequence[ShardScrape],
    shard_of: Callable[[str], int],
    others: OtherQueues | None,
) -> dict[str, Sequence[int]]:
    """The counters, when all steps are done."""
    *_, found = counters_of(queues, shards, shard_of, others)
    return found


def firsts(
    names: Mapping[str, int] | list[str], told: ShardScrape, others: OtherQueues | None
) -> dict[str, int]:
    """The first counter of each queue that is shown."""
    found = all_of(shown(names), [told], lambda _: 0, others)
    return {name: counts[0] for name, counts in found.items()}


# Which are shown.


def test_a_queue_in_which_nothing_has_happened_is_shown_with_zeros() -> None:
    found = all_of(shown(["a", "b"]), [shard({"a": 3})], lambda _: 0, OtherQueues())

    assert found == {"a": row(3), "b": NOTHING}


def test_a_queue_of_a_shard_that_told_nothing_is_not_shown() -> None:
    shards = [shard({"a": 3}), ShardScrape(number=1, calls_in_flight=0)]

    found = all_of(shown(["a", "b"]), shards, "ab".index, OtherQueues())

    assert found == {"a": row(3)}


def test_a_shard_without_a_leader_tells_nothing_of_others() -> None:
    others = OtherQueues()
    firsts(["a"], shard({"a": 1, "z": 1}), others)

    firsts([], shard({"a": 5, "z": 5}, is_whole=False), others)
    found = firsts(["a"], shard({"a": 6, "z": 6}), others)

    assert found == {"a": 6}
    assert others.counts[0] == 5


@pytest.mark.parametrize("told", [(), (1, 2), tuple(range(len(COUNTED) + 3))])
def test_a_process_that_counts_fewer_things_or_more_is_understood(told: tuple[int, ...]) -> None:
    assert as_known(told) == (*told, *NOTHING)[: len(COUNTED)]


# The others, together.

FIVE: Final = ["a", "b", "c", "d", "e"]


def test_the_others_rise_by_what_they_rise_together() -> None:
    others = OtherQueues()
    at_first = firsts(FIVE, shard({"a": 9, "d": 7, "e": 1}), others)

    later = firsts(FIVE, shard({"a": 9, "d": 10, "e": 2}), others)

    assert at_first == {"a": 9, "b": 0, "c": 0, OTHER: 0}
    assert later == {"a": 9, "b": 0, "c": 0, OTHER: 4}


def test_a_queue_that_gets_or_loses_lines_of_its_own_takes_nothing_from_the_others() -> None:
    others = OtherQueues()
    firsts(FIVE, shard(dict.fromkeys(FIVE, 10)), others)
    firsts(FIVE, shard(dict.fromkeys(FIVE, 11)), others)

    fewer = firsts(FIVE[1:], shard(dict.fromkeys(FIVE[1:], 12)), others)
    again = firsts(FIVE, shard(dict.fromkeys(FIVE, 13)), others)
    last = firsts(FIVE, shard(dict.fromkeys(FIVE, 14)), others)

    assert fewer == {"b": 12, "c": 12, "d": 12, OTHER: 3}
    assert again == {"a": 13, "b": 13, "c": 13, OTHER: 4}
    assert last[OTHER] == 6


def test_the_others_are_shown_only_while_there_are_some() -> None:
    others = OtherQueues()
    firsts(FIVE, shard({"e": 1}), others)
    firsts(FIVE, shard({"e": 2}), others)

    none = firsts(FIVE[:3], shard({"a": 1}), others)
    again = firsts(FIVE, shard({"e": 3}), others)

    assert OTHER not in none
    assert again[OTHER] == 1


def test_what_a_shard_does_not_count_by_itself_is_among_the_others() -> None:
    others = OtherQueues()
    firsts(FIVE, shard({}, others=100), others)

    assert firsts(FIVE, shard({}, others=107), others)[OTHER] == 7


def test_a_shard_that_starts_again_does_not_let_the_others_fall() -> None:
    others = OtherQueues()
    firsts(FIVE, shard({"e": 5}), others)
    firsts(FIVE, shard({"e": 9}), others)

    restarted = firsts(FIVE, shard({"e": 2}, started_s=2.0), others)
    later = firsts(FIVE, shard({"e": 3}, started_s=2.0), others)

    assert (restarted[OTHER], later[OTHER]) == (4, 5)


def test_a_key_for_some_queues_is_told_nothing_of_the_others() -> None:
    others = OtherQueues()
    firsts(FIVE, shard({"a": 1, "d": 1, "e": 1}), others)

    told = firsts(["a", "b", "d", "e"], shard({"a": 2, "d": 2, "e": 2}), None)
    later = firsts(FIVE, shard({"a": 3, "d": 3, "e": 3}), others)

    assert told == {"a": 2, "b": 0, "d": 2}
    assert later[OTHER] == 4


rises: st.SearchStrategy[dict[str, int]] = st.dictionaries(
    st.sampled_from(FIVE), st.integers(0, 3), max_size=5
)
happenings = st.lists(
    st.tuples(
        st.sampled_from(["rise", "rise", "rise", "delete", "restart", "late"]),
        rises,
        st.sampled_from(FIVE),
    ),
    max_size=30,
)


@given(happenings)
def test_the_others_never_fall_and_never_rise_by_more_than_has_happened(
    history: list[tuple[str, dict[str, int], str]],
) -> None:
    others = OtherQueues()
    counts: dict[str, int] = {}
    answers: list[dict[str, int]] = []  # of the present process
    started_s, total, happened = 1.0, 0, 0
    for what, rise, queue in history:
        match what:
            case "delete":
                counts.pop(queue, None)
            case "restart":
                counts, answers, started_s = {}, [], started_s + 1
            case _:
                for name, more in rise.items():
                    counts[name] = counts.get(name, 0) + more
                    happened += more
        answers.append(dict(counts))
        # An answer may be overtaken by a later one.
        told = answers[-2 if what == "late" and len(answers) > 1 else -1]

        for _ in others.take(0, started_s, {name: row(each) for name, each in told.items()}):
            pass

        assert total <= others.counts[0] <= happened
        assert [*others.counts] == [others.counts[0]] * len(COUNTED)
        total = others.counts[0]


def test_scrapes_at_once_count_nothing_twice() -> None:
    others = OtherQueues()
    names = [f"queue-{number}" for number in range(1_200)]
    for _ in others.take(0, 1.0, dict.fromkeys(names, row(1))):
        pass

    for _ in zip_longest(
        others.take(0, 1.0, dict.fromkeys(names, row(2))),
        others.take(0, 1.0, dict.fromkeys(names, row(3))),
    ):
        pass

    assert others.counts[0] == 2 * len(names)


# The page.


def test_the_lines_of_a_queue_stand_in_their_families() -> None:
    made = scrape(whole(), queues=shown(["mail", "sms"]))
    made.counters = {"mail": range(10), "sms": range(10, 20)}

    lines = [line for line in text(made).splitlines() if line.startswith("corvo_jobs_")]

    assert lines == [
        f'corvo_jobs_{what}_total{{queue="{name}"}} {place + first}'
        for place, what in enumerate(COUNTED)
        for name, first in (("mail", 0), ("sms", 10))
    ]


def test_times_of_jobs_are_shown_by_shard() -> None:
    told = whole()
    assert told.numbers is not None
    for seconds in (0.25, 60.0):
        told.numbers.counted.waited.observe(seconds)

    lines = text(scrape(told)).splitlines()

    for line in (
        'corvo_job_wait_seconds_bucket{shard="0",le="0.25"} 1',
        'corvo_job_wait_seconds_bucket{shard="0",le="60.0"} 2',
        'corvo_job_wait_seconds_sum{shard="0"} 60.25',
        'corvo_job_run_seconds_count{shard="0"} 0',
    ):
        assert line in lines


def test_no_more_queues_have_counters_than_have_lines() -> None:
    names = [f"queue-{number:04}" for number in range(QUEUES_MAX + 500)]
    queues = shown(names, QUEUES_MAX)
    made = scrape(whole(), queues=queues)
    told = shard(dict.fromkeys(names, 1))

    made.counters = all_of(queues, [told], lambda _: 0, OtherQueues())
    pieces = [*render(made)]

    page = b"".join(pieces)
    assert page.count(b"corvo_jobs_enqueued_total{") == QUEUES_MAX + 1
    assert b'corvo_jobs_enqueued_total{queue="other"} 0\n' in page
    assert max(piece.count(b"\n") for piece in pieces) <= 500


@needs_promtool
def test_promtool_has_nothing_to_say_about_counters_of_any_name() -> None:
    queues = shown(["mail", 'a"} 1\nb{\\', "ünïcode", "bulk", OTHER])
    made = scrape(whole(), queues=queues)
    made.counters = all_of(queues, [shard({"mail": 1, OTHER: 2})], lambda _: 0, OtherQueues())

    page = text(made)

    assert page.count('corvo_jobs_dead_total{queue="other"}') == 1
    assert promtool("check", "metrics", text=page) == ""
