"""The plan of a search: the indexes that it reads, and the order of the rows.

A page is read in its order, so that it costs what it shows and not what there is. The order is cut
into segments, one after the other. A segment is merged from streams: parts of one index, each of
which has its jobs in that order. Conditions that the index cannot answer are checked job by job on
the way. Where few jobs match at all, they are read as a set and sorted.

Every index is named in the statements: no statistics, and no planner, can make a page slow.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.mirror.query.cursors import Key
from corvo.mirror.query.terms import STATE_WORDS, Condition, Meaning, Value, all_of

SET_MAX: Final = 4_000
"""Largest set of jobs that is read as a whole and sorted: some milliseconds."""
STREAMS_MAX: Final = 96
_MARK_EVERY: Final = 64
"""About one in so many jobs that do not match is read as a mark of a scan's progress."""

_TIE: Final = ("created_at", "id", "shard")
"""Columns in which no two jobs are equal."""
_PRIORITIES: Final = (0, 1, 2)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order of all jobs: by a column, and then by `_TIE`."""

    column: str
    key_types: tuple[type | tuple[type, ...], ...]
    ranks: int = 1
    """Number of segments."""
    nulls_last: bool = False
    """In both directions: jobs that have the time come first."""

    def rank(self, key: Key) -> int:
        """The segment that a job is in, by its key."""
        value = key[0]
        if self.nulls_last:
            return int(value is None)
        if self.ranks == 1:
            return 0
        assert isinstance(value, int), "sorted by a number"
        return min(max(value, 0), self.ranks - 1)

    def ranks_in_order(self, *, descending: bool, backwards: bool) -> list[int]:
        """The segments in the order of a scan. `descending` is the direction within each."""
        is_falling = backwards if self.nulls_last else descending
        ranks = list(range(self.ranks))
        return ranks[::-1] if is_falling else ranks

    def key(self, row: "Row") -> Key:
        """The key of a row in this order."""
        return row[4:7] if self.column == "created_at" else row[3:7]


Row = tuple[int, str, str, str | int | None, str, str, int, int]
"""Number, queue, state, what is sorted by, created_at, id, shard, and whether the job matches."""

_NULL: Final = type(None)
ORDERS: Final = {
    order.column: order
    for order in (
        Order(column="created_at", key_types=(str, str, int)),
        Order(column="priority", key_types=(int, str, str, int), ranks=3),
        Order(column="attempt", key_types=(int, str, str, int), ranks=3),
        Order(
            column="started_at", key_types=((str, _NULL), str, str, int), ranks=2, nulls_last=True
        ),
        Order(
            column="completed_at", key_types=((str, _NULL), str, str, int), ranks=2, nulls_last=True
        ),
    )
}


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an order: jobs that streams of one index have in it."""

    index: str
    begin: str = "1"
    """The condition on the first columns of the index that a stream shares, as SQL."""
    streams: tuple[tuple[Value, ...], ...] = ((),)
    """The parameters of `begin`, stream by stream; none when no job can match."""
    order: tuple[str, ...] = _TIE
    rest: Condition
    """The conditions that the index does not answer: `1` for none."""
    value: str = "NULL"
    """What is sorted by, as SQL. In a segment of equals it is what they share: a mark may stand at
    a job that is of another segment, but shows how far this one was scanned."""
    above: Value = None
    """The first of `order` is more than that, if it is given."""
    below: Value = None


class Start(msgspec.Struct, frozen=True):
    """The start of a scan: after a key, or at it."""

    key: Key
    is_inclusive: bool = False


def segment(order: Order, rank: int, meaning: Meaning, queues: Sequence[str]) -> Segment:
    """A segment of an order, by its rank."""
    match order.column:
        case "priority":
            if meaning.priority not in {None, rank}:
                return _EMPTY
            condition = Condition("priority = ?", (rank,))
            light = meaning.light | {"priority": condition}
            ranked = replace(meaning, light=light, priority=rank)
            return replace(by_age(ranked, queues), value=str(rank))
        case "attempt":
            return _by_attempt(rank, meaning, queues)
        case "started_at" | "completed_at":
            return _by_moment(order.column, rank, meaning, queues)
        case _:
            return by_age(meaning, queues)


_EMPTY: Final = Segment(index="", streams=(), rest=Condition("1"))


