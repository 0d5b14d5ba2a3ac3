"""Linearizable reads: proof, fresh for every round, that the leader still leads.

A leader answers a read at its commit index once a majority has answered a heartbeat that was sent
*after* the read arrived. Reads that arrive between two calls of `ready` share one round; a read
that arrives while a round is under way waits for the next, never joins. Rounds are numbered within
a term and travel in heartbeats, so an answer from another round, term or leader can confirm
nothing.
"""

from collections import deque

import msgspec

from corvo.raft.messages import NOBODY, ReadContext


class Asked(msgspec.Struct, frozen=True):
    """One read that waits."""

    context: ReadContext
    asker: int  # the follower to be answered, or NOBODY for this node's own driver
    index: int  # the commit index when it was asked


class ReadRounds:
    """A leader's reads, from being asked to being confirmed."""

    def __init__(self) -> None:
        self._early: list[tuple[ReadContext, int]] = []
        self._gathered: list[Asked] = []
        self._under_way: deque[tuple[int, tuple[Asked, ...]]] = deque()
        self.round = 0  # the newest one started

    def __len__(self) -> int:
        waiting = sum(len(reads) for _, reads in self._under_way)
        return len(self._early) + len(self._gathered) + waiting

    def ask_early(self, context: ReadContext, asker: int) -> None:
        """A read from before the leader's first commit: its index is not known yet."""
        self._early.append((context, asker))

    def release_early(self, index: int) -> None:
        """The leader has committed in its term: the early reads may be asked at `index`."""
        early, self._early = self._early, []
        for context, asker in early:
            self.ask(context, asker, index)

    def ask(self, context: ReadContext, asker: int, index: int) -> None:
        """A read at `index`, to be proven by the next round."""
        self._gathered.append(Asked(context, asker, index))

    @property
    def wants_round(self) -> bool:
        """Whether reads wait for a round to be started."""
        return bool(self._gathered)

    def start_round(self) -> int:
        """Begin a round for everything gathered; its number goes out in heartbeats."""
        self.round += 1
        self._under_way.append((self.round, tuple(self._gathered)))
        self._gathered = []
        return self.round

    def confirm(self, round_: int) -> list[Asked]:
        """A majority has answered `round_`: the reads of it and of those before, in order."""
        confirmed: list[Asked] = []
        while self._under_way and self._under_way[0][0] <= round_:
            confirmed.extend(self._under_way.popleft()[1])
        return confirmed

    def own(self) -> list[ReadContext]:
        """The contexts of this node's own driver: lost when leadership is."""
        waiting = [*self._gathered, *(read for _, reads in self._under_way for read in reads)]
        early = [context for context, asker in self._early if asker == NOBODY]
        return early + [read.context for read in waiting if read.asker == NOBODY]
