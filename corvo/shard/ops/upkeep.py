"""Ops of the leader: timers that are due, retention that is over, queues that were cleared.

Each op does a bounded number of things, in the order in which they became due, and reads an index
from its front; none reads all jobs. A job that is being swept is removed when an op meets it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, ClassVar, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from corvo.kv import keys
from corvo.kv.keys import META, prefix_end
from corvo.kv.tables import CLASSES, Held
from corvo.model import MISSING, EventType, Job, Queue
from corvo.protocol.ops.base import Millis, Name, TypedOp
from corvo.shard.state import dependencies, lifecycle, requests
from corvo.shard.state.applying import apply
from corvo.shard.state.limits import forget_rows
from corvo.shard.state.tables import (
    ENDINGS,
    JOBS,
    QUEUES,
    REQUESTS,
    TIMERS,
    WORKERS,
    QueueKeys,
    Timer,
    is_swept,
    queue_keys,
)
from corvo.shard.state.tx import Tx
from corvo.times import MS

LIMIT_MAX: Final = 10_000
"""Largest limit of one op."""
PASSED_MAX: Final = 1_000
"""Jobs that one op skips because a time of grace keeps them, or removes for a sweep. Then it stops,
and the next op continues."""

Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)]
Thing = TypeVar("Thing")


class Walked(msgspec.Struct, frozen=True):
    """The result of an op of upkeep."""

    done: int
    more: bool  # whether more is due


class Upkeep(TypedOp[Walked], frozen=True, kw_only=True):
    """An op that only the leader proposes."""

    PRIVATE: ClassVar[bool] = True

    limit: Limit


# What has a timer.


class Promote(Upkeep, frozen=True, kw_only=True):
    """Scheduled and retrying jobs become pending, in the order of their due times."""


class Reclaim(Upkeep, frozen=True, kw_only=True):
    """Active jobs whose lease or run is over leave their workers."""


class Expire(Upkeep, frozen=True, kw_only=True):
    """Expired jobs become dead."""


class CleanUnique(Upkeep, frozen=True, kw_only=True):
    """Expired unique locks are released; their jobs stay."""


@apply.register
def change_due_jobs(op: Promote | Reclaim | Expire | CleanUnique, tx: Tx) -> Walked:
    """Change the jobs whose timers are due, in the order of the timers."""
    match op:
        case Promote():
            return _each(tx, op.limit, _due_jobs(tx, Timer.PROMOTE), partial(lifecycle.promote, tx))
        case Reclaim():
            return _each(tx, op.limit, _due_jobs(tx, Timer.LEASE, _is_over), partial(_reclaim, tx))
        case Expire():
            return _each(tx, op.limit, _due_jobs(tx, Timer.EXPIRE), partial(lifecycle.expire, tx))
        case CleanUnique():
            return _each(tx, op.limit, _due_jobs(tx, Timer.UNIQUE), partial(lifecycle.unlock, tx))


def _is_over(tx: Tx, job: Job) -> bool:
    return lifecycle.is_over(tx, job) or lifecycle.has_run_too_long(tx, job)


def _reclaim(tx: Tx, found: Held[Job]) -> None:
    if lifecycle.has_run_too_long(tx, found.document):
        failure = lifecycle.Failure(error=lifecycle.RUN_TOO_LONG)
        lifecycle.fail(tx, found, failure, is_said=False)
    else:
        lifecycle.crash(tx, found)


class CleanRequests(Upkeep, frozen=True, kw_only=True):
    """Answers to request keys are removed after 24 hours."""


@apply.register
def clean_requests(op: CleanRequests, tx: Tx) -> Walked:
    """The oldest first."""

    def forget(key: str) -> None:
        found = REQUESTS.find(tx, key)
        assert found is not None, "a timer names what is there"
        requests.forget(tx, found)

    return _each(tx, op.limit, _due(tx, Timer.REQUEST), forget)


class CleanWorkers(Upkeep, frozen=True, kw_only=True):
    """Workers without a fetch for 24 hours are removed."""


@apply.register
def clean_workers(op: CleanWorkers, tx: Tx) -> Walked:
    """The one with the oldest last fetch first."""
    return _each(tx, op.limit, _due(tx, Timer.WORKER), lambda name: WORKERS.remove(tx, name))


class Tell(Upkeep, frozen=True, kw_only=True):
    """Dependents of ended jobs are settled, where they were too many for one entry.

    So are those of jobs that were not created in time.
    """


@apply.register
def tell(op: Tell, tx: Tx) -> Walked:
    """Dependents of the job that ended first come first."""
    told = 0
    for job_id in _due(tx, Timer.ENDING):
        if told == op.limit:
            return Walked(told, more=True)
        ending = ENDINGS.get(tx, job_id)
        assert ending is not None, "a timer names what is there"
        if ending.state == MISSING:
            dependencies.give_up(tx, ending)
            told += 1
            continue
        count, is_all = dependencies.settle_dependents(tx, ending, op.limit - told)
        told += max(count, 1)
        if not is_all:
            return Walked(told, more=True)
    return Walked(told, more=False)


def _each(
    tx: Tx, limit: int, due: Iterator[Thing], act: Callable[[Thing], msgspec.Struct | None]
) -> Walked:
    """Do what is due, up to the limit."""
    done = 0
    for thing in due:
        if done == limit or tx.is_full:
            return Walked(done, more=True)
        act(thing)
        done += 1
    return Walked(done, more=False)


def _due(tx: Tx, timer: Timer) -> Iterator[str]:
    """Names in the due keys of a timer, in order. The caller's change removes the key."""
    group = TIMERS[timer]
    head = tx.head(group)
    start = len(group.prefix)
    end = group.prefix + (tx.now_ns + 1).to_bytes(8, "big")
    position = 0
    while (key := head.at(position)) is not None and key < end:
        yield key[start + 8 :].decode()
        if head.at(position) == key:
            position += 1


