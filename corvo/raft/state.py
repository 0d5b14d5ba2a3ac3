"""The state of one replica: the data that `election`, `following` and `replication` work on.

The rule of what may leave when lives here, in `send`: **nothing of a term leaves before the term
and the vote are durable, nothing after a committed change of the membership before that commit is,
and no acknowledgement before the log is.** Whoever sends need not think of it.
"""

import enum
from collections import Counter, deque
from random import Random

import msgspec

from corvo.raft import membership as members
from corvo.raft.log import RaftLog
from corvo.raft.messages import (
    NOBODY,
    AnyMessage,
    AppendResponse,
    Membership,
    ReadContext,
    Snapshot,
    SnapshotChunk,
)
from corvo.raft.progress import Progress
from corvo.raft.quorum import joint_committed
from corvo.raft.reads import ReadRounds
from corvo.raft.ready import Read
from corvo.raft.settings import Settings
from corvo.raft.storage import Storage


class Role(enum.Enum):
    """What a replica is in its term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Incoming(msgspec.Struct):
    """A snapshot that this follower is pulling."""

    snapshot: Snapshot
    received: int  # durable here
    expected: int  # the next offset: what is durable or on its way to the disk
    leader_term: int  # who offers; another term may offer anything anew
    quiet_ticks: int = 0


class Repair(msgspec.Struct):
    """This replica lost what it acknowledged: no vote, no lead, until a leader made it whole.

    Its log was damaged and set aside, or a heartbeat has shown that its directory is an older copy.
    Repair begins with a new term, so every acknowledgement made before is void: no leader of that
    term or a later one counts it. Such a leader was elected without our vote, so its log has
    whatever our old acknowledgements helped to commit. We are whole when we hold, committed,
    everything that could be so in its log when it made its offer.
    """

    goal_term: int = 0
    goal_index: int = 0
    installed: bool = False


class Forwarded(msgspec.Struct):
    """A read that this follower sent on to the leader."""

    context: ReadContext
    quiet_ticks: int = 0


class Leadership:
    """What only a leader has; dropped whole when it stops leading."""

    def __init__(self, *, noop_index: int, pending_change: int) -> None:
        self.progress: dict[int, Progress] = {}
        self.reads = ReadRounds()
        self.noop_index = noop_index  # committed once commit >= this: then the term is established
        self.pending_change = pending_change  # no new change before this index is applied
        self.heir = NOBODY  # leadership is being transferred to
        self.transfer_elapsed = 0
        self.heartbeat_elapsed = 0
        self.heartbeat_due = False
        self.uncommitted: deque[tuple[int, int]] = deque()  # (index, size) of own proposals
        self.uncommitted_bytes = 0
        self.left_at: int | None = None  # the change that removed this leader, applied
        self.snapshot_wanted: int | None = None


class Raft:
    """One replica's state. Plain data and the questions that several modules ask of it."""

    def __init__(self, settings: Settings, storage: Storage, random: Random, applied: int) -> None:
        self.settings = settings
        self.storage = storage
        self.random = random
        self.id = settings.replica
        self.log = RaftLog(storage, applied=applied)
        self.membership = Membership()
        self.role = Role.FOLLOWER
        self.term = storage.hard_state.term
        self.vote = storage.hard_state.vote
        self.leader = NOBODY
        self.durable = storage.hard_state  # what of it is known to be on disk
        self.elapsed = 0  # ticks since we heard a leader, or as one since CheckQuorum
        self.timeout = 0  # drawn anew with every change of role
        self.votes: dict[int, bool] = {}
        self.leadership: Leadership | None = None
        self.incoming: Incoming | None = None
        self.repair: Repair | None = None
        self.repair_is_new = False  # no write has it yet
        self.has_returned = False  # was a member once, with another data directory
        self.instances: dict[int, int] = {}  # first seen; Membership.pins overrule
        self.configs: deque[tuple[int, bytes]] = deque()  # handed out, not yet applied
        self.forwarded: list[Forwarded] = []
        self.next_context = random.getrandbits(61)
        # Outgoing, gathered until the next `ready`.
        self.messages: list[AnyMessage] = []
        self.messages_after_write: list[AnyMessage] = []
        self.chunk: SnapshotChunk | None = None
        self.storing: deque[Incoming] = deque()  # the streams of `chunk` and of chunks under way
        self.install: Snapshot | None = None
        self.reads: list[Read] = []
        self.reads_lost: list[ReadContext] = []
        self.refused: Counter[str] = Counter()

    # Sending.

    def to(self, target: int) -> tuple[int, int, int, int]:
        """What every message to `target` begins with."""
        return self.id, target, self.term, self.settings.instance

    def send(self, message: AnyMessage) -> None:
        """Let `message` go as soon as it may."""
        waits = not self.is_saved
        if isinstance(message, AppendResponse) and not self.log.is_durable:
            waits = True
        (self.messages_after_write if waits else self.messages).append(message)

    # Questions.

    @property
    def is_saved(self) -> bool:
        """Whether term, vote and the commit of the last membership change are on disk."""
        return self.is_vote_saved and self.log.committed_change <= self.durable.commit

    @property
    def is_vote_saved(self) -> bool:
        """Whether term and vote are on disk."""
        return (self.durable.term, self.durable.vote) == (self.term, self.vote)

    @property
    def is_promotable(self) -> bool:
        """Whether this replica may campaign: a voter, with a state and nothing to repair."""
        return (
            self.id in members.voters_of(self.membership)
            and not self.log.is_installing
            and self.repair is None
        )

    @property
    def is_blank(self) -> bool:
        """Whether this replica knows no group yet: its first state comes from a snapshot.

        From the log alone it could not tell who belonged to the group before the first change.
        """
        return not self.membership.voters

    @property
    def has_unapplied_change(self) -> bool:
        """Whether a membership change is committed that is not yet in force here."""
        return self.log.has_config(self.log.applied + 1, self.log.commit)

    @property
    def is_established(self) -> bool:
        """Whether this leader has committed an entry of its own term."""
        leadership = self.leadership
        return leadership is not None and self.log.commit >= leadership.noop_index

    @property
    def in_lease(self) -> bool:
        """Whether a leader was heard so lately that votes for another are out of place."""
        return self.leader != NOBODY and self.elapsed < self.settings.election_ticks

    def instance_of(self, replica: int) -> int:
        """The data directory that speaks for `replica`, or 0 if that is not known."""
        return dict(self.membership.pins).get(replica) or self.instances.get(replica, 0)

    def match_of(self, replica: int) -> int:
        """Up to where `replica` durably holds this leader's log."""
        if replica == self.id:
            return self.log.stable
        assert self.leadership is not None, "only a leader knows what others hold"
        progress = self.leadership.progress.get(replica)
        return progress.match if progress else 0

    def majority_match(self) -> int:
        """What a majority, or both in a joint group, durably holds."""
        return joint_committed(self.membership.voters, self.membership.outgoing, self.match_of)

    def commit_info(self) -> tuple[int, int]:
        """(commit, its term) as vote traffic carries it: may free a voter that missed a commit."""
        commit = self.log.commit
        return (commit, self.log.term(commit)) if commit else (0, 0)

    def new_timeout(self) -> None:
        """Draw the next election timeout."""
        ticks = self.settings.election_ticks
        self.timeout = ticks + self.random.randrange(ticks)
