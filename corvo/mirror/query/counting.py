"""Counting the jobs that a filter means, as far as there is time for it."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeAlias

from corvo.mirror.query.looking import queues_of, sifted, small_set
from corvo.mirror.query.plan import ORDERS, by_age, totalling
from corvo.mirror.query.reading import Reading, TimeOver
from corvo.mirror.query.terms import STATE_WORDS, Meaning, Value, all_of

Group: TypeAlias = tuple[str, str]
"""A queue and a state."""

_STEPS: Final = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
"""Counting is begun anew with each step, so that there is an answer if it does not come to the
next; that costs little, for a step is a tenth of what comes behind it."""
_BY_AGE: Final = ORDERS["created_at"]
_QUEUES: Final = ("queue", "scope", "reserved")
_TOLD: Final = frozenset({"queue", "scope", "reserved", "state"})
_COUNTED_AGAIN: Final = 100_000
"""Jobs that are counted in a few milliseconds, where what the shards count does not fit."""


def is_told(meaning: Meaning) -> bool:
    """Whether the shards count themselves what is meant."""
    return not meaning.heavy and _TOLD.issuperset(meaning.light)


class Tally:
    """How many there are, as far as they were counted."""

    def __init__(self) -> None:
        self.is_exact = False
        """False: there are at least so many."""
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
        """So many there are of a part, or more: it replaces what was said of it before."""
        self._begun = Counter(counts)

    def end(self) -> None:
        """The part has no more."""
        self._done += self._begun
        self._begun = Counter()


def tally(
    reading: Reading, meaning: Meaning, *, most: int, grouped: bool, until_ms: float
) -> Tally:
    """Count jobs: all of them, or the first ones that there is time for.

    Beyond `most` it is enough to know that there are more. What is not grouped is counted for an
    empty queue and state.
    """
    counted = Tally()
    if meaning.is_void:
        counted.is_exact = True
        return counted
    try:
        with reading.until(until_ms):
            counted.is_exact = _count(reading, meaning, counted, most=most, grouped=grouped)
    except TimeOver:
        pass
    return counted


def _count(reading: Reading, meaning: Meaning, counted: Tally, *, most: int, grouped: bool) -> bool:
    """Whether all were counted."""
    if is_told(meaning):
        told = _told(reading, meaning)
        counted.begin(told)
        if _is_of_one_moment(reading, meaning):
            return True
        if told.total() > _COUNTED_AGAIN:
            return False
        counted.begin({})
    queues = queues_of(reading, meaning)
    if queues == []:
        return True
    rows = small_set(reading, meaning, _BY_AGE, queues or [])
    if rows is not None:
        groups: Counter[Group] = Counter()
        for row, is_meant in sifted(reading, meaning, rows):
            if is_meant:
                groups[row[1], row[2]] += 1
                counted.begin(groups)
        return True
    text, streams = totalling(by_age(meaning, queues or []), grouped=grouped)
    return all(
        _count_stream(reading, text, parameters, counted, most=most) for parameters in streams
    )


def _told(reading: Reading, meaning: Meaning) -> Counter[Group]:
    """What the shards count themselves."""
    seen = all_of([meaning.light[name] for name in _QUEUES if name in meaning.light])
    columns = ", ".join(f"sum({word})" for word in STATE_WORDS)
    text = f"SELECT queue, {columns} FROM queue_counts WHERE {seen.text} GROUP BY queue"  # noqa: S608 -- all words are ours
    groups: Counter[Group] = Counter()
    for queue, *numbers in reading.run(text, seen.parameters):
        for word, number in zip(STATE_WORDS, numbers, strict=True):
            if number and word in (meaning.states or STATE_WORDS):
                groups[queue, word] = number
    return groups


def _is_of_one_moment(reading: Reading, meaning: Meaning) -> bool:
    """Whether what the shards count themselves is of the same moment as the jobs.

    What was told ahead of a cursor may be counts, and not yet the jobs that they count, or the
    other way round. A queue is in one shard, so that others being behind does not matter to it.
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
"""Null where nothing is counted: perhaps only because the counts have not come yet."""


def _count_stream(
    reading: Reading, text: str, parameters: tuple[Value, ...], counted: Tally, *, most: int
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
