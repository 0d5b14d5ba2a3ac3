"""Check of the mirror: its file, and its rows against the documents of the shards.

SQLite writes beside a file that it reads, so a copy is checked. Rows and documents are read side by
side in the order of their keys. A mirror that is behind its shard is compared without the documents
that the feed of the shard says have changed since.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from corvo.errors import CorvoError
from corvo.kv import directories, keys
from corvo.kv.feed import Feed
from corvo.kv.keys import prefix_end
from corvo.kv.store import Store
from corvo.kv.tables import read_meta
from corvo.mirror.follow import building, schema
from corvo.mirror.follow.columns import TableSpec, Value
from corvo.mirror.follow.progress import Cursor
from corvo.mirror.follow.rows import lock_of, row_of
from corvo.mirror.follow.writing import NAME
from corvo.shard.recount.rows import rows
from corvo.verify.node_files import reading
from corvo.verify.report import Part
from corvo.verify.shards import Together

REBUILD: Final = (
    "remove the directory `mirror` of the stopped node: the next start makes it again of the"
    " shards, and nothing is lost"
)
CHANGED_MAX: Final = 200_000
"""Documents changed after the mirror's position that are left out of a comparison."""
_PROBLEMS_MAX: Final = 20
_ROOM_BYTES: Final = 256 << 20
_WRITTEN_EVERY: Final = 1_024

Fields = tuple[Value, ...]
Pair = tuple[Fields, Fields]
"""The key of a row, and the row."""


class _Kind(NamedTuple):
    """Documents of one space, and their rows."""

    space: keys.Space
    table: TableSpec
    key: tuple[str, ...]
    """How SQL has the fields of a document's key."""


_KINDS: Final = (
    _Kind(keys.JOB, schema.JOBS, ("id",)),
    _Kind(keys.JOB_ERROR, schema.JOB_ERRORS, ("job_id", "number")),
    _Kind(keys.QUEUE_CONFIG, schema.QUEUES, ("name",)),
    _Kind(keys.COUNTS, schema.QUEUE_COUNTS, ("queue",)),
    _Kind(keys.THROUGHPUT, schema.THROUGHPUT, ("queue", "minute % 64")),
    _Kind(keys.BATCH, schema.BATCHES, ("id",)),
    _Kind(keys.WORKER, schema.WORKERS, ("id",)),
    _Kind(keys.SCHEDULE, schema.SCHEDULES, ("id",)),
)
_LOCKS: Final = _Kind(keys.JOB, schema.UNIQUE_LOCKS, ("job_id",))


def verify_mirror(
    root: Path,
    scratch: Path,
    together: Together,
    cluster: str,
    part: Part,
    step: Callable[[int], None],
    boot_id: str,
) -> None:
    """Check the file of a stopped mirror."""
    copy = None
    with reading(part, f"mirror/{NAME}"):
        copy = _copied(root, scratch, part, boot_id)
    if copy is not None:
        _verify_copy(copy, together, cluster, part, step)
        building.remove(copy)


def _copied(root: Path, scratch: Path, part: Part, boot_id: str) -> Path | None:
    """A copy of the file and of SQLite's log; None if there is nothing to be checked."""
    place, log = root / NAME, root / f"{NAME}-wal"
    where = f"mirror/{NAME}"
    if not place.exists():
        part.remark(where, "there is no file; the next start makes it")
        return None
    mark = root / "running"
    if mark.exists() and mark.read_text(errors="replace") != boot_id:
        why = "the machine went down while it was written; the next start makes it again"
        part.remark(where, why)
        return None
    sources = [source for source in (place, log) if source.exists()]
    size = sum(source.stat().st_size for source in sources)
    if directories.room(scratch) < size + _ROOM_BYTES:
        why = f"a copy needs {size} bytes, and {scratch} does not have them"
        part.skipped(where, why, "pass a directory with room:   --scratch DIR")
        return None
    for source in sources:
        with source.open("rb"):
            pass  # one that this user may not read is told as such
        directories.write(scratch / source.name, directories.pieces(source))
    return scratch / NAME


