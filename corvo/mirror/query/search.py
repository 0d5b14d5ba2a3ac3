"""Searches, counts and selections: a filter goes in; a page, a number or ids come out."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.mirror.follow.columns import Value as Stored
from corvo.mirror.follow.schema import JOBS
from corvo.mirror.query.counting import count_jobs, is_counted_by_shards
from corvo.mirror.query.cursors import Cursor, Way, digest_of, read_cursor, write_cursor
from corvo.mirror.query.plan import ORDERS, Order, Start
from corvo.mirror.query.reading import Reading
from corvo.mirror.query.scan import Scan, ScanResult, needs_scan, run_scan
from corvo.mirror.query.terms import (
    STATE_WORDS,
    Condition,
    Meaning,
    Value,
    bad_filter,
    compiled,
    encode_json,
    understand,
    written_one_way,
)
from corvo.protocol.jobs import FoundJob
from corvo.protocol.questions import (
    AsOf,
    Count,
    Counted,
    Member,
    RawPage,
    Search,
    SearchBody,
    Select,
    Selected,
)
from corvo.times import sortable

LIMIT: Final = 50
PAGE_BYTES_MAX: Final = 8 << 20
"""A page that becomes larger is cut short."""
_LOOKING: Final = 0.85
"""Of the time; the rest is for showing what was found."""
_COUNTING: Final = 0.25
"""Share of the time limit that counting may take: a page must not wait for its total."""
_QUEUES_SHOWN: Final = 100
_WORDS: Final = ("asc", "desc")
_BY_AGE: Final = ORDERS["created_at"]


class Understood(msgspec.Struct, frozen=True, kw_only=True):
    """A question about jobs, understood before any row is read."""

    meaning: Meaning
    """Without its `payload_jq`, which is compiled in a reader's thread."""
    order: Order
    is_falling: bool
    needs_scan: bool
    """Whether it may have to read jobs that do not match, and so need all of its time."""


def understood(question: Search | Count | Select) -> Understood:
    """The order and the conditions that a question asks for. Raises `NotAnswered`."""
    body = question.search if isinstance(question, Search) else SearchBody()
    given = body if isinstance(question, Search) else question.filter
    order, is_falling = _order(body.sort), _is_falling(body.order)
    meaning = understand(given, question.scope)
    is_scan = needs_scan(meaning, order)
    if isinstance(question, Count):
        is_scan = is_scan or not (meaning.is_void or is_counted_by_shards(meaning))
    return Understood(meaning=meaning, order=order, is_falling=is_falling, needs_scan=is_scan)


def search(reading: Reading, question: Search, known: Understood) -> RawPage:
    """A page of jobs. Raises `NotAnswered`."""
    body, order, is_falling = question.search, known.order, known.is_falling
    meaning = compiled(known.meaning)
    plain = written_one_way(replace(body, sort=None, order=None, cursor=None, limit=None))
    digest = digest_of(plain, order.column, "desc" if is_falling else "asc")
    cursor = None if body.cursor is None else read_cursor(body.cursor, digest, order.key_types)
    is_backwards = cursor is not None and cursor.way in {"before", "until"} and cursor.key != ()
    wanted = Scan(
        meaning=meaning,
        order=order,
        descending=is_falling is not is_backwards,
        backwards=is_backwards,
        start=_start(cursor),
        limit=body.limit or LIMIT,
    )
    with reading.snapshot():
        as_of = reading.as_of()
        result = run_scan(reading, wanted, question.budget_ms * _LOOKING)
        jobs = _shown(reading, result)
        total, is_exact = _total(reading, question, meaning, result, as_of)
    before, behind = _cursors(wanted, result, digest)
    # A full page is complete; whether another job follows is not known.
    is_partial = result.stopped is not None and len(jobs) < wanted.limit
    return RawPage(
        jobs=jobs[::-1] if is_backwards else jobs,
        total=total,
        total_is_exact=is_exact,
        cursor=behind,
        prev_cursor=before,
        has_more=behind is not None,
        partial=is_partial,
        why_partial=_WHY_PARTIAL if is_partial else "",
        duration_ms=round(reading.taken_ms),
        as_of=as_of,
    )


