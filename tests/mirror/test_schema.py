"""The file's tables: as they were agreed on, made anew or widened, and of nobody else."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import pytest

from corvo.kv.keys import JOB
from corvo.mirror.follow import building, schema
from corvo.mirror.follow.building import Unfit
from corvo.mirror.follow.columns import TableSpec
from corvo.mirror.follow.progress import Cursor, Page
from corvo.mirror.follow.writing import NAME, open_writing
from corvo.model import Job, State
from tests.mirror.pages import tables_in

SCHEMAS: Final = {
    version: (Path(__file__).parent / f"schema_version_{version}.sql").read_text()
    for version in (1, 2, 3, 4)
}
"""The text of the schema by its version."""

ORIGINAL: Final = {
    "jobs",
    "job_errors",
    "unique_locks",
    "batches",
    "queues",
    "workers",
    "schedules",
    "job_usage",
    "budgets",
    "job_iterations",
    "job_scores",
    "providers",
    "approval_policies",
    "webhooks",
    "api_keys",
    "auth_roles",
    "auth_key_roles",
    "audit_logs",
    "namespaces",
    "sso_settings",
}
"""Every table that the original has."""

PLANNED: Final = {
    "jobs.result_schema",
    "jobs.provider_error",
    "jobs.routing",
    "jobs.routing_target",
    "jobs.routing_index",
    "queues.provider",
}
"""Columns of planned features, in tables that documents feed otherwise."""

INDEXES: Final = (
    "idx_jobs_queue_state_priority",
    "idx_jobs_state",
    "idx_jobs_scheduled",
    "idx_jobs_lease",
    "idx_jobs_unique",
    "idx_jobs_batch",
    "idx_jobs_expire",
    "idx_jobs_created",
)


def built(path: Path | str = ":memory:") -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    building.prepare(connection, "rookery")
    return connection


def names(connection: sqlite3.Connection, kind: str) -> set[str]:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = ?", (kind,))
    return {str(name) for (name,) in found}


def test_every_table_and_index_of_the_original_is_there() -> None:
    connection = built()

    assert {*ORIGINAL, "jobs_fts", "cursors"} <= names(connection, "table")
    assert set(INDEXES) <= names(connection, "index")


@pytest.mark.parametrize("spec", schema.TABLES.values(), ids=lambda spec: spec.name)
def test_a_table_has_the_columns_that_were_said_in_their_order(spec: TableSpec) -> None:
    found = built().execute(f"PRAGMA table_info({spec.name})").fetchall()

    assert [(name, kind) for _, name, kind, *_ in found] == [
        (column.name, column.type) for column in spec.columns
    ]
    assert {name for _, name, _, required, *_ in found if required} >= {
        column.name for column in spec.columns if column.required
    }
    keys = sorted((place, name) for _, name, *_, place in found if place)
    assert tuple(name for _, name in keys) == spec.key


def statements(connection: sqlite3.Connection) -> list[str]:
    """What SQLite keeps as the text of the schema, without the tables that FTS5 makes itself."""
    found = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT GLOB 'jobs_fts_*'"
        " OR type = 'trigger' ORDER BY type = 'trigger', rowid"
    )
    return [str(text) for (text,) in found]


def test_the_text_of_the_schema_is_that_of_its_version() -> None:
    assert statements(built()) == statements_of(schema.VERSION)


def statements_of(version: int) -> list[str]:
    """The text of the schema as a version wrote it."""
    return SCHEMAS[version].removesuffix(";\n").split(";\n\n")


@pytest.mark.parametrize("version", SCHEMAS)
def test_a_file_with_the_schema_as_it_was_written_before_is_opened_and_written_on(
    tmp_path: Path, version: int
) -> None:
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as connection:
        for statement in statements_of(version):
            connection.execute(statement)
        connection.execute("INSERT INTO about VALUES ('cluster', 'rookery')")
        connection.execute("INSERT INTO cursors (shard, idx) VALUES (0, 7)")
        connection.execute(
            "INSERT INTO jobs (id, shard, queue, payload, created_at, changed_at)"
            " VALUES ('a', 0, 'mail', '1', '', '')"
        )
        connection.execute(f"PRAGMA user_version = {version}")

    writing, why = open_writing(tmp_path, "rookery", 1, boot_id="b")
    job = Job(id="b", queue="mail", state=State.PENDING, payload=b"1", created_ns=1, order_ns=1)
    pair = (JOB.prefix + b"b", msgspec.msgpack.encode(job))
    writing.write([Page(Cursor(0, 8), (pair,))])

    assert why == ""
    assert set(tables_in(writing.path)["jobs"]) == {("a", 0), ("b", 0)}


def test_a_column_without_a_source_waits_for_its_feature_or_is_a_number_or_a_sum() -> None:
    unfed = {
        f"{spec.name}.{column.name}"
        for spec in schema.FED
        for column in spec.columns
        if column.source is None
    }

    sums = {f"{spec.name}.sum" for spec in schema.FED}
    assert unfed == PLANNED | {"jobs.row", "job_errors.id"} | sums


def test_what_is_there_from_the_start_is_there() -> None:
    connection = built()

    assert connection.execute("SELECT name FROM namespaces").fetchall() == [("default",)]
    assert connection.execute("SELECT id FROM sso_settings").fetchall() == [("singleton",)]


def test_a_file_that_is_whole_is_left_as_it_is(tmp_path: Path) -> None:
    with closing(built(tmp_path / "m")) as connection:
        before = list(connection.iterdump())

        is_behind = building.prepare(connection, "rookery")

        assert not is_behind
        assert list(connection.iterdump()) == before


def test_an_older_file_gets_what_it_lacks_and_its_rows_are_made_again() -> None:
    connection = built()
    whole = {*names(connection, "table"), *names(connection, "index")}
    connection.execute("INSERT INTO queues (name, shard, created_at) VALUES ('mail', 0, '')")
    connection.execute("DROP TABLE queue_counts")
    connection.execute("DROP INDEX idx_jobs_worker")
    connection.execute("ALTER TABLE queues DROP COLUMN retention_ms")
    connection.execute("ALTER TABLE queues DROP COLUMN draining")
    connection.execute(f"PRAGMA user_version = {schema.VERSION - 1}")

    is_behind = building.prepare(connection, "rookery")

    assert is_behind
    assert {*names(connection, "table"), *names(connection, "index")} == whole
    assert connection.execute("SELECT name, draining, retention_ms FROM queues").fetchall() == [
        ("mail", 0, None)
    ]


def test_a_table_whose_key_has_changed_is_made_again_with_its_indexes() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statement in statements_of(2):
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES ('cluster', 'rookery')")
    connection.execute("PRAGMA user_version = 2")

    is_behind = building.prepare(connection, "rookery")

    put = "INSERT INTO schedules (id, shard, name, queue, cron, payload, created_at, changed_at)"
    for shard, queue in enumerate(("mail", "sms")):
        values = (f"{queue}~nightly", shard, "nightly", queue, "@daily", "{}", "", "")
        connection.execute(f"{put} VALUES ({', '.join('?' * 8)})", values)
    assert is_behind
    assert "idx_schedules_name" in names(connection, "index")
    assert connection.execute("SELECT count(*) FROM schedules").fetchone() == (2,)


def test_a_file_of_another_cluster_is_not_taken() -> None:
    connection = built()

    with pytest.raises(Unfit, match="of cluster rookery"):
        building.prepare(connection, "heronry")


def test_a_file_of_a_newer_version_is_not_taken() -> None:
    connection = built()
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")

    with pytest.raises(Unfit, match="of schema"):
        building.prepare(connection, "rookery")


def test_a_file_of_something_else_is_not_taken() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE jobs (id)")

    with pytest.raises(Unfit, match="not a file of ours"):
        building.prepare(connection, "rookery")


def test_only_the_words_of_what_changed_are_written_again() -> None:
    connection = built()
    job = "INSERT INTO jobs (id, shard, queue, payload, created_at, changed_at, tags)"
    connection.execute(f"{job} VALUES ('a', 0, 'mail', 'rook', '', '', 'x')")
    connection.execute(schema.FILL_FULL_TEXT, (0,))
    blocks = "SELECT count(*) FROM jobs_fts_data"
    before = connection.execute(blocks).fetchone()

    connection.execute("UPDATE jobs SET state = 'active', queue = 'mail', payload = 'rook'")
    untouched = connection.execute(blocks).fetchone()
    connection.execute("UPDATE jobs SET payload = 'raven'")

    assert untouched == before
    for word, count in (("rook", 0), ("raven", 1), ("mail", 1)):
        found = connection.execute("SELECT count(*) FROM jobs_fts WHERE jobs_fts MATCH ?", (word,))
        assert found.fetchone() == (count,), word
