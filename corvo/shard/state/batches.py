"""Batches: counts of their jobs by how they ended, and a callback when all have ended.

A batch is in the shard that its id names. A member may have moved to any shard; its end goes to its
home, and from there to the batch: on one way, so that effects arrive in their order.
"""

import msgspec
from msgspec.structs import replace

from corvo.kv.tables import Held
from corvo.model import Batch, State
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.ops.checks import fields_of, is_object
from corvo.shard.state import outbox, spawning
from corvo.shard.state.outbox import Spawn, Tally
from corvo.shard.state.restored import home_of
from corvo.shard.state.tables import BATCHES
from corvo.shard.state.tx import Tx
from corvo.trace_context import TraceContext


def begin(
    tx: Tx,
    total: int,
    callback_queue: str,
    callback_payload: bytes,
    queue: str = "",
    trace: TraceContext | None = None,
) -> Batch:
    """A new batch, of which no job has ended."""
    return BATCHES.insert(
        tx,
        Batch(
            id=tx.mint.mint("batch"),
            created_ns=tx.now_ns,
            total=total,
            pending=total,
            callback_queue=callback_queue,
            callback_payload=callback_payload.decode(),
            queue=queue,
            trace=trace,
        ),
    )


def is_here(tx: Tx, batch_id: str) -> bool:
    """Whether a batch is in this shard."""
    return home_of(tx, batch_id) == tx.shard


def refuse(tx: Tx, batch_id: str, field: str) -> Rejected | None:
    """The refusal of a new job that cannot be in a batch.

    A job in a batch of another shard is one of the `total` that were announced, and is not refused.
    """
    home = home_of(tx, batch_id)
    if home != tx.shard:
        if home is not None and home < tx.shards:
            return None
        return Rejected("batch_not_found", f"no shard has a batch {batch_id}", field=field)
    batch = BATCHES.get(tx, batch_id)
    if batch is None:
        return Rejected("batch_not_found", f"batch {batch_id} not found", field=field)
    if batch.called_back:
        return Rejected("batch_closed", f"batch {batch_id} has ended", field=field)
    return None


def join(tx: Tx, batch_id: str) -> None:
    """Count a new job into a batch of this shard, after `refuse` returned None."""
    found = BATCHES.find(tx, batch_id)
    assert found is not None
    batch = found.document
    _change(tx, found, replace(batch, total=batch.total + 1, pending=batch.pending + 1))


def leave(tx: Tx, batch_id: str) -> None:
    """A job that was counted in is not created, because another one exists in its place."""
    tally(tx, Tally(batch_id, "", -1))


def count(tx: Tx, batch_id: str, state: State, step: int) -> None:
    """A member has ended (1), or is pending again (-1)."""
    tally(tx, Tally(batch_id, state.value, step))


def tally(tx: Tx, change: Tally) -> None:
    """Apply a change to a batch, in its shard."""
    shard = home_of(tx, change.batch_id)
    assert shard is not None, "a batch's id names its shard"
    if shard == tx.shard:
        apply(tx, change)
    else:
        outbox.post(tx, shard, encode_json(change))


def apply(tx: Tx, change: Tally) -> None:
    """Count a change. A batch that is gone had no member left."""
    found = BATCHES.find(tx, change.batch_id)
    if found is None:
        return
    after = counted(found.document, change)
    if after != found.document:
        _change(tx, found, after)
    end(tx, change.batch_id)


def counted(batch: Batch, change: Tally) -> Batch:
    """The batch after a change."""
    match change.what:
        case "":
            left = min(batch.pending, 1)
            return replace(batch, total=batch.total - left, pending=batch.pending - left)
        case "removed":
            return replace(batch, removed=batch.removed + 1)
        case state:
            return _counted(batch, State(state), change.step)


def _counted(batch: Batch, state: State, step: int) -> Batch:
    # A member that ends when none is pending was not announced; it is one more.
    is_extra = step > 0 and batch.pending == 0
    succeeded, failed, cancelled = batch.succeeded, batch.failed, batch.cancelled
    match state:
        case State.COMPLETED:
            succeeded += step
        case State.DEAD:
            failed += step
        case _:
            assert state is State.CANCELLED
            cancelled += step
    if min(succeeded, failed, cancelled) < 0:
        # This shard has lost the entry that counted its end, as its operator has accepted.
        return batch
    return replace(
        batch,
        total=batch.total + is_extra,
        pending=batch.pending - step + is_extra,
        succeeded=succeeded,
        failed=failed,
        cancelled=cancelled,
    )


def _change(tx: Tx, found: Held[Batch], batch: Batch) -> None:
    ended = batch.succeeded + batch.failed + batch.cancelled
    assert batch.total == batch.pending + ended, "every member is counted in one place"
    assert min(batch.pending, batch.succeeded, batch.failed, batch.cancelled) >= 0
    BATCHES.change(tx, found, batch)


def end(tx: Tx, batch_id: str) -> None:
    """Enqueue the callback, once, if no job is pending; remove the batch if no member is left."""
    found = BATCHES.find(tx, batch_id)
    assert found is not None
    batch = found.document
    if batch.pending:
        return
    if not batch.called_back:
        batch = BATCHES.change(tx, found, replace(batch, called_back=True))
        _call_back(tx, batch)
    if batch.removed >= batch.total:
        BATCHES.remove(tx, batch_id)


def _call_back(tx: Tx, batch: Batch) -> None:
    if not batch.callback_queue:
        return
    payload = batch.callback_payload.encode() or b"{}"
    if is_object(payload):
        counts = {
            "batch_id": batch.id,
            "total": batch.total,
            "succeeded": batch.succeeded,
            "failed": batch.failed,
            "cancelled": batch.cancelled,
        }
        payload = bytes(spawning.as_raw(fields_of(payload) | {"batch": spawning.as_raw(counts)}))
    spawning.spawn(
        tx,
        Spawn(
            queue=batch.callback_queue,
            payload=msgspec.Raw(payload),
            why=f"all of {batch.id} have ended",
            trace=batch.trace,
        ),
    )
