"""The registry of ops: which number in the log is which op. A number is never used again."""

from typing import Final

from corvo.protocol.ops.base import Op
from corvo.protocol.ops.enqueue import Enqueue
from corvo.protocol.ops.jobs import (
    Approve,
    Cancel,
    ChangePriority,
    Delete,
    Expedite,
    Hold,
    Move,
    Reject,
    Requeue,
    Retry,
)
from corvo.protocol.ops.keys import DeleteAPIKey, UpsertAPIKey
from corvo.protocol.ops.queues import (
    Clear,
    DeleteQueue,
    Drain,
    Pause,
    RemoveThrottle,
    Resume,
    SetConcurrency,
    SetRetention,
    SetThrottle,
)
from corvo.protocol.ops.work import Ack, Fail, Fetch, Heartbeat, Release, Snooze

OPS: Final[dict[int, type[Op]]] = {
    1: Enqueue,
    3: Fetch,
    4: Ack,
    5: Fail,
    6: Heartbeat,
    7: Retry,
    8: Cancel,
    9: Move,
    10: Delete,
    11: Pause,
    12: Resume,
    13: Clear,
    14: DeleteQueue,
    15: SetConcurrency,
    16: SetThrottle,
    17: RemoveThrottle,
    38: UpsertAPIKey,
    39: DeleteAPIKey,
    64: Release,
    65: Snooze,
    66: Requeue,
    67: Hold,
    68: Approve,
    69: Reject,
    70: ChangePriority,
    71: Drain,
    72: SetRetention,
    80: Expedite,
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
}
"""The ops that only shards submit, by name: their structs are in `corvo.shard.ops`."""

NAMES: Final = {number: op.__name__ for number, op in OPS.items()} | OF_SHARDS
