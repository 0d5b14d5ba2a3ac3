"""Full-text search with FTS5: the words of a query are quoted before they reach it."""

import unicodedata
from typing import Final

import msgspec

from corvo.mirror.query.reading import Reading, TimeOver
from corvo.mirror.query.terms import NOT_RESERVED, Condition, all_of, bad_filter, in_scope
from corvo.protocol.ops.base import encode_json
from corvo.protocol.questions import FullText, TextFound, TextHit
from corvo.times import without_zeros

TERMS_MAX: Final = 32
ANSWER_BYTES_MAX: Final = 8 << 20
_NOT_RESERVED: Final = Condition(NOT_RESERVED.text.replace("queue", "jobs.queue"))
_RANKING: Final = 0.6
_LOOKING: Final = 0.85
"""Shares of the time limit: of the ranking, and of all reads."""


class Term(msgspec.Struct, frozen=True):
    """A word, a phrase or a prefix; with `is_refused`, one that a match must not have."""

    text: str
    is_prefix: bool = False
    is_refused: bool = False

    @property
    def quoted(self) -> str:
        """The term for FTS5: within quotation marks, only these have a meaning."""
        text = self.text.replace('"', '""')
        return f'"{text}"*' if self.is_prefix else f'"{text}"'


def read_terms(q: str) -> list[Term]:
    """The terms of a text. Raises `NotAnswered`.

    Every text is accepted: a quotation mark without a second one extends to the end, and a word
    without letters and digits is ignored.
    """
    terms = []
    place = 0
    text = "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in q)
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        is_refused = text[place] == "-"
        place += is_refused
        if text[place : place + 1] == '"':
            end = text.find('"', place + 1)
            end = len(text) if end < 0 else end
            word = text[place + 1 : end]
            place = end + 1
            is_prefix = text[place : place + 1] == "*"
            place += is_prefix
        else:
            end = place
            while end < len(text) and not text[end].isspace() and text[end] != '"':
                end += 1
            word = text[place:end]
            place = end
            is_prefix = word.endswith("*")
        if any(_is_of_a_word(letter) for letter in word):
            terms.append(Term(word, is_prefix=is_prefix, is_refused=is_refused))
    return _checked(terms)


def _is_of_a_word(letter: str) -> bool:
    category = unicodedata.category(letter)
    return category[0] in "LN" or category == "Co"


def _checked(terms: list[Term]) -> list[Term]:
    if not any(not term.is_refused for term in terms):
        raise bad_filter(
            "q", 'expected a word to search for: use words, "phrases", prefixes* and -words'
        )
    if len(terms) > TERMS_MAX:
        raise bad_filter("q", f"expected at most {TERMS_MAX} words")
    return terms


def match_of(terms: list[Term]) -> str:
    """The terms as an expression of FTS5, which is a parameter of the statement."""
    wanted = " AND ".join(term.quoted for term in terms if not term.is_refused)
    refused = " OR ".join(term.quoted for term in terms if term.is_refused)
    return f"({wanted}) NOT ({refused})" if refused else wanted


_BEST: Final = "ORDER BY jobs_fts.rank"
_NEWEST: Final = "ORDER BY jobs_fts.rowid DESC"


def full_text(reading: Reading, question: FullText) -> TextFound:
    """Jobs that have the words. Raises `NotAnswered`."""
    match = match_of(read_terms(question.q))
    seen = all_of([in_scope("jobs.queue", question.scope), _NOT_RESERVED])
    results: list[TextHit] = []
    is_partial = False
    with reading.snapshot():
        as_of = reading.as_of()
        try:
            with reading.until(question.budget_ms * _RANKING):
                is_partial = _add_hits(reading, question, match, seen, _BEST, results)
        except TimeOver:
            # Too many jobs have the words to say which are best: then the newest ones will do.
            is_partial = True
            results.clear()
            try:
                with reading.until(question.budget_ms * _LOOKING):
                    _add_hits(reading, question, match, seen, _NEWEST, results)
            except TimeOver:
                pass
    return TextFound(
        q=question.q,
        results=results,
        partial=is_partial,
        duration_ms=round(reading.taken_ms),
        as_of=as_of,
    )


def _add_hits(
    reading: Reading,
    question: FullText,
    match: str,
    seen: Condition,
    order: str,
    results: list[TextHit],
) -> bool:
    """Add the jobs found; returns whether some were left out."""
    text = (
        "SELECT jobs.id, jobs.queue, jobs.state, jobs.payload, jobs.tags, jobs.created_at"  # noqa: S608 -- all words are ours
        " FROM jobs_fts CROSS JOIN jobs ON jobs.row = jobs_fts.rowid"
        f" WHERE jobs_fts MATCH ? AND ({seen.text}) {order} LIMIT ?"
    )
    size = 0
    found: tuple[str, str, str, str, str | None, str]
    for found in reading.run(text, (match, *seen.parameters, question.limit)):
        job_id, queue, state, payload, tags, created_at = found
        hit = TextHit(
            id=job_id,
            queue=queue,
            state=state,
            payload=payload,
            tags=tags or "",
            created_at=without_zeros(created_at),
        )
        # As it will be sent: a character may be four bytes there, and a quote is two.
        size += len(encode_json(hit))
        if results and size > ANSWER_BYTES_MAX:
            return True
        results.append(hit)
    return False
