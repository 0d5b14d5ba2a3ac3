"""`corvo backup` and `corvo restore`: what they print, what comes back, and each refusal."""

import errno
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from corvo.backup.digests import QueueDigest
from corvo.backup.taking import take
from corvo.backup_commands import Back, Made
from corvo.client import jobs, keys, queues, schedules
from corvo.client.calls import Client
from corvo.client_commands.failures import CommandFailed
from corvo.command_table import COMMANDS
from corvo.errors import StoreFull
from corvo.kv import directories
from corvo.protocol.backups import CopiedFile, Manifest
from corvo.verify.backups import BackupReport
from corvo.verify.report import WHOLE
from tests.backup.conftest import Corvo
from tests.client_commands.running import ROOT, Server


def only(folder: Path) -> Path:
    """The backup of a folder that has one."""
    [path] = folder.iterdir()
    return path


def digests(corvo: Corvo, backup: Path) -> list[QueueDigest]:
    done = corvo("verify", backup, "-o", "json")
    assert done.code == 0, done.err
    report = done.json(BackupReport)
    assert report.status == WHOLE
    return list(report.queues)


def there(server: Server) -> list[str]:
    with Client([server.url], api_key=server.api_key) as client:
        pages = [*queues.pages(client)]
        return [msgspec.json.decode(raw, type=queues.Queue).name for page in pages for raw in page]


def test_they_are_commands() -> None:
    assert COMMANDS["backup"].place == COMMANDS["restore"].place == "corvo.backup_commands"


# A backup.


def test_a_backup_is_whole_and_says_what_it_has(
    corvo: Corvo, source: Server, tmp_path: Path
) -> None:
    done = corvo("backup", "--to", tmp_path / "here", "-o", "json", server=source)

    made = done.json(Made)
    assert (done.code, done.err) == (0, "")
    assert made.path == str(only(tmp_path / "here"))
    assert (made.verified, made.bytes_shared) == (True, 0)
    assert sorted(made.positions) == [0, 1]
    assert min(made.positions.values()) > 10
    assert made.jobs == sum(each.jobs for each in digests(corvo, Path(made.path)))


def tables_in(backup: Path) -> dict[tuple[int, CopiedFile], Path]:
    """The tables that a backup names, by their shards, and where they are."""
    manifest = msgspec.json.decode((backup / "manifest.json").read_bytes(), type=Manifest)
    return {
        (copy.shard, file): backup / f"shard-{copy.shard}" / file.name
        for copy in manifest.shards
        for file in copy.files
        if file.name.endswith(".ldb")
    }


def test_a_second_backup_shares_what_has_not_changed_and_the_oldest_ones_go(
    corvo: Corvo, empty: Callable[[int], Server], tmp_path: Path
) -> None:
    # A server with so few tables that LevelDB does not merge them between two backups.
    server, to = empty(2), tmp_path / "here"
    with Client([server.url], api_key=server.api_key) as client:
        jobs.enqueue_many(client, [{"queue": f"q{number}"} for number in range(20)])
    first = corvo("backup", "--to", to, "-o", "json", server=server).json(Made)
    second = corvo("backup", "--to", to, "-o", "json", server=server).json(Made)
    before, after = tables_in(Path(first.path)), tables_in(Path(second.path))
    inodes = [{path.stat().st_ino for path in tables.values()} for tables in (before, after)]
    third = corvo("backup", "--to", to, "--keep", "2", "-o", "json", server=server).json(Made)

    both = before.keys() & after.keys()
    assert both
    assert second.bytes_shared == sum(file.size for _, file in both)
    assert len(inodes[0] & inodes[1]) == len(both)
    assert third.removed == [first.path]
    assert sorted(map(str, to.iterdir())) == sorted([second.path, third.path])
    assert digests(corvo, Path(second.path)) == digests(corvo, Path(third.path))


def test_what_an_earlier_backup_has_damaged_is_sent_again(
    corvo: Corvo, source: Server, tmp_path: Path
) -> None:
    to = tmp_path / "here"
    first = corvo("backup", "--to", to, "-o", "json", server=source).json(Made)
    for table in Path(first.path).glob("shard-*/*.ldb"):
        table.write_bytes(bytes(table.stat().st_size))

    second = corvo("backup", "--to", to, "-o", "json", server=source).json(Made)

    assert (second.verified, second.bytes_shared) == (True, 0)


