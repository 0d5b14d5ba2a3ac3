"""Checkpoints on a disk: crashes at every step, full disks, damage, and writes meanwhile."""

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from corvo.errors import StoreDamaged, StoreFailed, StoreFull, StoreRefused
from corvo.kv import directories, sums
from corvo.kv.checkpoints import ROOM_BYTES_MIN, TRIES_MAX, LevelStates, Recovery
from corvo.kv.level import LevelStore
from corvo.kv.streams import Source, pack
from corvo.kv.sums import Sum
from tests.kv.crashing import Crashed, Crashes, When
from tests.kv.stores import applied, commit, commit_all, content, content_at
from tests.kv.test_states import end

open_states = partial(LevelStates, applied=applied)

Outcome = tuple[dict[bytes, bytes], int]
"""What is in the live store, and the index of the newest checkpoint."""

LIVE: Final = content_at(8) | {b"old": b"x"}
OLD: Final[Outcome] = (LIVE, 5)
BACK: Final[Outcome] = (content_at(5), 5)
DONE: Final[Outcome] = (LIVE, 8)
NEWER: Final[Outcome] = (content_at(20), 20)
LOWER: Final[Outcome] = (content_at(3), 3)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose process crashed at index 8, with a checkpoint at 5."""
    root = tmp_path_factory.mktemp("running")
    states = open_states(root, boot_id="1")
    commit_all(states.store, 1, 5)
    states.checkpoint()
    commit_all(states.store, 6, 7)
    commit(states.store, 8, {b"old": b"x"})
    end(states)
    return root


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[bytes]]:
    """What a peer sends at two indexes."""
    states = open_states(tmp_path_factory.mktemp("peer"), boot_id="1")
    found = {}
    for first, last in ((1, 3), (4, 20)):
        commit_all(states.store, first, last)
        states.checkpoint()
        found[last] = list(states.stream())
    states.close()
    return found


# Crashes at every step.


@dataclass(frozen=True)
class Scenario:
    """Something that is cut short, and what may be found then."""

    cut_short: Callable[[LevelStates, dict[int, list[bytes]]], object] | None
    """None for the start itself."""
    after_process_crash: tuple[Outcome, ...]
    after_machine_crash: tuple[Outcome, ...]
    completed: tuple[Outcome, Outcome]
    """After a process crash and after one of the machine, if nothing was cut short."""
    boot: str = "1"
    prepare: Callable[[Path], object] = lambda root: None


def damage_live(root: Path) -> None:
    (root / "live" / "CURRENT").write_bytes(b"nonsense\n")


def begin_install(root: Path) -> None:
    """Leave what an install leaves that ended right after its deciding rename."""
    peer = root.parent / f"{root.name}-peer"
    peer.mkdir()
    states = open_states(peer, boot_id="1")
    commit_all(states.store, 1, 20)
    states.checkpoint()
    end(states)
    (peer / "checkpoint-20").rename(root / "installed-20")


SCENARIOS: Final = {
    "checkpoint": Scenario(
        lambda states, _: states.checkpoint(), (OLD, DONE), (BACK, DONE), (DONE, DONE)
    ),
    "install": Scenario(
        lambda states, streams: states.install(streams[20]),
        (OLD, NEWER),
        (BACK, NEWER),
        (NEWER, NEWER),
    ),
    "install of an older state": Scenario(
        lambda states, streams: states.install(streams[3]),
        (OLD, LOWER),
        (BACK, LOWER),
        (LOWER, LOWER),
    ),
    "clean stop": Scenario(lambda states, _: states.close(), (OLD,), (BACK, OLD), (OLD, OLD)),
    "start after a process crash": Scenario(None, (OLD,), (BACK,), (OLD, BACK)),
    "start after a machine crash": Scenario(None, (BACK,), (BACK,), (BACK, BACK), boot="2"),
    "start with a damaged live store": Scenario(
        None, (BACK,), (BACK,), (BACK, BACK), prepare=damage_live
    ),
    "start into an install": Scenario(
        None, (NEWER,), (NEWER,), (NEWER, NEWER), prepare=begin_install
    ),
}


class Trial:
    """Runs of one scenario, each in a directory of its own."""

    def __init__(
        self,
        scenario: Scenario,
        monkeypatch: pytest.MonkeyPatch,
        places: tuple[Path, Path],
        streams: dict[int, list[bytes]],
    ) -> None:
        self.scenario = scenario
        self._monkeypatch = monkeypatch
        self._template, self._place = places
        self._streams = streams
        self._numbers = count()

    def run(self, crash_at: tuple[int, When] | None) -> tuple[Path, Crashes, bool]:
        """The directory, what may happen to it now, and whether it was cut short."""
        number = next(self._numbers)
        root = self._place / f"root-{number}"
        shutil.copytree(self._template, root)
        self.scenario.prepare(root)
        trash = self._place / f"trash-{number}"
        trash.mkdir()
        with self._monkeypatch.context() as patched:
            crashes = Crashes(patched, root, trash)
            states = None
            if self.scenario.cut_short is not None:
                states = open_states(root, boot_id=self.scenario.boot)
                crashes.begin()
            crashes.crash_at = crash_at
            try:
                if states is not None and self.scenario.cut_short is not None:
                    self.scenario.cut_short(states, self._streams)
                else:
                    open_states(root, boot_id=self.scenario.boot)
            except Crashed:
                return root, crashes, True
        return root, crashes, False

    def find(self, root: Path, boot: str) -> Outcome:
        """Start again, look, and see that life goes on."""
        states = open_states(root, boot_id=boot)
        found = content(states.store), states.checkpointed
        names = {name for name in directories.names(root) if not name.startswith("checkpoint-")}
        assert names == {"live", "running"}
        index = applied(states.store)
        commit(states.store, index + 1)
        assert states.checkpoint() == index + 1
        assert b"".join(states.stream())
        states.close()
        return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_step_leaves_the_old_state_or_the_new(
    name: str,
    running: Path,
    streams: dict[int, list[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = SCENARIOS[name]
    trial = Trial(scenario, monkeypatch, (running, tmp_path), streams)
    _, crashes, _ = trial.run(None)
    crashes.process_crash()
    steps = list(crashes.steps)
    seen_process, seen_machine = [], []

    for number, step in enumerate(steps):
        whens: list[When] = ["before"]
        if step.startswith(("write", "remove")):
            whens.append("amid")
        for when in whens:
            at = (number, when)
            root, crashes, was_cut = trial.run(at)
            crashes.process_crash()
            assert was_cut
            seen_process.append(trial.find(root, scenario.boot))
            assert seen_process[-1] in scenario.after_process_crash, f"{when} {step}"
            for share in (0, 0.5, 1):
                root, crashes, _ = trial.run(at)
                crashes.power_loss(kept=int(crashes.unsynced * share))
                seen_machine.append(trial.find(root, "another"))
                assert seen_machine[-1] in scenario.after_machine_crash, f"{when} {step}, {share}"

    assert all(outcome in seen_process for outcome in scenario.after_process_crash)
    assert all(outcome in seen_machine for outcome in scenario.after_machine_crash)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("kept", [0, 1000])
def test_what_was_completed_stays_after_any_crash(
    name: str,
    kept: int,
    running: Path,
    streams: dict[int, list[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = SCENARIOS[name]
    trial = Trial(scenario, monkeypatch, (running, tmp_path), streams)

    root, crashes, _ = trial.run(None)
    crashes.process_crash()
    after_process_crash = trial.find(root, scenario.boot)
    root, crashes, _ = trial.run(None)
    crashes.power_loss(kept=kept)
    after_machine_crash = trial.find(root, "another")

    assert (after_process_crash, after_machine_crash) == scenario.completed


def test_a_clean_stop_is_told_only_when_everything_is_durable(
    running: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(SCENARIOS["clean stop"], monkeypatch, (running, tmp_path), {})

    root, crashes, _ = trial.run(None)

    synced = [f"sync {name}" for name in directories.names(root / "live")]
    assert crashes.steps == [*synced, "sync live", "sync root", "remove running", "sync root"]


def test_an_older_state_gets_its_name_when_the_newer_is_gone_for_good(
    running: Path,
    streams: dict[int, list[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = SCENARIOS["install of an older state"]
    trial = Trial(scenario, monkeypatch, (running, tmp_path), streams)

    _, crashes, _ = trial.run(None)

    steps = crashes.steps
    gone = steps.index("rename checkpoint-5.discarded.unfinished")
    assert "sync root" in steps[gone : steps.index("rename checkpoint-3")]
    crashes.process_crash()


def test_a_start_is_marked_for_good_before_the_live_store_is_opened(
    running: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(SCENARIOS["start after a process crash"], monkeypatch, (running, tmp_path), {})

    _, crashes, _ = trial.run(None)

    assert crashes.steps[-3:] == ["rename running", "sync root", "open live"]
    crashes.process_crash()


# A full disk.


@pytest.mark.parametrize(("name", "decided"), [("checkpoint", 8), ("install", 20)])
def test_a_full_disk_at_any_step_before_the_deciding_one_changes_nothing(
    name: str,
    decided: int,
    running: Path,
    streams: dict[int, list[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    act = SCENARIOS[name].cut_short
    assert act is not None
    trial = Trial(SCENARIOS[name], monkeypatch, (running, tmp_path), streams)
    _, crashes, _ = trial.run(None)
    crashes.process_crash()
    last = next(
        at
        for at, step in enumerate(crashes.steps)
        if step.endswith(f"ed-{decided}") or (step == f"rename checkpoint-{decided}")
    )
    tried = 0

    for number in range(last + 1):
        if crashes.steps[number].startswith("remove"):
            continue
        root = Path(shutil.copytree(running, tmp_path / f"full-{number}"))
        (tmp_path / f"thrown-{number}").mkdir()
        with monkeypatch.context() as patched:
            full = Crashes(patched, root, tmp_path / f"thrown-{number}")
            states = open_states(root, boot_id="1")
            before = directories.names(root)
            full.begin()
            full.full_at = number
            with pytest.raises(StoreFull):
                act(states, streams)
            assert directories.names(root) == before
            assert (content(states.store), states.checkpointed) == OLD
            act(states, streams)
            assert states.checkpointed == decided
            full.process_crash()
        tried += 1

    assert tried > 10


def test_a_checkpoint_that_could_fill_the_disk_is_not_begun(
    running: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    states = open_states(root, boot_id="1")
    monkeypatch.setattr(directories, "room", lambda directory: ROOM_BYTES_MIN - 1)

    with pytest.raises(StoreFull, match="no room"):
        states.checkpoint()

    monkeypatch.undo()
    assert states.checkpoint() == 8
    states.close()


def test_a_disk_that_is_really_full_takes_a_checkpoint_once_there_is_room(tmp_path: Path) -> None:
    root = tmp_path / "small"
    root.mkdir()
    size = ROOM_BYTES_MIN + (8 << 20)
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(root)]
    if os.geteuid() or subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("a disk of a few megabytes: mounting one needs root")
    try:
        states = open_states(root, boot_id="1")
        commit_all(states.store, 1, 5)
        filler = root / "filler"
        filler.write_bytes(bytes(8 << 20))

        with pytest.raises(StoreFull):
            states.checkpoint()

        filler.unlink()
        assert states.checkpoint() == 5
        states.close()
    finally:
        subprocess.run(["umount", str(root)], check=True)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreFailed)],
)
def test_errors_of_the_system_get_their_names(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    expected: type[StoreFull | StoreFailed],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    file = tmp_path / "file"
    file.write_bytes(b"x")
    uses: list[tuple[object, str, Callable[[], object]]] = [
        (os, "fsync", lambda: directories.sync(file)),
        (os, "statvfs", lambda: directories.room(tmp_path)),
        (Path, "mkdir", lambda: directories.make(tmp_path / "new")),
        (Path, "open", lambda: directories.write(tmp_path / "new", iter([b""]))),
        (Path, "hardlink_to", lambda: directories.link(file, tmp_path / "new")),
        (Path, "rename", lambda: directories.rename(file, tmp_path / "new")),
        (Path, "read_bytes", lambda: directories.read(file)),
        (Path, "unlink", lambda: directories.remove(file)),
    ]
    for owner, name, use in uses:
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, fail)
            with pytest.raises(expected):
                use()

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreFailed):
        directories.sync_names(tmp_path)


def test_room_is_what_the_system_says_until_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = SimpleNamespace(f_bavail=7, f_frsize=512)
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: said)
    room = directories.Room(tmp_path)

    assert room.bytes() == 3_584
    room.close()

    monkeypatch.undo()
    with pytest.raises(StoreFailed, match="cannot look at"):
        room.bytes()
    with pytest.raises(StoreFailed, match="cannot open"):
        directories.Room(tmp_path / "nowhere")


# Damage.


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[min(20, len(data) // 2)] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("kind", ["*.ldb", "MANIFEST-*", "CURRENT", "sums"])
@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
def test_a_damaged_checkpoint_is_neither_started_from_nor_sent(
    running: Path, tmp_path: Path, kind: str, harm: Callable[[Path], None]
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    harm(next((root / "checkpoint-5").glob(kind)))

    states = open_states(root, boot_id="1")
    with pytest.raises(StoreDamaged, match=r"checkpoint-5: .*Remove"):
        list(states.stream())
    end(states)
    for _ in range(2):  # the second start of a boot may not trust what the first did not
        with pytest.raises(StoreDamaged, match=r"checkpoint-5: .*Remove"):
            open_states(root, boot_id="2")

    directories.remove(root / "checkpoint-5")
    states = open_states(root, boot_id="2")
    assert (content(states.store), states.checkpointed) == ({}, 0)
    states.close()


@pytest.mark.parametrize("kind", ["MANIFEST-*", "CURRENT", "sums"])
def test_a_damaged_checkpoint_is_replaced_by_the_next(
    running: Path, tmp_path: Path, kind: str
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    flip(next((root / "checkpoint-5").glob(kind)))
    states = open_states(root, boot_id="1")

    states.checkpoint()

    end(states)
    states = open_states(root, boot_id="2")
    assert (content(states.store), states.checkpointed) == DONE
    states.close()


def cut_older_log(path: Path) -> None:
    shutil.copy(path, path.with_name("000001.log"))
    cut(path.with_name("000001.log"))


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        ("MANIFEST-*", flip),
        ("MANIFEST-*", cut),
        ("MANIFEST-*", Path.unlink),
        ("CURRENT", flip),
        ("CURRENT", cut),
        ("CURRENT", Path.unlink),
        ("*.log", flip),
        ("*.log", cut_older_log),
        ("*.log", Path.unlink),
        ("*.ldb", Path.unlink),
    ],
)
def test_a_damaged_live_store_is_replaced_by_the_newest_checkpoint(
    running: Path, tmp_path: Path, kind: str, harm: Callable[[Path], None]
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    for path in list((root / "live").glob(kind)):
        harm(path)

    states = open_states(root, boot_id="1")

    assert (content(states.store), states.checkpointed) == BACK
    assert states.recovery.after == "process crash"
    assert states.recovery.rebuilt
    assert states.recovery.damage
    states.close()


def test_a_write_that_was_cut_short_is_lost_whole_and_alone(running: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    (log,) = (root / "live").glob("*.log")
    cut(log)

    states = open_states(root, boot_id="1")

    assert (content(states.store), states.checkpointed) == (content_at(7), 5)
    assert not states.recovery.rebuilt
    states.close()


@pytest.mark.parametrize("harm", [flip, cut])
def test_a_live_store_that_turns_out_to_be_damaged_can_be_given_up(
    running: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    for path in (root / "live").glob("*.ldb"):
        harm(path)
    states = open_states(root, boot_id="1")
    with pytest.raises(StoreDamaged):
        content(states.store)

    states.distrust()

    states.close()
    states = open_states(root, boot_id="1")
    assert (content(states.store), states.checkpointed) == BACK
    assert states.recovery == Recovery("distrust", rebuilt=True)
    states.close()


def test_every_start_tells_how_it_went(tmp_path: Path) -> None:
    first = open_states(tmp_path, boot_id="1")
    commit_all(first.store, 1, 5)
    first.close()
    second = open_states(tmp_path, boot_id="1")
    end(second)
    third = open_states(tmp_path, boot_id="1")
    end(third)
    fourth = open_states(tmp_path, boot_id="2")
    fourth.close()

    told = [states.recovery for states in (first, second, third, fourth)]

    assert told == [
        Recovery("nothing", rebuilt=False),
        Recovery("clean stop", rebuilt=False),
        Recovery("process crash", rebuilt=False),
        Recovery("machine crash", rebuilt=True),
    ]


def test_a_marker_that_cannot_be_read_is_that_of_another_boot(
    running: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    (root / "running").write_bytes(b"")

    states = open_states(root, boot_id="1")

    assert (content(states.store), states.checkpointed) == BACK
    states.close()


def test_a_directory_is_had_by_one_process_only(tmp_path: Path) -> None:
    states = open_states(tmp_path, boot_id="1")

    with pytest.raises(StoreRefused):
        open_states(tmp_path, boot_id="1")

    states.close()
    open_states(tmp_path, boot_id="1").close()


@pytest.mark.parametrize("name", ["../evil", "live", "sums", "000001.log", "CURRENT/x"])
def test_a_stream_cannot_name_a_file_that_is_not_of_a_checkpoint(tmp_path: Path, name: str) -> None:
    states = open_states(tmp_path, boot_id="1")
    stream = pack([Source(name, 1, lambda: [b"x"])])

    with pytest.raises(StoreDamaged, match="not a file of a checkpoint"):
        states.install(stream)

    assert directories.names(tmp_path) == ["live", "running"]
    states.close()


# Beside writes.


def test_checkpoints_beside_writes_are_each_of_one_moment(tmp_path: Path) -> None:
    states = open_states(tmp_path, boot_id="1")
    streams: list[bytes] = []

    def make_checkpoints() -> None:
        for _ in range(8):
            index = states.checkpoint()
            streams.append(b"".join(states.stream()))
            assert states.checkpointed == index

    commit(states.store, 1)
    thread = threading.Thread(target=make_checkpoints)
    thread.start()
    index = 1
    while thread.is_alive():
        index += 1
        commit(states.store, index, {b"big|%d" % (index % 99): b"%d" % index * 5000})
    thread.join()
    states.close()

    assert len(streams) == 8
    for number, stream in enumerate(streams):
        root = tmp_path / f"copy-{number}"
        root.mkdir()
        copy = open_states(root, boot_id="1")
        copy.install([stream])
        found = content(copy.store)
        index = applied(copy.store)
        expected = content_at(index)
        for last in range(max(2, index - 98), index + 1):
            expected[b"big|%d" % (last % 99)] = b"%d" % last * 5000
        assert found == expected
        copy.close()


def test_a_table_that_vanishes_while_it_is_linked_costs_another_try(
    running: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    states = open_states(root, boot_id="1")
    link = directories.link
    failures = iter([False, False])

    def fail_twice(source: Path, target: Path) -> bool:
        return next(failures, True) and link(source, target)

    monkeypatch.setattr(directories, "link", fail_twice)

    assert states.checkpoint() == 8
    assert next(failures, None) is None
    states.close()


def test_a_flush_that_was_passed_over_is_ordered_again(
    running: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    states = open_states(root, boot_id="1")
    commit(states.store, 9)
    sync = states.store.sync
    passed_over = iter([True, True])

    def sync_third(store: LevelStore) -> None:
        if not next(passed_over, False):
            sync()

    with monkeypatch.context() as patched:
        patched.setattr(LevelStore, "sync", sync_third)
        assert states.checkpoint() == 9
        patched.setattr(LevelStore, "sync", lambda store: None)
        commit(states.store, 10)
        with pytest.raises(StoreFailed, match=f"in {TRIES_MAX} tries"):
            states.checkpoint()

    assert states.checkpoint() == 10
    states.close()


def test_what_compaction_is_still_writing_is_no_part_of_a_checkpoint(
    running: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    states = open_states(root, boot_id="1")
    gather = LevelStates._gather

    def gather_too_much(self: LevelStates, target: Path) -> None:
        gather(self, target)
        (target / "009999.ldb").write_bytes(b"half a table")

    monkeypatch.setattr(LevelStates, "_gather", gather_too_much)
    states.checkpoint()

    assert not (root / "checkpoint-8" / "009999.ldb").exists()
    assert b"009999" not in (root / "checkpoint-8" / "sums").read_bytes()
    states.close()


def test_a_table_that_is_still_the_same_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = open_states(tmp_path, boot_id="1")
    commit_all(states.store, 1, 5)
    states.checkpoint()
    old = {path.name for path in (tmp_path / "checkpoint-5").glob("*.ldb")}
    commit(states.store, 6)
    read: list[str] = []
    sum_up = directories.sum_up

    def noting(path: Path) -> Sum:
        read.append(path.name)
        return sum_up(path)

    monkeypatch.setattr(directories, "sum_up", noting)
    states.checkpoint()

    new = {path.name for path in (tmp_path / "checkpoint-6").glob("*.ldb")}
    assert old < new
    assert old.isdisjoint(read)
    assert new - old <= set(read)
    states.close()


def test_another_table_of_the_same_name_is_not_taken_for_the_old_one(
    running: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    old = root / "checkpoint-5"
    (table,) = old.glob("*.ldb")
    table.write_bytes(b"another table")
    noted = sums.decode((old / "sums").read_bytes())
    noted[table.name] = directories.sum_up(table)
    (old / "sums").write_bytes(sums.encode(noted))
    states = open_states(root, boot_id="1")
    assert table.name in states.store.tables()

    states.checkpoint()

    end(states)
    states = open_states(root, boot_id="2")
    assert (content(states.store), states.checkpointed) == DONE
    states.close()


def test_a_stream_that_nobody_reads_to_its_end_leaves_nothing_behind(
    running: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    states = open_states(root, boot_id="1")
    before = directories.names(root)

    stream = states.stream()
    next(iter(stream))
    del stream

    assert directories.names(root) == before
    states.close()


def test_the_pieces_of_a_stream_are_small(running: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(running, tmp_path / "root"))
    states = open_states(root, boot_id="1")
    commit(states.store, 9, {b"big": os.urandom(1 << 20)})
    states.checkpoint()

    assert max(map(len, states.stream())) == 256 << 10
    states.close()
