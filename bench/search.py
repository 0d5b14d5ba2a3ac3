"""Questions to a mirror with very many jobs: what a page, a count, a selection take."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic_ns, time_ns
from typing import Final

import msgspec

from bench.measure import Measurement
from corvo.ids import Mint
from corvo.mirror.follow import building, schema
from corvo.mirror.query import reading
from corvo.mirror.readers import answer, task_of
from corvo.model import STATES, Event, Job, State
from corvo.protocol.questions import (
    Count,
    Filter,
    FullText,
    GetBeats,
    GetSummary,
    Question,
    Refused,
    Search,
    SearchBody,
    Select,
    Selected,
)
from corvo.scopes import EVERYTHING
from corvo.times import sortable

JOBS: Final = 1_000_000
ROUNDS: Final = 200
BUDGET_MS: Final = 1_000
_SHARDS: Final = 4
_QUEUES: Final = tuple(f"queue.{number}" for number in range(20))
_SHARE: Final = (
    (State.COMPLETED, 600),
    (State.DEAD, 150),
    (State.PENDING, 200),
    (State.ACTIVE, 10),
    (State.RETRYING, 20),
    (State.SCHEDULED, 10),
    (State.CANCELLED, 9),
    (State.HELD, 1),
)
_WORDS: Final = tuple(f"word{number}" for number in range(2_000))
_EPOCH_NS: Final = 1_770_804_000_000_000_000


def measure(directory: Path, jobs: int = JOBS) -> Iterator[Measurement]:
    """Build the file, and ask."""
    path = directory / "mirror.db"
    begun = monotonic_ns()
    ids = build(path, jobs)
    yield Measurement(f"{jobs:,} jobs: build the file", (monotonic_ns() - begun) / 1e9, "s")
    yield Measurement("the file", path.stat().st_size / (1 << 20), "MiB")
    yield from ask(path, ids)


def build(path: Path, jobs: int) -> list[str]:
    """A mirror's file. Returns some of the ids."""
    connection = building.connect(path)
    building.prepare(connection, "bench")
    for index in schema.JOBS.indexes:
        connection.execute(f"DROP INDEX IF EXISTS {index.name}")
    random = Random(1)
    ids = []
    connection.execute("BEGIN")
    for first in range(0, jobs, 10_000):
        kept = [one(random, number) for number in range(first, min(first + 10_000, jobs))]
        put = schema.JOB.put.partition(" ON CONFLICT")[0]  # all are new
        connection.executemany(put, [schema.JOB.summed(shard, job, ()) for shard, job in kept])
        connection.executemany(
            schema.ERROR.put,
            [
                (
                    job.id,
                    shard,
                    1,
                    error(random),
                    None,
                    None,
                    "w1",
                    number,
                    sortable(job.created_ns),
                    None,
                )
                for shard, job in kept
                for number in range(1, job.failures + 1)
            ],
        )
        ids += [job.id for _, job in kept[::1_000]]
    for index in schema.JOBS.indexes:
        connection.execute(building._index_statement(schema.JOBS, index))
    words = ", ".join(state.word for state in STATES)
    sums = ", ".join(f"sum(state = '{state.word}')" for state in STATES)
    connection.execute(
        f"INSERT INTO queue_counts (queue, shard, {words})"  # noqa: S608 -- words of ours
        f" SELECT queue, shard, {sums} FROM jobs GROUP BY queue, shard"
    )
    for shard in range(_SHARDS):
        connection.execute(
            "INSERT INTO cursors (shard, idx, now_ns) VALUES (?, 1, ?)", (shard, time_ns())
        )
    connection.execute("COMMIT")
    connection.execute(schema.FILL_FULL_TEXT, (0,))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return ids


