"""A group in bad weather: messages late, lost, doubled and out of order, disks slow, clients busy.

One `round` is one tick for everybody, in an order drawn anew; what is sent arrives some rounds
later. All chance comes from one seed. What must hold at any time is checked in every round: no term
has two senders of appends or two leaders, nobody applies anything else than the others at an index,
and no read is answered from before it was asked.
"""

import contextlib
from collections.abc import Callable, Iterator
from random import Random

from corvo.raft import (
    AnyMessage,
    Change,
    Entry,
    Membership,
    Refused,
    Step,
)
from corvo.raft.membership import Action, is_joint, members_of
from corvo.raft.messages import AppendRequest
from tests.raft.group import Group

ROUNDS_MAX = 600  # thirty of the longest election timeouts: enough for any group that can agree


class Weather:
    """Drives a group through bad weather, and through good weather to the end."""

    def __init__(
        self,
        membership: Membership | int,
        seed: int,
        *,
        loss: float = 0.05,
        doubling: float = 0.05,
        rounds_late: int = 3,
        slow_disks: bool = True,
    ) -> None:
        self.random = Random(seed)
        self.group = Group(membership, seed=seed)
        self.loss = loss
        self.doubling = doubling
        self.rounds_late = rounds_late
        self.extra_late: Callable[[AnyMessage], int] = lambda _: 0
        self.is_busy = True  # whether clients propose
        self.is_reading = True  # whether clients read
        self.reads_answered = 0
        self.acknowledged: list[Entry] = []
        self.rounds = 0
        self._slow_disks = slow_disks
        self._under_way: list[tuple[int, float, AnyMessage]] = []
        self._asked: list[tuple[int, int, int, bytes]] = []  # (leader, index, term, data)
        self._data = 0
        self._senders: dict[int, int] = {}
        self._first_applied: dict[int, Entry] = {}
        self._seen: dict[int, int] = {}
        self._paused: dict[int, int] = {}
        self._floors: dict[tuple[int, int], int] = {}  # what a read must at least see

    # Rounds.

    def run(self, rounds: int) -> None:
        """Let some time pass."""
        for _ in range(rounds):
            self.round()

    def run_until(self, reached: Callable[[], bool]) -> None:
        """Let time pass until something is so; it must be so in the end."""
        for _ in range(ROUNDS_MAX):
            if reached():
                return
            self.round()
        raise AssertionError(f"not reached within {ROUNDS_MAX} rounds")

    def round(self) -> None:
        """One tick for everybody, and what follows from it."""
        self.rounds += 1
        if self._slow_disks:
            self.group.slow_disks = {*self.group.nodes}
        for replica in self._paused:
            self._paused[replica] += 1
        awake = [replica for replica in sorted(self.group.nodes) if replica not in self._paused]
        self.random.shuffle(awake)
        for replica in awake:
            self.group[replica].tick()
            self.group.work(replica)
        self._call(awake)
        for replica in awake:
            writes = len(self.group.writes[replica])
            self.group.store(replica, self.random.randint(0, writes))
        self._post()
        self._deliver(lambda message: message.target not in self._paused)
        self._observe()

    # Pauses.

    def pause(self, replica: int) -> None:
        """The process stands still; what is sent to it waits."""
        self._paused[replica] = 0

    def resume(self, replica: int) -> int:
        """Go on as a driver should: what waits first, then one tick. Returns what it missed."""
        missed = self._paused.pop(replica)
        self._deliver(lambda message: message.target == replica)
        self.group[replica].tick(missed)
        self._observe()
        return missed

    # Clients.

    def _call(self, awake: list[int]) -> None:
        if self.is_busy:
            self._propose()
        if self.is_reading:
            self.read(self.random.choice(awake))

    def read(self, replica: int) -> None:
        """Ask one replica for a read; it may refuse."""
        with contextlib.suppress(Refused):
            context = self.group[replica].read_index()
            self._floors[replica, context] = max(self._first_applied, default=0)

    def _propose(self) -> None:
        for leader in self.group.leaders:
            if leader in self._paused:
                continue
            self._data += 1
            data = b"%d" % self._data
            try:
                index = self.group[leader].propose(data)
            except Refused:
                continue
            self._asked.append((leader, index, self.group[leader].term, data))

    def _post(self) -> None:
        mail, self.group.mail = self.group.mail, []
        for message in mail:
            if isinstance(message, AppendRequest):
                sender = self._senders.setdefault(message.term, message.source)
                assert sender == message.source, f"term {message.term}: {sender}, {message.source}"
            copies = 0 if self.random.random() < self.loss else 1
            copies += self.random.random() < self.doubling
            for _ in range(copies):
                late = self.random.randint(0, self.rounds_late) + self.extra_late(message)
                self._under_way.append((self.rounds + late, self.random.random(), message))

    def _deliver(self, wanted: Callable[[AnyMessage], bool]) -> None:
        """Hand over what is due and wanted."""
        due: list[tuple[int, float, AnyMessage]] = []
        later: list[tuple[int, float, AnyMessage]] = []
        for each in sorted(self._under_way, key=lambda each: each[:2]):
            (due if each[0] <= self.rounds and wanted(each[2]) else later).append(each)
        self._under_way = later
        self.group.mail = [message for _, _, message in due]
        self.group.deliver()

    # What must always hold.

    def _observe(self) -> None:
        for leader in self.group.leaders:
            sender = self._senders.setdefault(self.group[leader].term, leader)
            assert sender == leader, f"term {self.group[leader].term} has two leaders"
        for replica, entries in self.group.applied.items():
            for entry in entries[self._seen.get(replica, 0) :]:
                first = self._first_applied.setdefault(entry.index, entry)
                assert first == entry, f"replica {replica} applied {entry}, another {first}"
            self._seen[replica] = len(entries)
        self._asked = [asked for asked in self._asked if not self._is_decided(*asked)]
        for replica, reads in self.group.reads.items():
            for read in reads:
                floor = self._floors.pop((replica, read.context))
                assert read.index >= floor, f"replica {replica} read {read.index}, not {floor}"
                self.reads_answered += 1
            reads.clear()

    def _is_decided(self, leader: int, index: int, term: int, data: bytes) -> bool:
        """Whether the leader that took a proposal has applied something at its index."""
        if self.group[leader].statistics().applied < index:
            return False
        entry = self._first_applied[index]
        if entry.term == term:
            assert entry.data == data, f"index {index} of term {term} was applied as {entry}"
            self.acknowledged.append(entry)
        return True

    # Deeds.

    @property
    def leader(self) -> int | None:
        """Who leads the latest term, if anybody does."""
        leaders = sorted(self.group.leaders, key=lambda leader: self.group[leader].term)
        return leaders[-1] if leaders else None

    def wait_for_leader(self) -> int:
        """The leader, as soon as there is one that has committed something in its term."""
        self.run_until(lambda: any(self._established()))
        return next(self._established())

    def _established(self) -> Iterator[int]:
        leader = self.leader
        if leader is not None and self.group.raft(leader).is_established:
            yield leader

    def change(self, action: Action, *replicas: int) -> None:
        """Ask for a change, again and again, until whoever leads has it in force."""
        change = Change(tuple(Step(action, replica) for replica in replicas))

        def is_done() -> bool:
            leader = self.leader
            if leader is None:
                return False
            membership = self.group[leader].membership
            if not is_joint(membership) and _is_as_asked(membership, action, replicas):
                return True
            with contextlib.suppress(Refused):
                self.group[leader].propose_change(change)
            return False

        self.run_until(is_done)

    def clear_up(self) -> list[int]:
        """Good weather until all members agree on everything; returns who is a member."""
        self.is_busy = self.is_reading = False
        self.loss = self.doubling = 0.0
        self.rounds_late = 0
        self.extra_late = lambda _: 0
        self.group.heal()
        self.run_until(self._agree)
        return self._members()

    def _members(self) -> list[int]:
        leader = self.leader
        return [] if leader is None else [*members_of(self.group[leader].membership)]

    def _agree(self) -> bool:
        leader = self.leader
        if leader is None or not self.group.raft(leader).is_established:
            return False
        ends = set()
        for replica in self._members():
            state = self.group[replica].statistics()
            ends.add((state.term, state.leader, state.membership, state.last_index, state.applied))
            ends.add((state.term, state.leader, state.membership, state.commit, state.stable))
        return len(ends) == 1


