"""Bodies of batches: from a shard's answer to JSON."""

from typing import Final

import msgspec

from corvo.model import Batch
from corvo.protocol.jobs import Time
from corvo.protocol.ops.base import Json
from corvo.protocol.queries import Batches, BatchFound
from corvo.router.caller import Caller
from corvo.times import format_time

PAGE: Final = 50
"""Batches that one answer lists when nothing is said."""

read_batch: Final = msgspec.json.Decoder(BatchFound).decode
read_batches: Final = msgspec.json.Decoder(Batches).decode


class BatchSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch in a list."""

    id: str
    queue: str
    status: str
    total: int
    pending: int
    succeeded: int
    failed: int
    cancelled: int
    removed: int
    callback_queue: str = ""
    created_at: Time


class BatchView(BatchSummary, frozen=True, kw_only=True, omit_defaults=True):
    """A batch and all that is known of it."""

    callback_payload: Json = msgspec.UNSET


class BatchList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Batches, the newest first."""

    batches: list[BatchSummary]
    has_more: bool
    cursor: str = ""


def batch_summary(batch: Batch, caller: Caller) -> BatchSummary:
    """A batch in a list, without a callback into a queue that the caller may not see."""
    has_callback = caller.scope.covers(batch.callback_queue)
    return BatchSummary(
        id=batch.id,
        queue=batch.belongs_to,
        status="ended" if batch.called_back else "open",
        total=batch.total,
        pending=batch.pending,
        succeeded=batch.succeeded,
        failed=batch.failed,
        cancelled=batch.cancelled,
        removed=batch.removed,
        callback_queue=batch.callback_queue if has_callback else "",
        created_at=format_time(batch.created_ns),
    )


def batch_view(batch: Batch, caller: Caller) -> BatchView:
    """A batch by itself."""
    summary = batch_summary(batch, caller)
    payload = batch.callback_payload.encode() if summary.callback_queue else b""
    return BatchView(
        **msgspec.structs.asdict(summary),
        callback_payload=msgspec.Raw(payload) if payload else msgspec.UNSET,
    )
