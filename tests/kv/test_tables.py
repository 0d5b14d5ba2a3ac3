"""Tables beside a dumb twin: whatever is in memory, a transaction answers from what was written.

The toy documents stand in a herd and are of one of three kinds. One kind waits in an index with a
cursor, one has a timer and a key with a value, one has nothing. `Twin` keeps documents in a dict
and makes every index again from them, each time it is asked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corvo.errors import StoreDamaged
from corvo.kv import keys
from corvo.kv.tables import (
    CLASSES,
    HELD_BYTES,
    Group,
    IndexKey,
    Meta,
    Table,
    Transaction,
    read_meta,
)
from tests.support.memory import MemoryStore

HERDS: Final = ("cows", "cowslips", "goats")
CACHE: Final = 1 << 20
TIMERS: Final = Group(keys.TIMER.prefix + b"\x02")
LIMIT: Final = 1_000


class Toy(msgspec.Struct, frozen=True, array_like=True):
    id: str
    herd: str
    kind: int
    place: int


def waiting(herd: str) -> Group:
    return Group(keys.QUEUE_APPEND.prefix + herd.encode() + b"\0", keys.QUEUE_CURSOR.build(herd))


def indexes(toy: Toy) -> tuple[IndexKey, ...]:
    if toy.kind == 0:
        key = keys.QUEUE_APPEND.build(toy.herd, toy.place, toy.id)
        return ((key, b"", waiting(toy.herd)),)
    if toy.kind == 1:
        return (
            (keys.ACTIVE.build(toy.herd, toy.id), toy.place.to_bytes(8, "big"), None),
            (keys.TIMER.build(2, toy.place, toy.id), b"", TIMERS),
        )
    return ()


TOYS: Final = Table(
    "toy",
    keys.JOB.prefix,
    Toy,
    key=lambda toy: toy.id,
    indexes=indexes,
    tally=lambda toy: (toy.herd, toy.kind),
)
PLAIN: Final = Table("plain", keys.BATCH.prefix, Toy, key=lambda toy: toy.id, json=True)


# Steps of an entry. Each returns what a reader would see.

Answer = str
Step = tuple[str, int, int, int]
"""What is done, to which document, and two numbers more."""
Entry = list[Step]

VERBS: Final = ("put", "put", "put", "change", "remove", "get", "head", "keys", "count", "set")
STEPS: Final = st.tuples(
    st.sampled_from(VERBS), st.integers(0, 5), st.integers(0, 8), st.integers(0, 5)
)
ENTRIES: Final = st.lists(st.lists(STEPS, max_size=12), max_size=8)


def toy_of(who: int, which: int, place: int) -> Toy:
    return Toy(f"t{who}", HERDS[which % 3], which // 3, place)


def range_of(who: int, which: int, place: int) -> tuple[bytes, bytes]:
    """Somewhere in one of the indexes, on to its end."""
    if who % 3 == 0:
        prefix = waiting(HERDS[which % 3]).prefix
    else:
        prefix = TIMERS.prefix if who % 3 == 1 else keys.PROVIDER.prefix
    return prefix + place.to_bytes(8, "big") * (who % 2), keys.prefix_end(prefix)


class Twin:
    """What ought to be, in the most obvious way."""

    def __init__(self) -> None:
        self.toys: dict[str, Toy] = {}
        self.others: dict[bytes, bytes] = {}
        self.starts: dict[str, bytes] = {}

    def derived(self) -> dict[bytes, bytes]:
        return {key: value for toy in self.toys.values() for key, value, _ in indexes(toy)}

    def rows(self, prefix: bytes) -> list[bytes]:
        return sorted(key for key in self.derived() if key.startswith(prefix))

    def counts(self, herd: str) -> list[int]:
        kinds = [toy.kind for toy in self.toys.values() if toy.herd == herd]
        return [kinds.count(kind) for kind in range(16)]

    def put(self, toy: Toy) -> None:
        before = self.toys.get(toy.id)
        if before is not None and indexes(before) == indexes(toy):
            self.toys[toy.id] = toy
            return
        self.remove(toy.id)
        self.toys[toy.id] = toy
        if toy.kind == 0:
            start = self.starts.get(toy.herd, waiting(toy.herd).prefix)
            self.starts[toy.herd] = min(start, indexes(toy)[0][0])

    def remove(self, who: str) -> None:
        toy = self.toys.get(who)
        if toy is None:
            return
        if toy.kind == 0:
            key = indexes(toy)[0][0]
            if self.rows(waiting(toy.herd).prefix)[0] == key:
                self.starts[toy.herd] = key
        del self.toys[who]

    def content(self) -> dict[bytes, bytes]:
        """All that a store holds after an entry, save what it says of itself."""
        content = {TOYS.prefix + toy.id.encode(): TOYS.encode(toy) for toy in self.toys.values()}
        counts = {herd: self.counts(herd) for herd in HERDS}
        cursors = {keys.QUEUE_CURSOR.build(herd): start for herd, start in self.starts.items()}
        return (
            content
            | self.derived()
            | self.others
            | cursors
            | {
                keys.COUNTS.build(herd): msgspec.msgpack.encode(counts[herd])
                for herd in HERDS
                if any(counts[herd])
            }
        )


def do(tx: Transaction, twin: Twin, step: Step) -> Answer:
    """One step, done to both and compared."""
    verb, who, which, place = step
    toy = toy_of(who, which, place)
    match verb:
        case "put":
            assert TOYS.put(tx, toy) == toy
            twin.put(toy)
        case "change":
            found = TOYS.find(tx, toy.id)
            assert (found is not None) == (toy.id in twin.toys)
            if found is not None:
                TOYS.change(tx, found, toy)
            else:
                TOYS.insert(tx, toy)
            twin.put(toy)
        case "remove" if toy.id in twin.toys:
            TOYS.remove(tx, toy.id)
            twin.remove(toy.id)
        case "head":
            return see_head(tx, twin, TIMERS if which > 5 else waiting(toy.herd), place)
        case "keys":
            start, stop = range_of(*step[1:])
            seen = tx.keys(start, stop, limit=which + 1)
            there = sorted([*twin.derived(), *twin.others])
            assert seen == [key for key in there if start <= key < stop][: which + 1]
            return repr(seen)
        case "count":
            assert tx.count(toy.herd)[:CLASSES] == twin.counts(toy.herd)
            return repr(tx.count(toy.herd)[:CLASSES])
        case "set":
            key = keys.PROVIDER.build(f"x{who}")
            if which % 3:
                tx.set_key(key, b"v" * place)
                twin.others[key] = b"v" * place
            else:
                tx.remove_key(key)
                twin.others.pop(key, None)
            assert tx.get_key(key) == twin.others.get(key)
    assert TOYS.get(tx, toy.id) == twin.toys.get(toy.id)
    return repr((TOYS.get(tx, toy.id), tx.next_order_ns()))


def see_head(tx: Transaction, twin: Twin, group: Group, position: int) -> Answer:
    """The first keys of an index; how many of them a head holds is its own affair."""
    rows = twin.rows(group.prefix)
    head = tx.head(group)
    assert head.keys == rows[: len(head.keys)]
    assert bool(head.keys) == bool(rows)
    assert head.at(position) == (rows[position] if position < len(rows) else None)
    return repr(rows[: position + 1])


# Runs: the same entries, with different things in memory.

Disturbance = Callable[[Transaction, MemoryStore], Transaction]


def nothing(tx: Transaction, store: MemoryStore) -> Transaction:
    return tx


def restart(tx: Transaction, store: MemoryStore, *, cache_bytes_max: int = CACHE) -> Transaction:
    return Transaction(store, read_meta(store), cache_bytes_max=cache_bytes_max)


def forget_heads(tx: Transaction, store: MemoryStore) -> Transaction:
    tx.heads = {}
    return tx


def forget_counts(tx: Transaction, store: MemoryStore) -> Transaction:
    tx.counts = {}
    return tx


def read_about(tx: Transaction, store: MemoryStore) -> Transaction:
    for herd in HERDS:
        tx.head(waiting(herd)).at(5)
        tx.count(herd)
    tx.head(TIMERS)
    for who in range(6):
        TOYS.get(tx, f"t{who}")
    return tx


DISTURBANCES: Final = (nothing, restart, forget_heads, forget_counts, read_about)


class Run(msgspec.Struct, frozen=True):
    """What came of a run."""

    answers: list[Answer]
    metas: list[Meta]
    content: dict[bytes, bytes]


def run(
    entries: list[Entry],
    *,
    disturb: list[Disturbance] | None = None,
    cache_bytes_max: int = CACHE,
) -> Run:
    """Carry out the entries; before each, one of `disturb` in turn."""
    store, twin = MemoryStore(), Twin()
    tx = Transaction(store, read_meta(store), cache_bytes_max=cache_bytes_max)
    disturb = disturb or [nothing]
    answers, metas = [], []
    for number, entry in enumerate(entries):
        tx = disturb[number % len(disturb)](tx, store)
        tx.begin(index=number + 1, term=1, stamp_ns=7 * number % 20)
        answers += [do(tx, twin, step) for step in entry]
        tx.commit()
        metas.append(tx.meta)
        assert read_meta(store) == tx.meta
        content = store.content()
        content.pop(keys.META.build("applied"))
        assert without_feed(content) == twin.content()
    return Run(answers, metas, store.content())


def without_feed(content: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """What is stored, but for what followers are told of it."""
    return {key: value for key, value in content.items() if not key.startswith((b"ev|", b"evc|"))}


@contextmanager
def heads_of(keys_max: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corvo.kv.heads.HEAD_KEYS_MAX", keys_max)
        yield


@given(ENTRIES)
def test_what_is_stored_is_what_follows_from_the_documents(entries: list[Entry]) -> None:
    run(entries)


@given(ENTRIES)
def test_the_same_is_stored_with_heads_that_hold_next_to_nothing(entries: list[Entry]) -> None:
    plain = run(entries)

    with heads_of(4):
        small = run(entries)

    assert small == plain


@given(ENTRIES, st.lists(st.sampled_from(DISTURBANCES), min_size=1, max_size=5))
def test_what_is_in_memory_changes_no_answer_and_no_byte(
    entries: list[Entry], disturb: list[Disturbance]
) -> None:
    plain = run(entries)

    with heads_of(4):
        disturbed = run(entries, disturb=disturb)

    assert disturbed == plain


@given(ENTRIES, st.integers(0, 4 * HELD_BYTES), st.booleans())
def test_the_size_of_the_cache_changes_no_answer_and_no_byte(
    entries: list[Entry], cache_bytes_max: int, is_restarted: bool
) -> None:
    plain = run(entries)

    again = partial(restart, cache_bytes_max=cache_bytes_max)
    disturb: list[Disturbance] = [nothing, again] if is_restarted else [nothing]
    small = run(entries, disturb=disturb, cache_bytes_max=cache_bytes_max)

    assert small == plain


@given(ENTRIES)
def test_more_indexes_and_queues_than_are_kept_change_nothing(entries: list[Entry]) -> None:
    plain = run(entries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corvo.kv.tables.HEADS_MAX", 1)
        patch.setattr("corvo.kv.tables.COUNTS_MAX", 1)
        bounded = run(entries)

    assert bounded == plain


@given(ENTRIES)
def test_time_and_places_only_go_on(entries: list[Entry]) -> None:
    metas = run(entries).metas

    assert [meta.applied for meta in metas] == [*range(1, len(entries) + 1)]
    assert all(one.now_ns < other.now_ns for one, other in pairwise(metas))


PLACES: Final = st.integers(0, 15)


@given(st.sets(PLACES), st.dictionaries(PLACES, st.booleans()), PLACES, PLACES, st.integers(1, 8))
@example(stored={*range(10)}, written={0: False, 1: False}, start=0, stop=15, limit=3)
@example(stored={*range(10)}, written={1: False, 9: False, 11: True}, start=0, stop=15, limit=8)
def test_keys_are_those_stored_and_those_written_without_those_removed(
    stored: set[int], written: dict[int, bool], start: int, stop: int, limit: int
) -> None:
    tx = begun(MemoryStore({keys.EVENT.build(it): b"" for it in stored}))
    for it, is_put in written.items():
        key = keys.EVENT.build(it)
        if is_put:
            tx.set_key(key, b"")
        else:
            tx.remove_key(key)

    seen = tx.keys(keys.EVENT.build(start), keys.EVENT.build(stop), limit=limit)

    there = [it for it in range(start, stop) if written.get(it, it in stored)]
    assert seen == [keys.EVENT.build(it) for it in there[:limit]]


# Single cases.


def begun(store: MemoryStore, *, cache_bytes_max: int = CACHE) -> Transaction:
    meta = read_meta(store)
    tx = Transaction(store, meta, cache_bytes_max=cache_bytes_max)
    tx.begin(index=meta.applied + 1, term=1, stamp_ns=100)
    return tx


def proceed(tx: Transaction) -> None:
    """Commit, and begin the next entry."""
    tx.commit()
    tx.begin(index=tx.meta.applied + 1, term=1, stamp_ns=tx.meta.now_ns + 100)


def digest_of(change: Callable[[Transaction], None]) -> int:
    tx = begun(MemoryStore())
    change(tx)
    tx.commit()
    return tx.meta.digest


def test_nothing_reaches_the_store_before_commit() -> None:
    store = MemoryStore()
    tx = begun(store)

    TOYS.put(tx, Toy("t", "cows", 0, 1))
    tx.set_key(keys.META.build("x"), b"1")

    assert store.content() == {}


def test_a_document_that_came_and_went_within_an_entry_leaves_nothing() -> None:
    store = MemoryStore()
    tx = begun(store)

    TOYS.put(tx, Toy("t", "cows", 1, 1))
    TOYS.remove(tx, "t")
    assert TOYS.get(tx, "t") is None
    tx.commit()

    assert list(without_feed(store.content())) == [keys.META.build("applied")]


def test_a_document_may_come_again_in_the_entry_that_removed_it() -> None:
    store = MemoryStore()
    tx = begun(store)
    TOYS.put(tx, Toy("t", "cows", 1, 1))
    proceed(tx)

    TOYS.remove(tx, "t")
    TOYS.insert(tx, Toy("t", "goats", 0, 2))
    proceed(tx)

    assert TOYS.get(tx, "t") == Toy("t", "goats", 0, 2)
    assert tx.count("cows")[:CLASSES] == [0] * 16
    assert keys.ACTIVE.build("cows", "t") not in store.content()
    assert keys.QUEUE_APPEND.build("goats", 2, "t") in store.content()


def test_an_index_key_that_gets_another_value_is_written_again() -> None:
    store = MemoryStore()
    tx = begun(store)
    TOYS.put(tx, Toy("t", "cows", 1, 1))
    proceed(tx)

    TOYS.put(tx, Toy("t", "cows", 1, 2))
    tx.commit()

    assert store.get(keys.ACTIVE.build("cows", "t")) == (2).to_bytes(8, "big")


def test_an_index_key_that_stays_is_left_alone() -> None:
    store = MemoryStore()
    tx = begun(store)
    TOYS.put(tx, Toy("t", "cows", 1, 7))
    proceed(tx)
    tx.head(TIMERS)

    TOYS.put(tx, Toy("t", "goats", 1, 7))

    assert tx.head(TIMERS).keys == [keys.TIMER.build(2, 7, "t")]
    assert keys.TIMER.build(2, 7, "t") not in tx.writes


def test_a_table_without_indexes_has_documents_alone() -> None:
    store = MemoryStore()
    tx = begun(store)

    PLAIN.put(tx, Toy("t", "cows", 1, 2))
    tx.commit()

    assert store.get(b"b|t") == b'["t","cows",1,2]'
    assert len(without_feed(store.content())) == 2


def test_the_check_of_a_table_sees_before_and_after() -> None:
    seen: list[tuple[Toy, Toy]] = []
    table = Table(
        "checked",
        keys.BATCH.prefix,
        Toy,
        key=lambda toy: toy.id,
        check=lambda before, after: seen.append((before, after)),
    )
    tx = begun(MemoryStore())
    one, other = Toy("t", "cows", 1, 1), Toy("t", "cows", 1, 2)

    table.insert(tx, one)
    table.put(tx, other)

    assert seen == [(one, other)]


def test_counts_are_of_numbers_never_below_none() -> None:
    store = MemoryStore()
    tx = begun(store)
    TOYS.put(tx, Toy("t", "cows", 1, 1))
    tx.commit()
    store.write({keys.COUNTS.build("cows"): None})

    tx = begun(store)

    with pytest.raises(AssertionError, match="no fewer than none in cows"):
        TOYS.remove(tx, "t")


def test_entries_are_taken_in_order_and_each_once() -> None:
    tx = begun(MemoryStore())
    tx.commit()

    for index in (1, 3):
        with pytest.raises(AssertionError, match="in order"):
            tx.begin(index=index, term=1, stamp_ns=200)


def test_the_time_of_an_entry_is_behind_every_place_of_the_one_before() -> None:
    tx = begun(MemoryStore())
    places = [tx.next_order_ns() for _ in range(50)]
    tx.commit()

    tx.begin(index=2, term=1, stamp_ns=101)

    assert places == [*range(100, 150)]
    assert tx.now_ns == 150
    assert tx.next_order_ns() == 150


def test_the_digest_tells_a_removal_from_an_empty_value() -> None:
    key = keys.META.build("x")

    written = digest_of(lambda tx: tx.set_key(key, b""))
    removed = digest_of(lambda tx: tx.remove_key(key))

    assert written != removed


def test_the_digest_goes_on_from_entry_to_entry() -> None:
    tx = begun(MemoryStore())
    tx.set_key(keys.META.build("x"), b"1")
    proceed(tx)
    first = tx.meta.digest
    tx.commit()
    other = begun(MemoryStore())
    other.set_key(keys.META.build("x"), b"2")
    proceed(other)
    other.commit()

    assert first != digest_of(lambda tx: None)
    assert tx.meta.digest != other.meta.digest


def test_an_empty_store_is_at_the_beginning() -> None:
    assert read_meta(MemoryStore()) == Meta(0, 0, 0, 0)


def test_damage_is_told_and_not_guessed_at() -> None:
    store = MemoryStore({b"j|t": b"\xc1", keys.META.build("applied"): b"\xc1"})
    tx = Transaction(store, Meta())

    with pytest.raises(StoreDamaged, match="a document of toy"):
        TOYS.get(tx, "t")
    with pytest.raises(StoreDamaged, match="own record"):
        read_meta(store)


def test_what_is_not_there_cannot_be_removed() -> None:
    tx = begun(MemoryStore())

    with pytest.raises(AssertionError, match="toy t is there"):
        TOYS.remove(tx, "t")


def test_a_key_is_read_by_the_table_that_it_belongs_to() -> None:
    tx = begun(MemoryStore())
    TOYS.put(tx, Toy("t", "cows", 1, 1))
    alien = Table("alien", keys.JOB.prefix, Toy, key=lambda toy: toy.id)

    with pytest.raises(AssertionError, match="one table"):
        alien.get(tx, "t")


# What is kept in memory.


class Counting(MemoryStore):
    """Remembers which keys were asked for."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        super().__init__()

    def get(self, key: bytes) -> bytes | None:
        self.asked.append(key)
        return super().get(key)


