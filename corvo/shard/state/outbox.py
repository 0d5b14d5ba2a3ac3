"""Effects on other shards: stored with their cause, and taken exactly once.

A shard cannot write into another. An op with an effect on another shard stores the effect here
(`post`), in the same entry as its other changes. The leader submits effects to the other shard,
many in one op `ReceiveMany`, and repeats that until it is confirmed (`corvo.shard.relaying`); then
the op `Delivered` removes them.

Effects are numbered from 1 for each pair of shards, without a gap. The receiving shard keeps the
last number that it took, takes only the next one, and answers earlier ones as before. So messages
may be lost, doubled and reordered, and leaders may change on both sides: each effect is applied
once, and the effects of one shard on another are applied in their order.

A shard that continues from an older copy of its data gives numbers once more, or expects numbers
that were used. `corvo.shard.state.epochs` tells such effects apart, and both shards then continue:
`renumber` and `skip`.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from corvo.kv.keys import INBOX, META, OUTBOX
from corvo.model import Epoch, Job, Outgoing, Schedule, traced
from corvo.protocol.ops.base import encode_json
from corvo.protocol.ops.restore import with_json
from corvo.shard.state import epochs
from corvo.shard.state.epochs import FOLLOWS
from corvo.shard.state.tx import Tx
from corvo.trace_context import TraceContext

EFFECT_BYTES_MAX: Final = (4 << 20) - (64 << 10)
"""Of one effect as JSON. The door lets ops of 4 MiB in, and `Receive` adds a little."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="arrival"):
    """A job arrives: see `corvo.shard.ops.transfer`."""

    job: Job  # as it was in the queue that it left, without its JSON
    json: dict[str, msgspec.Raw] = {}
    """The JSON fields of the job, as JSON: as bytes they would be a third larger."""
    queue: str  # its new queue
    errors: list[msgspec.Raw] = []  # its errors, as they are stored
    lease_left_ns: int = 0  # time that its lease had left; shards do not share a clock
    reset_attempts: bool = False
    refused: int = 0  # number of shards in which another job has its id
    dependency_wait_ms: int = 0  # how long it waits on for jobs that do not exist yet
    trace: TraceContext | None = None
    FIELDS_SINCE: ClassVar[Mapping[str, int]] = {"trace": 6}

    def whole(self) -> Job:
        """The job with its JSON and its trace context."""
        job = with_json(self.job, {name: bytes(value) for name, value in self.json.items()})
        return job if self.trace is None else traced(job, self.trace)


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """A job is removed: its home removes the forwarding address."""

    job_id: str
    batch_id: str = ""


class JobEnded(msgspec.Struct, frozen=True, omit_defaults=True, tag="became"):
    """A job that has moved away from its home has ended there."""

    job_id: str
    state: str
    step: int = 1  # -1 if the job had ended in this state and is pending again
    batch_id: str = ""


class Tally(msgspec.Struct, frozen=True, omit_defaults=True, tag="tally"):
    """A member of a batch is counted."""

    batch_id: str
    what: str
    """The state of the member; or `removed`; or empty, for one member fewer than announced."""
    step: int = 1  # -1 if the member was counted before and is pending again


class Spawn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="birth"):
    """A job is created: see `corvo.shard.state.spawning`."""

    queue: str
    payload: msgspec.Raw
    why: str
    chain_id: str = ""
    chain_step: int = 0
    chain: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    chain_marks: int = 0
    trace: TraceContext | None = None
    FIELDS_SINCE: ClassVar[Mapping[str, int]] = {"trace": 6}


class Watch(msgspec.Struct, frozen=True, omit_defaults=True, tag="watch"):
    """A job depends on one of another shard: the home of that job answers when it has ended."""

    job_id: str
    wait_ms: int = 0  # how long the job is waited for if it does not exist yet


CREATED: Final = "created"
"""Answer to a watch: the job that was missing is there now."""


class WatchAnswer(msgspec.Struct, frozen=True, tag="told"):
    """The state in which a watched job has ended; or `MISSING`, `CREATED` or `ABSENT`.

    Without a time to wait for it, a job that does not exist counts as cancelled.
    """

    job_id: str
    state: str


class ScheduleArrival(msgspec.Struct, frozen=True, tag="schedule"):
    """A schedule moves to a queue of another shard: see `corvo.shard.state.schedules`."""

    SINCE = 5
    schedule: Schedule


class ScheduleLanded(msgspec.Struct, frozen=True, tag="schedule_landed"):
    """The other shard has the schedule; or has refused it, as it has another one of its name."""

    SINCE = 5
    schedule_id: str
    is_refused: bool


