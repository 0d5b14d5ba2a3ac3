"""One suite for the disk in memory and the real one; then what each can do alone."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from corvo.raft.disk.files import RealFiles
from corvo.raft.disk.filesystem import DirectoryRefused, Files, replace, write_again
from corvo.raft.errors import DiskFull, LogFailed
from tests.support.files import SECTOR, Extent, MemoryFiles, sectors


@pytest.fixture(params=["memory", "real"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    if request.param == "memory":
        yield MemoryFiles()
        return
    real = RealFiles(tmp_path)
    yield real
    real.close()


def make(files: Files, name: str, data: bytes) -> None:
    files.create(name)
    files.write(name, 0, data)


def test_a_new_directory_is_empty(files: Files) -> None:
    assert files.names() == []


def test_names_are_sorted(files: Files) -> None:
    for name in ("b", "a", "c"):
        files.create(name)

    assert files.names() == ["a", "b", "c"]


def test_what_is_written_is_read(files: Files) -> None:
    make(files, "a", b"hello world")

    files.write("a", 6, b"there")

    assert files.read("a", 0, 100) == b"hello there"
    assert files.read("a", 4, 3) == b"o t"
    assert files.read("a", 11, 5) == b""
    assert files.size("a") == 11


def test_a_write_beyond_the_end_leaves_zeros(files: Files) -> None:
    make(files, "a", b"x")

    files.write("a", 4, b"y")

    assert files.read("a", 0, 10) == b"x\0\0\0y"


def test_an_empty_write_changes_nothing(files: Files) -> None:
    make(files, "a", b"x")

    files.write("a", 100, b"")

    assert files.size("a") == 1


def test_a_cut_file_can_grow_again(files: Files) -> None:
    make(files, "a", b"abcdef")

    files.truncate("a", 2)
    files.write("a", 4, b"z")

    assert files.read("a", 0, 10) == b"ab\0\0z"


def test_a_rename_takes_the_place_of_another(files: Files) -> None:
    make(files, "a", b"old")
    make(files, "b", b"new")

    files.rename("b", "a")

    assert files.names() == ["a"]
    assert files.read("a", 0, 10) == b"new"
    files.write("a", 0, b"N")
    assert files.read("a", 0, 10) == b"New"


def test_a_removed_name_can_be_used_again(files: Files) -> None:
    make(files, "a", b"old")
    files.unlink("a")

    make(files, "a", b"n")

    assert files.read("a", 0, 10) == b"n"


def test_files_move_into_a_directory(files: Files) -> None:
    make(files, "a", b"data")
    files.make_directory("aside")

    files.rename("a", "aside/a")
    files.sync_names("aside")
    files.sync_names()

    assert files.names() == ["aside"]
    assert files.names("aside") == ["a"]
    assert files.read("aside/a", 0, 10) == b"data"


def test_syncs_are_silent(files: Files) -> None:
    make(files, "a", b"data")

    files.sync("a")
    files.sync_names()

    assert files.read("a", 0, 10) == b"data"


def test_a_lock_can_be_taken_again_by_its_holder(files: Files) -> None:
    files.lock()
    files.lock()

    assert files.names() == []


def test_replacing_a_file_leaves_nothing_else(files: Files) -> None:
    make(files, "a", b"old and long")
    make(files, "a.new", b"what a crash left")

    replace(files, "a", b"new")

    assert files.names() == ["a"]
    assert files.read("a", 0, 100) == b"new"


def test_writing_again_changes_nothing(files: Files) -> None:
    make(files, "a", b"data")

    write_again(files, "a")

    assert files.read("a", 0, 100) == b"data"


# ---- The real disk alone.


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealFiles]:
    files = RealFiles(tmp_path)
    yield files
    files.close()


def test_a_second_opener_is_refused_until_the_first_has_gone(tmp_path: Path) -> None:
    first, second = RealFiles(tmp_path), RealFiles(tmp_path)
    first.lock()
    with pytest.raises(DirectoryRefused, match="in use by another process"):
        second.lock()

    first.close()

    second.lock()
    second.close()


def failing(number: int) -> Callable[[object], int]:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.conformance("X26")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_without_room_is_a_full_disk(
    real: RealFiles, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.create("a")
    monkeypatch.setattr(os, "pwrite", failing(number))

    with pytest.raises(DiskFull, match="cannot write a"):
        real.write("a", 0, b"data")


@pytest.mark.conformance("X27")
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_sync_that_fails_for_any_reason_is_a_failed_log(
    real: RealFiles, call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.create("a")
    monkeypatch.setattr(os, call, failing(number))

    with pytest.raises(LogFailed, match="cannot sync"):  # noqa: PT012 -- either, by parameter
        real.sync("a")
        real.sync_names()


def test_a_write_that_fails_is_a_failed_log(
    real: RealFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.create("a")
    monkeypatch.setattr(os, "pwrite", failing(errno.EIO))

    with pytest.raises(LogFailed, match="cannot write a"):
        real.write("a", 0, b"data")


def test_the_system_may_take_and_give_bytes_in_pieces(
    real: RealFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 2), at))
    real.create("a")

    real.write("a", 0, b"hello world")

    assert real.read("a", 0, 100) == b"hello world"
    assert real.read("a", 1, 4) == b"ello"


def test_files_that_were_there_before_are_opened(tmp_path: Path, real: RealFiles) -> None:
    (tmp_path / "a").write_bytes(b"before")

    assert real.read("a", 0, 10) == b"before"
    with pytest.raises(LogFailed, match="cannot read b"):
        real.read("b", 0, 10)


# ---- The disk in memory: what a loss of power does.


def test_what_was_synced_survives_a_loss_of_power() -> None:
    for seed in range(50):
        files = MemoryFiles(Random(seed))
        make(files, "a", b"data")
        files.sync("a")
        files.sync_names()
        files.power_loss()

        assert files.contents() == {"a": b"data"}


def test_what_was_not_synced_is_kept_lost_or_torn_each_by_itself() -> None:
    found = set()
    for seed in range(400):
        files = MemoryFiles(Random(seed))
        files.create("a")
        files.sync_names()
        files.write("a", 0, b"x" * SECTOR)
        files.write("a", SECTOR, b"y" * (2 * SECTOR))
        files.power_loss()
        content = files.contents()["a"]
        found.add(tuple(content[at : at + 1] for at in (0, SECTOR, 2 * SECTOR)))

    kept, lost = b"x", b"\0"
    assert {(kept, b"", b""), (kept, b"y", b""), (kept, b"y", b"y"), (b"", b"", b"")} <= found
    assert {(lost, b"y", b"y"), (lost, b"y", b""), (lost, lost, b"y"), (kept, lost, b"y")} <= found


def test_names_that_were_not_synced_come_and_go_each_by_itself() -> None:
    found = set()
    for seed in range(200):
        files = MemoryFiles(Random(seed))
        make(files, "old", b"")
        files.sync_names()
        files.create("new")
        files.unlink("old")
        files.power_loss()
        found.add(tuple(files.names()))

    assert found == {("new",), ("new", "old"), ("old",), ()}


def test_a_cut_that_was_not_synced_may_be_undone() -> None:
    found = set()
    for seed in range(50):
        files = MemoryFiles(Random(seed))
        make(files, "a", b"data")
        files.sync("a")
        files.sync_names()
        files.truncate("a", 1)
        files.power_loss()
        found.add(files.contents()["a"])

    assert found == {b"d", b"data"}


def test_tearing_keeps_to_sectors() -> None:
    pieces = sectors(Extent(500, b"a" * 12 + b"b" * 512 + b"c"))

    assert pieces == [Extent(500, b"a" * 12), Extent(512, b"b" * 512), Extent(1024, b"c")]


@pytest.mark.parametrize("lost", [True, False])
def test_after_a_failed_sync_the_page_cache_may_lie(*, lost: bool) -> None:
    files = MemoryFiles()
    make(files, "a", b"data")
    files.sync_names()
    files.fail_sync(lost=lost)
    with pytest.raises(LogFailed):
        files.sync("a")
    files.sync("a")
    assert files.read("a", 0, 10) == b"data"

    files.power_loss()

    assert files.contents() == {"a": b"" if lost else b"data"}


def test_writing_again_does_what_another_sync_would_not() -> None:
    files = MemoryFiles()
    make(files, "a", b"data")
    files.sync_names()
    files.fail_sync(lost=True)
    with pytest.raises(LogFailed):
        files.sync("a")

    write_again(files, "a")
    files.power_loss()

    assert files.contents() == {"a": b"data"}


def test_a_full_disk_takes_what_fits() -> None:
    files = MemoryFiles()
    files.create("a")
    files.room = 3
    with pytest.raises(DiskFull):
        files.write("a", 0, b"data")
    assert files.contents() == {"a": b"dat"}

    files.truncate("a", 1)
    files.write("a", 1, b"xy")
    files.write("a", 0, b"XYZ")
    files.unlink("a")

    assert files.room == 3


def test_a_copy_shares_nothing() -> None:
    files = MemoryFiles()
    make(files, "a", b"data")
    files.make_directory("d")
    twin = files.copy()

    files.flip("a", 0, 1)
    twin.power_loss(Random(3))

    assert files.contents() == {"a": b"eata"}
    assert twin.contents() in ({}, {"a": b""}, {"a": b"data"})
