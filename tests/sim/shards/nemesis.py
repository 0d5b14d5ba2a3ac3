"""What goes wrong with links and clocks, beside what goes wrong below."""

from typing import TYPE_CHECKING, Final

from tests.sim.faults import Nemesis

if TYPE_CHECKING:
    from tests.sim.shards.host import ReplicaHost
    from tests.sim.shards.world import ShardWorld

_SECOND: Final = 1_000_000_000


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
        }

    def end(self) -> None:
        """Clocks are right from now on: as late as the latest that anybody acted upon."""
        super().end()
        world = self._shard
        for host in world.replicas:
            world.book.latest_ns = max(world.book.latest_ns, host.wall_ns)
        for host in world.replicas:
            host.clock.drift(world.now, 0)
            host.clock.jump(world.now, world.book.latest_ns - host.wall_ns)

    def _some_replica(self) -> "ReplicaHost":
        return self._shard.host(self._some_host().replica)

    def _break_links(self) -> None:
        """Some connections of clients break."""
        share = self._dice.choice((0.2, 1.0))
        for link in list(self._shard.clients.links):
            if self._dice.random() < share:
                link.break_off()

    def _skew(self) -> None:
        """A clock is set a little wrong."""
        by_ns = int((self._dice.random() - 0.5) * 2 * _SECOND)
        self._some_replica().clock.jump(self._shard.now, by_ns)

    def _drift(self) -> None:
        """A clock runs fast or slow."""
        self._some_replica().clock.drift(self._shard.now, self._dice.randrange(-50_000, 50_000))

    def _jump(self) -> None:
        """A clock is set to quite another time; sometimes all of them are."""
        seconds = self._dice.choice((3, 3, 20, 3_600, 2 * 86_400))
        by_ns = seconds * _SECOND * self._dice.choice((1, -1))
        hosts = [self._some_replica()]
        if self._dice.random() < 0.4:
            hosts = self._shard.replicas
        for host in hosts:
            host.clock.jump(self._shard.now, by_ns)
