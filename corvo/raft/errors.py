"""Exceptions of the Raft library.

RaftError
├── Misuse              the driver broke the contract: a bug in the driver
├── InvalidSettings     a setting is out of bounds: the message names it
├── Refused             the node is well and says no; nothing was changed
│   ├── NotLeader       ask `leader` instead (None while nobody is known)
│   ├── Transferring    leadership is on its way to another replica
│   ├── Overloaded      too much waits already; try again later
│   ├── TooLarge        one entry can have `entry_bytes_max`, and this has more
│   └── ChangeRefused   this membership change is not possible now, or ever
├── Unavailable         the log does not hold that index (see Compacted)
│   └── Compacted       ... because it was cut off: a snapshot has it
├── FrameError          bytes from a peer are not a message for us
├── LogDamaged          bytes on disk are not what was written
├── LogFailed           a write or sync failed: the process must end
└── DiskFull            there is no room; the log is as it was before
"""


class RaftError(Exception):
    """The root of everything this library raises on purpose."""


class Misuse(RaftError):
    """The driver broke the contract of `Node`."""


class InvalidSettings(RaftError):
    """A setting is out of bounds."""


class Refused(RaftError):
    """The request was not taken; nothing was changed and nothing was sent."""


class NotLeader(Refused):
    """Only the leader takes this; `leader` is who that is, as far as we know."""

    def __init__(self, leader: int | None) -> None:
        known = f"replica {leader} leads" if leader is not None else "no leader is known"
        super().__init__(f"this replica does not lead: {known}")
        self.leader = leader


class Transferring(Refused):
    """The leader is handing over and takes nothing new until that ends."""


class Overloaded(Refused):
    """More waits for the group than a setting, named in the message, allows."""


class TooLarge(Refused):
    """An entry above `entry_bytes_max`: no peer would take the frame it travels in."""


class ChangeRefused(Refused):
    """A membership change that cannot be taken; the message says why."""


class Unavailable(RaftError):
    """The log holds no entry at that index."""


class Compacted(Unavailable):
    """The log was cut at or above that index; only a snapshot has it."""


class FrameError(RaftError):
    """Bytes that are not a message for this replica; `reason` is a stable code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class LogDamaged(RaftError):
    """Bytes on disk are not what was written there.

    The message names file, offset and index, and what was done about it.
    """

    def __init__(self, *, file: str, offset: int, index: int, problem: str, action: str) -> None:
        super().__init__(f"{file} at offset {offset}, index {index}: {problem}; {action}")
        self.file = file
        self.offset = offset
        self.index = index
        self.problem = problem
        self.action = action


class LogFailed(RaftError):
    """A write or sync failed. A disk that lied once is not believed: end the process."""


class DiskFull(RaftError):
    """The disk is full. Nothing of the write is in the log; it may be tried again."""