def _by_attempt(rank: int, meaning: Meaning, queues: Sequence[str]) -> Segment:
    least, most = meaning.parameter("attempt_min"), meaning.parameter("attempt_max")
    if isinstance(most, int) and most < rank:
        return _EMPTY
    if rank == 2:
        return Segment(
            index="idx_jobs_attempt",
            begin="attempt > 1",
            order=("attempt", *_TIE),
            value="attempt",
            rest=all_of([*meaning.without(), *meaning.heavy]),
        )
    if isinstance(least, int) and least > rank:
        return _EMPTY
    light = meaning.light | {"attempt": Condition("attempt = ?", (rank,))}
    return replace(by_age(replace(meaning, light=light), queues), value=str(rank))


def _by_moment(column: str, rank: int, meaning: Meaning, queues: Sequence[str]) -> Segment:
    stem = column.removesuffix("_at")
    after, before = f"{stem}_after", f"{stem}_before"
    if rank == 0:
        return Segment(
            index=f"idx_jobs_{stem}",
            begin=f"{column} IS NOT NULL",
            order=(column, *_TIE),
            value=column,
            rest=all_of([*meaning.without(after, before), *meaning.heavy]),
            above=meaning.parameter(after),
            below=meaning.parameter(before),
        )
    if after in meaning.light or before in meaning.light:
        return _EMPTY
    light = meaning.light | {column: Condition(f"{column} IS NULL")}
    return by_age(replace(meaning, light=light), queues)


_SHARED: Final = {
    "batch_id": "idx_jobs_batch",
    "parent_id": "idx_jobs_parent",
    "chain_id": "idx_jobs_chain",
}
_AGES: Final = ("created_after", "created_before")


def by_age(meaning: Meaning, queues: Sequence[str]) -> Segment:
    """All jobs that match, in the order of `created_at`.

    `queues` are the only ones that may have such jobs, where they are few enough to be named.
    """
    begin = "1"
    streams: tuple[tuple[Value, ...], ...] = ((),)
    answered: tuple[str, ...] = ()
    shared = next(_shared(meaning), None)
    if shared is not None:
        name, index = shared
        begin, streams, answered = f"{name} = ?", (meaning.light[name].parameters,), (name,)
    elif queues:
        index, begin = "idx_jobs_queue_state_priority", "queue = ? AND state = ? AND priority = ?"
        streams = tuple(product(queues, meaning.states or STATE_WORDS, _priorities(meaning)))
        answered = ("queue", "scope", "state", "priority")
    elif meaning.priority in {0, 1}:
        index, begin = "idx_jobs_priority", "priority < 2 AND priority = ?"
        streams, answered = ((meaning.priority,),), ("priority",)
    elif meaning.states:
        index, begin = "idx_jobs_state", "state = ?"
        streams, answered = tuple((state,) for state in meaning.states), ("state",)
    else:
        index = "idx_jobs_created"
    return Segment(
        index=index,
        begin=begin,
        streams=streams,
        rest=all_of([*meaning.without(*_AGES, *answered), *meaning.heavy]),
        above=meaning.parameter("created_after"),
        below=meaning.parameter("created_before"),
    )


def streams_of(meaning: Meaning, queues: int) -> int:
    """How many streams so many queues need."""
    return queues * len(meaning.states or STATE_WORDS) * len(_priorities(meaning))


def _priorities(meaning: Meaning) -> tuple[int, ...]:
    return _PRIORITIES if meaning.priority is None else (meaning.priority,)


def stream_statement(
    segment: Segment, start: Start | None, *, descending: bool
) -> tuple[str, list[tuple[Value, ...]]]:
    """The statement that reads a stream, and its parameters for each stream of a segment.

    It reads all jobs that match, and marks between them.
    """
    within, asked = _range(segment, start, descending=descending)
    rest = segment.rest
    if rest.text == "1":
        is_meant, filtered = "1", ""
    else:
        is_meant = f"({rest.text}) IS TRUE"
        filtered = f" AND (({rest.text}) OR {_marked()})"
    way = " DESC" if descending else ""
    text = (
        f"SELECT row, queue, state, {segment.value}, created_at, id, shard, {is_meant}"  # noqa: S608 -- all words are ours
        f" FROM jobs INDEXED BY {segment.index} WHERE {within} AND {segment.begin}{filtered}"
        f" ORDER BY {', '.join([f'{column}{way}' for column in segment.order])}"
    )
    first, last = (rest.parameters, rest.parameters) if filtered else ((), ())
    return text, [(*first, *asked, *stream, *last) for stream in segment.streams]


