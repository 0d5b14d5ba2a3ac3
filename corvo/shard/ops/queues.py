"""Effects of ops on queues: settings, clear and delete."""

from typing import Final, TypedDict, Unpack

from msgspec.structs import replace

from corvo.model import Queue
from corvo.protocol.ops import queues as ops
from corvo.protocol.ops.base import Rejected
from corvo.shard.state import presence, schedules
from corvo.shard.state.applying import apply
from corvo.shard.state.limits import counted_since_ns, forget_rows
from corvo.shard.state.tables import QUEUES
from corvo.shard.state.tx import Tx

SCHEDULES_MAX: Final = 1_000
"""Schedules that are deleted with their queue, in one entry."""


@apply.register
def apply_to_queue(op: ops.QueueOp, tx: Tx) -> ops.QueueDone | Rejected:
    """Change a queue."""
    name = op.queue
    status = "ok"
    match op:
        case ops.Pause():
            _set(tx, name, paused=True)
            status = "paused"
        case ops.Resume():
            _set(tx, name, paused=False, draining=False)
            status = "resumed"
        case ops.Drain():
            _set(tx, name, paused=True, draining=True)
            status = "draining"
        case ops.SetConcurrency():
            _set(tx, name, max_concurrency=op.max)
        case ops.SetThrottle():
            _set_throttle(op, tx)
        case ops.RemoveThrottle():
            # The leader removes the rows of the last window.
            _set(tx, name, rate_limit=0, rate_window_ms=0)
            forget_rows(tx, name)
        case ops.SetRetention():
            _set(tx, name, retention_ms=op.retention_ms)
        case ops.Clear():
            _mark_cleared(tx, name)
            status = "cleared"
        case ops.DeleteQueue():
            if not schedules.remove_all(tx, name, SCHEDULES_MAX):
                error = f"queue {name} has more than {SCHEDULES_MAX} schedules: delete them first"
                return Rejected("too_many_schedules", error)
            _mark_deleted(tx, name)
            status = "deleted"
        case _:
            raise NotImplementedError(type(op).__name__)
    return ops.QueueDone(name, status)


class _Settings(TypedDict, total=False):
    paused: bool
    draining: bool
    max_concurrency: int
    rate_limit: int
    rate_window_ms: int
    rate_since_ns: int
    retention_ms: int


def _set(tx: Tx, name: str, **settings: Unpack[_Settings]) -> None:
    """Write settings, and wake the fetches that wait: each change may allow more jobs."""
    presence.ensure_queue(tx, name)
    found = QUEUES.find(tx, name)
    assert found is not None
    after = replace(found.document, **settings)
    if after != found.document:
        QUEUES.change(tx, found, after)
        tx.touched[name] = None


def _set_throttle(op: ops.SetThrottle, tx: Tx) -> None:
    """Set a rate limit. Fetches under the limit before, within its window, count on."""
    before = presence.ensure_queue(tx, op.queue)
    since_ns = counted_since_ns(tx, before)
    _set(tx, op.queue, rate_limit=op.rate, rate_window_ms=op.window_ms, rate_since_ns=since_ns)


def _mark_cleared(tx: Tx, name: str) -> None:
    """Mark the queue; later jobs have places after the mark."""
    found = QUEUES.find(tx, name)
    if found is not None:
        QUEUES.change(tx, found, replace(found.document, cleared_ns=tx.order_ns))


def _mark_deleted(tx: Tx, name: str) -> None:
    """Leave only the mark, without a time of creation: the queue no longer exists."""
    found = QUEUES.find(tx, name)
    if found is not None:
        QUEUES.change(tx, found, Queue(name=name, deleted_ns=tx.order_ns))
        forget_rows(tx, name)
