"""Raft as a library: a core without IO, a durable log, and nothing else.

`Node` is one replica. Its driver feeds it ticks, messages and proposals, and carries out what
`Node.ready` hands back; `corvo.raft.ready` says in which order. See `docs/raft.md`.
"""

from corvo.raft.errors import (
    ChangeRefused,
    Compacted,
    DiskFull,
    FrameError,
    InvalidSettings,
    LogDamaged,
    LogFailed,
    Misuse,
    NotLeader,
    Overloaded,
    RaftError,
    Refused,
    TooLarge,
    Transferring,
    Unavailable,
)
from corvo.raft.membership import LEAVE, Action, Change, Step
from corvo.raft.messages import (
    NOBODY,
    AnyMessage,
    AppendRequest,
    Entry,
    HardState,
    Kind,
    Membership,
    Message,
    Partial,
    ReadContext,
    Snapshot,
)
from corvo.raft.node import Node, Statistics
from corvo.raft.progress import Flow, ProgressView
from corvo.raft.ready import Read, Ready, Write
from corvo.raft.settings import Settings
from corvo.raft.state import Role
from corvo.raft.storage import MemoryStorage, Storage

__all__ = [
    "LEAVE",
    "NOBODY",
    "Action",
    "AnyMessage",
    "AppendRequest",
    "Change",
    "ChangeRefused",
    "Compacted",
    "DiskFull",
    "Entry",
    "Flow",
    "FrameError",
    "HardState",
    "InvalidSettings",
    "Kind",
    "LogDamaged",
    "LogFailed",
    "Membership",
    "MemoryStorage",
    "Message",
    "Misuse",
    "Node",
    "NotLeader",
    "Overloaded",
    "Partial",
    "ProgressView",
    "RaftError",
    "Read",
    "ReadContext",
    "Ready",
    "Refused",
    "Role",
    "Settings",
    "Snapshot",
    "Statistics",
    "Step",
    "Storage",
    "TooLarge",
    "Transferring",
    "Unavailable",
    "Write",
]
