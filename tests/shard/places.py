"""A group whose place in the map changes all the time, while its replicas fail.

`python -m tests.shard.places --lives 500` lives many lives. In each, maps come and arrive late at
some nodes, and clients enqueue jobs, while nodes are cut off, end, and have slow disks. Every step
that a leader takes towards its place is judged. In the end all is well again: the group must become
what the last map says, and have every job that was acknowledged.
"""

import argparse
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType
from typing import Final

import msgspec

from corvo.kv.tables import read_meta
from corvo.protocol import wire
from corvo.protocol.ops.enqueue import Enqueue, EnqueueResults, NewJob
from corvo.raft import Action, Change, Membership, MemoryStorage, Refused
from corvo.shard import replica as user
from corvo.shard.replica import Settings
from corvo.shard.state.tables import JOBS
from tests.shard.replicas import ELECTION_TICKS, Replicas
from tests.sim.bugs import Bug, mutated, source_of
from tests.support.memory import MemoryStates

NODES: Final = tuple(range(1, 8))
LAG_MAX: Final = 5
"""In these lives: so few entries are a lag."""
SETTLED: Final = 2 * ELECTION_TICKS
AGAIN: Final = 6 * ELECTION_TICKS
SETTINGS: Final = Settings(
    grace_ms=0, election_ticks=ELECTION_TICKS, settled_ticks=SETTLED, again_ticks=AGAIN
)
TICKS_TO_END: Final = 100 * ELECTION_TICKS


def bug(name: str, before: str, after: str, seed: int = 1) -> Bug:
    return Bug(name, "membership", before, after, seed, "corvo.shard")


BUGS: Final = (
    bug(
        "removal-before-promotion",
        "    if not all(group.is_ready(replica) for replica in new):\n        return None\n",
        "    new = [replica for replica in new if group.is_ready(replica)]\n",
    ),
    bug("lagging-learner-promoted", "and self.lag <= LAG_MAX", "", 45),
    bug(
        "change-under-way-ignored",
        "not group.may_change or is_joint(group.membership) or not place",
        "not place",
    ),
    bug("leader-removes-itself", "- {*place, group.own})", "- {*place})"),
    bug(
        "unreachable-majority",
        "2 * sum(group.is_active(voter) for voter in voters) > len(voters)",
        "True",
    ),
    bug(
        "surplus-learner-kept",
        "surplus = sorted({*group.membership.learners} - {*place})",
        "surplus: list[int] = []",
    ),
    bug(
        "silent-learner-promoted",
        "return self.is_active and self.follows",
        "return self.follows",
        400,
    ),
    bug("added-as-voter", "[Step(Action.ADD_LEARNER, replica)", "[Step(Action.ADD_VOTER, replica)"),
    bug(
        "handed-over-again-and-again",
        "self._tried_at is not None and self._now - self._tried_at < pause",
        "False",
        20,
    ),
    bug("any-of-the-place-leads", "place if is_leaving else place[:1]", "place"),
    bug(
        "leaving-leader-stays",
        "heirs = place if is_leaving else place[:1]",
        "heirs = place[:1] if not is_leaving else ()",
    ),
    bug(
        "activity-forgotten",
        "self._now - self._ready_at <= self._election_ticks",
        "self._now - self._ready_at <= 1",
    ),
)
"""Each must be found."""
AS_IT_IS: Final = bug("none", "LAG_MAX: Final = 200", f"LAG_MAX: Final = {LAG_MAX}")


@contextmanager
def planted(*bugs: Bug) -> Iterator[None]:
    """Replicas follow the map with these bugs, and with the limit of these lives."""
    source = mutated(AS_IT_IS, source_of(AS_IT_IS))
    for each in bugs:
        source = mutated(each, source)
    module = ModuleType("corvo.shard.membership")
    exec(compile(source, "membership", "exec"), vars(module))  # noqa: S102 -- ours
    names = ("Steering", "Transfer")
    before = {name: getattr(user, name) for name in names}
    for name in names:
        setattr(user, name, getattr(module, name))
    try:
        yield
    finally:
        for name in names:
            setattr(user, name, before[name])


class Wrong(AssertionError):
    """A leader did what it must not."""


