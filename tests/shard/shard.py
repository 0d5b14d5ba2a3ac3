"""A shard for tests: a machine over a store in memory, a clock that the test moves, and a check."""

from types import UnionType
from typing import Final, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from corvo.kv import keys
from corvo.kv.keys import Space, prefix_end
from corvo.kv.store import Store
from corvo.kv.tables import Table
from corvo.model import STATES, Job, JobError, Queue, State
from corvo.protocol.ops.base import Limits, Op, Rejected, TypedOp
from corvo.protocol.ops.enqueue import Enqueue, EnqueueResults, NewJob
from corvo.protocol.ops.work import Claim, Fetch
from corvo.shard.counting import QueueCounts
from corvo.shard.machine import Answer, Machine
from corvo.shard.ops import NUMBERS
from corvo.shard.recount.recounting import Recount
from corvo.shard.recount.rows import Wrong
from corvo.shard.state.entry import Record, Stamp, encode
from corvo.shard.state.tables import JOBS, QUEUES
from corvo.shard.state.tx import Tx
from tests.support.memory import MemoryStore

START_NS: Final = 1_700_000_000_000_000_000
MS: Final = 1_000_000
EVERYTHING: Final = 1_000_000
"""More keys than any test has."""

Result_co = TypeVar("Result_co", covariant=True)
D = TypeVar("D", bound=msgspec.Struct)


class Shard:
    """One machine, driven op by op. What it answers is decoded to what `apply` says it returns."""

    def __init__(
        self, store: MemoryStore | None = None, *, number: int = 0, shards: int = 4, dice: int = 0
    ) -> None:
        self.store = store if store is not None else MemoryStore()
        self.number = number
        self.shards = shards
        self.dice = dice
        """Of every entry's stamp."""
        self.log: list[bytes] = []
        self.machine = Machine(self.store, shard=number, shards=shards)
        self.clock_ns = max(START_NS, self.machine.now_ns)
        self.queue_counts: Final = QueueCounts()
        """What a replica around the machine would have counted."""

    # Doing.

    def do(self, op: TypedOp[Result_co]) -> Result_co:
        """Apply one op in an entry of its own."""
        [answer] = self.entry(op)
        return decoded(op, answer)

    def refused(self, op: Op) -> Rejected:
        """Apply one op that is refused as a whole."""
        [answer] = self.entry(op)
        assert answer.code, f"not refused: {answer.body!r}"
        return msgspec.json.decode(answer.body, type=Rejected)

    def entry(self, *ops: Op) -> list[Answer]:
        """Apply ops in one entry; their answers as they are."""
        records: list[Record] = []
        for op in ops:
            assert op.check(Limits()) is None, "what is refused at the door is not applied"
            records.append((NUMBERS[type(op)], msgspec.json.encode(op)))
        return self.apply(encode(Stamp(self.clock_ns, self.dice), records))

    def apply(self, data: bytes) -> list[Answer]:
        """Apply the bytes of an entry."""
        self.log.append(data)
        answers = self.machine.apply(index=self.machine.applied + 1, term=1, data=data)
        self.queue_counts.take(self.tx.minutes.happened, is_ours=True)
        return answers

    def pass_time(self, ms: int) -> None:
        """Move the clock; the next entry is stamped with it."""
        self.clock_ns = max(self.clock_ns, self.machine.now_ns) + ms * MS

    def reopen(self) -> None:
        """Forget everything that is only in memory, as a restart does."""
        self.machine = Machine(self.store, shard=self.number, shards=self.shards)

    def put(self, *jobs: NewJob) -> list[str]:
        """Enqueue jobs; their ids."""
        return [made.job_id for made in self.enqueue(Enqueue(jobs=list(jobs))).jobs]

    def enqueue(self, op: Enqueue) -> EnqueueResults:
        """Enqueue what is not refused."""
        made = self.do(op)
        assert isinstance(made, EnqueueResults), made
        return made

    def fetch(
        self, *queues: str, count: int = 1, worker: str = "w1", lease_ms: int = 60_000
    ) -> list[Claim]:
        """Fetch from `mail`, or the queues named."""
        named = list(queues or ("mail",))
        fetch = Fetch(queues=named, worker_id=worker, count=count, lease_ms=lease_ms)
        return self.do(fetch).jobs

    # Looking.

    @property
    def now_ns(self) -> int:
        """The time that the last entry was applied at."""
        return self.machine.tx.now_ns

    @property
    def tx(self) -> Tx:
        """The transaction between entries: for reading."""
        return self.machine.tx

    def find(self, job_id: str) -> Job | None:
        """A job as it is stored."""
        return JOBS.get(self.tx, job_id)

    def job(self, job_id: str) -> Job:
        """A job that is there."""
        job = self.find(job_id)
        assert job is not None, f"{job_id} is there"
        return job

    def state(self, job_id: str) -> State:
        """The state of a job that is there."""
        return self.job(job_id).state

    def queue(self, name: str) -> Queue:
        """A queue that is there."""
        queue = QUEUES.get(self.tx, name)
        assert queue is not None, f"queue {name} is there"
        return queue

    def errors(self, job_id: str) -> list[JobError]:
        """The errors that are kept of a job, oldest first."""
        prefix = keys.JOB_ERROR.prefix + job_id.encode() + b"\0"
        rows = self.store.scan(prefix, prefix_end(prefix), limit=EVERYTHING)
        return [msgspec.json.decode(value, type=JobError) for _, value in rows]

    def trail(self, job_id: str) -> list[str]:
        """What happened to a job, in words."""
        return [event.what for event in self.job(job_id).trail]

    def counts(self, queue: str) -> dict[State, int]:
        """How many jobs of a queue are in each state; states without any are left out."""
        counts = self.tx.count(queue)
        return {state: counts[state.number] for state in STATES if counts[state.number]}

    def rows(self, space: Space) -> list[tuple[bytes, bytes]]:
        """Everything that is stored in a space."""
        return self.store.scan(space.prefix, prefix_end(space.prefix), limit=EVERYTHING)

    def documents(self, table: Table[D]) -> list[D]:
        """Every document of a table."""
        rows = self.store.scan(table.prefix, prefix_end(table.prefix), limit=EVERYTHING)
        return [table.decode(value) for _, value in rows]

    # Checking.

    def check(self) -> None:
        """Assert that all that is derived is what the documents make it."""
        wrong = wrong_in(self.store, shard=self.number, shards=self.shards)
        assert not wrong, wrong
        for queue in self.documents(QUEUES):
            self._check_count(queue.name)
        self._check_memory()

    def check_replay(self) -> None:
        """Assert that a replica that restarts before every entry comes to the same state."""
        twin = Shard(number=self.number, shards=self.shards)
        for data in self.log:
            twin.reopen()
            twin.apply(data)
        assert twin.store.content() == self.store.content()
        assert twin.machine.digest == self.machine.digest

    def _check_count(self, queue: str) -> None:
        data = self.store.get(keys.COUNTS.prefix + queue.encode())
        stored = msgspec.msgpack.decode(data, type=list[int]) if data is not None else []
        assert self.tx.count(queue) == stored + [0] * (32 - len(stored))

    def _check_memory(self) -> None:
        for prefix, head in self.tx.heads.items():
            index = self.store.keys(prefix, prefix_end(prefix), limit=EVERYTHING)
            assert head.keys == index[: len(head.keys)]
            assert not index or head.start <= index[0], "a scan begins at or before the first key"
        cache = self.tx.cache
        for key, held in [*cache.old.items(), *cache.young.items()]:
            data = self.store.get(key)
            assert data is not None
            assert held.document == held.table.decode(data)


