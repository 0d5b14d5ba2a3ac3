"""Pages of jobs: every filter, order and way of turning pages finds what the twin finds."""

from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.mirror.query import plan, scan
from corvo.mirror.query.cursors import digest_of, write_cursor
from corvo.mirror.query.terms import understand
from corvo.model import Event, Job, JobError, State
from corvo.protocol.questions import Filter, RawPage, Search, SearchBody
from corvo.scopes import EVERYTHING, Scope
from corvo.times import sortable
from tests.mirror import jobs
from tests.mirror.shelves import Shelf
from tests.mirror.twin import EPOCH_NS, Kept, means, ordered

SORTS = ("created_at", "priority", "started_at", "completed_at", "attempt")
ORDERS = ("asc", "desc")


@contextmanager
def paths(set_max: int, streams_max: int = 96) -> Iterator[None]:
    """Few jobs go other ways than many: make few look like many."""
    with (
        mock.patch.object(scan, "SET_MAX", set_max),
        mock.patch.object(scan, "STREAMS_MAX", streams_max),
        mock.patch.object(plan, "_MARK_EVERY", 2),
    ):
        yield


WAYS = pytest.mark.parametrize(
    ("set_max", "streams_max"), [(4_000, 96), (3, 96), (-1, 96), (-1, 1)]
)


def names(found: RawPage) -> list[str]:
    return [msgspec.json.decode(job, type=Named).id for job in found.jobs]


class Named(msgspec.Struct):
    id: str


def body(given: Filter, **words: object) -> SearchBody:
    fields = {name: getattr(given, name) for name in Filter.__struct_fields__}
    return msgspec.convert(fields | words, SearchBody)


def pages(
    shelf: Shelf, search: SearchBody, scope: Scope, *, every: int = 0, budget_ms: int = 60
) -> Iterator[RawPage]:
    """All pages, from the first to the last."""
    cursor = search.cursor
    for _ in range(1_000):
        question = Search(
            search=msgspec.structs.replace(search, cursor=cursor), scope=scope, budget_ms=budget_ms
        )
        found = shelf.ask(question, RawPage, every=every)
        yield found
        if found.cursor is None:
            return
        assert found.cursor != cursor, "whoever goes on gets further"
        cursor = found.cursor
    pytest.fail("the pages go round and round")


@WAYS
@settings(max_examples=80, deadline=None)
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
    scope: Scope,
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


@WAYS
@settings(max_examples=40, deadline=None)
@given(
    keeps=jobs.jobs,
    given_filter=jobs.filters(),
    sort=st.sampled_from(SORTS),
    order=st.sampled_from(ORDERS),
    limit=st.integers(1, 4),
)
def test_turning_back_shows_the_same_jobs_once_more(
    set_max: int,
    streams_max: int,
    keeps: list[Kept],
    given_filter: Filter,
    sort: str,
    order: str,
    limit: int,
) -> None:
    shelf = Shelf(keeps)
    expected = ordered([kept for kept in keeps if means(given_filter, kept)], sort, order)
    search = body(given_filter, sort=sort, order=order, limit=limit)

    with paths(set_max, streams_max):
        last = list(pages(shelf, search, EVERYTHING))[-1]
        back = [last]
        while back[-1].prev_cursor is not None:
            turned = msgspec.structs.replace(search, cursor=back[-1].prev_cursor)
            back.append(shelf.ask(Search(scope=EVERYTHING, search=turned), RawPage))

    assert [name for page in back[::-1] for name in names(page)] == [
        kept.job.id for kept in expected
    ]


@WAYS
@settings(max_examples=40, deadline=None)
@given(
    keeps=jobs.jobs,
    given_filter=jobs.filters(),
    sort=st.sampled_from(SORTS),
    order=st.sampled_from(ORDERS),
    limit=st.integers(1, 4),
    every=st.sampled_from((20, 60, 200)),
    budget_ms=st.integers(1, 80),
)
def test_what_the_time_was_over_for_comes_with_the_next_pages(
    set_max: int,
    streams_max: int,
    keeps: list[Kept],
    given_filter: Filter,
    sort: str,
    order: str,
    limit: int,
    every: int,
    budget_ms: int,
) -> None:
    shelf = Shelf(keeps)
    expected = ordered([kept for kept in keeps if means(given_filter, kept)], sort, order)
    search = body(given_filter, sort=sort, order=order, limit=limit)

    with paths(set_max, streams_max):
        found = list(pages(shelf, search, EVERYTHING, every=every, budget_ms=budget_ms))

    assert [name for page in found for name in names(page)] == [kept.job.id for kept in expected]
    assert all(page.partial == bool(page.why_partial) for page in found)
    assert all(page.cursor is not None for page in found if page.partial)
    assert all(page.total <= len(expected) for page in found)
    assert all(page.total == len(expected) for page in found if page.total_is_exact)