class Placed(Replicas):
    """Replicas on some nodes, each with the map that it was given last."""

    def __init__(self, *first: int) -> None:
        self.newest: tuple[int, ...] = first
        self.known: dict[int, tuple[int, ...]] = {}
        self.ticks = 0
        self.transfers: dict[int, int] = {}
        """When each node tried one last, in this life of its process."""
        self.steps = 0
        super().__init__(0, settings=SETTINGS, leads=False)
        self.voters = tuple(sorted(first))
        for node in first:
            self.known[node] = first
            self.add(node)
        self.lead(first[0])

    def add(self, number: int) -> None:
        """A node that was not there before: it waits to be added, unless it is among the first."""
        is_first = number in self.voters and number not in self.storages
        self.storages[number] = MemoryStorage(Membership(voters=self.voters if is_first else ()))
        self.states[number] = MemoryStates(applied=lambda store: read_meta(store).applied)
        self.heard[number] = []
        self.writes[number] = deque()
        self.start(number)

    def start(self, number: int) -> None:
        super().start(number)
        self.transfers.pop(number, None)
        replica = self.replicas[number]
        replica.place = self.known[number]
        change, transfer = replica.change_membership, replica.transfer

        def judged_change(wanted: Change) -> int:
            self.judge_change(number, wanted)
            try:
                return change(wanted)
            except Refused as error:
                raise Wrong(f"the library refuses {wanted}: {error}") from error

        def judged_transfer(heir: int) -> None:
            self.judge_transfer(number, heir)
            transfer(heir)

        setattr(replica, "change_membership", judged_change)  # noqa: B010 -- a method
        setattr(replica, "transfer", judged_transfer)  # noqa: B010

    def stop(self, number: int) -> None:
        """The process of a node ends; what is on its disk stays."""
        del self.replicas[number]
        self.writes[number].clear()

    def tell(self, number: int, place: tuple[int, ...]) -> None:
        """A map arrives at a node."""
        self.known[number] = place
        if number in self.replicas:
            self.replicas[number].place = place
        elif number not in self.storages:
            self.add(number)

    def tick(self, times: int = 1, *numbers: int) -> None:
        for _ in range(times):
            self.ticks += 1
            for number in numbers or tuple(self.replicas):
                self.replicas[number].tick()
            self.settle()

    def tick_until_there(self) -> None:
        """Let time pass until the group is what the newest map says."""
        for _ in range(TICKS_TO_END):
            if self.is_there:
                return
            self.tick()
        raise Wrong(f"{self.leader} does not lead to {self.newest}")

    # What is judged.

    def judge_change(self, number: int, change: Change) -> None:
        node = self.replicas[number].node
        seen = node.statistics()
        before, after = {*seen.membership.voters}, {*seen.membership.voters}
        active = {number, *(each.replica for each in seen.progress if each.is_active)}
        for step in change.steps:
            if step.action is Action.REMOVE:
                after.discard(step.replica)
            elif step.action is Action.ADD_VOTER:
                after.add(step.replica)
                self.judge_lag(number, step.replica)
        if len(after) < min(len(before), len(self.known[number])):
            raise Wrong(f"{before} shrinks to {after}, on the way to {self.known[number]}")
        if number not in after:
            raise Wrong(f"the leader {number} removes itself")
        if 2 * len(after & active) <= len(after):
            raise Wrong(f"of {after} only {active} can be reached")
        self.steps += 1

    def judge_lag(self, leader: int, replica: int) -> None:
        storage = self.storages.get(replica)
        has = 0 if storage is None else storage.last_index
        lag = self.replicas[leader].node.statistics().last_index - has
        if lag > LAG_MAX:
            raise Wrong(f"replica {replica} lacks {lag} entries")

    def judge_transfer(self, number: int, heir: int) -> None:
        self.judge_lag(number, heir)
        place = self.known[number]
        pause = AGAIN if number in place else SETTLED
        last = self.transfers.get(number)
        if last is not None and self.ticks - last < pause:
            raise Wrong(f"{number} hands over again after {self.ticks - last} ticks")
        if heir != place[0] and number in place:
            raise Wrong(f"{heir} is not to lead")
        self.transfers[number] = self.ticks
        self.steps += 1

    # What must be in the end.

    @property
    def leader(self) -> int | None:
        """The leader of the highest term."""
        leaders = [it for it, each in self.replicas.items() if each.node.is_leader]
        return max(leaders, key=lambda it: self.replicas[it].node.term, default=None)

    @property
    def is_there(self) -> bool:
        """Whether the group is what the newest map says."""
        leader = self.leader
        if leader is None or leader != self.newest[0]:
            return False
        told = [self.replicas[member].node.membership for member in self.newest]
        pinned = [msgspec.structs.replace(each, pins=()) for each in told]
        return pinned == [Membership(voters=tuple(sorted(self.newest)))] * len(self.newest)


