"""The feed of a store by itself: what a row holds, how it is bounded, and how pages are made."""

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.errors import StoreDamaged
from corvo.kv import feed as feeds
from corvo.kv.feed import CUT_ROWS, FED, ROW_BYTES, Begin, Feed, Page, Row, Told, Walk, row_key
from corvo.kv.keys import SPACES, prefix_end
from tests.support.memory import MemoryStore

FORMATS: Final = Path(__file__).parents[2] / "docs" / "formats.md"
ENOUGH: Final = 1 << 30


def bytes_held(feed: Feed) -> int:
    """How large the rows are that are kept."""
    return feed._bytes_total - feed.begin.bytes_total


class Twin:
    """A store with a feed, and all rows that there ever were."""

    def __init__(self, *, bytes_max: int = ENOUGH, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.bytes_max = bytes_max
        self.reads = 0
        self.index = 0
        self.open()

    def open(self, digest: int = 0) -> Feed:
        """As a start does."""
        self.feed = Feed(self.store, applied=self.index, digest=digest, bytes_max=self.bytes_max)
        return self.feed

    def entry(
        self, documents: dict[bytes, bytes | None] | None = None, told: Iterable[Told] = ()
    ) -> None:
        """An entry that writes some documents. Its digest is a hundred times its number."""
        self.index += 1
        writes = dict(documents or {})
        keys = tuple(writes)
        self.feed.append(writes, self.index, 100 * self.index, 7, keys, list(told))
        self.store.write(writes)

    def entries(self, count: int) -> None:
        """So many entries, each with a document of its own."""
        for _ in range(count):
            self.entry({b"j|%06d" % self.index: b"x" * 50})

    def rows(self) -> list[int]:
        """The numbers of the rows that there are."""
        keys = self.store.keys(b"ev|", b"ev}", limit=1_000_000)
        return [int.from_bytes(key[3:], "big") for key in keys]

    def page(
        self,
        *,
        after: int = 0,
        after_key: bytes = b"",
        keys_max: int = 1_000,
        wants_documents: bool = True,
        wants_events: bool = True,
    ) -> Page:
        """A page that is not made yet."""
        return Page(
            self.store,
            self.feed,
            after=after,
            digest=100 * after,
            after_key=after_key,
            keys_max=keys_max,
            wants_documents=wants_documents,
            wants_events=wants_events,
        )


def made(page: Page) -> Page:
    while not page.advance():
        pass
    return page


# Rows.


def shown(name: str) -> bytes:
    """The bytes that the page on formats has under a name."""
    [lines] = re.findall(rf"<!-- bytes: {name} -->\n```\n(.*?)```", FORMATS.read_text(), re.DOTALL)
    return b"".join(bytes.fromhex(line.partition("|")[0]) for line in lines.splitlines())


def test_a_row_has_the_bytes_that_the_page_on_formats_shows() -> None:
    feed = Feed(MemoryStore(), applied=0, digest=0, bytes_max=ENOUGH)
    writes: dict[bytes, bytes | None] = {}
    feed.append(
        writes,
        1,
        0xC0FFEE,
        1_700_000_000_000_000_001,
        (b"j|s00_job_1", b"qs|mail"),
        [("started", "s00_job_1", "mail", "", "active", 1, "", "")],
    )

    assert writes == {row_key(1): shown("feed row"), b"evc|": shown("feed begin")}


def test_what_followers_are_told_of_are_whole_spaces_in_the_order_of_their_keys() -> None:
    prefixes = [space.prefix for space in SPACES]

    assert [*FED] == sorted(FED)
    assert set(FED) <= set(prefixes)
    assert all(prefix_end(one) <= other for one, other in pairwise(FED))


def test_each_entry_has_a_row_that_says_what_it_changed() -> None:
    twin = Twin()

    twin.entry({b"j|a": b"1", b"j|b": None}, [("enqueued", "a")])
    twin.entry()

    row, _ = twin.feed.row(1)
    assert (row.digest, row.now_ns, row.bytes_total, row.keys) == (100, 7, 0, (b"j|a", b"j|b"))
    assert msgspec.msgpack.decode(row.events) == [["enqueued", "a"]]
    assert twin.feed.row(2)[0].keys == ()


def test_the_digest_is_known_of_each_place_that_the_feed_reaches_back_to() -> None:
    twin = Twin()
    twin.entries(3)

    assert [twin.feed.digest_at(index) for index in range(-1, 5)] == [
        None,
        0,
        100,
        200,
        300,
        None,
    ]


def test_a_row_that_is_missing_is_damage() -> None:
    twin = Twin()
    twin.entries(3)
    twin.store.write({row_key(2): None})

    with pytest.raises(StoreDamaged, match="no row of entry 2"):
        twin.feed.digest_at(2)


# The bound.


def test_the_oldest_rows_are_cut_when_there_are_too_many_bytes() -> None:
    twin = Twin(bytes_max=5_000)

    for _ in range(300):
        twin.entries(1)
        held = sum(len(value) + ROW_BYTES for value in values(twin))
        assert held == bytes_held(twin.feed) <= 5_000

    assert twin.rows() == [*range(twin.feed.begin.index + 1, 301)]
    assert twin.feed.digest_at(twin.feed.begin.index) == 100 * twin.feed.begin.index
    assert twin.feed.digest_at(twin.feed.begin.index - 1) is None


def values(twin: Twin) -> list[bytes]:
    return [value for _, value in twin.store.scan(b"ev|", b"ev}", limit=1_000_000)]


def test_one_entry_cuts_a_few_rows_alone() -> None:
    twin = Twin()
    twin.entries(100)
    twin.feed = Feed(twin.store, applied=100, digest=0, bytes_max=1)
    size = len(values(twin)[0]) + ROW_BYTES

    twin.entries(1)

    assert twin.rows() == [*range(CUT_ROWS + size // ROW_BYTES + 1, 102)]


def test_one_entry_that_adds_as_much_as_many_before_it_cuts_them_all() -> None:
    twin = Twin(bytes_max=20_000)
    while bytes_held(twin.feed) < 19_000:
        twin.entry()
    small = len(twin.rows())

    for _ in range(10):
        twin.entry(dict.fromkeys([b"j|%04d" % n for n in range(1_000)]))

        assert bytes_held(twin.feed) <= 20_000

    assert small > 10 * CUT_ROWS
    assert len(twin.rows()) == 2


def test_no_more_large_rows_are_cut_than_have_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "CUT_BYTES_MORE", 100)
    twin = Twin(bytes_max=100_000)

    for _ in range(200):
        twin.entry(dict.fromkeys([b"j|%04d" % n for n in range(200)]))

    assert bytes_held(twin.feed) > 100_000 - 2 * max(map(len, values(twin)))


@given(
    bytes_max=st.integers(1, 20_000),
    sizes=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 60)), max_size=12),
)
def test_the_bound_is_kept_whatever_entries_add(
    bytes_max: int, sizes: list[tuple[int, int]]
) -> None:
    twin = Twin(bytes_max=bytes_max)

    for keys, times in sizes:
        for _ in range(times):
            twin.entry(dict.fromkeys([b"j|%d" % n for n in range(keys)]))
            kept = [len(value) + ROW_BYTES for value in values(twin)]

            assert sum(kept) == bytes_held(twin.feed)
            assert sum(kept) <= max(bytes_max, kept[-1])
            assert twin.rows() == [*range(twin.feed.begin.index + 1, twin.index + 1)]


