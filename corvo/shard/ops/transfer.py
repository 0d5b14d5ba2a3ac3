"""Moves of a job to another queue, in this shard or another.

Within a shard the job changes its queue in place. If the queue lives in another shard, the job
leaves this one in one step (document, indexes, errors, lock) and travels as an effect: see
`corvo.shard.state.outbox`. During the move it is in no shard, and afterwards in one.

**The home** of a job, the shard in which it was created, always knows its shard, so that the job is
found by its id. For that, every move from one foreign shard to another leads through the home:

    home -> A       the home stores that the job is in A, and sends it there
    A -> home -> B  A sends it to the home, which stores B and sends it on
    A -> home       the home removes the address: the job is here
    A: removed      A sends `Forget` to the home, which removes the address

The home alone decides the next shard, and effects of A reach it in the order in which they happened
there: the address is never older than the last move that reached the home. Until a job has arrived,
the shard that its home names answers `job_not_found`; only the home's own `job_not_found` is final.

**Ids without a queue**, which clients chose before version 2 of the ops, are unique within a shard
only. If another job has the id in the target shard, the moved job turns back to the queue that it
left. If that queue is in a third shard, and its id is taken there by now as well, the job stays at
home, held (`id_taken`), until it is moved.

**A moved job keeps** everything, its lease, its token and its errors included, and its unique lock
if that is free in the new queue. It gets a new place. Shards do not share a clock, so a lease has
as much time left on arrival as it had on departure.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from corvo.kv.tables import Held
from corvo.model import FINISHED, EventType, Forward, Job, State, trace_of
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import ITEMS_MAX, Limits, Nanos, Rejected, TypedOp, encode_json
from corvo.protocol.ops.restore import apart
from corvo.shard.state import consequences, dependencies, epochs, lifecycle, outbox, presence
from corvo.shard.state.applying import apply
from corvo.shard.state.outbox import EFFECT_BYTES_MAX, Arrival, Effect
from corvo.shard.state.tables import FORWARDS, JOBS
from corvo.shard.state.tx import Tx

DELIVERED_MAX: Final = 1_000
"""Rows of the outbox that one op removes."""
ID_TAKEN: Final = "id_taken"
OUT_OF_ORDER: Final = "out_of_order"

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""That of an effect; 0 for none."""


# Leaving.


def move(tx: Tx, found: Held[Job], queue: str, *, reset_attempts: bool) -> Rejected | None:
    """Move a job to another queue. Returns the refusal, if it cannot move."""
    job = found.document
    shard = shard_of_queue(queue, tx.shards)
    if shard != tx.shard:
        return _leave(tx, found, queue, reset_attempts=reset_attempts)
    if queue == job.queue:
        return None
    return _change_queue(tx, found, queue, reset_attempts=reset_attempts)


def _change_queue(tx: Tx, found: Held[Job], queue: str, *, reset_attempts: bool) -> Rejected | None:
    job = found.document
    until_ns = job.unique_until_ns if job.unique_until_ns > tx.now_ns else 0
    if until_ns:
        refused = take_lock(tx, job, queue)
        if refused is not None:
            return refused
    presence.ensure_queue(tx, queue)
    after = replace(
        job if not reset_attempts else replace(job, attempt=0, crashes=0),
        queue=queue,
        order_ns=tx.next_order_ns(),
        unique_until_ns=until_ns,
        trail=presence.trail(tx, job, EventType.MOVED, f"from {job.queue} to {queue}"),
    )
    tx.touched[job.queue] = None
    tx.touched[queue] = None
    JOBS.change(tx, found, after)
    return None


def take_lock(tx: Tx, job: Job, queue: str) -> Rejected | None:
    """Free a job's unique lock in a queue. Returns a refusal if another job holds it."""
    holder = lifecycle.lock_holder(tx, queue, job.unique_key)
    if holder is None:
        lifecycle.free_lock(tx, queue, job.unique_key)
        return None
    if holder.id == job.id:
        return None
    return Rejected(
        "duplicate",
        f"job {job.id} cannot have the unique key {job.unique_key} in queue {queue}: "
        f"job {holder.id} has this unique key",
        job_id=holder.id,
    )


