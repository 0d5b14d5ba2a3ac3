"""Submissions on their way: gathered into entries, and remembered until these are applied.

What gathers while the disk is busy becomes one entry; nobody waits for a timer. Its size is
bounded, and so is how much may wait at all. An op that was decoded to be checked stays decoded
until it is applied, while not too much waits.

Effects of other shards wait apart from the ops of clients. Each of the two has a share of every
entry and its own bound of what may wait, so that a flood of one does not delay the other.
"""

from collections import deque
from typing import Final

import msgspec

from corvo.protocol.numbers import WAITING_OPS_MAX
from corvo.protocol.ops.base import Op
from corvo.shard.machine import Decoded
from corvo.shard.state.entry import Record, Stamp

ENTRY_OPS_MAX: Final = 512
ENTRY_BYTES_MAX: Final = 1 << 20
"""Ops of one entry, unless a single one is larger."""
ENTRY_EFFECTS_MAX: Final = 256
ENTRY_EFFECTS_BYTES_MAX: Final = 512 << 10
"""Effects of other shards in one entry, unless a single op has more: some twenty milliseconds, in
which ops of clients wait."""
WAITING_BYTES_MAX: Final = 64 << 20
WAITING_EFFECTS_BYTES_MAX: Final = 16 << 20
"""Of the ops with effects that wait. The window of each shard bounds their number."""
DECODED_BYTES_MAX: Final = 4 << 20
"""With more than this waiting, an op that comes is decoded again when it is applied: decoded it may
take several times as much memory as its JSON does."""


class Submission(msgspec.Struct, frozen=True, gc=False):
    """An op that somebody asked for."""

    client: int  # which link it came by; `INTERNAL` for the replica's own
    request: int  # that client's number for it
    record: Record
    op: Op | None = None  # what the record holds, if it is kept
    effects: int = 0  # how many effects of another shard it brings


INTERNAL: Final = 0


class Proposed(msgspec.Struct, frozen=True, gc=False):
    """An entry that was proposed here and whose fate is not known yet."""

    index: int
    term: int
    submissions: tuple[Submission, ...]
    stamp: Stamp
    data: bytes  # the entry as it is in the log

    def decoded(self, data: bytes) -> Decoded | None:
        """What an entry of this index and term holds, unless some op of it was not kept."""
        assert data == self.data, "an index and a term name one entry"
        ops: list[tuple[int, Op]] = []
        for submission in self.submissions:
            if submission.op is None:
                return None
            ops.append((submission.record[0], submission.op))
        return Decoded(self.stamp, ops)


class _Lane:
    """Submissions of one kind that wait."""

    def __init__(self, entry_max: int, entry_bytes_max: int) -> None:
        self.gathered: deque[Submission] = deque()
        self.ops = 0  # gathered, or proposed and not applied
        self.bytes = 0
        self._entry_max = entry_max  # of their share of an entry: ops, or effects
        self._entry_bytes_max = entry_bytes_max

    def next(self) -> list[Submission]:
        """What the next entry would hold of them, in order."""
        chosen: list[Submission] = []
        count = size = 0
        for submission in self.gathered:
            count += submission.effects or 1
            size += len(submission.record[1])
            if chosen and (count > self._entry_max or size > self._entry_bytes_max):
                break
            chosen.append(submission)
        return chosen


