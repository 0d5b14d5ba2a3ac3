"""A head beside a sorted list: it holds the smallest keys, and knows where to look for more."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.kv.heads import HEAD_KEYS_MAX, Head

PREFIX: Final = b"i|"
KEYS_MAX: Final = 8
"""Small, so that a few keys are more than a head holds."""

Step = tuple[str, int]
STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "run", "remove", "take", "fill", "look", "forget"]),
        st.integers(0, 40),
    ),
    max_size=60,
)


@pytest.fixture(autouse=True, scope="module")
def _small_heads() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corvo.kv.heads.HEAD_KEYS_MAX", KEYS_MAX)
        yield


def key_of(number: int) -> bytes:
    return PREFIX + bytes((number,))


class Index:
    """A sorted list and the head that is kept for it; each change is checked at once."""

    def __init__(self, *, is_filled: bool) -> None:
        self.rows: list[bytes] = []
        self.head = Head(PREFIX, self.scan)
        self.is_filled = is_filled
        """Whether the head is filled before each change, as an index with a cursor has it."""
        self.start = PREFIX
        """Where a cursor must be: it follows from the changes alone."""

    def scan(self, start: bytes, limit: int) -> list[bytes]:
        assert start >= self.head.start, "nothing is looked for where nothing is"
        at = bisect_left(self.rows, start)
        return self.rows[at : at + limit]

    def add(self, key: bytes) -> None:
        if key in self.rows:
            return
        if self.is_filled:
            self.head.fill()
        held = len(self.head.keys)
        self.rows = sorted([*self.rows, key])
        self.head.add(key)
        self.start = min(self.start, key)
        assert len(self.head.keys) <= max(held, KEYS_MAX)

    def remove(self, key: bytes) -> None:
        if self.is_filled:
            self.head.fill()
        if key == self.rows[0]:
            self.start = key
        self.rows = [row for row in self.rows if row != key]
        self.head.discard(key)

    def do(self, step: Step) -> None:
        match step:
            case "add", number:
                self.add(key_of(number))
            case "run", number:
                for following in range(number, number + KEYS_MAX):
                    self.add(key_of(following))
            case "remove", number if self.rows:
                self.remove(self.rows[number % len(self.rows)])
            case "remove", _:
                pass
            case "take", number:
                for key in self.rows[: number // 2]:
                    self.remove(key)
            case "fill", _:
                self.head.fill()
                assert bool(self.head.keys) == bool(self.rows)
            case "look", position:
                expected = self.rows[position] if position < len(self.rows) else None
                assert self.head.at(position) == expected
            case _:
                self.head = Head(self.start if self.is_filled else PREFIX, self.scan)
        self.check()

    def check(self) -> None:
        keys = self.head.keys
        assert keys == self.rows[: len(keys)]
        if self.rows:
            assert self.head.start <= self.rows[0]
        if self.is_filled:
            assert self.head.start == self.start


@given(STEPS)
def test_a_head_holds_the_smallest_keys_of_its_index(steps: list[Step]) -> None:
    index = Index(is_filled=False)

    for step in steps:
        index.do(step)


@given(STEPS)
def test_where_a_filled_head_starts_follows_from_the_changes_alone(steps: list[Step]) -> None:
    index = Index(is_filled=True)

    for step in steps:
        index.do(step)


@given(STEPS)
def test_whoever_looks_on_to_the_end_finds_every_key(steps: list[Step]) -> None:
    index = Index(is_filled=False)
    for step in steps:
        index.do(step)

    found = [index.head.at(position) for position in range(len(index.rows) + 1)]

    assert found == [*index.rows, None]


class Recorded:
    """A scan that remembers where it was asked to begin."""

    def __init__(self, rows: list[bytes]) -> None:
        self.rows = rows
        self.asked: list[bytes] = []

    def __call__(self, start: bytes, limit: int) -> list[bytes]:
        self.asked.append(start)
        return [row for row in self.rows if row >= start][:limit]


def test_a_new_head_reads_nothing() -> None:
    scan = Recorded([key_of(1)])

    head = Head(PREFIX, scan)

    assert head.keys == []
    assert scan.asked == []


def test_an_empty_index_is_read_once() -> None:
    scan = Recorded([])
    head = Head(PREFIX, scan)

    for _ in range(3):
        head.fill()

    assert head.keys == []
    assert head.at(0) is None
    assert scan.asked == [PREFIX]


def test_a_scan_begins_where_the_last_key_was_taken() -> None:
    scan = Recorded([key_of(number) for number in range(20)])
    head = Head(PREFIX, scan)
    head.fill()
    for key in list(head.keys):
        scan.rows.remove(key)
        head.discard(key)

    head.fill()

    assert scan.asked == [PREFIX, key_of(3)]
    assert head.keys == [key_of(4), key_of(5), key_of(6), key_of(7)]


def test_a_key_before_the_start_brings_the_start_back() -> None:
    head = Head(key_of(5), lambda start, limit: [])

    head.add(key_of(2))

    assert head.start == key_of(2)


def test_a_head_that_grew_too_long_is_cut_and_goes_on_from_there() -> None:
    scan = Recorded([])
    head = Head(PREFIX, scan)
    head.fill()

    for number in range(KEYS_MAX + 1):
        scan.rows.append(key_of(number))
        head.add(key_of(number))

    assert head.keys == scan.rows[: KEYS_MAX // 2]
    assert head.at(KEYS_MAX) == scan.rows[KEYS_MAX]


def test_a_full_head_serves_the_largest_fetch() -> None:
    assert HEAD_KEYS_MAX == 512