def wrong_in(store: Store, *, shard: int, shards: int) -> list[Wrong]:
    """What a recount of a shard's state finds."""
    found: list[Wrong] = []
    Recount(store, shard=shard, shards=shards, tell=found.append).run()
    return found


def decoded(op: TypedOp[Result_co], answer: Answer) -> Result_co:
    """An answer as the type that the op's `apply` returns."""
    bases = [base for kind in type(op).__mro__ for base in vars(kind).get("__orig_bases__", ())]
    [hint] = [get_args(base)[0] for base in bases if get_origin(base) is TypedOp]
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if answer.code:
        assert Rejected in kinds, f"refused: {answer.body!r}"
        return cast("Result_co", msgspec.json.decode(answer.body, type=Rejected))
    [kind] = [kind for kind in kinds if kind is not Rejected]
    types = get_type_hints(get_origin(kind) or kind)
    if get_args(kind):  # results of lease operations, of the type that the op is given
        [result] = get_args(bases[0])
        types = {name: hint[result] for name, hint in types.items()}
    fields = msgspec.json.decode(answer.body, type=dict[str, msgspec.Raw])
    answered = kind(**{name: _field(types[name], raw) for name, raw in fields.items()})
    return cast("Result_co", answered)


def _field(hint: object, raw: msgspec.Raw) -> object:
    """A field as its type; in a list of results, a refusal is known by its fields."""
    [row, *_] = get_args(hint) or (None,)
    if get_origin(hint) is not list or Rejected not in get_args(row):
        return _as(hint, raw)
    [result] = [kind for kind in get_args(row) if kind is not Rejected]
    rows = msgspec.json.decode(raw, type=list[msgspec.Raw])
    return [_as(Rejected if _is_refusal(one) else result, one) for one in rows]


def _as(hint: object, raw: msgspec.Raw) -> object:
    value: object = msgspec.json.Decoder(hint).decode(raw)
    return value


def _is_refusal(row: msgspec.Raw) -> bool:
    return {"code", "error"} <= msgspec.json.decode(row, type=dict[str, msgspec.Raw]).keys()