@WAYS
@settings(max_examples=60, deadline=None)
@given(
    keeps=jobs.jobs,
    given_filter=jobs.filters(),
    sort=st.sampled_from(SORTS),
    order=st.sampled_from(ORDERS),
    scope=st.sampled_from(jobs.SCOPES),
    limit=st.integers(1, 4),
    every=st.sampled_from((5, 20, 60)),
    budget_ms=st.integers(1, 40),
)
def test_who_may_see_some_queues_gets_all_of_them_however_often_the_time_is_over(
    set_max: int,
    streams_max: int,
    keeps: list[Kept],
    given_filter: Filter,
    sort: str,
    order: str,
    scope: Scope,
    limit: int,
    every: int,
    budget_ms: int,
) -> None:
    shelf = Shelf(keeps)
    expected = ordered([kept for kept in keeps if means(given_filter, kept, scope)], sort, order)
    search = body(given_filter, sort=sort, order=order, limit=limit)

    with paths(set_max, streams_max):
        found = list(pages(shelf, search, scope, every=every, budget_ms=budget_ms))

    assert [name for page in found for name in names(page)] == [kept.job.id for kept in expected]


def foreign(number: int, at_ns: int) -> Kept:
    job = Job(
        id=f"s00_job_secret{number:04}",
        queue="theirs",
        state=State.ACTIVE,
        payload=b"{}",
        created_ns=at_ns,
        order_ns=number,
        started_ns=at_ns,
        attempt=number % 5,
    )
    return Kept(job, 0)


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("order", ORDERS)
def test_the_place_where_the_time_was_over_does_not_tell_of_jobs_that_may_not_be_seen(
    sort: str, order: str
) -> None:
    late_ns = 7 * 1_000_000_000 + 123_456_789
    theirs = [foreign(number, EPOCH_NS + number * late_ns) for number in range(500)]
    shelf = Shelf([*theirs, four()[0]])
    search = SearchBody(sort=sort, order=order, payload_contains="not there")

    with paths(-1, 1):
        found = list(pages(shelf, search, Scope(("a*",)), every=20, budget_ms=150))

    told = [urlsafe_b64decode(f"{page.cursor}==") for page in found if page.cursor is not None]
    times = {sortable(EPOCH_NS + number * late_ns).encode() for number in range(500)}
    assert len(told) > 1
    assert not any(page.jobs for page in found)
    assert not any(b"secret" in cursor for cursor in told)
    assert not any(at in cursor for cursor in told for at in times)


@WAYS
@settings(max_examples=40, deadline=None)
@given(
    keeps=jobs.jobs,
    others=jobs.jobs,
    given_filter=jobs.filters(),
    sort=st.sampled_from(SORTS),
    order=st.sampled_from(ORDERS),
    gone=st.sets(st.integers(0, 24)),
)
def test_what_comes_and_goes_meanwhile_moves_no_other_job(
    set_max: int,
    streams_max: int,
    keeps: list[Kept],
    others: list[Kept],
    given_filter: Filter,
    sort: str,
    order: str,
    gone: set[int],
) -> None:
    there = {kept.name for kept in keeps}
    new = [kept for kept in others if kept.name not in there]
    old = [kept for number, kept in enumerate(keeps) if number in gone]
    staying = [kept for number, kept in enumerate(keeps) if number not in gone]
    shelf = Shelf([*staying, *old])
    search = body(given_filter, sort=sort, order=order, limit=2)

    seen: list[str] = []
    with paths(set_max, streams_max):
        for number, page in enumerate(pages(shelf, search, EVERYTHING)):
            seen += identities(page)
            if number == 0:
                shelf.put(new)
                for kept in old:
                    shelf.remove(kept)

    expected = ordered([kept for kept in staying if means(given_filter, kept)], sort, order)
    kept_names = [label(kept) for kept in expected]
    assert [name for name in seen if name in kept_names] == kept_names


def label(kept: Kept) -> str:
    return f"{kept.job.id} {kept.job.hostname}"


class Labelled(msgspec.Struct):
    id: str
    hostname: str


