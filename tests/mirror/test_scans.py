"""Questions that may need all of their time: they read jobs that do not match."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.mirror.readers import task_of
from corvo.protocol.questions import (
    Count,
    Filter,
    FullText,
    GetBeats,
    GetSummary,
    Question,
    Search,
    SearchBody,
    Select,
)
from corvo.scopes import EVERYTHING, Scope
from tests.mirror import jobs
from tests.mirror.shelves import Shelf
from tests.mirror.test_search import ORDERS, SORTS, body, paths

AT = "2026-02-11T10:00:00Z"


@pytest.mark.parametrize(
    "search",
    [
        SearchBody(kind="x"),
        SearchBody(queue="a", kind="x"),
        SearchBody(tags={"a": "b"}),
        SearchBody(payload_contains="x"),
        SearchBody(payload_jq=".a"),
        SearchBody(error_contains="x"),
        SearchBody(has_errors=False),
        SearchBody(worker_id="w"),
        SearchBody(scheduled_before=AT),
        SearchBody(expire_before=AT, state=["dead"]),
        SearchBody(started_after=AT),
        SearchBody(attempt_min=1),
        SearchBody(attempt_max=1, queue="a"),
        SearchBody(sort="attempt"),
        SearchBody(sort="attempt", queue="a"),
        SearchBody(sort="started_at", state=["dead"]),
        SearchBody(sort="completed_at", queue="a"),
        SearchBody(priority="normal"),
        SearchBody(batch_id="b", state=["dead"]),
    ],
)
def test_a_condition_that_no_index_answers_needs_a_scan(search: SearchBody) -> None:
    assert task_of(Search(scope=EVERYTHING, search=search)).needs_scan


@pytest.mark.parametrize(
    "search",
    [
        SearchBody(),
        SearchBody(order="asc", created_after=AT),
        SearchBody(state=["dead", "held"]),
        SearchBody(queue="a"),
        SearchBody(queue="a", state=["dead"], priority="high", created_before=AT),
        SearchBody(queue="a", sort="priority"),
        SearchBody(priority="critical"),
        SearchBody(batch_id="b"),
    ],
)
def test_jobs_that_an_index_has_in_order_need_no_scan(search: SearchBody) -> None:
    assert not task_of(Search(scope=EVERYTHING, search=search)).needs_scan


@pytest.mark.parametrize(
    ("question", "needs_scan"),
    [
        (Search(scope=Scope(("a", "b"))), False),
        (Search(scope=Scope(("a*",))), True),
        (Search(scope=Scope(tuple("abcdefgh"))), True),
        (Search(scope=Scope(("a*",)), search=SearchBody(queue="ab")), False),
        (Search(scope=Scope(("a*",)), search=SearchBody(queue="b", kind="x")), False),
        (FullText(scope=EVERYTHING, q="x"), True),
        (Count(scope=EVERYTHING), False),
        (Count(scope=EVERYTHING, filter=Filter(queue="a", state=["dead"])), False),
        (Count(scope=EVERYTHING, filter=Filter(created_after=AT)), True),
        (Select(scope=EVERYTHING, filter=Filter(queue="a", state=["dead"])), False),
        (Select(scope=EVERYTHING, filter=Filter(kind="x")), True),
        (GetBeats(scope=EVERYTHING), False),
        (GetSummary(scope=EVERYTHING), False),
    ],
)
def test_some_questions_scan_by_what_they_ask(question: Question, *, needs_scan: bool) -> None:
    assert task_of(question).needs_scan is needs_scan


@settings(max_examples=200, deadline=None)
@given(
    given_filter=jobs.filters(),
    sort=st.sampled_from(SORTS),
    order=st.sampled_from(ORDERS),
)
def test_a_question_without_a_scan_reads_only_jobs_that_match(
    given_filter: Filter, sort: str, order: str
) -> None:
    named = msgspec.structs.replace(given_filter, queue=given_filter.queue or "a")
    question = Search(scope=EVERYTHING, search=body(named, sort=sort, order=order))
    shelf = Shelf()
    shelf.connection.texts = set()

    with paths(-1):
        shelf.ask(question, dict[str, object])

    walks = [text for text in shelf.connection.texts if text.startswith("SELECT row, queue, state")]
    assert any("IS TRUE" in text for text in walks) <= task_of(question).needs_scan