class Life:
    """One life."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        size = self.random.choice([1, 2, 3, 3, 3, 5])
        self.group = Placed(*self.random.sample(NODES, size))
        self.asked: list[tuple[int, int]] = []
        """Requests that were not answered yet, and whom they were sent to."""
        self.acknowledged: list[str] = []
        self.named = 0

    def run(self) -> None:
        """Live it."""
        acts: dict[Callable[[], None], int] = {
            self.enqueue: 10,
            self.pass_ticks: 10,
            self.new_map: 2,
            self.bring_map: 6,
            self.cut_off: 2,
            self.slow_down: 2,
            self.end_or_start: 2,
            self.heal: 2,
        }
        for _ in range(self.random.randrange(30, 120)):
            [act] = self.random.choices([*acts], [*acts.values()])
            act()
            self.take_answers()
        self.end()

    def enqueue(self) -> None:
        leader = self.group.leader
        if leader is None:
            return
        for _ in range(self.random.choice([1, 1, 3, 20])):
            self.named += 1
            job = NewJob(queue="mail", id=f"j{self.named}")
            self.asked.append((self.group.submit(Enqueue(jobs=[job]), to=leader), leader))
            self.group.settle()

    def take_answers(self) -> None:
        waiting = []
        for request, leader in self.asked:
            answers = self.group.answers(request, of=leader)
            for answer in answers:
                if isinstance(answer, wire.Reply) and not answer.code:
                    made = msgspec.json.decode(answer.body, type=EnqueueResults)
                    self.acknowledged += [job.job_id for job in made.jobs]
            if not answers:
                waiting.append((request, leader))
        self.asked = waiting

    def pass_ticks(self) -> None:
        self.group.tick(self.random.choice([1, 3, ELECTION_TICKS, 3 * ELECTION_TICKS]))

    def new_map(self) -> None:
        place = self.group.newest
        size = self.random.choice([1, 2, 3, 3, 3, 4, 5])
        if self.random.random() < 0.5:  # a node is replaced
            size = len(place)
            kept = self.random.sample(place, size - 1)
            others = [node for node in NODES if node not in place]
            found = [*kept, self.random.choice(others)] if others else [*place]
        else:
            found = self.random.sample(NODES, size)
        self.random.shuffle(found)
        self.group.newest = tuple(found)
        self.bring_map()

    def bring_map(self) -> None:
        """To some node; those that are to be members have it from the beginning."""
        for node in (*self.group.newest, *self.group.storages):
            if node not in self.group.storages or self.random.random() < 0.4:
                self.group.tell(node, self.group.newest)

    def cut_off(self) -> None:
        self.group.cut_off[self.any_node()] = None

    def slow_down(self) -> None:
        self.group.slow[self.any_node()] = None

    def any_node(self) -> int:
        """Any node, and more often one that is about to become a voter."""
        leader = self.group.leader
        learners = self.group.replicas[leader].node.membership.learners if leader else ()
        if learners and self.random.random() < 0.7:
            return self.random.choice(learners)
        return self.random.choice([*self.group.storages])

    def end_or_start(self) -> None:
        node = self.random.choice([*self.group.storages])
        if node in self.group.replicas:
            self.group.stop(node)
        else:
            self.group.start(node)

    def heal(self) -> None:
        self.group.cut_off.clear()
        self.mend_disks()
        for node in self.group.storages:
            if node not in self.group.replicas:
                self.group.start(node)
        self.group.settle()

    def mend_disks(self) -> None:
        self.group.slow.clear()
        for node in self.group.replicas:
            while self.group.writes[node]:
                self.group.store(node)

    def end(self) -> None:
        """All is well again, and the last map is known."""
        self.heal()
        for node in (*self.group.newest, *self.group.storages):
            self.group.tell(node, self.group.newest)
        group = self.group
        group.tick_until_there()
        self.take_answers()
        group.tick(3)
        machines = [group.replicas[member].machine for member in group.newest]
        if len({(machine.applied, machine.digest) for machine in machines}) != 1:
            raise Wrong("the states differ")
        lost = [it for it in self.acknowledged if JOBS.get(machines[0].tx, it) is None]
        if lost:
            raise Wrong(f"{lost} were acknowledged")


def live(seed: int) -> Life:
    """Live the life of a seed. Raises `Wrong`."""
    life = Life(seed)
    try:
        life.run()
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise
    return life


def lives(seeds: range) -> tuple[int, int]:
    """Live them; how many steps were taken, and jobs acknowledged."""
    ended = [live(seed) for seed in seeds]
    steps = sum(life.group.steps for life in ended)
    return steps, sum(len(life.acknowledged) for life in ended)


def found_at(each: Bug, seeds: range) -> int | None:
    """The first life that shows a bug."""
    with planted(each):
        for seed in seeds:
            try:
                live(seed)
            except AssertionError:
                return seed
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lives", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--bugs", action="store_true", help="say which life finds each bug")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.lives)
    if given.bugs:
        for each in BUGS:
            print(f"{each.name:30} {found_at(each, seeds)}")
        return
    with planted():
        steps, jobs = lives(seeds)
    print(f"{given.lives} lives, {steps} steps towards a place, {jobs} jobs acknowledged")


if __name__ == "__main__":
    main()
