"""Stored documents (job, queue, schedule, worker, batch, API key); states and events of a job.

Documents are frozen and written as msgpack arrays: a field is only ever added at the end, with a
default. Time is integer nanoseconds since 1970, money integer micro-dollars; there are no floats.
The JSON of clients (payload, result, progress, checkpoint) is stored as the bytes that they sent.
"""

from enum import Enum
from typing import Final

import msgspec

from corvo.trace_context import TraceContext


class State(Enum):
    """The state of a job. Counts of a queue are stored in this order; it only grows at the end."""

    PENDING = "pending"
    ACTIVE = "active"
    HELD = "held"
    COMPLETED = "completed"
    RETRYING = "retrying"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SCHEDULED = "scheduled"

    def __init__(self, word: str) -> None:
        # Looked up by the million, where an `Enum` takes its time for its hash and its value.
        self.word = word
        self.number = len(type(self).__members__)
        self.followers = 0  # bits of the states that may follow: see `TRANSITIONS`
        self.has_reason = word in {"held", "dead", "cancelled"}  # see `corvo.protocol.reasons`


STATES: Final = tuple(State)
FINISHED: Final = (State.COMPLETED, State.DEAD, State.CANCELLED)

TRANSITIONS: Final[dict[State, tuple[State, ...]]] = {
    State.PENDING: (State.ACTIVE, State.HELD, State.CANCELLED, State.DEAD, State.PENDING),
    State.ACTIVE: STATES,
    State.HELD: (State.PENDING, State.DEAD, State.CANCELLED, State.HELD),
    State.COMPLETED: (State.PENDING, State.COMPLETED),
    State.RETRYING: (State.PENDING, State.HELD, State.CANCELLED, State.DEAD, State.RETRYING),
    State.DEAD: (State.PENDING, State.DEAD),
    State.CANCELLED: (State.PENDING, State.CANCELLED),
    State.SCHEDULED: (State.PENDING, State.HELD, State.CANCELLED, State.DEAD, State.SCHEDULED),
}
"""States that may follow each state; a document may also change within its state."""

for _state, _followers in TRANSITIONS.items():
    _state.followers = sum(1 << follower.number for follower in _followers)


def may_follow(before: State, after: State) -> bool:
    """Whether a job may go from one state to another."""
    return bool(before.followers >> after.number & 1)


class Priority:
    """Smaller is sooner. Normal jobs wait in `qa|`, the others in `p|`."""

    CRITICAL: Final = 0
    HIGH: Final = 1
    NORMAL: Final = 2


