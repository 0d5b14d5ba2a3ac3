"""Full text: what people write is looked for, and never understood as a query."""

import re
import unicodedata

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.mirror.query.fulltext import ANSWER_BYTES_MAX, Term, match_of, read_terms
from corvo.mirror.query.terms import NotAnswered
from corvo.model import Job, State
from corvo.protocol.questions import FullText, TextFound
from corvo.scopes import EVERYTHING, Scope
from tests.mirror import jobs
from tests.mirror.shelves import Shelf
from tests.mirror.test_select import many
from tests.mirror.twin import EPOCH_NS, Kept, may_see


def letter(number: int, text: str, *, queue: str = "mail", tags: str = "") -> Kept:
    job = Job(
        id=f"s00_job_{number}",
        queue=queue,
        state=State.PENDING,
        payload=msgspec.json.encode({"text": text}),
        created_ns=EPOCH_NS + number,
        order_ns=number,
        tags={"about": tags} if tags else {},
    )
    return Kept(job, 0)


def ids(found: TextFound) -> set[str]:
    return {hit.id for hit in found.results}


@pytest.mark.parametrize(
    ("q", "terms"),
    [
        ("one two", [Term("one"), Term("two")]),
        ('"one two" three', [Term("one two"), Term("three")]),
        ("one* -two", [Term("one*", is_prefix=True), Term("two", is_refused=True)]),
        ('"one t"* -"x y"', [Term("one t", is_prefix=True), Term("x y", is_refused=True)]),
        ('"open end', [Term("open end")]),
        ('one"two"', [Term("one"), Term("two")]),
        ("AND OR NOT", [Term("AND"), Term("OR"), Term("NOT")]),
        ("id:x ^y {z}", [Term("id:x"), Term("^y"), Term("{z}")]),
        ("... one --", [Term("one")]),
        ("a\0b", [Term("a"), Term("b")]),
        ("NEAR(a", [Term("NEAR(a")]),
    ],
)
def test_words_phrases_beginnings_and_refusals_are_told_apart(q: str, terms: list[Term]) -> None:
    read = read_terms(q)

    assert read == terms


@pytest.mark.parametrize(
    "q", ["", "  ", "...", '"', '""', "-", "-one", '-"one two"', "* - *", "\0"]
)
def test_without_a_word_to_look_for_there_is_no_answer(q: str) -> None:
    refused = Shelf().refusal(FullText(scope=EVERYTHING, q=q))

    assert (refused.code, refused.field) == ("bad_filter", "q")


def test_more_words_than_anybody_writes_are_refused() -> None:
    refused = Shelf().refusal(FullText(scope=EVERYTHING, q="w " * 33))

    assert "at most 32 words" in refused.error


def test_all_words_must_be_there_and_none_of_those_that_are_refused() -> None:
    shelf = Shelf(
        [
            letter(1, "red green"),
            letter(2, "red"),
            letter(3, "green red blue"),
            letter(4, "reddish green"),
            letter(5, "nothing", tags="red green"),
        ]
    )

    found = {
        q: ids(shelf.ask(FullText(scope=EVERYTHING, q=q), TextFound))
        for q in ("red green", '"red green"', "red* green", "red -blue -tags", "RED -green", "mail")
    }

    assert found == {
        "red green": {"s00_job_1", "s00_job_3", "s00_job_5"},
        '"red green"': {"s00_job_1", "s00_job_5"},
        "red* green": {"s00_job_1", "s00_job_3", "s00_job_4", "s00_job_5"},
        "red -blue -tags": {"s00_job_1", "s00_job_2", "s00_job_5"},
        "RED -green": {"s00_job_2"},
        "mail": {f"s00_job_{number}" for number in range(1, 6)},
    }


def test_the_best_match_comes_first() -> None:
    shelf = Shelf([letter(1, "red and much else beside it " * 5), letter(2, "red red red")])

    found = shelf.ask(FullText(scope=EVERYTHING, q="red"), TextFound)

    assert [hit.id for hit in found.results] == ["s00_job_2", "s00_job_1"]
    assert found.results[0].created_at == "2026-02-11T10:00:00.000000002Z"
    assert found.results[0].tags == ""


