"""Effects on their way to other shards: what is sent next, and what follows from an answer.

Effects of one destination travel in batches, each one op. Some batches are under way at a time, a
*window* that is bounded by their number and their bytes. While it is full, effects gather for the
next batch; nothing waits for a timer.

The answer to a batch names the last effect that the other shard has ever taken. Whatever happened
to the batch, that is true, and so a late or doubled answer does no harm. If a batch is refused,
those after it are refused as well, because they would leave a gap. Nothing more is sent until all
of them are answered; then sending starts again after the last effect that was taken.

If a shard has lost entries, an answer shows that the two shards have not exchanged the same effects
(`is_in_doubt`). Then this one asks which ones the other has taken, and `compared` says what follows
for the one that has forgotten some: see `corvo.shard.state.epochs`.
"""

from bisect import bisect_left
from typing import Final

import msgspec

from corvo.protocol import wire
from corvo.protocol.numbers import EffectNumbers
from corvo.protocol.ops.base import Rejected
from corvo.protocol.queries import EffectsTaken
from corvo.shard.ops import NUMBERS
from corvo.shard.ops.transfer import (
    OUT_OF_ORDER,
    Delivered,
    Receive,
    ReceiveMany,
    Renumber,
    Skip,
)
from corvo.shard.state import outbox
from corvo.shard.state.epochs import epoch_of
from corvo.shard.state.tx import Tx

BATCH_EFFECTS: Final = 128
"""Effects in one batch: some ten milliseconds of the other shard's time."""
BATCH_BYTES: Final = 256 << 10
"""Of the effects in one batch, unless a single one is larger."""
WINDOW_BATCHES: Final = 4
"""Batches under way to one shard: while one is synced, another gathers there, and one travels."""
WINDOW_BYTES: Final = 1 << 20
"""No batch is sent while batches of so many bytes are under way."""
PAUSE_MS: Final = 250
"""Before effects are sent again that were refused."""

