"""The check of the mirror's file: every change of a bit that changes an answer is found."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pytest
import trio
from hypothesis import given

from corvo.kv import keys
from corvo.mirror.follow import building, checking, schema
from corvo.mirror.follow.checking import CheckTask, check_indexes, check_rows, check_schema
from corvo.mirror.follow.progress import Cursor, Page
from corvo.mirror.follow.writing import NAME, Damaged, Writing, is_damage, open_writing
from corvo.model import Batch, Job, JobError, Queue, Schedule, State, Throughput, Worker
from corvo.telemetry import Level, Log, Style
from tests.mirror.pages import tables_in
from tests.mirror.test_rows import documents

SEEDS: Final = range(500)
"""Each flips one bit."""


def never() -> bool:
    return False


def check(path: Path) -> None:
    """All of the check. Raises `Damaged`, and `sqlite3.Error`."""
    with closing(building.connect_reading(path)) as connection:
        check_schema(connection)
        for spec in schema.FED:
            after = 0
            while rows := check_rows(connection, spec.name, after):
                after = int(str(rows[-1][0]))
        check_indexes(connection, never)


def is_found(path: Path) -> bool:
    """Whether the check finds damage."""
    try:
        check(path)
    except Damaged:
        return True
    except sqlite3.Error as error:
        return is_damage(error)
    return False


def everything(path: Path) -> list[list[object]]:
    """All rows of all tables, by the table and by each index."""
    with closing(sqlite3.connect(path)) as connection:
        return [
            sorted(connection.execute(f"SELECT * FROM {spec.name} {by}"), key=repr)  # noqa: S608 -- names of the schema
            for spec in schema.FED
            for by in (
                "NOT INDEXED",
                *(
                    f"INDEXED BY {index.name} WHERE"
                    f" {index.where or f'{index.columns[0]} IS NOT NULL'}"
                    for index in spec.indexes
                ),
            )
        ]


def some_documents() -> tuple[tuple[bytes, bytes], ...]:
    """A few of each kind."""
    pack, json = msgspec.msgpack.encode, msgspec.json.encode
    found = []
    for number in range(40):
        job = Job(
            id=f"s00_job_{number:04}",
            queue="mail" if number % 3 else "sms",
            state=State.ACTIVE if number % 2 else State.PENDING,
            payload=json({"to": f"ada{number}"}),
            created_ns=number + 1,
            order_ns=1,
            started_ns=number,
            lease_expires_ns=number * 10**9,
            worker_id=f"worker-{number % 4}",
            unique_key=f"k{number}",
            unique_until_ns=7,
            batch_id="b" if number % 2 else "",
            tags={"team": "shop"},
        )
        found.append((keys.JOB.build(job.id), pack(job)))
        error = JobError(attempt=1, error="it failed", at_ns=number, worker_id="worker-1")
        found.append((keys.JOB_ERROR.build(job.id, 1), json(error)))
    schedule = Schedule(
        id="mail~a", name="a", queue="mail", cron="@daily", job='{"queue":"mail","payload":{}}'
    )
    found += [
        (keys.QUEUE_CONFIG.build("mail"), json(Queue(name="mail", paused=True))),
        (keys.COUNTS.build("mail"), pack(list(range(16)))),
        (keys.THROUGHPUT.build("mail", 5), pack(Throughput("mail", 69, 1))),
        (keys.BATCH.build("b"), json(Batch(id="b", total=20, called_back=True))),
        (keys.WORKER.build("worker-1"), json(Worker(id="worker-1", queues=("mail",), seen_ns=7))),
        (keys.SCHEDULE.build("mail~a"), json(schedule)),
    ]
    return tuple(found)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed file with a few rows in each table."""
    directory = tmp_path_factory.mktemp("m")
    writing, _ = open_writing(directory, "rookery", 1, boot_id="one")
    writing.write([Page(Cursor(0), some_documents())])
    assert writing.shrink()
    writing.close()
    return directory / NAME


def test_a_file_that_is_whole_passes(whole: Path) -> None:
    check(whole)

    assert all(tables_in(whole).values()), "each table has rows"