def identities(found: RawPage) -> list[str]:
    shown = [msgspec.json.decode(job, type=Labelled) for job in found.jobs]
    return [f"{job.id} {job.hostname}" for job in shown]


def test_a_page_shows_what_is_known_of_a_job() -> None:
    job = Job(
        id="s00_job_1",
        queue="mail",
        state=State.DEAD,
        payload=b'{"b": 1,  "a": 1e400}',
        created_ns=EPOCH_NS,
        order_ns=1,
        trail=(Event(EPOCH_NS + 500_000_000, "dead"),),
        priority=1,
        kind="letter",
        attempt=3,
        failures=2,
        worker_id="w1",
        hostname="h1",
        failed_ns=EPOCH_NS + 250,
        finished_ns=EPOCH_NS + 250,
        tags={"z": "1", "a": '"'},
        chain_id="c1",
        hold_reason="why",
    )
    errors = (
        JobError(attempt=2, error="first", at_ns=EPOCH_NS),
        JobError(attempt=3, error="second", at_ns=EPOCH_NS),
    )
    shelf = Shelf([Kept(job, 0, errors)])

    found = shelf.ask(Search(scope=EVERYTHING), RawPage)

    assert bytes(found.jobs[0]).decode() == (
        '{"id":"s00_job_1","queue":"mail","state":"dead","payload":{"b": 1,  "a": 1e400},'
        '"priority":1,"attempt":3,"max_retries":3,"kind":"letter","worker_id":"w1",'
        '"tags":{"a":"\\"","z":"1"},"chain_id":"c1","chain_step":0,'
        '"created_at":"2026-02-11T10:00:00Z","failed_at":"2026-02-11T10:00:00.00000025Z",'
        '"finished_at":"2026-02-11T10:00:00.00000025Z","hold_reason":"why",'
        '"last_error":"second","hostname":"h1","changed_at":"2026-02-11T10:00:00.5Z","failures":2}'
    )


def test_a_page_of_large_jobs_is_cut_short_and_the_next_one_goes_on() -> None:
    payload = b'"' + b"x" * 3_000_000 + b'"'
    keeps = [
        Kept(
            Job(
                id=f"s00_job_{number}",
                queue="a",
                state=State.PENDING,
                payload=payload,
                created_ns=EPOCH_NS + number,
                order_ns=number,
            ),
            0,
        )
        for number in range(5)
    ]
    shelf = Shelf(keeps)

    found = list(pages(shelf, SearchBody(order="asc"), EVERYTHING))

    assert [names(page) for page in found] == [
        ["s00_job_0", "s00_job_1"],
        ["s00_job_2", "s00_job_3"],
        ["s00_job_4"],
    ]
    assert not any(page.partial for page in found)


@pytest.mark.parametrize(
    ("search", "field", "told"),
    [
        (SearchBody(state=["pending", "pendng"]), "state", "expected one of pending, active"),
        (SearchBody(state=[]), "state", "expected a value; leave the field out"),
        (SearchBody(tags={}), "tags", "expected a value; leave the field out"),
        (
            SearchBody(priority="urgent"),
            "priority",
            "expected critical, high, normal, low, 0, 1 or 2; got 'urgent'",
        ),
        (SearchBody(state="pending,"), "state", "expected one of pending, active"),
        (SearchBody(state=""), "state", "expected a value; leave the field out"),
        (SearchBody(sort="queue"), "sort", "expected one of created_at, priority"),
        (SearchBody(order="up"), "order", "expected one of asc, desc; got 'up'"),
        (
            SearchBody(created_after="yesterday"),
            "created_after",
            "expected a time by RFC 3339 or a date, such as 2026-02-20",
        ),
        (SearchBody(created_after="2026-02-30T00:00:00Z"), "created_after", "expected a time"),
        (SearchBody(created_after="2026-02-20T00:00:00"), "created_after", "expected a time"),
        (SearchBody(queue=""), "queue", "expected a value; leave the field out"),
        (SearchBody(payload_contains=""), "payload_contains", "expected a value"),
        (
            SearchBody(attempt_min=3, attempt_max=2),
            "attempt_min",
            "expected at most attempt_max, which is 2; got 3",
        ),
        (
            SearchBody(created_after="2026-02-20T00:00:01Z", created_before="2026-02-20T00:00:00Z"),
            "created_after",
            "expected a time before created_before",
        ),
        (SearchBody(payload_jq="._ @"), "payload_jq", "payload_jq: "),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused_with_what_is_allowed(
    search: SearchBody, field: str, told: str
) -> None:
    refused = Shelf().refusal(Search(scope=EVERYTHING, search=search))

    assert (refused.code, refused.field) == ("bad_filter", field)
    assert told in refused.error


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SearchBody(state="dead", limit=1), SearchBody(state=["dead"], limit=1)),
        (SearchBody(state="dead,held", limit=1), SearchBody(state=["dead", "held"], limit=1)),
        (SearchBody(priority=2, limit=1), SearchBody(priority="normal", limit=1)),
        (SearchBody(priority="low", limit=1), SearchBody(priority=" Normal ", limit=1)),
    ],
)
def test_a_cursor_goes_on_in_the_same_search_however_it_is_written(
    one: SearchBody, other: SearchBody
) -> None:
    shelf = Shelf(various())

    first = shelf.ask(Search(scope=EVERYTHING, search=one), RawPage)
    going_on = msgspec.structs.replace(other, cursor=first.cursor)
    second = shelf.ask(Search(scope=EVERYTHING, search=going_on), RawPage)

    assert first.total == second.total > 1
    assert len({*names(first), *names(second)}) == 2


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2026-02-20", "2026-02-20T00:00:00.000000000Z"),
        ("2026-02-20 11:00:05.25+01:00", "2026-02-20T10:00:05.250000000Z"),
        ("2026-02-20T10:00:05.1234567899Z", "2026-02-20T10:00:05.123456789Z"),
        ("1969-12-31T23:59:59Z", "1970-01-01T00:00:00.000000000Z"),
        ("0000-01-01T00:00:00Z", "1970-01-01T00:00:00.000000000Z"),
        ("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.999999999Z"),
    ],
)
def test_a_time_of_a_filter_is_held_between_1970_and_9999(text: str, written: str) -> None:
    meaning = understand(SearchBody(created_after=text), EVERYTHING)

    assert meaning.parameter("created_after") == written


