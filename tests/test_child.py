"""What a process of a node hears from its parent, however the bytes are cut."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
import trio

from corvo.child import LEAVE, PREPARE, Parent, Update
from corvo.protocol.cluster import alone

FIRST = Update(map=alone(1, 2), sockets={0: "/a", 1: "/b"})
SECOND = Update(map=msgspec.structs.replace(alone(1, 2), version=7), sockets={0: "/a"})


@contextmanager
def pipe() -> Iterator[tuple[Parent, Callable[[bytes], int], Callable[[], None]]]:
    """A parent to be heard, how to write as it, and how to close its end."""
    ours, theirs = os.pipe()
    is_open = True

    def close() -> None:
        nonlocal is_open
        is_open = False
        os.close(theirs)

    try:
        yield Parent(ours), lambda data: os.write(theirs, data), close
    finally:
        os.close(ours)
        if is_open:
            close()


def line(update: Update) -> bytes:
    return msgspec.json.encode(update) + b"\n"


def test_a_config_is_one_line_and_what_came_with_it_is_not_lost() -> None:
    told: list[Update] = []
    with pipe() as (parent, write, close):
        write(b'{"a":1}\n' + line(FIRST) + LEAVE)
        close()

        assert parent.read_line() == b'{"a":1}'
        assert trio.run(parent.wait, told.append) is True
    assert told == [FIRST]


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_updates_come_whole_and_in_order_however_they_are_cut(size: int) -> None:
    told: list[Update] = []
    whole = line(FIRST) + line(SECOND) + LEAVE

    async def main(
        parent: Parent, write: Callable[[bytes], int], close: Callable[[], None]
    ) -> bool:
        async with trio.open_nursery() as nursery:

            async def speak() -> None:
                for start in range(0, len(whole), size):
                    write(whole[start : start + size])
                    await trio.lowlevel.checkpoint()
                close()

            nursery.start_soon(speak)
            return await parent.wait(told.append)

    with pipe() as ends:
        assert trio.run(main, *ends) is True
    assert told == [FIRST, SECOND]


def test_a_parent_that_stops_it_soon_has_not_asked_yet() -> None:
    told: list[Update] = []
    prepared: list[bool] = []
    with pipe() as (parent, write, close):
        write(b"{}\n" + line(FIRST) + PREPARE + line(SECOND))
        close()
        parent.read_line()

        assert trio.run(parent.wait, told.append, lambda: prepared.append(True)) is False
    assert (told, prepared) == ([FIRST, SECOND], [True])


@pytest.mark.parametrize("last", [b"", b"lea", line(FIRST)[:-5]])
def test_a_parent_that_ends_without_a_word_has_not_asked(last: bytes) -> None:
    told: list[Update] = []
    with pipe() as (parent, write, close):
        write(line(FIRST) + last)
        close()

        assert trio.run(parent.wait, told.append) is False
    assert told == [FIRST]


def test_a_parent_that_ends_before_the_config_gives_a_short_line() -> None:
    with pipe() as (parent, write, close):
        write(b'{"a"')
        close()

        assert parent.read_line() == b'{"a"'
