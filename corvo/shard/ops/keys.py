"""API keys: who may do what. They are kept in shard 0, and routers ask for them there.

A key never comes here, and never gets into the log: what is stored is its hash, and a router that
is shown a key looks for the hash of that.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from corvo.kv.keys import META
from corvo.model import DEFAULT_NAMESPACE, ROLES, ApiKey
from corvo.shard.ops.base import ITEMS_MAX, Limits, Name, Nanos, Op, Rejected
from corvo.shard.ops.checks import bad_name
from corvo.shard.tables import API_KEYS
from corvo.shard.tx import Tx

HOME: Final = 0
"""The shard that has them: there is one list, and one order in which it changes."""
KEYS_MAX: Final = 10_000
"""Every router has all of them in memory."""
SCOPE_MAX: Final = 100
"""Names and beginnings of queues that one key may list."""

_COUNT_KEY: Final = META.build("api_keys")

KeyHash: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
"""The length is there for the `$`, which lets a line end behind it."""


class KeyDone(msgspec.Struct, frozen=True):
    """What became of a key."""

    key_hash: str
    status: str
    keys: int
    """How many there are now."""


class KeyOp(Op, frozen=True, kw_only=True):
    """An op on a key."""

    key_hash: KeyHash

    def apply(self, tx: Tx) -> KeyDone | Rejected:
        """Do it where keys are kept."""
        if tx.shard != HOME:
            return Rejected("wrong_shard", f"API keys are kept in shard {HOME}")
        return self.change(tx)

    def change(self, tx: Tx) -> KeyDone | Rejected:
        """Do it."""
        raise NotImplementedError


class UpsertAPIKey(KeyOp, frozen=True, kw_only=True):
    """Make a key known, or change what one may do."""

    name: Name
    role: Name
    namespace: Name = DEFAULT_NAMESPACE
    queue_scope: Annotated[tuple[Name, ...], msgspec.Meta(max_length=ITEMS_MAX)] = ()
    enabled: bool = True
    expires_ns: Nanos = 0

    def check(self, limits: Limits) -> Rejected | None:
        """A key that would not do what its maker believes is refused."""
        if self.role not in ROLES:
            return _bad("role", f"role {self.role!r} is none of {', '.join(ROLES)}")
        if self.namespace != DEFAULT_NAMESPACE:
            return _bad("namespace", f"the only namespace is {DEFAULT_NAMESPACE!r}")
        if self.role == "admin" and self.queue_scope:
            return _bad("queue_scope", "an admin could make a key for any queue: leave it empty")
        if len(self.queue_scope) > SCOPE_MAX:
            return _bad("queue_scope", f"queue_scope has more than {SCOPE_MAX} names")
        for number, pattern in enumerate(self.queue_scope):
            field = f"queue_scope[{number}]"
            if "*" in pattern[:-1]:
                return _bad(field, f"{field} may have a * at its end only")
            refused = bad_name(field, pattern)
            if refused is not None:
                return refused
        return bad_name("name", self.name)

    def change(self, tx: Tx) -> KeyDone | Rejected:
        """One that is known keeps the time at which it was made."""
        before = API_KEYS.get(tx, self.key_hash)
        number = count(tx)
        if before is None and number >= KEYS_MAX:
            error = f"there are {KEYS_MAX} API keys and no room for more: delete one first"
            return Rejected("too_many_keys", error)
        document = ApiKey(
            key_hash=self.key_hash,
            name=self.name,
            role=self.role,
            namespace=self.namespace,
            queue_scope=self.queue_scope,
            enabled=self.enabled,
            created_ns=tx.now_ns if before is None else before.created_ns,
            expires_ns=self.expires_ns,
        )
        tx.keys_changed = True
        API_KEYS.put(tx, document)
        if before is not None:
            return KeyDone(self.key_hash, "updated", number)
        _set_count(tx, number + 1)
        return KeyDone(self.key_hash, "created", number + 1)


class DeleteAPIKey(KeyOp, frozen=True, kw_only=True):
    """Make a key of no use from here on."""

    def change(self, tx: Tx) -> KeyDone | Rejected:
        """What is not there cannot be deleted: whoever mistyped a hash has to know."""
        if API_KEYS.find(tx, self.key_hash) is None:
            return Rejected("key_not_found", f"there is no API key of hash {self.key_hash}")
        number = count(tx) - 1
        tx.keys_changed = True
        API_KEYS.remove(tx, self.key_hash)
        _set_count(tx, number)
        return KeyDone(self.key_hash, "deleted", number)


def count(tx: Tx) -> int:
    """How many keys there are."""
    data = tx.get_key(_COUNT_KEY)
    return 0 if data is None else _decode_count(data)


def _set_count(tx: Tx, number: int) -> None:
    assert number >= 0
    tx.set_key(_COUNT_KEY, _encode(number))


def _bad(field: str, error: str) -> Rejected:
    return Rejected("bad_request", error, field=field)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_count: Final = msgspec.msgpack.Decoder(int).decode
