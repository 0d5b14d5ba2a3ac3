"""A node's directory: whose it is, who has it, where its sockets are."""

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from corvo.datadir import (
    DataDir,
    DirectoryDamaged,
    DirectoryInUse,
    DirectoryUnfit,
    Identity,
    NeededRelease,
    mirror_socket,
    open_directory,
    peer_socket,
    remove_sockets,
)
from corvo.protocol.cluster import alone
from corvo.topology import NODE, shard_target


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory with a short name, which pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="c") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)


def opened(tmp_path: Path) -> DataDir:
    return open_directory(str(tmp_path / "d"))


def test_a_new_directory_is_for_its_user_alone(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path / "a" / "b"))

    assert stat.S_IMODE(directory.root.stat().st_mode) == 0o700


def test_a_directory_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0o777)

    directory = opened(tmp_path)

    assert directory.is_open_to_others


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("")

    with pytest.raises(DirectoryUnfit, match="cannot be created: File exists"):
        opened(tmp_path)


# ---- Whose it is.


OURS = Identity(cluster="ab" * 16, node=2, shards=3, name="rook", instance="cd" * 16)


def test_a_directory_is_whose_it_was_settled_to_be(tmp_path: Path) -> None:
    directory = opened(tmp_path)

    assert directory.identity() is None
    directory.settle(OURS)
    assert directory.identity() == OURS


def test_the_number_of_a_new_directory_stays_until_it_has_an_identity(tmp_path: Path) -> None:
    first = opened(tmp_path).instance()
    assert not list(tmp_path.rglob("instance"))
    opened(tmp_path).keep_instance(first)

    assert opened(tmp_path).instance() == first
    assert len(first) == 32
    assert opened(tmp_path / "other").instance() != first
    opened(tmp_path).forget_instance()
    assert opened(tmp_path).instance() != first


def test_a_start_that_was_refused_leaves_nothing(tmp_path: Path) -> None:
    made = open_directory(str(tmp_path / "deep" / "data"))
    (tmp_path / "empty").mkdir()
    empty = open_directory(str(tmp_path / "empty"))
    for directory in (made, empty):
        lock = directory.try_lock()
        assert lock is not None
        directory.leave_unused()
        os.close(lock)

    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_a_start_that_was_refused_leaves_a_directory_that_is_in_use_as_it_was(
    tmp_path: Path,
) -> None:
    directory = open_directory(str(tmp_path / "data"))
    lock = directory.try_lock()
    assert lock is not None
    directory.settle(OURS)
    directory.leave_unused()
    os.close(lock)

    assert {path.name for path in directory.root.iterdir()} == {"lock", "node.json"}


def test_a_lock_that_was_removed_meanwhile_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(str(tmp_path / "data"))
    place, flock = directory.root / "lock", fcntl.flock

    def removed_meanwhile(descriptor: int, operation: int) -> None:
        place.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    late = directory.try_lock()
    monkeypatch.undo()
    lock = directory.try_lock()

    assert late is None
    assert lock is not None
    os.close(lock)