def test_a_bound_that_was_lowered_is_come_to_step_by_step() -> None:
    twin = Twin()
    twin.entries(1_000)
    twin.feed = Feed(twin.store, applied=1_000, digest=0, bytes_max=5_000)

    counts: list[int] = []
    while not counts or bytes_held(twin.feed) > 5_000:
        twin.entries(1)
        counts.append(len(twin.rows()))

    assert max(one - other for one, other in pairwise(counts)) <= CUT_ROWS + 4


def test_a_bound_below_a_single_row_keeps_the_last_one() -> None:
    twin = Twin(bytes_max=1)

    twin.entries(20)

    assert twin.rows() == [20]
    assert twin.feed.begin.index == 19


def test_a_start_finds_the_feed_as_it_was() -> None:
    twin = Twin(bytes_max=5_000)
    twin.entries(200)
    before = twin.feed

    after = twin.open(20_000)

    assert after.begin == before.begin
    assert bytes_held(after) == bytes_held(before)
    assert after.digest_at(200) == 20_000


def test_a_feed_that_is_cut_to_its_end_goes_on() -> None:
    twin = Twin(bytes_max=1)
    twin.entries(2)
    twin.store.write({row_key(2): None, b"evc|": msgspec.msgpack.encode(Begin(2, 200, 999))})

    twin.open(200)
    twin.entries(1)

    assert twin.feed.begin == Begin(2, 200, 999)
    assert twin.feed.row(3)[0].bytes_total == 999


