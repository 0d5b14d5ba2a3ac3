"""A fault: how it is made, how it ends, and how it is known that it happened."""

from collections.abc import Awaitable, Callable
from enum import Enum
from random import Random
from typing import Final

import msgspec

from chaos.cluster.node import Node
from chaos.cluster.running import Cluster

WHOLE_S: Final = 15.0
"""How long a fault waits for a whole cluster, if it takes a copy of the data for good."""


class Harm(Enum):
    """What a fault takes from the cluster while it lasts."""

    NOTHING = "nothing"
    """Every replica can still do its work, if more slowly."""
    NODE = "node"
    """The replicas of one node are out."""
    MAJORITY = "majority"
    """The replicas of so many nodes are out that shards have no leader, until the fault ends."""


class Case(msgspec.Struct, kw_only=True):
    """One fault with its target, while it lasts."""

    nodes: list[str]
    """The nodes that it is made on."""
    args: dict[str, str] = {}
    seen: dict[str, int] = {}
    """Counters and process ids from before, with which `verify` compares."""
    proof: list[str] = []
    is_off: bool = False
    """Whether it was not made at all, because the cluster was not whole enough for it."""

    @property
    def target(self) -> str:
        """The target, for the history."""
        return ",".join(self.nodes)


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at the moment of a fault."""

    cluster: Cluster
    random: Random
    leaders: dict[int, str]
    """The node that leads each shard, as far as it is known."""
    free: list[Node]
    """Members that run and that no other fault has as its target."""

    def node(self, name: str) -> Node:
        """A node by its name."""
        return self.cluster.nodes[name]

    def one(self) -> Node | None:
        """Any free node."""
        return self.random.choice(self.free) if self.free else None

    def leader(self) -> Node | None:
        """A free node that leads a shard."""
        leading = [node for node in self.free if node.name in self.leaders.values()]
        return self.random.choice(leading) if leading else None


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of fault."""

    name: str
    what: str
    needs: tuple[str, ...] = ()
    """Abilities of the machine."""
    weight: float = 1.0
    seconds: tuple[float, float] = (2.0, 8.0)
    """How long it lasts, at least and at most."""
    harm: Harm = Harm.NODE
    claims: str = ""
    """What no two faults may have at once: the network (`network`), the clocks (`clocks`), or
    everything (`all`). Empty: their nodes, and everything if these are a majority."""
    nodes_min: int = 1
    """Nodes that the cluster needs for it."""
    choose: Callable[[Ground], Case | None]
    """The target; none if there is no fitting one at this moment."""
    apply: Callable[[Ground, Case], Awaitable[None]]
    verify: Callable[[Ground, Case], Awaitable[str]]
    """The proof that the fault happens, asked just before its end; empty without a proof."""
    heal: Callable[[Ground, Case], Awaitable[None]]

    @property
    def claimed(self) -> str:
        """What no other fault may have at the same time."""
        return self.claims or ("all" if self.harm is Harm.MAJORITY else "nodes")


async def recover(ground: Ground, case: Case) -> None:
    """Bring the nodes of a fault back, and write down what an operator had to do."""
    for name in case.nodes:
        if done := await ground.cluster.recover(ground.node(name)):
            case.proof.append(f"{name} {done}")


def on_one(ground: Ground) -> Case | None:
    """The choice of any node."""
    node = ground.one()
    return None if node is None else Case(nodes=[node.name])


def on_leader(ground: Ground) -> Case | None:
    """The choice of a node that leads a shard."""
    node = ground.leader()
    return None if node is None else Case(nodes=[node.name])


def on_leading_shard(ground: Ground) -> Case | None:
    """The choice of a process that leads a shard, on a free node."""
    free = {node.name for node in ground.free}
    leading = [(shard, name) for shard, name in sorted(ground.leaders.items()) if name in free]
    if not leading:
        return None
    shard, name = ground.random.choice(leading)
    return Case(nodes=[name], args={"process": f"shard-{shard}"})


def on_all(ground: Ground) -> Case | None:
    """The choice of all nodes, if none is the target of another fault."""
    if len(ground.free) < len(ground.cluster.members):
        return None
    return Case(nodes=[node.name for node in ground.free])


def on_majority(ground: Ground) -> Case | None:
    """The choice of the smallest majority, if no node is the target of another fault."""
    whole = on_all(ground)
    if whole is None:
        return None
    count = len(whole.nodes) // 2 + 1
    return Case(nodes=sorted(ground.random.sample(whole.nodes, count)))
