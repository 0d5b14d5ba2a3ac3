"""Opening of a replica: log and state on disk are brought together, or refused.

The state may be behind the log and is never ahead of it: whatever was applied was durable in the
log before. After a crash of the machine the state is its last checkpoint, and the log, which is cut
only behind a checkpoint, has the rest.
"""

import secrets
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

import msgspec

from corvo.errors import StoreDamaged
from corvo.kv.store import States
from corvo.kv.tables import Meta, read_meta
from corvo.protocol import wire
from corvo.raft import Kind, LogDamaged, Membership, Node
from corvo.raft import Settings as RaftSettings
from corvo.raft.disk.filesystem import Files
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.salvage import set_aside
from corvo.raft.disk.wal import DiskStorage
from corvo.shard.config import ShardConfig
from corvo.shard.driver.known import Known, ShardLost
from corvo.shard.machine import Machine
from corvo.shard.replica import APPLIED_BYTES_MAX, Replica, Settings
from corvo.shard.state import entry
from corvo.steered_clock import SteeredClock

_MS: Final = 1_000_000
_SETTLED_MS: Final = 10_000
"""How long the first replica of the place must be able to lead before it is to lead."""
_AGAIN_MS: Final = 60_000
_HEARTBEATS: Final = 4
"""In the time after which a follower stands for election, when it hears nothing of its leader."""
_LOOK_BACK: Final = 1_000
"""Entries at the end of the log among which the last stamp is looked for: Raft has few in a row."""


class Aside(msgspec.Struct, frozen=True):
    """Damage that was set aside, because a checkpoint has all that was lost by it."""

    files: tuple[str, ...]
    checkpoint: int
    damage: str


def open_log(
    config: ShardConfig, files: Files, read_checkpoint: Callable[[], Meta | None]
) -> tuple[DiskStorage, Aside | None]:
    """The log, without damage below the checkpoint: a shard that is alone does not need that.

    Raises `LogDamaged` for other damage.
    """
    instance = secrets.randbits(62)
    identity = Identity(f"{config.cluster}/{config.shard}/{config.shards}", config.node, instance)

    def try_to_open() -> DiskStorage:
        return DiskStorage.open(
            files,
            identity,
            first_membership(config, instance),
            segment_bytes=config.segment_bytes,
            ballast_bytes=config.ballast_bytes,
        )

    try:
        return try_to_open(), None
    except LogDamaged as error:
        checkpoint = read_checkpoint() if config.is_alone else None
        if checkpoint is None:
            raise
        try:
            names = set_aside(files, index=checkpoint.applied, term=checkpoint.term)
        except LogDamaged:
            raise error from None
        damage = f"{error.file} at offset {error.offset}, entry {error.index}: {error.problem}"
        return try_to_open(), Aside(names, checkpoint.applied, damage)


class Parts(msgspec.Struct, frozen=True):
    """What a driver drives."""

    replica: Replica
    storage: DiskStorage
    states: States
    known: Known
    aside: Aside | None = None
    is_after_crash: bool = False  # whether the process before this one ended without a word
    damage: str = ""
    """Why log and state were set aside, and the replica begins again with what its peers have."""


def first_membership(config: ShardConfig, instance: int) -> Membership:
    """Who belongs to a shard that is new. Several agree on it by having the same config."""
    if config.is_alone:
        return Membership(voters=(config.node,), pins=((config.node, instance),))
    return Membership(voters=tuple(sorted(config.first_voters)))


def assemble(
    config: ShardConfig,
    storage: DiskStorage,
    states: States,
    random: Random,
    *,
    clock_offset_ns: int | None = None,
) -> Replica:
    """The replica that goes on where log and state are. Raises `StoreDamaged` where they part.

    `clock_offset_ns` is that of the clock of the process before this one, if it is known.
    """
    applied = read_meta(states.store).applied
    if applied < storage.base.index:
        kept = storage.snapshot()
        if kept is None or kept.index < storage.base.index:
            raise StoreDamaged(
                f"the state is at {applied} and the log begins behind {storage.base.index}: the"
                " directory `state` is older than `log`; put back the one that belongs to it, or"
                " remove this replica's data and let it be made again by its peers"
            )
        states.install(storage.snapshot_data())
        applied = read_meta(states.store).applied
    if applied > storage.last_index:
        problem = (
            f"the state is at {applied} and the log ends at {storage.last_index}: the directory"
            " `log` is older than `state`; put back the one that belongs to it, or remove this"
            " replica's data and let it be made again by its peers"
        )
        # The vote is in the log, and so may be older, too: that cannot be set aside.
        raise StoreDamaged(problem) if storage.repairing else ShardLost(problem)
    node = Node(
        RaftSettings(
            replica=config.node,
            instance=storage.identity.instance,
            election_ticks=config.election_ticks,
            heartbeat_ticks=max(1, config.election_ticks // _HEARTBEATS),
            page_bytes_max=APPLIED_BYTES_MAX,
        ),
        storage,
        random,
        applied=applied,
        repair=storage.repairing,
        returned=config.has_left,
    )
    settings = Settings(
        retention_ms=config.retention_ms,
        grace_ms=config.grace_ms,
        limits=config.limits,
        election_ticks=config.election_ticks,
        settled_ticks=_SETTLED_MS // config.tick_ms,
        again_ticks=_AGAIN_MS // config.tick_ms,
        op_version=wire.OP_VERSION,
    )
    machine = machine_on(config, states)
    clock = SteeredClock(
        last_ns=max(machine.now_ns, last_stamp_ns(storage)),
        ahead_max_ns=config.clock_ahead_max_ms * _MS,
        offset_ns=clock_offset_ns,
    )
    return Replica(settings, node, machine, random, clock)


def last_stamp_ns(storage: DiskStorage) -> int:
    """The last stamp in the log, or 0. The state may lack it, as an old checkpoint does."""
    index = storage.last_index
    for _ in range(min(_LOOK_BACK, index - storage.base.index)):
        [last] = storage.entries(index, index, 1)
        if last.kind is Kind.NORMAL and last.data:
            with suppress(entry.BadEntry):  # whoever applies it says so
                return entry.decode(last.data)[0].now_ns
        index -= 1
    return 0


def machine_on(config: ShardConfig, states: States) -> Machine:
    """The state machine on the live store of this moment."""
    return Machine(
        states.store, shard=config.shard, shards=config.shards, feed_bytes_max=config.feed_bytes
    )
