"""The directory of a replica: what is in it is opened, and set aside where it is damaged.

Damage is set aside if other replicas have everything that this one had, as the note outside of the
directory says. The replica then begins again without a log and without a state, takes no part in
votes, and gets both from a leader. Who it is and how it voted stays: where that is damaged, too,
the replica has to be replaced.
"""

import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.errors import StoreDamaged, StoreError
from corvo.kv import directories
from corvo.kv.checkpoints import LevelStates, read_newest
from corvo.kv.tables import read_meta
from corvo.raft import LogDamaged
from corvo.raft.disk.files import RealFiles
from corvo.raft.disk.filesystem import Files
from corvo.raft.disk.identity import OtherIdentity
from corvo.raft.disk.recovery import quarantine
from corvo.shard.config import ShardConfig
from corvo.shard.driver.known import Known, ShardLost, foreign
from corvo.shard.driver.opening import Parts, assemble, open_log

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
DAMAGED_STATE: Final = "state.damaged"
"""Where the state of a damaged replica is kept until the other replicas have replaced it."""


class Disk(msgspec.Struct, frozen=True):
    """Where a process keeps things; tests put something in between."""

    open_files: Callable[[Path], Files] = RealFiles
    open_states: Callable[[Path, str], LevelStates] = lambda root, boot_id: LevelStates(
        root, boot_id=boot_id, applied=lambda store: read_meta(store).applied
    )
    boot_id: Callable[[], str] = lambda: _BOOT_ID.read_text().strip()


def open_parts(
    config: ShardConfig, disk: Disk, random: Random, *, clock_offset_ns: int | None = None
) -> Parts:
    """Open everything that is on the disk.

    What is damaged is set aside if other replicas have it too. Raises what is wrong otherwise.
    """
    known = Known(config)
    known.check_directory()
    root = Path(config.data_dir)
    make_directories(root)
    try:
        return _open(config, disk, known, random, clock_offset_ns)
    except (LogDamaged, StoreDamaged) as error:
        if not known.peers:
            raise
        damage = str(error)
    files = disk.open_files(root / "log")
    try:
        quarantine(files)
    except LogDamaged as error:
        raise ShardLost(f"{error}{known.how_to_join_again}") from error
    finally:
        files.close()
    shutil.rmtree(root / DAMAGED_STATE, ignore_errors=True)
    directories.rename(root / "state", root / DAMAGED_STATE)
    make_directories(root)
    return replace(_open(config, disk, known, random, clock_offset_ns), damage=damage)


def _open(
    config: ShardConfig, disk: Disk, known: Known, random: Random, clock_offset_ns: int | None
) -> Parts:
    """Open log and state, or nothing."""
    root = Path(config.data_dir)
    with ExitStack() as opened:
        files = disk.open_files(root / "log")
        opened.callback(files.close)
        try:
            storage, aside = open_log(config, files, lambda: read_newest(root / "state", read_meta))
        except OtherIdentity as error:
            raise ShardLost(foreign(config, error.found)) from error
        known.check_log(storage)
        states = disk.open_states(root / "state", disk.boot_id())
        opened.callback(_let_go, states)
        replica = assemble(config, storage, states, random, clock_offset_ns=clock_offset_ns)
        opened.pop_all()
    is_after_crash = states.recovery.after == "process crash"
    return Parts(replica, storage, states, known, aside, is_after_crash)


def _let_go(states: LevelStates) -> None:
    """Close a state that is not used after all. What is wrong with it is known already."""
    try:
        states.close()
    except StoreError:
        with suppress(StoreError):
            states.distrust()


def make_directories(root: Path) -> None:
    """Where log and state are kept. Their names are made as durable as what will be in them."""
    for directory in (root / "log", root / "state"):
        directory.mkdir(parents=True, exist_ok=True)
    directories.sync_names(root)
    directories.sync_names(root.parent)
