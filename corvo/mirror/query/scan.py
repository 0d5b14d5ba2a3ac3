"""Scanning jobs in an order, until a page is full or the time is over.

The rows found are always the first of all that match: there are no gaps, and the end is known.
"""

import heapq
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.mirror.query.cursors import Key
from corvo.mirror.query.plan import (
    SET_MAX,
    STREAMS_MAX,
    Order,
    Row,
    Segment,
    Start,
    check_statement,
    segment,
    set_statement,
    sets,
    size_statement,
    stream_statement,
    streams_of,
)
from corvo.mirror.query.reading import Reading, TimeOver
from corvo.mirror.query.terms import Condition, Meaning, encode_json, in_scope

QUEUES_MAX: Final = 8
"""Queues of a scope that are scanned one by one."""
_CHUNK_MIN: Final = 1
_CHUNK_MAX: Final = 512
_CHUNK_MS: Final = 20.0
_ONE_MORE_MS: Final = 50.0
"""Time to look for one more job, once a page is full."""


class ScanResult(msgspec.Struct, kw_only=True):
    """The rows that a scan found, and where it ended."""

    rows: list[Row] = []
    has_more: bool = False
    """Whether at least one more job follows."""
    stopped: Key | None = None
    """The key up to which jobs were scanned, the empty key for the start; None: all were."""
    stopped_in: str = ""
    """The queue of the job at which it stopped."""
    has_moved: bool = False
    """Whether at least one job was scanned."""
    total: int | None = None
    """The number of all jobs that match, where the scan found it out."""

    def stop_at(self, key: Key, queue: str) -> None:
        """Note that all jobs up to a key were scanned."""
        self.stopped = key
        self.stopped_in = queue
        self.has_moved = True


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """A scan for a page: its conditions, its order, its start and its limit."""

    meaning: Meaning
    order: Order
    descending: bool
    """The direction of the scan; that of the page is the opposite when it goes backwards."""
    backwards: bool = False
    start: Start | None = None
    limit: int

    @property
    def ranks(self) -> list[int]:
        """The segments that the scan comes to, by rank."""
        ranks = self.order.ranks_in_order(descending=self.descending, backwards=self.backwards)
        if self.start is None:
            return ranks
        return ranks[ranks.index(self.order.rank(self.start.key)) :]

    def start_in(self, rank: int) -> Start | None:
        """Where the scan starts within a segment."""
        if self.start is None or self.order.rank(self.start.key) != rank:
            return None
        return self.start


def run_scan(reading: Reading, wanted: Scan, until_ms: float) -> ScanResult:
    """Scan jobs until the page is full or the time is over."""
    result = ScanResult(stopped=wanted.start.key if wanted.start is not None else ())
    meaning = wanted.meaning
    if meaning.is_void:
        return ScanResult(total=0)
    try:
        with reading.until(until_ms):
            queues = queues_of(reading, meaning)
            if queues == []:
                return ScanResult(total=0)
            rows = small_set(reading, meaning, wanted.order, queues or [])
            if rows is None:
                _scan_segments(reading, wanted, queues or [], result)
            else:
                _filter_set(reading, wanted, rows, result)
    except TimeOver:
        if not result.has_moved:
            _scan_one(reading, wanted, result)
    is_foreign = result.has_moved and not meaning.scope.covers(result.stopped_in)
    if result.stopped is not None and is_foreign:
        result.stopped = _coarse_key(wanted, result.stopped, result.rows)
    return result


_MINUTE: Final = len("2026-02-11T10:00")
_SECOND: Final = len("2026-02-11T10:00:00")
_FIRST_TEXT: Final = ""
_LAST_TEXT: Final = "~"
"""A text after all times and ids."""
_LAST_NUMBER: Final = 1 << 32


