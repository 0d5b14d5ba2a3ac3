"""Jobs that come of the end of others: the next step of a chain, a handler, a batch's callback.

Where the queue of one lives in another shard, it is made there: it goes through the outbox.
"""

from typing import Final

import msgspec

from corvo.model import Event, EventType, Job, State
from corvo.placement import shard_of_queue
from corvo.shard import outbox, presence
from corvo.shard.outbox import Birth
from corvo.shard.tables import JOBS
from corvo.shard.tx import Tx

_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode


def bear(tx: Tx, birth: Birth) -> None:
    """Make a job where its queue lives."""
    shard = shard_of_queue(birth.queue, tx.shards)
    if shard == tx.shard:
        make(tx, birth)
    else:
        outbox.post(tx, shard, outbox.encode(birth))


def make(tx: Tx, birth: Birth) -> None:
    """Make a job here, with whatever is the default for new ones."""
    presence.ensure_queue(tx, birth.queue)
    job = Job(
        id=tx.mint.job(),
        queue=birth.queue,
        state=State.PENDING,
        payload=bytes(birth.payload),
        created_ns=tx.now_ns,
        order_ns=tx.next_order_ns(),
        trail=(Event(tx.now_ns, EventType.ENQUEUED.stored, tx.by, birth.why),),
        chain_id=birth.chain_id,
        chain_step=birth.chain_step,
        chain=b"" if birth.chain is msgspec.UNSET else bytes(birth.chain),
        chain_marks=birth.chain_marks,
    )
    JOBS.insert(tx, job)
    tx.touched[birth.queue] = None


def is_object(data: bytes) -> bool:
    """Whether JSON is an object, so that something can be laid over it."""
    return data.lstrip(b" \t\r\n")[:1] == b"{"


def fields_of(data: bytes) -> dict[str, msgspec.Raw]:
    """The fields of an object; none for JSON that is something else, or is not there."""
    return _decode(data) if is_object(data) else {}


def has_bad_field(data: bytes) -> bool:
    """Whether JSON is an object whose fields cannot be read: asked at the door, never later.

    Half of a surrogate pair in a name is found only when the name is looked at.
    """
    try:
        fields_of(data)
    except msgspec.DecodeError:
        return True
    return False


def as_raw(value: object) -> msgspec.Raw:
    """A value as JSON."""
    return msgspec.Raw(_encode(value))


def as_payload(fields: dict[str, msgspec.Raw]) -> msgspec.Raw:
    """Fields as the payload of a job."""
    return msgspec.Raw(_encode(fields))
