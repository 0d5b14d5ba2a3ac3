"""Replicas of one shard, driven by hand: a clock, a network and disks that do what a test says.

Nothing happens by itself. `settle` works every replica until nobody has anything left to do; disks
are instant save those in `slow`, whose writes wait for `store`. Messages to or from a replica in
`cut_off` are lost, and those to one in `deaf`.
"""

from collections import deque
from random import Random
from typing import Final

import msgspec

from corvo.kv.tables import read_meta
from corvo.protocol import wire
from corvo.protocol.ops.base import Op, Rejected
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.work import Claim, Claims, Fetch
from corvo.protocol.queries import QUERIES, Query
from corvo.raft import AnyMessage, Entry, Kind, Membership, MemoryStorage, Node, Write
from corvo.raft import Settings as RaftSettings
from corvo.shard.machine import Machine
from corvo.shard.ops import NUMBERS, OPS
from corvo.shard.relaying import Batch
from corvo.shard.replica import Replica, Settings, Work
from corvo.shard.state import entry
from corvo.shard.state.entry import Record
from corvo.steered_clock import SteeredClock
from tests.support.memory import MemoryStates

START_NS: Final = 1_700_000_000_000_000_000
MS: Final = 1_000_000
ROUNDS_MAX: Final = 100_000
"""Beyond it, a group does not come to rest."""
ELECTION_TICKS: Final = 10

Heard = wire.Answer | wire.Push


