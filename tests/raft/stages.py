"""A node in every situation it can be in, for tests that have to hold in all of them.

Each function sets a scene and returns it with the replica that is looked at. What is not settled
stays in flight: a scene is a moment, not an end.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from corvo.raft import LEAVE, Action, Change, MemoryStorage, Node, Snapshot, Step
from corvo.raft.messages import SnapshotChunk
from corvo.raft.state import Raft, Role
from tests.raft.group import Group, members


class Stage(NamedTuple):
    """A group and the replica to look at."""

    group: Group
    replica: int

    @property
    def node(self) -> Node:
        return self.group[self.replica]

    @property
    def raft(self) -> Raft:
        return self.group.raft(self.replica)


def fresh() -> Stage:
    """Nothing has happened yet."""
    return Stage(Group(3), 1)


def follower() -> Stage:
    group = _led()
    return Stage(group, 2)


def follower_behind() -> Stage:
    """It holds entries of another leader that were never committed."""
    group = _led()
    group.isolate(1)
    group.propose(1, b"lost", b"lost too")
    group.elect(2)
    group.propose(2, b"kept")
    group[1].tick(missed=10)
    return Stage(group, 1)


def pre_candidate() -> Stage:
    group = _led()
    group.isolate(3)
    group[3].forget_leader()
    group[3].campaign()
    group.settle()
    assert group.raft(3).role is Role.PRE_CANDIDATE
    return Stage(group, 3)


def candidate() -> Stage:
    """It has asked and not been answered."""
    group = _led()
    group[1].tick(missed=10)
    group[3].forget_leader()
    group[2].forget_leader()
    group[3].campaign()
    group.work()
    group.deliver()
    group.work()
    group.deliver()
    group.work(3)
    assert group.raft(3).role is Role.CANDIDATE
    return Stage(group, 3)


def candidate_unwritten() -> Stage:
    """Its own vote is not on the disk yet."""
    group = Group(3)
    group.slow_disks.add(1)
    group[1].campaign()
    group.work(1)
    group.deliver()
    group.work()
    group.deliver()
    group.work(1)
    assert group.raft(1).role is Role.CANDIDATE
    return Stage(group, 1)


def leader() -> Stage:
    return Stage(_led(), 1)


def leader_busy() -> Stage:
    """Small windows, some of them full; reads and proposals wait."""
    group = Group(3, window_messages_max=2, append_bytes_max=8)
    group.elect(1)
    for number in range(6):
        group[1].propose(b"entry %d" % number)
    group[1].read_index()
    group.ready(1)
    return Stage(group, 1)


def leader_new() -> Stage:
    """It leads and has committed nothing in its term."""
    group = Group(3)
    group.passes = lambda message: type(message).__name__.startswith("Vote")
    group[1].campaign()
    group.settle()
    group[1].read_index()
    assert group[1].is_leader
    assert not group.raft(1).is_established
    return Stage(group, 1)


def leader_handing_over() -> Stage:
    group = _led()
    group.isolate(3)
    group.propose(1, b"not at 3")
    group[1].transfer(3)
    group.settle()
    return Stage(group, 1)


def leader_of_one() -> Stage:
    group = Group(1)
    group.elect(1)
    return Stage(group, 1)


def leader_joint() -> Stage:
    """In the middle of 1, 2, 3 becoming 1, 2, 4."""
    return Stage(_joint(), 1)


def follower_joint() -> Stage:
    return Stage(_joint(), 3)


def leader_removed() -> Stage:
    """The change that removed it is applied; the others do not know yet that it is committed."""
    group = _led()
    group[1].propose_change(Change((Step(Action.REMOVE, 1),), auto=False))
    group.settle()
    group[1].propose_change(LEAVE)
    group.work()
    group.deliver()
    group.work()
    group.deliver()
    group.work(1)
    assert group.raft(1).leadership is not None
    assert group.membership != group[1].membership
    return Stage(group, 1)


def learner() -> Stage:
    group = Group(members(1, 2, learners=(3,)))
    group.elect(1)
    group.propose(1, b"one")
    return Stage(group, 3)


def pulling() -> Stage:
    """A first piece of a snapshot has arrived and is on the disk."""
    group = _snapshot_wanted()
    _until(group, lambda: (group.raft(3).incoming or _NONE).received > 0)
    return Stage(group, 3)


def pulling_slowly() -> Stage:
    """A piece of a snapshot is on its way to the disk."""
    group = _snapshot_wanted()
    _until(group, lambda: (group.raft(3).incoming or _NONE).received > 0)
    group.slow_disks.add(3)
    _until(group, lambda: any(write.chunk for write in group.writes[3]))
    return Stage(group, 3)


def installing() -> Stage:
    """The snapshot is whole; installing it is on its way to the disk."""
    group = _snapshot_wanted()
    _until(group, lambda: (group.raft(3).incoming or _NONE).received >= 24)
    group.slow_disks.add(3)
    while not group.raft(3).log.is_installing:
        group.store(3)
        group.work()
        group.deliver()
    group.work(3)
    return Stage(group, 3)


def serving() -> Stage:
    """A leader with a follower that pulls a snapshot."""
    return Stage(pulling().group, 1)


def repairing() -> Stage:
    """It asks every leader for a snapshot and has been offered none."""
    group = _led()
    group.start(3, repair=True)
    return Stage(group, 3)


def repairing_offered() -> Stage:
    group = _repaired()
    _until(group, lambda: group.raft(3).incoming is not None)
    return Stage(group, 3)


def repairing_installed() -> Stage:
    """The snapshot is in place, but not yet everything that its offer spoke of."""
    group = _repaired()
    _until(group, lambda: (group.raft(3).repair or _NONE).installed)
    return Stage(group, 3)


Scene = Callable[[], Stage]

STAGES: Final[tuple[Scene, ...]] = (
    fresh,
    follower,
    follower_behind,
    pre_candidate,
    candidate,
    candidate_unwritten,
    leader,
    leader_busy,
    leader_new,
    leader_handing_over,
    leader_of_one,
    leader_joint,
    follower_joint,
    leader_removed,
    learner,
    pulling,
    pulling_slowly,
    installing,
    serving,
    repairing,
    repairing_offered,
    repairing_installed,
)


class _Nothing(NamedTuple):
    received: int = -1
    installed: bool = False


_NONE = _Nothing()


def _led() -> Group:
    """Replica 1 leads three, and everything is settled."""
    group = Group(3, chunk_bytes_max=8)
    group.elect(1)
    group.propose(1, b"one", b"two")
    return group


def _joint() -> Group:
    group = _led()
    group.start(4)
    group[1].propose_change(
        Change((Step(Action.REMOVE, 3), Step(Action.ADD_VOTER, 4)), auto=False), force=True
    )
    group.settle()
    assert group[3].membership.outgoing == (1, 2, 3)
    return group


def _checkpoint(group: Group, replica: int) -> Snapshot:
    """Make a snapshot of what is applied and cut the log behind it."""
    name = group[replica].describe_state()
    assert name is not None
    storage = group.storages[replica]
    assert isinstance(storage, MemoryStorage)
    snapshot = storage.make_snapshot(
        index=name.index, membership=name.membership, data=b"a state of several chunks"
    )
    storage.compact(index=name.index, membership=name.membership)
    return snapshot


def _snapshot_wanted() -> Group:
    group = _led()
    group.isolate(3)
    group.propose(1, b"three", b"four")
    _checkpoint(group, 1)
    group.heal()
    group[1].tick()
    return group


def _repaired() -> Group:
    """Replica 3 is to be made whole by a leader that has committed more than its snapshot holds."""
    group = _led()
    _checkpoint(group, 2)
    group.isolate(3)
    group.start(3, repair=True)
    group[1].tick(missed=10)
    group.elect(2)
    group.propose(2, b"behind the snapshot")
    group.heal()
    group[2].tick()
    return group


def _until(group: Group, reached: Callable[[], bool]) -> None:
    """Work and deliver, one message at a time, until the scene is there."""
    for _ in range(1000):
        if reached():
            return
        group.work()
        if not group.mail:
            break
        message = group.mail.pop(0)
        if message.target in group.nodes:
            group.nodes[message.target].step(message)
        if isinstance(message, SnapshotChunk):
            group.work(message.target)
    raise AssertionError("the scene was not reached")