def _leave(tx: Tx, found: Held[Job], queue: str, *, reset_attempts: bool) -> Rejected | None:
    """Send a job to its home, or from the home to the target shard."""
    job = found.document
    if dependencies.is_bound(tx, job):
        return Rejected(
            "waits_for_others",
            f"job {job.id} waits for {job.waits_for[0]}, whose id names no shard: it can go to "
            "another shard when that is completed",
            job_id=job.id,
        )
    is_at_home = job.born_in < 0
    leaving = replace(
        job,
        born_in=tx.shard if is_at_home else job.born_in,
        trail=presence.trail(tx, job, EventType.MOVED, f"from {job.queue} to {queue}"),
    )
    bare, json = apart(leaving)
    arrival = Arrival(
        job=bare,
        json=json,
        queue=queue,
        errors=_errors(tx, job),
        lease_left_ns=_lease_left_ns(tx, job),
        reset_attempts=reset_attempts,
        dependency_wait_ms=dependencies.wait_left_ms(tx, job),
        trace=trace_of(job),
    )
    effect = encode_json(arrival)
    if len(effect) > EFFECT_BYTES_MAX:
        return Rejected(
            "too_large",
            f"job {job.id} is too large for a move to another shard: {len(effect)} bytes with its "
            f"result, checkpoint and errors, and {EFFECT_BYTES_MAX} may travel",
            job_id=job.id,
        )
    for number in lifecycle.error_numbers(job):
        lifecycle.remove_error(tx, job, number)
    tx.touched[job.queue] = None
    consequences.left(tx, job)
    JOBS.remove(tx, job.id, what=EventType.MOVED.stored, why=leaving.trail[-1].why)
    if is_at_home:
        _send(tx, job, queue, effect)
    else:
        outbox.post(tx, job.born_in, effect)
    return None


def _send(tx: Tx, job: Job, queue: str, effect: bytes) -> None:
    """From the home: store the target shard, and send the job there."""
    shard = shard_of_queue(queue, tx.shards)
    state = job.state.value if job.state in FINISHED else ""
    FORWARDS.put(tx, Forward(job.id, shard, tx.now_ns, state))
    outbox.post(tx, shard, effect)


def _errors(tx: Tx, job: Job) -> list[msgspec.Raw]:
    errors = []
    for number in lifecycle.error_numbers(job):
        error = tx.get_key(lifecycle.error_key(job.id, number))
        assert error is not None, "the last errors of a job are kept as long as it is"
        errors.append(msgspec.Raw(error))
    return errors


def _lease_left_ns(tx: Tx, job: Job) -> int:
    """Time that the lease of an active job has left here; the time of grace counts."""
    if job.state is not State.ACTIVE or lifecycle.is_over(tx, job):
        return 0
    return max(job.lease_expires_ns, tx.grace.until_ns) - tx.now_ns


# Arriving.


def _arrive(tx: Tx, arrival: Arrival) -> None:
    job = arrival.job
    shard = shard_of_queue(arrival.queue, tx.shards)
    if job.born_in == tx.shard:
        _await(tx, job.id)
        if arrival.refused > 1:
            FORWARDS.remove(tx, job.id)
            _stay(tx, arrival)
        elif shard == tx.shard:
            FORWARDS.remove(tx, job.id)
            _land(tx, arrival)
        else:
            _send(tx, job, arrival.queue, encode_json(arrival))
        return
    assert shard == tx.shard, "a job is sent where its queue lives"
    if _is_taken(tx, job.id):
        back = replace(arrival, queue=job.queue, refused=arrival.refused + 1)
        outbox.post(tx, job.born_in, encode_json(back))
    else:
        _land(tx, arrival)


def _await(tx: Tx, job_id: str) -> None:
    """Make the home of a job that comes back what it was when the job left.

    The home knows of every job of its own that is away, and does not give its id again; unless it
    has lost entries, and its operator has accepted that. Then it may still have the job as it was
    before it left, or even as one that never left: the job that comes back is the newer one.
    """
    if FORWARDS.get(tx, job_id) is None:
        FORWARDS.put(tx, Forward(job_id, tx.shard, tx.now_ns, ""))
        stale = presence.find(tx, job_id)
        if stale is not None:
            for number in lifecycle.error_numbers(stale.document):
                lifecycle.remove_error(tx, stale.document, number)
            consequences.left(tx, stale.document)
            why = "a newer one has come back"
            JOBS.remove(tx, job_id, what=EventType.MOVED.stored, why=why)


def _is_taken(tx: Tx, job_id: str) -> bool:
    """Whether another job has this id: here, or moved away from here."""
    return presence.find(tx, job_id) is not None or FORWARDS.get(tx, job_id) is not None


def _land(tx: Tx, arrival: Arrival) -> None:
    """Insert the job into its new queue."""
    job = arrival.whole()
    is_reset = arrival.reset_attempts and not arrival.refused
    presence.ensure_queue(tx, arrival.queue)
    _insert(
        tx,
        arrival,
        replace(
            job if not is_reset else replace(job, attempt=0, crashes=0),
            queue=arrival.queue,
            lease_expires_ns=_lease_expires_ns(tx, arrival),
        ),
        why="its id is taken in another shard" if arrival.refused else "",
    )