Consequence: TypeAlias = (
    Forget | JobEnded | Tally | Spawn | Watch | WatchAnswer | ScheduleArrival | ScheduleLanded
)
"""Effects beside an arrival: see `corvo.shard.state.consequences`. Their tags are stored."""
Effect: TypeAlias = Arrival | Consequence


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The op `Receive` as this module writes it, which does not know ops."""

    source: int
    seq: int
    effect: msgspec.Raw
    by: str = ""
    epoch: int = 0
    after: int = FOLLOWS


Numbers: TypeAlias = dict[int, tuple[int, int]]
"""By shard: the last number that was given, and the last one that was confirmed."""

_NUMBERS_KEY: Final = META.build("outbox")
_numbers: Final = msgspec.msgpack.Decoder(Numbers)
_outgoing: Final = msgspec.msgpack.Decoder(Outgoing)
_message: Final = msgspec.json.Decoder(Message)
_pack: Final = msgspec.msgpack.Encoder().encode


def post(tx: Tx, shard: int, effect: bytes) -> None:
    """Store an effect on another shard: its JSON, whose size is known before a write."""
    assert shard != tx.shard, "what happens here is done here"
    assert 0 <= shard < tx.shards
    given, taken = numbers(tx).get(shard, (0, 0))
    seq = given + 1
    message = Message(source=tx.shard, seq=seq, effect=msgspec.Raw(effect), by=tx.by)
    _store(tx, shard, message, tx.now_ns)
    _write(tx, shard, seq, taken)


def _store(tx: Tx, shard: int, message: Message, at_ns: int) -> None:
    """Write an effect with its epoch."""
    epoch = epochs.present(tx).get(shard)
    if epoch is not None:
        after = epoch.after if message.seq == epoch.first else FOLLOWS
        message = replace(message, epoch=epoch.began_ns, after=after)
    outgoing = Outgoing(shard, message.seq, encode_json(message), at_ns)
    tx.set_key(OUTBOX.build(shard, message.seq), _pack(outgoing))


def numbers(tx: Tx) -> Numbers:
    """The numbers of all shards that were ever given an effect. Not to be changed.

    They are asked for often and mostly in vain, so they are kept in memory.
    """
    if tx.outbox is None:
        data = tx.get_key(_NUMBERS_KEY)
        tx.outbox = _numbers.decode(data) if data is not None else {}
    return tx.outbox


def outgoing(tx: Tx, shard: int, seq: int) -> Outgoing:
    """An effect that was given to another shard and is not removed."""
    data = tx.get_key(OUTBOX.build(shard, seq))
    assert data is not None, "what was given is there until it was taken"
    return _outgoing.decode(data)


def epoch_of(tx: Tx, shard: int, seq: int) -> int:
    """The epoch of an effect that was given to another shard and is not removed."""
    return _message.decode(outgoing(tx, shard, seq).body).epoch


def without_epoch(body: bytes) -> bytes:
    """The op `Receive` as an earlier version knows it."""
    return encode_json(replace(_message.decode(body), epoch=epochs.NONE.began_ns, after=FOLLOWS))


def epoch_removed(tx: Tx, shard: int) -> int:
    """The epoch of the last effect on another shard that is removed."""
    given, removed = numbers(tx).get(shard, (0, 0))
    if removed < given:
        message = _message.decode(outgoing(tx, shard, removed + 1).body)
        return message.epoch if message.after == FOLLOWS else message.after
    epoch = epochs.present(tx).get(shard, epochs.NONE)
    return epoch.after if given < epoch.first else epoch.began_ns


def last_given(tx: Tx, shard: int) -> int:
    """The number of the last effect that was given to a shard; 0 when there was none."""
    return numbers(tx).get(shard, (0, 0))[0]


def delivered(tx: Tx, shard: int, seq: int, *, limit: int) -> tuple[int, bool]:
    """Remove the effects up to `seq`, the oldest first: the other shard has taken them.

    Returns how many rows were removed, and whether some were beyond the limit. These wait for the
    next call; an effect that is sent again until then does no harm.
    """
    given, taken = numbers(tx).get(shard, (0, 0))
    assert seq <= given, "nobody takes what was not given"
    last = min(seq, taken + limit)
    if last <= taken:
        return 0, False
    for row in range(taken + 1, last + 1):
        tx.remove_key(OUTBOX.build(shard, row))
    _write(tx, shard, given, last)
    return last - taken, last < seq


# After a loss of entries.


def renumber(tx: Tx, shard: int, *, common: int, taken: int, epoch: int) -> int:
    """Continue behind the numbers that another shard has taken, as the last one of that `epoch`.

    It has taken the effects up to `common` as they are here; those behind it here have come after
    the loss. Returns the number of effects that it has taken and that this shard has forgotten.
    """
    given, removed = numbers(tx).get(shard, (0, 0))
    if not removed <= common < taken:
        return 0  # it was done before
    waiting = [outgoing(tx, shard, seq) for seq in range(common + 1, given + 1)]
    for seq in range(removed + 1, given + 1):
        tx.remove_key(OUTBOX.build(shard, seq))
    # In an epoch of their own: they may be on their way under the numbers that they had.
    epochs.put(tx, {shard: Epoch(tx.now_ns, taken + 1, epoch)})
    for seq, row in enumerate(waiting, start=taken + 1):
        _store(tx, shard, replace(_message.decode(row.body), seq=seq), row.at_ns)
    _write(tx, shard, taken + len(waiting), taken)
    return taken - common


def skip(tx: Tx, source: int, seq: int, *, epoch: int) -> int:
    """Expect the effect after `seq`: those up to it were taken here, and are removed there.

    Returns the number of effects that this shard has forgotten.
    """
    missed = seq - last_taken(tx, source)
    if missed < 0:
        return 0  # it was done before
    tx.set_key(INBOX.build(source), seq.to_bytes(8, "big"))
    epochs.take(tx, source, seq, epoch)
    return missed


# Taking.


def last_taken(tx: Tx, source: int) -> int:
    """The number of the last effect that was taken here from a shard; 0 when there was none."""
    data = tx.get_key(INBOX.build(source))
    return int.from_bytes(data, "big") if data is not None else 0


def take(tx: Tx, source: int, seq: int, *, epoch: int) -> None:
    """Record that an effect was taken."""
    assert seq == last_taken(tx, source) + 1, "effects are taken in their order, each once"
    tx.set_key(INBOX.build(source), seq.to_bytes(8, "big"))
    epochs.take(tx, source, seq, epoch)


def _write(tx: Tx, shard: int, given: int, taken: int) -> None:
    tx.outbox = {**numbers(tx), shard: (given, taken)}
    tx.set_key(_NUMBERS_KEY, _pack(tx.outbox))