def _verify_copy(
    copy: Path, together: Together, cluster: str, part: Part, step: Callable[[int], None]
) -> None:
    where = f"mirror/{NAME}"
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA temp_store = FILE")
            problems = connection.execute(f"PRAGMA integrity_check({_PROBLEMS_MAX})").fetchall()
            for (problem,) in problems:
                if problem != "ok":
                    part.wrong(where, str(problem), REBUILD)
            if not _is_ours(connection, cluster, part):
                return
            _check_full_text(connection, part)
            for row in connection.execute(f"SELECT {_CURSOR_COLUMNS} FROM cursors ORDER BY shard"):
                _verify_rows(connection, Cursor(*row), together, part, step)
    except sqlite3.DatabaseError as error:
        part.wrong(where, f"SQLite cannot read it: {error}", REBUILD)


_CURSOR_COLUMNS: Final = ", ".join(schema.CURSORS.names)


def _is_ours(connection: sqlite3.Connection, cluster: str, part: Part) -> bool:
    """Whether the rows can be compared."""
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version != schema.VERSION:
        why = f"it has schema {version}, and this version {schema.VERSION}"
        part.skipped(f"mirror/{NAME}", why, "start the server once: it brings the file up to date")
        return False
    there = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    wanted = {*schema.TABLES, *schema.FULL_TEXT_STATEMENTS, "about"}
    wanted |= {index.name for spec in schema.TABLES.values() for index in spec.indexes}
    for name in sorted(wanted - there):
        part.wrong(f"mirror/{NAME}", f"{name} is missing", REBUILD)
    if wanted - there:
        return False
    about = dict(connection.execute("SELECT name, value FROM about"))
    if about.get("cluster") != cluster:
        part.wrong(f"mirror/{NAME}", f"it is of cluster {about.get('cluster')}", REBUILD)
        return False
    return True


def _check_full_text(connection: sqlite3.Connection, part: Part) -> None:
    """The words of all jobs are those in the index of words."""
    name = schema.FULL_TEXT
    try:
        connection.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        part.wrong(f"mirror/{NAME}, {name}", f"does not have the words of jobs: {error}", REBUILD)


# Rows and documents.


def _verify_rows(
    connection: sqlite3.Connection,
    cursor: Cursor,
    together: Together,
    part: Part,
    step: Callable[[int], None],
) -> None:
    shard = cursor.shard
    where = f"mirror/{NAME}, shard {shard}"
    store = together.stores.get(shard)
    if store is None:
        part.remark(where, "its rows are not compared: the shard is not here, or not whole")
        return
    try:
        changed = _changed_since(cursor, store, where, part)
    except (CorvoError, msgspec.MsgspecError) as error:
        part.skipped(where, f"the feed of the shard cannot be read: {error}")
        return
    if changed is None:
        return
    count = 0
    for kind in (*_KINDS, _LOCKS):
        count += _compare(connection, kind, shard, store, changed, part, step)
    part.count(count, f"row of shard {shard}", f"rows of shard {shard}")


def _changed_since(
    cursor: Cursor, store: Store, where: str, part: Part
) -> Collection[bytes] | None:
    """The documents that changed after a mirror's position; None if it is not known."""
    meta = read_meta(store)
    feed = Feed(store, applied=meta.applied, digest=meta.digest, bytes_max=1 << 62)
    then = "the next start reads all documents again"
    if not cursor.is_whole:
        part.remark(where, f"its rows are not compared: they are being made; {then}")
        return None
    if cursor.index > meta.applied:
        why = f"at entry {cursor.index}, and the shard at {meta.applied}"
        part.remark(where, f"its rows are not compared: they are {why}; {then}")
        return None
    digest = feed.digest_at(cursor.index)
    if digest is None:
        why = f"at entry {cursor.index}, and the feed begins after {feed.begin.index}"
        part.remark(where, f"its rows are not compared: they are {why}; {then}")
        return None
    if digest != cursor.digest:
        part.wrong(where, f"its rows at entry {cursor.index} are of another log", REBUILD)
        return None
    if cursor.through > meta.applied:
        part.remark(where, f"its rows are newer than the shard; {then}")
        return None
    changed: set[bytes] = set()
    for index in range(cursor.index + 1, meta.applied + 1):
        row, _ = feed.row(index)
        changed.update(row.keys)
        if len(changed) > CHANGED_MAX:
            part.remark(where, f"its rows are not compared: {then}")
            return None
    if cursor.index < meta.applied:
        part.remark(
            where,
            f"is {meta.applied - cursor.index} entries behind; {len(changed)} documents that they"
            " changed are not compared",
        )
    return changed