def _marked() -> str:
    """The rows that are marks: some of every kind, also when kinds alternate."""
    return f"(row * 40503 & 65535) < {65_536 // _MARK_EVERY}"


def _range(
    segment: Segment, start: Start | None, *, descending: bool
) -> tuple[str, tuple[Value, ...]]:
    """The condition for the range of a scan, and its parameters.

    Of two limits at its start, only the nearer one is in the condition: SQLite starts an index at
    one of them, and might choose the other.
    """
    first = segment.order[0]
    texts: list[str] = []
    parameters: list[Value] = []
    lower, upper = segment.above, segment.below
    near, far = (upper, lower) if descending else (lower, upper)
    behind, before = ("<", ">") if descending else (">", "<")
    if start is not None:
        key = start.key[-len(segment.order) :]
        if near is None or _is_behind(key[0], near, descending=descending):
            near = None
            behind_or_at = f"{behind}=" if start.is_inclusive else behind
            places = ", ".join("?" * len(key))
            texts.append(f"{first} {behind}= ?")
            texts.append(f"({', '.join(segment.order)}) {behind_or_at} ({places})")
            parameters += [key[0], *key]
    if near is not None:
        texts.append(f"{first} {behind} ?")
        parameters.append(near)
    if far is not None:
        texts.append(f"{first} {before} ?")
        parameters.append(far)
    return " AND ".join(texts) or "1", tuple(parameters)


def _is_behind(value: Value, limit: Value, *, descending: bool) -> bool:
    assert isinstance(value, str), "only times have limits"
    assert isinstance(limit, str), "only times have limits"
    return value < limit if descending else value > limit


def count_statement(segment: Segment, *, grouped: bool) -> tuple[str, list[tuple[Value, ...]]]:
    """The statement that counts a stream, by queue and state; its parameters for each stream.

    The last parameter is not among them: how many jobs to count at most.
    """
    within, asked = _range(segment, None, descending=False)
    # All jobs are read fastest in the order in which they lie in the table.
    reads_all = within == "1" and segment.begin == "1"
    index = "NOT INDEXED" if reads_all else f"INDEXED BY {segment.index}"
    group = "queue, state" if grouped else "'' AS queue, '' AS state"
    text = (
        f"SELECT queue, state, count(*) FROM (SELECT {group} FROM jobs {index}"  # noqa: S608 -- all words are ours
        f" WHERE {within} AND {segment.begin} AND {segment.rest.text} LIMIT ?)"
        " GROUP BY queue, state"
    )
    rest = segment.rest.parameters
    return text, [(*asked, *stream, *rest) for stream in segment.streams]


# Few jobs.


def sets(meaning: Meaning, order: Order, queues: Sequence[str]) -> list[Condition]:
    """Statements for sets that have all matching jobs; the first set with few jobs is used.

    A scan by age is as good as a set that is read in that order.
    """
    found = [*_named(meaning), *_timed(meaning)]
    if order.column != "created_at":
        found += [_rows(index, meaning.light[name]) for name, index in _shared(meaning)]
        found += _plain(meaning, queues)
    return found


def _shared(meaning: Meaning) -> Iterator[tuple[str, str]]:
    return ((name, index) for name, index in _SHARED.items() if name in meaning.light)


def _rows(index: str, condition: Condition) -> Condition:
    text = f"SELECT row FROM jobs INDEXED BY {index} WHERE {condition.text}"  # noqa: S608 -- all words are ours
    return Condition(text, condition.parameters)


