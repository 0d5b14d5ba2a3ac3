"""Opening of the mirror's SQLite file: its tables are created, widened or made again.

`user_version` is the number of the schema. The table `about` says whose the file is, and has the
sum of the schema's text. An older file gets what it lacks; a newer one, or another cluster's, is
not ours. A file that is not taken is removed by the caller: the shards have everything that is in
it.

The import of sqlite-utils takes longer than all else at the start of the process, and is only for
when something is to be built.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

from corvo.errors import CorvoError
from corvo.mirror.config import CHECKPOINT_PAGES
from corvo.mirror.follow.columns import Index, TableSpec
from corvo.mirror.follow.schema import (
    FULL_TEXT,
    FULL_TEXT_OPTIONS,
    FULL_TEXT_STATEMENTS,
    SEEDS,
    TABLES,
    VERSION,
)

if TYPE_CHECKING:
    from sqlite_utils import Database

PAGE_BYTES: Final = 8_192
BUSY_MS: Final = 5_000
"""How long SQLite waits for a lock of somebody else's."""
NO_TEXT: Final = "Could not decode to UTF-8"
"""How the message begins of an error about a text that is no text."""
_CACHE_KIB: Final = 16 << 10
"""Of a connection that reads."""
ENDINGS: Final = ("", "-wal", "-shm", "-journal")
"""Of the files that one file of SQLite's may be."""


class Unfit(CorvoError):
    """The file is not ours, or of no use: it is to be made anew."""


def connect(path: Path, *, checkpoint_pages: int = CHECKPOINT_PAGES) -> sqlite3.Connection:
    """The one connection that writes. Only it may be, and one thread at a time has it."""
    connection = sqlite3.connect(
        path,
        timeout=BUSY_MS / 1_000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )
    for pragma in (
        f"page_size = {PAGE_BYTES}",
        "journal_mode = WAL",
        # A loss of power is noticed, and the file made again: see `corvo.mirror.follow.writing`.
        "synchronous = OFF",
        # A checkpoint by anybody else, at the same time, is what some versions of SQLite get wrong.
        # This is the only connection that can make one.
        f"wal_autocheckpoint = {checkpoint_pages}",
        "temp_store = MEMORY",
        "cache_size = -65536",
        "foreign_keys = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def connect_reading(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, and makes no checkpoint either.

    Raises `sqlite3.Error`, also if SQLite cannot say in UTF-8 what is wrong with the schema.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for pragma in ("query_only = ON", f"cache_size = -{_CACHE_KIB}", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
    except UnicodeDecodeError as error:
        connection.close()
        raise sqlite3.DatabaseError(f"{NO_TEXT}: {error}") from error
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection, cluster: str) -> bool:
    """Make the file what it is to be; whether rows have to be made again from the shards.

    Raises `Unfit` for a file that is not ours, and `sqlite3.DatabaseError` for one that is damaged.
    """
    [version] = connection.execute("PRAGMA user_version").fetchone()
    tables = set(_names(connection, "table"))
    if version == 0 and not tables:
        _build(connection, cluster)
        return False
    if "about" not in tables:
        raise Unfit("it is not a file of ours")
    about = dict(connection.execute("SELECT name, value FROM about"))
    if about.get("cluster") != cluster:
        raise Unfit(f"it is of cluster {about.get('cluster')}")
    if version == VERSION:
        return False
    if version > VERSION:
        raise Unfit(f"it is of schema {version}, and this version knows {VERSION}")
    _build(connection, cluster)
    return True


def sum_of_schema(connection: sqlite3.Connection) -> int:
    """The checksum of the text of the schema."""
    select = "SELECT CAST(type || ' ' || name || ' ' || tbl_name || sql AS BLOB) FROM sqlite_schema"
    found = connection.execute(f"{select} WHERE sql IS NOT NULL ORDER BY 1").fetchall()
    return crc32(b"\n".join(text for (text,) in found))


def _names(connection: sqlite3.Connection, kind: str) -> Iterable[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = ?", (kind,))
    return [str(name) for (name,) in rows]


def _build(connection: sqlite3.Connection, cluster: str) -> None:
    """Make what is not there yet."""
    from sqlite_utils import Database  # noqa: PLC0415 -- heavy, and only needed here

    database = Database(connection, execute_plugins=False)
    _drop_other_keys(connection)
    there = set(_names(connection, "table"))
    indexes = set(_names(connection, "index"))
    triggers = set(_names(connection, "trigger"))
    for spec in TABLES.values():
        if spec.name in there:
            _widen(database, spec)
        else:
            _create(database, spec)
        for index in spec.indexes:
            if index.name not in indexes:
                connection.execute(_index_statement(spec, index))
    for name, statement in FULL_TEXT_STATEMENTS.items():
        if name not in there | triggers:
            connection.execute(statement)
            if name == FULL_TEXT:
                _set_up_full_text(connection)
    if "about" not in there:
        database.table("about").create({"name": str, "value": str}, pk="name", not_null=["value"])
    for seed in SEEDS:
        connection.execute(seed)
    put = "INSERT OR REPLACE INTO about VALUES (?, ?)"
    connection.execute(put, ("cluster", cluster))
    connection.execute(put, ("schema", f"{sum_of_schema(connection)}"))
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _drop_other_keys(connection: sqlite3.Connection) -> None:
    """Remove tables of an older file whose rows were told apart by other columns.

    SQLite cannot change a primary key, and all rows are written again.
    """
    for spec in TABLES.values():
        columns = connection.execute(f"PRAGMA table_info({spec.name})").fetchall()
        keys = sorted((place, name) for _, name, *_, place in columns if place)
        if columns and tuple(name for _, name in keys) != spec.key:
            connection.execute(f"DROP TABLE {spec.name}")


def _set_up_full_text(connection: sqlite3.Connection) -> None:
    into = f"INSERT INTO {FULL_TEXT} ({FULL_TEXT}, rank) VALUES (?, ?)"
    for option, value in FULL_TEXT_OPTIONS.items():
        connection.execute(into, (option, value))
    # An older file may have jobs already.
    connection.execute(into, ("rebuild", None))


def _create(database: "Database", spec: TableSpec) -> None:
    database.table(spec.name).create(
        {column.name: column.type for column in spec.columns},
        pk=spec.key if len(spec.key) > 1 else spec.key[0],
        not_null=[column.name for column in spec.columns if column.required],
        defaults={
            column.name: column.default for column in spec.columns if column.default is not None
        },
    )


def _widen(database: "Database", spec: TableSpec) -> None:
    """Add the columns that an older file lacks."""
    table = database.table(spec.name)
    for column in spec.columns:
        if column.name not in table.columns_dict:
            table.add_column(
                column.name,
                column.type,
                not_null_default=_filler(column.default, column.type) if column.required else None,
            )


def _filler(default: str | int | None, kind: str) -> str | int:
    """What is in an older row until it is made again."""
    if default is not None:
        return default
    return "" if kind == "TEXT" else 0


def _index_statement(spec: TableSpec, index: Index) -> str:
    """sqlite-utils knows no index on a part of the rows."""
    unique = "UNIQUE " if index.is_unique else ""
    where = f" WHERE {index.where}" if index.where else ""
    columns = ", ".join(index.columns)
    return f"CREATE {unique}INDEX {index.name} ON {spec.name} ({columns}){where}"


def remove(path: Path) -> None:
    """Remove the file, and what SQLite has beside it."""
    for ending in ENDINGS:
        path.with_name(path.name + ending).unlink(missing_ok=True)