def _stay(tx: Tx, arrival: Arrival) -> None:
    """Insert the job at home, held: its id is taken in both queues."""
    job = arrival.whole()
    presence.ensure_queue(tx, job.queue)
    if job.state not in FINISHED:
        job = replace(
            job,
            state=State.HELD,
            scheduled_ns=0,
            held_ns=tx.now_ns,
            hold_reason=ID_TAKEN,
            **lifecycle.NO_LEASE,
        )
    _insert(tx, arrival, job, why=ID_TAKEN)


def _insert(tx: Tx, arrival: Arrival, job: Job, *, why: str) -> None:
    stale = JOBS.find(tx, job.id)
    if stale is not None:
        lifecycle.remove(tx, stale, why=lifecycle.SWEPT)  # it is being swept, and its id is free
    job = consequences.landed(tx, job, wait_ms=arrival.dependency_wait_ms)
    until_ns, lock_lost = keep_lock(tx, job)
    after = replace(
        job,
        order_ns=tx.next_order_ns(),
        unique_until_ns=until_ns,
        born_in=-1 if job.born_in == tx.shard else job.born_in,
        trail=presence.trail(tx, job, EventType.ARRIVED, "; ".join(filter(None, (why, lock_lost)))),
    )
    JOBS.insert(tx, after)
    tx.minutes.arrived(job.queue)
    numbers = lifecycle.error_numbers(job)
    for number, error in zip(numbers, arrival.errors, strict=True):
        key = lifecycle.error_key(job.id, number)
        tx.set_key(key, bytes(error))
        tx.note(key)
    tx.touched[job.queue] = None


def keep_lock(tx: Tx, job: Job) -> tuple[int, str]:
    """Let a job that comes keep its unique lock, if that is free.

    Returns the end of the lock, and the reason why the job lost it.
    """
    if job.unique_until_ns <= tx.now_ns:
        return 0, ""
    refused = take_lock(tx, job, job.queue)
    if refused is not None:
        return 0, f"without its unique lock, which job {refused.job_id} has"
    return job.unique_until_ns, ""


def _lease_expires_ns(tx: Tx, arrival: Arrival) -> int:
    """End of the lease: not before the end that the worker knows, nor before its time is over."""
    job = arrival.job
    if job.state is not State.ACTIVE:
        return 0
    return max(job.lease_expires_ns, tx.now_ns + arrival.lease_left_ns)


# The ops.


class Received(msgspec.Struct, frozen=True):
    """The result of `Receive`."""

    source: int
    seq: int
    status: str  # `taken`, or `known` when it was taken before


class Receive(TypedOp[Received | Rejected], frozen=True, kw_only=True):
    """Take an effect of another shard on this one, exactly once and in order."""

    PRIVATE: ClassVar[bool] = True

    source: Annotated[int, msgspec.Meta(ge=0)]
    seq: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    effect: Effect
    epoch: Nanos = 0
    after: Annotated[int, msgspec.Meta(ge=epochs.FOLLOWS, lt=1 << 62)] = epochs.FOLLOWS

    def check(self, limits: Limits) -> Rejected | None:
        """An effect has no request key: its number already makes it unique."""
        if self.request_key:
            return Rejected("bad_request", "an effect has its number", field="request_key")
        return None


@apply.register
def receive(op: Receive, tx: Tx) -> Received | Rejected:
    """Take it if it is the next one."""
    refused = _why_not([op], tx)
    if refused is not None:
        return refused
    return Received(op.source, op.seq, "taken" if _take(op, tx) else "known")


def _why_not(effects: Sequence[Receive], tx: Tx) -> Rejected | None:
    """The refusal of effects that follow one another."""
    source, first = effects[0].source, effects[0].seq
    if source == tx.shard or source >= tx.shards:
        return Rejected("bad_request", f"shard {source} sends nothing here", "source")
    last = outbox.last_taken(tx, source)
    if first > last + 1:
        return Rejected(
            OUT_OF_ORDER,
            f"effect {first} of shard {source} is not the next one: send {last + 1}",
            shard=source,
        )
    taken = epochs.taken(tx, source)
    for effect in effects:
        epoch = epochs.epoch_of(taken, effect.seq)
        if effect.epoch != epoch and (effect.seq <= last or effect.after != epoch):
            return Rejected(
                OUT_OF_ORDER,
                f"another effect {min(effect.seq, last)} of shard {source} was taken: the data of"
                " one of both was replaced by an older copy",
                shard=source,
            )
        if effect.seq > last:
            break  # those behind it follow from it
    return None


def _take(op: Receive, tx: Tx) -> bool:
    """Apply an effect, unless it was taken before."""
    if op.seq <= outbox.last_taken(tx, op.source):
        return False
    outbox.take(tx, op.source, op.seq, epoch=op.epoch)
    match op.effect:
        case Arrival() as arrival:
            _arrive(tx, arrival)
        case news:
            consequences.take(tx, op.source, news)
    return True


