"""The registry of ops: which number in the log is which op. A number is never used again."""

from typing import Final

from corvo.protocol.ops import cluster, enqueue, jobs, keys, queues, restore, schedules, work
from corvo.protocol.ops.base import Op

_MODULES: Final = (cluster, enqueue, jobs, keys, queues, restore, schedules, work)

OPS: Final[dict[int, type[Op]]] = {
    op.NUMBER: op
    for module in _MODULES
    for op in vars(module).values()
    if isinstance(op, type) and issubclass(op, Op) and "NUMBER" in vars(op) and op.NUMBER
}
"""The ops that clients of a shard may submit."""

NUMBERS: Final = {op: number for number, op in OPS.items()}

OF_SHARDS: Final[dict[int, str]] = {
    18: "Promote",
    19: "Reclaim",
    21: "CleanUnique",
    22: "CleanRateLimits",
    46: "Expire",
    47: "Purge",
    73: "CleanRequests",
    74: "CleanWorkers",
    75: "Sweep",
    76: "Lead",
    77: "Receive",
    78: "Delivered",
    79: "Tell",
    81: "ReceiveMany",
    82: "BeginEpoch",
    83: "Renumber",
    84: "Skip",
    88: "Place",
    90: "RaiseOpVersion",
    97: "FireSchedules",
}
"""The ops that only shards submit, by name: their structs are in `corvo.shard.ops`."""

NAMES: Final = {number: op.__name__ for number, op in OPS.items()} | OF_SHARDS
