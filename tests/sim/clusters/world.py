"""One run: nodes form a cluster, things go wrong, all is healed, and everything must be well."""

from random import Random
from typing import TYPE_CHECKING, Final, cast

from corvo.protocol.cluster import ClusterMap, ClusterNode, first_map
from tests.sim.chance import fork
from tests.sim.clusters import ending
from tests.sim.clusters.ledger import Ledger
from tests.sim.clusters.linked import PeerLink
from tests.sim.clusters.machine import Directory, Machine
from tests.sim.clusters.options import Options
from tests.sim.clusters.people import Clients, Operator
from tests.sim.clusters.process import Process
from tests.sim.failures import Stuck
from tests.sim.faults import Nemesis
from tests.sim.network import Network
from tests.sim.options import TICK_NS
from tests.sim.shards.links import Link
from tests.sim.timeline import Report, Timeline

if TYPE_CHECKING:
    from tests.sim.world import World

_WARM_TICKS: Final = 300
_HEAL_TICKS: Final = 1_500
_LOOK_TICKS: Final = 5


class ClusterNemesis(Nemesis):
    """What goes wrong with machines and between them."""

    def __init__(self, world: "ClusterWorld") -> None:
        super().__init__(cast("World", world))  # it has what these faults look at
        self._cluster = world
        self._strikes |= {"links": self._break_links}

    def end(self) -> None:
        """From now on nothing goes wrong, and everything is mended."""
        self._has_ended = True
        self._cluster.network.calm()
        for machine in self._cluster.machines.values():
            machine.slowness = 1
            machine.tick_ns = TICK_NS
            machine.resume()

    def _break_links(self) -> None:
        share = self._dice.choice((0.2, 1.0))
        for link in list(self._cluster.links):
            if self._dice.random() < share:
                link.break_off()