def test_a_directory_of_before_clusters_has_no_name_and_no_instance(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    (directory.root / "node.json").write_bytes(b'{"format":1,"cluster":"ab","node":1,"shards":4}')

    found = directory.identity()

    assert found == Identity(format=1, cluster="ab", node=1, shards=4)


def test_a_start_that_was_cut_short_before_the_name_was_given_is_begun_anew(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    (directory.root / "node.json.new").write_text('{"form')

    assert directory.identity() is None
    directory.settle(OURS)
    assert not (directory.root / "node.json.new").exists()


def test_shards_without_a_word_of_how_many_are_refused(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.shard(2).mkdir()

    with pytest.raises(DirectoryUnfit, match=r"has shards but no node\.json"):
        directory.identity()


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"format":1}', b'{"format":1,"cluster":"","node":1,"shards":1}', b"\xff"]
)
def test_a_damaged_word_is_told_as_damage(tmp_path: Path, data: bytes) -> None:
    directory = opened(tmp_path)
    (directory.root / "node.json").write_bytes(data)

    with pytest.raises(DirectoryDamaged, match="restore it from a backup"):
        directory.identity()


def test_a_newer_version_s_directory_is_refused(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    (directory.root / "node.json").write_bytes(b'{"format":4,"more":true}')

    with pytest.raises(DirectoryUnfit, match="start the newer version"):
        directory.identity()


def test_the_map_is_kept_and_a_damaged_one_says_what_to_do(tmp_path: Path) -> None:
    directory = opened(tmp_path)

    assert directory.cluster_map() is None
    directory.keep_map(alone(1, 2))
    directory.keep_map(alone(2, 2))
    assert directory.cluster_map() == alone(2, 2)
    (directory.root / "cluster.json").write_bytes(b"{")
    with pytest.raises(DirectoryDamaged, match="start the node with --join"):
        directory.cluster_map()


def test_a_directory_is_not_opened_by_an_older_release_than_its_data_need(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.check_release(has=1, release="0.1")

    directory.need_release(NeededRelease(op_version=5, release="1.5"))
    directory.need_release(NeededRelease(op_version=4, release="1.4"))

    directory.check_release(has=5, release="1.5")
    with pytest.raises(DirectoryUnfit) as refused:
        directory.check_release(has=4, release="1.4")
    assert str(refused.value) == (
        f"{directory.root} needs op version 5, and this is corvo 1.4 with op version 4: install"
        " corvo 1.5, which was used last, or a later release"
    )
    (directory.root / "release.json").write_bytes(b"{}")
    with pytest.raises(DirectoryDamaged, match="start the release that was used last"):
        directory.check_release(has=5, release="1.5")


def test_a_removed_replica_leaves_a_note_that_it_was_there_and_others_stay(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.make_known()
    for number in (0, 3):
        (directory.shard(number) / "log").mkdir(parents=True)
        (directory.shard(number) / "log" / "a").write_text("x")
        directory.known(number).write_text("{}")
    (directory.root / "removed-shard-3").mkdir()  # left by a removal that was cut short

    assert directory.shards_there() == [0, 3]
    directory.remove_shard(3)
    directory.remove_shard(5)

    assert directory.shards_there() == [0]
    assert not directory.known(3).exists()
    assert not (directory.root / "removed-shard-3").exists()
    assert directory.known(0).exists()
    assert [number for number in (0, 3, 5) if directory.has_left(number)] == [3]


# ---- Who has it.


def test_the_lock_is_free_only_when_the_last_process_with_it_is_gone(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    lock = directory.try_lock()
    assert lock is not None
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=[lock],
    )

    os.close(lock)
    while_it_lives = directory.try_lock()
    holders = directory.holders()
    child.communicate()
    afterwards = directory.try_lock()

    assert while_it_lives is None
    assert [holder.split()[0] for holder in holders] == [str(child.pid)]
    assert afterwards is not None
    os.close(afterwards)


# ---- Its sockets.


def test_sockets_are_in_the_directory_and_for_its_user_alone(tmp_path: Path) -> None:
    directory = opened(tmp_path)

    sockets = directory.sockets(2)

    run = directory.root / "run"
    assert sockets == [str(run / "shard-0.sock"), str(run / "shard-1.sock")]
    assert stat.S_IMODE(run.stat().st_mode) == 0o700


def test_a_place_for_sockets_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    (directory.root / "run").mkdir()
    (directory.root / "run").chmod(0o755)

    directory.sockets(1)

    assert stat.S_IMODE((directory.root / "run").stat().st_mode) == 0o700


def test_a_directory_deep_down_has_its_sockets_elsewhere(tmp_path: Path, short: Path) -> None:
    one = open_directory(str(tmp_path / ("é" * 60) / "1")).sockets(12)
    two = open_directory(str(tmp_path / ("é" * 60) / "2")).sockets(12)

    place = Path(one[0]).parent

    assert all(len(os.fsencode(path)) <= 107 for path in one)
    assert place.parent == short
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert not set(one) & set(two)


@pytest.mark.parametrize("shards", [1, 11])
def test_every_socket_of_a_node_has_a_path_that_fits(short: Path, shards: int) -> None:
    places = set[bool]()
    for length in range(1, 110 - len(str(short))):
        directory = open_directory(str(short / ("x" * length)))
        sockets = directory.sockets(shards)
        last = shard_target(shards - 1)
        all_of_them = [*sockets, mirror_socket(sockets), peer_socket(sockets, last)]

        places.add(Path(sockets[0]).parent == directory.root / "run")
        assert max(len(os.fsencode(path)) for path in all_of_them) <= 107
        assert len(os.fsencode(peer_socket(sockets, NODE))) <= 107

    assert places == {True, False}, "some are long, and some are not"


def test_a_place_that_somebody_else_has_put_there_is_refused(tmp_path: Path, short: Path) -> None:
    directory = open_directory(str(tmp_path / ("deep" * 40)))
    place = Path(directory.sockets(1)[0]).parent
    place.rmdir()
    place.symlink_to(short, target_is_directory=True)

    with pytest.raises(DirectoryUnfit, match="not a directory of this user: remove it"):
        directory.sockets(1)


def test_a_system_without_any_short_place_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("deep" * 40)))

    with pytest.raises(DirectoryUnfit, match="or set TMPDIR"):
        open_directory(str(tmp_path / ("down" * 40))).sockets(1)


def test_nothing_is_left_of_the_sockets(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    sockets = directory.sockets(2)
    Path(sockets[0]).write_text("")
    Path(peer_socket(sockets, NODE)).write_text("")

    remove_sockets(sockets)

    assert not (directory.root / "run").exists()


def test_a_directory_is_held_without_a_change_and_not_while_a_server_has_it(tmp_path: Path) -> None:
    directory = DataDir(tmp_path)
    assert directory.hold() is None
    assert list(tmp_path.iterdir()) == []

    lock = directory.try_lock()
    assert lock is not None
    with pytest.raises(DirectoryInUse, match="a server uses"):
        directory.hold()
    os.close(lock)
    held = directory.hold()
    assert held is not None
    assert directory.try_lock() is None
    os.close(held)
