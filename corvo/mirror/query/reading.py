"""One reading of the file: a connection that can only read, a snapshot, and a time limit."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from corvo.errors import CorvoError
from corvo.mirror import jq
from corvo.mirror.follow.writing import code_of
from corvo.mirror.query.terms import Value, has_tags
from corvo.protocol.questions import AsOf, Place
from corvo.times import MS, format_time

T = TypeVar("T")


class TimeOver(CorvoError):
    """The time is over; whoever asked gets what there is."""


def prepare(connection: sqlite3.Connection) -> None:
    """Give a new connection the functions that our statements call."""
    connection.create_function("has_tags", 2, has_tags, deterministic=True)
    jq.prepare(connection)


class Reading:
    """One question's time at a connection.

    The process has SQLite ask `is_over` again and again while it works, and stop when it is.
    """

    def __init__(
        self, connection: sqlite3.Connection, *, clock: Callable[[], int], now_ns: int
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._begun_ns = clock()
        self._until_ns: int | None = None
        self._is_abandoned = False
        self.was_cut = False
        """Whether its time was over before it was done."""
        self.now_ns: Final = now_ns
        """What people call the time."""

    def is_over(self) -> bool:
        """Whether to stop. May be called by another thread, while the limit begins or ends."""
        until_ns = self._until_ns
        if self._is_abandoned:
            return True
        return until_ns is not None and self._clock() >= until_ns

    def abandon(self) -> None:
        """Stop soon, for nobody waits any more. May be called by another thread."""
        self._is_abandoned = True

    @property
    def taken_ms(self) -> float:
        """How long it has taken so far."""
        return (self._clock() - self._begun_ns) / MS

    @contextmanager
    def until(self, ms: float) -> Iterator[None]:
        """Raise `TimeOver` when what is read within is not done so long after the beginning."""
        self._until_ns = self._begun_ns + int(ms * MS)
        try:
            yield
        except sqlite3.OperationalError as error:
            if code_of(error) == sqlite3.SQLITE_INTERRUPT:
                self.was_cut = True
                raise TimeOver from None
            raise
        finally:
            self._until_ns = None

    def hurry(self, ms: float) -> None:
        """What is read within `until` is to be done in so much time from now."""
        until_ns = self._clock() + int(ms * MS)
        assert self._until_ns is not None, "there is a limit that can be nearer"
        self._until_ns = min(self._until_ns, until_ns)

    def run(self, statement: str, parameters: Sequence[Value] = ()) -> sqlite3.Cursor:
        """Run a statement of ours. What others wrote is among the parameters, or nowhere."""
        return self._connection.execute(statement, parameters)

    def retried(self, work: Callable[[], T]) -> T:
        """Do what takes little time, whether the time is over or not.

        Whoever minds the time may mean what was done before, and come late.
        """
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                if code_of(error) != sqlite3.SQLITE_INTERRUPT or self.is_over():
                    raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read within is of one moment."""
        assert not self._connection.in_transaction
        try:
            # It may have begun also when it was interrupted.
            self._connection.execute("BEGIN")
            yield
        finally:
            self._end()

    def _end(self) -> None:
        """End the transaction, come what may: the connection is for others, too."""
        while self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.OperationalError as error:
                # Somebody wanted to stop us, and this is how we do.
                if code_of(error) != sqlite3.SQLITE_INTERRUPT:
                    raise

    def as_of(self) -> AsOf:
        """How far the mirror has come. Its file names every shard, also before it has any of it."""
        found: list[tuple[int, int, int, int]] = self.run(_CURSORS).fetchall()
        return {
            f"s{shard}": Place(index, format_time(now_ns), bool(is_whole))
            for shard, index, now_ns, is_whole in found
        }

    def bounds(self) -> dict[int, int]:
        """By shard, its own time."""
        found: list[tuple[int, int, int, int]] = self.run(_CURSORS).fetchall()
        return {shard: now_ns for shard, _, now_ns, _ in found}


_CURSORS: Final = (
    "SELECT shard, idx, now_ns, pass_key IS NULL AND idx > 0 FROM cursors ORDER BY shard"
)
"""At index 0 nothing was ever told of a shard, so that nothing is known to be whole: its log begins
with an entry of its leader's."""
