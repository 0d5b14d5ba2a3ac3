"""Time of a run: a heap of events, and what is noted of them."""

import hashlib
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import msgspec

from tests.sim.failures import Stuck
from tests.sim.options import TICK_NS, Options

if TYPE_CHECKING:
    from tests.sim.shards.links import Link

_EVENTS_MAX: Final = 150_000
"""Fifty times as many as a run has on average: a run with more of them makes no progress."""


class Report(msgspec.Struct, frozen=True):
    """What a run was."""

    seed: int
    trace: str
    """Stands for everything that happened: equal for equal runs."""
    events: int
    simulated_ns: int
    counts: dict[str, int]


class Timeline:
    """What every kind of run has."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.now = 0
        self.events = 0
        self.counts: Counter[str] = Counter()
        self.links: dict[Link, None] = {}
        """Connections that are there, as far as those who opened them know."""
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._trace = hashlib.blake2b(digest_size=16)

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        """Let something happen at a moment, and behind what was asked for earlier."""
        self._sequence += 1
        heappush(self._heap, (time_ns, self._sequence, action))

    def later(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Let something happen after a while."""
        self.at(self.now + delay_ns, action)

    def run_until(self, time_ns: int) -> None:
        """Let everything happen that is due by then."""
        heap = self._heap
        while heap and heap[0][0] <= time_ns:
            self.now, _, action = heappop(heap)
            self.events += 1
            action()
            if self.events > _EVENTS_MAX:
                raise Stuck("storm", self.describe())
        self.now = time_ns

    def wait(self, done: Callable[[], bool], *, ticks: int) -> bool:
        """Let time pass until something is so; False when it was not within `ticks`."""
        for _ in range(ticks):
            if done():
                return True
            self.run_until(self.now + TICK_NS)
        return done()

    def note(self, what: bytes) -> None:
        """Something happened that another run of this seed must repeat."""
        self._trace.update(b"%d %s\n" % (self.now, what))

    def report(self) -> Report:
        """What the run was."""
        return Report(
            self.options.seed,
            self._trace.hexdigest(),
            self.events,
            self.now,
            dict(sorted(self.counts.items())),
        )

    def describe(self) -> str:
        """Where everybody stands, for a report."""
        raise NotImplementedError
