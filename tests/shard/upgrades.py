"""A group whose nodes are upgraded, and go back, while the cluster map arrives late.

`python -m tests.shard.planted_upgrades --lives 100` lives many lives. There are three builds, each
with an op or a field more than the one before. In each life nodes are restarted with any of them,
announce themselves, are cut off, and get the map late; clients use all ops. A replica must never
get an entry that it cannot decode, unless its node announced a later build and was downgraded
since: then the replica ends. In the end all nodes run the last build: the cluster must use it, and
every job that was acknowledged must be there.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap, ClusterNode, first_map
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.cluster import Announce
from corvo.protocol.ops.enqueue import Enqueue, EnqueueResults, NewJob
from corvo.protocol.ops.queues import Pause, Resume
from corvo.protocol.versions import newest
from corvo.raft import AnyMessage
from corvo.shard.machine import Decoded, decode_entry
from corvo.shard.ops.cluster import RaiseOpVersion
from corvo.shard.replica import Settings
from corvo.shard.state.tables import JOBS
from corvo.shard.upkeep import PLACE_AGAIN_NS
from tests.shard.replicas import ELECTION_TICKS, MS, Replicas

BUILDS: Final = (4, 5, 6)
"""Their op versions."""
LAST: Final = BUILDS[-1]
NODES: Final = (1, 2, 3)
FIRST: Final = first_map(
    [ClusterNode(number=number, name=f"n{number}") for number in NODES], shards=1, replicas=3
)
ROUTER: Final = 1
OF_A_LEADER: Final = 2
"""The links: of a router, and of a shard, for what a leader of another build may propose."""


class Wrong(AssertionError):
    """The cluster did what it must not."""


class TooOld(Exception):
    """A replica got an entry that it cannot decode, after its node was downgraded."""


def needs(op: Op) -> int:
    """What the ops of these lives need, by the table of the three builds."""
    match op:
        case Resume():
            return 5
        case Pause(by=by):
            return 6 if by else 1
        case _:
            return 1


def become() -> None:
    """Let the ops be as new as `needs` says: one op, and one field."""
    Resume.SINCE = 5
    Pause.FIELDS_SINCE = {"by": 6}
    newest.cache_clear()


def restore() -> None:
    """Let them be as they are."""
    del Resume.SINCE, Pause.FIELDS_SINCE
    newest.cache_clear()


class Upgraded(Replicas):
    """Three replicas of shard 0, each with its build and the map that its node has."""

    def __init__(self, builds: dict[int, int]) -> None:
        self.builds = builds
        self.known = dict.fromkeys(NODES, FIRST)
        self.needed = dict.fromkeys(NODES, 0)
        """What the data directory of each node needs."""
        self.refused: list[int] = []
        """Nodes that have ended because they are too old."""
        super().__init__(len(NODES), settings=Settings(grace_ms=0), leads=False)
        for number in NODES:
            self.joined_by_a_shard(number)

    def joined_by_a_shard(self, number: int) -> None:
        self.replicas[number].joined(OF_A_LEADER, is_shard=True)

    def start(self, number: int) -> None:
        self.settings = replace(self.settings, op_version=self.builds[number])
        super().start(number)
        replica = self.replicas[number]
        replica.map = self.known[number]
        apply = replica.machine.apply

        def judged(
            *, index: int, term: int, data: bytes, decoded: Decoded | None = None
        ) -> list[object]:
            self.judge_entry(number, (decoded or decode_entry(data)).ops)
            answers = apply(index=index, term=term, data=data, decoded=decoded)
            self.judge_map(number)
            return [*answers]

        setattr(replica.machine, "apply", judged)  # noqa: B010 -- a method
        propose = replica._propose_own

        def judged_proposal(op: Op, *, first: bool = False) -> None:
            if isinstance(op, RaiseOpVersion) and op.op_version > self.builds[number]:
                raise Wrong(f"build {self.builds[number]} proposes version {op.op_version}")
            propose(op, first=first)

        setattr(replica, "_propose_own", judged_proposal)  # noqa: B010

    # What is judged.

    def judge_entry(self, number: int, ops: object) -> None:
        assert isinstance(ops, (list, tuple))
        build = self.builds[number]
        for _, op in ops:
            if needs(op) > build:
                row = self.stored.node(number)
                if row is None or row.op_version <= build:
                    raise Wrong(f"node {number} of build {build} is given {op}")
                raise TooOld

    def judge_map(self, number: int) -> None:
        known = self.replicas[number].machine.tx.cluster_map
        if known is None:
            return
        is_raised = known.op_version != FIRST.op_version
        if is_raised and any(node.op_version < known.op_version for node in known.nodes):
            raise Wrong(f"a node is older than the cluster: {known}")
        best = self.stored
        if known.version > best.version:
            if known.op_version < best.op_version:
                raise Wrong(f"lowered from {best.op_version} to {known.op_version}")
            self.stored = known

    stored: ClusterMap = FIRST
    """The latest map that a replica has applied."""

    def may_link(self, source: int, target: int) -> bool:
        """Whether two nodes have a link, by the maps that they have now."""
        ours, theirs = self._hello(source), self._hello(target)
        is_linked = not wire.refusal(ours, theirs)
        for near, far in ((source, target), (target, source)):
            if is_linked and self.builds[far] < self.known[near].op_version:
                raise Wrong(f"node {near} is linked to node {far}, which is too old")
        return is_linked

    def _hello(self, number: int) -> wire.Hello:
        build = self.builds[number]
        hello = wire.Hello(
            wire.REPLICA, number, 0, "c", wire.WIRE_VERSION, build, 1, wire.WIRE_OLDEST, 2
        )
        return wire.needing(hello, self.known[number].op_version)

    def settle(self) -> None:
        """Work; a message for which there is no link is lost, and who is too old ends."""
        while True:
            try:
                self._drop_unlinked()
                super().settle()
            except TooOld:
                [number] = [it for it in self.replicas if self.replicas[it].applying is not None]
                self.end(number, is_too_old=True)
            else:
                return

    def _drop_unlinked(self) -> None:
        self.cut = {
            (one, other)
            for one in NODES
            for other in NODES
            if one != other
            if not self.may_link(one, other)
        }

    cut: set[tuple[int, int]]

    def is_lost(self, message: AnyMessage) -> bool:
        return super().is_lost(message) or (message.source, message.target) in self.cut

    # Nodes.

    def end(self, number: int, *, is_too_old: bool = False) -> None:
        """The processes of a node end."""
        del self.replicas[number]
        self.writes[number].clear()
        self.heard[number].clear()
        if is_too_old:
            self.refused.append(number)
            self.needed[number] = max(self.needed[number], self.builds[number] + 1)

    def bring_map(self, number: int) -> None:
        """The latest map arrives at a node."""
        known = self.stored
        if number not in self.replicas or known.version <= self.known[number].version:
            return
        if known.op_version > self.builds[number]:
            self.end(number, is_too_old=True)
            return
        self.needed[number] = max(self.needed[number], known.op_version)
        self.known[number] = self.replicas[number].map = known

    @property
    def leader(self) -> int | None:
        """The leader of the highest term."""
        leaders = [it for it, each in self.replicas.items() if each.node.is_leader]
        return max(leaders, key=lambda it: self.replicas[it].node.term, default=None)


class Life:
    """One life."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        builds = {number: self.random.choice(BUILDS[:2]) for number in NODES}
        self.group = Upgraded(builds)
        self.asked: list[tuple[int, int]] = []
        self.acknowledged: list[str] = []
        self.used: set[int] = set()
        """What ops needed that were carried out."""
        self.announcing: dict[int, int] = {}
        """By request, the node that announces itself."""
        self.pending: dict[int, int] = {}
        self.named = 0
        self.group.replicas[1].node.campaign()
        self.group.settle()
        for number in NODES:
            self.announce(number)

    def run(self) -> None:
        """Live it."""
        acts: dict[Callable[[], None], int] = {
            self.use: 10,
            self.pass_ticks: 8,
            self.bring_map: 8,
            self.restart: 4,
            self.end_one: 1,
            self.announce_any: 2,
            self.propose_as_another_build: 2,
            self.cut_off: 1,
            self.heal: 2,
        }
        for _ in range(self.random.randrange(40, 150)):
            [act] = self.random.choices([*acts], [*acts.values()])
            act()
            self.take_answers()
        self.finish()

    def submit(self, op: Op, *, client: int = ROUTER) -> int | None:
        leader = self.group.leader
        if leader is None:
            return None
        return self.group.submit(op, to=leader, client=client)

    def use(self) -> None:
        self.named += 1
        op = self.random.choice(
            [
                Enqueue(jobs=[NewJob(queue="mail", id=f"j{self.named}")]),
                Pause(queue="mail"),
                Pause(queue="mail", by="ann"),
                Resume(queue="mail"),
            ]
        )
        request, leader = self.submit(op), self.group.leader
        if request is not None and leader is not None:
            self.asked.append((request, leader))
            self.pending[request] = needs(op)
        self.settle_perhaps()

    def settle_perhaps(self) -> None:
        if self.random.random() < 0.7:
            self.group.settle()

    def take_answers(self) -> None:
        waiting = []
        for request, leader in self.asked:
            answers = (
                self.group.answers(request, of=leader) if leader in self.group.replicas else []
            )
            for answer in answers:
                if not isinstance(answer, wire.Reply):
                    continue
                if request in self.announcing:
                    self.announced(self.announcing[request], answer)
                elif not answer.code:
                    self.used.add(self.pending[request])
                    if answer.body.startswith(b'{"jobs"'):
                        made = msgspec.json.decode(answer.body, type=EnqueueResults)
                        self.acknowledged += [job.job_id for job in made.jobs]
            if not answers:
                waiting.append((request, leader))
        self.asked = waiting

    def announced(self, number: int, answer: wire.Reply) -> None:
        if answer.code == "older_release" and number in self.group.replicas:
            needed = self.group.stored.op_version
            if self.group.builds[number] < needed:
                self.group.end(number, is_too_old=True)

    def announce(self, number: int) -> None:
        """A node announces itself to the leader, if it has a link to that."""
        leader = self.group.leader
        if number not in self.group.replicas or leader is None:
            return
        if number != leader and not self.group.may_link(number, leader):
            return
        op = Announce(
            name=f"n{number}",
            instance=f"dir-{number}",
            number=number,
            op_version=self.group.builds[number],
            first=FIRST,
        )
        request = self.submit(op)
        assert request is not None
        self.asked.append((request, leader))
        self.announcing[request] = number
        self.settle_perhaps()

    def announce_any(self) -> None:
        self.announce(self.random.choice(NODES))

    def propose_as_another_build(self) -> None:
        """A leader of a build that looks at the nodes in another way."""
        known = self.group.stored
        op = RaiseOpVersion(base=max(1, known.version), op_version=self.random.choice(BUILDS))
        self.submit(op, client=OF_A_LEADER)
        self.settle_perhaps()

    def pass_ticks(self) -> None:
        self.group.now_ns += self.random.choice([1, 300, 1_200]) * MS
        self.group.tick(self.random.choice([1, 3, ELECTION_TICKS, 3 * ELECTION_TICKS]))

    def bring_map(self) -> None:
        self.group.bring_map(self.random.choice(NODES))

    def restart(self) -> None:
        """With any build; what its directory and the others say is found out at its start."""
        number = self.random.choice(NODES)
        if number in self.group.replicas:
            self.group.end(number)
        [build] = self.random.choices(BUILDS, (1, 2, 4))
        self.start(number, build)
        if self.random.random() < 0.9:
            self.announce(number)

    def start(self, number: int, build: int) -> None:
        group = self.group
        if build < group.needed[number]:
            return
        before, group.builds[number] = group.builds[number], build
        others = [it for it in group.replicas if it != number and it not in group.cut_off]
        if any(build < group.known[other].op_version for other in others):
            group.builds[number] = before
            return
        group.start(number)
        group.joined_by_a_shard(number)
        group.settle()

    def end_one(self) -> None:
        number = self.random.choice(NODES)
        if number in self.group.replicas:
            self.group.end(number)

    def cut_off(self) -> None:
        self.group.cut_off[self.random.choice(NODES)] = None

    def heal(self) -> None:
        self.group.cut_off.clear()
        for number in NODES:
            if number not in self.group.replicas:
                self.start(number, max(self.group.needed[number], self.group.builds[number]))
        self.group.settle()

    def finish(self) -> None:
        """All nodes run the last build, and all is well."""
        group = self.group
        group.cut_off.clear()
        for number in NODES:
            if number in group.replicas:
                group.end(number)
        for number in NODES:
            self.start(number, LAST)
        for _ in range(20):
            group.tick(ELECTION_TICKS)
            group.now_ns += PLACE_AGAIN_NS
            for number in NODES:
                if (group.stored.node(number) or NO_NODE).op_version < LAST:
                    self.announce(number)
            group.settle()
            self.take_answers()
            for number in NODES:
                group.bring_map(number)
        self.check()

    def check(self) -> None:
        group = self.group
        if group.stored.op_version != LAST:
            raise Wrong(f"all nodes are upgraded, and the cluster is not: {group.stored}")
        leader = group.leader
        assert leader is not None
        for op in (Resume(queue="mail"), Pause(queue="mail", by="ann")):
            answer = group.do(op, to=leader)
            if not isinstance(answer, wire.Reply) or answer.code:
                raise Wrong(f"{op} is not carried out: {answer}")
        group.tick(3)
        machines = [each.machine for each in group.replicas.values()]
        if len({(machine.applied, machine.digest) for machine in machines}) != 1:
            raise Wrong("the states differ")
        lost = [it for it in self.acknowledged if JOBS.get(machines[0].tx, it) is None]
        if lost:
            raise Wrong(f"{lost} were acknowledged")


NO_NODE: Final = ClusterNode(number=1, name="none")


def live(seed: int) -> Life:
    """Live the life of a seed. Raises `AssertionError`."""
    become()
    try:
        life = Life(seed)
        life.run()
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        restore()
    return life


def run(first: int, count: int) -> int:
    """Live so many lives, and say what came of it; 1 when one is wrong."""
    refused = jobs = raised = 0
    for seed in range(first, first + count):
        try:
            life = live(seed)
        except AssertionError as error:
            print(f"life {seed}: {str(error)[:300]}")
            return 1
        refused += len(life.group.refused)
        jobs += len(life.acknowledged)
        raised += life.used >= {1, 5, 6}
    print(
        f"{count} lives, {jobs} jobs, {refused} nodes refused, {raised} used all ops on their way"
    )
    return 0
