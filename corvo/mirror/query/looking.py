"""Looking for jobs in an order: as many as are wanted, or as many as there is time for.

What is found is always the beginning of what there is: it has no gaps, and where it ends is known.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final

from corvo.mirror.query.cursors import Key
from corvo.mirror.query.plan import (
    SET_MAX,
    STREAMS_MAX,
    Order,
    Row,
    Segment,
    Start,
    counting,
    segment,
    sets,
    sifting,
    streams_of,
    taking,
    walking,
)
from corvo.mirror.query.reading import Reading, TimeOver
from corvo.mirror.query.terms import Condition, Meaning, encode_json, in_scope

QUEUES_MAX: Final = 8
"""Queues of a scope whose jobs are looked for one by one."""
_CHUNK_MIN: Final = 1
_CHUNK_MAX: Final = 512
_CHUNK_MS: Final = 20.0
_ONE_MORE_MS: Final = 50.0
"""So long it is looked whether there is one more, when there are as many as are wanted."""


@dataclass(kw_only=True)
class Looked:
    """What was found."""

    rows: list[Row] = field(default_factory=list)
    has_more: bool = False
    """There is at least one more behind."""
    stopped: Key | None = None
    """Not everything was looked at: up to there all was; the empty key is the beginning."""
    stopped_in: str = ""
    """The queue of the job at which it stopped."""
    has_moved: bool = False
    """Something was looked at."""
    total: int | None = None
    """How many are meant altogether, if that is known by the way."""

    def stop_at(self, key: Key, queue: str) -> None:
        """Up to there all was looked at."""
        self.stopped = key
        self.stopped_in = queue
        self.has_moved = True


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is looked for."""

    meaning: Meaning
    order: Order
    descending: bool
    """How the walk goes, which is not how the page is read when it goes backwards."""
    backwards: bool = False
    start: Start | None = None
    limit: int

    @property
    def ranks(self) -> list[int]:
        """The segments that the walk comes to."""
        ranks = self.order.ranks_in_order(descending=self.descending, backwards=self.backwards)
        if self.start is None:
            return ranks
        return ranks[ranks.index(self.order.rank(self.start.key)) :]

    def start_in(self, rank: int) -> Start | None:
        """Where it begins in a segment."""
        if self.start is None or self.order.rank(self.start.key) != rank:
            return None
        return self.start


def look(reading: Reading, wanted: Wanted, until_ms: float) -> Looked:
    """Look for jobs."""
    looked = Looked(stopped=wanted.start.key if wanted.start is not None else ())
    meaning = wanted.meaning
    if meaning.is_void:
        return Looked(total=0)
    try:
        with reading.until(until_ms):
            queues = queues_of(reading, meaning)
            if queues == []:
                return Looked(total=0)
            rows = small_set(reading, meaning, wanted.order, queues or [])
            if rows is None:
                _walk(reading, wanted, queues or [], looked)
            else:
                _sift(reading, wanted, rows, looked)
    except TimeOver:
        if not looked.has_moved:
            _creep(reading, wanted, looked)
    is_foreign = looked.has_moved and not meaning.scope.covers(looked.stopped_in)
    if looked.stopped is not None and is_foreign:
        looked.stopped = _blunted(wanted, looked.stopped, looked.rows)
    return looked


_MINUTE: Final = len("2026-02-11T10:00")
_SECOND: Final = len("2026-02-11T10:00:00")
_FIRST_TEXT: Final = ""
_LAST_TEXT: Final = "~"
"""Behind all letters of times and ids."""
_LAST_NUMBER: Final = 1 << 32


