"""Clients that write and read, and what they were told.

A write ends as acknowledged (its entry was applied where it was proposed), as lost (another entry
took its index) or as unknown (the process ended). A read begins with what was acknowledged until
then and may be answered at nothing older.
"""

from typing import TYPE_CHECKING

import msgspec

from corvo.raft import Entry, Node, NotLeader, Overloaded, Read, ReadContext, Transferring
from tests.sim.chance import fork
from tests.sim.options import TICK_NS

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

_PADDING = (0, 0, 5, 40, 40, 700)
"""The last one is more than what a disk writes in one step."""


class Waiting(msgspec.Struct, frozen=True):
    """A write that was taken."""

    term: int
    data: bytes


class Reading(msgspec.Struct, frozen=True):
    """A read that was taken."""

    floor: int
    """What was acknowledged before it began: it must not be answered below that."""
    began: int


class Workload:
    """Every client of a run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = fork(world.options.seed, "workload")
        self._writes: dict[tuple[int, int], Waiting] = {}  # (host, index)
        self._reads: dict[tuple[int, int], Reading] = {}  # (host, context)
        self._number = 0
        self.written_at = 0  # the index of the last write that was acknowledged
        self.readers: dict[int, int] = {}  # reads answered, by host

    def begin(self) -> None:
        """Clients begin to work, and do so until the end."""
        self._world.later(int(self._random.random() * TICK_NS), self._next)

    def _next(self) -> None:
        options, random = self._world.options, self._random
        # Behind the chaos there may be much to catch up with.
        rate = options.writes if self._world.is_chaos else options.writes / 5
        pause = random.expovariate(rate) * TICK_NS
        self._world.later(int(pause) + 1, self._next)
        hosts = self._world.running
        if not hosts:
            return
        leaders = [host for host in hosts if host.is_leader]
        if random.random() < options.reads:
            self.read(random.choice(leaders if leaders and random.random() < 0.5 else hosts))
            return
        host = random.choice(leaders if leaders and random.random() < 0.9 else hosts)
        for _ in range(random.choice((1, 1, 1, 3))):
            self.write(host)

    # Writes.

    def write(self, host: "Host") -> None:
        """One client asks one host to take a value."""
        random = self._random
        self._number += 1
        padding = b"." * random.choice(_PADDING)
        data = b"%d=%d%s" % (random.randrange(8), self._number, padding)

        def propose(node: Node) -> None:
            try:
                index = node.propose(data)
            except (NotLeader, Transferring, Overloaded):
                self._world.counts["writes refused"] += 1
                return
            self._writes[host.replica, index] = Waiting(node.term, data)

        host.call(propose)

    def applied(self, replica: int, entry: Entry) -> None:
        """A host applied an entry: one of its clients may have waited for it."""
        waiting = self._writes.pop((replica, entry.index), None)
        if waiting is None:
            return
        counts = self._world.counts
        if (entry.term, entry.data) != (waiting.term, waiting.data):
            counts["writes lost"] += 1
            return
        counts["writes acknowledged"] += 1
        self.written_at = max(self.written_at, entry.index)
        self._world.oracles.acknowledge(entry.index)

    # Reads.

    def read(self, host: "Host") -> None:
        """One client asks one host to read linearizably."""
        floor = self._world.oracles.floor

        def ask(node: Node) -> None:
            try:
                context = node.read_index()
            except (NotLeader, Overloaded):
                self._world.counts["reads refused"] += 1
                return
            if (host.replica, context) in self._reads:
                raise AssertionError(f"context {context} was given out twice")
            self._reads[host.replica, context] = Reading(floor, self._world.now)
            self._world.oracles.reads.asked(host, host.replica, context)

        host.call(ask)

    def read_done(self, host: "Host", read: Read) -> None:
        """A host has applied as much as a read needs: it is answered now."""
        floor = self._reads.pop((host.replica, read.context)).floor
        self._world.counts["reads checked"] += 1
        self._world.oracles.read(host.replica, index=read.index, floor=floor)
        self._world.oracles.acknowledge(host.state.applied)
        self.readers[host.replica] = self.readers.get(host.replica, 0) + 1

    def read_lost(self, replica: int, context: ReadContext) -> None:
        """A host gives an attempt up."""
        del self._reads[replica, context]
        self._world.counts["reads lost"] += 1

    def oldest_read(self, replicas: list[int]) -> int:
        """When the oldest read at one of these began that is neither answered nor given up."""
        return min(
            (reading.began for (at, _), reading in self._reads.items() if at in replicas),
            default=self._world.now,
        )

    def ended(self, replica: int) -> None:
        """A process ended: nobody will hear from it."""
        for waiting in (self._writes, self._reads):
            for key in [key for key in waiting if key[0] == replica]:
                del waiting[key]
