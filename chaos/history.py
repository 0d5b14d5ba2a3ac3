"""The history of a run: one JSON object in each line, in the files `*.jsonl` of one folder.

Each line is one `Record`, and its field `kind` says which one. The order of lines has no meaning
but for one thing: the lines of one node's feed (`event`, `feed`) are in one file, in the order in
which they arrived. Times `t…` are nanoseconds of CLOCK_MONOTONIC, which all processes of one host
share; `…_ns` beside a job are nanoseconds since 1970 by the clock of its shard, as the API gave
them. Fields at their defaults are left out.

**Payloads.** The harness gives each job a payload that is a JSON object with a field `mark`: text
that no other job of the run has, by custom `OP_ID/POSITION`. A step or handler of a chain, the
callback of a batch and a schedule have a `mark` in their payload, too. A worker records the mark
of each job that it gets, and the fingerprint of the payload (`fingerprint`). So a job is known
again although the answer to its enqueue was lost.

**Types of an op.** `ok`: the answer had a 2xx status. `fail`: the answer was an error with the
outcome `not_applied`. `info`: anything else (no answer, a cut connection, an error without an
outcome, the outcomes `unknown` and `applied`). An op that is sent again with the same request key
is a record of its own, with the same `op_id` and the next `try`.

**Fields by op.** `ARGS` and `RESULTS` say which fields an op of each name must have; `malformed`
checks a record. A client is one logical process that has one call under way at a time; a session
is a line of calls of one client that must see its own writes.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import msgspec

FORMAT: Final = 2
"""Version of this format; a checker reads its own and earlier ones.

2: the final reading has the digest of every replica, and all schedules.
"""

READ_BYTES: Final = 1 << 20  # large enough that a call of the system costs nothing beside decoding
WRITE_BYTES: Final = 256 * 1024  # what a killed harness can lose of its last moments

OpType = Literal["ok", "fail", "info"]
"""Whether the op had its effect: yes, no, or unknown."""


def fingerprint(payload: bytes) -> str:
    """What `sha` is of a payload: of its bytes as they were sent, or as the worker got them."""
    return hashlib.sha256(payload).hexdigest()[:16]


class Part(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Something within a record."""


class Line(Part, frozen=True, tag_field="kind"):
    """A record: one line of a file."""


# ---- what was asked


class Template(Part, frozen=True):
    """A job that the server will create by itself: a step or handler of a chain."""

    queue: str
    mark: str = ""
    priority: int = 2
    max_retries: int = 3
    backoff: str = "exponential"
    base_ms: int = 5_000
    max_delay_ms: int = 600_000
    jitter: int = 0
    max_run_ms: int = 0
    max_crashes: int = 5
    expire_after_ms: int = 0
    expire_active: bool = False


class Chain(Part, frozen=True):
    """A chain, as it was sent; the first of its steps is the job itself."""

    steps: tuple[Template, ...]
    on_failure: Template | None = None
    on_exit: Template | None = None
    cancel_is_failure: bool = True


class NewJob(Template, frozen=True):
    """A job of an enqueue. Fields that were not sent are at the defaults of the API."""

    sha: str = ""
    id: str = ""
    """The full id that the client chose (`mail~letter-1`); empty if the server gives one."""
    unique_key: str = ""
    unique_ms: int = 3_600_000
    delay_ms: int = 0
    scheduled_at_ns: int = 0
    batch_id: str = ""
    depends_on: tuple[str, ...] = ()
    wait_ms: int = 86_400_000
    chain: Chain | None = None


class Callback(Part, frozen=True):
    """The field `batch` of `enqueue/batch`."""

    queue: str = ""
    mark: str = ""


class Item(Part, frozen=True):
    """One job of a call about jobs."""

    job_id: str
    token: int = 0
    """0: the call had no lease token."""
    retryable: bool = True
    retry_after_ms: int | None = None
    delay_ms: int | None = None
    agent_status: str = ""
    step_status: str = ""


