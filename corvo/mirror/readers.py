"""The connections that read, and whoever has one: so many at a time, each in a thread of its own.

A question has its time. SQLite asks after so many steps whether it is over, which may be many rows;
and beside that somebody looks every few milliseconds and interrupts it, which it sees with the next
row.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from corvo import clock
from corvo.mirror.answers import answer
from corvo.mirror.counting import is_told
from corvo.mirror.following import Scribe
from corvo.mirror.looking import digs
from corvo.mirror.plan import ORDERS, Order
from corvo.mirror.reading import Reading, prepare
from corvo.mirror.refusals import NotAnswered
from corvo.mirror.terms import understand
from corvo.questions import Count, Filter, FullText, Question, Refused, Search, Select

_TOO_DEEP: Final = ("parser stack overflow", "Expression tree is too large")
_STEPS: Final = 1_000
"""Of SQLite's, between two looks whether a question has taken too long."""
_LOOK_S: Final = 0.01
"""Between two looks from outside."""
_CACHE_KIB: Final = 16 << 10
_BY_AGE: Final = "created_at"
_COUNT_JOBS: Final = (
    "SELECT coalesce(sum(pending + active + held + completed + retrying + dead + cancelled"
    " + scheduled), 0) FROM queue_counts"
)


class Readers:
    """Looks things up."""

    def __init__(self, path: Path, scribe: Scribe, count: int) -> None:
        self.interrupted = 0
        self._path = path
        self._scribe = scribe
        self._free: list[sqlite3.Connection] = []
        self._busy: dict[sqlite3.Connection, Reading] = {}
        self._begun = trio.Event()
        self._turns = trio.Semaphore(count)
        # One turn is never theirs, so that whoever turns a page need not wait for whoever digs.
        self._digging = trio.Semaphore(max(1, count - 1))
        self._limiter = trio.CapacityLimiter(count)

    async def look_up(self, question: Question, readings: set[Reading]) -> bytes | Refused:
        """Answer a question; `readings` has it while that is under way.

        Cancelling does not stop the thread: whoever cancels abandons the readings first. Raises
        `trio.TooSlowError` when it had no turn in its time.
        """
        wait_ms, digs = question.budget_ms, is_digging(question)
        async with self._connection(wait_ms, digs=digs) as connection:
            reading = Reading(connection, clock=clock.steady_ns, now_ns=clock.now_ns())
            readings.add(reading)
            self._busy[connection] = reading
            self._begun.set()
            try:
                return await trio.to_thread.run_sync(
                    _look_up, connection, reading, question, limiter=self._limiter
                )
            finally:
                del self._busy[connection]
                readings.discard(reading)
                self.interrupted += reading.was_cut

    async def count_jobs(self, wait_ms: int) -> int:
        """How many jobs there are, by the counts of the queues."""
        async with self._connection(wait_ms) as connection:
            [count] = await trio.to_thread.run_sync(
                lambda: connection.execute(_COUNT_JOBS).fetchone(), limiter=self._limiter
            )
            return int(count)

    async def mind(self) -> None:
        """Interrupt whatever takes too long, until cancelled."""
        while True:
            self._begun = trio.Event()
            if not self._busy:
                await self._begun.wait()
            await trio.sleep(_LOOK_S)
            for connection, reading in self._busy.items():
                if reading.is_over():
                    connection.interrupt()

    @asynccontextmanager
    async def _connection(
        self, wait_ms: int, *, digs: bool = False
    ) -> AsyncIterator[sqlite3.Connection]:
        async with AsyncExitStack() as undo:
            with trio.fail_after(wait_ms / 1_000):
                for turns in (self._digging, self._turns) if digs else (self._turns,):
                    await turns.acquire()
                    undo.callback(turns.release)
            await self._scribe.enter()
            undo.callback(self._scribe.leave)
            held = self._free.pop() if self._free else self._open()
            undo.callback(self._free.append, held)
            yield held

    def _open(self) -> sqlite3.Connection:
        """A connection that changes nothing, and makes no checkpoint either."""
        place = self._path.absolute().as_uri()
        connection = sqlite3.connect(
            f"{place}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        for pragma in ("query_only = ON", f"cache_size = -{_CACHE_KIB}", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        prepare(connection)
        return connection

    def close(self) -> None:
        """Nobody reads any more."""
        for connection in self._free:
            connection.close()


def is_digging(question: Question) -> bool:
    """Whether a question looks into what no index knows, and so may need all of its time."""
    match question:
        case FullText():
            return True
        case Search(search=wanted):
            return _is_digging(wanted, question.scope, ORDERS.get(wanted.sort or _BY_AGE))
        case Count(filter=wanted):
            return _is_digging(wanted, question.scope, ORDERS[_BY_AGE], is_count=True)
        case Select(filter=wanted):
            return _is_digging(wanted, question.scope, ORDERS[_BY_AGE])
        case _:
            return False


def _is_digging(
    wanted: Filter, scope: tuple[str, ...], order: Order | None, *, is_count: bool = False
) -> bool:
    if wanted.payload_jq is not None:
        return True  # without reading it, which is left to a thread
    try:
        meaning = understand(wanted, scope)
    except NotAnswered:
        return False
    if meaning.is_void or order is None:
        return False
    return digs(meaning, order) or (is_count and not is_told(meaning))


def _look_up(
    connection: sqlite3.Connection, reading: Reading, question: Question
) -> bytes | Refused:
    connection.set_progress_handler(reading.is_over, _STEPS)
    try:
        return answer(reading, question)
    except sqlite3.OperationalError as error:
        if not any(word in str(error) for word in _TOO_DEEP):
            raise
        # How deep SQLite can go is a matter of its build. Of all filters, this alone nests.
        told = "payload_jq: it is nested too deeply for the mirror: say it in fewer steps"
        return Refused(code="bad_filter", error=told, field="payload_jq")
    finally:
        connection.set_progress_handler(None, _STEPS)
