"""The job that exists in place of a new one: the job with its id, or the holder of its unique lock.

A client that sends a job again gets the job that exists. A client that sends another job under the
same id is told the fields that differ. Only fields that nothing changes after the enqueue are
compared: not the priority, the times, the checkpoint and the dependencies.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.ids import queue_of_id
from corvo.kv.tables import Held
from corvo.model import Agent, Job
from corvo.protocol.ops.base import encode_json, json_bytes
from corvo.protocol.ops.enqueue import MOVED, UNIQUE_PERIOD_MS, Enqueued, NewJob
from corvo.protocol.ops.workflow import Chain, NewAgent
from corvo.shard.state import lifecycle, presence
from corvo.shard.state.tables import FORWARDS
from corvo.shard.state.tx import Tx
from corvo.times import MS


def existing(tx: Tx, new: NewJob, *, compares: bool, batch_id: str) -> Enqueued | None:
    """The answer for an existing job. `compares` is off for entries of older routers.

    `batch_id` is the batch that the client named.
    """
    if new.id is not None:
        found = presence.find(tx, new.id)
        if found is None and FORWARDS.get(tx, new.id) is not None:
            # It is in another shard now, and an id must not be used twice.
            return Enqueued(new.id, MOVED, unique_existing=True)
        if compares:
            found = found or _without_queue(tx, new)
        if found is not None:
            return _compared(new, found.document, batch_id) if compares else _plain(found.document)
    if new.unique_key:
        holder = lifecycle.lock_holder(tx, new.queue, new.unique_key)
        if holder is not None:
            return Enqueued(holder.id, "duplicate", unique_existing=True)
    return None


def existing_elsewhere(tx: Tx, new: NewJob) -> Enqueued | None:
    """The answer for the job with a new one's id, in a shard to which it has moved."""
    assert new.id is not None
    found = presence.find(tx, new.id)
    return _compared(new, found.document, new.batch_id) if found is not None else None


def _without_queue(tx: Tx, new: NewJob) -> Held[Job] | None:
    """The job of the queue that has the client's id alone: from before ids had their queue."""
    assert new.id is not None
    found = presence.find(tx, new.id.removeprefix(f"{queue_of_id(new.id)}~"))
    return found if found is not None and found.document.queue == new.queue else None


def _plain(job: Job) -> Enqueued:
    return Enqueued(job.id, job.state.word, unique_existing=True)


def _compared(new: NewJob, job: Job, batch_id: str) -> Enqueued:
    differs = list(differences(new, job, batch_id))
    return replace(
        _plain(job),
        queue=job.queue if job.queue != new.queue else msgspec.UNSET,
        differs=differs or msgspec.UNSET,
        payload_sha256=sha256(job.payload).hexdigest() if "payload" in differs else msgspec.UNSET,
    )


def differences(new: NewJob, job: Job, batch_id: str) -> Iterator[str]:
    """The fields in which an existing job differs from a new one, as clients name them."""
    for field, asked, there in (
        ("payload", json_bytes(new.payload, b"{}"), job.payload),
        ("kind", new.kind, job.kind),
        ("max_retries", new.max_retries, job.max_retries),
        ("retry_backoff", new.retry_backoff, job.backoff),
        ("retry_base_delay", new.retry_base_delay_ms, job.retry_base_delay_ms),
        ("retry_max_delay", new.retry_max_delay_ms, job.retry_max_delay_ms),
        ("retry_jitter", new.retry_jitter, job.retry_jitter),
        ("max_run_time", new.max_run_time_ms, job.max_run_time_ms),
        ("max_crashes", new.max_crashes, job.max_crashes),
        ("unique_key", new.unique_key, job.unique_key),
        ("unique_period", _unique_period_ms(new), job.unique_period_ms),
        ("expire_after", new.expire_after_ms * MS, _expire_after_ns(job)),
        ("expire_active", new.expire_active, job.expires_active),
        ("tags", new.tags, job.tags),
        ("parent_id", new.parent_id, job.parent_id),
        ("batch_id", batch_id or job.batch_id, job.batch_id),
        ("chain", _chain(new.chain, job.chain), job.chain),
        ("agent", _limits(new.agent), _limits(job.agent)),
    ):
        if asked != there:
            yield field


def _unique_period_ms(new: NewJob) -> int:
    return (new.unique_period_ms or UNIQUE_PERIOD_MS) if new.unique_key else 0


def _chain(new: Chain | None, there: bytes) -> bytes:
    """A new chain as an older router would have written it, if one wrote that of the other job."""
    if new is None:
        return b""
    if there and _decode_chain(there).cancel_is_failure is None:
        new = replace(new, cancel_is_failure=None)
    return encode_json(new)


_decode_chain: Final = msgspec.json.Decoder(Chain).decode


def _expire_after_ns(job: Job) -> int:
    return job.expires_ns - job.created_ns if job.expires_ns else 0


def _limits(agent: Agent | NewAgent | None) -> tuple[int, int, int] | None:
    """The limits of an agent, which do not change; its iteration and cost do."""
    if agent is None:
        return None
    return agent.max_iterations, agent.max_cost_micros, agent.iteration_timeout_ms