class ClusterWorld(Timeline):
    """Machines, the network between them, and everything that acts upon them."""

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.dice = Random(fork(options.seed, "cluster").getrandbits(64))
        self.ledgers = [Ledger(self, shard) for shard in range(options.shards)]
        self.is_chaos = False
        self.power_loss_share = 0.5 if options.has("power_loss") else 0.0
        self._lives = 0
        self.network = Network(self, self._deliver)
        zones = self.dice.choice((("",), ("",), ("a", "b", "c")))
        self.machines = {
            number: Machine(self, number, zones[number % len(zones)])
            for number in range(1, options.nodes + options.joiners + 1)
        }
        self.first = first_map(
            [
                ClusterNode(number=number, name=f"n{number}", address=f"m{number}:9400")
                for number in range(1, options.nodes + 1)
            ],
            shards=options.shards,
            replicas=3,
        )
        self.clients = Clients(self)
        self.operator = Operator(self)
        self.nemesis = ClusterNemesis(self)

    # What others look at.

    @property
    def hosts(self) -> dict[int, Machine]:
        """Machines, as the faults below know them."""
        return self.machines

    @property
    def newest_map(self) -> ClusterMap:
        """The newest map that any node has."""
        maps = [it.topology.map for it in self.machines.values() if it.is_serving]
        return max(maps, key=lambda known: known.version, default=self.first)

    def machine_at(self, host: str) -> Machine:
        """The machine of an address."""
        return self.machines[int(host.removeprefix("m"))]

    def owner(self, number: int) -> Machine | None:
        """The machine with the directory of a node."""
        for machine in self.machines.values():
            if number and machine.number == number:
                return machine
        return None

    def is_cut(self, one: int, other: int) -> bool:
        """Whether no connection is possible."""
        cut = self.network.cut
        return bool(cut) and ((one, other) in cut or (other, one) in cut)

    def can_ask(self, machine: Machine, other: Machine) -> bool:
        """Whether another node answers a machine."""
        is_cut = self.is_cut(machine.id, other.id)
        return other is not machine and other.is_serving and not other.is_paused and not is_cut

    def any_serving(self, machine: Machine) -> Machine | None:
        """Another node that a machine can ask."""
        found = [other for other in self.machines.values() if self.can_ask(machine, other)]
        return self.dice.choice(found) if found else None

    def anybody(self, random: Random) -> Machine | None:
        """A node that clients can reach."""
        found = [it for it in self.machines.values() if it.is_serving and not it.is_paused]
        return random.choice(found) if found else None

    def concerns(self, link: Link, machine: Machine) -> bool:
        """Whether a connection ends at a machine."""
        assert isinstance(link, PeerLink)
        return machine in (link.source, link.port.machine)

    def leader(self, shard: int) -> Process | None:
        """The leader of a shard, of the highest term."""
        leaders = [
            process
            for machine in self.machines.values()
            if (process := machine.processes.get(shard)) is not None and process.is_leader
        ]
        return max(leaders, key=lambda process: process.replica.node.term, default=None)

    def is_whole(self) -> bool:
        """Whether each shard has all of its replicas, so that one may be lost."""
        if any(it.is_wanted and not it.is_serving for it in self.machines.values()):
            return False
        known = self.newest_map
        for shard, place in enumerate(known.places):
            leader = self.leader(shard)
            if leader is None or len(place) < known.replicas or not known.is_placed:
                return False
            seen = leader.replica.node.statistics()
            group = seen.membership
            if {*group.voters} != {*place} or group.learners or group.outgoing:
                return False
            if any(each.match < seen.commit for each in seen.progress):
                return False
            if group != self.ledgers[shard].newest:
                return False
        return True

    def new_directory(self) -> Directory:
        """An empty one."""
        return Directory(f"{self.dice.getrandbits(64):016x}")

    def next_life(self) -> int:
        """A number for a process that begins."""
        self._lives += 1
        return self._lives

    def _deliver(self, source: int, target: int, frame: bytes, is_damaged: bool) -> None:
        self.note(frame)
        self.machines[target].receive_raft(frame)

    # Phases.

    def run(self) -> Report:
        """The whole life. Raises `Violation`, or what the code under test raises."""
        for number, machine in self.machines.items():
            if number <= self.options.nodes:
                machine.is_wanted = True
                self.later(int(self.dice.random() * 3 * TICK_NS), machine.start)
        self._wait("warm-up", _WARM_TICKS)
        self.is_chaos = True
        self.clients.begin()
        self.operator.begin()
        self.nemesis.begin()
        self.run_until(self.now + self.options.chaos_ticks * TICK_NS)
        self.is_chaos = False
        self.nemesis.end()
        self.operator.end()
        for machine in self.machines.values():
            machine.start()
        self._wait("heal", _HEAL_TICKS)
        ending.check(self)
        for ledger in self.ledgers:
            self.note(b"%d" % ledger.last)
        return self.report()

    def _wait(self, what: str, ticks: int) -> None:
        for _ in range(ticks // _LOOK_TICKS):
            self.run_until(self.now + _LOOK_TICKS * TICK_NS)
            if not ending.missing(self):
                return
        raise Stuck(what, f"{ending.missing(self)}\n{self.describe()}")

    def describe(self) -> str:
        """Where everybody stands, for a report."""
        known = self.newest_map
        removed = [it.number for it in known.removed]
        lines = [f"map {known.version}: {known.places}, removed {removed}"]
        for machine in self.machines.values():
            lines.append(
                f"  machine {machine.id}: node {machine.number}, alive {machine.is_alive}, wanted"
                f" {machine.is_wanted}, refused {machine.refused!r}"
            )
            for shard, process in sorted(machine.processes.items()):
                seen = process.replica.node.statistics()
                lines.append(
                    f"    shard {shard}: {seen.role.value} of {seen.term}, leader {seen.leader},"
                    f" log {seen.first_index} to {seen.last_index}, commit {seen.commit}, applied"
                    f" {seen.applied}, {seen.membership}"
                )
        return "\n".join(lines)
