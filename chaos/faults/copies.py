"""What faults have in common that take or change the copy of one stopped node.

Beyond the promise is the loss of a majority of the copies. So all other nodes must be whole.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from chaos.cluster.machine import PROCESSES
from chaos.faults.fault import WHOLE_S, Case, Fault, Ground, Harm, on_one


def of_a_copy(
    name: str,
    what: str,
    *,
    weight: float,
    apply: Callable[[Ground, Case], Awaitable[None]],
    verify: Callable[[Ground, Case], Awaitable[str]],
    says: tuple[bytes, ...],
) -> Fault:
    """The fault. `apply` runs once all nodes are whole; `says` is what a node may log of it."""
    return Fault(
        name=name,
        what=what,
        needs=(PROCESSES,),
        weight=weight,
        seconds=(0.1, 0.5),
        harm=Harm.NODE,
        claims="all",
        nodes_min=3,
        choose=_choose,
        apply=partial(_apply, apply),
        verify=verify,
        heal=partial(_heal, says),
    )


def _choose(ground: Ground) -> Case | None:
    return on_one(ground) if len(ground.free) == len(ground.cluster.members) else None


async def _apply(
    apply: Callable[[Ground, Case], Awaitable[None]], ground: Ground, case: Case
) -> None:
    if await ground.cluster.whole(WHOLE_S):
        await apply(ground, case)
    else:
        case.is_off = True


async def _heal(says: tuple[bytes, ...], ground: Ground, case: Case) -> None:
    node = ground.node(case.nodes[0])
    if not node.is_running:
        node.start()
    if done := await ground.cluster.recover(node):
        case.proof.append(done)
    said = [text.decode() for text in says if node.has_logged(text, case.seen.get("log", 0))]
    case.proof.append(f"it says: {', '.join(said)}" if said else "it says nothing")
