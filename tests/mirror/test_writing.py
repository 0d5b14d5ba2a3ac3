"""The file in its writer's hands: a write is one transaction, and what may be wrong is not kept."""

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import pytest

from corvo.mirror.follow import building, schema
from corvo.mirror.follow import writing as module
from corvo.mirror.follow.progress import Cursor, Page
from corvo.mirror.follow.rows import BadDocument
from corvo.mirror.follow.writing import NAME, Damaged, Stuck, Writing, is_damage, open_writing
from corvo.mirror.query.reading import Reading
from corvo.model import Job, State
from tests.mirror.pages import tables_in, words_are_right

CURSOR: Final = Cursor(0, 7, 70, 700, 9, b"j|a", 90)
COUNT: Final = "SELECT count(*) FROM jobs"


def opened(directory: Path, boot_id: str = "one", shards: int = 1) -> tuple[Writing, str]:
    return open_writing(directory, "rookery", shards, boot_id=boot_id)


def of_jobs(*ids: str, queue: str = "mail") -> tuple[tuple[bytes, bytes], ...]:
    jobs = [
        Job(id=it, queue=queue, state=State.DEAD, payload=b'"rook"', created_ns=1, order_ns=1)
        for it in ids
    ]
    return tuple((b"j|" + job.id.encode(), msgspec.msgpack.encode(job)) for job in jobs)


def ids_in(writing: Writing) -> list[object]:
    return [row["id"] for row in tables_in(writing.path)["jobs"].values()]


def test_rows_and_cursor_are_there_after_the_writer_was_lost(tmp_path: Path) -> None:
    first, _ = opened(tmp_path)
    first.write([Page(CURSOR, of_jobs("a"))])

    second, why = opened(tmp_path)

    assert why == ""
    assert second.cursors(2) == [CURSOR, Cursor(1)]
    assert ids_in(second) == ["a"]


def test_pages_of_one_write_come_all_or_not_at_all(tmp_path: Path) -> None:
    writing, _ = opened(tmp_path)
    bad = Page(CURSOR, ((b"j|b", b"\x01"),))

    with pytest.raises(BadDocument):
        writing.write([Page(CURSOR, of_jobs("a")), bad])
    other, _ = opened(tmp_path)

    assert ids_in(other) == []
    assert other.cursors(1) == [Cursor(0)]


def test_after_a_crash_of_the_machine_the_file_is_not_believed(tmp_path: Path) -> None:
    first, _ = opened(tmp_path)
    first.write([Page(CURSOR, of_jobs("a"))])

    second, why = opened(tmp_path, boot_id="two")

    assert "machine went down" in why
    assert ids_in(second) == []
    assert second.cursors(1) == [Cursor(0)]


def test_a_file_that_was_closed_is_believed_in_the_next_boot(tmp_path: Path) -> None:
    first, _ = opened(tmp_path)
    first.write([Page(CURSOR, of_jobs("a"))])
    first.close()

    second, why = opened(tmp_path, boot_id="two")

    assert why == ""
    assert ids_in(second) == ["a"]
    assert [path.name for path in tmp_path.iterdir() if path.name == "running"]


def test_a_close_leaves_sqlite_s_log_to_the_next_start(tmp_path: Path) -> None:
    """A checkpoint would make a stop longer."""
    first, _ = opened(tmp_path)
    first.write([Page(CURSOR, of_jobs("a"))])
    before, in_log = (tmp_path / NAME).read_bytes(), first.wal_bytes

    first.close()

    assert (tmp_path / NAME).read_bytes() == before
    assert (tmp_path / f"{NAME}-wal").stat().st_size == in_log > 0


@pytest.mark.parametrize("size", [0, 10, 5_000])
def test_a_file_of_garbage_is_made_anew(tmp_path: Path, size: int) -> None:
    (tmp_path / NAME).write_bytes(os.urandom(size))

    writing, why = opened(tmp_path)

    assert bool(why) == bool(size)
    writing.write([Page(CURSOR, of_jobs("a"))])
    assert ids_in(writing) == ["a"]