def four() -> list[Kept]:
    return [
        Kept(
            Job(
                id=f"s00_job_{number}",
                queue="a",
                state=State.PENDING,
                payload=b'"x"',
                created_ns=EPOCH_NS + number,
                order_ns=number,
                started_ns=EPOCH_NS + number,
            ),
            0,
        )
        for number in (1, 2, 3, 4)
    ]


@WAYS
@pytest.mark.parametrize("sort", ["created_at", "started_at"])
@pytest.mark.parametrize("order", ORDERS)
def test_from_an_empty_page_the_way_leads_back_to_all_that_is_there(
    set_max: int, streams_max: int, sort: str, order: str
) -> None:
    keeps = four() if order == "asc" else four()[::-1]
    shelf = Shelf(keeps)
    search = SearchBody(sort=sort, order=order, limit=2, payload_contains="x", started_after=DAWN)

    def turn(cursor: str | None) -> RawPage:
        return shelf.ask(
            Search(scope=EVERYTHING, search=msgspec.structs.replace(search, cursor=cursor)), RawPage
        )

    with paths(set_max, streams_max):
        first = turn(None)
        second = turn(first.cursor)
        for kept in keeps[:2]:
            shelf.remove(kept)
        before = turn(second.prev_cursor)
        again = turn(before.cursor)
        shelf.put(keeps[:2])
        for kept in keeps[2:]:
            shelf.remove(kept)
        behind = turn(first.cursor)
        back = turn(behind.prev_cursor)

    assert names(before) == names(behind) == []
    assert (before.prev_cursor, behind.cursor) == (None, None)
    assert names(again) == [kept.job.id for kept in keeps[2:]]
    assert names(back) == [kept.job.id for kept in keeps[:2]]


DAWN = "2026-02-11T10:00:00Z"


@WAYS
@pytest.mark.parametrize("order", ORDERS)
def test_a_cursor_that_somebody_made_up_shows_nothing_that_the_filter_does_not_mean(
    set_max: int, streams_max: int, order: str
) -> None:
    shelf = Shelf(four())
    search = SearchBody(
        order=order,
        created_after="2026-02-11T10:00:00.000000001Z",
        created_before="2026-02-11T10:00:00.000000004Z",
    )
    digest = digest_of(msgspec.structs.replace(search, order=None), "created_at", order)
    outside = sortable(EPOCH_NS) if order == "asc" else sortable(EPOCH_NS + 9)
    cursor = write_cursor(digest, "after", (outside, "", 0))

    with paths(set_max, streams_max):
        found = shelf.ask(
            Search(scope=EVERYTHING, search=msgspec.structs.replace(search, cursor=cursor)), RawPage
        )

    assert sorted(names(found)) == ["s00_job_2", "s00_job_3"]


