"""Pages of jobs: every filter, order and way of turning pages finds what the twin finds."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.mirror import looking, plan
from corvo.questions import Filter, Found, Search, SearchBody
from tests.mirror import jobs
from tests.mirror.shelves import Shelf
from tests.mirror.twin import Kept, means, ordered

SORTS = ("created_at", "priority", "started_at", "completed_at", "attempt")
ORDERS = ("asc", "desc")


@contextmanager
def paths(set_max: int, streams_max: int = 96) -> Iterator[None]:
    """Few jobs go other ways than many: make few look like many."""
    with (
        mock.patch.object(looking, "SET_MAX", set_max),
        mock.patch.object(looking, "STREAMS_MAX", streams_max),
        mock.patch.object(plan, "_MARK_EVERY", 2),
    ):
        yield


WAYS = pytest.mark.parametrize(
    ("set_max", "streams_max"), [(4_000, 96), (3, 96), (-1, 96), (-1, 1)]
)


def names(found: Found) -> list[str]:
    return [msgspec.json.decode(job, type=dict[str, object])["id"] for job in found.jobs]


def body(given: Filter, **words: object) -> SearchBody:
    fields = {name: getattr(given, name) for name in Filter.__struct_fields__}
    return msgspec.convert(fields | words, SearchBody)


def pages(
    shelf: Shelf, search: SearchBody, scope: tuple[str, ...], *, every: int = 0, budget_ms: int = 60
) -> Iterator[Found]:
    """All pages, from the first to the last; without progress, there is more time."""
    cursor = search.cursor
    while True:
        question = Search(
            search=msgspec.structs.replace(search, cursor=cursor), scope=scope, budget_ms=budget_ms
        )
        found = shelf.ask(question, Found, every=every)
        yield found
        if found.cursor is None:
            return
        if found.cursor == cursor or not found.jobs:
            budget_ms *= 2
        cursor = found.cursor


@WAYS
@settings(max_examples=120, deadline=None)
@given(
    keeps=jobs.jobs,
    given_filter=jobs.filters(),
    sort=st.sampled_from(SORTS),
    order=st.sampled_from(ORDERS),
    scope=st.sampled_from(jobs.SCOPES),
    limit=st.integers(1, 6),
)
def test_all_pages_together_are_what_the_twin_finds(
    set_max: int,
    streams_max: int,
    keeps: list[Kept],
    given_filter: Filter,
    sort: str,
    order: str,
    scope: tuple[str, ...],
    limit: int,
) -> None:
    shelf = Shelf(keeps)
    expected = ordered([kept for kept in keeps if means(given_filter, kept, scope)], sort, order)
    search = body(given_filter, sort=sort, order=order, limit=limit)

    with paths(set_max, streams_max):
        found = list(pages(shelf, search, scope))

    assert [name for page in found for name in names(page)] == [kept.job.id for kept in expected]
    assert all(page.total == len(expected) and page.total_is_exact for page in found)
    assert [page.has_more for page in found] == [True] * (len(found) - 1) + [False]
    assert not any(page.partial for page in found)
