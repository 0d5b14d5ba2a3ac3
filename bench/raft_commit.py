"""What it costs to commit: three replicas in memory, in one thread, without disks or network.

A replica's whole work is in it: proposing, storing in memory, appending to the others, counting,
applying. With the codec every message is also made into a frame and read again.
"""

from collections import deque
from collections.abc import Iterator
from random import Random
from typing import Final

from bench.calibration import loops_per_second
from bench.measure import Measurement, compared, median_seconds
from corvo.raft import AnyMessage, Membership, MemoryStorage, Node, Settings
from corvo.raft.codec import Codec

ENTRY_BYTES: Final = 1 << 10  # one ordinary op
BATCH_BYTES: Final = 4 << 10  # 64 small ops that share an entry
OPS_A_BATCH: Final = 64
GROUP: Final = 64  # entries that are proposed before anything is sent
ROUNDS: Final = 50
GROUPS_A_ROUND: Final = 4  # a millisecond or so: most rounds are over before anything disturbs them


class Replicas:
    """Three nodes and the drivers between them."""

    def __init__(self, *, codec: Codec | None = None) -> None:
        membership = Membership(voters=(1, 2, 3))
        self._codec = codec
        self._mail: deque[tuple[int, AnyMessage | bytes]] = deque()
        self._storages = {replica: MemoryStorage(membership) for replica in membership.voters}
        self._nodes = {
            replica: Node(Settings(replica=replica), storage, Random(replica))
            for replica, storage in self._storages.items()
        }
        self.applied = 0
        self._nodes[1].campaign()
        self._settle()
        assert self._nodes[1].is_leader, "replica 1 was not elected"

    def commit(self, data: bytes, *, entries: int, group: int) -> None:
        """Propose `entries` times `data`, `group` of them at once, until all have applied it."""
        leader = self._nodes[1]
        before = self.applied
        for _ in range(entries // group):
            for _ in range(group):
                leader.propose(data)
            self._settle()
        assert self.applied >= before + entries, "not everything was committed"

    def cut(self) -> None:
        """Cut the logs, or memory would run out."""
        self._nodes[1].tick()  # heard by the others and answered, or it would stop leading
        self._settle()
        for replica, storage in self._storages.items():
            state = self._nodes[replica].describe_state()
            assert state is not None, "nobody installs a snapshot here"
            storage.compact(index=state.index, membership=state.membership)

    def _settle(self) -> None:
        busy = True
        while busy:
            busy = False
            for replica, node in self._nodes.items():
                while self._drive(replica, node):
                    busy = True
            while self._mail:
                target, message = self._mail.popleft()
                if isinstance(message, bytes):
                    assert self._codec is not None, "only a codec makes bytes"
                    message = self._codec.decode(message)
                self._nodes[target].step(message)
                busy = True

    def _drive(self, replica: int, node: Node) -> bool:
        """A driver's round; whether there was anything to do."""
        ready = node.ready()
        self._send(ready.messages)
        if ready.write is not None:
            self._storages[replica].put(ready.write)
            self._send(ready.write.messages)
            node.stored(ready.write.token)
        if ready.committed:
            node.advance(ready.committed[-1].index)
            if replica == 1:
                self.applied = ready.committed[-1].index
        return bool(ready)

    def _send(self, messages: tuple[AnyMessage, ...]) -> None:
        for message in messages:
            sent = message if self._codec is None else self._codec.encode(message)
            self._mail.append((message.target, sent))


class Round:
    """A short piece of work that can be repeated for ever."""

    def __init__(self, replicas: Replicas, size: int, *, group: int = GROUP) -> None:
        self._replicas = replicas
        self._data = bytes(size)
        self._group = group
        self.entries = GROUPS_A_ROUND * GROUP

    def __call__(self) -> None:
        self._replicas.commit(self._data, entries=self.entries, group=self._group)
        self._replicas.cut()


def measurements() -> Iterator[Measurement]:
    """Rates of commit, and what a fuller entry costs."""
    for words, codec in (("", None), (", as frames", Codec(cluster=1))):
        yield from _rates(words, codec)
        yield from _fuller_entries(words, codec)


def _rates(words: str, codec: Codec | None) -> Iterator[Measurement]:
    for name, group in ((f"groups of {GROUP}", GROUP), ("one by one", 1)):
        work = Round(Replicas(codec=codec), ENTRY_BYTES, group=group)
        rate = work.entries / median_seconds(work, rounds=ROUNDS)
        yield Measurement(
            f"commit 1 KiB, {name}{words}", rate, "entries/s", rate / loops_per_second()
        )


def _fuller_entries(words: str, codec: Codec | None) -> Iterator[Measurement]:
    """The cost of an entry with 64 ops, against one of 1 KiB measured in turn with it."""
    replicas = Replicas(codec=codec)
    small, large = Round(replicas, ENTRY_BYTES), Round(replicas, BATCH_BYTES)
    taken, ratio = compared(small, large, rounds=4 * ROUNDS)
    rate = OPS_A_BATCH * large.entries / taken
    yield Measurement(
        f"commit 4 KiB with {OPS_A_BATCH} ops{words}", rate, "ops/s", rate / loops_per_second()
    )
    cost = taken / large.entries * 1e6
    yield Measurement(f"an entry of 4 KiB against 1 KiB{words}", cost, "µs", ratio)
