"""What SQLite is told: nothing that a client wrote, and nothing that makes it sort all jobs."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.protocol.questions import (
    Count,
    Filter,
    FullText,
    Question,
    RawPage,
    Search,
    SearchBody,
    Select,
)
from corvo.scopes import EVERYTHING, Scope
from tests.mirror import jobs
from tests.mirror.shelves import Shelf
from tests.mirror.test_search import ORDERS, SORTS, WAYS, body, paths
from tests.mirror.twin import EPOCH_NS, Kept

MARK = "q'\"`;--%_*\\"


def marked(given_filter: Filter) -> Filter:
    """The same filter with other values where anything may stand."""
    fields = {name: getattr(given_filter, name) for name in Filter.__struct_fields__}
    free = ("kind", "payload_contains", "error_contains", "unique_key", "batch_id", "worker_id")
    for name in (*free, "parent_id", "chain_id", "job_id_prefix", "queue"):
        if fields[name] is not None:
            fields[name] = f"{MARK}{name}"
    if fields["tags"]:
        fields["tags"] = {f"{MARK}{key}": f"{MARK}{value}" for key, value in fields["tags"].items()}
    return msgspec.convert(fields, Filter)


def texts_of(shelf: Shelf, question: Question) -> set[str]:
    shelf.connection.texts = set()
    shelf.ask(question, dict[str, object])
    return shelf.connection.texts


def questions(given_filter: Filter, sort: str, order: str, scope: Scope) -> list[Question]:
    return [
        Search(search=body(given_filter, sort=sort, order=order), scope=scope),
        Count(filter=given_filter, scope=scope),
        Select(filter=given_filter, bounds={0: EPOCH_NS}, scope=scope),
    ]


@WAYS
@settings(max_examples=30, deadline=None)
@given(
    keeps=jobs.jobs,
    given_filter=jobs.filters(),
    sort=st.sampled_from(SORTS),
    order=st.sampled_from(ORDERS),
)
def test_nothing_of_a_filter_is_in_a_statement(
    set_max: int,
    streams_max: int,
    keeps: list[Kept],
    given_filter: Filter,
    sort: str,
    order: str,
) -> None:
    shelf = Shelf(keeps)
    scope = Scope((f"{MARK}*", f"{MARK}scope"))

    with paths(set_max, streams_max):
        texts = [
            texts_of(shelf, question)
            for question in questions(marked(given_filter), sort, order, scope)
        ]

    for text in sorted(set().union(*texts)):
        assert MARK not in text
        assert "q'" not in text


@given(st.text(min_size=1, max_size=20))
def test_nothing_of_a_full_text_is_in_a_statement(q: str) -> None:
    shelf = Shelf()

    texts = [
        texts_of(shelf, FullText(scope=EVERYTHING, q=f"a{q}")),
        texts_of(shelf, FullText(scope=EVERYTHING, q="a")),
    ]

    assert texts[0] == texts[1]


@WAYS
@settings(max_examples=30, deadline=None)
@given(given_filter=jobs.filters(), sort=st.sampled_from(SORTS), order=st.sampled_from(ORDERS))
def test_no_page_sorts_more_than_what_is_equal_by_its_index(
    set_max: int, streams_max: int, given_filter: Filter, sort: str, order: str
) -> None:
    shelf = Shelf()
    search = Search(scope=EVERYTHING, search=body(given_filter, sort=sort, order=order))

    with paths(set_max, streams_max):
        texts = texts_of(shelf, search)

    for text in sorted(texts):
        if not text.startswith("SELECT row, queue, state") or "ORDER BY" not in text:
            continue
        plan = shelf.connection.execute(f"EXPLAIN QUERY PLAN {text}", [None] * text.count("?"))
        steps = [str(told) for _, above, _, told in plan if above == 0]
        assert "USE TEMP B-TREE FOR ORDER BY" not in steps, (text, steps)
        assert not any(step.startswith("SCAN jobs") and "INDEX" not in step for step in steps)


def test_the_page_behind_a_place_begins_at_the_place() -> None:
    shelf = Shelf()
    counted = 0

    def step() -> bool:
        nonlocal counted
        counted += 1
        return False

    rows = [
        (f"s00_job_{number:06}", number % 3 + 2, f"2026-02-11T10:00:{number:020}Z")
        for number in range(30_000)
    ]
    shelf.connection.executemany(
        "INSERT INTO jobs (id, shard, queue, payload, attempt, created_at, changed_at)"
        " VALUES (?1, 0, 'a', '1', ?2, ?3, ?3)",
        rows,
    )
    taken = []
    cursor = None
    for _ in range(25):
        search = SearchBody(sort="attempt", order="asc", cursor=cursor, limit=1_000)
        found, steps = counting(shelf, Search(scope=EVERYTHING, search=search))
        taken.append(steps)
        cursor = found.cursor

    assert max(taken[5:]) < 2 * max(taken[:5])


def counting(shelf: Shelf, question: Question) -> tuple[RawPage, int]:
    """The answer, and how many steps of SQLite's it took, by the thousand."""
    found = shelf.ask(question, RawPage, every=1_000)
    return found, shelf.ticks