class Schedule(Part, frozen=True):
    """A schedule, as it was sent."""

    id: str
    """`QUEUE~NAME`."""
    cron: str = ""
    timezone: str = "UTC"
    mark: str = ""
    overlap: str = "allow"
    missed: str = "one"
    missed_after_ms: int = 60_000
    missed_max: int = 100
    jitter_ms: int = 0


class Args(Part, frozen=True):
    """What was sent. `ARGS` says which fields belong to which op."""

    jobs: tuple[NewJob, ...] = ()
    batch: Callback | None = None
    queues: tuple[str, ...] = ()
    queue: str = ""
    """The queue of an op on a queue; the new queue of a move."""
    worker: str = ""
    count: int = 0
    wait_ms: int = 0
    lease_ms: int = 0
    items: tuple[Item, ...] = ()
    number: int = 0
    """The new priority, concurrency, rate, retention in milliseconds, or number of replicas."""
    window_ms: int = 0
    reason: str = ""
    action: str = ""
    """The action of a bulk operation."""
    filter: dict[str, str] = {}
    id: str = ""
    """The id of the batch, schedule, bulk operation or node."""
    schedule: Schedule | None = None
    consistency: str = ""
    """Of a read: empty (the default of the route), `linearizable`, `local` or `stale`."""


# ---- what was answered


class Created(Part, frozen=True):
    """One job of the answer to an enqueue, in the order of the request."""

    job_id: str = ""
    """Empty if the answer has null: the job may or may not exist."""
    status: str = ""
    """State of the job, `duplicate` or `moved`; empty beside an error."""
    existing: bool = False
    """`unique_existing`."""
    code: str = ""
    outcome: str = ""


class Delivered(Part, frozen=True):
    """One job of the answer to a fetch, as the worker got it."""

    job_id: str
    queue: str
    attempt: int
    token: int
    expires_ns: int
    """`lease_expires_at`."""
    mark: str = ""
    sha: str = ""
    max_retries: int = 3
    previous_job_id: str = ""
    """Of the payload of a step or of `on_exit`; `failed_job_id` of that of `on_failure`."""
    batch: tuple[str, int, int, int, int] | None = None
    """Of the payload of a callback: id, total, succeeded, failed, cancelled."""


class ItemResult(Part, frozen=True):
    """The answer for one job of a call about jobs, in the order of the request."""

    job_id: str
    status: str = ""
    state: str = ""
    """The state after it, if the answer has it."""
    code: str = ""
    outcome: str = ""
    """Beside a code: not_applied, applied or unknown."""
    reason: str = ""
    expires_ns: int = 0
    """Of a heartbeat: the new end of the lease."""
    next_ns: int = 0
    """Of a fail: the time of the next attempt."""
    attempts_left: int = -1


class JobRow(Part, frozen=True):
    """A job as a read gave it."""

    job_id: str
    queue: str
    state: str
    priority: int = 2
    attempt: int = 0
    max_retries: int = 3
    mark: str = ""
    sha: str = ""
    """Of the payload; empty if the read had none."""
    worker: str = ""
    created_ns: int = 0
    changed_ns: int = 0
    """The time of the newest entry of its history (or `changed_at`)."""
    scheduled_ns: int = 0
    expires_ns: int = 0
    lease_ns: int = 0
    """`lease_expires_at`; 0 if the job has no lease."""
    unique_key: str = ""
    batch_id: str = ""
    chain_id: str = ""
    chain_step: int | None = None
    parent_id: str = ""
    failures: int = 0
    hold_reason: str = ""
    dlq_reason: str = ""


class QueueRow(Part, frozen=True):
    """A queue as `GET /api/v1/queues` gave it."""

    name: str
    pending: int = 0
    active: int = 0
    held: int = 0
    completed: int = 0
    dead: int = 0
    scheduled: int = 0
    retrying: int = 0
    cancelled: int = 0
    enqueued: int = 0
    paused: bool = False
    draining: bool = False
    concurrency: int = 0
    rate: int = 0
    window_ms: int = 0