@pytest.mark.parametrize("at", range(10, 60))
def test_an_interrupt_that_comes_late_costs_no_more_than_a_shorter_page(at: int) -> None:
    shelf = Shelf(four())
    search = SearchBody(order="asc", payload_contains="x")

    found = shelf.disturbed(Search(scope=EVERYTHING, search=search), RawPage, at=at)
    rest = list(pages(shelf, msgspec.structs.replace(search, cursor=found.cursor), EVERYTHING))
    others = rest if found.cursor is not None else []

    assert [name for page in [found, *others] for name in names(page)] == [
        kept.job.id for kept in four()
    ]


def various() -> list[Kept]:
    """Every attempt from 0 to 4, started or not, in each of two states."""
    return [
        Kept(
            Job(
                id=f"s00_job_{number:02}",
                queue="a",
                state=(State.DEAD, State.PENDING)[number % 2],
                payload=b"{}",
                created_ns=EPOCH_NS + number % 3,
                order_ns=number,
                attempt=number % 5,
                priority=number % 3,
                started_ns=EPOCH_NS + number % 4 if number % 4 else 0,
                completed_ns=EPOCH_NS + number % 4 if number % 4 else 0,
            ),
            0,
        )
        for number in range(30)
    ]


BORDERS = [
    *(("attempt", {"attempt_min": number}) for number in range(6)),
    *(("attempt", {"attempt_max": number}) for number in range(5)),
    *(("priority", {"priority": word}) for word in ("critical", "high", "normal")),
    *(
        (f"{stem}_at", {f"{stem}_{side}": f"2026-02-11T10:00:00.00000000{number}Z"})
        for stem in ("created", "started", "completed")
        for side in ("after", "before")
        for number in range(5)
    ),
]


@WAYS
@pytest.mark.parametrize(("sort", "fields"), BORDERS)
@pytest.mark.parametrize("order", ORDERS)
def test_what_is_sorted_by_may_be_asked_for_up_to_a_border(
    set_max: int, streams_max: int, sort: str, fields: dict[str, object], order: str
) -> None:
    keeps = various()
    shelf = Shelf(keeps)
    given_filter = msgspec.convert({"state": ["dead"], **fields}, Filter)
    expected = ordered([kept for kept in keeps if means(given_filter, kept)], sort, order)

    with paths(set_max, streams_max):
        found = list(pages(shelf, body(given_filter, sort=sort, order=order, limit=4), EVERYTHING))

    assert [name for page in found for name in names(page)] == [kept.job.id for kept in expected]
    assert {(page.total, page.total_is_exact) for page in found} == {(len(expected), True)}


@WAYS
def test_errors_are_of_a_job_in_its_shard(set_max: int, streams_max: int) -> None:
    job = four()[0].job
    failed = msgspec.structs.replace(job, failures=1)
    errors = [JobError(attempt=1, error=text, worker_id=text, at_ns=EPOCH_NS) for text in "xy"]
    shelf = Shelf([Kept(failed, shard, (errors[shard],)) for shard in (0, 1)])
    searches = [SearchBody(error_contains="y"), SearchBody(worker_id="y")]

    with paths(set_max, streams_max):
        found = [shelf.ask(Search(scope=EVERYTHING, search=search), RawPage) for search in searches]

    assert [page.total for page in found] == [1, 1]
    assert ['"last_error":"y"' in bytes(page.jobs[0]).decode() for page in found] == [True, True]


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        ({"a,": ":", "b": "c"}, {":": ","}),
        ({",": ":", "b": "c"}, {":": ","}),
        ({'x"k': "v"}, {"k": "v"}),
        ({"k\0": "v"}, {"k": "v"}),
        ({"k": "v\0w"}, {"k": "v"}),
        ({"k": "V"}, {"k": "v"}),
        ({"k": "v", "l": "x"}, {"k": "v", "l": "v"}),
    ],
)
def test_a_tag_is_not_found_in_the_text_of_others(
    stored: dict[str, str], wanted: dict[str, str]
) -> None:
    job = msgspec.structs.replace(four()[0].job, tags=stored)
    shelf = Shelf([Kept(job, 0)])

    other = shelf.ask(Search(scope=EVERYTHING, search=SearchBody(tags=wanted)), RawPage)
    own = shelf.ask(Search(scope=EVERYTHING, search=SearchBody(tags=stored)), RawPage)

    assert (other.total, own.total) == (0, 1)
