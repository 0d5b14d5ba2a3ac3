"""Members of batches, counted by how they ended, in memory that does not grow with the batches."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple, Self

from corvo.model import FINISHED, Job, State

_KEPT: Final = 20_000
"""Batches that are counted in memory before they are written."""
_PUT: Final = (
    "INSERT INTO members VALUES (?, ?, ?, ?, ?) ON CONFLICT (batch) DO UPDATE SET"
    " waiting = waiting + excluded.waiting, completed = completed + excluded.completed,"
    " dead = dead + excluded.dead, cancelled = cancelled + excluded.cancelled"
)


class Members(NamedTuple):
    """The jobs of a batch that exist."""

    waiting: int = 0
    completed: int = 0
    dead: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """Number of those that have ended."""
        return self.completed + self.dead + self.cancelled


class MemberCounts:
    """All counts, in a temporary file of SQLite."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect("")
        self._connection.execute(
            "CREATE TABLE members (batch TEXT PRIMARY KEY, waiting INTEGER, completed INTEGER,"
            " dead INTEGER, cancelled INTEGER) WITHOUT ROWID"
        )
        self._counts: dict[str, list[int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, job: Job) -> None:
        """Count a member."""
        counts = self._counts.setdefault(job.batch_id, [0, 0, 0, 0])
        counts[_PLACES.get(job.state, 0)] += 1
        if len(self._counts) >= _KEPT:
            self._flush()

    def _flush(self) -> None:
        rows = ((batch, *counts) for batch, counts in self._counts.items())
        self._connection.executemany(_PUT, rows)
        self._counts = {}

    def of(self, batch_id: str) -> Members:
        """The members of a batch."""
        self._flush()
        select = "SELECT waiting, completed, dead, cancelled FROM members WHERE batch = ?"
        with closing(self._connection.execute(select, (batch_id,))) as found:
            row = found.fetchone()
        return Members(*row) if row is not None else Members()

    def batches(self) -> Iterator[str]:
        """The batches that have members."""
        self._flush()
        for (batch,) in self._connection.execute("SELECT batch FROM members"):
            yield str(batch)


_PLACES: Final = {state: place for place, state in enumerate(FINISHED, 1)}
assert FINISHED == (State.COMPLETED, State.DEAD, State.CANCELLED)
