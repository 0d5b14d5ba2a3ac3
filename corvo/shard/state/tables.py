"""The tables of a shard, and the index keys that follow from a job.

A job's keys follow from its present state alone. An index that is read from its front (`qa|`, `p|`
and the timers) belongs to a `Group`; the others are for scans.

Events of a job or a queue follow from two documents, the one before and the one after a change, so
that no op can leave an event out.
"""

import zlib
from enum import IntEnum
from functools import lru_cache
from typing import Final

from corvo.kv import keys
from corvo.kv.feed import Told
from corvo.kv.keys import check_name
from corvo.kv.tables import Group, IndexKey, Table, Transaction
from corvo.model import (
    FINISHED,
    ApiKey,
    Batch,
    Ending,
    Event,
    EventType,
    Forward,
    Job,
    Priority,
    Queue,
    Request,
    Schedule,
    State,
    TracedJob,
    Worker,
    may_follow,
)
from corvo.times import MS


class Timer(IntEnum):
    """Kinds of timers. The numbers are in keys, and a number is never used again."""

    PROMOTE = 1  # a scheduled or retrying job becomes pending
    LEASE = 2  # a lease, or the time for one run, is over
    EXPIRE = 3  # a job expires
    UNIQUE = 4  # a unique lock ends before its job does
    REQUEST = 5  # the answer to a request key is removed
    SWEEP = 6  # a queue has jobs that were cleared, or was deleted
    WORKER = 7  # a worker has not fetched for long
    ENDING = 8  # a job has ended, and not all its dependents are settled
    SCHEDULE = 9  # a schedule is due, or its next due time is to be computed


TIMERS: Final = {timer: Group(keys.TIMER.prefix + bytes((timer,))) for timer in Timer}


class QueueKeys:
    """Key prefixes of one queue."""

    __slots__ = (
        "active",
        "append",
        "append_group",
        "append_skip",
        "blocked",
        "finished",
        "held",
        "pending",
        "pending_group",
        "pending_skip",
        "rate",
        "retrying",
        "scheduled",
        "unique",
    )

    def __init__(self, queue: str) -> None:
        check_name("queue", queue)
        name = queue.encode() + b"\0"
        self.append = keys.QUEUE_APPEND.prefix + name
        self.pending = keys.PENDING.prefix + name
        self.append_group = Group(self.append, keys.QUEUE_CURSOR.prefix + queue.encode())
        self.pending_group = Group(self.pending)
        self.append_skip = len(self.append) + 8  # where the id begins
        self.pending_skip = len(self.pending) + 9
        self.active = keys.ACTIVE.prefix + name
        self.scheduled = keys.SCHEDULED.prefix + name
        self.retrying = keys.RETRYING.prefix + name
        self.finished = keys.FINISHED.prefix + name
        self.held = keys.HELD.prefix + name
        self.blocked = keys.BLOCKED.prefix + name
        self.unique = keys.UNIQUE.prefix + name
        self.rate = keys.RATE_LIMIT.prefix + name


@lru_cache(maxsize=4_096)
def queue_keys(queue: str) -> QueueKeys:
    """Key prefixes of a queue."""
    return QueueKeys(queue)


def job_indexes(job: Job) -> tuple[IndexKey, ...]:
    """Index keys of a job in its present state."""
    names = queue_keys(job.queue)
    job_id = job.id.encode()
    state = job.state
    if state is _PENDING:
        first = _waiting(job, names, job_id)
    elif state is _ACTIVE:
        lease, run = job.lease_expires_ns, job.run_expires_ns
        due = min(lease, run) if run else lease
        first = (
            (names.active + job_id, lease.to_bytes(8, "big"), None),
            (_LEASE.prefix + due.to_bytes(8, "big") + job_id, b"", _LEASE),
        )
    elif state in FINISHED:
        return ((names.finished + job.finished_ns.to_bytes(8, "big") + job_id, b"", None),)
    else:
        first = _resting(job, names, job_id)
    if not (job.expires_ns or job.unique_until_ns or job.waits_for):
        return first
    return (*first, *_conditions(job, names, job_id))


