"""Whatever a client writes stays a value: in every field, every text finds what the twin finds.

The statements are of a finite set: what they say depends on which fields were given, on how many
states, tags and queues were named and on the form of an expression, and never on a letter.
"""

from typing import Final

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from corvo.mirror.query import fulltext
from corvo.mirror.query.reading import Reading
from corvo.mirror.readers import answer, task_of
from corvo.model import Event, Job, JobError, State
from corvo.protocol.questions import (
    Count,
    Counted,
    Filter,
    FullText,
    GetRates,
    GetThroughput,
    MirrorAnswer,
    Question,
    RawPage,
    Refused,
    Search,
    SearchBody,
    Select,
    Selected,
    TextFound,
)
from corvo.scopes import EVERYTHING, Scope
from tests.mirror import evaluator, jq_examples
from tests.mirror.shelves import NOW_NS, Shelf
from tests.mirror.twin import EPOCH_NS, Kept, may_see, means

EVIL: Final = (
    # SQL
    "' OR '1'='1",
    "'; DROP TABLE jobs; --",
    '" OR ""="',
    "1; ATTACH DATABASE 'x' AS x",
    "?1",
    ":name",
    "@p",
    "$1",
    "x' UNION SELECT sql FROM sqlite_master --",
    "/* */",
    "-- ",
    "\\'",
    "char(39)",
    "CAST(x AS TEXT)",
    "load_extension('x')",
    "jobs.payload",
    "NULL",
    # wildcards of LIKE and GLOB
    "%",
    "_",
    "%%%_",
    "*",
    "[a-z]",
    "?",
    # FTS5
    '"',
    '""',
    "a AND",
    "NEAR(a b, 3)",
    "queue : q",
    "{id queue} : x",
    "^a",
    "a*",
    "- a",
    "a OR b NOT c",
    "(",
    "jobs_fts",
    # paths of JSON
    "$",
    "$.a",
    '$."a"',
    "$[0]",
    "[#-1]",
    "a.b",
    '{"a":1}',
    "[1]",
    "\\u0041",
    '\\"',
    # Unicode
    "\0",
    "a\0b",
    "\x01\x1f\x7f",
    "\u202eabc\u202c",
    "\u200b",
    "\ufeff",
    "\ufffd",
    "\uffff",
    "\U0010ffff",
    "\ud7ff\ue000",
    "\U0001f468\u200d\U0001f469",
    "é",
    "e\u0301",
    "İ",
    "ß",
    "K",
    "٢",
    # length
    "a" * 4096,
    '"' * 4096,
    "%" * 4096,
    "(" * 4096,
    "é" * 2048,
    " " * 100,
    "\n\r\t",
)

NAMED: Final = ("queue", "kind", "unique_key", "batch_id", "parent_id", "chain_id", "worker_id")
PIECES: Final = ("payload_contains", "error_contains")
TIMES: Final = ("created_after", "scheduled_before", "started_after", "expire_before")

texts = st.one_of(
    st.sampled_from(EVIL),
    st.lists(st.sampled_from(EVIL[:-8]), min_size=1, max_size=4).map("".join),
    st.text(max_size=30),
)


def job_of(number: int, text: str, **fields: object) -> Kept:
    """A job that has the text wherever it can be."""
    job = Job(
        id=f"s00_job_{number}",
        queue=text,
        state=State.DEAD,
        payload=msgspec.json.encode({text: text, "n": [text]}),
        created_ns=EPOCH_NS + number,
        order_ns=number,
        trail=(Event(EPOCH_NS, "enqueued"),),
        kind=text,
        failures=1,
        unique_key=text,
        batch_id=text,
        parent_id=text,
        chain_id=text,
        worker_id=text,
        hostname=text,
        tags={text: text},
        hold_reason=text,
    )
    error = JobError(attempt=1, error=f"<{text}>", at_ns=EPOCH_NS, worker_id=text)
    return Kept(msgspec.structs.replace(job, **fields), 0, (error,))  # type: ignore[arg-type]