class BatchRow(Part, frozen=True):
    """A batch as `GET /api/v1/batches/{id}` gave it."""

    id: str
    status: str
    total: int = 0
    pending: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    removed: int = 0
    callback_queue: str = ""


class Res(Part, frozen=True):
    """What was answered. `RESULTS` says which fields belong to which op."""

    created: tuple[Created, ...] = ()
    batch_id: str = ""
    delivered: tuple[Delivered, ...] = ()
    items: tuple[ItemResult, ...] = ()
    status: str = ""
    job: JobRow | None = None
    """Of a read of one job; none if it was not found."""
    rows: tuple[JobRow, ...] = ()
    total: int = -1
    """Of a search; -1 if it is not exact."""
    as_of: dict[str, int] = {}
    """Of a search: shard (`0`) to the index that the mirror had read."""
    is_behind: bool = False
    queues: tuple[QueueRow, ...] = ()
    batch: BatchRow | None = None
    affected: int = 0
    schedule_changes: int = 0


NO_ARGS: Final = Args()
NO_RES: Final = Res()


class Op(Line, frozen=True, tag="op", rename={"try_": "try"}):
    """One attempt of one call."""

    n: int
    """A number that no other op of the run has."""
    client: str
    session: str
    op_id: str
    """The request key; without one, an id that only this attempt has."""
    f: str
    t_inv: int
    """Just before the first byte was sent."""
    type: OpType
    t_ret: int | None = None
    """Just after the last byte of the answer; none if there was no answer."""
    try_: int = 1
    keyed: bool = False
    """Whether `op_id` was sent as the request key."""
    node: str = ""
    args: Args = NO_ARGS
    res: Res = NO_RES
    http: int = 0
    code: str = ""
    outcome: str = ""
    reason: str = ""
    seq: dict[str, int] = {}
    """The header `Corvo-Seq` of the answer: shard (`0`) to index."""
    min_seq: dict[str, int] = {}
    """The header `Corvo-Min-Seq` of the request."""


# ---- the run, its faults, and what the server's own feed says


class Node(Part, frozen=True):
    """A node of the cluster."""

    name: str
    url: str


class Run(Line, frozen=True, tag="run"):
    """The run; exactly one in a history."""

    seed: int
    version: str
    nodes: tuple[Node, ...]
    shards: int
    t: int
    wall_ns: int
    """The wall clock of the harness at `t`."""
    format: int = 1
    """`FORMAT` of the harness that wrote it."""
    id: str = ""
    grace_ms: int = 0
    """The setting `shard.grace_ms`."""
    retention_ms: int = 0
    """How long finished jobs are kept if their queue says nothing; 0: longer than the run."""
    is_fresh: bool = True
    """Whether the cluster was empty at the beginning, and has no other clients."""
    witness: bool = True
    """Whether the events of the nodes were followed. Without, the stages that compare the answers
    with the events have nothing to look at, and say so."""
    settings: dict[str, str] = {}
    minima: dict[str, int] = {}
    """The least that a run must have: name of an op, `ok`, `faults` or `events` to a number."""


class Phase(Line, frozen=True, tag="phase"):
    """A part of the run begins: load, faults, heal, drain, quiet, or a name of your own.

    From `quiet` on no client calls and no job changes: the `final_…` records are read then.
    """

    t: int
    name: str


class Fault(Line, frozen=True, tag="fault"):
    """One fault. It counts if it is verified."""

    n: int
    t: int
    name: str
    target: str
    t_end: int = 0
    args: dict[str, str] = {}
    verified: bool = False
    proof: str = ""
    """What was seen of it, such as a counter of dropped packets or the pid that is gone."""


