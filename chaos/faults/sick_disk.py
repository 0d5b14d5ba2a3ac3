"""Sick disks: syncs take long, or fail."""

from collections.abc import Callable
from typing import Final

from chaos.cluster import syncs
from chaos.cluster.machine import SYNCS
from chaos.faults.fault import Case, Fault, Ground, Harm, on_all, on_leader, on_one, recover


def _fault(
    name: str,
    what: str,
    choose: Callable[[Ground], Case | None],
    *,
    delay_ms: int = 0,
    to_fail: int = 0,
    harm: Harm = Harm.NOTHING,
    weight: float = 0.7,
) -> Fault:
    counted = "failed" if to_fail else "delayed"

    async def apply(ground: Ground, case: Case) -> None:
        for node in case.nodes:
            path = ground.node(node).syncs
            case.seen[node] = int(getattr(syncs.read(path), counted))
            syncs.order(path, delay_ms=delay_ms, to_fail=to_fail)

    async def verify(ground: Ground, case: Case) -> str:
        counts = {
            node: int(getattr(syncs.read(ground.node(node).syncs), counted)) - case.seen[node]
            for node in case.nodes
        }
        if not all(counts.values()):
            return ""
        return f"{counted} syncs: " + ", ".join(f"{node}={counts[node]}" for node in counts)

    async def heal(ground: Ground, case: Case) -> None:
        for node in case.nodes:
            syncs.order(ground.node(node).syncs)
        await recover(ground, case)

    return Fault(
        name=name,
        what=what,
        needs=(SYNCS,),
        weight=weight,
        seconds=(2.0, 5.0),
        harm=harm,
        choose=choose,
        apply=apply,
        verify=verify,
        heal=heal,
    )


FAULTS: Final = (
    _fault("slow-disk", "each sync of a node takes 100 ms longer", on_one, delay_ms=100),
    _fault("stuck-disk", "each sync of a leader's node takes 2 s", on_leader, delay_ms=2_000),
    _fault("slow-disks", "each sync of all nodes takes 50 ms longer", on_all, delay_ms=50),
    _fault("failed-sync", "three syncs of a node fail (EIO)", on_leader, to_fail=3, harm=Harm.NODE),
    _fault(
        "failed-syncs",
        "two syncs of each node fail (EIO) at once",
        on_all,
        to_fail=2,
        harm=Harm.MAJORITY,
        weight=0.2,
    ),
)