_WHY_PARTIAL: Final = (
    "the time limit was reached before all jobs were checked: follow the cursor, or add a queue,"
    " states or times to the filter"
)


def _order(word: str | None) -> Order:
    order = ORDERS.get(word or _BY_AGE.column)
    if order is None:
        raise bad_filter("sort", f"expected one of {', '.join(ORDERS)}; got {(word or '')[:60]!r}")
    return order


def _is_falling(word: str | None) -> bool:
    if word is not None and word not in _WORDS:
        raise bad_filter("order", f"expected one of {', '.join(_WORDS)}; got {word[:60]!r}")
    return word != "asc"


def _start(cursor: Cursor | None) -> Start | None:
    if cursor is None or cursor.key == ():
        return None
    return Start(cursor.key, is_inclusive=cursor.way in {"from", "until"})


def _shown(reading: Reading, result: ScanResult) -> list[msgspec.Raw]:
    """What was found as JSON; as much of it as a page may have."""
    jobs: list[msgspec.Raw] = []
    size = 0
    for row in result.rows:
        job = _summary(reading, row[0])
        size += len(bytes(job))
        if jobs and size > PAGE_BYTES_MAX:
            result.rows = result.rows[: len(jobs)]
            result.has_more = True
            result.stopped = None
            result.total = None
            break
        jobs.append(job)
    return jobs


_LAST_ERROR: Final = """CASE WHEN reason IS NOT NULL THEN reason WHEN failures > 0 THEN (
  SELECT error FROM job_errors INDEXED BY idx_job_errors_job
  WHERE job_errors.job_id = jobs.id AND job_errors.shard = jobs.shard
  ORDER BY number DESC LIMIT 1
) END AS last_error"""
_FIELDS: Final = msgspec.structs.fields(FoundJob)
_SELECTED: Final = ", ".join(
    _LAST_ERROR if field.name == "last_error" else field.name for field in _FIELDS
)
_SUMMARY: Final = f"SELECT {_SELECTED} FROM jobs WHERE row = ?"  # noqa: S608 -- names of ours
_SHOWN_AS: Final[dict[str, Callable[[str], object] | None]] = {
    column.name: column.source.shown_as for column in JOBS.columns if column.source is not None
}
_SUMMARIES: Final = [(field.name, field.default, _SHOWN_AS.get(field.name)) for field in _FIELDS]
_encode: Final = msgspec.json.Encoder().encode


def _summary(reading: Reading, row: int) -> msgspec.Raw:
    """A job by the number of its row. Fields that are NULL, or have their default, are left out."""
    found: tuple[Stored, ...] | None
    found = reading.retried(lambda: reading.run(_SUMMARY, (row,)).fetchone())
    assert found is not None, "it was there a moment ago, and this is the same moment"
    fields: dict[str, object] = {}
    for (name, default, shown_as), value in zip(_SUMMARIES, found, strict=True):
        if value is None or value == default:
            continue
        fields[name] = shown_as(value) if shown_as is not None and isinstance(value, str) else value
    return msgspec.Raw(_encode(fields))


def _total(
    reading: Reading, question: Search, meaning: Meaning, result: ScanResult, as_of: AsOf
) -> tuple[int, bool]:
    """How many there are, and whether that is all."""
    is_whole = _is_whole(as_of)
    if result.total is not None:
        return result.total, is_whole
    least = len(result.rows) + result.has_more
    budget_ms = question.budget_ms
    until_ms = min(budget_ms * _LOOKING, reading.taken_ms + budget_ms * _COUNTING)
    counted = count_jobs(reading, meaning, most=1 << 62, grouped=False, until_ms=until_ms)
    if counted.is_exact:
        return counted.total, is_whole
    return max(counted.total, least), False


def _is_whole(as_of: AsOf) -> bool:
    """Whether every shard has all its rows here. A shard that is not named is not known."""
    return bool(as_of) and all(place.is_whole for place in as_of.values())


