"""Effects of ops on API keys, in the shard that stores the keys."""

from typing import Final

from msgspec.structs import replace

from corvo.kv.keys import META, prefix_end
from corvo.model import ApiKey
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.keys import HOME, KEYS_MAX, DeleteAPIKey, KeyDone, KeyOp, UpsertAPIKey
from corvo.shard.state.applying import apply
from corvo.shard.state.tables import API_KEYS
from corvo.shard.state.tx import Tx

_COUNT_KEY: Final = META.build("api_keys")
_EARLY_KEY: Final = META.build("api_keys_early")


@apply.register
def apply_to_key(op: KeyOp, tx: Tx) -> KeyDone | Rejected:
    """Apply an op on a key, in the shard where keys are kept."""
    if tx.shard != HOME:
        return Rejected("wrong_shard", f"API keys are kept in shard {HOME}")
    match op:
        case UpsertAPIKey():
            return _upsert(op, tx)
        case DeleteAPIKey():
            return _delete(op, tx)
        case _:
            raise NotImplementedError(type(op).__name__)


def _upsert(op: UpsertAPIKey, tx: Tx) -> KeyDone | Rejected:
    """Create or change a key; a known one keeps its time of creation."""
    before = API_KEYS.get(tx, op.key_hash)
    number = tx.number(_COUNT_KEY)
    if before is None and number >= KEYS_MAX:
        error = f"{KEYS_MAX} API keys exist, the limit: delete one first"
        return Rejected("too_many_keys", error)
    early = tx.number(_EARLY_KEY)
    is_early = op.is_early and op.role != "admin" and early == number
    if early and not is_early:
        _close(tx)
    document = ApiKey(
        key_hash=op.key_hash,
        name=op.name,
        role=op.role,
        namespace=op.namespace,
        queue_scope=op.queue_scope,
        enabled=op.enabled,
        created_ns=tx.now_ns if before is None else before.created_ns,
        expires_ns=op.expires_ns,
        is_early=is_early,
    )
    tx.keys_changed = True
    API_KEYS.put(tx, document)
    if before is not None:
        return KeyDone(op.key_hash, "updated", number)
    if is_early:
        tx.set_number(_EARLY_KEY, early + 1)
    tx.set_number(_COUNT_KEY, number + 1)
    return KeyDone(op.key_hash, "created", number + 1)


def _close(tx: Tx) -> None:
    """The server is open no longer, whatever becomes of the key that closes it."""
    start = API_KEYS.prefix
    for key in tx.keys(start, prefix_end(start), limit=KEYS_MAX):
        found = API_KEYS.find(tx, key[len(start) :].decode())
        assert found is not None, "a key of the table has a document"
        API_KEYS.change(tx, found, replace(found.document, is_early=False))
    tx.set_number(_EARLY_KEY, 0)


def _delete(op: DeleteAPIKey, tx: Tx) -> KeyDone | Rejected:
    """Delete a key. An unknown hash is refused, because it may be mistyped."""
    found = API_KEYS.find(tx, op.key_hash)
    if found is None:
        return Rejected("key_not_found", f"no API key with the hash {op.key_hash}")
    number = tx.number(_COUNT_KEY) - 1
    tx.keys_changed = True
    if found.document.is_early:
        tx.set_number(_EARLY_KEY, tx.number(_EARLY_KEY) - 1)
    API_KEYS.remove(tx, op.key_hash)
    tx.set_number(_COUNT_KEY, number)
    return KeyDone(op.key_hash, "deleted", number)