_UNIQUE: Final = """
SELECT jobs.row FROM (
  WITH RECURSIVE used (queue) AS (
    SELECT min(queue) FROM jobs INDEXED BY idx_jobs_unique WHERE unique_key IS NOT NULL
    UNION ALL
    SELECT (
      SELECT min(jobs.queue) FROM jobs INDEXED BY idx_jobs_unique
      WHERE jobs.unique_key IS NOT NULL AND jobs.queue > used.queue
    )
    FROM used WHERE used.queue IS NOT NULL
  )
  SELECT queue FROM used WHERE queue IS NOT NULL
) AS used CROSS JOIN jobs INDEXED BY idx_jobs_unique
ON jobs.queue = used.queue AND jobs.unique_key = ?
"""
_WORKER: Final = """
SELECT row FROM (
  SELECT row FROM jobs INDEXED BY idx_jobs_worker WHERE worker_id = ? LIMIT 4001
)
UNION
SELECT row FROM (
  SELECT DISTINCT jobs.row FROM job_errors INDEXED BY idx_job_errors_worker
  CROSS JOIN jobs INDEXED BY idx_jobs_id
  ON jobs.id = job_errors.job_id AND jobs.shard = job_errors.shard
  WHERE job_errors.worker_id = ? LIMIT 4001
)
"""
"""With more than the limit in one part, the whole set is too large."""


def _named(meaning: Meaning) -> list[Condition]:
    light = meaning.light
    found = []
    if "job_id_prefix" in light:
        found.append(_rows("idx_jobs_id", light["job_id_prefix"]))
    if "unique_key" in light:
        if meaning.queue:
            both = all_of([light["queue"], light["unique_key"]])
            found.append(_rows("idx_jobs_unique", both))
        else:
            found.append(Condition(_UNIQUE, light["unique_key"].parameters))
    if meaning.worker_id:
        found.append(Condition(_WORKER, (meaning.worker_id, meaning.worker_id)))
    return found


def _timed(meaning: Meaning) -> list[Condition]:
    found = []
    for stem in ("scheduled", "expire", "started", "completed"):
        limits = [
            meaning.light[name]
            for name in (f"{stem}_after", f"{stem}_before")
            if name in meaning.light
        ]
        if not limits:
            continue
        if stem != "scheduled":
            found.append(_rows(f"idx_jobs_{stem}", all_of(limits)))
        elif meaning.states and all(state in _DELAYED for state in meaning.states):
            found.append(
                _rows("idx_jobs_scheduled", all_of([_IS_DELAYED, *_states(meaning), *limits]))
            )
    least = meaning.parameter("attempt_min")
    if isinstance(least, int) and least > 1:
        above = [Condition("attempt > 1"), meaning.light["attempt_min"]]
        found.append(_rows("idx_jobs_attempt", all_of(above)))
    return found


_DELAYED: Final = ("scheduled", "retrying")
_IS_DELAYED: Final = Condition("state IN ('scheduled', 'retrying')")


def _states(meaning: Meaning) -> list[Condition]:
    return [meaning.light["state"]] if meaning.states else []


def _plain(meaning: Meaning, queues: Sequence[str]) -> list[Condition]:
    ages = [meaning.light[name] for name in _AGES if name in meaning.light]
    found = []
    if queues:
        named = Condition(f"queue IN ({', '.join('?' * len(queues))})", tuple(queues))
        states = _states(meaning)
        found.append(_rows("idx_jobs_queue_state_priority", all_of([named, *states])))
    elif meaning.states:
        found.append(_rows("idx_jobs_state", all_of([*_states(meaning), *ages])))
    if ages:
        found.append(_rows("idx_jobs_created", all_of(ages)))
    return found


def size_statement(rows: Condition) -> Condition:
    """The size of a set, counted up to one more than `SET_MAX`."""
    text = f"SELECT count(*) FROM (SELECT row FROM ({rows.text}) LIMIT {SET_MAX + 1})"  # noqa: S608 -- all words are ours
    return Condition(text, rows.parameters)


def set_statement(rows: Condition, order: Order, meaning: Meaning) -> Condition:
    """The jobs of a set that match the light conditions."""
    value = "NULL" if order.column == "created_at" else order.column
    light = all_of(meaning.without())
    text = (
        f"SELECT row, queue, state, {value}, created_at, id, shard, 1"  # noqa: S608 -- all words are ours
        f" FROM jobs NOT INDEXED WHERE row IN ({rows.text}) AND {light.text}"
    )
    return Condition(text, (*rows.parameters, *light.parameters))


def check_statement(meaning: Meaning) -> Condition:
    """The jobs of a JSON array of row numbers, the first parameter, that match the heavy ones."""
    heavy = all_of(meaning.heavy)
    text = (
        "SELECT row FROM jobs NOT INDEXED"  # noqa: S608 -- all words are ours
        f" WHERE row IN (SELECT value FROM json_each(?)) AND {heavy.text}"
    )
    return Condition(text, heavy.parameters)
