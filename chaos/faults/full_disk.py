"""Full disks: a file fills the disk of a node, and is removed later."""

from collections.abc import Callable
from typing import Final

import trio

from chaos.cluster.machine import DISK
from chaos.faults.fault import Case, Fault, Ground, Harm, on_all, on_leader, on_one

_LEAVE_BYTES: Final = 256 << 10


async def _fill(ground: Ground, case: Case) -> None:
    for name in case.nodes:
        disk = ground.node(name).disk
        assert disk is not None, "the machine has disks for nodes"
        await trio.to_thread.run_sync(disk.fill, _LEAVE_BYTES)


async def _full(ground: Ground, case: Case) -> str:
    """The bytes that are free on each disk."""
    disks = {name: ground.node(name).disk for name in case.nodes}
    free = {name: disk.free_bytes for name, disk in disks.items() if disk is not None}
    if any(each > 4 * _LEAVE_BYTES for each in free.values()):
        return ""
    return "free bytes: " + ", ".join(f"{name}={count}" for name, count in free.items())


async def _clear(ground: Ground, case: Case) -> None:
    for name in case.nodes:
        disk = ground.node(name).disk
        assert disk is not None, "the machine has disks for nodes"
        disk.clear()
    for name in case.nodes:
        if done := await ground.cluster.recover(ground.node(name)):
            case.proof.append(f"{name} {done}")


def _fault(
    name: str,
    what: str,
    choose: Callable[[Ground], Case | None],
    harm: Harm = Harm.NODE,
    weight: float = 0.6,
) -> Fault:
    return Fault(
        name=name,
        what=what,
        needs=(DISK,),
        weight=weight,
        seconds=(3.0, 6.0),
        harm=harm,
        claims="all" if harm is Harm.MAJORITY else "nodes",
        choose=choose,
        apply=_fill,
        verify=_full,
        heal=_clear,
    )


FAULTS: Final = (
    _fault("full-disk", "the disk of a node is full", on_one),
    _fault("full-disk-leader", "the disk of a node that leads a shard is full", on_leader),
    _fault("full-disks", "all disks are full at once", on_all, Harm.MAJORITY, 0.2),
)