# Where it begins.


def test_a_store_without_a_feed_begins_one_where_it_stands() -> None:
    twin = Twin()
    twin.index = 50

    feed = twin.open(digest=5_000)
    begun = feed.begin
    twin.entries(2)

    assert begun == feed.begin == Begin(50, 5_000)
    assert twin.rows() == [51, 52]
    assert twin.open(5_200).begin == begun


def test_a_feed_that_another_version_did_not_go_on_with_begins_anew() -> None:
    twin = Twin()
    twin.entries(40)
    twin.index = 60  # without a row

    begun = twin.open(6_000).begin
    twin.entries(1)

    assert (begun.index, begun.digest) == (60, 6_000)
    assert twin.feed.digest_at(40) is None
    assert made(twin.page(after=60)).index == 61


def test_what_is_left_of_a_feed_that_broke_off_is_removed_little_by_little() -> None:
    twin = Twin()
    twin.entries(40)
    twin.index = 60
    twin.open(6_000)

    counts = []
    for _ in range(5):
        twin.entries(1)
        counts.append(len(twin.rows()))
        twin.open(100 * twin.index)

    assert counts == [40 - 16 + 1, 40 - 32 + 2, 3, 4, 5]
    assert twin.feed.begin == Begin(60, 6_000)


def test_a_feed_may_break_off_again_before_all_of_the_last_one_is_gone() -> None:
    twin = Twin()
    twin.entries(40)
    twin.index = 60
    twin.open(6_000)
    twin.entries(1)
    twin.index = 80
    twin.open(8_000)

    twin.entries(10)

    assert twin.rows() == [*range(81, 91)]


# Pages.


def test_a_page_has_each_document_once_and_as_it_is_now() -> None:
    twin = Twin()
    twin.entry({b"j|a": b"1", b"j|b": b"1"})
    twin.entry({b"j|a": b"2", b"j|b": None})
    twin.entry({b"j|a": b"3"})

    page = made(twin.page())

    assert page.pairs == {b"j|a": b"3", b"j|b": None}
    assert (page.index, page.digest, page.now_ns, page.more) == (3, 300, 7, b"")


def test_a_page_begins_behind_the_place_that_is_known() -> None:
    twin = Twin()
    twin.entry({b"j|a": b"1"})
    twin.entry({b"j|b": b"1"})

    assert made(twin.page(after=1)).pairs == {b"j|b": b"1"}


def test_a_page_of_so_many_documents_ends_with_an_entry() -> None:
    twin = Twin()
    twin.entry({b"j|a": b"1", b"j|b": b"1"})
    twin.entry({b"j|a": b"2", b"j|c": b"1"})
    twin.entry({b"j|d": b"1"})

    ends = [made(twin.page(keys_max=keys_max)).index for keys_max in (1, 2, 3, 4)]

    assert ends == [1, 1, 2, 3]


def test_a_page_of_many_bytes_ends_with_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "PAGE_BYTES", 120)
    twin = Twin()
    twin.entries(10)

    page = made(twin.page())

    assert page.index == 3
    assert len(page.pairs) == 3


def test_an_entry_that_is_too_large_for_a_page_comes_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "PART_BYTES", 1_000)
    twin = Twin()
    large: dict[bytes, bytes | None] = {b"j|%02d" % n: b"x" * 300 for n in reversed(range(10))}
    twin.entry(large, [("enqueued", "a")])
    twin.entry({b"j|z": b"1"})

    parts = [made(twin.page())]
    while parts[-1].more:
        parts.append(made(twin.page(after_key=parts[-1].more)))

    assert [page.index for page in parts] == [0, 0, 0, 2]
    assert [page.digest for page in parts] == [0, 0, 0, 200]
    assert [len(page.events) for page in parts] == [0, 0, 0, 1]
    assert [key for page in parts for key in page.pairs] == [*sorted(large), b"j|z"]


