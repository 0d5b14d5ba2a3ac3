"""A replica from what its disk holds: what fits goes on, and what does not is refused."""

from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pytest

from corvo.errors import StoreDamaged
from corvo.kv.tables import read_meta
from corvo.raft import Entry, HardState, Kind, Membership, Write
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.messages import VoteRequest, VoteResponse
from corvo.shard.driver.known import ShardLost
from corvo.shard.driver.opening import assemble, first_membership
from corvo.shard.machine import Machine
from corvo.shard.replica import Replica
from corvo.shard.state import entry
from corvo.shard.state.entry import Stamp
from tests.shard.processes import config_in
from tests.support.files import MemoryFiles
from tests.support.memory import MemoryStates

CONFIG: Final = config_in(Path("here"))
ALONE: Final = Membership(voters=(1,))
PAUSE: Final = (11, b'{"queue":"mail"}')


def storage_with(files: MemoryFiles, count: int) -> DiskStorage:
    """A log of so many entries, all of them committed."""
    storage = DiskStorage.open(files, Identity("rookery", 1, 7), ALONE, segment_bytes=2_048)
    entries = tuple(
        Entry(index, 1, Kind.NORMAL, entry.encode(Stamp(index), [PAUSE]))
        for index in range(storage.last_index + 1, count + 1)
    )
    state = HardState(1, 1, count)
    storage.put(Write(token=1, hard_state=state, entries=entries))
    storage.sync()
    return storage


def states_at(storage: DiskStorage, applied: int) -> MemoryStates:
    """The state behind so many entries."""
    states = MemoryStates(applied=lambda store: read_meta(store).applied)
    machine = Machine(states.store, shard=0, shards=1)
    for index in range(1, applied + 1):
        [found] = storage.entries(index, index, 1 << 20)
        machine.apply(index=index, term=1, data=found.data)
    return states


def opened(storage: DiskStorage, states: MemoryStates) -> Replica:
    return assemble(CONFIG, storage, states, Random(1))


@pytest.mark.parametrize("applied", [0, 4, 9])
def test_a_state_that_is_behind_its_log_goes_on_from_there(applied: int) -> None:
    storage = storage_with(MemoryFiles(), 9)

    replica = opened(storage, states_at(storage, applied))

    assert replica.machine.applied == applied
    assert replica.node.membership == ALONE


def test_a_state_that_is_ahead_of_its_log_is_refused() -> None:
    whole = storage_with(MemoryFiles(), 9)
    states = states_at(whole, 9)

    with pytest.raises(ShardLost, match="the state is at 9 and the log ends at 8"):
        opened(storage_with(MemoryFiles(), 8), states)


def test_a_state_that_is_older_than_a_cut_log_is_refused() -> None:
    storage = storage_with(MemoryFiles(), 9)
    states = states_at(storage, 4)
    storage.compact(index=6, membership=ALONE)

    with pytest.raises(StoreDamaged, match="the state is at 4 and the log begins behind 6"):
        opened(storage, states)


def test_a_snapshot_that_arrived_becomes_the_state_that_it_was_to_be() -> None:
    storage = storage_with(MemoryFiles(), 9)
    newer, older = states_at(storage, 7), states_at(storage, 4)
    newer.checkpoint()
    storage.make_snapshot(index=7, membership=ALONE, data=newer.stream())
    storage.compact(index=7, membership=ALONE)

    replica = opened(storage, older)

    assert replica.machine.applied == 7
    assert older.checkpointed == 7
    assert replica.machine.digest == read_meta(newer.store).digest


def test_a_snapshot_that_is_older_than_the_cut_log_is_no_help() -> None:
    storage = storage_with(MemoryFiles(), 9)
    newer, older = states_at(storage, 5), states_at(storage, 2)
    newer.checkpoint()
    storage.make_snapshot(index=5, membership=ALONE, data=newer.stream())
    storage.compact(index=7, membership=ALONE)

    with pytest.raises(StoreDamaged, match="the state is at 2 and the log begins behind 7"):
        opened(storage, older)


def test_a_new_shard_of_one_is_pinned_to_its_directory() -> None:
    assert first_membership(CONFIG, 77) == Membership(voters=(1,), pins=((1, 77),))


def test_the_first_members_of_a_group_are_the_same_for_all_of_them() -> None:
    several = [config_in(Path("here"), voters=voters) for voters in ([3, 1, 2], [2, 3, 1])]

    first = [first_membership(config, 77) for config in several]

    assert first == [Membership(voters=(1, 2, 3))] * 2


@pytest.mark.parametrize("has_left", [False, True])
def test_a_replica_that_returns_to_its_node_does_not_vote_before_it_has_a_state(
    has_left: bool,
) -> None:
    storage = DiskStorage.open(
        MemoryFiles(), Identity("rookery", 1, 7), Membership(), segment_bytes=2_048
    )
    states = MemoryStates(applied=lambda store: read_meta(store).applied)
    config = msgspec.structs.replace(CONFIG, is_new_member=True, has_left=has_left)
    replica = assemble(config, storage, states, Random(1))

    replica.step(
        VoteRequest(
            2, 1, 5, 0, last_index=9, last_term=4, pre=False, forced=False, commit=0, commit_term=0
        )
    )
    ready = replica.node.ready()

    assert ready.write is not None
    [answer] = ready.write.messages
    assert isinstance(answer, VoteResponse)
    assert answer.granted is not has_left
