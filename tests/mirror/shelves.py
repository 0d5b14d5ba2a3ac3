"""Tables with jobs in memory, and questions put to them."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, TypeVar

import msgspec

from corvo.mirror import building, reading, rows, schema
from corvo.mirror.answers import answer
from corvo.mirror.times import moment
from corvo.model import STATES
from corvo.questions import Question, Refused
from tests.mirror.twin import Kept

NOW_NS: Final = 1_770_804_600_000_000_000
SHARDS: Final = 3

WISHED: Final = (
    ("idx_jobs_batch", "batch_id, created_at", "batch_id IS NOT NULL"),
    ("idx_jobs_parent", "parent_id, created_at", "parent_id IS NOT NULL"),
    ("idx_jobs_chain", "chain_id, created_at", "chain_id IS NOT NULL"),
    ("idx_jobs_started", "started_at", "started_at IS NOT NULL"),
    ("idx_jobs_completed", "completed_at", "completed_at IS NOT NULL"),
    ("idx_jobs_priority", "priority, created_at", "priority < 2"),
    ("idx_jobs_attempt", "attempt, created_at", "attempt > 1"),
)

T = TypeVar("T")


class Recorded(sqlite3.Connection):
    """A connection that knows what it was told, without the parameters."""

    texts: set[str]

    def execute(
        self, sql: str, parameters: Sequence[str | int | None] = ()
    ) -> sqlite3.Cursor:  # type: ignore[override]  # of what can be given, this is what we give
        self.texts.add(sql)
        return super().execute(sql, parameters)


@cache
def _template() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    building.prepare(connection, "rookery")
    for name, columns, where in WISHED:
        connection.execute(f"DROP INDEX IF EXISTS {name}")
        connection.execute(f"CREATE INDEX {name} ON jobs ({columns}) WHERE {where}")
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
            key = (kept.job.id, kept.shard)
            connection.execute("DELETE FROM job_errors WHERE job_id = ? AND shard = ?", key)
            connection.execute(schema.PUT_JOB, rows.job_row(kept.shard, kept.job))
            first = kept.job.failures - len(kept.errors) + 1
            for number, error in enumerate(kept.errors, start=first):
                row = (
                    *key,
                    error.attempt,
                    error.error,
                    None,
                    None,
                    error.worker_id or None,
                    number,
                    moment(error.at_ns),
                )
                names = "job_id, shard, attempt, error, backtrace, error_class, worker_id, number"
                connection.execute(
                    f"INSERT INTO job_errors ({names}, created_at) VALUES (?,?,?,?,?,?,?,?,?)",
                    (row[0], row[1], *row[2:]),
                )
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
            f"INSERT INTO queue_counts (queue, shard, {words})"
            f" SELECT queue, shard, {sums} FROM jobs GROUP BY queue, shard"
        )
        for shard in range(SHARDS):
            connection.execute(
                "INSERT OR REPLACE INTO cursors (shard, idx, now_ns) VALUES (?, ?, ?)",
                (shard, 100 + shard, NOW_NS + shard),
            )

    def ask(self, question: Question, kind: type[T], *, every: int = 0) -> T:
        """The answer. With `every`, time goes on by a millisecond with so many steps of SQLite's."""
        answered = self._answer(question, every)
        assert isinstance(answered, bytes), answered
        return msgspec.json.decode(answered, type=kind)

    def refusal(self, question: Question) -> Refused:
        answered = self._answer(question, 0)
        assert isinstance(answered, Refused)
        return answered

    def _answer(self, question: Question, every: int) -> bytes | Refused:
        self.ticks = 0
        one = reading.Reading(self.connection, clock=self._clock, now_ns=NOW_NS)
        handler: Callable[[], bool] | None = None
        if every:

            def handler() -> bool:
                self.ticks += 1
                return one.is_over()

        self.connection.set_progress_handler(handler, every or 1)
        try:
            return answer(one, question)
        finally:
            self.connection.set_progress_handler(None, 1)

    def _clock(self) -> int:
        return self.ticks * 1_000_000
