"""Check of effects on other shards: those that wait, and the numbers of those that were taken."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from corvo.errors import CorvoError
from corvo.kv.keys import INBOX, META, OUTBOX, prefix_end
from corvo.kv.store import Store
from corvo.model import Outgoing
from corvo.shard.recount.rows import Tell, Wrong, rows
from corvo.shard.state.outbox import Effect, Message, Numbers

_NUMBERS_KEY: Final = META.build("outbox")
_numbers: Final = msgspec.msgpack.Decoder(Numbers)
_outgoing: Final = msgspec.msgpack.Decoder(Outgoing)
_message: Final = msgspec.json.Decoder(Message)
_effect: Final[msgspec.json.Decoder[Effect]] = msgspec.json.Decoder(Effect)


class Effects(msgspec.Struct):
    """Effects of one shard on others, and of others on it."""

    given: Numbers
    """By shard, the last number that was given, and the last one that was confirmed."""
    taken: dict[int, int]
    """By shard, the last number that was taken from it."""
    waiting: int = 0


def numbers_of(store: Store) -> Numbers:
    """The numbers of effects that a shard has given. Raises `msgspec.DecodeError`."""
    data = store.get(_NUMBERS_KEY)
    return _numbers.decode(data) if data is not None else {}


def taken_of(store: Store) -> dict[int, int]:
    """The last number that was taken from each shard."""
    found = store.scan(INBOX.prefix, prefix_end(INBOX.prefix), limit=1 << 20)
    return {int.from_bytes(key[-4:], "big"): int.from_bytes(value, "big") for key, value in found}


def waiting_effects(store: Store, shard: int) -> Iterator[Effect]:
    """Effects on one shard that it has not confirmed. Those that cannot be read are left out."""
    for row in _outbox(store, shard, 0):
        with suppress(msgspec.MsgspecError):
            yield _effect_of(row)[1]


def effects_after(store: Store, shard: int, seq: int) -> Iterator[tuple[int, Effect]]:
    """Effects on one shard after a number, with theirs. Raises `msgspec.MsgspecError`."""
    yield from map(_effect_of, _outbox(store, shard, seq))


def _outbox(store: Store, shard: int, seq: int) -> Iterator[bytes]:
    stop = OUTBOX.prefix + (shard + 1).to_bytes(4, "big")
    yield from (value for _, value in rows(store, OUTBOX.build(shard, seq + 1), stop))


def _effect_of(value: bytes) -> tuple[int, Effect]:
    row = _outgoing.decode(value)
    return row.seq, _effect.decode(_message.decode(row.body).effect)


def check_effects(store: Store, *, shard: int, shards: int, tell: Tell) -> Effects:
    """Check all effects of a shard, and what it has taken."""
    effects = Effects(given={}, taken={})
    try:
        effects.given = numbers_of(store)
    except msgspec.MsgspecError as error:
        tell(Wrong(META.name, _NUMBERS_KEY, f"cannot be read: {error}"))
        return effects
    for other, (given, removed) in effects.given.items():
        if other == shard or not 0 <= other < shards or not 0 <= removed <= given:
            problem = f"has effects {removed} to {given} on shard {other}"
            tell(Wrong(META.name, _NUMBERS_KEY, problem))
    _check_waiting(store, effects, shard=shard, tell=tell)
    for key, value in rows(store, INBOX.prefix, prefix_end(INBOX.prefix)):
        source = int.from_bytes(key[len(INBOX.prefix) :], "big")
        if len(key) != len(INBOX.prefix) + 4 or source == shard or source >= shards:
            tell(Wrong(INBOX.name, key, f"is of shard {source}, which sends nothing here"))
        elif len(value) != 8:
            tell(Wrong(INBOX.name, key, "is not a number of 8 bytes"))
        else:
            effects.taken[source] = int.from_bytes(value, "big")
    return effects


def _check_waiting(store: Store, effects: Effects, *, shard: int, tell: Tell) -> None:
    due = {other: removed + 1 for other, (_, removed) in effects.given.items()}
    for key, value in rows(store, OUTBOX.prefix, prefix_end(OUTBOX.prefix)):
        effects.waiting += 1
        try:
            other, seq = OUTBOX.parse(key)
            assert isinstance(other, int)
            assert isinstance(seq, int)
            problem = _problem(value, shard=shard, other=other, seq=seq)
        except CorvoError as error:
            tell(Wrong(OUTBOX.name, key, str(error)))
            continue
        if problem:
            tell(Wrong(OUTBOX.name, key, problem))
        expected = due.get(other, 0)
        if seq != expected:
            after = f"effect {expected} on shard {other} is expected" if expected else ""
            tell(Wrong(OUTBOX.name, key, after or f"no effect was given to shard {other}"))
        due[other] = seq + 1
    for other, (given, _) in effects.given.items():
        if due[other] != given + 1:
            missing = OUTBOX.prefix + other.to_bytes(4, "big") + due[other].to_bytes(8, "big")
            tell(Wrong(OUTBOX.name, missing, f"is missing: {given} were given to shard {other}"))


def _problem(value: bytes, *, shard: int, other: int, seq: int) -> str:
    """What is wrong with an effect; empty if it is well formed."""
    try:
        row = _outgoing.decode(value)
        message = _message.decode(row.body)
        _effect.decode(message.effect)
    except msgspec.MsgspecError as error:
        return f"cannot be read: {error}"
    if (row.shard, row.seq, message.source, message.seq) != (other, seq, shard, seq):
        return f"is effect {message.seq} of shard {message.source} on shard {row.shard}"
    return ""
