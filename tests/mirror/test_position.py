"""What a mirror asks its shard next, and what follows from an answer."""

import pytest

from corvo.errors import WireError
from corvo.mirror.follow.position import Position
from corvo.mirror.follow.progress import Cursor
from corvo.protocol import wire

JOB = (b"j|a", b"1")


def at(index: int, *, pass_key: bytes | None = None) -> Position:
    cursor = Cursor(3, index=index, digest=index * 7, pass_key=pass_key)
    return Position(cursor, keys_max=10, scan_keys_max=20)


def take(position: Position, answer: wire.FollowerAnswer) -> None:
    step = position.after(position.next_request(), answer)
    position.move(step)


def scanned(through: int, last: bytes = b"") -> wire.Scanned:
    return wire.Scanned(1, (JOB,), last, through, through * 7)


def changes(index: int, through: int) -> wire.Changes:
    return wire.Changes(1, index, index * 7, index, through, (JOB,), through_digest=through * 7)


def test_changes_move_the_cursor_and_are_asked_for_behind_it() -> None:
    position = at(5)

    take(position, changes(8, 9))

    request = position.next_request()
    assert isinstance(request, wire.Follow)
    assert (request.after, request.digest, request.through) == (8, 56, 9)


def test_a_reset_begins_a_pass_that_reads_changes_between_its_pages() -> None:
    position = at(5)

    take(position, wire.Reset(1, 12, 84, 12, 0, 0))
    first = position.next_request()
    take(position, scanned(14, b"j|a"))
    second = position.next_request()
    take(position, changes(14, 14))
    third = position.next_request()
    take(position, scanned(14))

    assert first == wire.Scan(2, b"", 20, least=12)
    assert isinstance(second, wire.Follow)
    assert third == wire.Scan(6, b"j|a", 20, least=14)
    assert position.cursor.is_whole
    assert isinstance(position.next_request(), wire.Follow)


def test_a_page_of_a_pass_that_is_older_than_the_cursor_is_not_taken() -> None:
    """As of a replica that lags behind the one which was followed before."""
    position = at(12, pass_key=b"")

    step = position.after(position.next_request(), scanned(11))
    position.move(step)

    assert step.page.pairs == ()
    assert step.page.scanned is None
    assert position.cursor == Cursor(3, index=12, digest=84, pass_key=b"")
    assert isinstance(position.next_request(), wire.Follow)


def test_a_new_link_begins_an_entry_again_that_was_told_in_part() -> None:
    position = at(5)
    part = wire.Changes(1, 5, 35, 5, 6, (JOB,), (), b"j|a", 42)
    take(position, part)
    request = position.next_request()
    assert isinstance(request, wire.Follow)
    assert request.after_key == b"j|a"

    position.linked()

    again = position.next_request()
    assert isinstance(again, wire.Follow)
    assert again.after_key == b""


def test_an_answer_that_does_not_fit_is_refused() -> None:
    position = at(5)

    with pytest.raises(WireError, match="a Follow was answered with Scanned"):
        position.after(position.next_request(), scanned(6))
