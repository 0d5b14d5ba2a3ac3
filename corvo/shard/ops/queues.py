"""Ops on queues: pause, limits, retention, clear and delete.

A queue is created by its first job or setting. The cost of a clear or a deletion does not depend on
the number of jobs: the queue is marked, jobs up to the mark no longer exist for clients, and the
leader's `Sweep` removes them in bounded steps.
"""

from functools import singledispatch
from typing import TypedDict, Unpack

from msgspec.structs import replace

from corvo.model import Queue
from corvo.protocol.ops.queues import (
    Clear,
    DeleteQueue,
    Drain,
    Pause,
    QueueDone,
    QueueOp,
    RemoveThrottle,
    Resume,
    SetConcurrency,
    SetRetention,
    SetThrottle,
)
from corvo.shard.state import presence
from corvo.shard.state.applying import apply
from corvo.shard.state.limits import counted_since_ns, forget_rows
from corvo.shard.state.tables import QUEUES
from corvo.shard.state.tx import Tx


@apply.register
def apply_to_queue(op: QueueOp, tx: Tx) -> QueueDone:
    """Apply an op on a queue."""
    return QueueDone(op.queue, change(op, tx))


@singledispatch
def change(op: QueueOp, tx: Tx) -> str:
    """Change the queue. Returns the status."""
    raise NotImplementedError(type(op).__name__)


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


# Settings.


@change.register
def pause(op: Pause, tx: Tx) -> str:
    """Workers keep what they have."""
    _set(tx, op.queue, paused=True)
    return "paused"


@change.register
def resume(op: Resume, tx: Tx) -> str:
    """End a pause or a drain."""
    _set(tx, op.queue, paused=False, draining=False)
    return "resumed"


@change.register
def drain(op: Drain, tx: Tx) -> str:
    """Pause, and mark the queue as draining."""
    _set(tx, op.queue, paused=True, draining=True)
    return "draining"


@change.register
def set_concurrency(op: SetConcurrency, tx: Tx) -> str:
    """A lower limit ends no lease."""
    _set(tx, op.queue, max_concurrency=op.max)
    return "ok"


@change.register
def set_throttle(op: SetThrottle, tx: Tx) -> str:
    """Fetches under the limit before, within its window, count on."""
    before = presence.ensure_queue(tx, op.queue)
    _set(
        tx,
        op.queue,
        rate_limit=op.rate,
        rate_window_ms=op.window_ms,
        rate_since_ns=counted_since_ns(tx, before),
    )
    return "ok"


@change.register
def remove_throttle(op: RemoveThrottle, tx: Tx) -> str:
    """The rows of the last window are removed by the leader."""
    _set(tx, op.queue, rate_limit=0, rate_window_ms=0)
    forget_rows(tx, op.queue)
    return "ok"


@change.register
def set_retention(op: SetRetention, tx: Tx) -> str:
    """It holds for jobs that are finished already, too."""
    _set(tx, op.queue, retention_ms=op.retention_ms)
    return "ok"


# Its end.


@change.register
def clear(op: Clear, tx: Tx) -> str:
    """Mark the queue; later jobs have places after the mark."""
    found = QUEUES.find(tx, op.queue)
    if found is not None:
        QUEUES.change(tx, found, replace(found.document, cleared_ns=tx.order_ns))
    return "cleared"


@change.register
def delete_queue(op: DeleteQueue, tx: Tx) -> str:
    """Leave only the mark, without a time of creation: the queue no longer exists."""
    found = QUEUES.find(tx, op.queue)
    if found is not None:
        QUEUES.change(tx, found, Queue(name=op.queue, deleted_ns=tx.order_ns))
        forget_rows(tx, op.queue)
    return "deleted"
