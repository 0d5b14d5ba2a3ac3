"""Pauses: processes are stopped by SIGSTOP for longer than a lease, and go on as if nothing was."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from chaos.cluster.machine import PROCESSES
from chaos.faults.fault import (
    Case,
    Fault,
    Ground,
    Harm,
    on_leader,
    on_leading_shard,
    on_majority,
    on_one,
)

_LONG_S: Final = (4.2, 7.0)
"""Workers have leases of 4 seconds; an election follows after 1.6 seconds."""


def _names(case: Case) -> set[str] | None:
    return {case.args["process"]} if "process" in case.args else None


async def _stop(ground: Ground, case: Case) -> None:
    for name in case.nodes:
        sent = ground.node(name).send(signal.SIGSTOP, _names(case))
        case.seen |= {f"{name}/{what}": pid for what, pid in sent.items()}


async def _stopped(ground: Ground, case: Case) -> str:
    """The kernel's state of each process."""
    del ground
    states = {name: _state(pid) for name, pid in case.seen.items()}
    stopped = [name for name, state in states.items() if state == "T"]
    return f"stopped: {', '.join(sorted(stopped))}" if stopped else ""


def _state(pid: int) -> str:
    try:
        said = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return said.rpartition(")")[2].split()[0]


async def _continue(ground: Ground, case: Case) -> None:
    for name in case.nodes:
        ground.node(name).send(signal.SIGCONT)
    for name in case.nodes:
        await ground.cluster.ready(ground.node(name))


def _of_kind(kind: str) -> Callable[[Ground], Case | None]:
    def choose(ground: Ground) -> Case | None:
        node = ground.one()
        if node is None or kind not in node.pids():
            return None
        return Case(nodes=[node.name], args={"process": kind})

    return choose


_fault: Final = partial(
    Fault, needs=(PROCESSES,), seconds=_LONG_S, apply=_stop, verify=_stopped, heal=_continue
)
FAULTS: Final = (
    _fault(
        name="pause-node",
        what="SIGSTOP of all processes of a node, longer than a lease",
        choose=on_one,
    ),
    _fault(
        name="pause-leader",
        what="the same for a node that leads a shard",
        choose=on_leader,
        weight=1.5,
    ),
    _fault(
        name="pause-leader-shard",
        what="SIGSTOP of the leader of a shard: another leads",
        choose=on_leading_shard,
    ),
    _fault(
        name="pause-router",
        what="SIGSTOP of a router",
        choose=_of_kind("router"),
        harm=Harm.NOTHING,
        weight=0.5,
    ),
    _fault(
        name="pause-mirror",
        what="SIGSTOP of a mirror",
        choose=_of_kind("mirror"),
        harm=Harm.NOTHING,
        weight=0.5,
    ),
    _fault(
        name="pause-majority",
        what="SIGSTOP of a majority of the nodes at once",
        choose=on_majority,
        harm=Harm.MAJORITY,
        weight=0.3,
    ),
)
