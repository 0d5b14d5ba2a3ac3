"""The log as the core sees it: what is durable, in `Storage`, and a tail that is not yet.

    base ... applied <= handed <= commit ... stable | written | last
    └──────────── storage ─────────────────────────┘└─── tail ───┘

Every index from `base + 1` to `last` has one entry. Up to `stable` they are durable here. Writes
are under way in the order they were handed out; each claims to make everything up to an index
durable. **A cut lowers the claims of the writes under way.** So an old write that completes after
its entries were replaced, even by entries of the same index and term, marks nothing durable that is
not (the ABA race of asynchronous appends).
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from corvo.raft.errors import Compacted, Misuse, Unavailable
from corvo.raft.messages import Entry, Kind, Snapshot
from corvo.raft.storage import Storage, page


class Claim(msgspec.Struct):
    """A write under way."""

    token: int
    last_index: int
    installs: bool


class RaftLog:
    """Durable entries and an unstable tail under one numbering."""

    def __init__(self, storage: Storage, *, applied: int) -> None:
        self._storage = storage
        self._pending: Snapshot | None = None  # installed in memory, not yet durable
        self._tail: list[Entry] = []
        self._offset = storage.last_index + 1  # the index of the tail's first entry
        self._written = storage.last_index  # the last index handed to a write
        self._claims: deque[Claim] = deque()
        self._changes: deque[int] = deque()  # where membership changes are; see `committed_change`
        self.applied = applied
        self.handed = applied  # handed out to be applied
        self.commit = applied

    # What is where.

    @property
    def base(self) -> Snapshot:
        """Where the log begins."""
        return self._pending or self._storage.base

    @property
    def first_index(self) -> int:
        """The first index that has, or will have, an entry."""
        return self.base.index + 1

    @property
    def last_index(self) -> int:
        """The index of the last entry, or of the base."""
        return self._offset + len(self._tail) - 1

    @property
    def last_term(self) -> int:
        """The term of the last entry, or of the base."""
        return self.term(self.last_index)

    @property
    def stable(self) -> int:
        """Everything up to here is durable on this replica; 0 while a snapshot is installed."""
        return 0 if self._pending else self._offset - 1

    @property
    def is_durable(self) -> bool:
        """Whether nothing of the log waits for the disk."""
        return self._pending is None and not self._tail

    @property
    def is_installing(self) -> bool:
        """Whether a snapshot is on its way to the disk."""
        return self._pending is not None

    def term(self, index: int) -> int:
        """The term at `index`. Raises `Compacted` or `Unavailable`."""
        if index > self.last_index:
            raise Unavailable(f"entry {index} is beyond the end of the log at {self.last_index}")
        if index >= self._offset:
            return self._tail[index - self._offset].term
        if self._pending is None:
            return self._storage.term(index)
        if index == self._pending.index:
            return self._pending.term
        raise Compacted(f"entry {index} is behind the snapshot at {self._pending.index}")

    def matches(self, index: int, term: int) -> bool:
        """Whether the log has an entry of that index and term."""
        try:
            return self.term(index) == term
        except Unavailable:
            return False

    def entries(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Entries `first` to `last`, both included, cut after `bytes_max` but never empty.

        Raises `Compacted` where the log begins behind `first`.
        """
        if first < self.first_index:
            raise Compacted(f"entry {first} is cut off: the log begins at {self.first_index}")
        if not first <= last <= self.last_index:
            raise Unavailable(f"entries {first} to {last} are not in a log up to {self.last_index}")
        if first >= self._offset:
            return page(self._tail, first - self._offset, last + 1 - self._offset, bytes_max)
        durable = self._storage.entries(first, min(last, self._offset - 1), bytes_max)
        reached = durable[-1].index
        if reached < self._offset - 1 or reached == last:
            return durable
        room = bytes_max - sum(entry.size for entry in durable)
        behind = page(self._tail, 0, last + 1 - self._offset, room)
        # A page is never empty, so the first entry behind may be one too many.
        return durable + behind if behind[0].size <= room else durable

    def is_up_to_date(self, *, last_index: int, last_term: int) -> bool:
        """Whether a log ending there has at least what this one has (Raft 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def agreement(self, index: int, term: int) -> tuple[int, int]:
        """The last (index, term) at or below `index` where our term is at most `term`.

        What the other side has there may agree with us; above it cannot. A term we no longer know
        is given as 0.
        """
        index = min(index, self.last_index)
        while True:
            try:
                ours = self.term(index)
            except Unavailable:
                return index, 0
            if ours <= term:
                return index, ours
            index -= 1

    @property
    def committed_change(self) -> int:
        """The last membership change that is committed and may be forgotten, or 0.

        A replica that forgot it could need the votes of replicas that are gone.
        """
        if not self._changes:
            return 0
        return max((index for index in self._changes if index <= self.commit), default=0)

    def remember_changes(self, indexes: Iterable[int]) -> None:
        """Where the durable log has membership changes."""
        self._changes.extend(indexes)

    def change_saved(self, commit: int) -> None:
        """It is durable that everything up to `commit` is committed."""
        while self._changes and self._changes[0] <= commit:
            self._changes.popleft()

    def has_config(self, first: int, last: int) -> bool:
        """Whether a membership change is among these entries."""
        while first <= last:
            found = self.entries(first, last, _SCAN_BYTES)
            if any(entry.kind is Kind.CONFIG for entry in found):
                return True
            first = found[-1].index + 1
        return False

    # Growing and being cut.

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Put `entries` at their indexes; whatever stood there or behind is cut."""
        first = entries[0].index
        assert self.commit < first, "a committed entry is never cut"
        assert first <= self.last_index + 1, "an append leaves no gap"
        if first <= self.last_index:
            self._cut(first)
        self._tail.extend(entries)
        self._changes.extend(entry.index for entry in entries if entry.kind is Kind.CONFIG)

    def _cut(self, first: int) -> None:
        if first >= self._offset:
            del self._tail[first - self._offset :]
        else:
            self._tail.clear()
            self._offset = first
        while self._changes and self._changes[-1] >= first:
            self._changes.pop()
        self._written = min(self._written, first - 1)
        for claim in self._claims:
            claim.last_index = min(claim.last_index, first - 1)

    def merge(self, previous_index: int, entries: tuple[Entry, ...]) -> int:
        """Take over `entries`, which follow an agreed `previous_index`.

        Cuts only at a real conflict: a late, shorter append must not cut what came after it.
        Returns the last index that is now as the sender has it.
        """
        for position, entry in enumerate(entries):
            if not self.matches(entry.index, entry.term):
                self.append(entries[position:])
                break
        return previous_index + len(entries)

    def commit_to(self, index: int) -> bool:
        """Everything up to `index` is committed; beyond our end it is only up to our end."""
        index = min(index, self.last_index)
        if index <= self.commit:
            return False
        self.commit = index
        return True

    def restore(self, snapshot: Snapshot) -> None:
        """The snapshot replaces the log and everything before it."""
        self._pending = snapshot
        self._tail.clear()
        self._offset = snapshot.index + 1
        self._written = snapshot.index
        self._changes.clear()  # the snapshot has the membership
        for claim in self._claims:
            claim.last_index = 0
        self.commit = snapshot.index

    # Writes.

    def take_unwritten(self) -> tuple[Entry, ...]:
        """What no write has yet, to be put into one."""
        entries = tuple(self._tail[self._written + 1 - self._offset :])
        self._written = self.last_index
        return entries

    @property
    def has_unwritten(self) -> bool:
        """Whether `take_unwritten` would give anything."""
        return self._written < self.last_index

    def write_started(self, token: int, *, installs: bool) -> None:
        """A write with everything unwritten was handed out."""
        self._claims.append(Claim(token, self._written, installs))

    def write_done(self, token: int) -> None:
        """The oldest write under way is durable. Raises `Misuse` if that is not `token`."""
        if not self._claims or self._claims[0].token != token:
            raise Misuse(f"write {token} is not the oldest one under way")
        claim = self._claims.popleft()
        if claim.installs:
            assert self._pending is not None, "an install under way keeps its snapshot"
            self.applied = self.handed = self._pending.index
            self._pending = None
        if claim.last_index >= self._offset:
            del self._tail[: claim.last_index + 1 - self._offset]
            self._offset = claim.last_index + 1

    @property
    def writes_under_way(self) -> int:
        """How many writes are not yet reported durable."""
        return len(self._claims)

    # Applying.

    def next_committed(self, bytes_max: int) -> tuple[Entry, ...]:
        """The next page to apply: committed, durable here, and after the last one was applied."""
        last = min(self.commit, self.stable)
        if self.handed > self.applied or self.handed >= last:
            return ()
        entries = tuple(self.entries(self.handed + 1, last, bytes_max))
        self.handed = entries[-1].index
        return entries

    @property
    def has_next_committed(self) -> bool:
        """Whether `next_committed` would give anything."""
        return self.applied == self.handed < min(self.commit, self.stable)

    def applied_to(self, index: int) -> None:
        """The driver has applied everything up to `index`. Raises `Misuse` if it cannot have."""
        if not self.applied < index <= self.handed:
            raise Misuse(
                f"advance to {index}: applied is {self.applied}, handed out is {self.handed}"
            )
        self.applied = index


_SCAN_BYTES = (
    4 << 20
)  # a page of a scan through the log: large enough to be few, small enough to hold
