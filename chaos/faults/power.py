"""Loss of power: processes end at once, and all that was not synced is gone from the disk."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import Final

from chaos.cluster.machine import POWER
from chaos.cluster.node import Node
from chaos.faults.fault import Case, Fault, Ground, Harm, on_all, on_leader, on_one, recover
from chaos.faults.kill import start

_UNSYNCED: Final = "unsynced"
_SYNCED: Final = "synced"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


async def _cut(ground: Ground, case: Case) -> None:
    for name in case.nodes:
        _mark(ground.node(name))
    for name in case.nodes:
        case.seen[name] = len(ground.node(name).send(signal.SIGKILL))
    for name in case.nodes:
        node = ground.node(name)
        await node.gone()
        assert node.disk is not None, "the machine has disks for nodes"
        await node.disk.lose_power()
        forget_boot(node)


def _mark(node: Node) -> None:
    """Write a file that is synced, and then one that is not."""
    home = node.data.parent
    with (home / _SYNCED).open("wb") as written:
        written.write(b"kept")
        written.flush()
        os.fsync(written.fileno())
    (home / _UNSYNCED).write_bytes(b"lost")


def forget_boot(node: Node) -> None:
    """Make the node believe that the machine was started again, as it is after a loss of power.

    What is in the page cache survives the end of a process, so a node trusts unsynced files of
    the same boot.
    """
    now = _BOOT_ID.read_bytes().strip()
    earlier = bytes(reversed(now[:8])) + now[8:]
    for pattern in ("shard-*/state/running", "shard-*/clock", "mirror/running"):
        for path in node.data.glob(pattern):
            path.write_bytes(path.read_bytes().replace(now, earlier))


async def _lost(ground: Ground, case: Case) -> str:
    """On each disk the synced file is there, and the other one is not."""
    for name in case.nodes:
        home = ground.node(name).data.parent
        kept, lost = home / _SYNCED, home / _UNSYNCED
        if kept.read_bytes() != b"kept" or (lost.exists() and lost.read_bytes() == b"lost"):
            return ""
    return f"unsynced data gone: {case.target}"


async def _heal(ground: Ground, case: Case) -> None:
    await start(ground, case)
    await recover(ground, case)


_fault: Final = partial(
    Fault, needs=(POWER,), seconds=(0.2, 3.0), apply=_cut, verify=_lost, heal=_heal
)
FAULTS: Final = (
    _fault(
        name="power-node",
        what="a node loses its power, and all that it has not synced",
        choose=on_one,
    ),
    _fault(name="power-leader", what="the same for a node that leads a shard", choose=on_leader),
    _fault(
        name="power-all",
        what="all nodes lose their power at once, and all that they have not synced",
        choose=on_all,
        harm=Harm.MAJORITY,
        weight=0.4,
    ),
)
