"""The log on disk and its dumb twin, over any sequence of writes, syncs, crashes and repairs."""

from random import Random
from typing import Final

from hypothesis import stateful
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from corvo.raft.disk.segmented_log import RECENT_BYTES
from corvo.raft.errors import LogFailed
from corvo.raft.messages import Entry, HardState, Membership, Snapshot
from corvo.raft.ready import Write
from corvo.raft.storage import page
from tests.support.files import Crashed, MemoryFiles
from tests.support.logs import (
    Twin,
    append,
    chunk,
    entry,
    install,
    open_log,
    see,
    snapshot_of,
)

MEMBERSHIPS: Final = st.sampled_from([Membership((1,)), Membership((1, 2, 3), learners=(4,))])
SEEDS: Final = st.integers(0, 1 << 32)


class LogOnDisk(RuleBasedStateMachine):
    """Everything a driver may do, within what Raft allows; and everything that may befall it."""

    @stateful.initialize(seed=SEEDS, recent_bytes=st.sampled_from([0, 700, RECENT_BYTES]))
    def make(self, seed: int, recent_bytes: int) -> None:
        self.files = MemoryFiles(Random(seed))
        self.recent_bytes = recent_bytes
        self.twin = Twin()
        self.storage = open_log(self.files, recent_bytes=recent_bytes)

    @property
    def state(self) -> HardState:
        return self.twin.states[-1]

    def carry_out(self, write: Write) -> None:
        self.twin.put(write)
        assert self.storage.put(write)

    @rule(
        count=st.integers(1, 4),
        back=st.integers(0, 5),
        newer=st.integers(0, 2),
        size=st.integers(0, 60),
        ahead=st.integers(0, 3),
    )
    def append(self, count: int, back: int, newer: int, size: int, ahead: int) -> None:
        first = max(
            self.storage.last_index + 1 - back, self.state.commit + 1, self.storage.base.index + 1
        )
        cuts = first <= self.storage.last_index
        term = max(self.state.term, 1) + (1 if cuts and newer == 0 else newer)
        added = [entry(first + n, term, b"%d" % n * size) for n in range(count)]
        commit = max(self.state.commit, min(self.storage.base.index + ahead, first + count - 1))
        vote = self.state.vote if term == self.state.term else 0
        self.carry_out(append(*added, state=HardState(term, vote, commit)))

    @rule(replica=st.integers(1, 3))
    def elect(self, replica: int) -> None:
        self.carry_out(
            Write(token=0, hard_state=HardState(self.state.term + 1, replica, self.state.commit))
        )

    @rule()
    def sync(self) -> None:
        self.storage.sync()
        self.twin.synced()

    @precondition(lambda self: self.storage.last_index > self.storage.base.index)
    @rule(data=st.data(), membership=MEMBERSHIPS)
    def compact(self, data: st.DataObject, membership: Membership) -> None:
        index = data.draw(st.integers(self.storage.base.index + 1, self.storage.last_index))
        self.twin.compacting(index, membership)
        self.storage.compact(index=index, membership=membership)
        self.twin.synced()

    @rule(data=st.data(), image=st.binary(max_size=700), membership=MEMBERSHIPS)
    def make_snapshot(self, data: st.DataObject, image: bytes, membership: Membership) -> None:
        index = data.draw(st.integers(self.storage.base.index, self.storage.last_index))
        named = snapshot_of(image, index, self.storage.term(index))
        snapshot = Snapshot(index, named.term, membership, named.size, named.checksum)
        self.twin.snapshotting(snapshot)
        made = self.storage.make_snapshot(index=index, membership=membership, data=[image])
        self.twin.synced()
        assert made == snapshot

    @rule(
        image=st.binary(min_size=2, max_size=1500), ahead=st.integers(1, 3), parts=st.integers(1, 3)
    )
    def receive(self, image: bytes, ahead: int, parts: int) -> None:
        term = max(self.state.term, 1)
        snapshot = snapshot_of(image, self.storage.last_index + ahead, term)
        size = -(-len(image) // parts)
        for start in range(0, len(image), size):
            self.carry_out(chunk(snapshot, image, start, min(start + size, len(image))))

    @precondition(lambda self: self.is_received)
    @rule()
    def install(self) -> None:
        assert self.storage.partial is not None
        snapshot = self.storage.partial.snapshot
        state = HardState(max(self.state.term, snapshot.term), self.state.vote, self.state.commit)
        self.carry_out(install(snapshot, state=state))

    @property
    def is_received(self) -> bool:
        partial = self.storage.partial
        return (
            partial is not None
            and partial.received == partial.snapshot.size
            and partial.snapshot.index > self.storage.last_index
        )

    @rule()
    def end_process(self) -> None:
        self.files.process_crash()
        self.recover()

    @rule()
    def lose_power(self) -> None:
        self.files.power_loss()
        self.recover()

    @rule(step=st.integers(0, 14), power=st.booleans())
    def crash_in_sync(self, step: int, power: bool) -> None:
        self.files.crash_at = (len(self.files.steps) + step, "after")
        try:
            self.storage.sync()
            self.twin.synced()
        except Crashed:
            pass
        if power:
            self.files.power_loss()
        else:
            self.files.process_crash()
        self.recover()

    @rule(nth=st.integers(1, 6), lost=st.booleans())
    def fail_in_sync(self, nth: int, lost: bool) -> None:
        self.files.fail_sync(nth, lost=lost)
        try:
            self.storage.sync()
            self.twin.synced()
        except LogFailed:
            pass
        self.files.process_crash()
        self.recover()

    @rule()
    def stop(self) -> None:
        self.storage.close()
        self.twin.synced()
        self.files.power_loss()
        self.recover()

    def recover(self) -> None:
        self.storage = open_log(self.files, recent_bytes=self.recent_bytes)
        found = see(self.storage)
        self.twin.check(found)
        self.twin.believe(found)

    @invariant()
    def reads_what_was_put(self) -> None:
        if not hasattr(self, "storage"):
            return
        log = self.twin.log
        assert self.storage.base == log.base
        assert self.storage.last_index == log.last_index
        held: list[Entry] = []
        while len(held) < len(log.entries):  # what is new comes from memory, and by itself
            first = log.base.index + 1 + len(held)
            held += self.storage.entries(first, log.last_index, 1 << 30)
        assert tuple(held) == log.entries
        for index in range(log.base.index + 1, log.last_index + 1):
            assert self.storage.entries(index, log.last_index, 30) == page(
                log.entries, index - log.base.index - 1, len(log.entries), 30
            )


TestLogOnDisk = LogOnDisk.TestCase
