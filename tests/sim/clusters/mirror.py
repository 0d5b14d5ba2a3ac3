"""The mirror of a node: it follows a replica of each shard, and keeps rows in memory.

What it asks and what follows from an answer is decided by `corvo.mirror.follow.position`, which
replica it follows by `corvo.topology.Nearest`; a replica answers by `corvo.shard.pages`.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from corvo.connections import PeerAddress
from corvo.link import LinkLost
from corvo.mirror.follow.position import Position, Request
from corvo.mirror.follow.progress import Cursor, Page
from corvo.protocol import wire
from corvo.shard.pages import begin_page, begin_walk, end_page, end_walk, must_wait
from corvo.topology import Nearest
from tests.sim.options import TICK_NS

if TYPE_CHECKING:
    from tests.sim.clusters.machine import Machine
    from tests.sim.clusters.process import Process

_PAUSE_TICKS: Final = 8
_RETRY_TICKS: Final = 4
_KEYS_MAX: Final = 20


class Rows:
    """The rows of one shard, and the cursor that was written with them."""

    def __init__(self, shard: int) -> None:
        self.cursor = Cursor(shard)
        self.documents: dict[bytes, bytes] = {}

    def write(self, page: Page) -> None:
        """Write a page, as `corvo.mirror.follow.writing` does."""
        if page.scanned is not None:
            after, last = page.scanned
            told = {key for key, _ in page.pairs}
            for key in [key for key in self.documents if after < key and (key <= last or not last)]:
                if key not in told:
                    del self.documents[key]
        for key, data in page.pairs:
            if data is None:
                self.documents.pop(key, None)
            else:
                self.documents[key] = data
        self.cursor = page.cursor


class Follower:
    """Follows one shard."""

    def __init__(self, machine: "Machine", shard: int) -> None:
        self._machine = machine
        self._shard = shard
        self.rows = machine.directory.mirror.setdefault(shard, Rows(shard))
        self._position = Position(self.rows.cursor, keys_max=_KEYS_MAX, scan_keys_max=_KEYS_MAX)
        self._nearest = Nearest(machine.topology, shard)
        self._linked: tuple[Machine, int, Process] | None = None
        machine.do(int(machine.world.dice.random() * TICK_NS), self._turn)

    def _turn(self) -> None:
        """Ask for one page."""
        place = self._machine.topology.map.places[self._shard]
        if self._nearest.last is not None and self._nearest.last.node not in place:
            self._nearest.reached()
            self._linked = None
        process = self._link()
        if process is None:
            self._machine.do(_RETRY_TICKS * TICK_NS, self._turn)
            return
        request = self._position.next_request()
        self._machine.do(self._delay(), partial(self._serve, process, request))

    def _link(self) -> "Process | None":
        """The process that is followed; a new one when the link is lost."""
        if self._linked is not None:
            there, incarnation, process = self._linked
            is_there = there.processes.get(self._shard) is process
            is_cut = self._machine.world.is_cut(self._machine.id, there.id)
            if is_there and there.incarnation == incarnation and not is_cut:
                return process
            self._linked = None
        try:
            route = self._nearest()
        except LinkLost:
            return None
        machine, world = self._machine, self._machine.world
        expected = ""
        there = machine
        if isinstance(route.address, PeerAddress):
            there, expected = world.machine_at(route.address.host), route.address.instance
        found = there.processes.get(self._shard)
        if found is None or there.is_paused or world.is_cut(machine.id, there.id):
            return None
        if not there.welcomes(machine, expected=expected):
            return None
        self._linked = there, there.incarnation, found
        self._nearest.reached()
        self._position.linked()
        world.counts["mirrors linked"] += 1
        return found

    def _delay(self) -> int:
        return self._machine.world.options.latency_ns

    def _serve(self, process: "Process", request: Request) -> None:
        """The replica answers, unless the link was lost meanwhile."""
        if self._link() is not process:
            self._linked = None
            self._machine.do(_RETRY_TICKS * TICK_NS, self._turn)
            return
        answer = answered(process, request)
        if answer is None:  # the answer waits for an entry
            self._machine.do(_PAUSE_TICKS * TICK_NS, partial(self._serve, process, request))
        else:
            self._machine.do(self._delay(), partial(self._take, process, request, answer))

    def _take(self, process: "Process", request: Request, answer: wire.FollowerAnswer) -> None:
        if self._linked is None or self._linked[2] is not process:
            self._turn()
            return
        step = self._position.after(request, answer)
        self.rows.write(step.page)
        self._position.move(step)
        counts = self._machine.world.counts
        counts["mirror resets"] += step.is_pass
        counts["mirror documents"] += len(step.page.pairs)
        self._turn()


def answered(process: "Process", request: Request) -> wire.FollowerAnswer | None:
    """The answer of a replica; None while there is nothing to answer."""
    replica = process.replica
    machine = replica.machine
    if isinstance(request, wire.Scan):
        if must_wait(replica, request):
            return None
        walk = begin_walk(machine, request)
        while not walk.advance():
            pass
        return end_walk(machine, request, walk)
    page = begin_page(replica, request)
    if page is None or isinstance(page, wire.Reset):
        return page
    while not page.advance():
        pass
    return None if page.is_overtaken else end_page(machine, request, page)


class Mirror:
    """Of one life of a node."""

    def __init__(self, machine: "Machine") -> None:
        self.followers = [Follower(machine, shard) for shard in range(machine.world.options.shards)]