def one(random: Random, number: int) -> tuple[int, Job]:
    """A job by chance. Fifty are created at once, as batches are."""
    shard = number // 50 % _SHARDS
    created_ns = _EPOCH_NS + number // 50 * 50_000_000
    mint = Mint(shard, created_ns, number + 1)
    state = random.choices([state for state, _ in _SHARE], [share for _, share in _SHARE])[0]
    has_run = state not in {State.PENDING, State.SCHEDULED}
    payload = {
        "email": f"user{random.randrange(100_000)}@example.com",
        "amount": random.randrange(1_000),
        "template": random.choice(("welcome", "receipt", "reminder")),
        "metadata": {"region": random.choice(("us-east", "eu-west"))},
        "text": " ".join(random.choices(_WORDS, k=12)),
    }
    return shard, Job(
        id=mint.job(),
        queue=_QUEUES[int(random.random() ** 2 * len(_QUEUES))],
        state=state,
        payload=msgspec.json.encode(payload),
        created_ns=created_ns,
        order_ns=created_ns + number % 50,
        trail=(Event(created_ns, "enqueued"),),
        priority=random.choices((0, 1, 2), (1, 4, 95))[0],
        attempt=random.randrange(1, 4) if has_run else 0,
        failures=1 if state in {State.DEAD, State.RETRYING} else 0,
        worker_id=f"w{random.randrange(50)}" if has_run else "",
        lease_expires_ns=created_ns + 90 * 10**9 if state is State.ACTIVE else 0,
        lease_ms=30_000,
        started_ns=created_ns + random.randrange(10**12) if has_run else 0,
        completed_ns=created_ns + 2 * 10**12 if state is State.COMPLETED else 0,
        tags={"tenant": f"t{random.randrange(1_000)}", "env": random.choice(("prod", "test"))},
        batch_id=f"b{number // 20_000}" if number % 10 == 0 else "",
    )


def error(random: Random) -> str:
    return f"{random.choice(('SMTP', 'HTTP', 'DNS'))} timeout after {random.randrange(9_999)} ms"


def ask(path: Path, ids: list[str]) -> Iterator[Measurement]:
    """Ask what people ask, and more."""
    random = Random(2)
    desk = QuestionServer(path)
    queue = random.choice
    yield from desk.times(
        "page of a queue and a state",
        (body(queue=queue(_QUEUES), state=[queue(("dead", "pending"))]) for _ in range(ROUNDS)),
    )
    yield from desk.times("page of a queue", (body(queue=queue(_QUEUES)) for _ in range(ROUNDS)))
    yield from desk.times("page of states", (body(state=["dead", "held"]) for _ in range(50)))
    yield from desk.times("page of everything", (body() for _ in range(50)))
    for sort in ("priority", "started_at", "completed_at", "attempt"):
        yield from desk.times(
            f"page of a queue by {sort}", (body(queue=queue(_QUEUES), sort=sort) for _ in range(50))
        )
    yield from desk.times("exact id", (body(job_id_prefix=queue(ids)) for _ in range(ROUNDS)))
    yield from desk.times("id prefix of a shard", (body(job_id_prefix="s01_") for _ in range(20)))
    yield from desk.times("batch", (body(batch_id=f"b{number}") for number in range(20)))
    yield from desk.times("worker", (body(worker_id=f"w{number}") for number in range(20)))
    yield from desk.times(
        "tag of one in a thousand", (body(tags={"tenant": f"t{n}"}) for n in range(5))
    )
    yield from desk.times("tag of every second", (body(tags={"env": "prod"}) for _ in range(5)))
    for name, search in (
        ("payload_contains, one job", body(payload_contains="user77777@")),
        ("payload_contains, none", body(payload_contains="nowhere")),
        ("payload_contains, most", body(payload_contains="word")),
        ("jq, few", body(payload_jq='.email == "user77777@example.com"')),
        ("jq, many", body(payload_jq=".amount > 500")),
        ("error_contains, few", body(error_contains="after 777 ms")),
        ("error_contains, none", body(error_contains="nowhere")),
        ("error_contains, many", body(error_contains="SMTP")),
        ("payload_contains in a queue", body(queue=_QUEUES[15], payload_contains="nowhere")),
    ):
        yield from desk.times(name, [search] * 3)
    yield from desk.texts()
    yield from desk.selects()
    yield from desk.others()


def body(**words: object) -> SearchBody:
    return msgspec.convert(words, SearchBody)


