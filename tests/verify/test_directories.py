"""A whole directory is whole and stays as it is; each kind of damage to a file is found."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from corvo.kv.feed import Row
from corvo.kv.keys import EVENT
from corvo.raft import Membership
from corvo.raft.disk.files import RealFiles
from corvo.raft.disk.identity import read_identity
from corvo.raft.disk.snapshot_files import begin_incoming
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.messages import Snapshot
from corvo.verify.report import DAMAGED, INCOMPLETE, WHOLE
from tests.verify.looking import (
    content_of,
    damage_of,
    flip,
    keys_of,
    notes_of,
    unchecked_of,
    verified,
)


def one(directory: Path, pattern: str) -> Path:
    """The first file of a pattern."""
    found = sorted(directory.glob(pattern))
    assert found, pattern
    return found[0]


def test_a_whole_directory_is_whole_and_not_changed(whole: Path) -> None:
    before = content_of(whole)

    report = verified(whole)

    assert content_of(whole) == before
    assert (report.status, damage_of(report), unchecked_of(report)) == (WHOLE, [], [])
    assert notes_of(report) == []
    checked = {part.name: ", ".join(part.checked) for part in report.parts}
    assert [*checked] == ["node", "shard 0", "shard 1", "between shards", "mirror"]
    assert "checkpoint" in checked["shard 0"]
    assert "1 batch" in checked["shard 1"]
    assert "rows of shard 1" in checked["mirror"]


Damage = Callable[[Path], None]


def _flip(pattern: str, offset: int) -> Damage:
    return lambda directory: flip(one(directory, pattern), offset)


def _remove(pattern: str) -> Damage:
    return lambda directory: one(directory, pattern).unlink()


def _write(name: str, text: str) -> Damage:
    def damage(directory: Path) -> None:
        (directory / name).write_text(text)

    return damage


def _both_slots(directory: Path) -> None:
    for offset in (3, 4099):
        flip(directory / "shard-0/log/hard-state", offset)


def _cut(pattern: str, size: int) -> Damage:
    def damage(directory: Path) -> None:
        path = one(directory, pattern)
        path.write_bytes(path.read_bytes()[:size])

    return damage


def _swap(directory: Path) -> None:
    """The logs of two shards."""
    (directory / "shard-0/log").rename(directory / "log")
    (directory / "shard-1/log").rename(directory / "shard-0/log")
    (directory / "log").rename(directory / "shard-1/log")


def _shorten_log(directory: Path) -> None:
    """A log that was created again."""
    shutil.rmtree(directory / "shard-0/log")
    files = RealFiles(directory / "shard-1/log")
    identity = read_identity(files)
    files.close()
    (directory / "shard-0/log").mkdir()
    cluster = identity.cluster.replace("/1/", "/0/")
    fresh = RealFiles(directory / "shard-0/log")
    mine = msgspec.structs.replace(identity, cluster=cluster, instance=1)
    DiskStorage.open(fresh, mine, Membership(voters=(identity.replica,))).close()


def _sql(*statements: str) -> Damage:
    def damage(directory: Path) -> None:
        connection = sqlite3.connect(directory / "mirror/mirror.db", isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()

    return damage


def _flip_header(directory: Path) -> None:
    _sql()(directory)
    flip(directory / "mirror/mirror.db", 3)


def _flip_page(directory: Path) -> None:
    """A page of an index of the mirror."""
    _sql()(directory)
    path = directory / "mirror/mirror.db"
    connection = sqlite3.connect(path)
    select = "SELECT rootpage FROM sqlite_master WHERE name = 'idx_jobs_id'"
    [page] = connection.execute(select).fetchone()
    connection.close()
    flip(path, page * 8_192 - 3)


LAST = "shard-0/log/log-*.seg"
FILES: dict[str, tuple[Damage, str]] = {
    "identity of the node": (_flip("node.json", 1), "node.json"),
    "identity of the node is missing": (_remove("node.json"), "node.json"),
    "cluster map": (_write("cluster.json", "{"), "cluster.json"),
    "cluster map without nodes": (
        _write("cluster.json", '{"nodes": [], "last_number": 0, "places": []}'),
        "cluster.json",
    ),
    "release": (_write("release.json", "{"), "release.json"),
    "instance": (_write("instance", "abc"), "instance"),
    "note of a shard": (_flip("known/shard-0.json", 0), "known/shard-0.json"),
    "shard is missing": (lambda it: shutil.rmtree(it / "shard-0"), "shard-0"),
    "log is missing": (lambda it: shutil.rmtree(it / "shard-0/log"), "shard-0/log"),
    "state is missing": (lambda it: shutil.rmtree(it / "shard-0/state"), "shard-0/state"),
    "logs of two shards": (_swap, "shard-0/log"),
    "log was created again": (_shorten_log, "shard-0/log"),
    "identity of a log": (_flip("shard-0/log/identity", 25), "shard-0/log/identity"),
    "identity of a log is missing": (_remove("shard-0/log/identity"), "shard-0/log/identity"),
    "hard state": (_both_slots, "shard-0/log/hard-state"),
    "hard state is missing": (_remove("shard-0/log/hard-state"), "shard-0/log/hard-state"),
    "manifest": (_flip("shard-0/log/manifest", 30), "shard-0/log/manifest"),
    "manifest is missing": (_remove("shard-0/log/manifest"), "shard-0/log/manifest"),
    "header of a segment": (_flip(LAST, 25), "shard-0/log/log-"),
    "record of a segment": (_flip(LAST, 12_300), "shard-0/log/log-"),
    "last record of a segment": (_flip(LAST, -1), "shard-0/log/log-"),
    "end of a segment": (_cut(LAST, 12_400), "shard-0/log/log-"),
    "segment is missing": (_remove(LAST), "shard-0/log/log-"),
    "sums of a checkpoint": (_flip("shard-0/state/checkpoint-*/sums", 30), "/sums"),
    "sums are missing": (_remove("shard-0/state/checkpoint-*/sums"), "/sums"),
    "table of a checkpoint": (_flip("shard-0/state/checkpoint-*/*.ldb", 40), ".ldb"),
    "table of a checkpoint is missing": (_remove("shard-0/state/checkpoint-*/*.ldb"), ".ldb"),
    "manifest of a checkpoint": (_flip("shard-0/state/checkpoint-*/MANIFEST-*", 9), "MANIFEST-"),
    "CURRENT of a checkpoint": (_flip("shard-0/state/checkpoint-*/CURRENT", 3), "CURRENT"),
    "manifest of the live state": (_cut("shard-0/state/live/MANIFEST-*", 40), "live"),
    "CURRENT of the live state": (_remove("shard-0/state/live/CURRENT"), "live"),
    "log of the live state": (_remove("shard-0/state/live/*.log"), "live"),
    "table of the live state": (_flip("shard-0/state/live/*.ldb", 40), "shard-0/state"),
    "table of the live state is missing": (_remove("shard-0/state/live/*.ldb"), "live"),
    "poison": (_write("shard-0/poison", "{"), "shard-0/poison"),
    "header of the mirror": (_flip_header, "mirror/mirror.db"),
    "page of the mirror": (_flip_page, "mirror/mirror.db"),
    "row of a job": (_sql("DELETE FROM jobs WHERE state = 'dead'"), "jobs of shard"),
    "column of a job": (_sql("UPDATE jobs SET attempt = 9 WHERE state = 'dead'"), "jobs of shard"),
    "row of no job": (
        _sql("UPDATE jobs SET id = 'x' WHERE row = 1"),
        "jobs of shard",
    ),
    "row of an error": (_sql("DELETE FROM job_errors WHERE id = 1"), "job_errors of shard"),
    "row of a lock": (_sql("DELETE FROM unique_locks"), "unique_locks of shard"),
    "row of a queue": (_sql("DELETE FROM queues WHERE name = 'mail'"), "queues of shard"),
    "count of a queue": (_sql("UPDATE queue_counts SET dead = 7"), "queue_counts of shard"),
    "row of a batch": (_sql("DELETE FROM batches"), "batches of shard"),
    "row of a worker": (_sql("DELETE FROM workers"), "workers of shard"),
    "row of a minute": (_sql("UPDATE throughput SET started = 77"), "throughput of shard"),
    "row of a schedule": (_sql("DELETE FROM schedules"), "schedules of shard"),
    "trigger of the mirror": (_sql("DROP TRIGGER jobs_fts_update"), "mirror/mirror.db"),
    "words of jobs": (
        _sql("INSERT INTO jobs_fts (jobs_fts) VALUES ('delete-all')"),
        "mirror/mirror.db, jobs_fts",
    ),
    "cluster of the mirror": (_sql("UPDATE about SET value = 'x'"), "mirror/mirror.db"),
    "index of the mirror": (_sql("DROP INDEX idx_jobs_id"), "mirror/mirror.db"),
    "position of the mirror": (_sql("UPDATE cursors SET digest = 1"), "mirror/mirror.db, shard"),
}


@pytest.mark.parametrize("name", FILES)
def test_damage_to_a_file_is_named_with_what_to_do(copy: Path, name: str) -> None:
    damage, where = FILES[name]
    damage(copy)
    before = content_of(copy)

    report = verified(copy)

    assert report.status == DAMAGED
    found = damage_of(report)
    assert any(where in finding.where for finding in found), found
    assert all(finding.action for finding in found), found
    assert content_of(copy) == before


def test_a_mirror_that_is_behind_is_compared_without_what_has_changed_since(copy: Path) -> None:
    rows = keys_of(copy, 0, EVENT.prefix)
    row = msgspec.msgpack.decode(rows[-6][1], type=Row)
    [first] = EVENT.parse(rows[0][0])
    assert isinstance(first, int)
    index = first + len(rows) - 6
    position = f"UPDATE cursors SET idx = {index}, digest = {row.digest} WHERE shard = 0"  # noqa: S608 -- numbers
    _sql(position)(copy)

    report = verified(copy)
    assert (report.status, damage_of(report)) == (WHOLE, [])
    [note] = notes_of(report)
    assert "is 5 entries behind" in note.problem

    _sql("UPDATE jobs SET kind = 'other' WHERE shard = 0")(copy)
    found = damage_of(verified(copy))
    changed = {
        key for _, value in rows[-5:] for key in msgspec.msgpack.decode(value, type=Row).keys
    }
    names = {each.where.rpartition(", ")[2] for each in found}
    assert names
    assert not {f"j|{name}".encode() for name in names} & changed


def _snapshot(directory: Path) -> Path:
    """A snapshot in a log, as a replica that sends one has."""
    files = RealFiles(directory / "shard-0/log")
    storage = DiskStorage.open(files, read_identity(files))
    index = storage.last_index
    storage.make_snapshot(index=index, membership=Membership(voters=(1,)), data=[b"x" * 9_000])
    storage.close()
    return one(directory, "shard-0/log/snapshot-*.snap")


def test_a_snapshot_is_read_in_full(copy: Path) -> None:
    place = _snapshot(copy)
    assert damage_of(verified(copy)) == []
    flip(place, 12_288 + 5_000)

    [found] = damage_of(verified(copy))

    assert found.where.startswith(f"shard-0/log/{place.name}")
    place.unlink()
    assert [each.problem for each in damage_of(verified(copy))] == ["the file is missing"]


def test_a_state_older_than_its_log_is_made_of_a_snapshot_or_is_damage(copy: Path) -> None:
    place = _snapshot(copy)
    files = RealFiles(copy / "shard-0/log")
    storage = DiskStorage.open(files, read_identity(files))
    storage.compact(index=storage.last_index, membership=Membership(voters=(1,)))
    storage.close()
    for found in (copy / "shard-0/state").iterdir():
        shutil.rmtree(found)

    report = verified(copy)
    assert damage_of(report) == []
    assert any("makes it of the snapshot" in each.problem for each in notes_of(report))

    place.unlink()
    assert verified(copy).status == DAMAGED


def test_a_snapshot_on_arrival_that_is_damaged_is_no_loss(copy: Path) -> None:
    files = RealFiles(copy / "shard-0/log")
    snapshot = Snapshot(90, 1, Membership(voters=(1,)), 4, b"x" * 32)
    begin_incoming(files, snapshot)
    files.close()

    report = verified(copy)

    assert report.status == WHOLE
    assert [each.where for each in notes_of(report)] == ["shard-0/log/incoming.part"]


def test_what_the_next_start_mends_is_a_note_and_no_damage(copy: Path) -> None:
    flip(copy / "shard-0/log/hard-state", 3)
    flip(one(copy, LAST), 4_100)
    (copy / "shard-0/log/manifest.new").write_text("half")
    (copy / "shard-0/state/checkpoint.unfinished").mkdir()
    (copy / "notes.txt").write_text("mine")

    report = verified(copy)

    assert (report.status, damage_of(report)) == (WHOLE, [])
    problems = [f"{each.where}: {each.problem}" for each in notes_of(report)]
    for words in ("slot 0 is bad", "mark 0 is bad", "manifest.new", "unfinished", "notes.txt"):
        assert any(words in problem for problem in problems), (words, problems)


def test_a_state_older_than_its_log_is_brought_up_in_a_copy(copy: Path) -> None:
    shutil.rmtree(copy / "shard-0/state/live")
    (copy / "shard-0/state/running").write_text("another boot")

    report = verified(copy)

    assert damage_of(report) == []
    assert any("newest checkpoint" in each.problem for each in notes_of(report))
    [part] = [part for part in report.parts if part.name == "shard 0"]
    [checkpoint] = (copy / "shard-0/state").glob("checkpoint-*")
    files = RealFiles(copy / "shard-0/log")
    with closing(DiskStorage.open(files, read_identity(files))) as storage:
        is_behind = int(checkpoint.name.partition("-")[2]) < storage.last_index
    assert any("applied to a copy" in checked for checked in part.checked) == is_behind


def test_files_of_another_user_are_not_checked(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("corvo.verify.node_files.DataDir.cluster_map", refuse)

    report = verified(copy)

    assert report.status == INCOMPLETE
    assert [each.where for each in unchecked_of(report)] == ["cluster.json"]


def test_a_directory_of_a_newer_release_is_not_judged(copy: Path) -> None:
    (copy / "release.json").write_text('{"op_version": 999, "release": "9.0.0"}')

    report = verified(copy)

    assert (report.status, damage_of(report)) == (INCOMPLETE, [])
    assert "install corvo 9.0.0" in unchecked_of(report)[0].problem

    identity = (copy / "node.json").read_text().replace('"format":3', '"format":4')
    (copy / "node.json").write_text(identity)
    report = verified(copy)
    assert report.status == INCOMPLETE
    assert "format 4" in unchecked_of(report)[0].problem