def _due_jobs(
    tx: Tx, timer: Timer, is_wanted: Callable[[Tx, Job], bool] = lambda _, __: True
) -> Iterator[Held[Job]]:
    """The jobs that are due; unwanted ones are skipped."""
    passed = 0
    for job_id in _due(tx, timer):
        found = _job(tx, job_id)
        if _was_swept(tx, found) or not is_wanted(tx, found.document):
            passed += 1
            if passed == PASSED_MAX:
                return
        else:
            yield found


def _job(tx: Tx, job_id: str) -> Held[Job]:
    found = JOBS.find(tx, job_id)
    assert found is not None, "an index names jobs that are there"
    return found


def _was_swept(tx: Tx, found: Held[Job]) -> bool:
    """Remove a job that is being swept. Returns whether it was one."""
    queue = QUEUES.get(tx, found.document.queue)
    assert queue is not None, "a job's queue is known"
    if not is_swept(queue, found.document):
        return False
    lifecycle.remove(tx, found, why=lifecycle.SWEPT)
    return True


# What belongs to a queue.


class QueueUpkeep(Upkeep, frozen=True, kw_only=True):
    """Upkeep of one queue."""

    queue: Name


class Purge(QueueUpkeep, frozen=True, kw_only=True):
    """Finished jobs are removed when their retention is over."""

    keep_ms: Millis  # retention where the queue has none


@apply.register
def purge(op: Purge, tx: Tx) -> Walked:
    """The job that finished first comes first."""
    queue = QUEUES.get(tx, op.queue)
    retention_ms = queue.retention_ms if queue is not None else 0
    edge_ns = max(0, tx.now_ns - (retention_ms or op.keep_ms) * MS)
    return _each(
        tx,
        op.limit,
        _finished_until(op, tx, edge_ns),
        lambda found: lifecycle.remove(tx, found, what=EventType.PURGED),
    )


def _finished_until(op: Purge, tx: Tx, edge_ns: int) -> Iterator[Held[Job]]:
    prefix = queue_keys(op.queue).finished
    stop = prefix + (edge_ns + 1).to_bytes(8, "big")
    page = tx.keys(prefix, stop, limit=op.limit + 1)
    while page:
        for key in page:
            found = _job(tx, key[len(prefix) + 8 :].decode())
            if not _was_swept(tx, found):
                yield found
        page = tx.keys(page[-1] + b"\0", stop, limit=op.limit + 1)


class CleanRateLimits(QueueUpkeep, frozen=True, kw_only=True):
    """Rows of fetches that have left the window are removed."""


@apply.register
def clean_rate_limits(op: CleanRateLimits, tx: Tx) -> Walked:
    """The oldest first."""
    queue = QUEUES.get(tx, op.queue)
    window_ms = queue.rate_window_ms if queue is not None else 0
    edge_ns = max(0, tx.now_ns - window_ms * MS)
    prefix = queue_keys(op.queue).rate
    stop = prefix + (edge_ns + 1).to_bytes(8, "big")
    rows = tx.keys(prefix, stop, limit=op.limit + 1)
    forget_rows(tx, op.queue)
    return _each(tx, op.limit, iter(rows), tx.remove_key)


# Sweeping.


class Sweep(QueueUpkeep, frozen=True, kw_only=True):
    """Jobs that were cleared, or deleted with their queue, are removed."""


