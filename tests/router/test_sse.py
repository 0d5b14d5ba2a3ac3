"""Frames and ids of events, and what rings keep."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.protocol import wire
from corvo.router.feeds import rings
from corvo.router.feeds.events import EventFilter, kept_events
from corvo.router.feeds.rings import Nowhere, Page, Ring
from corvo.router.http import sse
from corvo.router.http.messages import Problem
from corvo.router.http.sse import Place
from corvo.scopes import EVERYTHING, Scope
from tests.router.feeds import EventSource

PLACES = st.builds(
    Place,
    st.integers(0, 10**18 - 1),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, 10**9 - 1),
)


@given(st.dictionaries(st.integers(0, 99), PLACES, max_size=9))
def test_an_id_is_read_as_it_was_written(places: dict[int, Place]) -> None:
    assert sse.parse(sse.render(places), 100) == places


@given(st.text(alphabet="s0123456789=-.,abcf \t\n", max_size=60))
def test_what_is_no_id_is_a_problem_and_nothing_worse(text: str) -> None:
    places: dict[int, Place] = {}
    problems: list[Problem] = []

    try:
        places = sse.parse(text, 100)
    except Problem as problem:
        problems.append(problem)

    assert all(shard < 100 for shard in places)
    assert all((each.status, each.field) == (400, "last_event_id") for each in problems)


def test_an_id_says_place_digest_and_what_was_given() -> None:
    text = sse.render({3: Place(77, 0xBADCAFE, 2), 0: Place(1042, 0x8F3A22C1)})

    assert text == "s0=1042-8f3a22c1,s3=77-0badcafe.2"


@pytest.mark.parametrize("text", ["s0=1", "s0=1-8f3a22c", "S0=1-8f3a22c1", "s0=1-8f3a22c1.", "x"])
def test_an_id_without_a_digest_or_otherwise_written_is_none(text: str) -> None:
    with pytest.raises(Problem):
        sse.parse(text, 4)


def test_an_id_may_not_be_longer_than_any_that_is_given() -> None:
    with pytest.raises(Problem, match="too long"):
        sse.parse("s0=1-00000000," * 1_000, 4)


def test_a_browser_reads_what_is_written_byte_by_byte() -> None:
    written = b"".join(
        [
            sse.RETRY,
            sse.position("s0=1-00000000"),
            sse.comment("a word"),
            sse.frame(b'{"a":1}', id_text="s0=2-00000000", event="completed"),
            sse.KEEPALIVE,
            sse.frame(b"{}"),
        ]
    )
    browser = EventSource()

    ids = []
    for byte in written:
        browser.feed(bytes([byte]))
        ids.append(browser.last_id)

    assert browser.retry_ms == 2_000
    assert [(event.id, event.event, event.data) for event in browser.events] == [
        ("s0=2-00000000", "completed", b'{"a":1}'),
        ("s0=2-00000000", "message", b"{}"),
    ]
    assert list(dict.fromkeys(ids)) == ["", "s0=1-00000000", "s0=2-00000000"]
    assert browser.comments == ["a word", "still here"]


def changes(index: int, *counts: int) -> wire.Changes:
    """A page that ends at a place; its last entries have so many events each."""
    first = index - len(counts) + 1
    told = tuple(
        wire.Happenings(first + at, 0, tuple(wire.Happening("enqueued") for _ in range(count)))
        for at, count in enumerate(counts)
        if count
    )
    return wire.Changes(1, index, index + 500, 0, index, (), told)


def page_at(ring: Ring, place: Place) -> Page:
    page = ring.page_at(place)
    assert isinstance(page, Page)
    return page


def test_a_place_is_found_at_the_beginning_of_a_page_and_in_it() -> None:
    ring = Ring(0, Place(10, 510))
    ring.add(changes(13, 2, 0, 3))
    ring.add(changes(15, 1, 1))

    assert [told.index for told in page_at(ring, Place(10, 510)).events] == [11, 11, 13, 13, 13]
    inside = page_at(ring, Place(11, 511))
    assert inside.start.index == 10
    assert inside.given_at(Place(11, 511)) == 2
    assert inside.given_at(Place(12, 512, 1)) == 3
    assert page_at(ring, Place(13, 513)).start.index == 13
    assert ring.page_at(Place(15, 515)) is Nowhere.BEHIND
    assert ring.page_at(Place(16, 516)) is Nowhere.BEHIND
    assert ring.page_at(Place(9, 509)) is Nowhere.BEFORE


def test_what_somebody_has_who_read_longer_pages_is_counted_on_behind_a_shorter_one() -> None:
    ring = Ring(0, Place(10, 510))
    ring.add(changes(13, 2, 0, 3))
    page = page_at(ring, Place(10, 510, 7))

    assert page.place(page.given_at(Place(10, 510, 7))) == Place(13, 513, 2)
    assert page.place(4) == Place(10, 510, 4)
    assert page.place(5) == Place(13, 513)
    assert page.place(0) == Place(10, 510)


def test_a_place_is_of_the_log_where_the_digests_are_the_same() -> None:
    ring = Ring(0, Place(10, 510))
    ring.add(changes(13, 2, 0, 3))

    assert ring.knows(Place(10, 510, 3))
    assert ring.knows(Place(13, 513))
    assert not ring.knows(Place(10, 511))
    assert not ring.knows(Place(13, 1))
    assert not ring.knows(Place(11, 511)), "only the ends of pages can be compared"


def test_a_ring_keeps_so_many_events_and_the_last_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "EVENTS_MAX", 10)
    ring = Ring(0, Place(0, 500))
    for index in range(1, 8):
        ring.add(changes(index, 3))
    kept = [index for index in range(7) if isinstance(ring.page_at(Place(index, 0)), Page)]

    ring.add(changes(8, 50))

    assert kept == [5, 6]
    assert ring.page_at(Place(6, 506)) is Nowhere.BEFORE
    assert len(page_at(ring, Place(7, 507)).events) == 50


def test_a_ring_keeps_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "BYTES_MAX", 2_000)
    ring = Ring(0, Place(0, 500))
    for index in range(1, 8):
        ring.add(changes(index, 1))
    kept = [index for index in range(7) if isinstance(ring.page_at(Place(index, 0)), Page)]

    assert kept == [4, 5, 6]


NAMES = st.sampled_from(["a", "b", "_corvo.c"])
SOME = st.frozensets(NAMES, max_size=2)


@given(
    st.lists(st.tuples(NAMES, NAMES, NAMES), max_size=12),
    st.builds(EventFilter, SOME, SOME, SOME),
    st.sampled_from([EVERYTHING, Scope(("a",)), Scope(("a", "_corvo.*"))]),
)
def test_what_is_found_by_its_names_is_what_is_found_by_looking_at_everything(
    events: list[tuple[str, str, str]], event_filter: EventFilter, scope: Scope
) -> None:
    told = tuple(wire.Happening(what, job_id, queue) for what, job_id, queue in events)
    page = Page(Place(0, 0), Place(1, 1), kept_events(0, (wire.Happenings(1, 0, told),)))

    found = [at for at in page.among(event_filter) if event_filter.matches(page.events[at], scope)]

    assert found == [
        at
        for at, (what, job_id, queue) in enumerate(events)
        if (not event_filter.types or what in event_filter.types)
        and (not event_filter.job_ids or job_id in event_filter.job_ids)
        and (not event_filter.queues or queue in event_filter.queues)
        and (scope == EVERYTHING or queue == "a" or (queue == "_corvo.c" and len(scope.names) == 2))
        and (queue != "_corvo.c" or event_filter.queues or event_filter.job_ids)
    ]
    assert found == [at for at, each in enumerate(page.events) if event_filter.matches(each, scope)]


def test_the_line_ends_of_a_payload_are_lines_of_the_event() -> None:
    data = b'{"a":\n1,\r\n"b":\r2}'

    told = sse.frame(data, id_text="s0=2-00000000")

    assert told == b'id: s0=2-00000000\ndata: {"a":\ndata: 1,\ndata: "b":\ndata: 2}\n\n'
    browser = EventSource()
    browser.feed(told)
    [event] = browser.events
    assert msgspec.json.decode(event.data) == msgspec.json.decode(data)
