"""Entries, memberships, snapshots and the messages between replicas, as structs.

Everything here is frozen data. Messages travel as arrays (msgpack, see `codec`), tagged by a number
that is never reused; a field is only ever added at the end, with a default.
"""

import enum
from typing import Final, NewType, TypeAlias

import msgspec

NOBODY: Final = 0
"""No replica: nobody voted for, no leader known. Real ids start at 1."""

ReadContext = NewType("ReadContext", int)
"""Names one attempt to read; never used twice, not even by a retry of the same request."""


class Kind(enum.IntEnum):
    """What an entry carries."""

    NORMAL = 0
    NOOP = 1  # appended by a leader at the start of its term; nothing to apply
    CONFIG = 2  # a `Change` of the membership, encoded by `membership.encode`


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One record of the replicated log."""

    index: int
    term: int
    kind: Kind
    data: bytes

    @property
    def size(self) -> int:
        """What the entry counts for in windows, pages and budgets."""
        return len(self.data)


class HardState(msgspec.Struct, frozen=True, array_like=True):
    """What a replica must remember about elections; one atomic record on disk."""

    term: int = 0
    vote: int = NOBODY
    commit: int = 0
    """At least this much was committed when the record was written. It may be behind, but not
    behind a membership change that this replica let anybody know of."""


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """Who belongs to the group. Every tuple is sorted and free of doubles.

    While `outgoing` is not empty the group is *joint*: elections and commits need a majority of
    `voters` and of `outgoing`.
    """

    voters: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()
    """Outgoing voters that become learners when the joint state is left."""
    auto_leave: bool = False
    pins: tuple[tuple[int, int], ...] = ()
    """(replica, instance): the only data directory that may speak for this replica."""


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The name of one snapshot. Two streams are the same stream only if all of this is equal."""

    index: int
    term: int
    membership: Membership
    size: int = 0
    checksum: bytes = b""  # SHA-256 of the whole stream


class Partial(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot of which the first `received` bytes are safely on this replica's disk."""

    snapshot: Snapshot
    received: int


class Message(msgspec.Struct, frozen=True, array_like=True):
    """What every message carries."""

    source: int
    target: int
    term: int
    instance: int  # the sender's data directory: random, made once (guards against amnesia)


class VoteRequest(Message, frozen=True, array_like=True, tag=1):
    """Asks for a vote; `pre` asks whether asking would succeed and changes nothing."""

    last_index: int
    last_term: int
    pre: bool
    forced: bool
    """Set after a leadership transfer: the present leader wants this, so leases do not count."""
    commit: int = 0
    commit_term: int = 0
    """What the candidate knows as committed: may free a voter that waits for a joint change."""


class VoteResponse(Message, frozen=True, array_like=True, tag=2):
    """Answers a `VoteRequest`. A granted pre-vote carries the term asked for."""

    pre: bool
    granted: bool
    commit: int = 0
    commit_term: int = 0


class AppendRequest(Message, frozen=True, array_like=True, tag=3):
    """Entries that follow (previous_index, previous_term), and how far the leader has committed."""

    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    commit: int


class AppendResponse(Message, frozen=True, array_like=True, tag=4):
    """Answers an `AppendRequest` or an installed snapshot.

    Accepted: everything up to `index` is durable here and as the leader has it. Rejected: there is
    no entry `index` of the term asked for; the hint is the best guess where the logs still agree.
    """

    index: int
    rejected: bool = False
    hint_index: int = 0
    hint_term: int = 0
    commit: int = 0
    wants_snapshot: bool = False
    """This replica cannot go on from a log: it is new, or lost what it once acknowledged. It needs
    a snapshot of `index` or later."""


class Heartbeat(Message, frozen=True, array_like=True, tag=5):
    """Keeps followers calm; `round` numbers the leader's proof that it still leads."""

    commit: int
    round: int
    acknowledged: int = 0
    """The last entry that the target has acknowledged in this term. If the target does not have
    it, its data directory is older than its word."""
    acknowledged_term: int = 0  # of that entry; 0 if the leader's log begins after it
    acknowledged_by: int = 0  # the data directory that acknowledged it; 0 if that is not known


class HeartbeatResponse(Message, frozen=True, array_like=True, tag=6):
    """Echoes the `round` of the heartbeat it answers."""

    round: int
    commit: int = 0


class TimeoutNow(Message, frozen=True, array_like=True, tag=7):
    """The leader hands over: campaign at once."""


class TransferRequest(Message, frozen=True, array_like=True, tag=8):
    """A follower asks the leader to hand over to `heir`."""

    heir: int


class ReadRequest(Message, frozen=True, array_like=True, tag=9):
    """A follower asks the leader for an index that is safe to read at."""

    context: int


class ReadResponse(Message, frozen=True, array_like=True, tag=10):
    """Reading at `index` is linearizable for the attempt named by `context`."""

    context: int
    index: int
    index_term: int = 0


class SnapshotOffer(Message, frozen=True, array_like=True, tag=11):
    """The entries you need are gone; here is what to pull instead."""

    snapshot: Snapshot
    goal: int
    """Nothing is committed beyond it: under repair, a replica has no vote until it holds this."""


class SnapshotPull(Message, frozen=True, array_like=True, tag=12):
    """The follower wants the bytes of that snapshot from `offset` on."""

    snapshot: Snapshot
    offset: int


class SnapshotChunk(Message, frozen=True, array_like=True, tag=13):
    """Bytes of a snapshot; `checksum` is their CRC-32."""

    snapshot: Snapshot
    offset: int
    data: bytes
    checksum: int


AnyMessage: TypeAlias = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | Heartbeat
    | HeartbeatResponse
    | TimeoutNow
    | TransferRequest
    | ReadRequest
    | ReadResponse
    | SnapshotOffer
    | SnapshotPull
    | SnapshotChunk
)
"""Every message, for `match` and for the codec."""
