"""The numbers of ops: what the log calls them, for ever."""

from collections import Counter
from typing import Final

from corvo.protocol import ops as of_clients
from corvo.protocol.ops import cluster, enqueue, jobs, keys, queues, restore, schedules, work
from corvo.protocol.ops.base import Op
from corvo.shard.ops import OPS

NAMES: Final = {
    1: "Enqueue", 3: "Fetch", 4: "Ack", 5: "Fail", 6: "Heartbeat", 7: "Retry", 8: "Cancel",
    9: "Move", 10: "Delete", 11: "Pause", 12: "Resume", 13: "Clear", 14: "DeleteQueue",
    15: "SetConcurrency", 16: "SetThrottle", 17: "RemoveThrottle", 18: "Promote", 19: "Reclaim",
    21: "CleanUnique", 22: "CleanRateLimits", 38: "UpsertAPIKey", 39: "DeleteAPIKey", 46: "Expire",
    47: "Purge", 64: "Release", 65: "Snooze", 66: "Requeue", 67: "Hold", 68: "Approve",
    69: "Reject", 70: "ChangePriority", 71: "Drain", 72: "SetRetention", 73: "CleanRequests",
    74: "CleanWorkers", 75: "Sweep", 76: "Lead", 77: "Receive", 78: "Delivered", 79: "Tell",
    80: "Expedite", 81: "ReceiveMany", 82: "BeginEpoch", 83: "Renumber",
    84: "Skip", 85: "Announce", 86: "DrainNode", 87: "RemoveNode", 88: "Place",
    89: "SetReplicas", 90: "RaiseOpVersion", 91: "CreateSchedule", 92: "ChangeSchedule",
    93: "PauseSchedule", 94: "DeleteSchedule", 95: "RunSchedule", 96: "BackfillSchedule",
    97: "FireSchedules", 98: "Restore",
}  # fmt: skip
"""A new op adds a number here. None changes, and none goes."""


def test_a_number_stays_what_it_is() -> None:
    assert {number: op.__name__ for number, op in OPS.items()} == NAMES
    assert of_clients.NAMES == NAMES


def test_no_two_ops_have_the_same_number() -> None:
    numbers = [
        op.NUMBER
        for module in (cluster, enqueue, jobs, keys, queues, restore, schedules, work)
        for op in vars(module).values()
        if isinstance(op, type) and issubclass(op, Op) and "NUMBER" in vars(op)
        if op.__module__ == module.__name__ and op.NUMBER
    ]

    assert max(Counter(numbers).values()) == 1
    assert sorted(numbers) == sorted(of_clients.OPS)