_PENDING: Final = State.PENDING
_ACTIVE: Final = State.ACTIVE
_LEASE: Final = TIMERS[Timer.LEASE]


def _waiting(job: Job, names: QueueKeys, job_id: bytes) -> tuple[IndexKey, ...]:
    order = job.order_ns.to_bytes(8, "big")
    if job.waits_for:
        return ((names.blocked + order + job_id, b"", None),)
    if job.priority == Priority.NORMAL:
        return ((names.append + order + job_id, b"", names.append_group),)
    urgent = names.pending + bytes((job.priority,)) + order + job_id
    return ((urgent, b"", names.pending_group),)


def _resting(job: Job, names: QueueKeys, job_id: bytes) -> tuple[IndexKey, ...]:
    if job.state is State.HELD:
        return ((names.held + job.held_ns.to_bytes(8, "big") + job_id, b"", None),)
    due = job.scheduled_ns
    space = names.scheduled if job.state is State.SCHEDULED else names.retrying
    return (
        (space + due.to_bytes(8, "big") + job_id, b"", None),
        timer_key(Timer.PROMOTE, due, job_id),
    )


def _conditions(job: Job, names: QueueKeys, job_id: bytes) -> list[IndexKey]:
    indexed: list[IndexKey] = []
    if job.expires_ns and (job.state is not State.ACTIVE or job.expires_active):
        indexed.append(timer_key(Timer.EXPIRE, job.expires_ns, job_id))
    if job.unique_until_ns:
        lock = keys.unique_value(job.id, job.unique_until_ns)
        indexed.append((names.unique + job.unique_key.encode(), lock, None))
        indexed.append(timer_key(Timer.UNIQUE, job.unique_until_ns, job_id))
    indexed += [
        (keys.DEPENDENT.prefix + awaited.encode() + b"\0" + job_id, b"", None)
        for awaited in job.waits_for
    ]
    return indexed


def timer_key(timer: Timer, due_ns: int, name: bytes) -> IndexKey:
    """The key of a timer."""
    group = TIMERS[timer]
    return (group.prefix + due_ns.to_bytes(8, "big") + name, b"", group)


def _tally(job: Job) -> tuple[str, int]:
    return job.queue, job.state.number


def _check(before: Job, after: Job) -> None:
    assert may_follow(before.state, after.state), f"{before.state} never becomes {after.state}"
    assert after.lease_token >= before.lease_token, "tokens rise"


# What happened.


def _tell_job(tx: Transaction, before: Job | None, job: Job) -> None:
    """Add the new events of a job's trail; of a job that is new here, those of this entry."""
    trail = job.trail
    if not trail:
        return
    event = trail[-1]
    if before is not None:
        known = before.trail
        if not known:
            _tell_several(tx, job)
            return
        last = known[-1]
        if event is last:
            # A change that adds an event changes no progress.
            _tell_progress(tx, before, job)
            return
        if trail[-2] is not last:
            _tell_several(tx, job, last)
            return
        settled = job.settled
        if event.what == _STARTED:
            waits_since = last if last.what != _PRIORITY else _pending_event(known)
            tx.waited_ns.append(event.at_ns - waits_since.at_ns)
        elif settled is not before.settled and settled is not None and settled.how in _RAN:
            tx.ran_ns.append(event.at_ns - before.started_ns)
    elif len(trail) > 1:
        _tell_several(tx, job)
        return
    tx.told.append(
        (event.what, job.id, job.queue, job.kind, job.state.word, job.attempt, event.by, event.why)
    )


_RAN: Final = ("ack", "fail")
"""Ops of a worker that end a run; any other end tells little of how long a run takes."""
_STARTED: Final = EventType.STARTED.stored
_PRIORITY: Final = EventType.PRIORITY.stored


def _pending_event(trail: tuple[Event, ...]) -> Event:
    """The event by which a pending job became pending, or came into its queue."""
    return next((event for event in reversed(trail) if event.what != _PRIORITY), trail[0])


def _tell_progress(tx: Transaction, before: Job, job: Job) -> None:
    progress = job.progress
    if progress and progress != before.progress:
        tx.told.append((*_subject(EventType.PROGRESS.stored, job), tx.by, "", progress))