def test_a_last_document_that_fills_a_part_ends_the_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "PART_BYTES", 606)
    twin = Twin()
    twin.entry({b"j|a": b"x" * 300, b"j|b": b"x" * 300})

    page = made(twin.page())

    assert (page.index, page.more) == (1, b"")


def test_what_changes_while_a_page_is_made_is_told_with_a_later_one() -> None:
    twin = Twin()
    twin.entry({b"j|a": b"1", **{b"j|b%03d" % n: b"1" for n in range(200)}})
    page = twin.page()
    assert not page.advance()

    twin.entry({b"j|a": b"2"})

    assert made(page).index == 1
    assert made(twin.page(after=1)).pairs == {b"j|a": b"2"}


def test_an_entry_that_does_not_fit_behind_others_is_left_to_the_next_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "PART_BYTES", 1_000)
    twin = Twin()
    twin.entry({b"j|a": b"1"})
    twin.entry({b"j|%02d" % n: b"x" * 300 for n in range(10)})

    page = made(twin.page())

    assert (page.index, page.more) == (1, b"")


def test_a_page_without_documents_is_bounded_by_its_events() -> None:
    twin = Twin()
    for _ in range(5):
        twin.entry({b"j|a": b"1"}, [("beat", "a")] * 20)
    twin.entry()

    page = made(twin.page(wants_documents=False, keys_max=50))

    assert page.index == 3
    assert [index for index, _, _ in page.events] == [1, 2, 3]
    assert page.pairs == {}


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_events_are_counted_however_many_there_are(count: int) -> None:
    twin = Twin()
    twin.entry({}, [("a",)] * count)
    twin.entry()

    page = made(twin.page(wants_documents=False, keys_max=count))
    further = made(twin.page(wants_documents=False, keys_max=count + 1))

    assert (page.index, further.index) == (1, 2)


@given(
    sizes=st.lists(st.lists(st.integers(0, 1_500), max_size=20), max_size=8),
    keys_max=st.integers(1, 100),
)
def test_no_page_has_more_in_documents_than_a_part_unless_it_is_a_single_one(
    sizes: list[list[int]], keys_max: int
) -> None:
    twin = Twin()
    for number, entry in enumerate(sizes):
        twin.entry({b"j|%d|%02d" % (number, at): b"x" * size for at, size in enumerate(entry)})
    told: dict[bytes, bytes | None] = {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeds, "PAGE_BYTES", 700)
        patch.setattr(feeds, "PART_BYTES", 2_000)
        page = made(twin.page(keys_max=keys_max))
        while page.pairs or page.index < twin.index:
            sum_bytes = sum(len(key) + len(data or b"") for key, data in page.pairs.items())
            assert sum_bytes <= 2_000 or len(page.pairs) == 1
            told |= page.pairs
            page = made(twin.page(after=page.index, after_key=page.more, keys_max=keys_max))

    assert told == dict(twin.store.scan(b"j|", b"j}", limit=1_000))


# Events that are large.


def many(count: int, *, letters: int = 0, name: str = "a") -> list[Told]:
    """Events with long texts for people."""
    text = "\N{GRINNING FACE}" * letters
    return [("failed", name, "mail", text, "dead", 1, text, text)] * count


def events_of(page: Page) -> list[tuple[object, ...]]:
    return [
        event
        for _, _, events in page.events
        for event in msgspec.msgpack.decode(events, type=list[tuple[object, ...]])
    ]


def test_texts_are_cut_where_the_events_of_an_entry_would_be_too_large() -> None:
    twin = Twin()
    told = many(2_000, letters=4_096)
    told.append(("progress", "a", "mail", "k", "active", 1, "w", "", b'"mine"'))
    told.append(("queue.paused", "", "mail", "", "", 0))

    twin.entry({}, told)

    page = made(twin.page(wants_documents=False))
    assert events_of(page) == [*many(2_000, letters=feeds.TEXT_MAX), *told[2_000:]]


def test_texts_are_left_out_where_they_would_still_be_too_large() -> None:
    twin = Twin()

    twin.entry({}, many(17_000, letters=feeds.TEXT_MAX))

    assert events_of(made(twin.page(wants_documents=False))) == many(17_000)


