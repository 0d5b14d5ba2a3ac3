"""Request keys: the same request again has no second effect, and gets the same answer.

What was answered is kept in the state itself, so it outlives a change of leader, a restart and a
snapshot. A refusal is an answer, too.
"""

from hashlib import blake2b
from typing import Final

from corvo.kv.keys import META
from corvo.kv.tables import Held
from corvo.model import Request
from corvo.protocol.ops.base import Op, Rejected, encode_json
from corvo.shard.state.applying import again, apply, is_void, keep
from corvo.shard.state.tables import REQUESTS
from corvo.shard.state.tx import Tx

REQUESTS_MAX: Final = 1_000_000
"""Request keys that a shard remembers: some twelve in a second, for a day."""
_COUNT_KEY: Final = META.build("requests")
_HASH_BYTES: Final = 16


def once(tx: Tx, number: int, op: Op) -> tuple[str, bytes]:
    """Apply an op that has a request key, unless that was done. The answer's code and body."""
    key = op.request_key
    body_hash = blake2b(op.asked(), digest_size=_HASH_BYTES).digest()
    found = REQUESTS.find(tx, key)
    if found is None and op.earlier_key:
        found = _earlier(tx, op.earlier_key, (number, body_hash))
    if found is not None:
        request = found.document
        if (request.op, request.body_hash) != (number, body_hash):
            return _refuse("request_key_reused", "the request key was used for a different request")
        is_done = not request.code
        return request.code, again(op, tx, request.body) if is_done else request.body
    if tx.number(_COUNT_KEY) >= REQUESTS_MAX:
        return _refuse(
            "too_many_request_keys",
            f"the shard remembers {REQUESTS_MAX} request keys, the limit: try again later",
        )
    # Since version 2, each op with a key has the one that it had before.
    tx.has_old_answers = not op.earlier_key
    result = apply(op, tx)
    tx.has_old_answers = False
    answer = encode_json(result)
    code = result.code if isinstance(result, Rejected) else ""
    if not code and is_void(op, result):
        return code, answer
    REQUESTS.insert(
        tx,
        Request(
            key=key,
            op=number,
            body_hash=body_hash,
            at_ns=tx.now_ns,
            code=code,
            body=answer if code else keep(op, result),
            index=tx.index,
        ),
    )
    tx.set_number(_COUNT_KEY, tx.number(_COUNT_KEY) + 1)
    return code, answer


def _earlier(tx: Tx, key: str, asked: tuple[int, bytes]) -> Held[Request] | None:
    """The answer to the same request before version 2 of the ops, when a key belonged to nobody."""
    found = REQUESTS.find(tx, key)
    if found is None or (found.document.op, found.document.body_hash) != asked:
        return None
    return found


def forget(tx: Tx, found: Held[Request]) -> None:
    """A request key was answered so long ago that it may mean something else from here on."""
    REQUESTS.remove(tx, found.document.key)
    tx.set_number(_COUNT_KEY, tx.number(_COUNT_KEY) - 1)


def _refuse(code: str, error: str) -> tuple[str, bytes]:
    return code, encode_json(Rejected(code, error))
