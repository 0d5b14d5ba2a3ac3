"""All ops of a shard by their numbers: how each is decoded, checked before the log, and applied."""

from typing import Final

import msgspec

from corvo.errors import BadKey
from corvo.protocol import ops as of_clients
from corvo.protocol.ops.base import Limits, Op, Rejected
from corvo.shard.ops import (  # noqa: F401 -- they apply their ops
    cluster,
    enqueue,
    jobs,
    keys,
    queues,
    restore,
    schedules,
    transfer,
    upkeep,
    work,
)
from corvo.shard.state.applying import apply

_OF_SHARDS: Final = vars(transfer) | vars(upkeep) | vars(cluster) | vars(schedules)
OPS: Final[dict[int, type[Op]]] = of_clients.OPS | {
    number: _OF_SHARDS[name] for number, name in of_clients.OF_SHARDS.items()
}
NUMBERS: Final = {op: number for number, op in OPS.items()}
DECODE: Final = {number: msgspec.json.Decoder(op).decode for number, op in OPS.items()}

APPLY: Final = {number: apply.dispatch(op) for number, op in OPS.items()}
"""By number, the function that applies an op."""


def admit(number: int, body: bytes, limits: Limits, *, private: bool = False) -> Op | Rejected:
    """The op, if it may be proposed; else what is wrong with it, naming the field.

    Only the shard itself and other shards may propose what is `private`.
    """
    decode = DECODE.get(number)
    if decode is None:
        return Rejected("unknown_op", f"there is no op {number}")
    if OPS[number].PRIVATE and not private:
        return Rejected("forbidden", f"{OPS[number].__name__} is for the shard itself")
    if len(body) > limits.op_bytes_max and not private:
        return Rejected("too_large", f"the op has more than {limits.op_bytes_max} bytes")
    try:
        op = decode(body)
        refused = op.check(limits)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        return Rejected("bad_request", reason, field=path.removesuffix("`"))
    except msgspec.DecodeError as error:
        return Rejected("bad_json", f"the op is not JSON: {error}")
    except RecursionError:
        return Rejected("bad_json", "the op is nested too deeply")
    except (BadKey, UnicodeError) as error:
        return Rejected("bad_request", str(error))
    return op if refused is None else refused
