"""The registry of ops: which number in the log is which op. A number is never used again."""

from typing import Final

from corvo.protocol.ops import enqueue, jobs, keys, queues, work
from corvo.protocol.ops.base import Op

OPS: Final[dict[int, type[Op]]] = {
    1: enqueue.Enqueue,
    3: work.Fetch,
    4: work.Ack,
    5: work.Fail,
    6: work.Heartbeat,
    7: jobs.Retry,
    8: jobs.Cancel,
    9: jobs.Move,
    10: jobs.Delete,
    11: queues.Pause,
    12: queues.Resume,
    13: queues.Clear,
    14: queues.DeleteQueue,
    15: queues.SetConcurrency,
    16: queues.SetThrottle,
    17: queues.RemoveThrottle,
    38: keys.UpsertAPIKey,
    39: keys.DeleteAPIKey,
    64: work.Release,
    65: work.Snooze,
    66: jobs.Requeue,
    67: jobs.Hold,
    68: jobs.Approve,
    69: jobs.Reject,
    70: jobs.ChangePriority,
    71: queues.Drain,
    72: queues.SetRetention,
    80: jobs.Expedite,
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
