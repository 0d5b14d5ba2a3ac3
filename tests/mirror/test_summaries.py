"""Summaries that continue an earlier one, held against summaries of all queues."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corvo.kv import keys
from corvo.mirror import written_queues
from corvo.mirror.follow.progress import Cursor, Page
from corvo.mirror.follow.writing import Writing, open_writing
from corvo.mirror.query import reading
from corvo.mirror.query.reading import Reading
from corvo.mirror.query.reports import get_summary
from corvo.mirror.written_queues import WrittenQueues
from corvo.model import STATES, Job, Queue, State
from corvo.protocol.questions import GetSummary, Summary
from corvo.protocol.wire import Pair
from corvo.router.summary import continued
from corvo.scopes import EVERYTHING, Scope
from tests.mirror.shelves import NOW_NS

QUEUES: Final = ("a", "ab", "b")
JOBS: Final = ("j0", "j1", "j2", "j3")
SCOPES: Final = (EVERYTHING, Scope(("a*",)))


def counts_key(queue: str) -> bytes:
    return keys.COUNTS.prefix + queue.encode()


def job_key(job_id: str) -> bytes:
    return keys.JOB.prefix + job_id.encode()


def queue_key(queue: str) -> bytes:
    return keys.QUEUE_CONFIG.prefix + queue.encode()


class Shard:
    """Documents, and the index of the entry that changed each of them last."""

    def __init__(self) -> None:
        self.index = 0
        self.documents: dict[bytes, bytes | None] = {}
        self.changed_at: dict[bytes, int] = {}
        self._jobs: dict[str, Job] = {}

    def entry(self, changes: list[tuple[str, str, State | None]]) -> None:
        """Put jobs into queues, or remove them, and count: one entry of the log."""
        self.index += 1
        for job_id, queue, state in changes:
            if state is None:
                self._jobs.pop(job_id, None)
                self._put(job_key(job_id), None)
                continue
            job = Job(
                id=job_id,
                queue=queue,
                state=state,
                payload=b"{}",
                created_ns=NOW_NS - self.index,
                order_ns=1,
            )
            self._jobs[job_id] = job
            self._put(job_key(job_id), msgspec.msgpack.encode(job))
        for queue in QUEUES:
            own = [job.state for job in self._jobs.values() if job.queue == queue]
            counts = [own.count(state) for state in STATES]
            key = counts_key(queue)
            data = msgspec.msgpack.encode(counts) if any(counts) else None
            if self.documents.get(key) != data:  # what is as it was is in no feed
                self._put(key, data)

    def pause(self, queue: str, *, is_paused: bool) -> None:
        self.index += 1
        own = Queue(name=queue, created_ns=1, paused=is_paused)
        self._put(queue_key(queue), msgspec.json.encode(own))

    def _put(self, key: bytes, data: bytes | None) -> None:
        self.documents[key] = data
        self.changed_at[key] = self.index

    def pairs(self, after: int, until: int) -> tuple[Pair, ...]:
        """The documents that changed last after an entry, up to another, as they are now."""
        found = sorted(self.changed_at.items(), key=lambda each: (each[1], each[0]))
        return tuple((key, self.documents[key]) for key, at in found if after < at <= until)


class Follower:
    """Writes pages, and continues summaries."""

    def __init__(self, shard: Shard, writing: Writing) -> None:
        self.at = 0
        self._shard = shard
        self._writing = writing
        self._last = dict.fromkeys(SCOPES, Summary(queues=[]))

    def follow(self, until: int, parts: int) -> None:
        """A page up to an entry; or several, of which all but the last are parts of an entry."""
        pairs = self._shard.pairs(self.at, until)
        size = -(-len(pairs) // parts) or 1
        pieces = [pairs[begin : begin + size] for begin in range(0, len(pairs), size)] or [()]
        for number, piece in enumerate(pieces, start=1):
            self._write(Page(self._cursor(until if number == len(pieces) else self.at), piece))
        self.at = until

    def go_through(self) -> None:
        """A full pass in two pages."""
        there = sorted(
            (key, data) for key, data in self._shard.documents.items() if data is not None
        )
        self._write(Page(self._cursor(self.at, b"")))
        middle = keys.COUNTS.prefix + b"ab"
        for after, last in ((b"", middle), (middle, b"")):
            piece = tuple(
                pair for pair in there if after < pair[0] and (not last or pair[0] <= last)
            )
            self._write(Page(self._cursor(self.at, last or None), piece, scanned=(after, last)))

    def _cursor(self, index: int, pass_key: bytes | None = None) -> Cursor:
        return Cursor(0, index, 0, NOW_NS, self._shard.index, pass_key)

    def _write(self, page: Page) -> None:
        self._writing.write([page])
        self.look()

    def look(self) -> None:
        """The continued summary of each scope is the whole one."""
        for scope, last in self._last.items():
            question = GetSummary(scope=scope, known=last.mark, known_minute=last.minute)
            told = continued(last, self.ask(question, self._writing.written))
            whole = self.ask(GetSummary(scope=scope), None)
            assert told.queues == whole.queues
            self._last[scope] = told

    def ask(self, question: GetSummary, written: WrittenQueues | None) -> Summary:
        place = f"file:{self._writing.path}?mode=ro"
        with closing(sqlite3.connect(place, uri=True, isolation_level=None)) as connection:
            reading.prepare(connection)
            one = Reading(connection, clock=lambda: 0, now_ns=NOW_NS)
            return get_summary(one, question, written)


changes = st.tuples(
    st.sampled_from(JOBS),
    st.sampled_from(QUEUES),
    st.sampled_from((State.PENDING, State.PENDING, State.ACTIVE, None)),
)
steps = st.one_of(
    st.tuples(st.just("entry"), st.lists(changes, min_size=1, max_size=4)),
    st.tuples(st.just("pause"), st.sampled_from(QUEUES), st.booleans()),
    st.tuples(st.just("follow"), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("pass")),
)


_OLDEST_GOES: Final[list[tuple[object, ...]]] = [
    ("entry", [("j0", "a", State.PENDING)]),
    ("follow", 1, 1),
    ("entry", [("j1", "a", State.PENDING)]),
    ("follow", 1, 1),
    ("entry", [("j1", "a", None)]),
]
"""The row of a job that is gone does not tell whose oldest job it was."""


@settings(max_examples=30, deadline=None)
@example([*_OLDEST_GOES, ("follow", 1, 2)])
@example([*_OLDEST_GOES, ("pass",)])
@given(st.lists(steps, max_size=14))
def test_a_continued_summary_is_the_whole_one_whatever_the_pages_are(
    done: list[tuple[object, ...]],
) -> None:
    with TemporaryDirectory() as folder:
        writing, _ = open_writing(Path(folder), "rookery", 1, boot_id="one")
        shard = Shard()
        follower = Follower(shard, writing)
        for step in done:
            match step:
                case "entry", list(told):
                    shard.entry(told)
                case "pause", str(queue), bool(is_paused):
                    shard.pause(queue, is_paused=is_paused)
                case "follow", int(count), int(parts) if follower.at < shard.index:
                    follower.follow(min(shard.index, follower.at + count), parts)
                case ("pass",):
                    follower.go_through()
        follower.follow(shard.index, 1)
        writing.close()


def test_only_queues_with_changes_are_told_again(tmp_path: Path) -> None:
    writing, _ = open_writing(tmp_path, "rookery", 1, boot_id="one")
    shard = Shard()
    follower = Follower(shard, writing)
    shard.entry([("j0", "a", State.PENDING), ("j1", "ab", State.PENDING)])
    follower.follow(1, 1)
    first = follower.ask(GetSummary(scope=EVERYTHING), writing.written)
    question = GetSummary(scope=EVERYTHING, known=first.mark, known_minute=first.minute)

    same = follower.ask(question, writing.written)
    shard.entry([("j1", "b", State.PENDING)])
    follower.follow(2, 1)
    other = follower.ask(question, writing.written)
    later = follower.ask(
        msgspec.structs.replace(question, known_minute="2026-02-11T10:09:00Z"), writing.written
    )
    history = follower.ask(msgspec.structs.replace(question, minutes=3), writing.written)
    restarted = follower.ask(question, WrittenQueues("another start"))

    assert (same.changed, same.queues) == ([], [])
    assert sorted(other.changed or ()) == ["ab", "b"]
    assert [queue.name for queue in other.queues] == ["b"]
    for whole in (first, later, history, restarted):
        assert whole.changed is None
        assert whole.queues
    writing.close()


def test_queues_that_were_written_are_known_since_a_mark() -> None:
    written = WrittenQueues("s")
    first = written.mark()
    written.begin({"a", "b"})
    assert set(written.since(first) or ()) == {"a", "b"}, "before readers see the rows"
    written.commit()
    second = written.mark()
    written.begin({"b"})
    written.commit()

    assert set(written.since(first) or ()) == {"a", "b"}
    assert written.since(second) == ["b"]
    assert written.since(written.mark()) == []
    assert written.since("other:0") is None
    assert written.since("") is None
    assert written.since("s:x") is None


def test_a_write_that_may_be_of_any_queue_ends_all_marks() -> None:
    written = WrittenQueues("s")
    before = written.mark()
    written.begin(None)
    while_writing = written.mark()
    written.begin({"a"})
    written.commit()

    assert written.since(before) is None
    assert written.since(while_writing) is None
    assert written.since(written.mark()) == []


def test_of_very_many_queues_the_oldest_are_forgotten() -> None:
    written = WrittenQueues("s")
    marks = []
    for number in range(written_queues.QUEUES_MAX + 5):
        marks.append(written.mark())
        written.begin({f"q{number}"})
        written.commit()

    half = written_queues.QUEUES_MAX // 2
    assert written.since(marks[half]) is None
    assert len(written.since(marks[half + 1]) or ()) == half + 4
    assert written.since(marks[-1]) == [f"q{written_queues.QUEUES_MAX + 4}"]