def _tell_several(tx: Transaction, job: Job, last: Event | None = None) -> None:
    """Add the events after the last known one; all are of this entry."""
    new: list[Event] = []
    for event in reversed(job.trail):
        if event is last or event.at_ns != tx.now_ns:
            break
        new.append(event)
    tx.told += [(*_subject(event.what, job), event.by, event.why) for event in reversed(new)]


def _tell_job_gone(tx: Transaction, job: Job, what: str, why: str) -> None:
    tx.told.append((what, job.id, job.queue, job.kind, "", job.attempt, tx.by, why))


def _subject(what: str, job: Job) -> tuple[str, str, str, str, str, int]:
    return what, job.id, job.queue, job.kind, job.state.word, job.attempt


def _tell_queue(tx: Transaction, before: Queue | None, queue: Queue) -> None:
    """Add the events of a queue. A deleted queue is gone before its jobs are swept."""
    if before is None:
        before = _NO_QUEUE
    if not queue.created_ns:
        if before.created_ns:
            tx.told.append(_of_queue(EventType.QUEUE_DELETED, tx, queue))
        return
    if not before.created_ns:
        tx.told.append(_of_queue(EventType.QUEUE_CREATED, tx, queue))
    if queue.draining and not before.draining:
        tx.told.append(_of_queue(EventType.QUEUE_DRAINING, tx, queue))
    elif queue.paused and not before.paused:
        tx.told.append(_of_queue(EventType.QUEUE_PAUSED, tx, queue))
    elif before.paused and not queue.paused:
        tx.told.append(_of_queue(EventType.QUEUE_RESUMED, tx, queue))
    if queue.cleared_ns > before.cleared_ns:
        tx.told.append(_of_queue(EventType.QUEUE_CLEARED, tx, queue))
    if _settings(queue) != _settings(before):
        tx.told.append(_of_queue(EventType.QUEUE_CHANGED, tx, queue))


_NO_QUEUE: Final = Queue(name="")


def _settings(queue: Queue) -> tuple[int, ...]:
    return queue.max_concurrency, queue.rate_limit, queue.rate_window_ms, queue.retention_ms


def _of_queue(what: EventType, tx: Transaction, queue: Queue) -> Told:
    return what.stored, "", queue.name, "", "", 0, tx.by


def _tell_schedule(tx: Transaction, before: Schedule | None, schedule: Schedule) -> None:
    """Add the events of a schedule. A run that makes a job is an event of that job."""
    if before is None:
        tx.told.append(_of_schedule(EventType.SCHEDULE_CREATED, tx, schedule))
        return
    if schedule.paused is not before.paused:
        paused, resumed = EventType.SCHEDULE_PAUSED, EventType.SCHEDULE_RESUMED
        tx.told.append(_of_schedule(paused if schedule.paused else resumed, tx, schedule))
    elif schedule.changes != before.changes:
        tx.told.append(_of_schedule(EventType.SCHEDULE_CHANGED, tx, schedule))
    if schedule.skipped != before.skipped:
        why = schedule.runs[-1].skipped if schedule.runs else ""
        tx.told.append(_of_schedule(EventType.SCHEDULE_SKIPPED, tx, schedule, why))


def _tell_schedule_gone(tx: Transaction, schedule: Schedule, what: str, why: str) -> None:
    tx.told.append((what, schedule.id, schedule.queue, "", "", 0, tx.by, why))


def _of_schedule(what: EventType, tx: Transaction, schedule: Schedule, why: str = "") -> Told:
    return what.stored, schedule.id, schedule.queue, "", "", 0, tx.by, why


REQUEST_KEPT_NS: Final = 24 * 3_600 * 1_000_000_000
"""Retention of the answer to a request key: longer than clients retry."""
WORKER_KEPT_NS: Final = 24 * 3_600 * 1_000_000_000
"""Retention of a worker after its last fetch."""


