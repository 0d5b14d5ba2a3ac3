"""Small histories by hand: a call and its event in one line, and any line can lie.

Times are milliseconds. A call is sent at its time and returns two later; its event is one later.
There is one shard, unless a line names another, and two nodes whose feeds agree, unless a test
changes the records.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from chaos.history import (
    FORMAT,
    Args,
    Created,
    Delivered,
    Event,
    Feed,
    FinalBatch,
    FinalDone,
    FinalJob,
    FinalMirror,
    FinalQueue,
    FinalReplica,
    Item,
    ItemResult,
    JobRow,
    NewJob,
    Node,
    Op,
    OpType,
    QueueRow,
    Record,
    Res,
    Run,
    fingerprint,
)
from chaos.model import ACTIVE, COMPLETED, PENDING, SCHEDULED

MS: Final = 1_000_000
WALL: Final = 1_795_000_000_000_000_000
NODES: Final = ("n1", "n2")


def sha(mark: str) -> str:
    """The fingerprint of the payload with a mark."""
    return fingerprint(mark.encode())


class Story:
    """A history under construction."""

    def __init__(self, *, witness: bool = True) -> None:
        self.witness = witness
        self.run = Run(
            seed=1, version="by hand", nodes=tuple(Node(name, "") for name in NODES), shards=2,
            t=0, wall_ns=WALL, witness=witness, format=FORMAT,
        )  # fmt: skip
        self.ops: list[Op] = []
        self.events: list[Event] = []
        self.more: list[Record] = []
        self.seq = {0: 2, 1: 2}
        self.rows: dict[str, JobRow] = {}
        self.leases: dict[str, int] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.drained = False

    # ---- lines

    def op(
        self, f: str, at: int, args: Args, res: Res | None = None, *, kind: OpType = "ok",
        ret: int | None = None, client: str = "c", seq: int | None = None, shard: int = 0,
        code: str = "", op_id: str = "", number: int = 1, keyed: bool = False,
    ) -> Op:  # fmt: skip
        """One call."""
        n = len(self.ops) + 1
        position = self.seq[shard] if seq is None else seq
        op = Op(
            n=n, client=client, session=client, op_id=op_id or f"{client}.{n}", f=f, t_inv=at * MS,
            t_ret=None if kind == "info" else (at + 2 if ret is None else ret) * MS, type=kind,
            args=args, res=res or Res(), code=code, outcome="not_applied" if code else "",
            seq={} if kind != "ok" else {str(shard): position}, try_=number, keyed=keyed,
        )  # fmt: skip
        self.ops.append(op)
        return op

    def event(
        self, kind: str, name: str, at: int, state: str = "", *, queue: str = "q", attempt: int = 0,
        shard: int = 0, by: str = "", why: str = "", same: bool = False,
    ) -> None:  # fmt: skip
        """One event, in an entry of its own unless it is the `same` as the one before."""
        number = 1
        if same:
            number = self.events[-1].number + 1
            before = f"s{shard}={self.seq[shard] - 1}-{self.seq[shard] - 1:08x}.{number - 1}"
            for back in range(1, len(NODES) + 1):
                self.events[-back] = replace(self.events[-back], id=before)
        else:
            self.seq[shard] += 1
        seq = self.seq[shard]
        for node in NODES:
            self.events.append(
                Event(
                    node=node, t=(at + 1) * MS + 1, id=f"s{shard}={seq}-{seq:08x}", shard=shard,
                    seq=seq, number=number, type=kind, at_ns=WALL + at * MS, job_id=name,
                    queue=queue, state=state, attempt=attempt, by=by, why=why,
                )
            )  # fmt: skip

    def enqueue(
        self, name: str, at: int, *, event: bool = True, kind: OpType = "ok", code: str = "",
        ret: int | None = None, shard: int = 0, op_id: str = "", number: int = 1,
        job: NewJob | None = None, keyed: bool = False,
    ) -> None:  # fmt: skip
        """A job is enqueued. `name` with a ~ is an id that the client chose."""
        spec = job or NewJob(queue="q")
        chosen = name if "~" in name else ""
        spec = replace(spec, id=chosen, mark=name, sha=sha(name))
        state = SCHEDULED if spec.delay_ms else PENDING
        if event:
            self.event("enqueued", name, at, state, queue=spec.queue, shard=shard)
            self.rows[name] = JobRow(
                job_id=name, queue=spec.queue, state=state, mark=name, sha=sha(name),
                priority=spec.priority, batch_id=spec.batch_id,
            )  # fmt: skip
        res = Res(created=(Created(job_id=name, status=state),)) if kind == "ok" else None
        self.op(
            "enqueue", at, Args(jobs=(spec,)), res, kind=kind, code=code, ret=ret, client="p",
            shard=shard, op_id=op_id, number=number, keyed=keyed,
        )  # fmt: skip

    def fetch(
        self, name: str, at: int, token: int, *, worker: str = "w", lease_ms: int = 60_000,
        attempt: int = 1, event: bool = True, op: bool = True, queue: str = "q", shard: int = 0,
        ret: int | None = None, op_id: str = "", mark: str = "", bytes_of: str = "",
        after: str = "", batch: tuple[str, int, int, int, int] | None = None,
    ) -> None:  # fmt: skip
        """A worker fetches a job; `after` and `batch` are of its payload."""
        if event:
            self.event(
                "started", name, at, ACTIVE, attempt=attempt, by=worker, queue=queue, shard=shard
            )
            self.set_state(name, ACTIVE, attempt)
        if op:
            mark = mark or name
            got = Delivered(
                job_id=name, queue=queue, attempt=attempt, token=token, mark=mark,
                sha=sha(bytes_of or mark), expires_ns=WALL + (at + lease_ms) * MS,
                previous_job_id=after, batch=batch,
            )  # fmt: skip
            args = Args(queues=(queue,), worker=worker, count=1, lease_ms=lease_ms)
            res = Res(delivered=(got,))
            self.op("fetch", at, args, res, client=worker, ret=ret, shard=shard, op_id=op_id)

    def empty(
        self, at: int, *, queue: str = "q", worker: str = "w", kind: OpType = "ok",
        wait_ms: int = 0,
    ) -> None:  # fmt: skip
        """A fetch that gets nothing, and waits for so long."""
        args = Args(queues=(queue,), worker=worker, count=1, lease_ms=60_000, wait_ms=wait_ms)
        self.op("fetch", at, args, client=worker, kind=kind, ret=at + 2 + wait_ms)

    def call(
        self, f: str, name: str, at: int, *, token: int = 0, event: str = "", state: str = "",
        kind: OpType = "ok", status: str = "ok", attempt: int = 1, expires_ms: int = 0,
        retryable: bool = True, ret: int | None = None, seq: int | None = None, shard: int = 0,
        client: str = "w", queue: str = "q", delay_ms: int | None = None, why: str = "",
        number: int = 0,
    ) -> None:  # fmt: skip
        """A call about a job, and its event."""
        if event:
            self.event(event, name, at, state, attempt=attempt, shard=shard, queue=queue, why=why)
            self.set_state(name, state, attempt)
        item = Item(job_id=name, token=token, retryable=retryable, delay_ms=delay_ms)
        result = ItemResult(job_id=name, status=status, state=state)
        if expires_ms:
            result = replace(result, expires_ns=WALL + expires_ms * MS)
        if kind == "fail":
            result = ItemResult(job_id=name, code="REJECTED", outcome="not_applied")
        self.op(
            f, at, Args(items=(item,), number=number), Res(items=(result,)), kind=kind, ret=ret,
            client=client, code="REJECTED" if kind == "fail" else "", seq=seq, shard=shard,
        )  # fmt: skip

    def ack(self, name: str, at: int, token: int, *, attempt: int = 1, shard: int = 0) -> None:
        """A job is completed."""
        event = "completed" if self.witness else ""
        self.call(
            "ack", name, at, token=token, event=event, state=COMPLETED, attempt=attempt,
            shard=shard,
        )  # fmt: skip

    def limit(
        self, f: str, at: int, number: int = 0, *, event: str = "queue.changed", queue: str = "q",
        window_ms: int = 0,
    ) -> None:  # fmt: skip
        """A queue gets another limit, or is paused."""
        if self.witness:
            self.event(event, "", at, queue=queue)
        args = Args(queue=queue, number=number, window_ms=window_ms)
        self.op(f, at, args, Res(status="ok"), client="o")

    def get(self, name: str, at: int, state: str = "", *, seq: int | None = None) -> None:
        """A job is read."""
        row = JobRow(job_id=name, queue="q", state=state) if state else None
        args = Args(items=(Item(job_id=name),))
        self.op("get", at, args, Res(job=row), client="r", seq=seq)

    def set_state(self, name: str, state: str, attempt: int = 0) -> None:
        """The state in which a job will be read at the end."""
        row = self.rows.get(name)
        if row is not None and state:
            self.rows[name] = replace(row, state=state, attempt=attempt)

    # ---- all records

    def records(self) -> list[Record]:
        """The history."""
        out: list[Record] = [self.run]
        if self.witness:
            out += [
                Feed(node=node, t=0, what="start", id="s0=2-00000002,s1=2-00000002")
                for node in NODES
            ]
        out += self.ops
        if self.witness:
            out += self.events
            end = ",".join(f"s{shard}={seq}-{seq:08x}" for shard, seq in self.seq.items())
            out += [Feed(node=node, t=10**15, what="id", id=end) for node in NODES]
        return [*out, *self.ending(), *self.more]

    def ending(self) -> list[Record]:
        """What is read at the end."""
        out: list[Record] = []
        counts: dict[str, dict[str, int]] = {}
        for row in self.rows.values():
            out.append(FinalJob(source="shard", node="n1", row=row))
            out += [FinalJob(source="mirror", node=node, row=row) for node in NODES]
            states = counts.setdefault(row.queue, {})
            states[row.state] = states.get(row.state, 0) + 1
        for queue, states in counts.items():
            fields: dict[str, int] = {**states, "enqueued": sum(states.values())}
            out.append(FinalQueue(node="n1", row=queue_row(queue, fields)))
        out += [
            FinalMirror(node=node, as_of=dict(self.as_of()), total=len(self.rows)) for node in NODES
        ]
        out += [
            FinalReplica(node=node, shard=shard, index=seq, digest=f"{seq:08x}")
            for shard, seq in self.seq.items()
            for node in NODES
        ]
        out.append(FinalDone(t=10**15, jobs=len(self.rows), drained=self.drained))
        return out

    def as_of(self) -> dict[str, int]:
        """The position of the mirrors."""
        return {str(shard): seq for shard, seq in self.seq.items()}


def queue_row(name: str, counts: dict[str, int]) -> QueueRow:
    """A queue with its counts."""
    row = QueueRow(name=name)
    fields = {field: counts.get(field, getattr(row, field)) for field in row.__struct_fields__}
    return QueueRow(**fields)


def edited(
    story: Story, keep: Callable[[Record], bool] | None = None,
    change: Callable[[Record], Record] | None = None,
) -> list[Record]:  # fmt: skip
    """The records of a story, without some, and with others changed."""
    records = [record for record in story.records() if keep is None or keep(record)]
    return [change(record) for record in records] if change is not None else records


def worked(*, witness: bool = True) -> Story:
    """A right history: two jobs are enqueued, fetched and completed, and a third one waits."""
    story = Story(witness=witness)
    for at, name in enumerate(("a", "b", "c")):
        story.enqueue(name, 10 + 10 * at)
    for at, name in enumerate(("a", "b")):
        story.fetch(name, 50 + 10 * at, 100 + at)
    for at, name in enumerate(("a", "b")):
        story.ack(name, 80 + 10 * at, 100 + at)
    if not witness:
        for name in ("a", "b"):
            story.set_state(name, COMPLETED, 1)
    return story


__all__ = ["FinalBatch", "Story", "edited", "queue_row", "sha", "worked"]