class Named(msgspec.Struct):
    """Of a job in a list what it is called; a payload may have numbers that Python cannot read."""

    id: str


def ids(found: RawPage) -> list[str]:
    return [msgspec.json.decode(job, type=Named).id for job in found.jobs]


def expected(wanted: Filter, keeps: list[Kept]) -> list[str]:
    return [kept.job.id for kept in reversed(keeps) if means(wanted, kept)]


def body(wanted: Filter) -> SearchBody:
    given_fields = {name: getattr(wanted, name) for name in Filter.__struct_fields__}
    return msgspec.convert(given_fields, SearchBody)


@given(
    evil=st.lists(texts.filter(bool), min_size=1, max_size=4, unique=True),
    asked=texts.filter(bool),
    name=st.sampled_from((*NAMED, *PIECES, "tags", "job_id_prefix")),
)
def test_a_text_in_any_field_finds_the_jobs_that_have_it_and_no_others(
    evil: list[str], asked: str, name: str
) -> None:
    keeps = [job_of(number, text) for number, text in enumerate(evil)]
    shelf = Shelf(keeps)
    before = fingerprint(shelf)

    for text in (*evil, asked):
        value = {text: text} if name == "tags" else text
        wanted = msgspec.convert({name: value}, Filter)
        found = shelf.ask(Search(scope=EVERYTHING, search=body(wanted)), RawPage)
        counted = shelf.ask(Count(scope=EVERYTHING, filter=wanted), Counted)
        every_one = dict.fromkeys(range(3), 1 << 62)
        selected = shelf.ask(Select(scope=EVERYTHING, filter=wanted, bounds=every_one), Selected)

        assert ids(found) == expected(wanted, keeps)
        assert counted.total == len(found.jobs)
        assert [member.id for member in selected.members] == ids(found)[::-1]
    assert fingerprint(shelf) == before


@given(
    first=texts.filter(bool),
    other=texts.filter(bool),
    names=st.sets(st.sampled_from((*NAMED, *PIECES, "tags", "job_id_prefix")), min_size=1),
)
def test_statements_are_the_same_whatever_a_client_writes(
    first: str, other: str, names: set[str]
) -> None:
    statements = []
    for text in (first, other):
        # The one job has neither, so that what is found does not decide what is asked next.
        shelf = Shelf([job_of(0, "-")])
        shelf.connection.texts.clear()
        fields = {name: {text: text} if name == "tags" else f"{text[:4000]}." for name in names}
        shelf.ask(Search(scope=EVERYTHING, search=body(msgspec.convert(fields, Filter))), RawPage)
        statements.append(set(shelf.connection.texts))

    assert statements[0] == statements[1]


@given(q=texts, evil=st.lists(texts.filter(bool), min_size=1, max_size=3, unique=True))
def test_a_full_text_query_is_words_or_refused_and_never_a_query_of_fts5(
    q: str, evil: list[str]
) -> None:
    shelf = Shelf([job_of(number, text) for number, text in enumerate(evil)])
    shelf.connection.texts.clear()

    answered = shelf._answer(FullText(scope=EVERYTHING, q=q), 0)

    if isinstance(answered, Refused):
        assert (answered.code, answered.field) == ("bad_filter", "q")
    else:
        event("found" if msgspec.json.decode(answered.body, type=TextFound).results else "nothing")
    assert not any(q in text for text in shelf.connection.texts if len(q) > 12)


@pytest.mark.parametrize("text", [text for text in EVIL if any(one.isalnum() for one in text)])
def test_a_text_is_found_by_itself_as_a_phrase(text: str) -> None:
    terms = fulltext.read_terms(text.replace('"', " "))
    shelf = Shelf([job_of(0, text)])
    phrase = text.replace('"', " ")

    answered = shelf._answer(FullText(scope=EVERYTHING, q=f'"{phrase}"'), 0)

    assert terms
    if isinstance(answered, Refused):
        assert answered.code == "bad_filter"
    else:
        assert msgspec.json.decode(answered.body, type=TextFound).q == f'"{phrase}"'