_RECEIVE: Final = NUMBERS[Receive]
_RECEIVE_MANY: Final = NUMBERS[ReceiveMany]


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Effects on another shard that travel together."""

    number: int  # no two batches of a process have the same
    shard: int
    last: int  # the number of the last effect in it
    op: int
    body: bytes


class Due(msgspec.Struct):
    """What a leader is to do now."""

    wanted: list[int] = []
    """Other shards to which a link is needed from now on; each is named once."""
    batches: list[Batch] = []
    """To be submitted. The answer to each is reported with `answered`."""
    removals: list[Delivered] = []
    """To be proposed here: they remove from the outbox what was taken. One for each shard at a
    time; the end of each is reported with `removed`."""


class _Taken(msgspec.Struct):
    """What the results of both ops say."""

    seq: int


_decode_taken: Final = msgspec.json.Decoder(_Taken).decode
_decode_refusal: Final = msgspec.json.Decoder(Rejected).decode


class Destination:
    """Another shard."""

    def __init__(self) -> None:
        self.is_wanted = False  # whether a link to it was asked for
        self.is_open = False  # whether a replica that leads can be reached
        self.is_single = False  # whether it is of a version that takes single effects only
        self.given = 0
        self.taken = 0  # the other shard has taken the effects up to here
        self.sent = 0  # effects up to here are under way, or were taken
        self.under_way: dict[int, Batch] = {}  # by their numbers
        self.has_failed = False  # a batch was refused: nothing is sent until all are answered
        self.is_in_doubt = False  # whether the effects that both have exchanged are to be compared
        self.removed = 0  # effects up to here are removed, because they were taken
        self.removed_then = 0  # the same when the doubt arose
        self.is_removing = False  # effects that were taken are being removed from the outbox
        self.delivered = 0  # effects that were taken since the start of this process
        self.error = ""  # why the last batch was refused, or the link is closed
        self.looked_at = 0  # what was taken when somebody looked
        self.stalled_from: float | None = None  # when it was seen first that nothing more is taken

    @property
    def bytes_under_way(self) -> int:
        """Of the batches that are under way."""
        return sum(len(batch.body) for batch in self.under_way.values())

    def start_over(self) -> None:
        """Nothing is under way any more."""
        self.under_way.clear()
        self.has_failed = False
        self.sent = self.taken


class Relaying:
    """The effects of one shard on all others, while its replica leads."""

    def __init__(
        self, *, batch_effects: int = BATCH_EFFECTS, window_batches: int = WINDOW_BATCHES
    ) -> None:
        self._batch_effects = batch_effects
        self._window_batches = window_batches
        self._destinations: dict[int, Destination] = {}
        self._last_number = 0
        self._holders = 0  # backups that are being made: nothing is sent, nor removed
        self._seen: outbox.Numbers | None = None
        """The numbers that `due` saw last, unless something else has changed since."""

    def destination(self, shard: int) -> Destination:
        """What is known of another shard."""
        return self._destinations.setdefault(shard, Destination())

    def opened(self, shard: int, *, is_single: bool = False) -> None:
        """A replica of another shard that leads can be reached."""
        destination = self._changed(shard)
        destination.is_open = True
        destination.is_single = is_single
        destination.start_over()

    def closed(self, shard: int, error: str) -> None:
        """It cannot be reached any more: what was under way may have been taken, or not."""
        destination = self._changed(shard)
        destination.is_open = False
        destination.error = error
        destination.start_over()

    def stand_down(self) -> None:
        """This replica does not lead: another one sends effects now."""
        self._seen = None
        for destination in self._destinations.values():
            destination.taken = 0
            destination.is_removing = False
            destination.start_over()

    def _changed(self, shard: int) -> Destination:
        self._seen = None
        return self.destination(shard)

    # What is sent.

    @property
    def has_changed(self) -> bool:
        """Whether there may be something due since `due` was asked."""
        return self._seen is None

    def due(self, tx: Tx) -> Due | None:
        """What is to be done now; None when nothing has changed since this was asked."""
        numbers = outbox.numbers(tx)
        if numbers is self._seen:
            return None
        self._seen = numbers
        due = Due()
        for shard, (given, removed) in numbers.items():
            destination = self.destination(shard)
            destination.given = given
            destination.removed = removed
            destination.taken = max(destination.taken, removed)
            destination.sent = max(destination.sent, destination.taken)
            if given > removed and not destination.is_wanted:
                destination.is_wanted = True
                due.wanted.append(shard)
            while destination.sent < given and not self._holders and self._has_room(destination):
                due.batches.append(self._next(tx, shard, destination))
            taken = min(destination.taken, given)
            if taken > removed and not (destination.is_removing or self._holders):
                destination.is_removing = True
                due.removals.append(Delivered(shard=shard, seq=taken))
        return due

    def hold(self) -> None:
        """Send nothing more, and remove nothing, until `release`: for a backup.

        What is under way goes on. What other shards take meanwhile was given before.
        """
        self._holders += 1

    def release(self) -> None:
        """A backup has all its copies, or has ended."""
        assert self._holders > 0
        self._holders -= 1
        self._seen = None

    def _has_room(self, destination: Destination) -> bool:
        """Whether another batch may be sent."""
        return (
            destination.is_open
            and not destination.has_failed
            and len(destination.under_way) < self._window_batches
            and destination.bytes_under_way < WINDOW_BYTES
        )

    def _next(self, tx: Tx, shard: int, destination: Destination) -> Batch:
        bodies: list[bytes] = []
        size = 0
        first = destination.sent + 1
        limit = 1 if destination.is_single else self._batch_effects
        for seq in range(first, min(destination.given, destination.sent + limit) + 1):
            body = outbox.outgoing(tx, shard, seq).body
            if destination.is_single:
                body = outbox.without_epoch(body)
            size += len(body)
            if bodies and size > BATCH_BYTES:
                break
            bodies.append(body)
        op, body = _RECEIVE, bodies[0]
        if not destination.is_single:
            op, body = _RECEIVE_MANY, b'{"effects":[%b]}' % b",".join(bodies)
        self._last_number += 1
        destination.sent += len(bodies)
        batch = Batch(self._last_number, shard, destination.sent, op, body)
        destination.under_way[batch.number] = batch
        return batch

    def removed(self, shard: int) -> None:
        """An op that removes effects was applied, or will never be."""
        self._changed(shard).is_removing = False

    def look(self, now_s: float) -> list[EffectNumbers]:
        """The shards that have effects to take, and for how long none has taken one."""
        found = []
        for shard, each in sorted(self._destinations.items()):
            waiting = each.given - each.taken
            if each.taken != each.looked_at or waiting <= 0:
                each.looked_at, each.stalled_from = each.taken, None
            if waiting > 0:
                each.stalled_from = now_s if each.stalled_from is None else each.stalled_from
                stalled_s = now_s - each.stalled_from
                found.append(
                    EffectNumbers(
                        shard=shard, waiting=waiting, stalled_s=stalled_s, error=each.error
                    )
                )
        return found

    # What comes back.

    def answered(self, batch: Batch, answer: wire.Answer) -> int:
        """A batch was answered. Returns the pause in ms before `try_again`; 0 for no such call."""
        destination = self._changed(batch.shard)
        pause_ms = PAUSE_MS
        is_in_doubt = False
        match answer:
            case wire.Reply(code="", body=body):
                taken = _decode_taken(body).seq
                if batch.last <= taken <= destination.given:
                    # What it has taken beyond the batch may be what this shard has forgotten.
                    self._taken(destination, batch, batch.last)
                    return 0
                is_in_doubt = True
                error = (
                    f"it has taken {taken} effects, and this shard has given {destination.given}: "
                    "the data of one of them was replaced by an older copy"
                )
            case wire.Reply(body=body):
                refusal = _decode_refusal(body)
                is_in_doubt = refusal.code == OUT_OF_ORDER
                error = refusal.error
            case wire.Busy(retry_after_ms=pause_ms):
                error = "it is overloaded"
            case _:
                error = "its replica does not lead"
        if batch.number not in destination.under_way:
            return 0  # it was given up before
        if destination.has_failed:
            return 1  # the first one that was refused says for how long nothing is sent
        destination.has_failed = True
        destination.is_in_doubt = is_in_doubt
        destination.removed_then = destination.removed
        destination.error = error
        return pause_ms

    def _taken(self, destination: Destination, batch: Batch, taken: int) -> None:
        if taken > destination.taken:
            destination.delivered += taken - destination.taken
            destination.taken = taken
            destination.error = ""
        self._drop(destination, batch)

    def compared(self, tx: Tx, shard: int, theirs: EffectsTaken) -> Renumber | Skip | None:
        """Another shard says which effects of this one it has taken.

        Returns the op that is needed before effects travel again: `Renumber` here, or `Skip` there.
        None where both know the same.
        """
        destination = self._changed(shard)
        given, removed = outbox.numbers(tx).get(shard, (0, 0))
        taken, last = theirs.seq, outbox.epoch_removed(tx, shard)
        has_less = taken < destination.removed_then  # more may be removed since the answer left
        if has_less or (taken == removed and epoch_of(theirs.epochs, taken) != last):
            return Skip(source=tx.shard, seq=removed, epoch=last)

        def differs(seq: int) -> bool:
            return outbox.epoch_of(tx, shard, seq) != epoch_of(theirs.epochs, seq)

        # Equal up to one of them, and then different: as epochs are never used again.
        both = range(removed + 1, min(given, taken) + 1)
        common = removed + bisect_left(both, True, key=differs)
        if taken > common:
            epoch = epoch_of(theirs.epochs, taken)
            return Renumber(shard=shard, common=common, taken=taken, epoch=epoch)
        destination.taken = max(taken, removed)
        return None

    def try_again(self, batch: Batch) -> None:
        """The pause after the refusal of a batch is over."""
        self._drop(self._changed(batch.shard), batch)

    def _drop(self, destination: Destination, batch: Batch) -> None:
        """A batch is not under way any more; another one may be, that was sent since."""
        destination.under_way.pop(batch.number, None)
        if destination.has_failed and not destination.under_way:
            destination.start_over()