def test_a_document_that_was_used_lately_is_not_read_again() -> None:
    store = Counting()
    tx = begun(store)
    TOYS.put(tx, Toy("t", "cows", 1, 1))
    proceed(tx)
    store.asked.clear()

    for _ in range(3):
        assert TOYS.get(tx, "t") == Toy("t", "cows", 1, 1)
        proceed(tx)

    assert store.asked == []


def test_without_a_cache_a_document_is_read_again_after_two_entries() -> None:
    store = Counting()
    tx = begun(store, cache_bytes_max=0)
    TOYS.put(tx, Toy("t", "cows", 1, 1))
    proceed(tx)
    PLAIN.put(tx, Toy("b", "cows", 1, 1))
    proceed(tx)
    store.asked.clear()

    TOYS.get(tx, "t")

    assert store.asked == [b"j|t"]


def test_a_document_that_is_used_again_outlives_those_that_are_not() -> None:
    store = Counting()
    tx = begun(store, cache_bytes_max=20 * HELD_BYTES)
    TOYS.put(tx, Toy("kept", "cows", 2, 0))
    proceed(tx)
    store.asked.clear()
    for number in range(40):
        TOYS.put(tx, Toy(f"t{number}", "cows", 2, 0))
        TOYS.get(tx, "kept")
        proceed(tx)
    store.asked = [key for key in store.asked if key == b"j|kept"]

    TOYS.get(tx, "t0")

    assert store.asked == [b"j|t0"]