def _coarse_key(wanted: Scan, key: Key, shown: Sequence[Row]) -> Key:
    """A key to go on from that reveals little of a job which the caller may not see.

    It is not after that job, and it is after the last job that is shown, or else after the start:
    the next page must make progress. Mostly a time cut to the minute is enough. The whole key is
    used where all scanned jobs have one time.
    """
    start = wanted.start.key if wanted.start is not None else None
    floor = wanted.order.key(shown[-1]) if shown else start
    edge, last = (_LAST_TEXT, _LAST_NUMBER) if wanted.descending else (_FIRST_TEXT, -1)
    values = key[:-2]
    for place, part in enumerate(values):
        cuts = [part]
        if isinstance(part, str):
            cuts = [part[:_MINUTE] + edge, part[:_SECOND] + edge, part]
        edges = (edge,) * (len(values) - place)
        for cut in cuts:
            blunt = (*values[:place], cut, *edges, last)
            if floor is None or _is_behind(wanted, blunt, floor):
                return blunt
    return wanted.order.key(shown[-1]) if shown else key


def _is_behind(wanted: Scan, key: Key, start: Key) -> bool:
    """Whether a key is after the start, in its segment or in a later one."""
    if wanted.order.rank(key) != wanted.order.rank(start):
        return True
    if key == start:
        return False
    # Within one segment, what is sorted by is of one kind.
    return (_plain(key) > _plain(start)) is not wanted.descending


def queues_of(reading: Reading, meaning: Meaning) -> list[str] | None:
    """The queues that may have jobs that match; None when they are too many to be named."""
    if meaning.queue:
        return [meaning.queue]
    if meaning.scope.has_everything:
        return None
    seen = in_scope("queue", meaning.scope)
    named = Condition(
        f"SELECT min(queue) FROM jobs INDEXED BY idx_jobs_queue_state_priority"  # noqa: S608 -- all words are ours
        f" WHERE queue > ? AND ({seen.text})",
        seen.parameters,
    )
    queues: list[str] = []
    while len(queues) < QUEUES_MAX and streams_of(meaning, len(queues)) < STREAMS_MAX:
        last = queues[-1] if queues else ""
        found: str | None = reading.run(named.text, (last, *named.parameters)).fetchone()[0]
        if found is None:
            return queues
        queues.append(found)
    return None


def needs_scan(meaning: Meaning, order: Order) -> bool:
    """Whether jobs may have to be read and left out because no index answers a condition.

    The few jobs of the server's own queues do not count. That a set with few jobs may be there, and
    make the scan short, is not relied on.
    """
    if meaning.payload_jq:
        return True
    if meaning.is_void:
        return False
    light = {name: condition for name, condition in meaning.light.items() if name != "reserved"}
    asked = replace(meaning, light=light)
    queues = _known_queues(meaning)
    segments = (segment(order, rank, asked, queues) for rank in range(order.ranks))
    return any(found.rest.text != "1" for found in segments)


def _known_queues(meaning: Meaning) -> Sequence[str]:
    """The queues that may have jobs that match, as far as that needs no query."""
    if meaning.queue:
        return [meaning.queue]
    names = meaning.scope.names
    is_few = len(names) < QUEUES_MAX and streams_of(meaning, len(names)) < STREAMS_MAX
    return names if is_few and not any(name.endswith("*") for name in names) else []


def small_set(
    reading: Reading, meaning: Meaning, order: Order, queues: Sequence[str]
) -> list[Row] | None:
    """A set that all matching jobs are in, if there is one with few jobs; in no order."""
    for rows in sets(meaning, order, queues):
        count = size_statement(rows)
        size: int = reading.run(*count).fetchone()[0]
        if size <= SET_MAX:
            found: list[Row] = reading.run(*set_statement(rows, order, meaning)).fetchall()
            return found
    return None


def _filter_set(reading: Reading, wanted: Scan, rows: list[Row], result: ScanResult) -> None:
    """Find the jobs of a set that match, in order."""
    ordered = _in_order(wanted, rows)
    behind = _behind_start(wanted, ordered)
    for row, is_meant in checked(reading, wanted.meaning, behind):
        if is_meant and _take(reading, wanted, row, result):
            return
        result.stop_at(wanted.order.key(row), row[1])
    result.stopped = None
    if len(behind) == len(ordered):
        result.total = len(result.rows)


def _in_order(wanted: Scan, rows: list[Row]) -> list[Row]:
    order = wanted.order
    by_rank: dict[int, list[Row]] = {}
    for row in rows:
        by_rank.setdefault(order.rank(order.key(row)), []).append(row)
    ranks = order.ranks_in_order(descending=wanted.descending, backwards=wanted.backwards)
    ordered: list[Row] = []
    for rank in ranks:
        found = by_rank.get(rank, [])
        ordered += sorted(found, key=_comparable(order), reverse=wanted.descending)
    return ordered


