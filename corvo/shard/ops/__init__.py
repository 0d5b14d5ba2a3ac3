"""All ops of a shard by their numbers, and the functions that apply them."""

from typing import Final

from corvo.protocol import ops as of_clients
from corvo.protocol.ops.base import Op
from corvo.shard.ops import enqueue, jobs, keys, queues, work
from corvo.shard.ops.transfer import Delivered, Receive
from corvo.shard.ops.upkeep import (
    CleanRateLimits,
    CleanRequests,
    CleanUnique,
    CleanWorkers,
    Expire,
    Lead,
    Promote,
    Purge,
    Reclaim,
    Sweep,
    Tell,
)
from corvo.shard.state.applying import apply

__all__ = ["APPLY", "NUMBERS", "OPS", "enqueue", "jobs", "keys", "queues", "work"]

OPS: Final[dict[int, type[Op]]] = {
    **of_clients.OPS,
    18: Promote,
    19: Reclaim,
    21: CleanUnique,
    22: CleanRateLimits,
    46: Expire,
    47: Purge,
    73: CleanRequests,
    74: CleanWorkers,
    75: Sweep,
    76: Lead,
    77: Receive,
    78: Delivered,
    79: Tell,
}

NUMBERS: Final = {op: number for number, op in OPS.items()}

APPLY: Final = {number: apply.dispatch(op) for number, op in OPS.items()}
"""By number, the function that applies an op."""

for _number, _name in of_clients.OF_SHARDS.items():
    assert OPS[_number].__name__ == _name
