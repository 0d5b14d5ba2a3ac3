"""Jobs that the end of another job creates: the next step of a chain, a handler, a callback.

A job whose queue lives in another shard is created there, by an effect through the outbox.
"""

import msgspec

from corvo.model import Event, EventType, Job, State
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import encode_json, json_bytes
from corvo.shard.state import outbox, presence
from corvo.shard.state.outbox import Spawn
from corvo.shard.state.tables import JOBS
from corvo.shard.state.tx import Tx


def spawn(tx: Tx, new: Spawn) -> None:
    """Create a job in the shard of its queue."""
    shard = shard_of_queue(new.queue, tx.shards)
    if shard == tx.shard:
        spawn_here(tx, new)
    else:
        outbox.post(tx, shard, encode_json(new))


def spawn_here(tx: Tx, new: Spawn) -> None:
    """Create a job in this shard, with the defaults of new jobs."""
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
    JOBS.insert(tx, job)
    tx.touched[new.queue] = None


def as_raw(value: object) -> msgspec.Raw:
    """A value as JSON."""
    return msgspec.Raw(encode_json(value))
