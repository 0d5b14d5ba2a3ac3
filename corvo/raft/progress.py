"""A leader's record of one follower: the entries it has, and how much may be sent to it.

PROBE      we do not know where its log agrees with ours: one append at a time.
REPLICATE  it follows: appends are sent ahead, as many as the window holds.
SNAPSHOT   what it needs is cut off: it pulls a snapshot and gets no appends.
"""

import enum
from collections import deque

import msgspec

from corvo.raft.messages import Snapshot


class Flow(enum.Enum):
    """How appends go to this replica."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Window:
    """Appends under way: bounded by their number and by their bytes."""

    def __init__(self, *, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._under_way: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def size(self) -> int:
        """Bytes under way."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Whether the next append has to wait. One may overshoot the bytes, so that any can go."""
        return len(self._under_way) >= self._messages_max or self._bytes >= self._bytes_max

    def add(self, last_index: int, size: int) -> None:
        """An append up to `last_index` was sent."""
        assert not self.is_full, "nothing is sent into a full window"
        self._under_way.append((last_index, size))
        self._bytes += size

    def free_to(self, index: int) -> None:
        """Everything up to `index` has arrived."""
        while self._under_way and self._under_way[0][0] <= index:
            self._bytes -= self._under_way.popleft()[1]

    def clear(self) -> None:
        """Forget what is under way."""
        self._under_way.clear()
        self._bytes = 0


class ProgressView(msgspec.Struct, frozen=True):
    """One replica as `Node.statistics` shows it."""

    replica: int
    flow: Flow
    match: int
    next: int
    commit: int
    is_paused: bool
    is_active: bool
    is_learner: bool
    messages_in_flight: int
    bytes_in_flight: int
    snapshot_index: int | None


class Progress:
    """A leader's view of one replica."""

    __slots__ = (
        "added_at",
        "commit",
        "flow",
        "is_active",
        "match",
        "next",
        "offered",
        "paused",
        "quiet_ticks",
        "round",
        "sent_commit",
        "wanted",
        "wants_append",
        "window",
    )

    def __init__(self, *, next_index: int, messages_max: int, bytes_max: int) -> None:
        self.match = 0
        self.added_at = 0  # the end of our log when we began to track the replica
        self.next = next_index  # match < next; in REPLICATE all between are under way
        self.flow = Flow.PROBE
        self.window = Window(messages_max=messages_max, bytes_max=bytes_max)
        self.paused = False  # an append waits for an answer: of a probe, or of a full window
        self.wants_append = True  # owed an append even if it is empty
        self.is_active = False  # heard of since the last CheckQuorum
        self.sent_commit = 0  # what we told it is committed
        self.commit = 0  # what it told us it knows as committed
        self.round = 0  # the newest read round it confirmed
        self.offered: Snapshot | None = None  # in SNAPSHOT: what it is pulling
        self.quiet_ticks = 0  # in SNAPSHOT: since it last pulled
        self.wanted: int | None = None  # it asked for a snapshot of at least this index

    @property
    def is_paused(self) -> bool:
        """Whether nothing may be sent now."""
        return self.paused or self.flow is Flow.SNAPSHOT

    @property
    def may_vote(self) -> bool:
        """Whether it follows now, so that it can acknowledge what the group decides."""
        return self.is_active and self.flow is Flow.REPLICATE and self.is_current

    @property
    def is_current(self) -> bool:
        """Whether it holds an entry that is younger than its place in the group.

        An answer that was under way when it was added may be from a directory that is gone.
        """
        return self.match > self.added_at

    def has_installed(self, commit: int) -> bool:
        """Whether it holds what it was offered, if this is what it knows as committed.

        A replica under repair knows of commits that it does not hold, and of no more until it has
        installed a snapshot.
        """
        if self.offered is None or commit < self.offered.index:
            return False
        return self.wanted is None or commit > self.wanted

    @property
    def may_carry_entries(self) -> bool:
        """Whether the next append may hold entries; into a full window only an empty one goes."""
        return self.flow is not Flow.REPLICATE or not self.window.is_full

    def become_probe(self) -> None:
        """Start finding out where the logs agree."""
        self.next = self.match + 1
        self._enter(Flow.PROBE)
        self.wants_append = True

    def probe_from(self, index: int) -> None:
        """The logs should agree up to `index`, which has not been acknowledged: ask."""
        self.become_probe()
        self.next = index + 1
        self.wanted = None

    def become_replicate(self) -> None:
        """The logs agree up to `match`: send ahead."""
        self.next = self.match + 1
        self._enter(Flow.REPLICATE)

    def become_snapshot(self, snapshot: Snapshot) -> None:
        """Wait for the replica to pull `snapshot`."""
        self._enter(Flow.SNAPSHOT)
        self.offered = snapshot

    def _enter(self, flow: Flow) -> None:
        self.flow = flow
        self.offered = None
        self.quiet_ticks = 0
        self.paused = False
        self.sent_commit = min(self.sent_commit, self.next - 1)
        self.window.clear()

    def sent(self, *, last_index: int, count: int, size: int) -> None:
        """An append of `count` entries ending at `last_index` went out."""
        if self.flow is Flow.REPLICATE:
            if count:
                self.next = last_index + 1
                self.window.add(last_index, size)
            self.paused = self.window.is_full
        elif count:
            self.paused = True

    def acked(self, index: int) -> bool:
        """It holds everything up to `index`. False when that is no news."""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        self.paused = False
        return True

    def rejected(self, *, index: int, hint: int) -> bool:
        """It has nothing at `index`; `hint` may agree. False when the answer is an old one."""
        if index <= self.match and (self.match or self.flow is Flow.REPLICATE):
            # Or it has forgotten: asked again at once, it would only say so again. It finds out
            # by the next heartbeat.
            return False
        if self.flow is Flow.REPLICATE:
            self.next = self.match + 1
            return True
        if index != self.next - 1:
            # Probes are sent one at a time, so this answers an earlier one.
            return False
        self.next = max(min(index, hint + 1), self.match + 1)
        self.paused = False
        return True

    def view(self, replica: int, *, is_learner: bool) -> ProgressView:
        """A snapshot for statistics."""
        return ProgressView(
            replica=replica,
            flow=self.flow,
            match=self.match,
            next=self.next,
            commit=self.commit,
            is_paused=self.is_paused,
            is_active=self.is_active,
            is_learner=is_learner,
            messages_in_flight=len(self.window),
            bytes_in_flight=self.window.size,
            snapshot_index=self.offered.index if self.offered else None,
        )
