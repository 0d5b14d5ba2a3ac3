"""The log as the core sees it: bounds, conflicts, pages, cuts, and which write vouches for what."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.raft import (
    Compacted,
    Entry,
    Kind,
    Membership,
    MemoryStorage,
    Misuse,
    Snapshot,
    Unavailable,
    Write,
)
from corvo.raft.log import RaftLog
from tests.raft.group import members

MUCH = 1 << 30  # bytes: a page that holds everything


def entry(index: int, term: int = 1, data: bytes = b"") -> Entry:
    return Entry(index, term, Kind.NORMAL, data)


def run(first: int, *terms: int) -> tuple[Entry, ...]:
    """Entries from `first` on, with these terms."""
    return tuple(entry(index, term) for index, term in enumerate(terms, first))


def log_of(*durable: int, tail: tuple[int, ...] = (), base: int = 0) -> RaftLog:
    """A log with these terms behind `base`, the last of them not durable yet."""
    storage = storage_of(*durable, base=base)
    log = RaftLog(storage, applied=base)
    if tail:
        log.append(run(storage.last_index + 1, *tail))
    return log


def storage_of(*terms: int, base: int = 0) -> MemoryStorage:
    """A log on disk with these terms; everything up to `base` is cut off."""
    storage = MemoryStorage(members(1))
    storage.put(Write(token=0, entries=run(1, *((terms[0],) * base), *terms)))
    if base:
        storage.compact(index=base, membership=members(1))
    return storage


def everything(log: RaftLog) -> list[tuple[int, int]]:
    """(index, term) of all that the log holds."""
    if log.last_index < log.first_index:
        return []
    return [(each.index, each.term) for each in log.entries(log.first_index, log.last_index, MUCH)]


def hand_out(log: RaftLog, token: int) -> tuple[Entry, ...]:
    """What `Node` does when it makes a write."""
    entries = log.take_unwritten()
    log.write_started(token, installs=False)
    return entries


def store(log: RaftLog, storage: MemoryStorage, token: int, entries: tuple[Entry, ...]) -> None:
    """What the driver does with it."""
    storage.put(Write(token=token, entries=entries))
    log.write_done(token)


def snapshot(index: int, term: int = 5) -> Snapshot:
    return Snapshot(index, term, members(1), size=0)


# ---- Bounds.


@pytest.mark.conformance("N13")
def test_n13_a_new_log_is_empty_and_begins_at_one() -> None:
    log = RaftLog(MemoryStorage(), applied=0)

    assert (log.first_index, log.last_index, log.last_term, log.stable) == (1, 0, 0, 0)
    assert log.is_durable
    assert not log.is_installing


@pytest.mark.conformance("N13")
@pytest.mark.parametrize(
    ("index", "term"), [(2, 1), (3, 1), (4, 1), (5, 2), (6, 3)], ids=["base", "3", "4", "5", "tail"]
)
def test_n13_the_term_is_known_from_the_base_to_the_end(index: int, term: int) -> None:
    log = log_of(1, 1, 2, tail=(3,), base=2)

    assert log.term(index) == term
    assert log.matches(index, term)
    assert not log.matches(index, term + 1)


@pytest.mark.conformance("N13")
def test_n13_the_term_beyond_either_end_is_an_error() -> None:
    log = log_of(1, 1, 2, tail=(3,), base=2)

    for index in (0, 1):
        with pytest.raises(Compacted):
            log.term(index)
    for index in (7, 100):
        with pytest.raises(Unavailable, match="beyond the end"):
            log.term(index)
    assert not log.matches(1, 1)
    assert not log.matches(7, 3)


@pytest.mark.conformance("N13")
@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (3, 3, [3]),
        (3, 5, [3, 4, 5]),
        (4, 5, [4, 5]),
        (5, 6, [5, 6]),
        (6, 6, [6]),
        (6, 7, [6, 7]),
        (3, 7, [3, 4, 5, 6, 7]),
    ],
)
def test_n13_a_slice_is_read_across_disk_and_tail(
    first: int, last: int, expected: list[int]
) -> None:
    log = log_of(1, 1, 2, tail=(3, 3), base=2)

    assert [each.index for each in log.entries(first, last, MUCH)] == expected


@pytest.mark.conformance("N13")
@pytest.mark.parametrize(("first", "last"), [(0, 4), (1, 4), (2, 2), (2, 7)])
def test_n13_a_slice_from_before_the_log_is_compacted(first: int, last: int) -> None:
    log = log_of(1, 1, 2, tail=(3, 3), base=2)

    with pytest.raises(Compacted, match="cut off"):
        log.entries(first, last, MUCH)


@pytest.mark.conformance("N13")
@pytest.mark.parametrize(("first", "last"), [(3, 8), (8, 8), (5, 4), (3, 2)])
def test_n13_a_slice_that_is_not_in_the_log_is_unavailable(first: int, last: int) -> None:
    log = log_of(1, 1, 2, tail=(3, 3), base=2)

    with pytest.raises(Unavailable, match="not in a log"):
        log.entries(first, last, MUCH)


@pytest.mark.conformance("N13")
def test_n13_nothing_of_a_log_that_is_being_replaced_can_be_read() -> None:
    log = log_of(1, 1, 2, tail=(3, 3))

    log.restore(snapshot(9))

    assert (log.term(9), log.last_term, log.last_index, log.first_index) == (5, 5, 9, 10)
    with pytest.raises(Compacted, match="behind the snapshot"):
        log.term(3)
    with pytest.raises(Compacted):
        log.entries(3, 9, MUCH)
    with pytest.raises(Unavailable):
        log.term(10)


# ---- Pages.


@pytest.mark.conformance("N07", "N13")
@pytest.mark.parametrize("durable", range(7))
@pytest.mark.parametrize(
    ("bytes_max", "expected"), [(1, 1), (10, 1), (19, 1), (20, 2), (45, 4), (60, 6), (MUCH, 6)]
)
def test_n07_a_page_is_as_long_as_its_bytes_allow_wherever_the_entries_are(
    durable: int, bytes_max: int, expected: int
) -> None:
    entries = tuple(entry(index, data=b"ten bytes!") for index in range(1, 7))
    storage = MemoryStorage()
    if durable:
        storage.put(Write(token=0, entries=entries[:durable]))
    log = RaftLog(storage, applied=0)
    if durable < 6:
        log.append(entries[durable:])

    assert log.entries(1, 6, bytes_max) == list(entries[:expected])


@pytest.mark.conformance("N07", "N13")
def test_n13_a_scan_in_pages_sees_every_entry_once() -> None:
    log = log_of(1, 1, 1, 2, 2, tail=(3, 3, 4))

    seen, first = list[Entry](), 1
    while first <= log.last_index:
        page = log.entries(first, log.last_index, 1)
        seen += page
        first = page[-1].index + 1

    assert seen == log.entries(1, 8, MUCH)


@pytest.mark.conformance("N07", "N08")
def test_n08_committed_entries_come_in_pages_and_only_what_is_durable_here() -> None:
    storage = MemoryStorage()
    log = RaftLog(storage, applied=0)
    log.append(tuple(entry(index, data=b"ten bytes!") for index in range(1, 7)))
    log.commit_to(6)

    assert log.next_committed(25) == ()
    store(log, storage, 1, hand_out(log, 1))
    first = log.next_committed(25)
    assert [each.index for each in first] == [1, 2]
    assert (log.has_next_committed, log.next_committed(25)) == (False, ())  # one page at a time
    log.applied_to(1)
    assert log.next_committed(25) == ()  # half a page is not a page
    log.applied_to(2)
    assert log.has_next_committed
    assert [each.index for each in log.next_committed(25)] == [3, 4]


@pytest.mark.conformance("N09")
def test_n09_a_log_opened_in_mid_page_goes_on_behind_what_was_applied() -> None:
    storage = storage_of(1, 1, 1, 1, 1)
    log = RaftLog(storage, applied=0)
    log.commit_to(5)
    log.next_committed(MUCH)
    log.applied_to(2)

    again = RaftLog(storage, applied=2)
    again.commit_to(5)

    assert [each.index for each in again.next_committed(MUCH)] == [3, 4, 5]


@pytest.mark.conformance("N13")
@pytest.mark.parametrize("index", [0, 1, 3, 6])
def test_n13_applying_what_was_not_handed_out_is_misuse(index: int) -> None:
    log = log_of(1, 1, 1, 1, 1)
    log.commit_to(2)
    log.next_committed(MUCH)
    log.applied_to(1)

    with pytest.raises(Misuse, match=f"advance to {index}: applied is 1, handed out is 2"):
        log.applied_to(index)


# ---- Conflicts.


@pytest.mark.conformance("N13")
@pytest.mark.parametrize(
    ("index", "term", "expected"),
    [
        # Our log: terms 2 2 4 4 4 7 at 3..8, cut off up to 2 with term 2.
        (8, 7, (8, 7)),
        (8, 6, (7, 4)),
        (8, 4, (7, 4)),
        (8, 3, (4, 2)),
        (8, 1, (1, 0)),
        (100, 7, (8, 7)),
        (100, 5, (7, 4)),
        (6, 4, (6, 4)),
        (5, 3, (4, 2)),
        (2, 2, (2, 2)),
        (2, 1, (1, 0)),
        (1, 9, (1, 0)),
        (0, 0, (0, 0)),
    ],
)
def test_n13_the_agreement_skips_whole_terms(
    index: int, term: int, expected: tuple[int, int]
) -> None:
    log = log_of(2, 2, 4, 4, tail=(4, 7), base=2)

    assert log.agreement(index, term) == expected


@pytest.mark.conformance("N13")
@pytest.mark.parametrize(
    ("last_index", "last_term", "expected"),
    [
        (4, 4, True),
        (3, 4, True),
        (1, 4, True),
        (2, 3, False),
        (3, 3, True),
        (4, 3, True),
        (4, 2, False),
        (9, 2, False),
    ],
)
def test_n13_a_log_is_up_to_date_by_its_last_term_and_then_its_length(
    last_index: int, last_term: int, expected: bool
) -> None:
    log = log_of(1, 2, 3)

    assert log.is_up_to_date(last_index=last_index, last_term=last_term) is expected


@pytest.mark.conformance("N13")
@pytest.mark.parametrize(
    ("first", "terms", "expected", "stable"),
    [
        (4, (2,), [1, 1, 2, 2], 3),
        (4, (), [1, 1, 2], 3),
        (1, (1, 1, 2), [1, 1, 2], 3),
        (2, (1,), [1, 1, 2], 3),
        (3, (2, 2, 3), [1, 1, 2, 2, 3], 3),
        (3, (3,), [1, 1, 3], 2),
        (2, (2, 2), [1, 2, 2], 1),
        (1, (4, 4, 4, 4), [4, 4, 4, 4], 0),
        (2, (1, 3, 3), [1, 1, 3, 3], 2),
    ],
)
def test_n13_merging_cuts_only_where_the_terms_differ(
    first: int, terms: tuple[int, ...], expected: list[int], stable: int
) -> None:
    log = log_of(1, 1, 2)

    last = log.merge(first - 1, run(first, *terms))

    assert last == first - 1 + len(terms)
    assert everything(log) == list(enumerate(expected, 1))
    assert log.stable == stable


@pytest.mark.conformance("N13", "X08")
def test_x08_an_old_shorter_append_cuts_nothing_of_the_tail() -> None:
    log = log_of(1, tail=(2, 2, 2))

    assert log.merge(1, run(2, 2)) == 2

    assert everything(log) == [(1, 1), (2, 2), (3, 2), (4, 2)]


@pytest.mark.conformance("N13")
def test_n13_what_is_committed_is_never_cut_and_no_append_leaves_a_gap() -> None:
    log = log_of(1, 1, 1)
    log.commit_to(2)

    with pytest.raises(AssertionError, match="a committed entry is never cut"):
        log.append(run(2, 5))
    with pytest.raises(AssertionError, match="leaves no gap"):
        log.append(run(5, 5))
    assert everything(log) == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.conformance("N13")
@pytest.mark.parametrize(
    ("index", "news", "commit"), [(1, False, 2), (2, False, 2), (3, True, 3), (9, True, 4)]
)
def test_n13_the_commit_index_only_rises_and_stops_at_our_end(
    index: int, news: bool, commit: int
) -> None:
    log = log_of(1, 1, 1, 1)
    log.commit_to(2)

    assert log.commit_to(index) is news

    assert log.commit == commit


@pytest.mark.conformance("N13")
def test_n13_a_change_of_membership_is_found_in_the_range_and_nowhere_else() -> None:
    storage = storage_of(1, 1, 1)
    log = RaftLog(storage, applied=0)
    log.append((Entry(4, 1, Kind.CONFIG, b""), entry(5)))

    assert log.has_config(1, 5)
    assert log.has_config(4, 4)
    assert not log.has_config(1, 3)
    assert not log.has_config(5, 5)
    assert not log.has_config(5, 4)


# ---- Which write vouches for what.


@pytest.mark.conformance("N11", "N13")
def test_n11_every_write_makes_its_own_entries_durable_and_no_others() -> None:
    storage = storage_of(1)
    log = RaftLog(storage, applied=0)
    log.append(run(2, 1, 1))
    first = hand_out(log, 1)
    log.append(run(4, 1))
    second = hand_out(log, 2)
    log.append(run(5, 1))

    assert (log.stable, log.writes_under_way, log.has_unwritten) == (1, 2, True)
    store(log, storage, 1, first)
    assert (log.stable, log.writes_under_way) == (3, 1)
    store(log, storage, 2, second)
    assert (log.stable, log.writes_under_way, log.is_durable) == (4, 0, False)
    store(log, storage, 3, hand_out(log, 3))
    assert (log.stable, log.is_durable, log.has_unwritten) == (5, True, False)


@pytest.mark.conformance("N11")
def test_n11_writes_are_reported_in_the_order_they_were_handed_out() -> None:
    log = log_of(1, tail=(1,))
    hand_out(log, 1)
    hand_out(log, 2)

    for token in (2, 3, 0):
        with pytest.raises(Misuse, match=f"write {token} is not the oldest"):
            log.write_done(token)
    assert (log.stable, log.writes_under_way) == (1, 2)


@pytest.mark.conformance("N11")
def test_n11_nothing_under_way_cannot_be_reported() -> None:
    with pytest.raises(Misuse):
        log_of(1).write_done(1)


@pytest.mark.conformance("I02")
def test_i02_a_write_whose_entries_were_replaced_by_the_same_terms_vouches_for_nothing() -> None:
    storage = storage_of(1)
    log = RaftLog(storage, applied=0)
    log.append(run(2, 2, 2))
    first = hand_out(log, 1)
    log.append(run(2, 3))
    second = hand_out(log, 2)
    log.append(run(2, 2, 2))  # as they were, but the disk will hold 3 in between

    store(log, storage, 1, first)
    assert log.stable == 1
    store(log, storage, 2, second)
    assert log.stable == 1
    store(log, storage, 3, hand_out(log, 3))
    assert log.stable == 3
    assert everything(log) == [(1, 1), (2, 2), (3, 2)]


@pytest.mark.conformance("X06")
def test_x06_three_overwrites_with_every_write_under_way_mark_only_the_last_durable() -> None:
    storage = storage_of(1)
    log = RaftLog(storage, applied=0)
    handed = []
    for token, term in enumerate((2, 3, 4, 5), 1):
        log.append(run(2, term, term, term))
        handed.append(hand_out(log, token))

    stable = []
    for token, entries in enumerate(handed, 1):
        store(log, storage, token, entries)
        stable.append(log.stable)

    assert stable == [1, 1, 1, 4]
    assert everything(log) == [(1, 1), (2, 5), (3, 5), (4, 5)]


@pytest.mark.conformance("X06")
def test_x06_a_cut_in_the_middle_leaves_the_older_write_its_first_part() -> None:
    storage = storage_of(1)
    log = RaftLog(storage, applied=0)
    log.append(run(2, 2, 2, 2))
    first = hand_out(log, 1)
    log.append(run(4, 3))
    second = hand_out(log, 2)

    store(log, storage, 1, first)
    assert log.stable == 3
    store(log, storage, 2, second)
    assert log.stable == 4


@pytest.mark.conformance("N11", "N13")
def test_n11_writes_from_before_a_snapshot_vouch_for_nothing_behind_it() -> None:
    log = log_of(1, tail=(2, 2, 2))
    hand_out(log, 1)

    log.restore(snapshot(3))
    log.append(run(4, 5))
    log.write_done(1)

    assert (log.stable, log.is_installing, log.is_durable) == (0, True, False)
    assert log.take_unwritten() == run(4, 5)


@pytest.mark.conformance("N11", "N13")
def test_n11_an_install_is_applied_when_it_is_durable_and_not_before() -> None:
    storage = storage_of(1, 1)
    log = RaftLog(storage, applied=0)
    log.commit_to(1)
    log.next_committed(MUCH)
    log.restore(snapshot(9))
    log.append(run(10, 5))

    log.write_started(1, installs=True)
    assert (log.applied, log.commit, log.next_committed(MUCH)) == (0, 9, ())
    storage.base, storage._entries = Snapshot(9, 5, members(1)), []
    log.write_done(1)

    assert (log.applied, log.handed, log.stable, log.last_index) == (9, 9, 9, 10)
    assert everything(log) == [(10, 5)]


@pytest.mark.conformance("N13")
def test_n13_compaction_moves_the_beginning_and_nothing_else() -> None:
    storage = storage_of(1, 1, 2, 2)
    log = RaftLog(storage, applied=0)
    log.append(run(5, 3))

    storage.compact(index=3, membership=members(1))

    assert (log.first_index, log.last_index, log.stable) == (4, 5, 4)
    assert log.base == Snapshot(3, 2, members(1))
    assert everything(log) == [(4, 2), (5, 3)]


@pytest.mark.conformance("N13")
def test_n13_a_log_cut_off_whole_ends_where_it_begins() -> None:
    storage = storage_of(1, 1, 2)
    storage.compact(index=3, membership=members(1))

    log = RaftLog(storage, applied=3)

    assert (log.first_index, log.last_index, log.last_term) == (4, 3, 2)
    assert log.has_next_committed is False


# ---- The twin.


class Twin:
    """The same without indexes: a write makes the very objects durable that it was handed."""

    def __init__(self) -> None:
        self.entries: list[list[int]] = []  # [term]: compared by identity
        self.unwritten: list[list[int]] = []
        self.under_way: list[list[list[int]]] = []
        self.durable: list[list[int]] = []

    def append(self, first: int, terms: list[int]) -> None:
        fresh = [[term] for term in terms]
        gone = self.entries[first - 1 :]
        self.entries = self.entries[: first - 1] + fresh
        kept = [one for one in self.unwritten if not any(one is other for other in gone)]
        self.unwritten = kept + fresh

    def hand_out(self) -> None:
        self.under_way.append(self.unwritten)
        self.unwritten = []

    def store(self) -> None:
        self.durable += self.under_way.pop(0)

    @property
    def stable(self) -> int:
        for count, one in enumerate(self.entries):
            if not any(one is other for other in self.durable):
                return count
        return len(self.entries)


deeds: st.SearchStrategy[tuple[str, int, list[int]]] = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 6), st.lists(st.integers(1, 3), min_size=1)),
    st.tuples(st.sampled_from(("hand_out", "store")), st.just(0), st.just([])),
)


@pytest.mark.conformance("I02", "X06", "N11")
@settings(max_examples=300)
@given(st.lists(deeds, max_size=25))
def test_x06_whatever_is_cut_while_it_is_written_the_twin_knows_what_is_durable(
    done: list[tuple[str, int, list[int]]],
) -> None:
    storage, twin = MemoryStorage(Membership()), Twin()
    log = RaftLog(storage, applied=0)
    handed: list[tuple[int, tuple[Entry, ...]]] = []
    token = 0

    for deed, back, terms in done:
        if deed == "append":
            first = max(log.last_index + 1 - back, 1)
            log.append(run(first, *terms))
            twin.append(first, terms)
        elif deed == "hand_out":
            token += 1
            handed.append((token, hand_out(log, token)))
            twin.hand_out()
        elif handed:
            store(log, storage, *handed.pop(0))
            twin.store()
        assert log.stable == twin.stable
        assert log.has_unwritten is bool(twin.unwritten)
        assert everything(log) == [(index, one[0]) for index, one in enumerate(twin.entries, 1)]
        # What is called durable is really there, as it is in memory.
        for index in range(1, log.stable + 1):
            assert storage.term(index) == log.term(index)
