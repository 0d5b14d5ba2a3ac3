"""What is durable on one replica's disk, as its driver saw it being written.

A shadow learns of puts and syncs from the host and of nothing else, so it can say whether the code
under test tells the truth about its disk. Opening a log after a crash must show what was synced,
and may show, of what was not, any part that was really written.
"""

import msgspec

from corvo.raft import Entry, HardState, Storage, Write
from tests.sim.failures import Violation

_ALL = 1 << 40


class Rebase(msgspec.Struct, frozen=True):
    """The log was cut below an index by its driver."""

    index: int
    term: int


class Shadow:
    """One disk."""

    def __init__(self, replica: int) -> None:
        self.replica = replica
        self.base_index = 0
        self.base_term = 0
        self.entries: list[Entry] = []
        self.hard_state = HardState()
        self.pending: list[Write | Rebase] = []
        self.is_set_aside = False
        """Whether the log was given up as damaged; opening it shows an empty one."""
        self.claimed: Shadow | None = None
        """What was there before the disk was damaged, while that is not mended."""

    @property
    def last_index(self) -> int:
        """The last index that is durable."""
        return self.base_index + len(self.entries)

    @property
    def known(self) -> int:
        """What this replica knows as committed, even after a loss of power."""
        return max(self.base_index, self.hard_state.commit)

    def entry(self, index: int) -> Entry | None:
        """The durable entry, if it is still in the log."""
        at = index - self.base_index - 1
        return self.entries[at] if 0 <= at < len(self.entries) else None

    def holds(self, index: int, term: int) -> bool:
        """Whether the entry of that index and term is durable, in the log or below its base."""
        if index < self.base_index:
            return True
        if index == self.base_index:
            return self.base_term == term
        entry = self.entry(index)
        return entry is not None and entry.term == term

    def held(self, index: int, term: int) -> bool:
        """Whether it is durable, or was before the damage that is being mended."""
        claimed = self.claimed
        return self.holds(index, term) or (claimed is not None and claimed.holds(index, term))

    # What the host does.

    def sync(self) -> list[Entry]:
        """Everything pending is durable now; returns the entries that became so."""
        fresh: list[Entry] = []
        for change in self.pending:
            if isinstance(change, Rebase):
                self._rebase(change.index, change.term)
            else:
                self._carry_out(change)
                fresh += change.entries
        self.pending.clear()
        return fresh

    def _carry_out(self, write: Write) -> None:
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.install is not None:
            self.base_index, self.base_term = write.install.index, write.install.term
            self.entries = []
        if write.entries:
            del self.entries[write.entries[0].index - self.base_index - 1 :]
            self.entries += write.entries

    def _rebase(self, index: int, term: int) -> None:
        del self.entries[: index - self.base_index]
        self.base_index, self.base_term = index, term

    # What a restart shows.

    def compare(self, storage: Storage) -> None:
        """The log was opened: what was synced must be there, and nothing that was never written."""
        self._compare_hard_state(storage.hard_state)
        bases = {self.base_index: self.base_term}
        first_cut = _ALL
        for change in self.pending:
            if isinstance(change, Rebase):
                bases[change.index] = change.term
                continue
            if change.install is not None:
                bases[change.install.index] = change.install.term
                first_cut = 0
            if change.entries:
                first_cut = min(first_cut, change.entries[0].index)
        base = storage.base
        if bases.get(base.index) != base.term:
            raise Violation("log-base", f"{self._who} begins behind {base}, not one of {bases}")
        kept = min(self.last_index, first_cut - 1)
        if storage.last_index < kept:
            raise Violation(
                "synced-entry-lost", f"{self._who} ends at {storage.last_index}, {kept} was synced"
            )
        self._compare_entries(storage, first_cut)

    def _compare_entries(self, storage: Storage, first_cut: int) -> None:
        found = _entries(storage)
        for entry in found:
            known = self.entry(entry.index)
            if entry == known:
                continue
            written = [
                change.entries[entry.index - change.entries[0].index]
                for change in self.pending
                if isinstance(change, Write)
                and change.entries
                and change.entries[0].index <= entry.index <= change.entries[-1].index
            ]
            if known is not None and entry.index < first_cut:
                raise Violation("synced-entry-lost", f"{self._who}: {entry} in place of {known}")
            if entry not in written:
                raise Violation("entry-from-nowhere", f"{self._who}: {entry} was never written")

    def _compare_hard_state(self, found: HardState) -> None:
        synced = self.hard_state
        if found.term < synced.term:
            raise Violation("term-lost", f"{self._who} comes back with {found} after {synced}")
        if found.commit < synced.commit:
            raise Violation("commit-lost", f"{self._who} comes back with {found} after {synced}")
        if (found.term, found.vote) == (synced.term, synced.vote):
            return
        written = [
            (change.hard_state.term, change.hard_state.vote)
            for change in self.pending
            if isinstance(change, Write) and change.hard_state is not None
        ]
        of_entries = any(
            isinstance(change, Write) and any(entry.term == found.term for entry in change.entries)
            for change in self.pending
        )
        if (found.term, found.vote) in written or (of_entries and not found.vote):
            return
        raise Violation("vote-lost", f"{self._who} comes back with {found} after {synced}")

    def adopt(self, storage: Storage) -> None:
        """What was found is what counts from now on; opening has made it durable."""
        self.is_set_aside = False
        self.pending.clear()
        self.base_index, self.base_term = storage.base.index, storage.base.term
        self.entries = _entries(storage)
        self.hard_state = storage.hard_state

    def damaged(self) -> None:
        """The log was set aside; what it held is owed until a peer has mended it."""
        self.is_set_aside = True
        if self.claimed is None:
            claimed = Shadow(self.replica)
            claimed.base_index, claimed.base_term = self.base_index, self.base_term
            claimed.entries = self.entries
            self.claimed = claimed

    def rolled_back(self) -> None:
        """Another disk takes the place of this one: an older copy."""
        self.is_set_aside = True
        self.base_index = self.base_term = 0
        self.entries = []
        self.hard_state = HardState()
        self.pending.clear()

    @property
    def last_term(self) -> int:
        """The term of the last entry that is durable."""
        return self.entries[-1].term if self.entries else self.base_term

    @property
    def _who(self) -> str:
        return f"replica {self.replica}"


def _entries(storage: Storage) -> list[Entry]:
    found: list[Entry] = []
    index = storage.base.index
    while index < storage.last_index:
        found += storage.entries(index + 1, storage.last_index, _ALL)
        index = found[-1].index
    return found