class QuestionServer:
    """Where questions are put, one after the other, as the process does it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        self._connection.execute("PRAGMA query_only = ON")
        self._connection.execute("PRAGMA cache_size = -65536")
        reading.prepare(self._connection)

    def put(self, question: Question) -> tuple[float, bytes]:
        """How many milliseconds it took, and the answer."""
        begun = monotonic_ns()
        one = reading.Reading(self._connection, clock=monotonic_ns, now_ns=time_ns())
        self._connection.set_progress_handler(one.is_over, 1_000)
        answered = answer(one, task_of(question))
        assert not isinstance(answered, Refused), answered
        return (monotonic_ns() - begun) / 1e6, answered.body

    def times(
        self, name: str, searches: "Iterator[SearchBody] | list[SearchBody]"
    ) -> Iterator[Measurement]:
        """How long pages take."""
        taken = []
        partial = shown = 0
        exact = True
        for search in searches:
            ms, answered = self.put(Search(scope=EVERYTHING, search=search, budget_ms=BUDGET_MS))
            taken.append(ms)
            found = msgspec.json.decode(answered, type=Page)
            partial += found.partial
            shown = len(found.jobs)
            exact = found.total_is_exact
        taken.sort()
        marks = f"{partial}/{len(taken)} partial, last: {shown} shown, exact total: {exact}"
        yield Measurement(f"{name}: p50", taken[len(taken) // 2], "ms")
        yield Measurement(f"  p95 ({marks})", taken[int(len(taken) * 0.95)], "ms")

    def texts(self) -> Iterator[Measurement]:
        """How long full text takes."""
        for name, q in (
            ("rare word", "user77777"),
            ("two words", "word7 word8"),
            ("word of every job", "example"),
            ("beginning", "word1*"),
            ("beginning of one letter", "w*"),
            ("phrase", '"word1 word2"'),
        ):
            ms, answered = self.put(FullText(scope=EVERYTHING, q=q, budget_ms=BUDGET_MS))
            found = msgspec.json.decode(answered, type=Text)
            marks = f"{len(found.results)} shown{', partial' if found.partial else ''}"
            yield Measurement(f"full text, {name} ({marks})", ms, "ms")

    def selects(self) -> Iterator[Measurement]:
        """How long it takes to select a hundred thousand."""
        for name, given in (
            ("states", Filter(state=["dead"])),
            ("a queue and a state", Filter(queue=_QUEUES[0], state=["dead", "completed"])),
            ("states and an error", Filter(state=["dead"], error_contains="timeout")),
        ):
            after, members, longest, pages = "", 0, 0.0, 0
            bounds = dict.fromkeys(range(_SHARDS), time_ns())
            begun = monotonic_ns()
            while members < 100_000:
                question = Select(
                    scope=EVERYTHING,
                    filter=given,
                    bounds=bounds,
                    after=after,
                    limit=5_000,
                )
                ms, answered = self.put(question)
                selected = msgspec.json.decode(answered, type=Selected)
                members += len(selected.members)
                longest = max(longest, ms)
                pages += 1
                after = selected.after
                if not after:
                    break
            whole = (monotonic_ns() - begun) / 1e6
            yield Measurement(f"select {members:,} by {name}: longest page", longest, "ms")
            yield Measurement(f"  all {pages} pages", whole, "ms")

    def others(self) -> Iterator[Measurement]:
        """Counts and reports."""
        for name, question in (
            ("count states", Count(scope=EVERYTHING, filter=Filter(state=["dead"]))),
            (
                "count a queue since",
                Count(scope=EVERYTHING, filter=body(queue=_QUEUES[0], created_after=_SINCE)),
            ),
            (
                "count a piece of payload",
                Count(scope=EVERYTHING, filter=Filter(payload_contains="word7")),
            ),
            ("beats", GetBeats(scope=EVERYTHING)),
            ("summary", GetSummary(scope=EVERYTHING)),
        ):
            ms, _ = self.put(question)
            yield Measurement(name, ms, "ms")


_SINCE: Final = "2026-02-11T10:05:00Z"


class Page(msgspec.Struct):
    """Of a page, what is measured."""

    jobs: list[msgspec.Raw]
    partial: bool
    total_is_exact: bool


class Text(msgspec.Struct):
    """Of a full text's answer, what is measured."""

    results: list[msgspec.Raw]
    partial: bool
