"""Cursors: they are read as they were written, and nothing else is read."""

from base64 import urlsafe_b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.mirror.query.cursors import Cursor, digest_of, read_cursor, write_cursor
from corvo.mirror.query.terms import NotAnswered
from corvo.protocol.questions import Filter, Found, Search, SearchBody
from corvo.scopes import EVERYTHING
from tests.mirror.shelves import Shelf
from tests.mirror.test_select import many

DIGEST = digest_of(Filter(queue="a"), "created_at")
TYPES = (str, str, int)


@given(st.text(max_size=30), st.text(max_size=130), st.integers(0, 1 << 20))
def test_a_cursor_is_read_as_it_was_written(created_at: str, job_id: str, shard: int) -> None:
    text = write_cursor(DIGEST, "before", (created_at, job_id, shard))

    cursor = read_cursor(text, DIGEST, TYPES)

    assert (cursor.way, cursor.key) == ("before", (created_at, job_id, shard))


def written(key: tuple[str | int | None, ...], *, version: int = 1, way: str = "after") -> str:
    packed = msgspec.msgpack.encode([version, DIGEST, way, key])
    return urlsafe_b64encode(packed).decode()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "unknown cursor"),
        ("x", "unknown cursor"),
        ("é", "unknown cursor"),
        ("eyJvZmZzZXQiOjUwfQ==", "unknown cursor"),
        (written(("a", "b", 1), version=2), "another version"),
        (written(("a", "b", 1), way="beside"), "unknown cursor"),
        (written(("a", "b", "1")), "unknown cursor"),
        (written(("a", "b")), "unknown cursor"),
        (written(("a", "b", 1, 1)), "unknown cursor"),
        (written(("a", "b", 1 << 63)), "unknown cursor"),
        (written(("a", "b", None)), "unknown cursor"),
        (write_cursor(digest_of(Filter(queue="b"), "x"), "after", ("a", "b", 1)), "another filter"),
    ],
)
def test_what_is_no_cursor_of_this_search_is_refused(text: str, told: str) -> None:
    with pytest.raises(NotAnswered) as refused:
        read_cursor(text, DIGEST, TYPES)

    assert refused.value.refused.code == "bad_cursor"
    assert told in refused.value.refused.error


@given(st.binary(max_size=60))
def test_no_bytes_are_more_than_refused(data: bytes) -> None:
    text = urlsafe_b64encode(data).decode()

    try:
        cursor = read_cursor(text, DIGEST, TYPES)
    except NotAnswered:
        return

    assert isinstance(cursor, Cursor)


def test_a_cursor_is_of_one_filter_and_one_order() -> None:
    shelf = Shelf(many(10))
    cursor = shelf.ask(Search(scope=EVERYTHING, search=SearchBody(limit=2)), Found).cursor

    others = [
        SearchBody(limit=2, cursor=cursor, queue="a"),
        SearchBody(limit=2, cursor=cursor, order="asc"),
        SearchBody(limit=2, cursor=cursor, sort="priority"),
    ]

    assert [shelf.refusal(Search(scope=EVERYTHING, search=other)).code for other in others] == [
        "bad_cursor"
    ] * 3
    assert shelf.ask(
        Search(scope=EVERYTHING, search=SearchBody(limit=5, cursor=cursor)), Found
    ).jobs
