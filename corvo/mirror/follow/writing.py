"""The one connection that writes: pages of documents, each with its cursor, in one transaction.

The rows in the file are always those of its cursors, so a mirror that is killed continues from
there. The file is not synced, because the shards have all of it. After a crash of the machine the
file is not used (`running` names the boot in which it was written). A file that SQLite finds
damaged is removed, and the next start builds it again.
"""

import errno
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import astuple, replace

from corvo import clock
from corvo.errors import CorvoError, StoreFull
from corvo.kv import directories
from corvo.kv.directories import Held
from corvo.mirror.config import CHECKPOINT_PAGES
from corvo.mirror.follow import building, schema
from corvo.mirror.follow.building import Unfit
from corvo.mirror.follow.progress import Cursor, Page
from corvo.mirror.follow.rows import Rows
from corvo.mirror.follow.stale import stale
from corvo.mirror.written_queues import WrittenQueues

NAME: Final = "mirror.db"
STALE_MAX: Final = 5_000
"""Rows that are removed in one transaction because a pass finds them gone."""
_WAITS: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM})
"""Errors that may pass: no disk space, or no memory."""
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})


class Stuck(CorvoError):
    """Nothing could be written, and nothing was. It may be tried again."""


class Damaged(CorvoError):
    """The file is damaged or removed: it has to be built again."""


class Scheduled(NamedTuple):
    """Nanoseconds that a thread ran, and that it waited for a processor."""

    ran: int
    queued: int


def scheduled() -> Scheduled:
    """The times of this thread; 0 where the kernel does not count them."""
    try:
        ran, queued, _ = _SCHEDULED.read_text().split()
    except OSError:
        return Scheduled(0, 0)
    return Scheduled(int(ran), int(queued))


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error of a reader shows that the file is damaged.

    SQLite does not look at texts. Python's module does, and its error has no code: what was written
    was UTF-8.
    """
    return code_of(error) in _DAMAGE or str(error).startswith(building.NO_TEXT)


def code_of(error: sqlite3.Error) -> int:
    """SQLite's code of an error; -1 for an error of Python's module."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else code & 0xFF