def _cursors(wanted: Scan, result: ScanResult, digest: bytes) -> tuple[str | None, str | None]:
    """For the page before this one, and for the one behind it."""
    keys = [wanted.order.key(row) for row in result.rows]
    on: Way = "before" if wanted.backwards else "after"
    back: Way = "after" if wanted.backwards else "before"
    start = wanted.start
    going_on: str | None = None
    if result.stopped is not None:
        going_on = write_cursor(digest, on, result.stopped)
    elif result.has_more:
        going_on = write_cursor(digest, on, keys[-1])
    coming_back: str | None = None
    if start is not None and keys:
        coming_back = write_cursor(digest, back, keys[0])
    elif start is not None:
        way = back if start.is_inclusive else _INCLUSIVE[back]
        coming_back = write_cursor(digest, way, start.key)
    return (going_on, coming_back) if wanted.backwards else (coming_back, going_on)


_INCLUSIVE: Final[dict[Way, Way]] = {"after": "from", "before": "until"}


def count(reading: Reading, question: Count, known: Understood) -> Counted:
    """The jobs that a bulk operation would act on, counted. Raises `NotAnswered`."""
    meaning = compiled(known.meaning)
    with reading.snapshot():
        as_of = reading.as_of()
        samples: list[msgspec.Raw] = []
        if question.samples:
            wanted = Scan(meaning=meaning, order=_BY_AGE, descending=True, limit=question.samples)
            result = run_scan(reading, wanted, question.budget_ms * _COUNTING)
            samples = _shown(reading, result)
        until_ms = question.budget_ms * _LOOKING
        counted = count_jobs(
            reading, meaning, most=question.exact_to, grouped=True, until_ms=until_ms
        )
        bounds = reading.bounds()
    states: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    for (queue, state), number in counted.groups.items():
        states[state] += number
        queues[queue] += number
    return Counted(
        total=max(counted.total, len(samples)),
        is_exact=counted.is_exact and _is_whole(as_of),
        states={word: states[word] for word in STATE_WORDS if states[word]},
        queues=dict(
            sorted(queues.items(), key=lambda queue: (-queue[1], queue[0]))[:_QUEUES_SHOWN]
        ),
        samples=samples,
        bounds=bounds,
        duration_ms=round(reading.taken_ms),
        as_of=as_of,
    )


def select(reading: Reading, question: Select, known: Understood) -> Selected:
    """The next jobs of a selection, the oldest first. Raises `NotAnswered`."""
    meaning = _bounded(compiled(known.meaning), question.bounds)
    bounds = encode_json(sorted(question.bounds.items())).decode()
    digest = digest_of(question.filter, "select", bounds)
    cursor = read_cursor(question.after, digest, _BY_AGE.key_types) if question.after else None
    wanted = Scan(
        meaning=meaning,
        order=_BY_AGE,
        descending=False,
        start=_start(cursor),
        limit=question.limit,
    )
    with reading.snapshot():
        as_of = reading.as_of()
        result = run_scan(reading, wanted, question.budget_ms * _LOOKING)
    after = ""
    if result.stopped is not None:
        after = write_cursor(digest, "after", result.stopped)
    elif result.has_more:
        after = write_cursor(digest, "after", _BY_AGE.key(result.rows[-1]))
    members = [Member(row[5], row[6], row[1], row[2]) for row in result.rows]
    return Selected(members=members, after=after, as_of=as_of)


def _bounded(meaning: Meaning, bounds: dict[int, int]) -> Meaning:
    """Only jobs to which nothing happened since."""
    if not bounds:
        return replace(meaning, is_void=True)
    cases = " ".join(["WHEN ? THEN ?"] * len(bounds))
    parameters: list[Value] = []
    for shard, at_ns in sorted(bounds.items()):
        parameters += [shard, sortable(at_ns)]
    bounded = Condition(f"changed_at <= CASE shard {cases} END", tuple(parameters))
    return replace(meaning, light=meaning.light | {"bounds": bounded})