def _queue_indexes(queue: Queue) -> tuple[IndexKey, ...]:
    name: IndexKey = (keys.QUEUE_NAME.prefix + queue.name.encode(), b"", None)
    sweep_ns = max(queue.cleared_ns, queue.deleted_ns)
    if not sweep_ns:
        return (name,)
    return (name, timer_key(Timer.SWEEP, sweep_ns, queue.name.encode()))


def jitter_ns(schedule: Schedule, due_ns: int) -> int:
    """How long after a due time the job is created: another time for each, alike everywhere."""
    if not schedule.jitter_ms:
        return 0
    return zlib.crc32(b"%b@%d" % (schedule.id.encode(), due_ns)) % (schedule.jitter_ms + 1) * MS


def missed_after_ns(schedule: Schedule) -> int:
    """How late a due time is missed. What the jitter delays is not late."""
    return (schedule.missed_after_ms + schedule.jitter_ms) * MS


def wakes_ns(schedule: Schedule) -> int:
    """Time at which the leader has to look at a schedule; 0 if it does not."""
    if schedule.paused or schedule.moving_to:
        return 0
    if not schedule.is_planned:
        return schedule.changed_ns
    if schedule.queued_ns and not schedule.running:
        return schedule.queued_ns
    return schedule.next_ns + jitter_ns(schedule, schedule.next_ns) if schedule.next_ns else 0


def _schedule_indexes(schedule: Schedule) -> tuple[IndexKey, ...]:
    wake_ns = wakes_ns(schedule)
    return (timer_key(Timer.SCHEDULE, wake_ns, schedule.id.encode()),) if wake_ns else ()


def is_swept(queue: Queue, job: Job) -> bool:
    """Whether a job was cleared, or deleted with its queue, and is not removed yet."""
    if job.order_ns <= queue.deleted_ns:
        return True
    return job.order_ns <= queue.cleared_ns and job.state in _CLEARED


_CLEARED: Final = (State.PENDING, State.SCHEDULED, State.RETRYING)

JOBS: Final = Table(
    "job",
    keys.JOB.prefix,
    Job,
    key=lambda job: job.id,
    indexes=job_indexes,
    tally=_tally,
    check=_check,
    is_cold=lambda job: job.state in FINISHED,
    is_fed=True,
    tell=_tell_job,
    tell_gone=_tell_job_gone,
    longer=TracedJob,
)
QUEUES: Final = Table(
    "queue",
    keys.QUEUE_CONFIG.prefix,
    Queue,
    key=lambda queue: queue.name,
    indexes=_queue_indexes,
    is_fed=True,
    tell=_tell_queue,
    json=True,
)
SCHEDULES: Final = Table(
    "schedule",
    keys.SCHEDULE.prefix,
    Schedule,
    key=lambda schedule: schedule.id,
    indexes=_schedule_indexes,
    is_fed=True,
    tell=_tell_schedule,
    tell_gone=_tell_schedule_gone,
    json=True,
)
WORKERS: Final = Table(
    "worker",
    keys.WORKER.prefix,
    Worker,
    key=lambda worker: worker.id,
    indexes=lambda worker: (
        timer_key(Timer.WORKER, worker.seen_ns + WORKER_KEPT_NS, worker.id.encode()),
    ),
    is_fed=True,
    json=True,
)
BATCHES: Final = Table(
    "batch", keys.BATCH.prefix, Batch, key=lambda batch: batch.id, is_fed=True, json=True
)
ENDINGS: Final = Table(
    "ending",
    keys.ENDING.prefix,
    Ending,
    key=lambda ending: ending.id,
    indexes=lambda ending: (timer_key(Timer.ENDING, ending.at_ns, ending.id.encode()),),
)
FORWARDS: Final = Table("forwarding address", keys.FORWARD.prefix, Forward, key=lambda it: it.id)
REQUESTS: Final = Table(
    "request key",
    keys.REQUEST.prefix,
    Request,
    key=lambda request: request.key,
    indexes=lambda request: (
        timer_key(Timer.REQUEST, request.at_ns + REQUEST_KEPT_NS, request.key.encode()),
    ),
)
API_KEYS: Final = Table(
    "API key", keys.API_KEY.prefix, ApiKey, key=lambda it: it.key_hash, json=True
)