@pytest.mark.parametrize("size", [10, 3_000])
def test_the_cache_is_filled_by_half_at_least_and_not_beyond_its_bound(size: int) -> None:
    each = HELD_BYTES + len(PLAIN.encode(Toy("t00", "x" * size, 0, 0)))
    tx = begun(MemoryStore(), cache_bytes_max=20 * each)
    kept = []

    for number in range(70):
        PLAIN.put(tx, Toy(f"t{number:02d}", "x" * size, 0, 0))
        proceed(tx)
        kept.append(len({**tx.cache.old, **tx.cache.young}))

    # One more than 20: what an entry used is kept, and then looked at.
    assert kept[:21] == [*range(1, 22)]
    assert set(kept[21:]) == {*range(11, 22)}


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3_000)), max_size=6)),
    st.integers(0, 20_000),
)
def test_the_cache_keeps_its_bound(
    entries: list[list[tuple[int, int]]], cache_bytes_max: int
) -> None:
    tx = begun(MemoryStore(), cache_bytes_max=cache_bytes_max)
    # An entry may need more than the bound: it is kept between entries.
    largest = max((len(entry) for entry in entries), default=0) * (HELD_BYTES + 3_100)

    for entry in entries:
        for who, size in entry:
            PLAIN.put(tx, Toy(f"t{who}", "x" * size, 0, 0))
        proceed(tx)
        kept = {**tx.cache.old, **tx.cache.young}
        assert sum(held.size + HELD_BYTES for held in kept.values()) <= cache_bytes_max + largest
        assert all(
            held.size == len(PLAIN.encode(held.document))
            for held in kept.values()
            if isinstance(held.document, Toy)
        )
