"""Killed processes: one process of a node, a whole node, or several nodes at once."""

import signal
from collections.abc import Callable
from typing import Final

from chaos.cluster.machine import PROCESSES
from chaos.cluster.node import NODE
from chaos.faults.fault import (
    Case,
    Fault,
    Ground,
    Harm,
    on_all,
    on_leader,
    on_leading_shard,
    on_majority,
    on_one,
)


async def _kill(ground: Ground, case: Case) -> None:
    for name in case.nodes:
        node = ground.node(name)
        case.seen |= {f"{name}/{what}": pid for what, pid in node.pids().items()}
        node.send(signal.SIGKILL)
    for name in case.nodes:
        await ground.node(name).gone()


async def _gone(ground: Ground, case: Case) -> str:
    """No process that was killed runs."""
    left = {pid for name in case.nodes for pid in ground.node(name).pids().values()}
    if left & set(case.seen.values()):
        return ""
    return "gone: " + ", ".join(f"{name}={pid}" for name, pid in sorted(case.seen.items()))


async def start(ground: Ground, case: Case) -> None:
    """Start the nodes again, and wait until all are ready."""
    for name in case.nodes:
        node = ground.node(name)
        if not node.is_running:
            await node.gone()
            node.start()
    for name in case.nodes:
        await ground.cluster.ready(ground.node(name))


async def _kill_process(ground: Ground, case: Case) -> None:
    (name,) = case.nodes
    what = case.args["process"]
    case.seen |= ground.node(name).send(signal.SIGKILL, {what})


async def _other_process(ground: Ground, case: Case) -> str:
    """The process that was killed does not run; its node has started another or is about to."""
    (name,) = case.nodes
    what = case.args["process"]
    if what not in case.seen or ground.node(name).pids().get(what) == case.seen[what]:
        return ""
    return f"gone: {name}/{what}={case.seen[what]}"


def _a_process(
    name: str, what: str, kind: str, *, of_leader: bool = False, harm: Harm = Harm.NODE
) -> Fault:
    def choose(ground: Ground) -> Case | None:
        if of_leader:
            return on_leading_shard(ground)
        node = ground.one()
        if node is None:
            return None
        fitting = sorted(each for each in node.pids() if each.startswith(kind))
        if not fitting:
            return None
        return Case(nodes=[node.name], args={"process": ground.random.choice(fitting)})

    return Fault(
        name=name,
        what=what,
        needs=(PROCESSES,),
        seconds=(0.2, 1.0),
        harm=harm,
        choose=choose,
        apply=_kill_process,
        verify=_other_process,
        heal=start,
    )


def _nodes(
    name: str,
    what: str,
    choose: Callable[[Ground], Case | None],
    *,
    weight: float = 3.0,
    seconds: tuple[float, float] = (0.1, 2.0),
    is_majority: bool = False,
) -> Fault:
    return Fault(
        name=name,
        what=what,
        needs=(PROCESSES,),
        weight=weight,
        seconds=seconds,
        harm=Harm.MAJORITY if is_majority else Harm.NODE,
        choose=choose,
        apply=_kill,
        verify=_gone,
        heal=start,
    )


FAULTS: Final = (
    _a_process("kill-shard", "SIGKILL of a replica", "shard"),
    _a_process("kill-leader-shard", "SIGKILL of the leader of a shard", "shard", of_leader=True),
    _a_process("kill-router", "SIGKILL of a router", "router", harm=Harm.NOTHING),
    _a_process("kill-mirror", "SIGKILL of a mirror", "mirror", harm=Harm.NOTHING),
    _a_process("kill-first", "SIGKILL of the process that starts the others of a node", NODE),
    _nodes("kill-node", "SIGKILL of all processes of a node", on_one),
    _nodes("kill-leader", "SIGKILL of a node that leads a shard", on_leader),
    _nodes(
        "kill-majority",
        "SIGKILL of a majority of the nodes at once",
        on_majority,
        weight=0.4,
        is_majority=True,
    ),
    _nodes("kill-all", "SIGKILL of all nodes at once", on_all, weight=0.4, is_majority=True),
)