@apply.register
def sweep(op: Sweep, tx: Tx) -> Walked:
    """Continue where the last op stopped, until no job is left."""
    found = QUEUES.find(tx, op.queue)
    if found is None:
        return Walked(0, more=False)
    queue = found.document
    bounds = (queue.cleared_ns, queue.deleted_ns)
    if not any(bounds):
        return Walked(0, more=False)
    place = _where(tx, op.queue, bounds)
    removed = 0
    left = op.limit
    spaces = _spaces(queue_keys(op.queue))
    while left and place.space < len(spaces):
        removed_here, seen, place = _sweep(tx, queue, spaces[place.space], place, left)
        removed += removed_here
        left -= seen
    if place.space < len(spaces):
        tx.set_key(_where_key(op.queue), _encode(place))
        return Walked(removed, more=True)
    tx.remove_key(_where_key(op.queue))
    _end_sweep(tx, found)
    return Walked(removed, more=False)


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The progress of a sweep.

    One walk over each index is enough: a job that is being swept does not move, and a job that
    comes into the queue is not swept. Another clear begins the walk again.
    """

    bounds: tuple[int, int]
    """Places up to which it sweeps: `cleared_ns` and `deleted_ns` of the queue."""
    space: int = 0
    after: bytes = b""  # the last key that was read; empty at the beginning of an index


class Space(msgspec.Struct, frozen=True, gc=False):
    """One index of a queue, for a sweep."""

    prefix: bytes
    number_bytes: int = 8  # length of the number between prefix and job id
    is_in_order: bool = False
    """Whether the number is the job's place: then no key after the bound is swept."""
    of_jobs: bool = True


def _spaces(names: QueueKeys) -> tuple[Space, ...]:
    return (
        Space(names.pending + b"\0", is_in_order=True),
        Space(names.pending + b"\1", is_in_order=True),
        Space(names.append, is_in_order=True),
        Space(names.blocked, is_in_order=True),
        Space(names.scheduled),
        Space(names.retrying),
        Space(names.active, number_bytes=0),
        Space(names.held),
        Space(names.finished),
        Space(names.rate, of_jobs=False),
    )


def _sweep(tx: Tx, queue: Queue, space: Space, place: Place, limit: int) -> tuple[int, int, Place]:
    """Read up to `limit` keys of an index. Returns the numbers removed and read, and the place."""
    stop = prefix_end(space.prefix)
    if space.is_in_order:
        bound_ns = max(place.bounds)
        stop = space.prefix + (bound_ns + 1).to_bytes(8, "big")
    start = place.after + b"\0" if place.after else space.prefix
    found = tx.keys(start, stop, limit=limit)
    removed = sum(_swept(tx, queue, space, key) for key in found)
    if len(found) < limit:
        return removed, len(found), Place(place.bounds, place.space + 1)
    return removed, len(found), Place(place.bounds, place.space, found[-1])


def _swept(tx: Tx, queue: Queue, space: Space, key: bytes) -> bool:
    if space.of_jobs:
        found = JOBS.find(tx, key[len(space.prefix) + space.number_bytes :].decode())
        # One that waited for another is removed with that one, when both are being swept.
        return found is not None and _was_swept(tx, found)
    # A row of the rate limit ends with a place of its own.
    is_old = int.from_bytes(key[-8:], "big") <= queue.deleted_ns
    if is_old:
        tx.remove_key(key)
    return is_old


def _where(tx: Tx, queue: str, bounds: tuple[int, int]) -> Place:
    data = tx.get_key(_where_key(queue))
    place = _decode(data) if data is not None else Place(bounds)
    return place if place.bounds == bounds else Place(bounds)


def _where_key(queue: str) -> bytes:
    return META.build(f"sweep {queue}")


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Place).decode


def _end_sweep(tx: Tx, found: Held[Queue]) -> None:
    """End a sweep: remove its marks, and the queue if it was deleted and not created again."""
    queue = found.document
    forget_rows(tx, queue.name)
    if queue.created_ns:
        after = replace(queue, cleared_ns=0, deleted_ns=0)
        QUEUES.change(tx, found, after)
        return
    assert not any(tx.count(queue.name)[:CLASSES]), "a queue that has jobs was created"
    QUEUES.remove(tx, queue.name)
    tx.minutes.forget(tx, queue.name)
    # What is in memory of the index goes with the cursor: a replica that starts now has neither.
    group = queue_keys(queue.name).append_group
    tx.heads.pop(group.prefix, None)
    tx.moved.pop(group.prefix, None)
    tx.remove_key(keys.QUEUE_CURSOR.prefix + queue.name.encode())


class Led(msgspec.Struct, frozen=True):
    """The result of `Lead`."""


class Lead(TypedOp[Led], frozen=True, kw_only=True):
    """The first op of a leader: leases that had not ended do not end within the time of grace."""

    PRIVATE: ClassVar[bool] = True

    grace_ms: Millis


@apply.register
def lead(op: Lead, tx: Tx) -> Led:
    """Begin the time of grace."""
    tx.give_grace(tx.now_ns + op.grace_ms * MS)
    return Led()