def test_texts_are_left_in_an_entry_that_changes_a_lot_and_says_little() -> None:
    twin = Twin()
    documents: dict[bytes, bytes | None] = dict.fromkeys(
        [b"j|%0100d" % number for number in range(65_000)]
    )
    told: list[Told] = [("failed", "a", "mail", "x" * 200, "dead", 1, "", "")]

    twin.entry(documents, told)

    assert events_of(made(twin.page(wants_documents=False))) == told


def test_events_that_are_too_many_to_be_told_are_a_gap_that_pages_end_before() -> None:
    twin = Twin()
    twin.entry({b"j|a": b"1"}, [("enqueued", "a")])
    twin.entry({b"j|b": b"1"}, many(100_000, name="b" * 80))
    twin.entry({b"j|c": b"1"}, [("enqueued", "c")])

    before = made(twin.page())
    at = made(twin.page(after=1))
    behind = made(twin.page(after=2))

    assert (before.index, before.gap) == (1, None)
    assert (at.index, at.events, at.pairs) == (1, [], {})
    assert at.gap == Begin(2, 200)
    assert (behind.index, behind.gap, events_of(behind)) == (3, None, [("enqueued", "c")])


def test_rows_of_a_version_that_knew_no_bound_are_gaps_where_they_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin = Twin()
    twin.entry({b"j|a": b"1"}, many(100))
    monkeypatch.setattr(feeds, "EVENTS_BYTES_MAX", 500)

    page = made(twin.page())

    assert (page.index, page.gap, page.events) == (0, Begin(1, 100), [])


def test_documents_are_told_of_an_entry_whose_events_are_not() -> None:
    twin = Twin()
    twin.entry({b"j|b": b"1"}, many(100_000, name="b" * 80))

    page = made(twin.page(wants_events=False))

    assert (page.index, page.gap, page.pairs) == (1, None, {b"j|b": b"1"})


def test_a_page_without_events_has_none() -> None:
    twin = Twin()
    twin.entry({b"j|a": b"1"}, [("enqueued", "a")])

    assert made(twin.page(wants_events=False)).events == []


def test_an_entry_in_which_nothing_happened_is_not_among_the_events() -> None:
    twin = Twin()
    twin.entry()
    twin.entry({}, [("enqueued", "a")])

    assert [(index, now_ns) for index, now_ns, _ in made(twin.page()).events] == [(2, 7)]


def test_a_step_looks_up_so_many_documents_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin()
    twin.entry({b"j|%04d" % n: b"x" for n in range(1_000)})
    reads = count_reads(twin.store, monkeypatch)
    page = twin.page()

    steps = []
    is_made = False
    while not is_made:
        reads.clear()
        is_made = page.advance()
        steps.append(len(reads))

    assert sum(steps) == 1_001
    assert max(steps) <= feeds.STEP_DOCUMENTS + 1


def test_a_step_over_entries_that_change_little_is_as_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin = Twin()
    for _ in range(500):
        twin.entry({b"j|a": b"x"})
    reads = count_reads(twin.store, monkeypatch)

    is_made = twin.page().advance()

    assert not is_made
    assert len(reads) < 40


def test_a_step_over_large_documents_ends_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin()
    twin.entry({b"j|%04d" % n: b"x" * (100 << 10) for n in range(100)})
    reads = count_reads(twin.store, monkeypatch)

    is_made = twin.page().advance()

    assert not is_made
    assert len(reads) == 1 + 3