class Replicas:
    """A group that replica 1 leads from the beginning; a router is linked to each, as client 1."""

    def __init__(
        self,
        count: int = 1,
        *,
        shards: int = 1,
        settings: Settings | None = None,
        page_bytes_max: int = 4 << 20,
        leads: bool = True,
    ) -> None:
        self.now_ns = START_NS
        """Elapsed time, as if the machines were booted in 1970."""
        self.wall_ahead_ns = 0
        """What their wall clocks show more; and what that of one does beside that."""
        self.walls: dict[int, int] = {}
        self.shards = shards
        self.settings = settings or Settings()
        self.page_bytes_max = page_bytes_max
        self.voters = tuple(range(1, count + 1))
        self.storages: dict[int, MemoryStorage] = {}
        self.states: dict[int, MemoryStates] = {}
        self.replicas: dict[int, Replica] = {}
        self.last: dict[int, Work] = {}
        """What each was last told to do."""
        self.heard: dict[int, list[tuple[int, Heard]]] = {}
        """What each said and nobody has taken yet: (client, message)."""
        self.batches: list[Batch] = []
        """Effects that anybody wanted to be submitted to another shard."""
        self.writes: dict[int, deque[Write]] = {}
        self.slow: dict[int, None] = {}
        self.cut_off: dict[int, None] = {}
        self.deaf: dict[int, None] = {}
        self._mail: deque[AnyMessage] = deque()
        self._last_request = 0
        for number in self.voters:
            self.add(number)
        if leads:
            self.lead(1)

    def add(self, number: int) -> None:
        """Another replica, empty."""
        self.storages[number] = MemoryStorage(Membership(voters=self.voters))
        self.states[number] = MemoryStates(applied=lambda store: read_meta(store).applied)
        self.heard[number] = []
        self.writes[number] = deque()
        self.start(number)

    def start(self, number: int) -> None:
        """Start a replica on what its disk holds."""
        machine = Machine(self.states[number].store, shard=0, shards=self.shards)
        node = Node(
            RaftSettings(
                replica=number,
                election_ticks=ELECTION_TICKS,
                page_bytes_max=self.page_bytes_max,
            ),
            self.storages[number],
            Random(number + 10 * machine.applied),
            applied=machine.applied,
        )
        clock = SteeredClock(last_ns=machine.now_ns, ahead_max_ns=365 * 86_400_000 * MS)
        self.replicas[number] = Replica(self.settings, node, machine, Random(number), clock)
        self.writes[number].clear()
        self.replicas[number].joined(1)

    # What happens.

    def lead(self, number: int) -> None:
        """Have a replica elected, and forget what was said on the way."""
        self.replicas[number].node.campaign()
        self.settle()
        assert self.replicas[number].node.is_leader
        for heard in self.heard.values():
            heard.clear()

    def elect(self, number: int, *voters: int) -> None:
        """Have a replica elected by some, who forget the leader before."""
        for voter in voters:
            self.replicas[voter].node.forget_leader()
        self.replicas[number].node.campaign()
        self.settle()
        assert self.replicas[number].node.is_leader

    def settle(self) -> None:
        """Work until nobody has anything left to do."""
        for _ in range(ROUNDS_MAX):
            worked = [self.work(number) for number in self.replicas]
            while self._mail:
                message = self._mail.popleft()
                worked.append(True)
                if (
                    not self.is_lost(message)
                    and message.target in self.replicas
                    and message.target not in self.deaf
                ):
                    self.replicas[message.target].step(message)
            if not any(worked):
                return
        raise AssertionError("the group does not come to rest")

    def is_lost(self, message: AnyMessage) -> bool:
        """Whether the network loses a message."""
        return message.source in self.cut_off or message.target in self.cut_off

    def work(self, number: int) -> bool:
        """Let one replica work once; whether that came to anything."""
        replica, writes = self.replicas[number], self.writes[number]
        applied = replica.machine.applied
        work = self.last[number] = replica.work(
            self.now_ns,
            self.now_ns + self.wall_ahead_ns + self.walls.get(number, 0),
            may_write=not writes,
        )
        self._mail.extend(work.messages)
        self.heard[number] += work.outbound
        self.batches += work.batches
        if work.write is not None:
            writes.append(work.write)
        if work.snapshot_wanted is not None:
            self.make_snapshot(number)
        stored = bool(writes) and number not in self.slow
        if stored:
            self.store(number)
        did = work.messages or work.write or stored or replica.machine.applied > applied
        return bool(did) or work.has_more

    def store(self, number: int) -> Write:
        """Finish the write that a disk is busy with."""
        write = self.writes[number].popleft()
        storage, replica = self.storages[number], self.replicas[number]
        intact = storage.put(write)
        self._mail.extend(write.messages)
        if write.install is not None:
            self.states[number].install(iter([storage.snapshot_data]))
            store = self.states[number].store
            replica.installed(Machine(store, shard=0, shards=self.shards))
        replica.stored(write.token, intact=intact)
        return write

    def make_snapshot(self, number: int) -> None:
        """What a driver does at a checkpoint, with nothing kept of the log before it."""
        states, storage, replica = self.states[number], self.storages[number], self.replicas[number]
        index = states.checkpoint()
        membership = replica.membership_at(index)
        assert membership is not None
        data = b"".join(states.stream())
        storage.make_snapshot(index=index, membership=membership, data=data)
        if index > storage.base.index:
            storage.compact(index=index, membership=membership)

    def tick(self, times: int = 1, *numbers: int) -> None:
        """Let Raft's time pass for all, or some."""
        for _ in range(times):
            for number in numbers or tuple(self.replicas):
                self.replicas[number].tick()
            self.settle()

    def pass_time(self, ms: int) -> None:
        """Move the clock, and let whatever became due be done."""
        self.now_ns += ms * MS
        self.settle()

    # What a router does.

    def submit(self, op: Op, *, to: int = 1, client: int = 1) -> int:
        """Submit an op, and return its request's number; nothing is worked."""
        return self.submit_raw(NUMBERS[type(op)], msgspec.json.encode(op), to=to, client=client)

    def submit_raw(self, number: int, body: bytes, *, to: int = 1, client: int = 1) -> int:
        """Submit bytes."""
        self._last_request += 1
        self.replicas[to].submit(client, wire.Submit(self._last_request, number, body))
        return self._last_request

    def ask(self, query: Query, *, to: int = 1, client: int = 1) -> int:
        """Ask a question; nothing is worked."""
        [number] = [number for number, known in QUERIES.items() if known is type(query)]
        return self.ask_raw(number, msgspec.json.encode(query), to=to, client=client)

    def ask_raw(self, number: int, body: bytes, *, to: int = 1, client: int = 1) -> int:
        """Ask with bytes."""
        self._last_request += 1
        self.replicas[to].ask(client, wire.Ask(self._last_request, number, body))
        return self._last_request

    def do(self, op: Op, *, to: int = 1) -> wire.Answer:
        """Submit an op, settle, and take its answer."""
        request = self.submit(op, to=to)
        self.settle()
        return self.answer(request, of=to)

    def put(self, *jobs: NewJob, to: int = 1) -> None:
        """Enqueue jobs."""
        answer = self.do(Enqueue(jobs=list(jobs)), to=to)
        assert isinstance(answer, wire.Reply)
        assert not answer.code, answer.body

    def fetch(self, *queues: str, to: int = 1, lease_ms: int = 60_000) -> list[Claim]:
        """Fetch one job from `mail`, or the queues named."""
        answer = self.do(Fetch(queues=list(queues or ("mail",)), lease_ms=lease_ms), to=to)
        assert isinstance(answer, wire.Reply)
        return msgspec.json.decode(answer.body, type=Claims).jobs

    def answer(self, request: int, *, of: int = 1) -> wire.Answer:
        """Take the answer to a request; there must be exactly one."""
        answers = self.answers(request, of=of)
        assert len(answers) == 1, f"{answers} to request {request}, of {self.heard[of]}"
        return answers[0]

    def answers(self, request: int, *, of: int = 1) -> list[wire.Answer]:
        """Take the answers to a request."""
        found: list[wire.Answer] = []
        rest: list[tuple[int, Heard]] = []
        for client, message in self.heard[of]:
            if not isinstance(message, wire.Push) and message.id == request:
                found.append(message)
            else:
                rest.append((client, message))
        self.heard[of] = rest
        return found

    def told(self, *, of: int = 1) -> list[tuple[int, tuple[str, ...]]]:
        """Take the news of work: (client, queues)."""
        news = [
            (client, message.queues)
            for client, message in self.heard[of]
            if isinstance(message, wire.WorkAvailable)
        ]
        self.heard[of] = [
            heard for heard in self.heard[of] if not isinstance(heard[1], wire.WorkAvailable)
        ]
        return news

    # What is in the log.

    def log(self, number: int = 1) -> list[list[Op]]:
        """The ops of every entry that is an op's, in order."""
        return [ops_of(each) for each in self.entries(number) if ops_of(each)]

    def entries(self, number: int = 1) -> list[Entry]:
        """Every entry on a disk."""
        return self.storages[number]._entries


def ops_of(written: Entry) -> list[Op]:
    """The ops of an entry."""
    return [decoded(record) for record in records_of(written)]


def records_of(written: Entry) -> list[Record]:
    """The records of an entry, without the stamp."""
    if written.kind is not Kind.NORMAL or not written.data:
        return []
    return entry.decode(written.data)[1]


def decoded(record: Record) -> Op:
    """An op out of the log."""
    number, body = record
    op: Op = msgspec.json.decode(body, type=OPS[number])
    return op


def refusal(answer: wire.Answer) -> Rejected:
    """What an answer refuses."""
    assert isinstance(answer, wire.Reply)
    assert answer.code, f"not refused: {answer.body!r}"
    return msgspec.json.decode(answer.body, type=Rejected)