class Backoff(Enum):
    """Growth of the delay between attempts."""

    NONE = "none"
    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class EventType(Enum):
    """Events of jobs and queues: the stored word, a description, the public name if it differs."""

    ENQUEUED = ("enqueued", "The job was created.")
    STARTED = ("started", "A worker fetched the job.")
    COMPLETED = ("completed", "The worker finished the job.")
    FAILED = ("failed", "An attempt failed; the job waits for its next attempt.")
    DEAD = ("died", "The last attempt failed, or the job expired; it is dead.", "dead")
    CANCELLED = ("cancelled", "The job was cancelled.")
    RELEASED = ("released", "The worker gave the job back; it is pending again.")
    SNOOZED = ("snoozed", "The worker gave the job back for later; it is scheduled.")
    CRASHED = ("crashed", "The lease expired; the job is pending again.")
    PROMOTED = ("promoted", "The scheduled time or the retry delay is over; the job is pending.")
    READY = ("ready", "All jobs that the job depends on are completed.")
    HELD = ("held", "The job waits for approval; `why` has the reason.")
    APPROVED = ("approved", "The held job was approved; it is pending.")
    REJECTED = ("rejected", "The held job was rejected; it is dead.")
    CONTINUED = ("continued", "The next iteration of an agent's job is pending.")
    RETRIED = ("retried", "The job is pending again, with all its attempts.")
    REQUEUED = ("requeued", "The dead job is pending again, for one more attempt.")
    MOVED = (
        "moved",
        "The job was moved to another queue; without a `state`, to one of another shard.",
    )
    ARRIVED = ("arrived", "The job came from a queue in another shard.")
    PRIORITY = ("priority", "The job has another priority; `why` has the one before.")
    ASKED_TO_STOP = (
        "asked to stop",
        "The active job was cancelled; its worker is asked to stop.",
        "asked_to_stop",
    )
    PROGRESS = ("progress", "The worker reported progress; `data` has it.")
    DELETED = (
        "deleted",
        "The job was deleted, or its queue was cleared or deleted; it has no `state`.",
    )
    PURGED = ("purged", "The retention of the finished job is over; it has no `state`.")
    QUEUE_CREATED = ("queue.created", "The queue was created, by its first job or setting.")
    QUEUE_PAUSED = ("queue.paused", "The queue was paused.")
    QUEUE_RESUMED = ("queue.resumed", "The queue was resumed.")
    QUEUE_DRAINING = ("queue.draining", "The queue is being drained.")
    QUEUE_CHANGED = ("queue.changed", "A limit or the retention of the queue was changed.")
    QUEUE_CLEARED = ("queue.cleared", "The queue was cleared.")
    QUEUE_DELETED = ("queue.deleted", "The queue was deleted.")
    SCHEDULE_CREATED = ("schedule.created", "The schedule was created; `id` is its id.")
    SCHEDULE_CHANGED = ("schedule.changed", "The schedule was changed.")
    SCHEDULE_PAUSED = ("schedule.paused", "The schedule was paused.")
    SCHEDULE_RESUMED = ("schedule.resumed", "The schedule was resumed.")
    SCHEDULE_SKIPPED = (
        "schedule.skipped",
        "A due time of the schedule, or several, made no job; `why` has the reason.",
    )
    SCHEDULE_MOVED = ("schedule.moved", "The schedule has another queue, and another id.")
    SCHEDULE_DELETED = ("schedule.deleted", "The schedule was deleted.")

    def __init__(self, stored: str, text: str, public: str = "") -> None:
        self.stored = stored
        """The word in a job's trail and in the feed. It never changes, for it is in documents."""
        self.text = text
        self.public = public or stored  # the type of the event in the HTTP API


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event of a job: time, type, the caller's name and a reason."""

    at_ns: int
    what: str  # a stored word of `EventType`
    by: str = ""
    why: str = ""


TRAIL_MAX: Final = 32
"""Events kept of one job: the first, and the last ones."""