def test_a_file_that_was_cut_is_made_anew(tmp_path: Path) -> None:
    first, _ = opened(tmp_path)
    first.write([Page(CURSOR, of_jobs(*(f"j{number}" for number in range(100))))])
    first.shrink()
    first.close()
    os.truncate(tmp_path / NAME, (tmp_path / NAME).stat().st_size // 2)

    second, why = opened(tmp_path)

    assert why
    assert second.cursors(1) == [Cursor(0)]


def test_damage_that_is_met_while_writing_is_said(tmp_path: Path) -> None:
    first, _ = opened(tmp_path)
    first.close()
    with closing(sqlite3.connect(tmp_path / NAME)) as connection:
        connection.execute("DROP TABLE queue_counts")
    writing, _ = opened(tmp_path)

    with pytest.raises(Damaged):
        writing.write([Page(CURSOR, ((b"qs|mail", msgspec.msgpack.encode([1] * 8)),))])


def test_a_removed_file_is_noticed(tmp_path: Path) -> None:
    writing, _ = opened(tmp_path)
    writing.check_place()
    (tmp_path / NAME).unlink()

    with pytest.raises(Damaged, match="removed"):
        writing.check_place()


def test_a_file_that_was_removed_while_it_was_being_opened_is_noticed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(path: Path, *, checkpoint_pages: int) -> sqlite3.Connection:
        path.unlink()
        return right(path, checkpoint_pages=checkpoint_pages)

    right = building.connect
    monkeypatch.setattr(building, "connect", connect)
    writing, _ = opened(tmp_path)

    with pytest.raises(Damaged, match="removed"):
        writing.check_place()


def test_settling_leaves_sqlite_its_locks(tmp_path: Path) -> None:
    writing, _ = opened(tmp_path)
    writing.write([Page(CURSOR, of_jobs("a"))])

    writing.settle()
    # Whoever leaves a file last empties its log: another process must see that we are there.
    look = f"import sqlite3; print(*sqlite3.connect({str(tmp_path / NAME)!r}).execute({COUNT!r}))"
    said = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)

    assert said.stdout == "(1,)\n"
    assert writing.wal_bytes
    writing.write([Page(CURSOR, of_jobs("b"))])
    assert ids_in(writing) == ["a", "b"]
    writing.close()


def test_what_the_disk_does_not_take_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    writing, _ = opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(Damaged, match="cannot sync"):
            writing.settle()
    writing.settle()


def test_sqlite_s_log_is_used_again_when_it_is_long(tmp_path: Path) -> None:
    writing, _ = open_writing(tmp_path, "rookery", 1, boot_id="one", checkpoint_pages=50)

    for number in range(100):
        writing.write([Page(CURSOR, of_jobs(*(f"j{number:03}-{each}" for each in range(20))))])

    # A page has a header of its own there, and the last transaction is written behind the limit.
    assert writing.wal_bytes < 200 * building.PAGE_BYTES
    assert writing.file_bytes > 2 * writing.wal_bytes


def test_too_little_room_is_no_damage(tmp_path: Path) -> None:
    writing, _ = opened(tmp_path)

    writing.check_room(0)
    with pytest.raises(Stuck, match="room"):
        writing.check_room(1 << 62)


def test_a_full_file_is_tried_again_and_nothing_is_lost(tmp_path: Path) -> None:
    writing, _ = opened(tmp_path)
    connection = writing._connection
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    page = Page(CURSOR, of_jobs(*(f"j{number}" for number in range(500))))

    with pytest.raises(Stuck):
        writing.write([page])
    connection.execute("PRAGMA max_page_count = 100000")
    writing.write([page])

    assert len(ids_in(writing)) == 500
    words_are_right(connection)


def test_very_many_rows_that_are_gone_are_removed_little_by_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALE_MAX", 7)
    writing, _ = opened(tmp_path)
    writing.write([Page(CURSOR, of_jobs(*(f"j{number:02}" for number in range(30))))])

    writing.write([Page(CURSOR, of_jobs("j05"), (b"j|j03", b"j|j28"))])

    assert ids_in(writing) == ["j00", "j01", "j02", "j03", "j05", "j29"]
    words_are_right(writing._connection)