def test_what_a_killed_command_has_left_is_removed_after_a_day(
    corvo: Corvo, empty: Callable[[int], Server], tmp_path: Path
) -> None:
    server, to = empty(1), tmp_path / "here"
    old, fresh, removed = (
        to / name
        for name in (
            "backup-ab_1.unfinished",
            "backup-cd_2.unfinished",
            "20260101T000000Z.unfinished",
        )
    )
    not_ours = [to / "notes.unfinished", to / "backup-x"]
    folders = [old, fresh, removed, *not_ours]
    for folder in folders:
        (folder / "shard-0").mkdir(parents=True)
        (folder / "shard-0" / "a.ldb").write_bytes(b"x")
    for path in [path for folder in folders for path in (folder, *folder.rglob("*"))]:
        os.utime(path, (0, 0))
    (fresh / "shard-0" / "b.ldb").write_bytes(b"x")
    os.utime(fresh, (0, 0))

    made = corvo("backup", "--to", to, "-o", "json", server=server).json(Made)

    assert made.removed == [str(removed), str(old)]
    assert sorted(to.iterdir()) == sorted([fresh, *not_ours, Path(made.path)])


@pytest.mark.parametrize("is_good", [True, False])
def test_a_file_system_without_hard_links_gets_copies(
    corvo: Corvo,
    empty: Callable[[int], Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_good: bool,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    def copy_badly(source: Path, target: Path) -> None:
        target.write_bytes(bytes(source.stat().st_size))

    server, to = empty(2), tmp_path / "here"
    with Client([server.url], api_key=server.api_key) as client:
        jobs.enqueue_many(client, [{"queue": f"q{number}"} for number in range(20)])
    first = corvo("backup", "--to", to, "-o", "json", server=server).json(Made)
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    if not is_good:
        monkeypatch.setattr(shutil, "copyfile", copy_badly)
    options = () if is_good else ("--no-verify",)
    second = corvo("backup", "--to", to, *options, "-o", "json", server=server)

    if is_good:
        made = second.json(Made)
        before, after = tables_in(Path(first.path)), tables_in(Path(made.path))
        assert (made.verified, made.bytes_shared) == (True, 0)
        assert made.bytes_received < first.bytes_received, "copies are made on this side"
        assert {path.stat().st_nlink for path in [*before.values(), *after.values()]} == {1}
    else:
        assert second.code == 1
        assert "its checksum or its size does not match" in second.err
        assert [*to.iterdir()] == [Path(first.path)]


class Stub:
    """A client that gets some bytes as a backup."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def download(self, path: str, body: object, silent_s: float) -> Iterator[bytes]:
        yield self._data


def test_a_table_that_changed_on_its_way_is_found_without_a_look_at_its_keys(
    source: Server, tmp_path: Path
) -> None:
    with Client([source.url], api_key=source.api_key) as client:
        data = b"".join(client.download("/api/v1/admin/backup", {}, 60.0))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        member = max(archive.getmembers(), key=lambda each: each.size)
    changed = bytearray(data)
    changed[member.offset_data + member.size // 2] ^= 1
    (tmp_path / "whole").mkdir()
    (tmp_path / "changed").mkdir()

    take(cast("Client", Stub(data)), tmp_path / "whole", None, lambda _: None)
    with pytest.raises(CommandFailed, match=f"size of {member.name} does not match"):
        take(cast("Client", Stub(bytes(changed))), tmp_path / "changed", None, lambda _: None)


def test_a_new_backup_stays_though_a_wrong_clock_has_given_others_later_names(
    corvo: Corvo, source: Server, tmp_path: Path
) -> None:
    to = tmp_path / "here"
    for name in ("21900101T000000Z", "21900102T000000Z"):
        first = corvo("backup", "--to", tmp_path / name, "-o", "json", server=source).json(Made)
        shutil.copytree(first.path, to / name)

    made = corvo("backup", "--to", to, "--keep", "2", "-o", "json", server=source).json(Made)

    assert sorted(map(str, to.iterdir())) == [made.path, str(to / "21900102T000000Z")]


def test_an_archive_can_be_read_by_its_owner_alone(
    corvo: Corvo, source: Server, tmp_path: Path
) -> None:
    corvo("backup", "--to", tmp_path / "x.tar", server=source)

    assert (tmp_path / "x.tar").stat().st_mode & 0o777 == 0o600


def test_a_disk_that_refuses_a_write_is_an_error_and_nothing_is_left_behind(
    corvo: Corvo, source: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "x")

    (tmp_path / "file").touch()
    below_a_file = corvo("backup", "--to", tmp_path / "file" / "x", server=source)
    monkeypatch.setattr(directories, "sync", full)
    in_a_folder = corvo("backup", "--to", tmp_path / "here", server=source)
    as_a_file = corvo("backup", "--to", tmp_path / "there" / "x.tar", server=source)

    assert (below_a_file.code, in_a_folder.code, as_a_file.code) == (2, 2, 2)
    assert f"error: {tmp_path}/file/x: Not a directory" in below_a_file.err
    assert "error: x: No space left on device" in in_a_folder.err
    assert "free space" in as_a_file.err
    assert [*(tmp_path / "here").iterdir()] == [*(tmp_path / "there").iterdir()] == []


def test_no_room_for_the_copies_of_a_check_is_no_damage(
    corvo: Corvo,
    source: Server,
    backups: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise StoreFull("cannot make x: No space left on device")

    monkeypatch.setattr(directories, "make", full)
    done = [
        corvo("backup", "--to", tmp_path / "here", server=source),
        corvo("restore", backups, "--yes", server=source),
        corvo("verify", only(backups)),
    ]

    assert [each.code for each in done] == [2, 2, 2], done
    assert all("No space left" in each.err and "damaged" not in each.err for each in done)


def test_a_backup_that_is_ended_by_sigterm_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "corvo", "backup", "--to", str(tmp_path / "here")),
                *("--server", f"http://127.0.0.1:{silent.getsockname()[1]}"),
            ],
            env={"PATH": os.defpath, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path)},
            stderr=subprocess.DEVNULL,
        )
        connection, _ = silent.accept()  # it has begun, and waits for an answer
        with connection:
            command.send_signal(signal.SIGTERM)
            code = command.wait()

    assert code == 130
    assert [*(tmp_path / "here").iterdir()] == []


def test_an_archive_has_the_same_as_a_folder(corvo: Corvo, source: Server, tmp_path: Path) -> None:
    archive = tmp_path / "corvo.tar"

    done = corvo("backup", "--to", archive, server=source)
    corvo("backup", "--to", tmp_path / "here", server=source)

    assert done.code == 0
    assert done.out.startswith(f"{archive}\n  cluster ")
    assert "verified: " in done.out
    assert digests(corvo, archive) == digests(corvo, only(tmp_path / "here"))
    again = corvo("backup", "--to", archive, server=source)
    assert (again.code, "exists already" in again.err) == (2, True)


def test_an_archive_that_was_received_without_the_command_is_a_backup(
    corvo: Corvo, source: Server, tmp_path: Path
) -> None:
    """As `curl -X POST …/api/v1/admin/backup -o FILE` gets it."""
    with Client([source.url], api_key=source.api_key) as client:
        data = b"".join(client.download("/api/v1/admin/backup", {}, 60.0))
    (tmp_path / "curl.tar").write_bytes(data)

    assert digests(corvo, tmp_path / "curl.tar")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = archive.getnames()
    assert names[0] == "manifest.json"
    assert "shard-1/CURRENT" in names


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--keep", "0"], 2, "--keep 0 would remove the new backup"),
        (["--to", "x.tar", "--keep", "3"], 2, "--keep is for a folder of backups"),
        (["--to", "/proc/version"], 2, "--to /proc/version is a file"),
        (["--keep", "few"], 2, "--keep"),
    ],
)
def test_wrong_options_of_a_backup_are_refused(
    corvo: Corvo, source: Server, words: list[str], code: int, says: str
) -> None:
    done = corvo("backup", *words, server=source)

    assert (done.code, done.out) == (code, "")
    assert says in done.err


def test_a_backup_needs_the_role_admin_and_a_server(
    corvo: Corvo, source: Server, tmp_path: Path
) -> None:
    with Client([source.url], api_key=source.api_key) as client:
        made = keys.create(client, {"name": "reader", "role": "operator"})
        secret = msgspec.json.decode(made.body, type=keys.Created).api_key

    reader = corvo("backup", "--to", tmp_path / "x", server=Server(source.url, secret))
    without = corvo("backup", "--to", tmp_path / "x", "--server", source.url)
    nowhere = corvo("backup", "--to", tmp_path / "x", server=Server("http://127.0.0.1:9", "x"))

    assert (reader.code, without.code, nowhere.code) == (4, 4, 6)
    assert not [*(tmp_path / "x").iterdir()], "nothing is left behind"


# What comes back.


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_everything_comes_back_to_any_number_of_shards(
    corvo: Corvo, backups: Path, empty: Callable[[int], Server], tmp_path: Path, shards: int
) -> None:
    server = empty(shards)

    done = corvo("restore", backups, "--yes", "-o", "json", server=server)
    corvo("backup", "--to", tmp_path / "again.tar", server=server)
    repeated = corvo("restore", backups, "--yes", "-o", "json", server=server)

    back, more = done.json(Back), repeated.json(Back)
    assert (done.code, done.err) == (0, "")
    expected = digests(corvo, only(backups))
    assert digests(corvo, tmp_path / "again.tar") == expected
    assert (back.jobs, back.existing) == (sum(each.jobs for each in expected), 0)
    assert back.schedules > 0
    assert back.batches > 0
    assert (more.jobs, more.existing) == (0, back.jobs)
    assert {each.queue for each in expected} <= {*there(server)}


def test_some_queues_come_back_alone(
    corvo: Corvo, backups: Path, empty: Callable[[int], Server]
) -> None:
    server = empty(3)

    done = corvo("restore", backups, "--queue", "d*", "--queue", "mail", "--yes", server=server)
    unknown = corvo("restore", backups, "--queue", "unknown", "--yes", server=server)

    assert done.code == 0
    assert {"done", "dying", "mail"} <= {*there(server)}
    assert all(name[0] == "d" or name == "mail" for name in there(server))
    assert (unknown.code, "has no queue unknown" in unknown.err) == (3, True)


def test_a_queue_with_a_schedule_and_no_job_comes_back_alone(
    corvo: Corvo, empty: Callable[[int], Server], tmp_path: Path
) -> None:
    first, second = empty(2), empty(1)
    with Client([first.url], api_key=first.api_key) as client:
        schedules.create(client, {"name": "yearly", "queue": "report", "cron": "0 0 1 1 *"})
    corvo("backup", "--to", tmp_path / "x.tar", server=first)

    words = ("restore", tmp_path / "x.tar", "--queue", "report", "--yes", "-o", "json")
    done = corvo(*words, server=second)

    assert done.code == 0, done.err
    back = done.json(Back)
    assert (back.queues, back.schedules, back.jobs) == (1, 1, 0)


def test_api_keys_come_back_if_they_are_asked_for(
    corvo: Corvo, backups: Path, source: Server, empty: Callable[[int], Server]
) -> None:
    server = empty(2)
    corvo("restore", backups, "--yes", server=server)
    with Client([server.url], api_key=server.api_key) as client:
        before = keys.get_keys(client)

        done = corvo("restore", backups, "--yes", "--api-keys", "-o", "json", server=server)

        after = [msgspec.json.decode(raw, type=keys.Key).key_hash for raw in keys.get_keys(client)]
    assert before == []
    assert done.json(Back).api_keys == len(after) > 0


def test_a_dry_run_changes_nothing(
    corvo: Corvo, backups: Path, empty: Callable[[int], Server]
) -> None:
    server = empty(2)

    done = corvo("restore", backups, "--dry-run", server=server)

    assert done.code == 0
    assert "would come back, as of " in done.out
    assert "QUEUE" in done.err
    assert there(server) == []


def test_a_restore_asks_first(
    corvo: Corvo, backups: Path, source: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = corvo("restore", backups, server=source)

    assert (done.code, done.out) == (2, "")
    assert "will be added to the cluster at" in done.err
    assert "--yes" in done.err


# Damage: nothing is written.


def damage_table(folder: Path) -> None:
    table = max(folder.glob("shard-*/*.ldb"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)


def lose_table(folder: Path) -> None:
    max(folder.glob("shard-*/*.ldb"), key=lambda path: path.stat().st_size).unlink()


def damage_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:-40])


def mix_up_shards(folder: Path) -> None:
    (folder / "shard-0").rename(folder / "other")
    (folder / "shard-1").rename(folder / "shard-0")
    (folder / "other").rename(folder / "shard-1")


def change_position(folder: Path) -> None:
    path = folder / "manifest.json"
    told = msgspec.json.decode(path.read_bytes())
    told["shards"][0]["index"] -= 1
    path.write_bytes(msgspec.json.encode(told))


def change_sum(folder: Path) -> None:
    """A table of another time, with a manifest that was changed to fit."""
    damage_table(folder)
    path = folder / "manifest.json"
    told = msgspec.json.decode(path.read_bytes())
    for shard in told["shards"]:
        for file in shard["files"]:
            found = directories.sum_up(folder / f"shard-{shard['shard']}" / file["name"])
            file["size"], file["crc32"] = found.size, found.crc
    path.write_bytes(msgspec.json.encode(told))


@pytest.mark.parametrize(
    "damage",
    [damage_table, lose_table, damage_manifest, mix_up_shards, change_position, change_sum],
)
def test_a_damaged_backup_is_refused_before_anything_is_written(
    corvo: Corvo,
    backups: Path,
    source: Server,
    tmp_path: Path,
    damage: Callable[[Path], None],
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(only(backups), copy)
    damage(copy)
    before = there(source)

    done = corvo("restore", copy, "--yes", server=source)

    assert (done.code, done.out) == (1, ""), done.err
    assert f"{copy} is damaged" in done.err
    assert "Nothing was changed" in done.err
    assert there(source) == before
    assert corvo("verify", copy).code == 1


@pytest.mark.parametrize("left", [0, 100, 512, 2_000, 20_000, -1_025, -513])
def test_an_archive_that_was_cut_short_is_refused(
    corvo: Corvo, source: Server, tmp_path: Path, left: int
) -> None:
    whole = tmp_path / "whole.tar"
    corvo("backup", "--to", whole, server=source)
    data = whole.read_bytes().rstrip(b"\0")  # without the padding that ends an archive
    (tmp_path / "cut.tar").write_bytes(data[:left])

    done = corvo("restore", tmp_path / "cut.tar", "--yes", server=source)

    assert (done.code, done.out) == (1, "")
    assert "is damaged" in done.err


def test_an_archive_with_other_files_is_refused(
    corvo: Corvo, source: Server, backups: Path, tmp_path: Path
) -> None:
    manifest = only(backups) / "manifest.json"
    for name in ("../out", "shard-0/../../out", "/etc/out", "shard-0/LOCK", "manifest.json/x"):
        with tarfile.open(tmp_path / "odd.tar", "w") as archive:
            archive.add(manifest, "manifest.json")
            archive.add(manifest, name)

        done = corvo("restore", tmp_path / "odd.tar", "--yes", server=source)

        assert (done.code, "is not a file of a backup" in done.err) == (1, True), name
        assert not (tmp_path / "out").exists()


def test_a_backup_of_a_later_release_or_a_later_time_is_refused(
    corvo: Corvo, source: Server, backups: Path, tmp_path: Path
) -> None:
    for change, says in (
        ({"format": 99}, "this release cannot read it"),
        ({"op_version": 99}, "this release cannot read it"),
        ({"began_at": "2190-01-01T00:00:00Z"}, "which is later than now"),
    ):
        copy = tmp_path / says[:6] / str(len(change))
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(only(backups), copy)
        told = msgspec.json.decode((copy / "manifest.json").read_bytes())
        (copy / "manifest.json").write_bytes(msgspec.json.encode(told | change))

        done = corvo("restore", copy, "--yes", server=source)

        assert done.code == 2
        assert says in done.err


def test_what_is_no_backup_is_refused_with_a_hint(
    corvo: Corvo, source: Server, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    for path, says in (
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "file", "is not a backup"),
        (tmp_path, "is not a backup"),
    ):
        done = corvo("restore", path, "--yes", server=source)

        assert (done.code, says in done.err) == (2, True)
        assert "corvo backup" in done.err