class Event(Line, frozen=True, tag="event"):
    """One event, as `GET /api/v1/events` of a node gave it, with its own field names."""

    node: str
    t: int
    """When the line was read."""
    id: str
    """The id of the message: the listener's position in all shards, with digests."""
    shard: int
    seq: int
    number: int
    type: str
    at_ns: int
    job_id: str = ""
    queue: str = ""
    state: str = ""
    attempt: int = 0
    by: str = ""
    why: str = ""


class Feed(Line, frozen=True, tag="feed"):
    """What happened to the connection that the events of a node come by."""

    node: str
    t: int
    what: Literal["start", "resume", "id", "gone", "end"]
    """start: it began at the present (`id` is that of its first message). resume: it was opened
    with `id`. id: a message without an event, whose id is `id`. gone: the server answered `gone`
    for `shards`, and reading goes on from `id`. end: it ended, for the reason `why`."""
    id: str = ""
    shards: tuple[int, ...] = ()
    why: str = ""


# ---- what was read after the drain


class FinalJob(Line, frozen=True, tag="final_job"):
    """A job, read once all was quiet: from the leader of its shard, or by a search of a mirror."""

    source: Literal["shard", "mirror"]
    node: str
    """The node that was asked."""
    row: JobRow


class FinalMissing(Line, frozen=True, tag="final_missing"):
    """Jobs that were asked for by id from the shards, and do not exist."""

    job_ids: tuple[str, ...]


class FinalQueue(Line, frozen=True, tag="final_queue"):
    """A queue with its counters, from the shards."""

    node: str
    row: QueueRow


class FinalBatch(Line, frozen=True, tag="final_batch"):
    """A batch."""

    node: str
    row: BatchRow


class FinalSchedule(Line, frozen=True, tag="final_schedule"):
    """A schedule, and how many jobs it says that it created."""

    node: str
    id: str
    paused: bool = False
    next_ns: int = 0
    changes: int = 0
    fired: int = 0


class FinalReplica(Line, frozen=True, tag="final_replica"):
    """One replica of one shard: the index that it has applied, and the digest of its state there.

    The digest is empty if the node did not say it.
    """

    node: str
    shard: int
    index: int
    digest: str = ""
    role: str = ""


class FinalMirror(Line, frozen=True, tag="final_mirror"):
    """The answer of a node's mirror to a search for all jobs; its rows are `final_job` records."""

    node: str
    as_of: dict[str, int]
    total: int
    is_whole: bool = True
    is_behind: bool = False


class FinalDone(Line, frozen=True, tag="final_done"):
    """All has been read: every job was asked for that any answer, event or mirror ever named."""

    t: int
    jobs: int
    missing: int = 0
    drained: bool = True
    """Whether the queues were drained: no job waits for a worker in a queue that is not paused."""


Record = (
    Run
    | Phase
    | Fault
    | Op
    | Event
    | Feed
    | FinalJob
    | FinalMissing
    | FinalQueue
    | FinalBatch
    | FinalSchedule
    | FinalReplica
    | FinalMirror
    | FinalDone
)

# ---- which fields an op must have

ITEMS_OF_WORKERS: Final = ("ack", "fail", "release", "snooze", "heartbeat")
ITEMS_OF_OPERATORS: Final = (
    "retry", "requeue", "expedite", "cancel", "hold", "approve", "reject", "move", "priority",
    "delete",
)  # fmt: skip
QUEUE_OPS: Final = (
    "pause", "resume", "drain", "clear", "delete_queue", "concurrency", "throttle", "unthrottle",
    "retention",
)  # fmt: skip
SCHEDULE_OPS: Final = ("pause_schedule", "resume_schedule", "delete_schedule", "run_schedule")

