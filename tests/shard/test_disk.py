"""A replica whose directory is damaged: with enough others it sets all aside and begins again."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pytest

from corvo.errors import StoreDamaged, StoreError, StoreFailed
from corvo.kv.level import LevelStore
from corvo.kv.store import States
from corvo.kv.tables import read_meta
from corvo.raft import Entry, HardState, Kind, LogDamaged, Membership, Write
from corvo.raft.disk.files import RealFiles
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.recovery import quarantine
from corvo.raft.disk.wal import DiskStorage
from corvo.sealed import seal
from corvo.shard.config import ShardConfig
from corvo.shard.driver import disk
from corvo.shard.driver.disk import DAMAGED_STATE, Disk, open_parts
from corvo.shard.driver.known import Note, ShardLost, peers_of
from corvo.shard.driver.opening import Parts, assemble
from corvo.shard.machine import Machine
from corvo.shard.replica import Replica
from corvo.shard.state import entry
from corvo.shard.state.entry import Stamp
from tests.shard.processes import config_in

VOTERS: Final = (1, 2, 3)
PAUSE: Final = (11, b'{"queue":"mail"}')
INSTANCE: Final = 7
TERM: Final = 5
ENTRIES: Final = 60


def made_in(
    directory: Path, *, peers: tuple[int, ...] = (2, 3), entries: int = ENTRIES
) -> ShardConfig:
    """A replica with log, checkpoint and live state, and the note of what it has."""
    note = directory / "known.json"
    config = config_in(
        directory / "shard-0", voters=list(VOTERS), known=str(note), segment_bytes=2_048
    )
    root = Path(config.data_dir)
    for name in ("log", "state"):
        (root / name).mkdir(parents=True)
    identity = Identity(f"{config.cluster}/{config.shard}/{config.shards}", config.node, INSTANCE)
    files = RealFiles(root / "log")
    storage = DiskStorage.open(files, identity, Membership(voters=VOTERS), segment_bytes=2_048)
    made = tuple(
        Entry(index, TERM, Kind.NORMAL, entry.encode(Stamp(index), [PAUSE]))
        for index in range(1, entries + 1)
    )
    storage.put(Write(token=1, hard_state=HardState(TERM, 2, entries), entries=made))
    storage.sync()
    states = Disk().open_states(root / "state", "this boot")
    machine = Machine(states.store, shard=0, shards=config.shards)
    for each in made:
        machine.apply(index=each.index, term=each.term, data=each.data)
        if each.index == entries // 2:
            states.checkpoint()
    states.close()
    storage.close()
    has = Note(instance=INSTANCE, index=entries, checksum=None, peers=peers)
    note.write_bytes(seal(msgspec.json.encode(has)))
    return config


def opened(config: ShardConfig) -> Parts:
    return open_parts(config, Disk(), Random(1))


def close(parts: Parts) -> None:
    parts.states.close()
    parts.storage.close()


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def damage_segment(root: Path) -> None:
    first = min((root / "log").glob("*.seg"))
    data = bytearray(first.read_bytes())
    data[12_288 + 40] ^= 1
    first.write_bytes(data)


def damage_manifest(root: Path) -> None:
    zero(root / "log" / "manifest")


def damage_state_and_checkpoint(root: Path) -> None:
    for path in (root / "state").rglob("*"):
        if path.is_file():
            zero(path)


def lose_state(root: Path) -> None:
    """The log does not begin before what only the state had."""
    shutil.rmtree(root / "state")
    storage = DiskStorage.open(
        RealFiles(root / "log"), Identity("rookery/0/1", 1, INSTANCE), segment_bytes=2_048
    )
    storage.compact(index=ENTRIES // 2, membership=Membership(voters=VOTERS))
    storage.close()


DAMAGES: Final = [damage_segment, damage_manifest, damage_state_and_checkpoint, lose_state]
damages = pytest.mark.parametrize("damage", DAMAGES)


@damages
def test_a_damaged_replica_begins_again_if_others_have_everything(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    config = made_in(tmp_path)
    root = Path(config.data_dir)
    damage(root)

    parts = opened(config)

    assert parts.damage
    assert parts.storage.repairing
    assert parts.replica.node.is_repairing
    assert parts.storage.last_index == parts.replica.machine.applied == 0
    assert parts.storage.identity.instance == INSTANCE
    assert (parts.storage.hard_state.term, parts.storage.hard_state.vote) == (TERM, 2)
    assert (root / "log" / "quarantine-1" / "manifest").exists()
    assert (root / DAMAGED_STATE).exists()
    close(parts)


@damages
def test_a_repair_that_was_interrupted_goes_on(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    config = made_in(tmp_path)
    damage(Path(config.data_dir))
    close(opened(config))

    parts = opened(config)

    assert not parts.damage
    assert parts.replica.node.is_repairing
    close(parts)


@damages
def test_a_damaged_replica_stays_down_if_the_others_need_it(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    config = made_in(tmp_path, peers=())
    root = Path(config.data_dir)
    damage(root)

    with pytest.raises((LogDamaged, StoreDamaged)):
        opened(config)

    assert not list((root / "log").glob("quarantine-*"))
    assert not (root / DAMAGED_STATE).exists()


@pytest.mark.parametrize("name", ["identity", "hard-state"])
def test_a_replica_without_its_vote_stays_down_and_says_how_to_replace_the_node(
    tmp_path: Path, name: str
) -> None:
    config = made_in(tmp_path)
    root = Path(config.data_dir)
    zero(root / "log" / name)

    with pytest.raises(
        ShardLost, match=r"nodes 2, 3 .*`corvo cluster remove 1 --reason damage --force`"
    ):
        opened(config)

    assert not list((root / "log").glob("quarantine-*"))
    assert (root / "state" / "live").exists()


def test_a_crash_between_log_and_state_is_mended_by_the_next_start(tmp_path: Path) -> None:
    config = made_in(tmp_path)
    root = Path(config.data_dir)
    files = RealFiles(root / "log")
    quarantine(files)
    files.close()

    parts = opened(config)

    assert parts.replica.node.is_repairing
    assert read_meta(parts.states.store).applied == 0
    close(parts)


def test_a_damaged_state_is_set_aside_although_it_cannot_be_closed_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by damaging a table that LevelDB was about to merge.

    The shard ended six times and stayed down: the error of closing hid the damage.
    """
    config = made_in(tmp_path)
    faults: list[StoreError] = [StoreDamaged("cannot read: checksum"), StoreFailed("cannot sync")]
    sync = LevelStore.sync

    def assemble_with_fault(
        config: ShardConfig,
        storage: DiskStorage,
        states: States,
        random: Random,
        *,
        clock_offset_ns: int | None,
    ) -> Replica:
        if len(faults) == 2:
            raise faults.pop(0)
        return assemble(config, storage, states, random, clock_offset_ns=clock_offset_ns)

    def sync_with_fault(store: LevelStore) -> None:
        if len(faults) == 1:
            raise faults.pop(0)
        sync(store)

    monkeypatch.setattr(disk, "assemble", assemble_with_fault)
    monkeypatch.setattr(LevelStore, "sync", sync_with_fault)

    parts = opened(config)

    assert parts.damage == "cannot read: checksum"
    assert parts.storage.repairing
    close(parts)


