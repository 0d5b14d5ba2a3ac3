"""Three replicas, a bag of messages and no mercy: hypothesis looks for an order that breaks Raft.

Messages are delivered in any order, lost and doubled; writes become durable late; replicas lose
what was not durable. After every step the properties of the paper's figure 3 are looked at.
"""

import contextlib
import itertools
from typing import Final

from hypothesis import settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from corvo.raft import Entry, Refused
from corvo.raft.log import RaftLog
from corvo.raft.messages import AppendResponse, VoteResponse
from corvo.raft.state import Raft
from tests.raft.group import Group

REPLICAS: Final = (1, 2, 3)
LINKS: Final = tuple(itertools.permutations(REPLICAS, 2))
EVERYTHING: Final = 1 << 40  # bytes: no page of a test is larger

replicas = st.sampled_from(REPLICAS)


class Cluster(RuleBasedStateMachine):
    """What can happen, and what must hold whatever does."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group(
            3,
            election_ticks=3,
            append_bytes_max=8,
            window_messages_max=2,
            page_bytes_max=8,
            chunk_bytes_max=8,
        )
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, tuple[Entry, int]] = {}
        """Each committed entry, and the lowest term in which a replica knew of it."""
        self.names = itertools.count()

    # What can happen.

    @stateful.initialize(leader=st.sampled_from((0, *REPLICAS)))
    def begin(self, leader: int) -> None:
        """With a leader, mostly: the road to the first one is long."""
        if leader:
            self.group.elect(leader)

    @rule(lonely=st.sampled_from((0, *REPLICAS)), cut=st.sets(st.sampled_from(LINKS), max_size=2))
    def part(self, lonely: int, cut: set[tuple[int, int]]) -> None:
        """From now on nothing passes along these links, nor to or from the lonely one."""
        self.group.heal()
        if lonely:
            self.group.isolate(lonely)
        self.group.cut_links |= cut

    @precondition(lambda self: self.group.leaders)
    @rule(heir=replicas)
    def depose(self, heir: int) -> None:
        """The leader is alone with what was proposed last, and another stands for election."""
        leader = self.group.leaders[-1]
        self.group.isolate(leader)
        self.propose(2, settle=False)
        self.group.work(leader)
        self.campaign(heir, settle=True)

    @rule()
    def mend(self) -> None:
        """All links and disks are well again."""
        self.group.heal()
        self.group.slow_disks.clear()
        for replica in REPLICAS:
            self.group.store(replica)
        self.group.tick()

    @rule(slow=st.sets(replicas))
    def slow_down(self, slow: set[int]) -> None:
        """From now on these disks are slow, and the others are not."""
        self.group.slow_disks = set(slow)
        for replica in sorted({*REPLICAS} - slow):
            self.group.store(replica)

    @rule()
    def settle(self) -> None:
        """Everything happens that can, with the trouble there is."""
        self.group.settle()

    @precondition(lambda self: self.group.mail)
    @rule(data=st.data(), again=st.booleans())
    def deliver(self, data: st.DataObject, *, again: bool) -> None:
        """Any message, not only the oldest; at times it stays in the bag."""
        mail = self.group.mail
        position = data.draw(st.integers(0, len(mail) - 1))
        message = mail[position] if again else mail.pop(position)
        self.group[message.target].step(message)

    @precondition(lambda self: self.group.mail)
    @rule(count=st.integers(1, 8))
    def deliver_oldest(self, count: int) -> None:
        for _ in range(min(count, len(self.group.mail))):
            message = self.group.mail.pop(0)
            self.group[message.target].step(message)

    @precondition(lambda self: self.group.mail)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.group.mail.pop(data.draw(st.integers(0, len(self.group.mail) - 1)))

    @rule(replica=replicas)
    def work(self, replica: int) -> None:
        self.group.work(replica)

    @precondition(lambda self: any(self.group.writes.values()))
    @rule(replica=replicas, count=st.integers(1, 3))
    def store(self, replica: int, count: int) -> None:
        self.group.store(replica, min(count, len(self.group.writes[replica])))

    @rule(replica=replicas, stored=st.integers(0, 2))
    def crash(self, replica: int, stored: int) -> None:
        """What was not durable is gone; some of it was, and only the process did not hear of it."""
        for write in self.group.writes[replica][:stored]:
            self.group.storages[replica].put(write)
        self.group.start(replica)

    @rule(replica=replicas, times=st.integers(1, 6))
    def tick(self, replica: int, times: int) -> None:
        for _ in range(times):
            self.group[replica].tick()

    @rule(replica=replicas, settle=st.booleans())
    def campaign(self, replica: int, *, settle: bool) -> None:
        """Nobody has heard a leader for long, and all may vote for another."""
        for doubter in REPLICAS:
            self.group[doubter].forget_leader()
        self.group[replica].campaign()
        if settle:
            self.group.settle()

    @rule(count=st.integers(1, 3), settle=st.booleans())
    def propose(self, count: int, *, settle: bool) -> None:
        for leader, _ in itertools.product(self.group.leaders, range(count)):
            with contextlib.suppress(Refused):
                self.group[leader].propose(b"%d" % next(self.names))
        if settle:
            self.group.settle()

    @rule(replica=replicas)
    def checkpoint(self, replica: int) -> None:
        """A snapshot of what is applied, and the log cut behind it: who lacks that must pull."""
        name, storage = self.group[replica].describe_state(), self.group.storages[replica]
        idle = name is not None and not self.group.writes[replica]
        if name is not None and idle and name.index > storage.base.index:
            data = b"everything up to %d" % name.index
            storage.make_snapshot(index=name.index, membership=name.membership, data=data)
            storage.compact(index=name.index, membership=name.membership)

    # What must hold.

    @invariant()
    def what_was_said_is_durable(self) -> None:
        """A vote, an acknowledgement, a term: each is on the disk before anybody hears of it."""
        for message in self.group.mail:
            storage = self.group.storages[message.source]
            state = storage.hard_state
            if getattr(message, "pre", False):
                continue  # it is about a term that nobody is in yet
            assert state.term >= message.term, f"{message} of a term that could be forgotten"
            if state.term > message.term:
                continue
            if isinstance(message, VoteResponse) and message.granted:
                assert state.vote == message.target, f"{message} could be granted to another"
            if isinstance(message, AppendResponse) and not message.rejected:
                assert storage.last_index >= message.index, f"{message} could be lost"

    def rafts(self) -> list[Raft]:
        return [self.group.raft(replica) for replica in REPLICAS]

    @invariant()
    def a_term_has_one_leader(self) -> None:
        for raft in self.rafts():
            if raft.leadership is not None:
                assert self.leaders.setdefault(raft.term, raft.id) == raft.id

    @invariant()
    def what_is_committed_stays(self) -> None:
        for raft in self.rafts():
            for entry in known(raft.log, raft.log.commit):
                before, term = self.committed.get(entry.index, (entry, raft.term))
                assert entry == before
                self.committed[entry.index] = (entry, min(term, raft.term))
        for applied in self.group.applied.values():
            for entry in applied:
                assert self.committed[entry.index][0] == entry

    @invariant()
    def what_is_committed_is_durable_at_a_majority(self) -> None:
        for index, (entry, _) in self.committed.items():
            holders = [
                replica
                for replica, storage in self.group.storages.items()
                if storage.base.index >= index
                or (index <= storage.last_index and storage.term(index) == entry.term)
            ]
            assert len(holders) >= 2, f"entry {index} is committed and only {holders} have it"

    @invariant()
    def a_leader_has_everything_committed_before(self) -> None:
        for raft in self.rafts():
            if raft.leadership is None:
                continue
            for index, (entry, term) in self.committed.items():
                if term < raft.term and index > raft.log.base.index:
                    assert raft.log.matches(index, entry.term), f"leader {raft.id} lacks {index}"

    @invariant()
    def logs_that_agree_somewhere_agree_below(self) -> None:
        for one, other in itertools.combinations(self.rafts(), 2):
            first = max(one.log.base.index, other.log.base.index)
            last = min(one.log.last_index, other.log.last_index)
            agreed = False
            for index in range(last, first, -1):
                agreed = agreed or one.log.term(index) == other.log.term(index)
                if agreed:
                    assert entry_at(one.log, index) == entry_at(other.log, index)


def known(log: RaftLog, last: int) -> list[Entry]:
    """The entries that the log still has up to `last`."""
    if last < log.first_index:
        return []
    return log.entries(log.first_index, last, EVERYTHING)


def entry_at(log: RaftLog, index: int) -> Entry:
    return log.entries(index, index, EVERYTHING)[0]


TestCluster = Cluster.TestCase
# Long roads are rare, and bugs are at the end of them: more of them than of simple examples.
TestCluster.settings = settings(max_examples=4 * settings().max_examples, stateful_step_count=60)
