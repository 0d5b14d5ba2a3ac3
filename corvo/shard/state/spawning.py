"""Jobs that the end of another job creates: the next step of a chain, a handler, a callback.

A job whose queue lives in another shard is created there, by an effect through the outbox.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.model import Event, EventType, Job, State, traced
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import encode_json, json_bytes
from corvo.protocol.ops.workflow import Chain, Step
from corvo.shard.state import outbox, presence
from corvo.shard.state.outbox import Spawn
from corvo.shard.state.tables import JOBS
from corvo.shard.state.tx import Tx
from corvo.times import MS


def spawn(tx: Tx, new: Spawn) -> None:
    """Create a job in the shard of its queue."""
    shard = shard_of_queue(new.queue, tx.shards)
    if shard == tx.shard:
        spawn_here(tx, new)
    else:
        outbox.post(tx, shard, encode_json(new))


def spawn_here(tx: Tx, new: Spawn) -> None:
    """Create a job in this shard, with the defaults of new jobs where its chain says no more."""
    presence.ensure_queue(tx, new.queue)
    job = Job(
        id=tx.mint.job(),
        queue=new.queue,
        state=State.PENDING,
        payload=bytes(new.payload),
        created_ns=tx.now_ns,
        order_ns=tx.next_order_ns(),
        trail=(Event(tx.now_ns, EventType.ENQUEUED.stored, tx.by, new.why),),
        chain_id=new.chain_id,
        chain_step=new.chain_step,
        chain=json_bytes(new.chain),
        chain_marks=new.chain_marks,
    )
    if job.chain:
        job = _as_step(job, _decode_chain(job.chain).at(job.chain_step))
    if new.trace is not None:
        job = traced(job, new.trace)
    JOBS.insert(tx, job)
    tx.touched[new.queue] = None


def _as_step(job: Job, step: Step) -> Job:
    """The job with what the definition says of its step."""
    expires_ns = job.created_ns + step.expire_after_ms * MS if step.expire_after_ms else 0
    return replace(
        job,
        kind=step.kind,
        priority=step.priority,
        max_retries=step.max_retries,
        backoff=step.retry_backoff,
        retry_base_delay_ms=step.retry_base_delay_ms,
        retry_max_delay_ms=step.retry_max_delay_ms,
        retry_jitter=step.retry_jitter,
        max_run_time_ms=step.max_run_time_ms,
        max_crashes=step.max_crashes,
        expires_ns=expires_ns,
        expires_active=step.expire_active,
        tags=step.tags,
    )


_decode_chain: Final = msgspec.json.Decoder(Chain).decode


def as_raw(value: object) -> msgspec.Raw:
    """A value as JSON."""
    return msgspec.Raw(encode_json(value))