class Settled(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The end of a lease by an op of its holder, kept for the answer to the same op again."""

    token: int
    how: str  # the op that ended it: ack, fail, release, snooze or hold
    state: State
    due_ns: int = 0
    attempts_left: int = 0


class Agent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The loop of an agent's job: its limits (0 is no limit), its iteration and its cost."""

    max_iterations: int = 0
    max_cost_micros: int = 0
    iteration_timeout_ms: int = 0
    iteration: int = 1
    total_cost_micros: int = 0


class Job(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """A job. Its index keys are derived from this document; its errors are stored beside it."""

    id: str
    queue: str
    state: State
    payload: bytes
    created_ns: int
    order_ns: int
    """Its place in the queue: unique in a shard, so that the queue's order is the commit order."""
    trail: tuple[Event, ...] = ()
    priority: int = Priority.NORMAL
    kind: str = ""

    attempt: int = 0  # number of runs that count; a run that was released or snoozed does not count
    max_retries: int = 3  # number of attempts, the first included
    backoff: Backoff = Backoff.EXPONENTIAL
    retry_base_delay_ms: int = 5_000
    retry_max_delay_ms: int = 600_000
    retry_jitter: int = 0  # per cent of the delay, in both directions
    failures: int = 0  # number of errors recorded; the last ones are kept
    crashes: int = 0  # number of leases that expired since the last retry
    max_crashes: int = 5

    lease_token: int = 0  # token of the last lease, ended or not; rises with every fetch
    lease_ms: int = 0
    lease_expires_ns: int = 0  # 0 unless active
    max_run_time_ms: int = 0
    run_expires_ns: int = 0  # end of the time for this run; 0 unless active and limited
    worker_id: str = ""
    hostname: str = ""
    cancel_requested: bool = False
    settled: Settled | None = None

    scheduled_ns: int = 0  # time at which a scheduled or retrying job becomes pending
    expires_ns: int = 0  # time at which it becomes dead; 0 is never
    expires_active: bool = False  # whether it also expires while it is active
    started_ns: int = 0
    completed_ns: int = 0
    failed_ns: int = 0
    finished_ns: int = 0  # time at which it became completed, dead or cancelled; 0 before
    held_ns: int = 0
    hold_reason: str = ""

    unique_key: str = ""
    unique_until_ns: int = 0  # end of its unique lock; 0 if it does not hold the lock
    tags: dict[str, str] = {}
    progress: bytes = b""
    checkpoint: bytes = b""
    result: bytes = b""

    parent_id: str = ""
    batch_id: str = ""
    chain_id: str = ""
    chain_step: int = 0
    chain: bytes = b""  # the chain's definition as JSON, in every job of it
    waits_for: tuple[str, ...] = ()
    """Jobs that must be completed before this one can be fetched, and are not."""
    agent: Agent | None = None
    born_in: int = -1
    """Its home shard, which its id names, after a move to another shard; -1 at home."""
    unique_period_ms: int = 0  # duration of its unique lock, from each time that it takes the lock
    chain_marks: int = 0
    """Steps of its chain that it has enqueued: bits of `corvo.shard.state.chains`."""
    awaited: bool = False  # whether other jobs depend on it, or did


class TracedJob(Job, frozen=True, array_like=True, kw_only=True, gc=False):
    """A job with what few jobs have. The others are stored as before version 6 of the ops."""

    SINCE = 6
    trace: TraceContext | None = None


def traced(job: Job, trace: TraceContext | None) -> Job:
    """The job with a trace context. Without one it has the bytes of a job that never had one."""
    fields = {name: getattr(job, name) for name in Job.__struct_fields__}
    return Job(**fields) if trace is None else TracedJob(**fields, trace=trace)


def trace_of(job: Job) -> TraceContext | None:
    """The trace context of a job, if it has one."""
    return job.trace if isinstance(job, TracedJob) else None


class JobError(msgspec.Struct, frozen=True, kw_only=True):
    """The error of one attempt."""

    attempt: int
    error: str
    backtrace: str = ""
    error_class: str = ""
    at_ns: int
    worker_id: str = ""


class Queue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue and its settings. It is created by its first job or setting."""

    name: str
    created_ns: int = 0
    paused: bool = False
    draining: bool = False  # paused by `drain`, until no job is active
    max_concurrency: int = 0  # 0 is no limit
    rate_limit: int = 0  # fetches in each window; 0 is no limit
    rate_window_ms: int = 0
    retention_ms: int = 0  # retention of finished jobs; 0 is the retention of the server
    cleared_ns: int = 0
    """Pending, scheduled and retrying jobs up to this place are being removed; 0 if none."""
    deleted_ns: int = 0
    """All jobs up to this place are being removed after a deletion of the queue; 0 if none."""
    rate_since_ns: int = 0
    """Fetches up to this place do not count against the rate limit, which was set later."""


class Worker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker that fetched within the last 24 hours."""

    id: str
    hostname: str = ""
    queues: tuple[str, ...] = ()
    started_ns: int = 0
    seen_ns: int = 0


class Throughput(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Events of one queue within one minute."""

    queue: str
    minute: int  # minutes since 1970, by the shard's clock
    enqueued: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0  # number of failed attempts, the last one of a job included
    dead: int = 0
    cancelled: int = 0


class Batch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch: counts of its jobs, and the callback when all have ended."""

    id: str
    created_ns: int = 0
    total: int = 0
    pending: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0  # cancelled or deleted
    callback_queue: str = ""
    callback_payload: str = ""  # JSON
    called_back: bool = False
    """Whether the callback was enqueued: no job can join, and the batch does not end again."""
    removed: int = 0  # number of members that were removed; with the last one, the batch is removed
    queue: str = ""
    """The queue of its first job; empty for a batch from before version 2 of the ops."""
    trace: TraceContext | None = None  # of its callback

    @property
    def belongs_to(self) -> str:
        """The queue whose users may add jobs to it; empty for users of every queue alone."""
        return self.queue or self.callback_queue


class Request(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer that is kept for a request key."""

    key: str
    op: int
    body_hash: bytes
    at_ns: int
    code: str  # empty if the op was applied; else the code of the refusal
    body: bytes  # the answer as JSON, or the data from which the op makes it again
    index: int = 0


class Outgoing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An effect on another shard, kept until that shard has confirmed it."""

    shard: int
    seq: int  # a number for each destination, without a gap: effects are taken once and in order
    body: bytes  # the op `Receive`, as JSON
    at_ns: int


class Epoch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Effects on one shard that were given under one leader: see `corvo.shard.state.epochs`."""

    began_ns: int  # the time of the entry that began it, which no other entry of the shard has
    first: int  # the number of the first effect in it
    after: int  # the epoch of the effect before


class Forward(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The shard to which a job has moved."""

    id: str
    shard: int
    at_ns: int
    state: str = ""  # the state in which it has ended there; empty while it has not


MISSING: Final = "missing"
"""A job that others wait for does not exist yet."""
ABSENT: Final = "absent"
"""A job does not exist, and others wait for it no longer."""


class Ending(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The end of a job, kept until all its dependents are settled; or a job that is `MISSING`."""

    id: str
    state: str  # its last state; or `MISSING`, or `ABSENT`
    at_ns: int  # when its dependents are settled: at once, or when they do not wait any longer


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One due time of a schedule, or a run that was asked for, and what became of it."""

    SINCE = 5
    due_ns: int
    at_ns: int  # when it was fired or skipped
    job_id: str = ""  # empty if no job was made
    state: str = ""  # the state in which the job has ended; empty while it has not
    skipped: str = ""  # why no job was made: a word of `corvo.protocol.ops.schedules`
    cause: str = ""  # empty for a due time that has come; else `now` or `backfill`
    count: int = 1  # number of due times, of those that were missed together

    @property
    def is_running(self) -> bool:
        """Whether there is a job that has not ended."""
        return bool(self.job_id and not (self.state or self.skipped))


RUNS_MAX: Final = 20
"""Runs that a schedule keeps: those whose jobs have not ended, and the last ones."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule: it creates a job at each of its due times. It lives in the shard of its queue.

    Due times are computed by the leader, outside the log, and stored with the op that fires them:
    replicas need no calendar, and no time zones.
    """

    SINCE = 5
    id: str  # that of a job of the queue, `mail~nightly`, with its name for the own id
    name: str
    queue: str
    cron: str
    job: str  # the job to be created, as JSON: `corvo.protocol.ops.enqueue.NewJob`
    timezone: str = "UTC"
    overlap: str = "allow"
    missed: str = "one"
    missed_max: int = 100
    missed_after_ms: int = 60_000
    jitter_ms: int = 0
    starts_ns: int = 0  # no due time before it; 0: no such limit
    ends_ns: int = 0  # no due time after it; 0: no such limit
    paused: bool = False
    created_ns: int = 0
    changed_ns: int = 0
    changes: int = 1
    """Rises with each change by a client, so that due times computed before it are refused."""
    anchor_ns: int = 0  # the time from which an interval is counted
    from_ns: int = 0  # all due times up to this one are fired or skipped
    is_planned: bool = False  # whether the next due time is computed
    next_ns: int = 0  # the next due time; 0 without one
    next_local: str = ""  # the same in its time zone, for the payload
    tz: str = ""  # the version of the time zones by which that was computed
    error: str = ""  # why it could not be computed
    queued_ns: int = 0  # a due time that waits for the end of the last run; 0 if none does
    queued_local: str = ""
    last_due_ns: int = 0  # the due time that was fired last; 0 before the first
    fired: int = 0  # jobs that it made
    skipped: int = 0  # due times that made none
    runs: tuple[Run, ...] = ()  # the last ones, in the order in which they were fired or skipped
    moving_to: str = ""  # the queue to which it is on its way, in another shard

    @property
    def running(self) -> tuple[Run, ...]:
        """The runs whose jobs have not ended."""
        return tuple(run for run in self.runs if run.is_running)


DEFAULT_NAMESPACE: Final = "default"
"""The only namespace so far. Queues of another one will have other names, and so other shards."""
ROLES: Final = ("readonly", "producer", "worker", "operator", "admin")
"""Roles of API keys, from the fewest rights to the most; the router decides the rights of each."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API key. Only its hash is stored."""

    key_hash: str  # the SHA-256 of the key, in hex
    name: str
    role: str
    namespace: str = DEFAULT_NAMESPACE
    queue_scope: tuple[str, ...] = ()
    """Queue names and prefixes such as `mail*`. An empty list stands for every queue: see
    `corvo.scopes.scope_of_stored`."""
    enabled: bool = True
    created_ns: int = 0
    expires_ns: int = 0  # time at which it expires; 0 is never
    is_early: bool = False
    """Whether it was created on an open server, and did not close it. The key that closes the
    server ends that for all, so that the server never opens by itself."""