@given(st.data())
def test_an_expression_finds_through_a_search_what_the_evaluator_finds(data: st.DataObject) -> None:
    tree = data.draw(jq_examples.trees())
    source = data.draw(jq_examples.written(tree))
    rows = data.draw(st.lists(jq_examples.payloads(), min_size=1, max_size=5))
    keeps = [job_of(number, "-", payload=row.encode()) for number, row in enumerate(rows)]
    shelf = Shelf(keeps)

    answered = shelf._answer(
        Search(scope=EVERYTHING, search=SearchBody(payload_jq=source, order="asc")), 0
    )

    if isinstance(answered, Refused):
        event("refused")
        assert any(one in answered.error for one in jq_examples.REFUSALS)
    else:
        matching = [evaluator.matches(tree, row) for row in rows]
        event(f"found {any(matching)}")
        assert ids(msgspec.json.decode(answered.body, type=RawPage)) == [
            kept.job.id for kept, is_meant in zip(keeps, matching, strict=True) if is_meant
        ]


@given(name=st.sampled_from((*NAMED, *PIECES, *TIMES, "payload_jq", "cursor", "sort")), text=texts)
def test_every_text_in_every_field_is_answered_or_refused_as_that_field(
    name: str, text: str
) -> None:
    shelf = Shelf([job_of(0, "-")])
    search = msgspec.convert({name: text}, SearchBody)

    answered = shelf._answer(Search(scope=EVERYTHING, search=search), 0)

    if isinstance(answered, Refused):
        event(f"refused {name}")
        wanted = ("bad_cursor", "cursor") if name == "cursor" else ("bad_filter", name)
        assert (answered.code, answered.field) == wanted
        assert answered.error


@given(texts, texts)
def test_a_queue_or_a_scope_of_any_letters_is_only_a_name(queue: str, scope: str) -> None:
    shelf = Shelf([job_of(0, "seen"), job_of(1, "hidden")])
    questions: list[Question] = [
        GetThroughput(queue=queue, scope=Scope(("seen",))),
        GetRates(queues=(queue,), scope=Scope((scope,))),
        Search(scope=Scope((scope,))),
        Count(scope=Scope((scope, "seen"))),
        Select(scope=Scope((scope,)), bounds={0: 1 << 62}),
    ]

    answers = [shelf._answer(question, 0) for question in questions]

    told = [answered.body for answered in answers if isinstance(answered, MirrorAnswer)]
    assert len(told) == len(questions)
    found = msgspec.json.decode(told[2], type=RawPage)
    names = {queue for queue in ("seen", "hidden") if may_see(queue, Scope((scope,)))}
    assert len(found.jobs) == len(names)


def test_whoever_is_interrupted_at_any_step_leaves_a_connection_that_others_can_use() -> None:
    shelf = Shelf([job_of(number, "-") for number in range(3)])
    question = Search(scope=EVERYTHING, search=SearchBody(payload_jq=".n == 1"), budget_ms=30)

    def ask(place: int) -> int:
        counted = Steps(place)
        shelf.connection.set_progress_handler(counted.is_the_one, 1)
        answer(Reading(shelf.connection, clock=lambda: 0, now_ns=NOW_NS), task_of(question))
        shelf.connection.set_progress_handler(None, 1)
        return counted.number

    steps = ask(0)
    assert steps > 50
    for place in range(1, steps + 1):
        ask(place)
        assert not shelf.connection.in_transaction, f"after step {place} of {steps}"


class Steps:
    """Counts SQLite's steps, and stops it at one of them."""

    def __init__(self, place: int) -> None:
        self.number = 0
        self._place = place

    def is_the_one(self) -> bool:
        self.number += 1
        return self.number == self._place


def fingerprint(shelf: Shelf) -> list[object]:
    """All that is in the tables."""
    run = shelf.connection.execute
    tables = run("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    return [
        tables,
        run("SELECT * FROM jobs").fetchall(),
        run("SELECT * FROM job_errors").fetchall(),
    ]