@settings(deadline=None, max_examples=50)
@given(
    queues=st.lists(st.sampled_from(jobs.QUEUES), max_size=8),
    scope=st.sampled_from(jobs.SCOPES),
)
def test_only_queues_that_may_be_seen_are_looked_through(queues: list[str], scope: Scope) -> None:
    keeps = [letter(number, "red", queue=queue) for number, queue in enumerate(queues)]
    shelf = Shelf(keeps)

    found = shelf.ask(FullText(q="red", scope=scope), TextFound)

    assert ids(found) == {
        kept.job.id
        for kept in keeps
        if may_see(kept.job.queue, scope) and not kept.job.queue.startswith("_corvo.")
    }


def test_when_ranking_takes_too_long_the_newest_ones_are_shown_and_it_is_said() -> None:
    shelf = Shelf(many(20_000))

    found = shelf.ask(
        FullText(scope=EVERYTHING, q="dead OR n", limit=3, budget_ms=100), TextFound, every=100
    )
    ranked = shelf.ask(
        FullText(scope=EVERYTHING, q="n", limit=3, budget_ms=100), TextFound, every=1_000
    )

    assert (ids(found), found.partial) == (set(), False)
    assert ranked.partial
    assert ids(ranked) == {"s00_job_019999", "s00_job_019998", "s00_job_019997"}


def test_an_answer_of_large_jobs_is_cut_short_and_says_so() -> None:
    shelf = Shelf([letter(number, "red " + "x" * 3_000_000) for number in range(4)])

    found = shelf.ask(FullText(scope=EVERYTHING, q="red"), TextFound)

    assert len(found.results) == 2
    assert found.partial


@pytest.mark.parametrize("letter_of_it", ["龍", '"', "\\", "x"])
def test_an_answer_is_measured_as_it_is_sent(letter_of_it: str) -> None:
    """A message that is too large would be no answer at all."""
    text = "red " + letter_of_it * 300_000
    shelf = Shelf([letter(number, text, tags="y" * 200) for number in range(40)])

    found = shelf.ask(FullText(scope=EVERYTHING, q="red", limit=100), TextFound)

    sent = len(msgspec.json.encode(found))
    assert found.partial == (len(found.results) < 40)
    assert sent < 1.2 * ANSWER_BYTES_MAX
    assert len(found.results) == 40 or sent > 0.8 * ANSWER_BYTES_MAX


WORDS = ("red", "Green", "blue", "a.b", "12", "é")


@settings(deadline=None, max_examples=150)
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=4), max_size=6),
    wanted=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    refused=st.lists(st.sampled_from(WORDS), max_size=2),
)
def test_words_find_what_a_plain_look_finds(
    texts: list[list[str]], wanted: list[str], refused: list[str]
) -> None:
    shelf = Shelf(letter(number, " ".join(words)) for number, words in enumerate(texts))
    q = " ".join([*wanted, *(f"-{word}" for word in refused)])

    found = shelf.ask(FullText(scope=EVERYTHING, q=q), TextFound)

    assert ids(found) == {
        f"s00_job_{number}"
        for number, words in enumerate(texts)
        if all(has(words, word) for word in wanted) and not any(has(words, w) for w in refused)
    }


def has(words: list[str], wanted: str) -> bool:
    """Whether a word is there: its parts, one behind the other."""
    parts = split(wanted)
    there = split(" ".join(words))
    return any(there[place : place + len(parts)] == parts for place in range(len(there)))


def split(text: str) -> list[str]:
    bare = unicodedata.normalize("NFD", text.lower())
    return re.findall(r"\w+", "".join(one for one in bare if not unicodedata.combining(one)))


@settings(deadline=None, max_examples=400)
@given(st.text(max_size=40) | st.text(alphabet='ab"*-()^:{}+ ,\0ANDORNTE', max_size=30))
def test_nothing_that_is_written_is_a_fault_of_the_query(q: str) -> None:
    shelf = Shelf([letter(1, "a b")])

    try:
        match = match_of(read_terms(q))
    except NotAnswered:
        return

    assert shelf.ask(FullText(scope=EVERYTHING, q=q), TextFound).q == q
    assert "\0" not in match
