"""Batches: how many of some jobs are still to end, and a job when none is.

A batch lives in the shard that its id names. A member lives wherever it was moved to; its end is
told to its home, which tells the batch: by one way, so that what happened first arrives first.
"""

import msgspec
from msgspec.structs import replace

from corvo.ids import shard_of
from corvo.kv.tables import Held
from corvo.model import Batch, State
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.checks import fields_of, is_object
from corvo.shard import outbox, spawning
from corvo.shard.outbox import Spawn, Tally
from corvo.shard.tables import BATCHES
from corvo.shard.tx import Tx


def begin(tx: Tx, total: int, callback_queue: str, callback_payload: bytes) -> Batch:
    """A new batch, of which nothing has ended."""
    return BATCHES.insert(
        tx,
        Batch(
            id=tx.mint.mint("batch"),
            created_ns=tx.now_ns,
            total=total,
            pending=total,
            callback_queue=callback_queue,
            callback_payload=callback_payload.decode(),
        ),
    )


def is_here(tx: Tx, batch_id: str) -> bool:
    """Whether a batch lives in this shard."""
    return shard_of(batch_id) == tx.shard


def refuse(tx: Tx, batch_id: str, field: str) -> Rejected | None:
    """Why a new job cannot be in a batch.

    Of a batch of another shard it is one of the `total` that were announced; nobody can ask there.
    """
    home = shard_of(batch_id)
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
    """A new job will be in a batch of this shard, which `refuse` had nothing against."""
    found = BATCHES.find(tx, batch_id)
    assert found is not None
    batch = found.document
    _change(tx, found, replace(batch, total=batch.total + 1, pending=batch.pending + 1))


def leave(tx: Tx, batch_id: str) -> None:
    """A job that was counted in is not made, for another is there in its place."""
    tally(tx, Tally(batch_id, "", -1))


def count(tx: Tx, batch_id: str, state: State, step: int) -> None:
    """A member has ended (1), or is pending again (-1)."""
    tally(tx, Tally(batch_id, state.value, step))


def tally(tx: Tx, change: Tally) -> None:
    """Bring a change to the batch, wherever that is."""
    shard = shard_of(change.batch_id)
    assert shard is not None, "a batch's id names its shard"
    if shard == tx.shard:
        apply(tx, change)
    else:
        outbox.post(tx, shard, outbox.encode(change))


def apply(tx: Tx, change: Tally) -> None:
    """Count. A batch that is gone had no member left, and is not missed."""
    found = BATCHES.find(tx, change.batch_id)
    if found is None:
        return
    batch = found.document
    match change.what:
        case "":
            left = min(batch.pending, 1)
            _change(
                tx, found, replace(batch, total=batch.total - left, pending=batch.pending - left)
            )
        case "removed":
            _change(tx, found, replace(batch, removed=batch.removed + 1))
        case state:
            _count(tx, found, State(state), change.step)
    end(tx, change.batch_id)


def _count(tx: Tx, found: Held[Batch], state: State, step: int) -> None:
    batch = found.document
    # Nobody announced a member that ends when none is pending; it is one more.
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
    after = replace(
        batch,
        total=batch.total + is_extra,
        pending=batch.pending - step + is_extra,
        succeeded=succeeded,
        failed=failed,
        cancelled=cancelled,
    )
    _change(tx, found, after)


def _change(tx: Tx, found: Held[Batch], batch: Batch) -> None:
    ended = batch.succeeded + batch.failed + batch.cancelled
    assert batch.total == batch.pending + ended, "every member is counted in one place"
    assert min(batch.pending, batch.succeeded, batch.failed, batch.cancelled) >= 0
    BATCHES.change(tx, found, batch)


def end(tx: Tx, batch_id: str) -> None:
    """When none is pending any more, call back, once; when no member is left, forget the batch."""
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
        payload = bytes(
            spawning.as_payload(fields_of(payload) | {"batch": spawning.as_raw(counts)})
        )
    spawning.spawn(
        tx,
        Spawn(
            queue=batch.callback_queue,
            payload=msgspec.Raw(payload),
            why=f"all of {batch.id} have ended",
        ),
    )
