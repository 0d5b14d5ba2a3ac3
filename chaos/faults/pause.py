"""Pauses: processes are stopped by SIGSTOP for longer than a lease, and go on as if nothing was."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos.cluster.machine import PROCESSES
from chaos.faults.fault import Case, Fault, Ground, Harm, on_leader, on_majority, on_one

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


def _leading_shard(ground: Ground) -> Case | None:
    leading = [
        (shard, name)
        for shard, name in sorted(ground.leaders.items())
        if ground.node(name) in ground.free
    ]
    if not leading:
        return None
    shard, name = ground.random.choice(leading)
    return Case(nodes=[name], args={"process": f"shard-{shard}"})


def _of_kind(kind: str) -> Callable[[Ground], Case | None]:
    def choose(ground: Ground) -> Case | None:
        node = ground.one()
        if node is None or kind not in node.pids():
            return None
        return Case(nodes=[node.name], args={"process": kind})

    return choose


def _fault(
    name: str,
    what: str,
    choose: Callable[[Ground], Case | None],
    *,
    harm: Harm = Harm.NODE,
    weight: float = 1.0,
) -> Fault:
    return Fault(
        name=name,
        what=what,
        needs=(PROCESSES,),
        weight=weight,
        seconds=_LONG_S,
        harm=harm,
        claims="all" if harm is Harm.MAJORITY else "nodes",
        choose=choose,
        apply=_stop,
        verify=_stopped,
        heal=_continue,
    )


FAULTS: Final = (
    _fault("pause-node", "SIGSTOP of all processes of a node, longer than a lease", on_one),
    _fault("pause-leader", "the same for a node that leads a shard", on_leader, weight=1.5),
    _fault("pause-leader-shard", "SIGSTOP of the leader of a shard: another leads", _leading_shard),
    _fault(
        "pause-router",
        "SIGSTOP of a router",
        _of_kind("router"),
        harm=Harm.NOTHING,
        weight=0.5,
    ),
    _fault(
        "pause-mirror",
        "SIGSTOP of a mirror",
        _of_kind("mirror"),
        harm=Harm.NOTHING,
        weight=0.5,
    ),
    _fault(
        "pause-majority",
        "SIGSTOP of a majority of the nodes at once",
        on_majority,
        harm=Harm.MAJORITY,
        weight=0.3,
    ),
)
