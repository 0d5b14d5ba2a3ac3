"""Short words for changes of the membership, and logs that hold some."""

from corvo.raft import (
    Action,
    Change,
    Entry,
    HardState,
    Kind,
    Membership,
    MemoryStorage,
    Step,
    Write,
)
from corvo.raft.membership import encode
from tests.raft.group import Group


def add(replica: int) -> Step:
    """Make it a voter."""
    return Step(Action.ADD_VOTER, replica)


def learn(replica: int) -> Step:
    """Make it a learner."""
    return Step(Action.ADD_LEARNER, replica)


def remove(replica: int) -> Step:
    """Make it neither."""
    return Step(Action.REMOVE, replica)


def change(group: Group, *steps: Step, auto: bool = True, leader: int = 1) -> None:
    """Propose a change and let the group come to rest."""
    group[leader].propose_change(Change(steps, auto=auto))
    group.settle()


def log_of(membership: Membership, *changes: Change, term: int = 1) -> MemoryStorage:
    """A log of a no-op and these changes, all of one term; nothing is known to be committed."""
    storage = MemoryStorage(membership)
    entries = [Entry(1, term, Kind.NOOP, b"")]
    entries += [Entry(2 + at, term, Kind.CONFIG, encode(each)) for at, each in enumerate(changes)]
    storage.put(Write(token=1, entries=tuple(entries), hard_state=HardState(term)))
    return storage