class Writing:
    """The file, as its writer has it; made by `open_writing`. One thread at a time uses it."""

    def __init__(self, connection: sqlite3.Connection, directory: Path, held: Held) -> None:
        self._connection = connection
        self._directory = directory
        self._held = held
        self.path: Final = directory / NAME
        self.written: Final = WrittenQueues(f"{clock.now_ns()}")
        self._entries: dict[int, int] = {}
        """By shard, the index of its last page, if that page ended with an entry."""

    def cursors(self, shards: int) -> list[Cursor]:
        """How far each shard was followed."""
        names = ", ".join(schema.CURSORS.names)
        found = {
            int(row[0]): Cursor(*row)
            for row in self._connection.execute(f"SELECT {names} FROM cursors")
        }
        return [found.get(number, Cursor(number)) for number in range(shards)]

    def write(self, pages: Sequence[Page]) -> None:
        """Write pages. Raises `Stuck` and `Damaged`."""
        try:
            are_whole = [self._is_whole_entries(page) for page in pages]
            if not all(are_whole):
                self.written.begin(None)
            for page in pages:
                self._remove_many(page)
            self._connection.execute("BEGIN IMMEDIATE")
            for page in pages:
                self.written.begin(self._write_page(page))
            self._connection.execute("COMMIT")
            self.written.commit()
        except sqlite3.Error as error:
            self._roll_back()
            raise _meaning(error) from error

    def _is_whole_entries(self, page: Page) -> bool:
        """Whether the queues of a page follow from its documents.

        The row of a job that is gone does not name its queue, whose counts the same entry of the
        log changes. They are in another page if it is one of a pass, or a part of an entry.
        """
        cursor = page.cursor
        before = self._entries.pop(cursor.shard, None)
        if page.scanned is not None or not cursor.is_whole:
            return False
        if before is not None and cursor.index <= before:
            return False  # the entry goes on in the next page
        self._entries[cursor.shard] = cursor.index
        return before is not None

    def _write_page(self, page: Page) -> set[str]:
        """Write a page; returns the queues of which it has something."""
        connection = self._connection
        cursor = page.cursor
        rows = Rows(cursor.shard)
        if page.scanned is not None:
            rows.take((key, None) for key in self._stale(page))
        rows.take(page.pairs)
        [(has_locks,)] = connection.execute("SELECT EXISTS (SELECT 1 FROM unique_locks)")
        for statement, values in rows.statements(has_locks=bool(has_locks)):
            if statement == schema.JOB.put:
                [last] = connection.execute(schema.LAST_ROW).fetchone()
                connection.executemany(statement, values)
                connection.execute(schema.FILL_FULL_TEXT, (last,))
            else:
                connection.executemany(statement, values)
        connection.execute(schema.PUT_CURSOR, astuple(cursor))
        return rows.queues

    def _stale(self, page: Page) -> Iterable[bytes]:
        assert page.scanned is not None
        told = frozenset(key for key, _ in page.pairs)
        return stale(self._connection, page.cursor.shard, page.scanned, told)

    def _remove_many(self, page: Page) -> None:
        """Remove stale rows of a page in transactions of their own, while there are many.

        A shard that was reset may leave a million of them.
        """
        if page.scanned is None:
            return
        while len(gone := list(islice(self._stale(page), STALE_MAX))) == STALE_MAX:
            rows = Rows(page.cursor.shard)
            rows.take((key, None) for key in gone)
            self._connection.execute("BEGIN IMMEDIATE")
            for statement, values in rows.statements(has_locks=True):
                self._connection.executemany(statement, values)
            self._connection.execute("COMMIT")

    # SQLite's own log. Now and then it brings what is there to its place by itself, when a
    # transaction ends; readers are neither waited for nor disturbed by that.

    @property
    def wal_bytes(self) -> int:
        """How large SQLite's log is."""
        return _size(self.path.with_name(f"{NAME}-wal"))

    @property
    def file_bytes(self) -> int:
        """How large everything is."""
        return _size(self.path) + self.wal_bytes

    def shrink(self) -> bool:
        """Empty SQLite's log; false if a reader prevents it. Raises `Stuck` and `Damaged`."""
        try:
            # Readers of other processes are nobody's business here, and are not waited for.
            self._connection.execute("PRAGMA busy_timeout = 0")
            [busy, *_] = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise _meaning(error) from error
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {building.BUSY_MS}")
        return not busy

    # The file.

    def settle(self) -> None:
        """Sync the database file. Raises `Damaged`. Any thread may call this.

        The file need not survive a crash. Without this, the kernel writes all of it at once when it
        has become old, and the sync of a shard waits for that.
        """
        try:
            self._held.sync(data_only=True)
        except CorvoError as error:
            # What could not be written may be forgotten, and read as it was before.
            raise Damaged(str(error)) from error

    def check_place(self) -> None:
        """Raise `Damaged` if the file was removed or replaced."""
        if not self._held.is_at(self.path):
            raise Damaged(f"{self.path} was removed while it was open")

    def check_room(self, bytes_min: int) -> None:
        """Raise `Stuck` if less disk space than this is free: the rest is for the shards."""
        if directories.room(self._directory) < bytes_min:
            raise Stuck(
                f"less than {bytes_min} bytes of disk space are free (mirror.room_bytes_min)"
            )

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Make everything durable, so that the next boot trusts the file.

        SQLite's log is synced and left to the next start. Bringing it to its place is most of what
        a close would cost, on a disk that is busy with the stop of all shards.
        """
        log = self.path.with_name(f"{NAME}-wal")
        try:
            # The last connection empties the log, unless it can only read.
            place = f"{self.path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(place, uri=True)) as reader:
                reader.execute("PRAGMA user_version").fetchone()
                self._connection.close()
            if directories.exists(log):
                directories.sync(log)
            self._held.sync()
            directories.sync_names(self._directory)
        except (sqlite3.Error, CorvoError):
            return  # the mark stays: what is there is not believed after a crash of the machine
        finally:
            self._held.close()
        (self._directory / _MARK).unlink(missing_ok=True)


def _meaning(error: sqlite3.Error) -> Stuck | Damaged:
    """The exception for an error of SQLite. Our statements are valid: other errors are damage."""
    said = f"{getattr(error, 'sqlite_errorname', 'SQLite')}: {error}"
    return Stuck(said) if code_of(error) in _WAITS else Damaged(said)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


# Opening.

_MARK: Final = "running"
"""A file that exists while the database is written, with the id of the boot."""
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def open_writing(
    directory: Path,
    cluster: str,
    shards: int,
    *,
    boot_id: str,
    checkpoint_pages: int = CHECKPOINT_PAGES,
) -> tuple[Writing, str]:
    """The file, built if necessary, and why an older one was discarded; empty if it was not.

    Raises `Stuck` when there is no room, and `Damaged` when nothing helps.
    """
    path = directory / NAME
    with _needing_room():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        why = _distrust(directory, boot_id)
        if why:
            building.remove(path)
        _mark(directory, boot_id)
    try:
        return _open(path, cluster, shards, checkpoint_pages), why
    except (sqlite3.Error, Unfit, ValueError, TypeError) as error:
        if isinstance(error, sqlite3.Error) and code_of(error) in _WAITS:
            raise _meaning(error) from error
        why = str(error)
    building.remove(path)
    try:
        return _open(path, cluster, shards, checkpoint_pages), why
    except sqlite3.Error as error:
        raise _meaning(error) from error


def _open(path: Path, cluster: str, shards: int, checkpoint_pages: int) -> Writing:
    with ExitStack() as undo:
        # Closed behind SQLite's own: with any descriptor of a file a process loses its locks there.
        with _needing_room():
            held = Held(path)
        undo.callback(held.close)
        connection = building.connect(path, checkpoint_pages=checkpoint_pages)
        undo.callback(connection.close)
        is_behind = building.prepare(connection, cluster)
        # There are never fewer than there were: what is beyond is another cluster's.
        writing = Writing(connection, path.parent, held)
        for cursor in writing.cursors(shards):
            begun = replace(cursor, pass_key=b"") if is_behind else cursor
            connection.execute(schema.PUT_CURSOR, astuple(begun))
        undo.pop_all()
    return writing


@contextmanager
def _needing_room() -> Iterator[None]:
    try:
        yield
    except StoreFull as error:
        raise Stuck(str(error)) from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise Stuck(str(error)) from error
        raise


def _distrust(directory: Path, boot_id: str) -> str:
    """The reason why the present file is not trusted; empty if it is."""
    mark = directory / _MARK
    if not mark.exists() or not (directory / NAME).exists():
        return ""
    if mark.read_text(errors="replace") == boot_id:
        return ""
    return "the machine went down while it was being written"


def _mark(directory: Path, boot_id: str) -> None:
    """Note durably that the file is written in this boot."""
    mark = directory / _MARK
    with suppress(FileNotFoundError):
        if mark.read_text(errors="replace") == boot_id:
            return
    fresh = directory / f"{_MARK}.new"
    fresh.write_text(boot_id)
    directories.sync(fresh)
    directories.rename(fresh, mark)
    directories.sync_names(directory)
