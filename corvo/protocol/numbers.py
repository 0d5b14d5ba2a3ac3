"""Counters of a replica, for metrics: nothing follows from them, and a start resets them.

The replica counts what it agrees on and applies; its driver adds what it measures of disk and
loop. None of this is state: two replicas of one log have counted differently.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from corvo.measures import DISK_S, JOB_S, LAG_S, LATE_S, POWERS, Histogram, ProcessStats, empty
from corvo.model import Run

WAITING_OPS_MAX: Final = 16_384
"""Ops that wait for agreement or to be proposed: at 20,000 a second, less than a second."""
OP_NUMBERS_END: Final = 256
"""No op has so great a number."""


class Upkeep(msgspec.Struct, gc=False):
    """What one kind of upkeep has come to."""

    done: int = 0  # things that it did: jobs promoted, leases ended, and so on
    last_ns: int = 0  # when it did something last


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """A loss of entries that an operator accepted."""

    at: str  # when it was accepted
    known: int  # the last entry that the shard was known to have
    found: int  # the last entry that it had; 0 without a log
    why: str  # what was wrong with its directory


class DiskNumbers(msgspec.Struct, kw_only=True):
    """What the driver sees of its disk."""

    fsync: Histogram = msgspec.field(default_factory=lambda: empty(DISK_S))
    """Seconds from the wish to make the log durable to the end of that."""
    log_bytes: int = 0  # of entries written to the log
    log_bytes_ahead: int = 0  # of those, what was written since the last checkpoint
    room_bytes: int = 0
    disk_bytes: int = 0  # its size; 0 from a process of before this field
    checkpointed: int = 0  # the applied index of the newest checkpoint
    checkpoints: int = 0  # how many were made
    checkpointed_ns: int = 0  # when the last one was made; 0 before the first
    losses: tuple[Loss, ...] = ()  # of entries of the log, the latest last


EFFECTS_STALLED_S: Final = 10.0
"""Effects that wait for so long while none is taken are reported."""


class EffectNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The effects on another shard that wait there or on the way, as the leader sees them."""

    shard: int
    waiting: int
    stalled_s: float  # since when none was taken
    error: str = ""  # why none is taken, if that is known

    @property
    def is_stalled(self) -> bool:
        """Whether they wait for so long that an operator should look."""
        return self.stalled_s >= EFFECTS_STALLED_S


class Counters(msgspec.Struct, kw_only=True):
    """The counters of one replica, from its start on."""

    ops: list[int] = msgspec.field(default_factory=lambda: [0] * OP_NUMBERS_END)
    """By op number, ops submitted to this replica and applied, refused ones included."""
    refused: dict[str, int] = {}  # ops that were refused, by the code of the refusal
    fetches_empty: int = 0
    """Fetches that were answered without a log entry, because there was no work."""
    busy: int = 0  # requests that were rejected because too many waited
    entries: int = 0  # log entries applied, from any client
    leaders: int = 0  # how often a new leader, or the same leader in a new term, became known
    commit: Histogram = msgspec.field(default_factory=lambda: empty(DISK_S))
    """Seconds from the proposal of an entry to its being applied."""
    batch: Histogram = msgspec.field(default_factory=lambda: empty(POWERS))
    """Ops in an entry that was proposed by this replica."""
    upkeep: dict[str, Upkeep] = {}  # by the name of the op
    fired: int = 0  # due times of schedules that created a job
    skipped: dict[str, int] = {}  # due times of schedules that created none, by the reason
    lateness: Histogram = msgspec.field(default_factory=lambda: empty(LATE_S))
    """Seconds from a due time of a schedule, its jitter included, to the entry that created the
    job. Jobs that waited for the end of an earlier one are left out."""
    waited: Histogram = msgspec.field(default_factory=lambda: empty(JOB_S))
    """Seconds from when a job became pending, or came into its queue, to its fetch."""
    ran: Histogram = msgspec.field(default_factory=lambda: empty(JOB_S))
    """Seconds from the fetch of a job to its ack or fail."""
    disk: DiskNumbers = msgspec.field(default_factory=DiskNumbers)
    lag: Histogram = msgspec.field(default_factory=lambda: empty(LAG_S))
    """Seconds by which a tick came too late."""
    stats: ProcessStats = ProcessStats()
    effects: list[EffectNumbers] = []  # by the other shard, if some wait

    def kept_up(self, op: str, done: int, now_ns: int) -> None:
        """Count what an op of upkeep did."""
        upkeep = self.upkeep.setdefault(op, Upkeep())
        upkeep.done += done
        if done:
            upkeep.last_ns = now_ns

    def came(self, run: Run, late_ns: int | None) -> None:
        """Count a due time of a schedule; `late_ns` is None for one that waited."""
        if run.skipped:
            self.skipped[run.skipped] = self.skipped.get(run.skipped, 0) + run.count
            return
        self.fired += 1
        if late_ns is not None:
            self.lateness.observe(max(0, late_ns) / 1e9)


class PeerNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Another replica, as its leader sees it."""

    replica: int
    match: int  # up to where their logs agree for certain
    is_active: bool
    is_learner: bool


class ClockNumbers(msgspec.Struct, frozen=True):
    """The clock of a leader's stamps (`corvo.steered_clock`), at its last reading."""

    course: str
    """`in_step` with the wall clock; `faster` or `slower` until both agree; `ignored`."""
    ahead_ns: int  # wall clock minus this clock
    shown_ns: int  # what the clock showed


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """One replica at one moment, and its counters since its start."""

    replica: int
    role: str
    term: int
    leader: int | None
    commit: int
    applied: int
    first_index: int
    last_index: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    is_repairing: bool
    uncommitted_bytes: int
    reads_waiting: int
    waiting: int  # ops that wait for agreement, or to be proposed
    peers: list[PeerNumbers]
    now_ns: int  # the state's own time
    digest: int  # of every write so far: replicas that have applied as much have the same
    disk_is_full: bool
    counted: Counters
    clock: ClockNumbers | None = None  # of a leader
    missing: int = 0  # jobs that other jobs wait for and that do not exist yet
    schedules: int = 0
    outgoing: tuple[int, ...] = ()
    """While the members are being changed: the voters of before, whose majority is needed too."""
    map_version: int = 0
    """Version of the cluster map that the replica follows; 0 without one."""
    is_changing: bool = False
    """Of a leader: whether it cannot change the members now, mostly because it does so already."""
    snapshot_received: tuple[int, int] | None = None
    """Bytes received, and bytes in all, of a snapshot that is being copied."""


PAGE_QUEUES: Final = 50
"""Queues in one page, unless the query asks for more: they block a shard's loop for some 2 ms."""
PAGE_NUMBERS_MAX: Final = 500
"""Workers in one page, or queues in brief: the same."""
PageLimit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=PAGE_NUMBERS_MAX)]


class QueueNumbers(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One queue."""

    name: str
    counts: tuple[int, ...]  # jobs by the number of their state
    paused: bool
    oldest_ns: int
    """When the first pending job got its place; 0 without one, and in brief."""


class QueuePage(msgspec.Struct, frozen=True):
    """Some queues by name, and the one behind which the next page begins; empty at the end."""

    queues: list[QueueNumbers]
    after: str = ""


COUNTED: Final = (
    "enqueued",
    "fetched",
    "completed",
    "failed",
    "retried",
    "dead",
    "cancelled",
    "expired",
    "lease_expired",
    "duplicate",
)
"""What is counted of each queue, by its place in `QueueCounters.counts`. It grows at its end."""


class QueueCounters(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What happened in one queue, in the entries that this replica proposed and applied."""

    name: str
    counts: tuple[int, ...]


class QueueCountersPage(msgspec.Struct, frozen=True):
    """Some queues by name, and the one behind which the next page begins; empty at the end."""

    queues: list[QueueCounters]
    others: tuple[int, ...] = ()  # of the queues for which the replica has no room, together
    after: str = ""


class WorkerPage(msgspec.Struct, frozen=True):
    """Some workers by id, and the one behind which the next page begins; empty at the end."""

    workers: list[tuple[str, int]]  # and when they were heard of
    after: str = ""
