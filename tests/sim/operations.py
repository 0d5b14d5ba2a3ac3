"""Whoever runs the group: changes who belongs to it, hands leadership over, calls elections."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from corvo.raft import LEAVE, Action, Change, Node, Refused, Step
from corvo.raft import membership as members
from tests.sim.chance import fork
from tests.sim.groups import everybody, following, is_quorum
from tests.sim.options import TICK_NS

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World


class Operator:
    """Asks for one thing at a time; refusals are answers."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._has_ended = False
        self._newest_change = 0
        self._change = fork(world.options.seed, "change")
        self._retire = fork(world.options.seed, "retire")
        self._transfer = fork(world.options.seed, "transfer")
        self._campaign = fork(world.options.seed, "campaign")

    def begin(self) -> None:
        """Start with what this run's options ask for."""
        options = self._world.options
        if options.has("change"):
            self._later(self._next_change, self._change.expovariate(2 / options.calm))
        if options.has("retire"):
            self._later(self._next_retirement, self._retire.expovariate(2 / options.calm))
        if options.has("transfer"):
            self._later(self._next_transfer, self._transfer.expovariate(1 / options.calm))
        if options.has("campaign"):
            self._later(self._next_campaign, self._campaign.expovariate(1 / options.calm))

    @property
    def has_open_change(self) -> bool:
        """Whether a change was asked for of which nobody has heard the end."""
        return self._newest_change > len(self._world.oracles.log)

    def end(self) -> None:
        """Begin nothing new. A joint state that is not left by itself still is to be left."""
        self._has_ended = True
        if self._world.options.has("change"):
            self._later(self._leave, 1)

    def _later(self, what: Callable[[], None], ticks: float) -> None:
        self._world.later(int(ticks * TICK_NS) + 1, what)

    def _leaders(self) -> list["Host"]:
        return [host for host in self._world.running if host.is_leader]

    # Changes.

    def _next_change(self) -> None:
        if self._has_ended:
            return
        random = self._change
        self._later(self._next_change, random.expovariate(2 / self._world.options.calm))
        for host in self._leaders():
            if host.node.membership.outgoing:
                if random.random() < 0.5:
                    self._propose(host, LEAVE)
            else:
                change, force = self._draw(host), random.random() < 0.1
                self._propose(host, change, force=force)

    def _next_retirement(self) -> None:
        """Shut down for good who was removed, once a majority of the others has seen to it."""
        if self._has_ended:
            return
        self._later(self._next_retirement, self._retire.expovariate(2 / self._world.options.calm))
        hosts, group = self._world.hosts, self._world.oracles.groups.newest
        agreed = [
            host.replica
            for host in self._world.running
            if host.node.membership == group and not host.is_paused
        ]
        if group.outgoing or self.has_open_change:
            return
        if not is_quorum(group, lambda voter: voter in agreed):
            return
        for replica in agreed:
            if replica not in everybody(group) and not hosts[replica].is_leader:
                hosts[replica].is_retired = True
                hosts[replica].end(power_loss=False)
                self._world.counts["replicas retired"] += 1

    def _is_wise(self, node: Node, change: Change) -> bool:
        """Whether the group could go on by those who are whole. No promise covers anything else."""
        voters = following(node.membership, members.encode(change)).voters
        unwell = self._world.unwell
        return not unwell or 2 * sum(1 for voter in voters if voter not in unwell) > len(voters)

    def _is_possible(self, change: Change) -> bool:
        """Whether nobody is added who was shut down for good since the change was drawn."""
        return not any(
            step.action is not Action.REMOVE and self._world.hosts[step.replica].is_retired
            for step in change.steps
        )

    def _leave(self) -> None:
        self._later(self._leave, 3)
        for host in self._leaders():
            if host.node.membership.outgoing:
                self._propose(host, LEAVE)

    def _propose(self, host: "Host", change: Change, *, force: bool = False) -> None:
        counts = self._world.counts

        def propose(node: Node) -> None:
            # Asked here, since the host may have been paused until now.
            if change.steps and not (self._is_wise(node, change) and self._is_possible(change)):
                return
            try:
                index = node.propose_change(change, force=force)
            except Refused:
                counts["changes refused"] += 1
            else:
                counts["changes proposed"] += 1
                self._newest_change = max(self._newest_change, index)

        host.call(propose)

    def _draw(self, host: "Host") -> Change:
        """One to three steps among every replica there is."""
        random = self._change
        group = host.node.membership
        ids = [replica for replica, one in self._world.hosts.items() if not one.is_retired]
        count = min(len(ids), random.choice((1, 1, 1, 2, 2, 3)))
        steps = tuple(
            self._draw_step(replica, group.voters, group.learners)
            for replica in random.sample(ids, count)
        )
        return Change(steps, auto=random.random() < 0.7)

    def _draw_step(self, replica: int, voters: tuple[int, ...], learners: tuple[int, ...]) -> Step:
        random = self._change
        if self._world.hosts[replica].is_wiped:
            # Its name is burnt; it may only leave.
            return Step(Action.REMOVE, replica)
        instance = self._world.instance_of(replica)
        if replica in voters:
            leaves = random.random() < 0.7
            return Step(Action.REMOVE if leaves else Action.ADD_LEARNER, replica, instance)
        if replica in learners:
            return Step(random.choice((Action.ADD_VOTER, Action.REMOVE)), replica, instance)
        return Step(random.choice((Action.ADD_LEARNER, Action.ADD_VOTER)), replica, instance)

    # Leadership.

    def _next_transfer(self) -> None:
        if self._has_ended:
            return
        random = self._transfer
        self._later(self._next_transfer, random.expovariate(2 / self._world.options.calm))
        hosts = self._world.running
        if not hosts:
            return
        asked = random.choice(self._leaders() or hosts if random.random() < 0.8 else hosts)
        heir = random.choice(list(self._world.hosts))
        counts = self._world.counts

        def transfer(node: Node) -> None:
            asked.contact.transfer_asked()
            try:
                node.transfer(heir)
            except Refused:
                counts["transfers refused"] += 1
            else:
                counts["transfers"] += 1

        asked.call(transfer)

    def _next_campaign(self) -> None:
        if self._has_ended:
            return
        random = self._campaign
        self._later(self._next_campaign, random.expovariate(1 / self._world.options.calm))
        hosts = self._world.running
        if not hosts:
            return
        host = random.choice(hosts)
        self._world.counts["campaigns asked for"] += 1
        host.call(Node.campaign if random.random() < 0.7 else Node.forget_leader)
