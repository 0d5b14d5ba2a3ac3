"""Wrong clocks: the wall clock of a node jumps ahead or back, and later to the right time."""

from collections.abc import Callable
from typing import Final

from chaos.cluster.machine import CLOCK
from chaos.faults.fault import Case, Fault, Ground, Harm, on_leader, on_one

_DAY_S: Final = 86_400.0


def _fault(
    name: str, what: str, ahead_s: float, choose: Callable[[Ground], Case | None] = on_one
) -> Fault:
    async def apply(ground: Ground, case: Case) -> None:
        ground.node(case.nodes[0]).set_clock(ahead_s)

    async def verify(ground: Ground, case: Case) -> str:
        """The clock as other nodes see it."""
        name = case.nodes[0]
        others = [node for node in ground.cluster.members if node.name != name]
        for node in others:
            seen = await ground.cluster.overview(node)
            for each in seen:
                ahead_ms = each.clock_ahead_ms or 0
                # The clock of the node that looks can be wrong as well.
                wrong_s = ahead_ms / 1e3 + node.clock_ahead_s - ahead_s
                if each.name == name and abs(wrong_s) < abs(ahead_s) / 2:
                    return f"{node.name} sees {name} {ahead_ms} ms ahead"
        return ""

    async def heal(ground: Ground, case: Case) -> None:
        node = ground.node(case.nodes[0])
        node.set_clock(0.0)
        if done := await ground.cluster.recover(node):
            case.proof.append(done)

    return Fault(
        name=name,
        what=what,
        needs=(CLOCK,),
        weight=0.5,
        # Nodes compare their clocks each five seconds.
        seconds=(6.5, 11.0),
        harm=Harm.NOTHING,
        # With two wrong clocks of three, a node with the right one does not start.
        claims="clocks",
        nodes_min=2,
        choose=choose,
        apply=apply,
        verify=verify,
        heal=heal,
    )


FAULTS: Final = (
    _fault("clock-ahead", "the wall clock of a node jumps 30 s ahead", 30.0),
    _fault("clock-back", "the wall clock of a node jumps 30 s back", -30.0),
    _fault(
        "clock-ahead-leader", "the clock of a leader's node jumps an hour ahead", 3_600.0, on_leader
    ),
    _fault(
        "clock-back-leader", "the clock of a leader's node jumps an hour back", -3_600.0, on_leader
    ),
    _fault("clock-years-ahead", "the wall clock of a node jumps two years ahead", 730 * _DAY_S),
)
