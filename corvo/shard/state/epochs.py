"""Epochs of a shard: effects with equal numbers are told apart.

A shard that has lost entries, because its data was replaced by an older copy, gives numbers to
effects that other shards have taken as others. Nothing in its own data says so. So each leader
begins an *epoch* with its first entry, and each effect carries the epoch in which it was given. The
first effect of an epoch also names the epoch of the effect before it. As with terms in Raft, two
histories in which an effect has equal numbers and epochs are equal up to it.

A shard takes an effect only if the one before it is the last one that it has taken, and answers one
that it has taken before only if that is the same. Otherwise the leader that sends effects asks
which numbers and epochs were taken, and continues from there: `corvo.shard.relaying`.

Effects that get new numbers then are of a new epoch, too. So they are not known again by a shard
that loses entries once more, and continues from a copy that has them under their old numbers: they
are taken twice.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec

from corvo.kv.keys import META
from corvo.model import Epoch
from corvo.shard.state.tx import Tx

FOLLOWS: Final = -1
"""In place of the epoch before: the effect before this one is of the same epoch."""
TAKEN_MAX: Final = 256
"""Epochs of another shard that are kept. There is one for each start with effects; those before
are no longer told from any other."""

_EPOCHS_KEY: Final = META.build("epochs")
_FIRST: Final = itemgetter(0)


NONE: Final = Epoch(0, 1, 0)
"""That of a shard whose leader was of an earlier version."""

Taken: TypeAlias = list[tuple[int, int]]
"""The first number that was taken in each epoch, and the epoch."""

_epochs: Final = msgspec.msgpack.Decoder(dict[int, Epoch])
_taken: Final = msgspec.msgpack.Decoder(Taken)
_pack: Final = msgspec.msgpack.Encoder().encode


# Of effects that are given.


def present(tx: Tx) -> Mapping[int, Epoch]:
    """The present epoch by shard; empty before the first one."""
    if tx.epochs is None:
        data = tx.get_key(_EPOCHS_KEY)
        tx.epochs = _epochs.decode(data) if data is not None else {}
    return tx.epochs


def begin(tx: Tx, given: Mapping[int, int]) -> None:
    """A leader begins an epoch, after so many effects on each other shard."""
    last = present(tx)
    fresh = {}
    for shard in range(tx.shards):
        if shard != tx.shard:
            before, first = last.get(shard, NONE), given.get(shard, 0) + 1
            after = before.after if first == before.first else before.began_ns
            fresh[shard] = Epoch(tx.now_ns, first, after)
    put(tx, fresh)


def put(tx: Tx, fresh: Mapping[int, Epoch]) -> None:
    """Write the present epoch of some shards."""
    tx.epochs = {**present(tx), **fresh}
    tx.set_key(_EPOCHS_KEY, _pack(tx.epochs))


# Of effects that were taken.


def taken(tx: Tx, source: int) -> Taken:
    """The epochs of the effects that were taken from a shard."""
    known = tx.taken_epochs.get(source)
    if known is None:
        data = tx.get_key(_taken_key(source))
        known = tx.taken_epochs[source] = _taken.decode(data) if data is not None else []
    return known


def epoch_of(taken: Sequence[tuple[int, int]], seq: int) -> int:
    """The epoch in which an effect was taken."""
    at = bisect_right(taken, seq, key=_FIRST)
    return taken[at - 1][1] if at else NONE.began_ns


def take(tx: Tx, source: int, seq: int, epoch: int) -> None:
    """Record the epoch of an effect that is taken."""
    known = taken(tx, source)
    if epoch != epoch_of(known, seq):
        tx.taken_epochs[source] = known = [*known, (seq, epoch)][-TAKEN_MAX:]
        tx.set_key(_taken_key(source), _pack(known))


def _taken_key(source: int) -> bytes:
    return META.build(f"epochs of {source}")
