"""Counting the jobs that match a filter, as far as there is time for it."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeAlias

from corvo.mirror.query.plan import ORDERS, by_age, count_statement
from corvo.mirror.query.reading import Reading, TimeOver
from corvo.mirror.query.scan import checked, queues_of, small_set
from corvo.mirror.query.terms import STATE_WORDS, Condition, Meaning, Value, all_of

Group: TypeAlias = tuple[str, str]
"""A queue and a state."""

_STEPS: Final = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
"""Each step counts from the start again, so that there is a result if the next step is too slow.
That costs little: a step is a tenth of the next one."""
_BY_AGE: Final = ORDERS["created_at"]
_QUEUES: Final = ("queue", "scope", "reserved")
_COUNTED: Final = frozenset({"queue", "scope", "reserved", "state"})
_COUNTED_AGAIN: Final = 100_000
"""Jobs that are counted in a few milliseconds, where the shards' counts are of another moment."""


def is_counted_by_shards(meaning: Meaning) -> bool:
    """Whether the shards keep the counts that a filter asks for."""
    return not meaning.heavy and _COUNTED.issuperset(meaning.light)


class JobCount:
    """A count of jobs, or of as many as were counted."""

    def __init__(self) -> None:
        self.is_exact = False
        """False: there are at least this many."""
        self._done: Counter[Group] = Counter()
        self._begun: Counter[Group] = Counter()

    @property
    def groups(self) -> Counter[Group]:
        """By queue and state."""
        return self._done + self._begun

    @property
    def total(self) -> int:
        """All together."""
        return self._done.total() + self._begun.total()

    def begin(self, counts: Mapping[Group, int]) -> None:
        """Set the count of the part that is being counted, instead of its count before."""
        self._begun = Counter(counts)

    def end(self) -> None:
        """Add the part to the total: it is counted to its end."""
        self._done += self._begun
        self._begun = Counter()


def count_jobs(
    reading: Reading, meaning: Meaning, *, most: int, grouped: bool, until_ms: float
) -> JobCount:
    """Count jobs: all of them, or as many as there is time for.

    Beyond `most` the count only says that there are more. Without `grouped`, jobs are counted under
    an empty queue and state.
    """
    counted = JobCount()
    if meaning.is_void:
        counted.is_exact = True
        return counted
    try:
        with reading.until(until_ms):
            counted.is_exact = _count(reading, meaning, counted, most=most, grouped=grouped)
    except TimeOver:
        pass
    return counted


def _count(
    reading: Reading, meaning: Meaning, counted: JobCount, *, most: int, grouped: bool
) -> bool:
    """Whether all were counted."""
    if is_counted_by_shards(meaning):
        counts = _shard_counts(reading, meaning)
        counted.begin(counts)
        if _is_of_one_moment(reading, meaning):
            return True
        if counts.total() > _COUNTED_AGAIN:
            return False
        counted.begin({})
    queues = queues_of(reading, meaning)
    if queues == []:
        return True
    rows = small_set(reading, meaning, _BY_AGE, queues or [])
    if rows is not None:
        groups: Counter[Group] = Counter()
        for row, is_meant in checked(reading, meaning, rows):
            if is_meant:
                groups[row[1], row[2]] += 1
                counted.begin(groups)
        return True
    text, streams = count_statement(by_age(meaning, queues or []), grouped=grouped)
    return all(
        _count_stream(reading, text, parameters, counted, most=most) for parameters in streams
    )


def _shard_counts(reading: Reading, meaning: Meaning) -> Counter[Group]:
    """The counts that the shards keep."""
    seen = all_of([meaning.light[name] for name in _QUEUES if name in meaning.light])
    groups: Counter[Group] = Counter()
    for queue, counts in queue_counts(reading, seen).items():
        for word in meaning.states or STATE_WORDS:
            if counts[word]:
                groups[queue, word] = counts[word]
    return groups


def queue_counts(reading: Reading, seen: Condition) -> dict[str, dict[str, int]]:
    """By queue and state, the counts that the shards keep."""
    text = f"SELECT queue, {', '.join(STATE_WORDS)} FROM queue_counts WHERE {seen.text}"  # noqa: S608 -- all words are ours
    found: dict[str, dict[str, int]] = {}
    # Nearly all queues are in one shard, so eight sums of SQLite would cost twice as much.
    for queue, *numbers in reading.run(text, seen.parameters):
        counts = dict(zip(STATE_WORDS, numbers, strict=True))
        before = found.get(queue)
        if before is not None:
            counts = {word: before[word] + number for word, number in counts.items()}
        found[queue] = counts
    return found


def _is_of_one_moment(reading: Reading, meaning: Meaning) -> bool:
    """Whether the shards' counts are of the same moment as the jobs.

    Rows ahead of a cursor may be counts whose jobs are not there yet, or the other way round. A
    queue is in one shard, so the other shards do not matter to it.
    """
    if reading.run(_BEHIND).fetchone() is None:
        return True
    if not meaning.queue:
        return False
    is_behind: int | None = reading.run(_IS_BEHIND, (meaning.queue,)).fetchone()[0]
    return is_behind == 0


_BEHIND: Final = "SELECT shard FROM cursors WHERE through > idx"
_IS_BEHIND: Final = (
    "SELECT max(shard IN (SELECT shard FROM cursors WHERE through > idx))"
    " FROM queue_counts WHERE queue = ?"
)
"""NULL where nothing is counted: perhaps only because the counts are not there yet."""


def _count_stream(
    reading: Reading, text: str, parameters: tuple[Value, ...], counted: JobCount, *, most: int
) -> bool:
    for step in _STEPS:
        groups = {
            (queue, state): number
            for queue, state, number in reading.run(text, (*parameters, step))
        }
        counted.begin(groups)
        if sum(groups.values()) < step:
            counted.end()
            return counted.total <= most
        if counted.total > most:
            return False
    return False