def count_reads(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    reads: list[bytes] = []
    get = store.get

    def counting(key: bytes) -> bytes | None:
        reads.append(key)
        return get(key)

    monkeypatch.setattr(store, "get", counting)
    return reads


def test_a_page_that_the_feed_was_cut_under_ends_or_is_overtaken() -> None:
    twin = Twin()
    twin.entries(100)
    begun, not_begun = twin.page(), twin.page()
    begun.advance()
    reached = begun.index
    twin.feed._bytes_max = 1
    twin.entries(10)

    assert begun.advance()
    assert not_begun.advance()
    assert reached <= begun.index <= reached + 1
    assert not begun.is_overtaken
    assert not_begun.is_overtaken


# Walks.


def test_a_walk_passes_all_documents_in_the_order_of_their_keys() -> None:
    store = MemoryStore()
    fed = [prefix + b"%02d" % n for prefix in FED for n in range(7)]
    others = [space.prefix + b"x" for space in SPACES if space.prefix not in FED]
    store.write(dict.fromkeys([*fed, *others], b"1"))

    for keys_max in (1, 2, 3, 7, 8, 48, 49, 50, 1_000):
        walked = walk_all(store, keys_max)

        assert [key for page in walked for key, _ in page.pairs] == fed
        assert all(len(page.pairs) <= keys_max for page in walked)
        ends = [page.last for page in walked]
        assert ends[-1] == b""
        assert ends[:-1] == sorted(ends[:-1])


def test_a_walk_over_large_documents_ends_a_page_sooner() -> None:
    store = MemoryStore()
    store.write({b"j|%02d" % n: b"x" * (300 << 10) for n in range(20)})

    walked = walk_all(store, 1_000)

    assert sum(len(page.pairs) for page in walked) == 20
    assert max(len(page.pairs) for page in walked) <= 8


def test_a_walk_is_not_taken_in_by_small_documents_before_large_ones() -> None:
    store = MemoryStore()
    store.write({b"j|a%03d" % n: b"x" for n in range(10)})
    store.write({b"j|b%03d" % n: b"x" * (150 << 10) for n in range(128)})

    walked = walk_all(store, 1_000)

    assert max(map(bytes_of, walked)) <= feeds.PAGE_BYTES + (150 << 10) * 8
    assert sum(len(page.pairs) for page in walked) == 138


def test_a_walk_has_no_more_than_a_part_in_a_page_though_neighbours_are_large() -> None:
    store = MemoryStore()
    store.write({b"j|%02d" % n: b"x" * (5 << 19) for n in range(9)})

    walked = walk_all(store, 1_000)

    assert [len(page.pairs) for page in walked if page.pairs] == [1] * 9


@given(
    sizes=st.lists(
        st.tuples(st.sampled_from(FED), st.one_of(st.integers(0, 30), st.integers(0, 1_500))),
        max_size=120,
    ),
    keys_max=st.integers(1, 100),
)
def test_a_walk_has_all_documents_in_pages_of_bounded_size(
    sizes: list[tuple[bytes, int]], keys_max: int
) -> None:
    store = MemoryStore()
    documents = {prefix + b"%03d" % n: b"x" * size for n, (prefix, size) in enumerate(sizes)}
    store.write(dict(documents))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeds, "PAGE_BYTES", 700)
        patch.setattr(feeds, "PART_BYTES", 2_000)
        patch.setattr(feeds, "STEP_BYTES", 300)
        patch.setattr(feeds, "STEP_DOCUMENTS", 10)
        walked = walk_all(store, keys_max)

    assert [pair for page in walked for pair in page.pairs] == sorted(documents.items())
    assert all(bytes_of(page) <= 2_000 or len(page.pairs) == 1 for page in walked)
    assert all(len(page.pairs) <= keys_max for page in walked)


def test_a_step_of_a_walk_is_as_short_as_one_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    store.write({b"j|%04d" % n: b"x" for n in range(1_000)})
    store.write({b"w|%04d" % n: b"x" * (100 << 10) for n in range(5)})
    monkeypatch.setattr(feeds, "PAGE_BYTES", 1 << 30)
    page = Walk(store, after=b"", keys_max=10_000)
    steps = []

    before = 0
    while not page.advance():
        steps.append(len(page.pairs) - before)
        before = len(page.pairs)

    assert max(steps) < feeds.STEP_DOCUMENTS + 8
    assert len(steps) > 7


def bytes_of(page: Walk) -> int:
    return sum(len(key) + len(data) for key, data in page.pairs)


def test_a_walk_through_nothing_ends_at_once() -> None:
    [page] = walk_all(MemoryStore(), 10)

    assert page.pairs == []


def walk_all(store: MemoryStore, keys_max: int) -> list[Walk]:
    pages: list[Walk] = []
    after = b""
    while True:
        page = Walk(store, after=after, keys_max=keys_max)
        while not page.advance():
            pass
        pages.append(page)
        if not page.last:
            return pages
        after = page.last


def test_a_row_is_read_by_whoever_knows_fewer_fields() -> None:
    longer = msgspec.msgpack.encode((1, 2, 3, (b"j|a",), [], "later"))

    assert msgspec.msgpack.decode(longer, type=Row).keys == (b"j|a",)