class Gathering:
    """Everything submitted and not answered."""

    def __init__(self) -> None:
        self._clients = _Lane(ENTRY_OPS_MAX, ENTRY_BYTES_MAX)
        self._shards = _Lane(ENTRY_EFFECTS_MAX, ENTRY_EFFECTS_BYTES_MAX)
        self._proposed: deque[Proposed] = deque()  # by index; two may have the same one
        self._applied_term = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits: then the applied state is all there is."""
        return not self.waiting

    @property
    def has_gathered(self) -> bool:
        """Whether something waits to be proposed."""
        return bool(self._clients.gathered or self._shards.gathered)

    @property
    def is_full(self) -> bool:
        """Whether no more is taken of clients."""
        lane = self._clients
        return lane.ops >= WAITING_OPS_MAX or lane.bytes >= WAITING_BYTES_MAX

    @property
    def is_full_of_effects(self) -> bool:
        """Whether no more is taken of other shards."""
        return self._shards.bytes >= WAITING_EFFECTS_BYTES_MAX

    @property
    def waiting(self) -> int:
        """How many ops wait."""
        return self._clients.ops + self._shards.ops

    def add(
        self,
        client: int,
        request: int,
        record: Record,
        op: Op | None,
        *,
        effects: int = 0,
        first: bool = False,
    ) -> None:
        """Take in a submission; `first` puts it before all that only gather."""
        lane = self._shards if effects else self._clients
        kept = op if lane.bytes < DECODED_BYTES_MAX else None
        submission = Submission(client, request, record, kept, effects)
        if first:
            lane.gathered.appendleft(submission)
        else:
            lane.gathered.append(submission)
        lane.ops += 1
        lane.bytes += len(record[1])

    def next_entry(self) -> list[Submission]:
        """What the next entry would hold, in order; it stays gathered until `proposed`."""
        return self._clients.next() + self._shards.next()

    def proposed(
        self, submissions: list[Submission], *, index: int, term: int, stamp: Stamp, data: bytes
    ) -> None:
        """The next entry was proposed."""
        for submission in submissions:
            lane = self._shards if submission.effects else self._clients
            taken = lane.gathered.popleft()
            assert taken is submission, "entries are proposed in the order of submission"
        is_behind = not self._proposed or index > self._proposed[-1].index
        self._proposed.append(Proposed(index, term, tuple(submissions), stamp, data))
        if not is_behind:
            # What was proposed in a term before may still come about in another's log: its fate is
            # known when its index is applied, and not when we propose something else for it.
            assert all(proposed.term <= term for proposed in self._proposed)
            self._proposed = deque(sorted(self._proposed, key=lambda proposed: proposed.index))

    def refuse_gathered(self) -> list[Submission]:
        """Give up what was not proposed: it had no effect."""
        given_up = [*self._clients.gathered, *self._shards.gathered]
        self._clients.gathered.clear()
        self._shards.gathered.clear()
        for submission in given_up:
            self._forget(submission)
        return given_up

    def applied(self, *, index: int, term: int) -> tuple[Proposed | None, list[Submission]]:
        """An entry is applied: the same if it was proposed here, and what cannot come about now.

        Only the first is done. The second are lost for certain: the entry took their place, or is
        of a later term. No term is less than the one before it in a log, and what was proposed
        behind the entry in an earlier term can be in no log that has the entry.
        """
        ours: Proposed | None = None
        lost: list[Submission] = []
        while self._proposed and self._proposed[0].index <= index:
            proposed = self._proposed.popleft()
            if proposed.index == index and proposed.term == term:
                ours = proposed
            else:
                lost.extend(proposed.submissions)
            for submission in proposed.submissions:
                self._forget(submission)
        if term > self._applied_term:
            self._applied_term = term
            lost.extend(self._give_up(before_term=term))
        return ours, lost

    def skipped_to(self, index: int) -> list[Submission]:
        """A snapshot took the place of the log up to `index`: nobody knows what became of these."""
        _, unknown = self.applied(index=index, term=0)  # no entry has this term
        return unknown

    def give_up_proposed(self) -> list[Submission]:
        """Wait no longer for what was proposed: it may have its effect later, or never."""
        return self._give_up()

    def _give_up(self, before_term: int | None = None) -> list[Submission]:
        given_up: list[Submission] = []
        kept: deque[Proposed] = deque()
        for proposed in self._proposed:
            if before_term is None or proposed.term < before_term:
                given_up.extend(proposed.submissions)
            else:
                kept.append(proposed)
        self._proposed = kept
        for submission in given_up:
            self._forget(submission)
        return given_up

    def _forget(self, submission: Submission) -> None:
        lane = self._shards if submission.effects else self._clients
        lane.ops -= 1
        lane.bytes -= len(submission.record[1])
