"""Counts and selections: what a bulk operation would act on."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.model import Event, Job, State
from corvo.protocol.questions import Count, Counted, Filter, Select, Selected
from corvo.scopes import EVERYTHING, Scope
from tests.mirror import jobs
from tests.mirror.shelves import NOW_NS, SHARDS, Shelf
from tests.mirror.test_search import WAYS, paths
from tests.mirror.twin import EPOCH_NS, Kept, means, ordered

Member = tuple[str, int, str, str]


def select_all(
    shelf: Shelf, question: Select, *, every: int = 0, budget_ms: int = 1_000
) -> list[Member]:
    members: list[Member] = []
    after = ""
    while True:
        asked = msgspec.structs.replace(question, after=after, budget_ms=budget_ms)
        selected = shelf.ask(asked, Selected, every=every)
        members += [(one.id, one.shard, one.queue, one.state) for one in selected.members]
        if not selected.after:
            return members
        assert selected.after != after, "whoever goes on gets further"
        after = selected.after


@WAYS
@settings(max_examples=40, deadline=None)
@given(
    keeps=jobs.jobs,
    given_filter=jobs.filters(),
    scope=st.sampled_from(jobs.SCOPES),
    limit=st.integers(1, 6),
    bounds=st.dictionaries(st.integers(0, 3), st.integers(0, 5), max_size=3),
    every=st.sampled_from((0, 60)),
)
def test_a_selection_has_just_the_jobs_to_which_nothing_happened_since(
    set_max: int,
    streams_max: int,
    keeps: list[Kept],
    given_filter: Filter,
    scope: Scope,
    limit: int,
    bounds: dict[int, int],
    every: int,
) -> None:
    shelf = Shelf(keeps)
    until = {shard: EPOCH_NS + number for shard, number in bounds.items()}
    meant = [
        kept
        for kept in keeps
        if means(given_filter, kept, scope) and kept.changed_ns <= until.get(kept.shard, 0)
    ]
    question = Select(filter=given_filter, bounds=until, scope=scope, limit=limit)

    with paths(set_max, streams_max):
        members = select_all(shelf, question, every=every, budget_ms=30)

    assert members == [
        (kept.job.id, kept.shard, kept.job.queue, kept.job.state.word)
        for kept in ordered(meant, "created_at", "asc")
    ]


@WAYS
@settings(max_examples=40, deadline=None)
@given(keeps=jobs.jobs, given_filter=jobs.filters(), scope=st.sampled_from(jobs.SCOPES))
def test_a_count_says_how_many_of_which_states_and_queues_there_are(
    set_max: int,
    streams_max: int,
    keeps: list[Kept],
    given_filter: Filter,
    scope: Scope,
) -> None:
    shelf = Shelf(keeps)
    meant = [kept for kept in keeps if means(given_filter, kept, scope)]

    with paths(set_max, streams_max):
        counted = shelf.ask(Count(filter=given_filter, scope=scope, samples=3), Counted)

    assert (counted.total, counted.is_exact) == (len(meant), True)
    assert counted.states == tallied(kept.job.state.word for kept in meant)
    assert counted.queues == tallied(kept.job.queue for kept in meant)
    assert len(counted.samples) == min(3, len(meant))
    assert counted.bounds == {shard: NOW_NS + shard for shard in range(SHARDS)}


def tallied(words: "object") -> dict[str, int]:
    counts: dict[str, int] = {}
    assert hasattr(words, "__iter__")
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


def many(number: int) -> list[Kept]:
    return [
        Kept(
            Job(
                id=f"s00_job_{place:06}",
                queue="a",
                state=State.DEAD,
                payload=b'{"n":1}',
                created_ns=EPOCH_NS + place // 100,
                order_ns=place,
                trail=(Event(EPOCH_NS + 1, "dead"),),
            ),
            0,
        )
        for place in range(number)
    ]


def test_a_count_that_the_time_is_over_for_says_at_least() -> None:
    shelf = Shelf(many(20_000))
    question = Count(scope=EVERYTHING, filter=Filter(payload_contains="n"), budget_ms=300)

    counted = shelf.ask(question, Counted, every=1_000)

    assert not counted.is_exact
    assert 0 < counted.total <= 20_000
    assert counted.states == {"dead": counted.total}


def test_a_count_ends_where_more_does_not_matter() -> None:
    shelf = Shelf(many(20_000))
    question = Count(scope=EVERYTHING, filter=Filter(payload_contains="n"), exact_to=5_000)

    counted = shelf.ask(question, Counted)

    assert not counted.is_exact
    assert counted.total == 10_000


def test_a_selection_goes_on_where_it_was_when_what_it_selects_changes() -> None:
    keeps = many(500)
    shelf = Shelf(keeps)
    question = Select(
        scope=EVERYTHING,
        filter=Filter(queue="a", state=["dead"]),
        bounds={0: EPOCH_NS + 1},
        limit=100,
    )
    members: list[str] = []

    after = ""
    while True:
        selected = shelf.ask(msgspec.structs.replace(question, after=after), Selected)
        members += [one.id for one in selected.members]
        retried = {one.id for one in selected.members}
        shelf.put(
            Kept(
                msgspec.structs.replace(
                    kept.job, state=State.PENDING, trail=(Event(EPOCH_NS + 9, "retried"),)
                ),
                0,
            )
            for kept in keeps
            if kept.job.id in retried
        )
        after = selected.after
        if not after:
            break

    assert members == [kept.job.id for kept in keeps]


def test_a_selection_is_not_continued_with_another_filter() -> None:
    shelf = Shelf(many(10))
    bounds = {0: EPOCH_NS + 1}
    selected = shelf.ask(Select(scope=EVERYTHING, bounds=bounds, limit=5), Selected)

    other = Select(scope=EVERYTHING, filter=Filter(queue="a"), bounds=bounds, after=selected.after)

    assert shelf.refusal(other).code == "bad_cursor"