def _is_as_asked(membership: Membership, action: Action, replicas: tuple[int, ...]) -> bool:
    match action:
        case Action.ADD_VOTER:
            return {*replicas} <= {*membership.voters}
        case Action.ADD_LEARNER:
            return {*replicas} <= {*membership.learners}
        case Action.REMOVE:
            return {*replicas}.isdisjoint(members_of(membership))


def assert_all_is_well(weather: Weather) -> None:
    """Equal logs, equal applied sequences, and nothing acknowledged is missing."""
    replicas = weather.clear_up()
    group = weather.group
    logs = {}
    for replica in replicas:
        storage = group.storages[replica]
        first = storage.base.index + 1
        logs[replica] = {
            entry.index: entry for entry in storage.entries(first, storage.last_index, 1 << 30)
        }
    longest = max(logs.values(), key=len)
    assert [*longest] == [*range(1, len(longest) + 1)], "some member has the log from the beginning"
    for replica in replicas:
        # One that was given a snapshot begins behind it.
        first = group.storages[replica].base.index + 1
        expected = [longest[index] for index in range(first, len(longest) + 1)]
        assert [*logs[replica].values()] == expected, f"the log of {replica} differs"
        assert group.applied[replica] == expected, f"what {replica} applied differs"
    missing = [entry for entry in weather.acknowledged if longest.get(entry.index) != entry]
    assert not missing, "acknowledged and gone"
    assert weather.acknowledged, "the clients got something done"
