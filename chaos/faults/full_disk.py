"""Full disks: a file fills the disk of a node, and is removed later."""

from functools import partial
from typing import Final

import trio

from chaos.cluster.machine import DISK
from chaos.faults.fault import Case, Fault, Ground, Harm, on_all, on_leader, on_one, recover

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
    await recover(ground, case)


_fault: Final = partial(
    Fault, needs=(DISK,), weight=0.6, seconds=(3.0, 6.0), apply=_fill, verify=_full, heal=_clear
)
FAULTS: Final = (
    _fault(name="full-disk", what="the disk of a node is full", choose=on_one),
    _fault(
        name="full-disk-leader",
        what="the disk of a node that leads a shard is full",
        choose=on_leader,
    ),
    _fault(
        name="full-disks",
        what="all disks are full at once",
        choose=on_all,
        harm=Harm.MAJORITY,
        weight=0.2,
    ),
)