def test_a_log_that_is_older_than_its_state_is_not_set_aside(tmp_path: Path) -> None:
    older = made_in(tmp_path / "older", entries=10)
    config = made_in(tmp_path / "now")
    root = Path(config.data_dir)
    shutil.rmtree(root / "log")
    shutil.copytree(Path(older.data_dir) / "log", root / "log")
    note = Note(instance=INSTANCE, index=5, checksum=None, peers=(2, 3))
    Path(config.known).write_bytes(seal(msgspec.json.encode(note)))

    with pytest.raises(ShardLost, match="the log ends at"):
        opened(config)

    assert not list((root / "log").glob("quarantine-*"))


@pytest.mark.parametrize(
    ("membership", "peers"),
    [
        (Membership(voters=(1,)), ()),
        (Membership(voters=(1, 2)), ()),
        (Membership(voters=(1, 2, 3)), (2, 3)),
        (Membership(voters=(1, 2, 3, 4)), (2, 3, 4)),
        (Membership(voters=(2, 3)), (2, 3)),
        (Membership(voters=(2,), learners=(1,)), (2,)),
        (Membership(voters=(1, 2, 3), outgoing=(1,)), ()),
        (Membership(voters=(1,), outgoing=(1, 2, 3)), ()),
        (Membership(voters=(1, 2, 4), outgoing=(1, 2, 3)), (2, 4)),
    ],
)
def test_the_others_are_enough_if_they_are_a_majority(
    membership: Membership, peers: tuple[int, ...]
) -> None:
    assert peers_of(membership, 1) == peers
