"""The nemesis: it draws a plan of faults from a seed, and makes them in a running cluster.

The plan is drawn before the run, so a run can be repeated with some of its faults. The target of a
fault is chosen when its time comes, by random numbers of its own: leaders are not known before.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

import msgspec
import trio

from chaos.cluster.node import Node
from chaos.cluster.running import Cluster, NotReady
from chaos.faults.fault import Case, Fault, Ground, Harm
from chaos.history import Fault as Record
from chaos.recording import Recorder, now_ns
from chaos.report import Lead

GAP_S: Final = 0.8
"""Mean time from one fault to the next."""
OVERLAP: Final = 3
"""Faults that last at the same time, at most."""
AHEAD: Final = 12
"""Faults of the plan that are tried when the next one cannot be made yet."""
OVERTAKEN: Final = 4
"""How often a fault of the plan lets later ones go first, at most."""
_HEALING_S: Final = 120.0
_LOOK_S: Final = 0.5


class Planned(msgspec.Struct, frozen=True):
    """A fault of a plan."""

    n: int
    gap_s: float
    """Time from its start to that of the next fault, at least."""
    name: str
    seconds: float


def plan(
    seed: str, seconds: float, faults: Collection[Fault], gap_s: float = GAP_S
) -> list[Planned]:
    """The faults of a run of so many seconds, if all of them follow each other without a wait."""
    random = Random(f"{seed} plan")
    choice = sorted(faults, key=lambda fault: fault.name)
    weights = [fault.weight for fault in choice]
    made: list[Planned] = []
    passed_s = 0.0
    while choice:
        gap = random.expovariate(1 / gap_s)
        passed_s += gap
        if passed_s >= seconds:
            break
        (fault,) = random.choices(choice, weights)
        lasts_s = random.uniform(*fault.seconds)
        made.append(Planned(len(made) + 1, round(gap, 2), fault.name, round(lasts_s, 2)))
    return made


class Active(msgspec.Struct, kw_only=True):
    """A fault that lasts."""

    fault: Fault
    case: Case
    t: int
    state: str = "active"


def free_nodes(members: Sequence[Node], active: Collection[Active]) -> list[Node]:
    """The members that run, and whose processes and files no fault has as its target."""
    taken = {name for each in active if each.fault.claimed != "network" for name in each.case.nodes}
    return [node for node in members if node.name not in taken and node.is_running]


def may_start(fault: Fault, active: Collection[Active], members: int) -> bool:
    """Whether a fault may be made beside those that last.

    Faults that last may take a majority of the nodes only if one fault does that by itself. So
    a lost majority is always the intention of the plan, and ends with its fault.
    """
    if members < fault.nodes_min or len(active) >= OVERLAP:
        return False
    if any(each.fault.claimed == "all" for each in active) or (fault.claimed == "all" and active):
        return False
    if fault.claimed != "nodes" and any(each.fault.claimed == fault.claimed for each in active):
        return False
    if fault.harm is Harm.NOTHING:
        return True
    out = {
        name for each in active if each.fault.harm is not Harm.NOTHING for name in each.case.nodes
    }
    if fault.harm is Harm.MAJORITY:
        return not out
    # The bridge has all but one node as its targets, and none of them is out.
    return members == 1 or len(out) + 1 <= (members - 1) // 2


class Made(NamedTuple):
    """A fault of the plan while it is made."""

    planned: Planned
    active: Active
    ground: Ground


_T = TypeVar("_T")


class Upcoming:
    """The faults of a plan that are still to be made.

    Some faults do not go together. Then a later one goes first, but not for ever.
    """

    def __init__(self, planned: Sequence[Planned]) -> None:
        self._waiting = deque(planned)
        self._overtaken = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self, make: Callable[[Planned], _T | None]) -> _T | None:
        """Make the first fault that can be made now; none if none of the next can be."""
        ahead = 1 if self._overtaken >= OVERTAKEN else AHEAD
        for place, planned in enumerate(list(self._waiting)[:ahead]):
            if (made := make(planned)) is not None:
                del self._waiting[place]
                self._overtaken = self._overtaken + 1 if place else 0
                return made
        return None


class Nemesis:
    """It makes the faults of a plan."""

    def __init__(
        self,
        cluster: Cluster,
        recorder: Recorder,
        faults: Mapping[str, Fault],
        seed: str,
    ) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._faults = faults
        self._seed = seed
        self.active: Final[list[Active]] = []
        self.leaders: dict[int, str] = {}
        self.leads: Final[list[Lead]] = []
        """Every change of a leader, as far as it was seen."""
        self.broken = ""
        """Why the run does not count: a node did not come back."""

    async def follow(self, planned: Sequence[Planned], seconds: float) -> None:
        """Make the faults of a plan, until so many seconds are over, and end them all."""
        end = trio.current_time() + seconds
        upcoming = Upcoming(planned)
        async with trio.open_nursery() as nursery:
            with trio.move_on_at(end):
                while upcoming and not self.broken:
                    made = upcoming.take(self._chosen)
                    if made is None:
                        await trio.sleep(_LOOK_S)
                        continue
                    nursery.start_soon(self._make, made)
                    await trio.sleep(made.planned.gap_s)
                await trio.sleep_until(end)

    async def watch(self) -> None:
        """Learn who leads, until cancelled."""
        while True:
            nodes = await self._cluster.overview()
            if nodes:
                leaders = {shard: node.name for node in nodes for shard in node.leads}
                for shard in sorted({*self.leaders, *leaders}):
                    if leaders.get(shard) != self.leaders.get(shard):
                        self.leads.append(Lead(now_ns(), shard, leaders.get(shard, "")))
                self.leaders = leaders
            await trio.sleep(_LOOK_S)

    def _chosen(self, planned: Planned) -> Made | None:
        """A fault with its target, counted as lasting from now on; none if none can be made now."""
        fault = self._faults[planned.name]
        members = self._cluster.members
        if not may_start(fault, self.active, len(members)):
            return None
        ground = Ground(
            cluster=self._cluster,
            random=Random(f"{self._seed} fault {planned.n}"),
            leaders={s: n for s, n in self.leaders.items() if self._runs(n)},
            free=free_nodes(members, self.active),
        )
        case = fault.choose(ground)
        if case is None:
            return None
        lasting = Active(fault=fault, case=case, t=now_ns())
        self.active.append(lasting)
        return Made(planned, lasting, ground)

    def _runs(self, name: str) -> bool:
        """Whether a node runs; one of a cluster of others can have a name that is not its host."""
        node = self._cluster.nodes.get(name)
        return node is not None and node.is_running

    async def _make(self, made: Made) -> None:
        fault, case, ground = made.active.fault, made.active.case, made.ground
        proof = ""
        try:
            await fault.apply(ground, case)
            if not case.is_off:
                await trio.sleep(made.planned.seconds)
                proof = await fault.verify(ground, case)
        except NotReady as error:
            self.broken = f"{fault.name} of {case.target}: {error}"
        finally:
            with trio.CancelScope(shield=True):
                await self._end(made, proof)

    async def _end(self, made: Made, proof: str) -> None:
        planned, lasting, ground = made
        lasting.state = "healing"
        fault, case = lasting.fault, lasting.case
        t_end = now_ns()
        try:
            with trio.fail_after(_HEALING_S):
                await fault.heal(ground, case)
        except (NotReady, trio.TooSlowError) as error:
            self.broken = f"{fault.name} of {case.target} did not heal: {str(error) or 'too slow'}"
            proof = ""
        self.active.remove(lasting)
        if not case.is_off:
            self._recorder.fault(
                Record(
                    n=planned.n,
                    t=lasting.t,
                    name=fault.name,
                    target=case.target,
                    t_end=t_end,
                    args=case.args,
                    verified=bool(proof),
                    proof="; ".join([proof, *case.proof])[:500],
                )
            )
