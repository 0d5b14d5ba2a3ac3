"""What applies an op: functions that are found by the type of the op, one for each.

`apply` is deterministic: it reads and writes through the transaction alone. It decides first and
writes afterwards; a refusal after a write is a bug.
"""

from functools import singledispatch

import msgspec

from corvo.protocol.ops.base import Op, encode_json
from corvo.shard.state.tx import Tx


@singledispatch
def apply(op: Op, tx: Tx) -> msgspec.Struct:
    """Apply an op. Returns its result, or `Rejected`."""
    raise NotImplementedError(type(op).__name__)


# What a request key needs: see `corvo.shard.state.requests`.


@singledispatch
def is_void(op: Op, result: msgspec.Struct) -> bool:
    """Whether nothing was done, so that the same request may have another result later."""
    return False


@singledispatch
def keep(op: Op, result: msgspec.Struct) -> bytes:
    """What is stored of a result, for the same request again."""
    return encode_json(result)


@singledispatch
def again(op: Op, tx: Tx, kept: bytes) -> bytes:
    """The answer as JSON to the same request again, from what was stored."""
    return kept
