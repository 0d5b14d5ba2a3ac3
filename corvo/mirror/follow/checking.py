"""The check of the mirror's file: whether all of it is still as it was written.

SQLite notices a page that makes no sense, and not a bit that has changed in a text, a number or an
index. So the rows are compared with their sums, and the indexes with the rows: at each start, and
once a day. The words of full text have no sums, and are not checked.

Rows are read in steps with pauses. The indexes are compared in one statement, at the low priority
of this process. As long as it runs, SQLite's log only grows; if it grows large, the statement is
given up, and comes again later.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Final, NamedTuple

import trio

from corvo import clock
from corvo.mirror.follow import building, schema
from corvo.mirror.follow.columns import SUM, Row, TableSpec, Value, sum_of
from corvo.mirror.follow.writing import Damaged, Writing, code_of, is_damage
from corvo.telemetry import Log

ROWS: Final = 500
"""Rows of a step."""
_RESTS: Final = 4
"""The pause after a step, as a multiple of the time that it took."""
_AGAIN_S: Final = 86_400.0
_LATER_S: Final = 600.0
"""The pause after a check that was given up."""
_STEPS: Final = 50_000
"""SQLite's steps between two looks whether a check is to be given up."""


class _Checked(NamedTuple):
    """How the rows of a table are read and checked."""

    select: str
    fed: int
    """Columns that have a sum together; they come first, behind the number of the row."""
    others: tuple[Value, ...]
    """What is in the other columns: no document feeds them yet."""


def _checked(spec: TableSpec) -> _Checked:
    fed = tuple(spec.sources)
    numbers = [each for each in spec.key if each not in fed]
    others = [
        column
        for column in spec.columns
        if column.source is None and column.name not in {SUM.name, *numbers}
    ]
    names = ", ".join((*fed, *(column.name for column in others), SUM.name))
    select = f"SELECT rowid, {names} FROM {spec.name} WHERE rowid > ? ORDER BY rowid LIMIT ?"
    return _Checked(select, len(fed), tuple(column.default for column in others))


_TABLES: Final = {spec.name: _checked(spec) for spec in schema.FED}


def check_schema(connection: sqlite3.Connection) -> None:
    """Check the text of the schema. Raises `Damaged`, and `sqlite3.Error`."""
    kept = connection.execute("SELECT value FROM about WHERE name = 'schema'").fetchall()
    if kept != [(str(building.sum_of_schema(connection)),)]:
        raise Damaged("the schema is not as it was written")


def check_rows(connection: sqlite3.Connection, table: str, after: int) -> list[Row]:
    """Check the next rows of a table behind a number, and return them.

    Raises `Damaged`, and `sqlite3.Error`.
    """
    checked = _TABLES[table]
    rows: list[Row] = connection.execute(checked.select, (after, ROWS)).fetchall()
    end = 1 + checked.fed
    for row in rows:
        number = int(str(row[0]))
        if number <= after:
            raise Damaged(f"the rows of {table} are not in their order")
        after = number
        if row[-1] is not None and (row[-1] != sum_of(row[1:end]) or row[end:-1] != checked.others):
            raise Damaged(f"row {row[0]} of {table} is not as it was written")
    return rows


def check_indexes(connection: sqlite3.Connection, gives_up: Callable[[], bool]) -> None:
    """Compare all indexes with the rows. Raises `Damaged`, and `sqlite3.Error`."""
    connection.set_progress_handler(gives_up, _STEPS)
    try:
        [(said,)] = connection.execute("PRAGMA integrity_check(1)").fetchall()
    finally:
        connection.set_progress_handler(None, _STEPS)
    if said != "ok":
        raise Damaged(f"SQLite's check says: {said}")


class CheckTask:
    """The task that checks the file from time to time."""

    def __init__(self, writing: Writing, wal_bytes_max: int, log: Log) -> None:
        """`wal_bytes_max`: the size of SQLite's log at which a check gives way."""
        self._writing: Final = writing
        self._wal_bytes_max: Final = wal_bytes_max
        self._log: Final = log
        self._is_over = False

    async def run(self) -> None:
        """Check until cancelled. Raises `Damaged`."""
        try:
            while True:
                is_done = await self._check()
                await trio.sleep(_AGAIN_S if is_done else _LATER_S)
        finally:
            self._is_over = True  # a thread may still be in SQLite

    async def _check(self) -> bool:
        """Check everything once; whether it came to the end."""
        began = clock.steady_ns()
        rows = 0
        try:
            with closing(building.connect_reading(self._writing.path)) as connection:
                check_schema(connection)
                for table in _TABLES:
                    rows += await self._check_table(connection, table)
            await trio.to_thread.run_sync(
                _check_all_indexes, self._writing, self._gives_up, abandon_on_cancel=True
            )
        except sqlite3.Error as error:
            if is_damage(error):
                raise Damaged(f"a check found damage: {error}") from error
            if code_of(error) != sqlite3.SQLITE_INTERRUPT:
                self._log.warning("mirror.not_checked", reason=str(error))
            return False
        took_ms = (clock.steady_ns() - began) // 1_000_000
        self._log.debug("mirror.checked", rows=rows, took_ms=took_ms)
        return True

    async def _check_table(self, connection: sqlite3.Connection, table: str) -> int:
        """Check a table; how many rows it has."""
        count, after = 0, 0
        while True:
            began = clock.steady_ns()
            rows = await trio.to_thread.run_sync(check_rows, connection, table, after)
            count += len(rows)
            if len(rows) < ROWS:
                return count
            after = int(str(rows[-1][0]))
            await trio.sleep(_RESTS * (clock.steady_ns() - began) / 1e9)

    def _gives_up(self) -> bool:
        return self._is_over or self._writing.wal_bytes > self._wal_bytes_max


def _check_all_indexes(writing: Writing, gives_up: Callable[[], bool]) -> None:
    """In a thread, which nothing waits for at the end: its connection is its own."""
    with closing(building.connect_reading(writing.path)) as connection:
        check_indexes(connection, gives_up)
