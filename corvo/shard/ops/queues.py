"""What is set for a whole queue, and its end.

A queue comes into being with its first job or its first setting. Clearing and deleting cost the
same whatever is in it: they mark the queue, jobs up to the mark are not there for anybody from then
on, and the leader's `Sweep` removes them little by little.
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
from corvo.shard import presence
from corvo.shard.applying import apply
from corvo.shard.limits import counted_since_ns, forget_rows
from corvo.shard.tables import QUEUES
from corvo.shard.tx import Tx


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
    """Write settings. Whatever was set, there may be more to give out than before."""
    presence.ensure_queue(tx, name)
    found = QUEUES.find(tx, name)
    assert found is not None
    after = replace(found.document, **settings)
    if after != found.document:
        QUEUES.change(tx, found, after)
        tx.touched[name] = None


# Whether it gives anything out.


@change.register
def pause(op: Pause, tx: Tx) -> str:
    """Workers keep what they have."""
    _set(tx, op.queue, paused=True)
    return "paused"


@change.register
def resume(op: Resume, tx: Tx) -> str:
    """Whether it was paused or being drained."""
    _set(tx, op.queue, paused=False, draining=False)
    return "resumed"


@change.register
def drain(op: Drain, tx: Tx) -> str:
    """A pause, and the intention."""
    _set(tx, op.queue, paused=True, draining=True)
    return "draining"


@change.register
def set_concurrency(op: SetConcurrency, tx: Tx) -> str:
    """A lower limit takes no job away from anybody."""
    _set(tx, op.queue, max_concurrency=op.max)
    return "ok"


@change.register
def set_throttle(op: SetThrottle, tx: Tx) -> str:
    """What was fetched under the limit before, and is in its window, goes on counting."""
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
    """Also for jobs that are finished already."""
    _set(tx, op.queue, retention_ms=op.retention_ms)
    return "ok"


# Its end.


@change.register
def clear(op: Clear, tx: Tx) -> str:
    """Whatever comes into the queue from here on has a place behind the mark."""
    found = QUEUES.find(tx, op.queue)
    if found is not None:
        QUEUES.change(tx, found, replace(found.document, cleared_ns=tx.order_ns))
    return "cleared"


@change.register
def delete_queue(op: DeleteQueue, tx: Tx) -> str:
    """What is left is the mark, and no time of birth: the queue is not there any more."""
    found = QUEUES.find(tx, op.queue)
    if found is not None:
        QUEUES.change(tx, found, Queue(name=op.queue, deleted_ns=tx.order_ns))
        forget_rows(tx, op.queue)
    return "deleted"
