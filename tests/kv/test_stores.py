"""One suite for every `Store`: the fake has to pass what the real one passes."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from corvo.errors import StoreFailed
from corvo.kv.level import LevelStore
from corvo.kv.store import Store
from tests.kv.stores import END, EVERYTHING, content
from tests.support.memory import _CHUNK_KEYS, MemoryStore, SortedKeys


@pytest.fixture(params=["memory", "level"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else LevelStore(str(tmp_path / "db"))
    yield made
    made.close()


def test_a_store_begins_empty(store: Store) -> None:
    assert store.get(b"a") is None
    assert store.keys(b"", END, limit=5) == []
    assert store.scan(b"", END, limit=5) == []
    assert store.scan(b"", END, limit=5, reverse=True) == []


def test_a_write_is_seen_by_the_next_read(store: Store) -> None:
    store.write({b"a": b"1", b"b": b""})

    store.write({b"a": None, b"b": b"2", b"c": b"3", b"never": None})

    assert content(store) == {b"b": b"2", b"c": b"3"}
    assert store.get(b"a") is None
    assert store.get(b"b") == b"2"


def test_an_empty_value_is_a_value(store: Store) -> None:
    store.write({b"a": b""})

    assert store.get(b"a") == b""
    assert store.keys(b"", END, limit=2) == [b"a"]


def test_a_write_of_nothing_changes_nothing(store: Store) -> None:
    store.write({})

    assert content(store) == {}


def test_keys_are_in_the_order_of_their_bytes(store: Store) -> None:
    keys = [b"\x00", b"\x00\x00", b"a", b"a\x00", b"a\xff", b"b", b"\x7f", b"\x80", b"\xff"]

    store.write(dict.fromkeys(reversed(keys), b""))

    assert store.keys(b"", END, limit=20) == sorted(keys)


def test_a_range_has_its_start_and_not_its_stop(store: Store) -> None:
    store.write({b"a": b"1", b"b": b"2", b"c": b"3"})

    found = store.scan(b"a", b"c", limit=9)

    assert found == [(b"a", b"1"), (b"b", b"2")]
    assert store.keys(b"a", b"c", limit=9) == [b"a", b"b"]
    assert store.scan(b"a", b"c", limit=9, reverse=True) == [(b"b", b"2"), (b"a", b"1")]


def test_a_limit_takes_from_the_end_where_the_scan_begins(store: Store) -> None:
    store.write({b"%d" % number: b"" for number in range(9)})

    assert store.keys(b"2", b"8", limit=2) == [b"2", b"3"]
    assert store.scan(b"2", b"8", limit=2) == [(b"2", b""), (b"3", b"")]
    assert store.scan(b"2", b"8", limit=2, reverse=True) == [(b"7", b""), (b"6", b"")]


def test_no_limit_and_no_range_find_nothing(store: Store) -> None:
    store.write({b"a": b"1", b"b": b"2"})

    for start, stop, limit in ((b"", END, 0), (b"b", b"b", 5), (b"b", b"a", 5)):
        assert store.keys(start, stop, limit=limit) == []
        assert store.scan(start, stop, limit=limit) == []
        assert store.scan(start, stop, limit=limit, reverse=True) == []


def test_a_scan_backwards_finds_the_only_key_at_its_start(store: Store) -> None:
    store.write({b"a": b"1", b"b": b"2", b"c": b"3"})

    assert store.scan(b"b", b"c", limit=5, reverse=True) == [(b"b", b"2")]


def test_a_sync_changes_nothing_that_is_seen(store: Store) -> None:
    store.write({b"a": b"1", b"b": b"2"})
    store.write({b"a": None})

    store.sync()

    assert content(store) == {b"b": b"2"}


def test_a_power_loss_takes_back_what_was_not_synced() -> None:
    store = MemoryStore()
    store.write({b"a": b"1", b"b": b"2"})
    store.sync()
    store.write({b"a": b"9", b"b": None, b"c": b"3"})

    store.crash()

    assert content(store) == {b"a": b"1", b"b": b"2"}


def test_the_fake_is_of_no_more_use_after_a_write_that_failed() -> None:
    store = MemoryStore()
    store.write({b"a": b"1"})
    store.failing = StoreFailed("the disk is gone")

    with pytest.raises(StoreFailed, match="gone"):
        store.write({b"b": b"2"})

    uses: list[Callable[[], object]] = [
        lambda: store.get(b"a"),
        store.sync,
        lambda: store.write({}),
    ]
    for use in uses:
        with pytest.raises(StoreFailed):
            use()


def test_the_fake_takes_use_after_close_for_a_bug() -> None:
    store = MemoryStore()

    store.close()

    with pytest.raises(AssertionError, match="closed"):
        store.get(b"a")


# Against a dumb twin: a plain dict, sorted for every question.

short_keys = st.binary(max_size=3).map(lambda key: b"k" + key)
bounds = st.one_of(short_keys, st.sampled_from([b"", b"k", b"k\xff\xff\xff\xff", END]))
values = st.binary(max_size=8)
changes = st.dictionaries(short_keys, st.none() | values, max_size=6)


class Twins(RuleBasedStateMachine):
    """A store, a view of it, and what both should hold."""

    store: Store
    directory: tempfile.TemporaryDirectory[str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.expected: dict[bytes, bytes] = {}

    @rule(changed=changes)
    def write(self, changed: Mapping[bytes, bytes | None]) -> None:
        self.store.write(changed)
        merged = {**self.expected, **changed}
        self.expected = {key: value for key, value in merged.items() if value is not None}

    @rule()
    def sync(self) -> None:
        self.store.sync()

    @rule(key=short_keys)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.expected.get(key)

    @rule(start=bounds, stop=bounds, limit=st.sampled_from([0, 1, 2, 3, EVERYTHING]))
    def look(self, start: bytes, stop: bytes, limit: int) -> None:
        compare(self.store, self.expected, start, stop, limit)

    @invariant()
    def is_what_was_written(self) -> None:
        assert content(self.store) == self.expected

    def teardown(self) -> None:
        self.store.close()
        if self.directory is not None:
            self.directory.cleanup()


def compare(
    reader: Store, expected: dict[bytes, bytes], start: bytes, stop: bytes, limit: int
) -> None:
    rows = [(key, expected[key]) for key in sorted(expected) if start <= key < stop]
    assert reader.scan(start, stop, limit=limit) == rows[:limit]
    assert reader.scan(start, stop, limit=limit, reverse=True) == rows[::-1][:limit]
    assert reader.keys(start, stop, limit=limit) == [key for key, _ in rows[:limit]]


class MemoryTwins(Twins):
    @stateful.initialize()
    def begin(self) -> None:
        self.store = MemoryStore()

    @rule()
    def crash(self) -> None:
        assert isinstance(self.store, MemoryStore)
        self.store.sync()
        self.store.write({b"lost": b"x"})
        self.store.crash()


class LevelTwins(Twins):
    @stateful.initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.store = LevelStore(self.directory.name)

    @rule()
    def open_again(self) -> None:
        assert self.directory is not None
        self.store.close()
        self.store = LevelStore(self.directory.name, must_exist=True)


TestMemoryTwins = MemoryTwins.TestCase
TestLevelTwins = LevelTwins.TestCase
TestLevelTwins.settings = settings(max_examples=20)


@pytest.mark.parametrize("order", ["up", "down", "mixed"])
def test_many_sorted_keys_are_found_like_few(order: str) -> None:
    count = 5 * _CHUNK_KEYS
    numbers = list(range(count))
    if order == "down":
        numbers.reverse()
    elif order == "mixed":
        numbers = [number * 7919 % count for number in numbers]
    keys = SortedKeys()

    for number in numbers:
        keys.add(b"%06d" % number)
    for number in range(count):
        if number % 3:
            keys.remove(b"%06d" % number)

    left = [b"%06d" % number for number in range(0, count, 3)]
    assert keys.first(b"", END, EVERYTHING) == left
    assert keys.last(b"", END, EVERYTHING) == left[::-1]
    assert keys.first(b"001000", b"002000", 400) == [key for key in left if b"001" <= key < b"002"]
    assert keys.last(b"001000", b"002000", 5) == [
        b"001998",
        b"001995",
        b"001992",
        b"001989",
        b"001986",
    ]
    for key in left:
        keys.remove(key)
    assert keys.first(b"", END, EVERYTHING) == []
    keys.add(b"again")
    assert keys.last(b"", END, EVERYTHING) == [b"again"]