def _behind_start(wanted: Scan, ordered: list[Row]) -> list[Row]:
    start = wanted.start
    if start is None:
        return ordered
    order = wanted.order
    ranks = wanted.ranks

    def is_behind(row: Row) -> bool:
        key = order.key(row)
        if order.rank(key) not in ranks:
            return False
        return start.is_inclusive if key == start.key else _is_behind(wanted, key, start.key)

    return [row for row in ordered if is_behind(row)]


def _plain(key: Key) -> tuple[str | int, ...]:
    return tuple("" if part is None else part for part in key)


def checked(reading: Reading, meaning: Meaning, rows: Sequence[Row]) -> Iterator[tuple[Row, bool]]:
    """Each row, and whether it matches; checked in chunks whose size follows from their cost."""
    if not meaning.heavy:
        yield from ((row, True) for row in rows)
        return
    text, parameters = check_statement(meaning)
    place, size = 0, _CHUNK_MIN
    while place < len(rows):
        begun_ms = reading.taken_ms
        chunk = rows[place : place + size]
        numbers = encode_json([row[0] for row in chunk]).decode()
        meant = {number for (number,) in reading.run(text, (numbers, *parameters))}
        yield from ((row, row[0] in meant) for row in chunk)
        place += size
        is_quick = reading.taken_ms - begun_ms < _CHUNK_MS
        size = min(size * 2, _CHUNK_MAX) if is_quick else max(size // 2, 1)


def _scan_segments(
    reading: Reading, wanted: Scan, queues: Sequence[str], result: ScanResult
) -> None:
    """Find jobs that match, segment by segment."""
    for row in _rows(reading, wanted, queues):
        if row[7] and _take(reading, wanted, row, result):
            return
        result.stop_at(wanted.order.key(row), row[1])
    result.stopped = None
    if wanted.start is None:
        result.total = len(result.rows)


def _scan_one(reading: Reading, wanted: Scan, result: ScanResult) -> None:
    """Scan one job even when the time is over, so that the next page makes progress.

    That takes little time: a mark is near, and only conditions on columns are checked on the way.
    """
    meaning = wanted.meaning
    plain = replace(wanted, meaning=replace(meaning, heavy=[]))

    def next_one() -> Row | None:
        return next(_rows(reading, plain, queues_of(reading, meaning) or []), None)

    row = reading.retried(next_one)
    if row is None:
        result.stopped = None
        return
    if row[7]:
        sieved = reading.retried(lambda: list(checked(reading, meaning, [row])))
        result.rows += [row for row, is_meant in sieved if is_meant]
    result.stop_at(wanted.order.key(row), row[1])


def _rows(reading: Reading, wanted: Scan, queues: Sequence[str]) -> Iterator[Row]:
    for rank in wanted.ranks:
        found = segment(wanted.order, rank, wanted.meaning, queues)
        yield from _merged(reading, wanted, found, wanted.start_in(rank))


def _take(reading: Reading, wanted: Scan, row: Row, result: ScanResult) -> bool:
    """Take a row; returns whether the page was full already, so that one more job follows."""
    if len(result.rows) < wanted.limit:
        result.rows.append(row)
        if len(result.rows) == wanted.limit:
            reading.hurry(_ONE_MORE_MS)
        return False
    result.has_more = True
    result.stopped = None
    return True


def _merged(reading: Reading, wanted: Scan, segment: Segment, start: Start | None) -> Iterator[Row]:
    text, streams = stream_statement(segment, start, descending=wanted.descending)
    cursors = [reading.run(text, parameters) for parameters in streams]
    try:
        if len(cursors) == 1:
            yield from cursors[0]
        else:
            yield from heapq.merge(
                *cursors, key=_comparable(wanted.order), reverse=wanted.descending
            )
    finally:
        for cursor in cursors:
            cursor.close()


_BY_AGE: Final = itemgetter(4, 5, 6)
_BY_VALUE: Final = itemgetter(3, 4, 5, 6)


def _comparable(order: Order) -> "itemgetter[tuple[str | int, ...]]":
    """The values by which rows of one segment are compared."""
    return _BY_AGE if order.column == "created_at" else _BY_VALUE