def test_full_text_follows_what_is_written(tmp_path: Path) -> None:
    writing, _ = opened(tmp_path)

    writing.write([Page(CURSOR, of_jobs("a", "b"))])
    writing.write([Page(CURSOR, (*of_jobs("b", queue="sms"), (b"j|a", None), *of_jobs("c")))])
    writing.write([Page(CURSOR, ((b"j|c", None), *of_jobs("d")))])

    words_are_right(writing._connection)
    found = writing._connection.execute(
        "SELECT id FROM jobs_fts WHERE jobs_fts MATCH 'rook' ORDER BY id"
    ).fetchall()
    assert found == [("b",), ("d",)]


def test_a_reader_makes_no_checkpoint(tmp_path: Path) -> None:
    writing, _ = opened(tmp_path)
    writing.write([Page(CURSOR, of_jobs("a"))])
    before = (tmp_path / NAME).read_bytes()

    place = f"{(tmp_path / NAME).as_uri()}?mode=ro"
    with closing(sqlite3.connect(place, uri=True)) as reader:
        assert reader.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
        with pytest.raises(sqlite3.OperationalError):
            reader.execute("DELETE FROM jobs")

    assert (tmp_path / NAME).read_bytes() == before
    assert writing.wal_bytes


def test_sqlite_s_log_is_emptied_unless_somebody_reads_in_it(tmp_path: Path) -> None:
    writing, _ = opened(tmp_path)
    writing.write([Page(CURSOR, of_jobs("a"))])
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchone()
        writing.write([Page(CURSOR, of_jobs("b"))])

        assert not writing.shrink()
        assert writing._connection.execute("PRAGMA busy_timeout").fetchone() == (building.BUSY_MS,)
        reader.execute("ROLLBACK")
        assert writing.shrink()

    assert writing.wal_bytes == 0


def test_what_a_question_did_wrong_is_no_damage() -> None:
    connection = sqlite3.connect(":memory:")

    with pytest.raises(sqlite3.Error) as caught:
        connection.execute("SELECT * FROM nowhere")

    assert not is_damage(caught.value)


def test_a_text_that_is_no_text_any_more_is_damage() -> None:
    """Found by a run that flips a bit in the file: seed 7002. Each page with the row was a 500."""
    connection = sqlite3.connect(":memory:")
    reading = Reading(connection, clock=lambda: 0, now_ns=0)

    with pytest.raises(sqlite3.OperationalError) as caught:
        reading.retried(lambda: reading.run("SELECT CAST(x'32EE36' AS TEXT)").fetchone())

    assert is_damage(caught.value)


def test_an_older_schema_keeps_its_rows_and_begins_a_pass(tmp_path: Path) -> None:
    first, _ = opened(tmp_path)
    first.write([Page(msgspec.structs.replace(CURSOR, pass_key=None), of_jobs("a"))])
    first._connection.execute(f"PRAGMA user_version = {schema.VERSION - 1}")

    second, why = opened(tmp_path)

    assert why == ""
    assert ids_in(second) == ["a"]
    assert second.cursors(1) == [msgspec.structs.replace(CURSOR, pass_key=b"")]


def test_what_a_thread_had_of_processors_is_told_or_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "schedstat"
    monkeypatch.setattr(module, "_SCHEDULED", file)

    uncounted = module.scheduled()
    file.write_text("17 4 2\n")
    counted = module.scheduled()

    assert uncounted == (0, 0)
    assert counted == (17, 4)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_who_finds_no_room_to_begin_in_may_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", fail)
        with pytest.raises((Stuck, PermissionError)) as caught:
            opened(tmp_path)
    writing, why = opened(tmp_path)

    assert isinstance(caught.value, Stuck) == (number != errno.EACCES)
    assert (why, writing.cursors(1)) == ("", [Cursor(0)])