def test_no_flipped_bit_changes_an_answer_unnoticed(whole: Path, tmp_path: Path) -> None:
    """Found by a run that flips bits in the file: seed 12007. An id had another letter."""
    data, right = whole.read_bytes(), everything(whole)
    used = [place for place, byte in enumerate(data) if byte]
    path = tmp_path / NAME
    found = 0
    for seed in SEEDS:
        random = Random(seed)
        bit = 8 * random.choice(used) + random.randrange(8)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(flipped)
        if is_found(path):
            found += 1
        else:
            assert everything(path) == right, f"bit {bit}"
    assert found > len(SEEDS) // 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE jobs SET id = 's0!_job_0001' WHERE id = 's00_job_0001'",
        "UPDATE jobs SET payload = '{}' WHERE id = 's00_job_0002'",
        "UPDATE jobs SET provider_error = 1 WHERE id = 's00_job_0003'",
        "UPDATE jobs SET agent_total_cost_usd = 1 WHERE id = 's00_job_0003'",
        "UPDATE job_errors SET error = 'it faimed' WHERE job_id = 's00_job_0003'",
        "UPDATE unique_locks SET expires_at = '' WHERE unique_key = 'k3'",
        "UPDATE batches SET called_back = 0",
        "UPDATE queues SET paused = 0",
        "UPDATE queue_counts SET pending = 9",
        "UPDATE throughput SET dead = 1",
        "UPDATE workers SET hostname = 'x'",
        "UPDATE schedules SET fired = 1",
    ],
)
def test_a_value_that_has_changed_is_found(whole: Path, tmp_path: Path, statement: str) -> None:
    path = tmp_path / NAME
    path.write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount > 0

    with pytest.raises(Damaged, match="is not as it was written"):
        check(path)


def test_rows_of_an_older_version_are_not_judged(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE jobs SET sum = NULL, payload = '{}'")

    check(path)


@given(found=documents())
def test_what_is_written_passes_whatever_it_is(
    tmp_path_factory: pytest.TempPathFactory, found: dict[bytes, bytes]
) -> None:
    writing, _ = open_writing(tmp_path_factory.mktemp("m"), "rookery", 2, boot_id="one")
    writing.write([Page(Cursor(1), tuple(found.items()))])

    check(writing.path)
    writing.close()


# The task.


def run_task(writing: Writing, wal_bytes_max: int = 1 << 30) -> dict[str, object]:
    """Run the task until it logs; what it logs first. Raises `Damaged`."""
    lines: list[bytes] = []

    async def main() -> None:
        with trio.CancelScope() as scope:

            def take(line: bytes) -> None:
                lines.append(line)
                scope.cancel()

            log = Log(take, "mirror", Style(is_text=False), Level.DEBUG)
            await CheckTask(writing, wal_bytes_max, log).run()

    trio.run(main)
    found: dict[str, object] = msgspec.json.decode(lines[0])
    return found


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    writing, _ = open_writing(tmp_path, "rookery", 1, boot_id="one")
    writing.write([Page(Cursor(0), some_documents())])
    yield writing
    writing.close()


def test_the_task_says_how_many_rows_it_has_checked(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "ROWS", 7)
    [(rows,)] = sqlite3.connect(writing.path).execute(
        "SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM job_errors)"
        " + (SELECT count(*) FROM unique_locks) + 6"
    )

    found = run_task(writing)

    assert (found["event"], found["rows"]) == ("mirror.checked", rows)


def test_the_task_checks_again(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_AGAIN_S", 0.0)
    count = 0

    async def main() -> None:
        with trio.CancelScope() as scope:

            def take(_: bytes) -> None:
                nonlocal count
                count += 1
                if count == 3:
                    scope.cancel()

            log = Log(take, "mirror", Style(is_text=False), Level.DEBUG)
            await CheckTask(writing, 1 << 30, log).run()

    trio.run(main)

    assert count == 3


def test_the_task_tells_of_damage(writing: Writing) -> None:
    with closing(sqlite3.connect(writing.path, isolation_level=None)) as connection:
        connection.execute("UPDATE jobs SET payload = '{}' WHERE id = 's00_job_0002'")

    with pytest.raises(Damaged, match="of jobs is not as it was written"):
        run_task(writing)


def test_an_index_that_has_lost_a_row_is_found(writing: Writing) -> None:
    with closing(sqlite3.connect(writing.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        name = "idx_jobs_state"
        before = "SELECT sql FROM sqlite_schema WHERE name = ?"
        [(sql,)] = connection.execute(before, (name,)).fetchall()
        put = "UPDATE sqlite_schema SET sql = ? WHERE name = ?"
        connection.execute(put, (f"{sql} WHERE state = 'active'", name))
    with closing(sqlite3.connect(writing.path, isolation_level=None)) as connection:
        connection.execute("UPDATE jobs SET state = 'dead', sum = NULL WHERE state = 'pending'")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(put, (sql, name))

    with pytest.raises(Damaged, match="SQLite's check says"):
        run_task(writing)


def test_a_check_gives_way_before_sqlites_log_becomes_large(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "_STEPS", 1)

    with closing(building.connect_reading(writing.path)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            check_indexes(connection, lambda: True)
        check_indexes(connection, never)
