"""One run: the phases of `tests.sim.world`, and behind the healing everything is worked off."""

from itertools import count
from typing import Final

from corvo.raft import Membership
from tests.sim.failures import Stuck
from tests.sim.host import Host
from tests.sim.options import TICK_NS
from tests.sim.shards.book import Book
from tests.sim.shards.clients import Clients
from tests.sim.shards.history import History
from tests.sim.shards.host import ReplicaHost
from tests.sim.shards.nemesis import ShardNemesis
from tests.sim.shards.options import Options
from tests.sim.shards.times import Times
from tests.sim.timeline import Report
from tests.sim.workload import Workload
from tests.sim.world import World

_FINISHED: Final = ("completed", "dead", "cancelled")
_STANDSTILL: Final = 300
"""Ticks in which something must be finished: leases, grace and delays are a few seconds each."""

_LATE_TICKS: Final = 100
"""Ticks after which no due time may be late that came when there was no leader."""
_LOOKS_EVERY: Final = 10
"""Ticks between two looks of the operator at what waits for somebody's word."""


class ShardWorld(World):
    """Replicas of one shard, their clients, and everything that acts upon them."""

    options: Options
    workload: Clients

    def __init__(self, options: Options) -> None:
        self.is_draining = False
        """Whether clients only finish what there is."""
        self.history = History(self)
        self.times = Times(self)
        super().__init__(options, make_workload=self._make_clients)
        self.book = Book(self, self.clients.queues)
        self.nemesis = ShardNemesis(self)

    def _make_clients(self, _: World) -> Workload:
        return Clients(self)

    def make_host(self, replica: int, first: Membership) -> Host:
        """A machine for a whole replica."""
        return ReplicaHost(self, replica, first)

    @property
    def clients(self) -> Clients:
        """Everybody who asks."""
        return self.workload

    @property
    def replicas(self) -> list[ReplicaHost]:
        """All machines."""
        return [self.host(replica) for replica in self.hosts]

    def host(self, replica: int) -> ReplicaHost:
        """One machine."""
        host = self.hosts[replica]
        assert isinstance(host, ReplicaHost)
        return host

    def _heal(self) -> None:
        super()._heal()
        self._drain()

    def _drain(self) -> None:
        """D4, O5: what can be worked on is, when nothing stands in its way."""
        self.is_draining = True
        least, since = len(self._unfinished()) + 1, 0
        for tick in count():
            left = self._unfinished()
            if not left and not self.clients.is_waiting:
                return
            if len(left) < least:
                least, since = len(left), tick
            if tick > since + _STANDSTILL:
                raise Stuck("D4", f"{len(left)} left, as {left[:5]}\n{self.describe()}")
            if tick % _LOOKS_EVERY == 0:
                self.clients.operator.release_everything(
                    [job_id for job_id, state, _ in left if state == "held"]
                )
                self.clients.scheduler.finish()
            if tick > _LATE_TICKS:
                self.book.timetables.check_lateness()
            self.run_until(self.now + TICK_NS)

    def _unfinished(self) -> list[tuple[str, str, str]]:
        reference = self.book.reference
        jobs = reference.jobs.values()
        left = [(job.id, job.state, job.queue) for job in jobs if job.state not in _FINISHED]
        left += [(job_id, "away", "") for job_id in reference.away]
        left += [(twin.id, "schedule", "") for twin in self.book.timetables.all.values()]
        left += [(f"effect {seq}", "not removed", "") for seq in reference.outbox]
        return left if reference.map.is_placed else [*left, ("cluster map", "not placed", "")]

    def _finish(self) -> Report:
        self.clients.neighbour.check_settled()
        for host in self.replicas:
            if host.is_alive and host.state.applied == self.book.last:
                self.counts["states compared"] += 1
                self.book.compare(host.replica, host.states.store)
        return super()._finish()