class ReceivedMany(msgspec.Struct, frozen=True):
    """The result of `ReceiveMany`."""

    source: int
    seq: int  # the last effect of the source that was ever taken
    taken: int  # number of effects that this op took; the others were taken before


class ReceiveMany(TypedOp[ReceivedMany | Rejected], frozen=True, kw_only=True):
    """Take effects of another shard, as if each were an op of its own."""

    PRIVATE: ClassVar[bool] = True
    SINCE: ClassVar[int] = 2

    effects: Annotated[list[Receive], msgspec.Meta(min_length=1, max_length=ITEMS_MAX)]

    def check(self, limits: Limits) -> Rejected | None:
        """All effects have one source, and follow one another."""
        first = self.effects[0]
        for seq, effect in enumerate(self.effects, start=first.seq):
            if (effect.source, effect.seq) != (first.source, seq):
                return Rejected("bad_request", "these effects do not follow one another", "effects")
            refused = effect.check(limits)
            if refused is not None:
                return refused
        return None


@apply.register
def receive_many(op: ReceiveMany, tx: Tx) -> ReceivedMany | Rejected:
    """Take those that were not taken before, unless one before the first is missing."""
    first = op.effects[0]
    refused = _why_not(op.effects, tx)
    if refused is not None:
        return refused
    taken = 0
    for effect in op.effects:
        tx.by = effect.by
        taken += _take(effect, tx)
        lifecycle.remove_doomed(tx)  # a later effect may bring a job of the same id
    return ReceivedMany(first.source, outbox.last_taken(tx, first.source), taken)


class Removed(msgspec.Struct, frozen=True):
    """Number of effects that were removed, and whether more can be."""

    done: int
    more: bool


class Delivered(TypedOp[Removed | Rejected], frozen=True, kw_only=True):
    """Another shard has taken every effect up to one: they are removed."""

    PRIVATE: ClassVar[bool] = True

    shard: Annotated[int, msgspec.Meta(ge=0)]
    seq: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]


@apply.register
def delivered(op: Delivered, tx: Tx) -> Removed | Rejected:
    """Remove them; a repeated op finds none."""
    given = outbox.last_given(tx, op.shard)
    if op.seq > given:
        return Rejected(OUT_OF_ORDER, f"shard {op.shard} was given {given} effects, not {op.seq}")
    return Removed(*outbox.delivered(tx, op.shard, op.seq, limit=DELIVERED_MAX))


# After a loss of entries: see `corvo.shard.state.epochs`.


class Begun(msgspec.Struct, frozen=True):
    """The result of `BeginEpoch`."""


class BeginEpoch(TypedOp[Begun], frozen=True, kw_only=True):
    """A leader begins an epoch: its first op, if there are other shards."""

    PRIVATE: ClassVar[bool] = True
    SINCE: ClassVar[int] = 3


@apply.register
def begin_epoch(op: BeginEpoch, tx: Tx) -> Begun:
    """Effects from now on can be told from those that were lost."""
    epochs.begin(tx, {shard: given for shard, (given, _) in outbox.numbers(tx).items()})
    return Begun()


class Forgotten(msgspec.Struct, frozen=True):
    """Number of effects that the shard was found to have forgotten: given ones, or taken ones."""

    count: int


class Renumber(TypedOp[Forgotten], frozen=True, kw_only=True):
    """Another shard has taken effects that this one has forgotten: continue after their numbers."""

    PRIVATE: ClassVar[bool] = True
    SINCE: ClassVar[int] = 3

    shard: Annotated[int, msgspec.Meta(ge=0)]
    common: Number
    """The last effect that was taken as it is here."""
    taken: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    epoch: Nanos
    """Of the last effect that was taken."""


@apply.register
def renumber(op: Renumber, tx: Tx) -> Forgotten:
    """Give new numbers to the effects that nobody has taken; a repeated op changes nothing."""
    return Forgotten(
        outbox.renumber(tx, op.shard, common=op.common, taken=op.taken, epoch=op.epoch)
    )


class Skip(TypedOp[Forgotten], frozen=True, kw_only=True):
    """This shard has forgotten effects that it took, and that their shard has removed since."""

    PRIVATE: ClassVar[bool] = True
    SINCE: ClassVar[int] = 3

    source: Annotated[int, msgspec.Meta(ge=0)]
    seq: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    """The last effect that was removed."""
    epoch: Nanos
    """Of that effect."""


@apply.register
def skip(op: Skip, tx: Tx) -> Forgotten:
    """Expect the effect after it; a repeated op changes nothing."""
    return Forgotten(outbox.skip(tx, op.source, op.seq, epoch=op.epoch))
