"""Changes of the cluster: nodes are drained, removed, replaced, added and restarted in turn."""

import signal
from typing import Final

from chaos.cluster.machine import PROCESSES
from chaos.cluster.node import Node
from chaos.faults.fault import WHOLE_S, Case, Fault, Ground, Harm, on_all, on_one

_DOWN_TO: Final = 1


def _whole(ground: Ground) -> Case | None:
    """Any node, while no fault lasts."""
    return on_one(ground) if len(ground.free) == len(ground.cluster.members) else None


def _reserve(ground: Ground) -> Node | None:
    """A node that does not belong to the cluster."""
    found = [node for node in ground.cluster.nodes.values() if not node.is_member]
    return found[0] if found else None


async def _nothing(ground: Ground, case: Case) -> None:
    del ground, case


async def _done(ground: Ground, case: Case) -> str:
    del ground
    return case.args.get("done", "")


async def _drain(ground: Ground, case: Case) -> None:
    node = ground.node(case.nodes[0])
    path = f"/api/v1/cluster/nodes/{node.name}/drain"
    await ground.cluster.until_done("POST", path, {"reason": "as planned"}, but=node)


async def _draining(ground: Ground, case: Case) -> str:
    for each in await ground.cluster.overview():
        if each.name == case.nodes[0] and each.state != "active":
            return f"{each.name} is {each.state}, and leads {len(each.leads)} shards"
    return ""


async def _undrain(ground: Ground, case: Case) -> None:
    node = ground.node(case.nodes[0])
    await ground.cluster.until_done(
        "POST", f"/api/v1/cluster/nodes/{node.name}/undrain", {}, but=node
    )
    if done := await ground.cluster.recover(node):
        case.proof.append(done)


async def _replace(ground: Ground, case: Case) -> None:
    node = ground.node(case.nodes[0])
    case.is_off = not await ground.cluster.whole(WHOLE_S)
    if not case.is_off:
        await ground.cluster.replace(node)
        case.args["done"] = f"removed {node.name}, and joined it with an empty directory"


async def _add(ground: Ground, case: Case) -> None:
    node = _reserve(ground)
    case.is_off = node is None or not await ground.cluster.whole(WHOLE_S)
    if node is not None and not case.is_off:
        case.args["added"] = node.name
        await ground.cluster.join(node)
        case.args["done"] = f"{node.name} has joined"


async def _take_away(ground: Ground, case: Case) -> None:
    if "added" not in case.args:
        return
    node = ground.node(case.args["added"])
    path = f"/api/v1/cluster/nodes/{node.name}"
    await ground.cluster.until_done("POST", f"{path}/drain", {"reason": "as planned"}, but=node)
    await ground.cluster.drained(node)
    await ground.cluster.remove(node)
    await node.stop(signal.SIGTERM)


async def _roll(ground: Ground, case: Case) -> None:
    for name in case.nodes:
        node = ground.node(name)
        await node.stop(signal.SIGTERM)
        await ground.cluster.start(node)
        if not await ground.cluster.whole(20):
            case.proof.append(f"not whole after the restart of {name}")
    case.args["done"] = f"restarted {', '.join(case.nodes)} in turn"


async def _fewer(ground: Ground, case: Case) -> None:
    view = await ground.cluster.view()
    if view is None or not await ground.cluster.whole(WHOLE_S):
        case.is_off = True
        return
    case.seen["replicas"] = view.replicas
    path, body = "/api/v1/cluster/replicas", {"replicas": _DOWN_TO}
    await ground.cluster.until_done("PUT", path, body, but=ground.node(case.nodes[0]))


async def _has_fewer(ground: Ground, case: Case) -> str:
    view = await ground.cluster.view()
    if view is None or "replicas" not in case.seen or view.replicas != _DOWN_TO:
        return ""
    return f"replicas: {[len(shard.replicas) for shard in view.shards]}"


async def _more(ground: Ground, case: Case) -> None:
    if "replicas" not in case.seen:
        return
    body = {"replicas": case.seen["replicas"]}
    node = ground.node(case.nodes[0])
    await ground.cluster.until_done("PUT", "/api/v1/cluster/replicas", body, but=node)
    if done := await ground.cluster.recover(node):
        case.proof.append(done)


FAULTS: Final = (
    Fault(
        name="drain-node",
        what="a node is drained, and later undrained",
        needs=(PROCESSES,),
        weight=0.6,
        seconds=(3.0, 8.0),
        harm=Harm.NODE,
        claims="all",
        nodes_min=3,
        choose=_whole,
        apply=_drain,
        verify=_draining,
        heal=_undrain,
    ),
    Fault(
        name="replace-node",
        what="a node is removed from the cluster, and joins with an empty directory",
        needs=(PROCESSES,),
        weight=0.4,
        seconds=(0.1, 1.0),
        harm=Harm.NODE,
        claims="all",
        nodes_min=3,
        choose=_whole,
        apply=_replace,
        verify=_done,
        heal=_nothing,
    ),
    Fault(
        name="add-node",
        what="one more node joins, and is drained and removed later",
        needs=(PROCESSES,),
        weight=0.4,
        seconds=(2.0, 6.0),
        harm=Harm.NODE,
        claims="all",
        nodes_min=3,
        choose=_whole,
        apply=_add,
        verify=_done,
        heal=_take_away,
    ),
    Fault(
        name="rolling-restart",
        what="the nodes are stopped and started in turn, as for an upgrade",
        needs=(PROCESSES,),
        weight=0.3,
        seconds=(0.1, 0.5),
        harm=Harm.NODE,
        claims="all",
        nodes_min=2,
        choose=on_all,
        apply=_roll,
        verify=_done,
        heal=_nothing,
    ),
    Fault(
        name="fewer-replicas",
        what="the shards have one replica for a while, and then as many as before",
        needs=(PROCESSES,),
        weight=0.4,
        seconds=(3.0, 8.0),
        harm=Harm.NODE,
        claims="all",
        nodes_min=3,
        choose=_whole,
        apply=_fewer,
        verify=_has_fewer,
        heal=_more,
    ),
)
