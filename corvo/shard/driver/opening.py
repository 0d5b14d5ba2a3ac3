"""Opening of a replica: log and state on disk are brought together, or refused.

The state may be behind the log and is never ahead of it: whatever was applied was durable in the
log before. After a crash of the machine the state is its last checkpoint, and the log, which is cut
only behind a checkpoint, has the rest.
"""

from random import Random

import msgspec

from corvo.errors import StoreDamaged
from corvo.kv.store import States
from corvo.kv.tables import read_meta
from corvo.raft import Membership, Node
from corvo.raft import Settings as RaftSettings
from corvo.raft.disk.wal import DiskStorage
from corvo.shard.config import ShardConfig
from corvo.shard.driver.known import Known
from corvo.shard.machine import Machine
from corvo.shard.replica import APPLIED_BYTES_MAX, Replica, Settings


class Parts(msgspec.Struct, frozen=True):
    """What a driver drives."""

    replica: Replica
    storage: DiskStorage
    states: States
    known: Known
    is_after_crash: bool = False  # whether the process before this one ended without a word


def first_membership(config: ShardConfig, instance: int) -> Membership:
    """Who belongs to a shard that is new. Several agree on it by having the same config."""
    if not config.voters:
        return Membership(voters=(config.node,), pins=((config.node, instance),))
    return Membership(voters=tuple(sorted(config.voters)))


def assemble(config: ShardConfig, storage: DiskStorage, states: States, random: Random) -> Replica:
    """The replica that goes on where log and state are. Raises `StoreDamaged` where they part."""
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
        raise StoreDamaged(
            f"the state is at {applied} and the log ends at {storage.last_index}: the directory"
            " `log` is older than `state`; put back the one that belongs to it, or remove this"
            " replica's data and let it be made again by its peers"
        )
    node = Node(
        RaftSettings(
            replica=config.node,
            instance=storage.identity.instance,
            election_ticks=config.election_ticks,
            page_bytes_max=APPLIED_BYTES_MAX,
        ),
        storage,
        random,
        applied=applied,
        repair=storage.repairing,
    )
    settings = Settings(
        retention_ms=config.retention_ms, grace_ms=config.grace_ms, limits=config.limits
    )
    return Replica(settings, node, machine_on(config, states), random)


def machine_on(config: ShardConfig, states: States) -> Machine:
    """The state machine on the live store of this moment."""
    return Machine(
        states.store, shard=config.shard, shards=config.shards, feed_bytes_max=config.feed_bytes
    )
