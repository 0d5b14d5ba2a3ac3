"""The numbers of ops and queries, as `docs/semantics.md` has them."""

from typing import Final

NUMBERS: Final = {
    "Enqueue": 1,
    "Fetch": 3,
    "Ack": 4,
    "Fail": 5,
    "Heartbeat": 6,
    "Retry": 7,
    "Cancel": 8,
    "Move": 9,
    "Delete": 10,
    "Pause": 11,
    "Resume": 12,
    "Clear": 13,
    "DeleteQueue": 14,
    "SetConcurrency": 15,
    "SetThrottle": 16,
    "RemoveThrottle": 17,
    "Promote": 18,
    "Reclaim": 19,
    "CleanUnique": 21,
    "CleanRateLimits": 22,
    "Expire": 46,
    "Purge": 47,
    "Release": 64,
    "Snooze": 65,
    "Requeue": 66,
    "Hold": 67,
    "Approve": 68,
    "Reject": 69,
    "ChangePriority": 70,
    "Drain": 71,
    "SetRetention": 72,
    "CleanRequests": 73,
    "CleanWorkers": 74,
    "Sweep": 75,
    "Lead": 76,
    "Receive": 77,
    "Delivered": 78,
    "ReceiveMany": 81,
}
NAMES: Final = {number: name for name, number in NUMBERS.items()}

GET_JOBS: Final = 1
GET_QUEUE: Final = 4
