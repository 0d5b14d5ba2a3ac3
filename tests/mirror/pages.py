"""What is in the mirror's file, read by whoever looks on."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.mirror.projection import KEYS, Tables


def tables_in(path: Path) -> Tables:
    """The rows of every table that documents feed."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.isolation_level = None
        connection.execute("BEGIN")
        return tables_of_connection(connection)


def tables_of_connection(connection: sqlite3.Connection, *, shard: int | None = None) -> Tables:
    """The same in a transaction that there is, of one shard or all.

    Numbers that only SQLite knows are left out, and sums.
    """
    tables: Tables = {}
    for table, key in KEYS.items():
        found = connection.execute(
            f"SELECT * FROM {table} WHERE ?1 IS NULL OR shard = ?1",  # noqa: S608 -- names of ours
            (shard,),
        )
        names = [column[0] for column in found.description]
        rows = [dict(zip(names, values, strict=True)) for values in found]
        for row in rows:
            del row["sum"]
        tables[table] = {tuple(row[name] for name in key): row for row in rows}
    for row in tables["jobs"].values():
        del row["row"]
    for row in tables["job_errors"].values():
        del row["id"]
    return tables


def words_are_right(connection: sqlite3.Connection) -> None:
    """The file is sound, and full text has the words of all jobs and no others. Raises if not."""
    [(said,)] = connection.execute("PRAGMA integrity_check")
    assert said == "ok", said
    connection.execute("INSERT INTO jobs_fts (jobs_fts, rank) VALUES ('integrity-check', 1)")