def _compare(
    connection: sqlite3.Connection,
    kind: _Kind,
    shard: int,
    store: Store,
    changed: Collection[bytes],
    part: Part,
    step: Callable[[int], None],
) -> int:
    """Compare all rows of one kind; returns how many there are."""
    table = f"mirror/{NAME}, {kind.table.name} of shard {shard}"
    due = _due(kind, shard, store, changed)
    found = _found(connection, kind, shard, changed)
    count = 0
    wanted, stored = next(due, None), next(found, None)
    while wanted is not None or stored is not None:
        count += 1
        if count % _WRITTEN_EVERY == 0:
            step(_WRITTEN_EVERY)
        if stored is None or (wanted is not None and _order(wanted) < _order(stored)):
            assert wanted is not None
            part.wrong(f"{table}, {_named(wanted)}", "the row is missing", REBUILD)
            wanted = next(due, None)
        elif wanted is None or _order(stored) < _order(wanted):
            problem = "the row is of nothing that the shard has"
            part.wrong(f"{table}, {_named(stored)}", problem, REBUILD)
            stored = next(found, None)
        else:
            if wanted[1] != stored[1]:
                part.wrong(f"{table}, {_named(stored)}", _difference(kind, wanted, stored), REBUILD)
            wanted, stored = next(due, None), next(found, None)
    return count


def _order(pair: Pair) -> tuple[bytes | int, ...]:
    """The place of a row: SQLite orders texts by their bytes."""
    return tuple(
        each.encode("utf-8", "surrogatepass") if isinstance(each, str) else int(each or 0)
        for each in pair[0]
    )


def _named(pair: Pair) -> str:
    return " ".join(str(each) for each in pair[0])


def _names(kind: _Kind) -> list[str]:
    return [column.name for column in kind.table.columns if column.source is not None]


def _difference(kind: _Kind, wanted: Pair, stored: Pair) -> str:
    for name, one, other in zip(_names(kind), wanted[1], stored[1], strict=True):
        if one != other:
            return f"{name} is {str(other)[:80]!r}, and in the shard {str(one)[:80]!r}"
    return "it differs"


def _due(kind: _Kind, shard: int, store: Store, changed: Collection[bytes]) -> Iterator[Pair]:
    """The rows that follow from the documents; those that cannot be read are told elsewhere."""
    prefix = kind.space.prefix
    for key, data in rows(store, prefix, prefix_end(prefix)):
        if key in changed:
            continue
        try:
            name = kind.space.parse(key)
            row = lock_of(shard, data) if kind is _LOCKS else row_of(shard, key, data)
        except (CorvoError, msgspec.MsgspecError, ValueError, LookupError):
            continue
        if row is not None:
            yield tuple(each for each in name if isinstance(each, str | int)), row


def _found(
    connection: sqlite3.Connection, kind: _Kind, shard: int, changed: Collection[bytes]
) -> Iterator[Pair]:
    """The rows that are stored, in the order of their documents' keys."""
    by, width = ", ".join(kind.key), len(kind.key)
    select = (
        f"SELECT {by}, {', '.join(_names(kind))} FROM {kind.table.name}"
        f" WHERE shard = ? ORDER BY {by}"
    )
    for row in connection.execute(select, (shard,)):
        fields = row[:width]
        if changed and _key(kind, fields) in changed:
            continue
        yield fields, row[width:]


def _key(kind: _Kind, fields: Fields) -> bytes:
    """The document's key of a row."""
    try:
        return kind.space.build(*(each for each in fields if isinstance(each, str | int)))
    except CorvoError:
        return b""