ARGS: Final[dict[str, tuple[str, ...]]] = {
    "enqueue": ("jobs",),  # and `batch`; one op for `enqueue`, `enqueue/batch` and webhooks
    "fetch": ("queues", "worker", "count", "lease_ms"),  # and `wait_ms`; 0 does not wait
    **dict.fromkeys(ITEMS_OF_WORKERS, ("items",)),  # and `worker`, `reason`
    **dict.fromkeys(ITEMS_OF_OPERATORS, ("items",)),  # and `queue` (move), `number` (priority)
    **dict.fromkeys(QUEUE_OPS, ("queue",)),  # and `number`, `window_ms`
    "bulk": ("action",),  # and `items` or `filter`; `queue`, `number`
    "get": ("items",),  # one item: `GET /api/v1/jobs/{id}`
    "search": (),  # `filter` with the fields of the query
    "queues": (),
    "batch": ("id",),
    **dict.fromkeys(("create_schedule", "change_schedule"), ("schedule",)),
    **dict.fromkeys(SCHEDULE_OPS, ("id",)),
}
"""Name of an op to the fields of `Args` that must be set; others may be."""

RESULTS: Final[dict[str, tuple[str, ...]]] = {
    "enqueue": ("created",),  # and `batch_id`
    "fetch": (),  # `delivered`, empty if there was no job
    **dict.fromkeys(ITEMS_OF_WORKERS, ("items",)),
    **dict.fromkeys(ITEMS_OF_OPERATORS, ("items",)),
    **dict.fromkeys(QUEUE_OPS, ("status",)),
    "bulk": (),  # `affected`, `items` for jobs that were skipped
    "get": (),  # `job`; a 404 is `ok` without a job
    "search": ("as_of",),  # and `rows`, `total`, `is_behind`
    "queues": (),  # `queues`
    "batch": ("batch",),
}
"""Name of an op to the fields of `Res` that an `ok` op must have set; others may be."""

READS: Final = frozenset({"get", "search", "queues", "batch"})


def malformed(op: Op) -> str:
    """What is wrong with the form of an op; empty if nothing is."""
    if op.f not in ARGS:
        return f"unknown op {op.f!r}"
    for name in ARGS[op.f]:
        if not getattr(op.args, name):
            return f"{op.f} without args.{name}"
    if op.type == "ok":
        for name in RESULTS.get(op.f, ()):
            if not getattr(op.res, name):
                return f"{op.f} is ok without res.{name}"
        if op.t_ret is None:
            return "ok without t_ret"
    if op.t_ret is not None and op.t_ret < op.t_inv:
        return "t_ret before t_inv"
    return ""


# ---- files

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)


class Writer:
    """Appends records to a file. Not for several threads: give each its own file.

    A line costs one encoding, and a call of the system every 256 KiB. `flush` before anything that
    may end the process.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._buffer = bytearray()

    def write(self, record: Record) -> None:
        """Add a record."""
        self._buffer += _ENCODER.encode(record)
        self._buffer += b"\n"
        if len(self._buffer) >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand all records to the system."""
        view = memoryview(self._buffer)
        while view:
            view = view[self._file.write(view) :]
        self._buffer = bytearray()

    def close(self) -> None:
        """Write the rest, and close the file."""
        self.flush()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class BrokenLineError(Exception):
    """A line of a history is no record."""


def files(directory: Path) -> list[Path]:
    """The files of a history."""
    return sorted(directory.glob("*.jsonl"))


def read_file(path: Path) -> Iterator[Record]:
    """The records of one file. A last line without its end was cut by a crash, and is left out."""
    decode = _DECODER.decode
    with path.open("rb", buffering=READ_BYTES) as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise BrokenLineError(f"{path.name}:{number}: {error}") from error


def read(directory: Path) -> Iterator[Record]:
    """All records of a history, file by file."""
    for path in files(directory):
        yield from read_file(path)


def write(directory: Path, records: Iterable[Record], name: str = "history.jsonl") -> None:
    """Write a whole history, as tests and generators do."""
    with Writer(directory / name) as writer:
        for record in records:
            writer.write(record)