def _blunted(wanted: Wanted, key: Key, shown: Sequence[Row]) -> Key:
    """A place to go on from that says little of the job there: whoever asks may not see it.

    It is not behind that job. It is behind the last one that is shown, or else behind the start, or
    whoever goes on from there would stand still. The minute will mostly do; the whole key is told
    where no more was done than look at what is of one time.
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


def _is_behind(wanted: Wanted, key: Key, start: Key) -> bool:
    """Whether a place is behind the start, in its segment or in a later one."""
    if wanted.order.rank(key) != wanted.order.rank(start):
        return True
    if key == start:
        return False
    # Within one segment, what is sorted by is of one kind.
    return (_plain(key) > _plain(start)) is not wanted.descending


def queues_of(reading: Reading, meaning: Meaning) -> list[str] | None:
    """The queues that jobs that are meant may be in; None when they are too many to be told."""
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
    """The queues that jobs that are meant may be in, as far as that needs no look."""
    if meaning.queue:
        return [meaning.queue]
    names = meaning.scope.names
    is_few = len(names) < QUEUES_MAX and streams_of(meaning, len(names)) < STREAMS_MAX
    return names if is_few and not any(map(_is_pattern, names)) else []


def _is_pattern(name: str) -> bool:
    return name.endswith("*")


def small_set(
    reading: Reading, meaning: Meaning, order: Order, queues: Sequence[str]
) -> list[Row] | None:
    """The jobs that may be meant, if they are few: all of them, in no order."""
    for rows in sets(meaning, order, queues):
        count = counting(rows)
        size: int = reading.run(*count).fetchone()[0]
        if size <= SET_MAX:
            found: list[Row] = reading.run(*taking(rows, order, meaning)).fetchall()
            return found
    return None


def _sift(reading: Reading, wanted: Wanted, rows: list[Row], looked: Looked) -> None:
    """Find those of a set that are meant, in order."""
    ordered = _in_order(wanted, rows)
    behind = _behind_start(wanted, ordered)
    for row, is_meant in sifted(reading, wanted.meaning, behind):
        if is_meant and _take(reading, wanted, row, looked):
            return
        looked.stop_at(wanted.order.key(row), row[1])
    looked.stopped = None
    if len(behind) == len(ordered):
        looked.total = len(looked.rows)


def _in_order(wanted: Wanted, rows: list[Row]) -> list[Row]:
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


def _behind_start(wanted: Wanted, ordered: list[Row]) -> list[Row]:
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


def sifted(reading: Reading, meaning: Meaning, rows: Sequence[Row]) -> Iterator[tuple[Row, bool]]:
    """Each of the rows, and whether it is meant; a few at a time, as long as each few takes."""
    if not meaning.heavy:
        yield from ((row, True) for row in rows)
        return
    text, parameters = sifting(meaning)
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


def _walk(reading: Reading, wanted: Wanted, queues: Sequence[str], looked: Looked) -> None:
    """Find what is meant, along the order."""
    for row in _rows(reading, wanted, queues):
        if row[7] and _take(reading, wanted, row, looked):
            return
        looked.stop_at(wanted.order.key(row), row[1])
    looked.stopped = None
    if wanted.start is None:
        looked.total = len(looked.rows)


def _creep(reading: Reading, wanted: Wanted, looked: Looked) -> None:
    """Look at one job, however long it takes, or whoever goes on from here would stand still.

    That is not long: there is a mark soon, and what it passes over is told by its columns.
    """
    meaning = wanted.meaning
    plain = replace(wanted, meaning=replace(meaning, heavy=[]))

    def next_one() -> Row | None:
        return next(_rows(reading, plain, queues_of(reading, meaning) or []), None)

    row = reading.surely(next_one)
    if row is None:
        looked.stopped = None
        return
    if row[7]:
        sieved = reading.surely(lambda: list(sifted(reading, meaning, [row])))
        looked.rows += [row for row, is_meant in sieved if is_meant]
    looked.stop_at(wanted.order.key(row), row[1])


def _rows(reading: Reading, wanted: Wanted, queues: Sequence[str]) -> Iterator[Row]:
    for rank in wanted.ranks:
        found = segment(wanted.order, rank, wanted.meaning, queues)
        yield from _merged(reading, wanted, found, wanted.start_in(rank))


def _take(reading: Reading, wanted: Wanted, row: Row, looked: Looked) -> bool:
    """Whether it is enough; then one more is there, and is not taken."""
    if len(looked.rows) < wanted.limit:
        looked.rows.append(row)
        if len(looked.rows) == wanted.limit:
            reading.hurry(_ONE_MORE_MS)
        return False
    looked.has_more = True
    looked.stopped = None
    return True


def _merged(
    reading: Reading, wanted: Wanted, segment: Segment, start: Start | None
) -> Iterator[Row]:
    text, streams = walking(segment, start, descending=wanted.descending)
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
    """What rows of one segment are compared by."""
    return _BY_AGE if order.column == "created_at" else _BY_VALUE
