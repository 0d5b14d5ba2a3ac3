"""One run: time, the heap of events, and the phases.

The phases follow one another:

    warm-up   nothing goes wrong; a leader must be elected and something committed
    chaos     faults strike; clients and the operator work; every rule is checked at every event
    heal      everything is well again: within a bound, everybody must have caught up
    calm      nothing may change any more

Then come the last checks, and the report.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from corvo.raft import Membership
from tests.sim.failures import Stuck
from tests.sim.faults import Nemesis
from tests.sim.groups import everybody
from tests.sim.host import Host
from tests.sim.machine import MakeMachine, Registers
from tests.sim.network import Network
from tests.sim.operations import Operator
from tests.sim.options import TICK_NS, Options
from tests.sim.oracles import Oracles
from tests.sim.timeline import Report, Timeline
from tests.sim.workload import Workload

_TRIES_EVERY: Final = 3
"""Ticks between two questions of those who wait for the group to be whole."""

_PATIENCE_MAX: Final = 4_000
"""Ticks. Whatever takes longer is as good as stuck."""


class World(Timeline):
    """Hosts, the network between them, and everything that acts upon them."""

    def __init__(
        self,
        options: Options,
        make_machine: MakeMachine = Registers,
        make_workload: "Callable[[World], Workload]" = Workload,
    ) -> None:
        super().__init__(options)
        self.make_machine = make_machine
        self._echoes_end = 0
        self._looks = 0
        voters = tuple(range(1, options.voters + 1))
        first = Membership(
            voters=voters, pins=tuple((voter, self.instance_of(voter)) for voter in voters)
        )
        self.oracles = Oracles(first)
        self.network = Network(self, self.deliver)
        self.workload = make_workload(self)
        spares = range(options.voters + 1, options.voters + options.spares + 1)
        self.hosts = {voter: self.make_host(voter, first) for voter in voters}
        if options.has("change"):
            self.hosts |= {spare: self.make_host(spare, Membership()) for spare in spares}
        self.is_chaos = False
        self.nemesis = Nemesis(self)
        self.operator = Operator(self)

    def make_host(self, replica: int, first: Membership) -> Host:
        """A machine, and what it is told about the group before its disk knows more."""
        return Host(self, replica, first)

    def instance_of(self, replica: int) -> int:
        """The data directory of a replica."""
        return 1000 + replica

    @property
    def power_loss_share(self) -> float:
        """How many of the crashes take the machine along."""
        return 0.5 if self.options.has("power_loss") else 0.0

    @property
    def running(self) -> list[Host]:
        """Hosts that can be spoken to; one that is paused will hear it later."""
        return [host for host in self.hosts.values() if host.is_alive]

    @property
    def unwell(self) -> list[int]:
        """Replicas that lost what they had acknowledged, and are not mended."""
        return [
            replica
            for replica, host in self.hosts.items()
            if host.is_damaged or host.is_mending or host.is_wiped or host.is_behind_its_word
        ]

    def gather(self, refused: Counter[str]) -> None:
        """A node's life is over: keep what it counted."""
        for reason, count in refused.items():
            self.counts[f"refused {reason}"] += count

    def deliver(self, source: int, target: int, frame: bytes, is_damaged: bool) -> None:
        """A frame comes to where it was sent."""
        self.note(frame)
        host = self.hosts.get(target)
        if host is not None:
            host.receive(source, frame, is_damaged)

    # Phases.

    def run(self) -> Report:
        """The whole life. Raises `Violation`, or whatever the code under test raises."""
        for host in self.hosts.values():
            host.start()
        self._warm_up()
        self.is_chaos = True
        self.nemesis.begin()
        self.operator.begin()
        self.run_until(self.now + self.options.chaos_ticks * TICK_NS)
        self._heal()
        self._calm()
        return self._finish()

    def _warm_up(self) -> None:
        """Wait until a write is acknowledged: of a client, or of ours where clients only read."""
        patience = self.patience()
        self.workload.begin()
        if not self.wait(self._is_written, ticks=patience) and not self.wait(
            self._is_written_by_us, ticks=patience
        ):
            raise Stuck("warm-up", f"a healthy group commits nothing: {self.describe()}")

    def _is_written(self) -> bool:
        return self.workload.written_at > 0

    def _is_written_by_us(self) -> bool:
        """Whether a write was acknowledged. Where none was, every leader gets one now and then."""
        self._looks += 1
        if self._looks % _TRIES_EVERY == 0:
            for host in self.hosts.values():
                if host.is_leader:
                    self.workload.write(host)
        return self._is_written()

    def patience(self) -> int:
        """Ticks within which a healthy group does what it must."""
        slow = 2 * self.options.latency_ns + 4 * self.options.disk_ns
        log = max(host.storage.last_index for host in self.hosts.values() if host.is_alive)
        needed = 100 * self.options.limits.election_ticks + (200 + 4 * log) * slow // TICK_NS
        return min(needed, _PATIENCE_MAX)

    def _heal(self) -> None:
        election_ticks = self.options.limits.election_ticks
        self.nemesis.end()
        self.operator.end()
        self.is_chaos = False
        # What is still under way from the chaos may call one more election.
        self._echoes_end = self.network.empty_at + election_ticks * 2 * TICK_NS
        for host in self.hosts.values():
            host.start()
        self.workload.readers.clear()
        floor = self.oracles.committed
        if not self.wait(lambda: self._is_well(floor), ticks=self.patience()):
            raise Stuck("heal", self.describe())

    def _is_well(self, floor: int) -> bool:
        """Whether the group is whole. Where it is not, somebody tries to write or to read."""
        self._looks += 1
        tries = self._looks % _TRIES_EVERY == 0
        group = self.oracles.groups.newest
        leaders = [host for host in self.hosts.values() if host.is_leader]
        if len(leaders) != 1 or leaders[0].replica not in group.voters:
            return False
        members = [
            self.hosts[replica] for replica in everybody(group) if not self.hosts[replica].is_wiped
        ]
        if self.workload.written_at <= floor:
            if tries:
                self.workload.write(leaders[0])
            return False
        silent = [host for host in members if not self.workload.readers.get(host.replica)]
        for host in silent if tries else ():
            self.workload.read(host)
        target = self.workload.written_at
        return (
            not silent
            and not group.outgoing
            and all(
                host.is_alive and host.state.applied >= target and not host.node.is_repairing
                for host in members
            )
        )

    def _calm(self) -> None:
        """A group that is well stays as it is: nobody may unseat its leader."""
        began = self.now
        self.run_until(max(self.now, self._echoes_end))
        terms = [host.leading_term for host in self.hosts.values() if host.is_leader]
        self.run_until(self.now + 4 * self.options.limits.election_ticks * TICK_NS)
        after = [host.leading_term for host in self.hosts.values() if host.is_leader]
        if len(terms) != 1 or terms != after:
            raise Stuck("unseated", f"led in {terms}, then in {after}, and nothing went wrong")
        if self.workload.oldest_read(everybody(self.oracles.groups.newest)) < began:
            raise Stuck("read-forgotten", "a read was neither answered nor given up")

    def _finish(self) -> Report:
        for host in self.hosts.values():
            if host.is_alive:
                self.oracles.refused(host.replica, dict(host.raft.refused))
                self.gather(host.raft.refused)
                self.note(b"%d %d %d" % (host.replica, host.state.applied, host.state.digest))
        self.counts["elections"] = self.oracles.elections
        self.counts["commits"] = self.oracles.committed
        return self.report()

    def describe(self) -> str:
        """Where everybody stands, for a report."""
        lines = [f"committed {self.oracles.committed}, {self.oracles.groups.newest}"]
        for host in self.hosts.values():
            if not host.is_alive:
                lines.append(f"  {host.replica}: down")
                continue
            seen = host.node.statistics()
            lines.append(
                f"  {host.replica}: {seen.role.value} of {seen.term}, leader {seen.leader}"
                f"{', repairing' if seen.is_repairing else ''}, pulls {seen.snapshot_received},"
                f" log {seen.first_index} to {seen.last_index}, stable {seen.stable},"
                f" commit {seen.commit}, applied {seen.applied}, {seen.membership}"
            )
            lines += [f"      {progress}" for progress in seen.progress]
        return "\n".join(lines)
