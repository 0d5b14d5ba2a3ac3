"""Readers: each question runs in a thread, with a connection that can only read.

A question has a limited time. SQLite checks it after a fixed number of steps, which may be many
rows; and a task of this process checks it every few milliseconds and interrupts the statement,
which SQLite notices at the next row.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec
import trio
from msgspec.structs import replace

from corvo import clock
from corvo.mirror.follow import building
from corvo.mirror.follow.following import WriterTask
from corvo.mirror.follow.writing import code_of
from corvo.mirror.query.fulltext import full_text
from corvo.mirror.query.reading import Reading, TimeOver, prepare
from corvo.mirror.query.reports import get_beats, get_rates, get_summary, get_throughput
from corvo.mirror.query.search import count, search, select, understood
from corvo.mirror.query.terms import NotAnswered
from corvo.mirror.written_queues import WrittenQueues
from corvo.protocol.ops.base import encode_json
from corvo.protocol.questions import (
    AllRates,
    Beats,
    Count,
    Counted,
    Found,
    FullText,
    GetBeats,
    GetRates,
    GetSummary,
    GetThroughput,
    MirrorAnswer,
    Question,
    RawPage,
    Refused,
    Search,
    Select,
    Selected,
    Summary,
    TextFound,
    Throughput,
    positions_of,
)

_TOO_DEEP: Final = ("parser stack overflow", "Expression tree is too large")
_STEPS: Final = 1_000
"""SQLite's steps between two checks whether a question's time is over."""
_LOOK_S: Final = 0.01
"""Time between two checks by this process."""
_COUNT_JOBS: Final = (
    "SELECT coalesce(sum(pending + active + held + completed + retrying + dead + cancelled"
    " + scheduled), 0) FROM queue_counts"
)


class Readers:
    """The connections that read, and the questions that have one."""

    def __init__(self, path: Path, writer: WriterTask, count: int) -> None:
        self.interrupted = 0
        self._path = path
        self._writer = writer
        self._written = writer.written
        self._free: list[sqlite3.Connection] = []
        self._busy: dict[sqlite3.Connection, Reading] = {}
        self._begun = trio.Event()
        self._turns = trio.Semaphore(count)
        # Scans never take the last turn, so that the next page of a list does not wait for them.
        self._scans = trio.Semaphore(max(1, count - 1))
        self._limiter = trio.CapacityLimiter(count)

    async def look_up(self, question: Question, readings: set[Reading]) -> bytes | Refused:
        """Answer a question; `readings` has its reading while that is under way.

        Cancelling does not stop the thread: abandon the readings before. Raises
        `trio.TooSlowError` when there was no free connection in the question's time.
        """
        try:
            task = task_of(question, self._written)
        except NotAnswered as error:
            return error.refused
        async with self._connection(question.budget_ms, needs_scan=task.needs_scan) as connection:
            reading = Reading(connection, clock=clock.steady_ns, now_ns=clock.now_ns())
            readings.add(reading)
            self._busy[connection] = reading
            self._begun.set()
            try:
                return await trio.to_thread.run_sync(
                    _look_up, connection, reading, task, limiter=self._limiter
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

    async def interrupt_late(self) -> None:
        """Interrupt questions that take too long, until cancelled."""
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
        self, wait_ms: int, *, needs_scan: bool = False
    ) -> AsyncIterator[sqlite3.Connection]:
        async with AsyncExitStack() as undo:
            with trio.fail_after(wait_ms / 1_000):
                for turns in (self._scans, self._turns) if needs_scan else (self._turns,):
                    await turns.acquire()
                    undo.callback(turns.release)
            await self._writer.enter()
            undo.callback(self._writer.leave)
            held = self._free.pop() if self._free else self._open()
            undo.callback(self._free.append, held)
            yield held

    def _open(self) -> sqlite3.Connection:
        connection = building.connect_reading(self._path)
        prepare(connection)
        return connection

    def close(self) -> None:
        """Close the connections; no question is under way any more."""
        for connection in self._free:
            connection.close()


# Questions.


_Answer: TypeAlias = (
    RawPage | TextFound | Counted | Selected | AllRates | Throughput | Beats | Summary
)


class Task(NamedTuple):
    """A question, understood before any row is read."""

    question: Question
    answer: Callable[[Reading], _Answer]
    needs_scan: bool = False
    """Whether it may read jobs that do not match, and so need all of its time."""


def task_of(question: Question, written: WrittenQueues | None = None) -> Task:
    """How a question is answered. Raises `NotAnswered`."""
    match question:
        case Search():
            known = understood(question)
            return Task(question, partial(search, question=question, known=known), known.needs_scan)
        case Count():
            known = understood(question)
            return Task(question, partial(count, question=question, known=known), known.needs_scan)
        case Select():
            known = understood(question)
            return Task(question, partial(select, question=question, known=known), known.needs_scan)
        case FullText():
            return Task(question, partial(full_text, question=question), needs_scan=True)
        case GetRates():
            return Task(question, partial(get_rates, question=question))
        case GetThroughput():
            return Task(question, partial(get_throughput, question=question))
        case GetBeats():
            return Task(question, partial(get_beats, question=question))
        case GetSummary():
            return Task(question, partial(get_summary, question=question, written=written))
        case _:
            name = type(question).__name__
            raise NotAnswered("unknown_query", f"{name} is not answered from the tables")


pack: Final = msgspec.msgpack.Encoder().encode
_OVER: Final = Refused(
    code="over_budget",
    error="the search ran out of time (limits.search_ms_max) before it found anything; narrow it",
)


def answer(reading: Reading, task: Task) -> MirrorAnswer | Refused:
    """The answer to a question, or the reason why it has no answer."""
    try:
        found = task.answer(reading)
        freshness = task.question.freshness
        if freshness is not None and isinstance(found, Found | TextFound | Summary):
            found = replace(found, is_behind=freshness.is_beyond(found.as_of))
        return MirrorAnswer(encode_json(found), positions_of(found.as_of))
    except NotAnswered as error:
        return error.refused
    except TimeOver:
        return _OVER
    except sqlite3.OperationalError as error:
        if code_of(error) == sqlite3.SQLITE_INTERRUPT:
            return _OVER
        raise


def _look_up(connection: sqlite3.Connection, reading: Reading, task: Task) -> bytes | Refused:
    connection.set_progress_handler(reading.is_over, _STEPS)
    try:
        found = answer(reading, task)
        return found if isinstance(found, Refused) else pack(found)
    except sqlite3.OperationalError as error:
        if not any(word in str(error) for word in _TOO_DEEP):
            raise
        # How deep SQLite can go is a matter of its build. Of all filters, this alone nests.
        told = "payload_jq: it is nested too deeply for the mirror: say it in fewer steps"
        return Refused(code="bad_filter", error=told, field="payload_jq")
    finally:
        connection.set_progress_handler(None, _STEPS)
