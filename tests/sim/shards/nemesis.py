"""What goes wrong with links and clocks, beside what goes wrong below."""

from typing import TYPE_CHECKING, Final

from tests.sim.faults import Nemesis
from tests.sim.shards.clock import DRIFT_PPM_MAX

if TYPE_CHECKING:
    from tests.sim.shards.host import ReplicaHost
    from tests.sim.shards.world import ShardWorld

_SECOND: Final = 1_000_000_000
_STEPS_S: Final = (3, 3, 20, 3_600, 90_000, 2 * 86_400, 100 * 365 * 86_400)
"""By how many seconds a wall clock is set wrong."""


class ShardNemesis(Nemesis):
    """Strikes, higher up as well."""

    def __init__(self, world: "ShardWorld") -> None:
        super().__init__(world)
        self._shard = world
        self._strikes |= {
            "links": self._break_links,
            "clock_skew": self._skew,
            "clock_drift": self._drift,
            "clock_jump": self._jump,
            "clock_there_and_back": self._jump_there_and_back,
            "clock_freeze": self._freeze,
            "effects": world.clients.neighbour_ends,
        }

    def end(self) -> None:
        """Machines that stood still go on. No clock is set right: work must go on all the same."""
        super().end()
        for host in self._shard.replicas:
            host.clock.thaw(self._shard.now)

    def _some_replica(self) -> "ReplicaHost":
        return self._shard.host(self._some_host().replica)

    def _break_links(self) -> None:
        """Some connections of clients break."""
        share = self._dice.choice((0.2, 1.0))
        for link in list(self._shard.clients.links):
            if self._dice.random() < share:
                link.break_off()

    def _skew(self) -> None:
        """A wall clock is set a little wrong."""
        by_ns = int((self._dice.random() - 0.5) * 2 * _SECOND)
        self._some_replica().clock.set(self._shard.now, by_ns)

    def _drift(self) -> None:
        """An oscillator runs fast or slow."""
        ppm = self._dice.randrange(-DRIFT_PPM_MAX, DRIFT_PPM_MAX)
        self._some_replica().clock.drift(self._shard.now, ppm)

    def _step_ns(self) -> int:
        return self._dice.choice(_STEPS_S) * self._dice.choice((1, -1)) * _SECOND

    def _jump(self) -> None:
        """A wall clock is set to quite another time; sometimes all of them are."""
        by_ns = self._step_ns()
        hosts = [self._some_replica()]
        if self._dice.random() < 0.4:
            hosts = self._shard.replicas
        for host in hosts:
            host.clock.set(self._shard.now, by_ns)

    def _jump_there_and_back(self) -> None:
        """A wall clock is set to quite another time, and right again a while later."""
        clock, by_ns = self._some_replica().clock, self._step_ns()
        clock.set(self._shard.now, by_ns)
        self._after(self._ticks(), lambda: clock.set(self._shard.now, -by_ns))

    def _freeze(self) -> None:
        """A virtual machine stands still, and its wall clock is set right some time afterwards."""
        host, now = self._some_replica(), self._shard.now
        if not host.is_alive or host.is_paused:
            return
        boots = host.clock.boots
        host.pause()
        host.clock.freeze(now)

        def thaw() -> None:
            if host.clock.boots == boots:
                host.clock.thaw(self._shard.now)
                stood_ns = self._shard.now - now
                self._after(self._ticks(), lambda: host.clock.set(self._shard.now, stood_ns))
            host.resume()

        self._after(self._ticks(), thaw)
