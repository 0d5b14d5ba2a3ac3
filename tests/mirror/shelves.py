"""Tables with jobs in memory, and questions put to them."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, TypeVar

import msgspec

from corvo.mirror.follow import building, schema
from corvo.mirror.query import reading
from corvo.mirror.query.terms import NotAnswered
from corvo.mirror.readers import answer, task_of
from corvo.model import STATES
from corvo.protocol.questions import MirrorAnswer, Question, Refused
from corvo.times import sortable
from tests.mirror.twin import Kept

NOW_NS: Final = 1_770_804_600_000_000_000
SHARDS: Final = 3

T = TypeVar("T")


class Recorded(sqlite3.Connection):
    """A connection that knows what it was told, without the parameters."""

    texts: set[str]

    def execute(  # type: ignore[override]  # of what can be given, this is what we give
        self, sql: str, parameters: Sequence[str | int | float | None] = (), /
    ) -> sqlite3.Cursor:
        self.texts.add(sql)
        return super().execute(sql, parameters)


@cache
def _template() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    building.prepare(connection, "rookery")
    return connection.serialize()


class Shelf:
    """The mirror's tables, with these jobs in them."""

    def __init__(self, kepts: Iterable[Kept] = ()) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, factory=Recorded)
        self.connection.texts = set()
        self.connection.deserialize(_template())
        reading.prepare(self.connection)
        self.ticks = 0
        self.put(kepts)

    def put(self, kepts: Iterable[Kept]) -> None:
        """Write jobs as the mirror does, and what shards count."""
        connection = self.connection
        [last] = connection.execute(schema.LAST_ROW).fetchone()
        for kept in kepts:
            connection.execute(schema.JOB.put, schema.JOB.summed(kept.shard, kept.job, ()))
            first = kept.job.failures - len(kept.errors) + 1
            for number, error in enumerate(kept.errors, start=first):
                at = sortable(error.at_ns)
                row = (error.attempt, error.error, None, None, error.worker_id or None, number, at)
                connection.execute(schema.ERROR.put, (*kept.name, *row, None))
        connection.execute(schema.FILL_FULL_TEXT, (last,))
        self._count()

    def remove(self, kept: Kept) -> None:
        self.connection.execute("DELETE FROM jobs WHERE id = ? AND shard = ?", kept.name)
        self._count()

    def _count(self) -> None:
        connection = self.connection
        words = ", ".join(state.word for state in STATES)
        sums = ", ".join(f"sum(state = '{state.word}')" for state in STATES)
        connection.execute("DELETE FROM queue_counts")
        connection.execute(
            f"INSERT INTO queue_counts (queue, shard, {words})"  # noqa: S608 -- words of ours
            f" SELECT queue, shard, {sums} FROM jobs GROUP BY queue, shard"
        )
        for shard in range(SHARDS):
            connection.execute(
                "INSERT OR REPLACE INTO cursors (shard, idx, now_ns) VALUES (?, ?, ?)",
                (shard, 100 + shard, NOW_NS + shard),
            )

    def ask(self, question: Question, kind: type[T], *, every: int = 0) -> T:
        """The answer. With `every`, a millisecond goes by with so many steps of SQLite's."""
        answered = self._answer(question, every)
        assert isinstance(answered, MirrorAnswer), answered
        return msgspec.json.decode(answered.body, type=kind)

    def refusal(self, question: Question, *, every: int = 0) -> Refused:
        answered = self._answer(question, every)
        assert isinstance(answered, Refused)
        return answered

    def disturbed(self, question: Question, kind: type[T], *, at: int) -> T:
        """The answer, where somebody interrupts once, without need, at such a step of SQLite's."""
        one = reading.Reading(self.connection, clock=self._clock, now_ns=NOW_NS)
        self.ticks = 0

        def handler() -> bool:
            self.ticks += 1
            return self.ticks == at

        self.connection.set_progress_handler(handler, 10)
        try:
            answered = answer(one, task_of(question))
        finally:
            self.connection.set_progress_handler(None, 1)
        assert isinstance(answered, MirrorAnswer), answered
        return msgspec.json.decode(answered.body, type=kind)

    def _answer(self, question: Question, every: int) -> MirrorAnswer | Refused:
        self.ticks = 0
        one = reading.Reading(self.connection, clock=self._clock, now_ns=NOW_NS)
        handler: Callable[[], bool] | None = None
        if every:

            def handler() -> bool:
                self.ticks += 1
                return one.is_over()

        self.connection.set_progress_handler(handler, every or 1)
        try:
            return answer(one, task_of(question))
        except NotAnswered as error:
            return error.refused
        finally:
            self.connection.set_progress_handler(None, 1)

    def _clock(self) -> int:
        return self.ticks * 1_000_000
