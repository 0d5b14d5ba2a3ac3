"""Checks of messages: shapes that no correct replica sends.

Types are the codec's business; here it is numbers. The answer is a stable code for `refused`.
"""

from itertools import pairwise
from typing import Final, assert_never

from corvo.raft.messages import (
    AnyMessage,
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    ReadRequest,
    ReadResponse,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotPull,
    TimeoutNow,
    TransferRequest,
    VoteRequest,
    VoteResponse,
)

NUMBER_MAX: Final = 1 << 62
"""Above any term, index or size that can be reached, and with room to add: 2^63 fits no record."""


def problem(message: AnyMessage, replica: int) -> str | None:
    """Why `message` is refused by `replica`, or None."""
    if message.target != replica:
        return "not_for_us"
    if message.source < 1 or message.source == replica:
        return "source"
    if outside := _outside(message.term, message.instance >> 2):
        return outside
    match message:
        case AppendRequest():
            return _append_problem(message)
        case VoteRequest():
            numbers = (message.last_index, message.last_term, message.commit, message.commit_term)
            return _outside(*numbers) or _above(message.term, message.last_term)
        case VoteResponse():
            return _outside(message.commit, message.commit_term)
        case AppendResponse():
            return _outside(message.index, message.hint_index, message.hint_term, message.commit)
        case Heartbeat():
            return _heartbeat_problem(message)
        case HeartbeatResponse():
            return _outside(message.commit, message.round)
        case ReadRequest():
            return _outside(message.context)
        case ReadResponse():
            return _outside(message.context, message.index, message.index_term)
        case TransferRequest():
            return _outside(message.heir)
        case SnapshotOffer():
            # A leader's snapshot is of committed entries, and it commits before it offers.
            snapshot = message.snapshot
            return (
                _outside(snapshot.index - 1, snapshot.term, snapshot.size, message.goal)
                or _above(message.term, snapshot.term)
                or _above(message.goal, snapshot.index)
            )
        case SnapshotPull() | SnapshotChunk():
            return _outside(message.offset)
        case TimeoutNow():
            return None
        case _:
            assert_never(message)


def _heartbeat_problem(message: Heartbeat) -> str | None:
    numbers = (message.commit, message.round, message.acknowledged, message.acknowledged_term)
    return _outside(*numbers, message.acknowledged_by >> 2) or _above(
        message.term, message.acknowledged_term
    )


def _append_problem(message: AppendRequest) -> str | None:
    outside = _outside(message.previous_index, message.previous_term, message.commit)
    if outside:
        return outside
    if not message.entries:
        return _above(message.term, message.previous_term)
    if message.entries[0].index != message.previous_index + 1:
        return "gap"
    if any(after.index != before.index + 1 for before, after in pairwise(message.entries)):
        return "gap"
    terms = [message.previous_term, *(entry.term for entry in message.entries), message.term]
    return "terms" if any(after < before for before, after in pairwise(terms)) else None


def _outside(*numbers: int) -> str | None:
    if min(numbers) < 0:
        return "negative"
    return "too_large" if max(numbers) > NUMBER_MAX else None


def _above(limit: int, number: int) -> str | None:
    return "terms" if number > limit else None
