"""A bad network: packets are lost, late, out of order, doubled, or there is room for few."""

from collections.abc import Callable
from typing import Final

from chaos.cluster.machine import NETWORK, PACKETS
from chaos.cluster.network import CLIENTS, Pair
from chaos.cluster.rules import CLEAR, Counts, Rule
from chaos.faults.fault import Case, Fault, Ground, Harm


def _choose(ground: Ground) -> Case | None:
    return Case(nodes=sorted(node.name for node in ground.cluster.members))


def _one(ground: Ground) -> Case | None:
    node = ground.one()
    return None if node is None else Case(nodes=[node.name])


def _pairs(ground: Ground, case: Case) -> list[Pair]:
    """Every direction from or to a node of the fault."""
    names = sorted(node.name for node in ground.cluster.members)
    hosts = [*names, CLIENTS]
    touched = set(case.nodes)
    return [
        (one, other)
        for one in hosts
        for other in hosts
        if one != other and touched & {one, other} and {one, other} & set(names)
    ]


def _sum(counts: dict[Pair, Counts], pairs: list[Pair], what: str) -> int:
    return sum(int(getattr(counts[pair], what)) for pair in pairs)


def _fault(
    name: str,
    what: str,
    rule: Rule,
    counted: str,
    choose: Callable[[Ground], Case | None] = _choose,
    *,
    need: str = NETWORK,
) -> Fault:
    async def apply(ground: Ground, case: Case) -> None:
        pairs = _pairs(ground, case)
        case.seen["before"] = _sum(await ground.cluster.network.counts(), pairs, counted)
        await ground.cluster.network.set(dict.fromkeys(pairs, rule))

    async def verify(ground: Ground, case: Case) -> str:
        counts = await ground.cluster.network.counts()
        count = _sum(counts, _pairs(ground, case), counted) - case.seen["before"]
        return f"{counted} packets: {count}" if count else ""

    async def heal(ground: Ground, case: Case) -> None:
        await ground.cluster.network.set(dict.fromkeys(_pairs(ground, case), CLEAR))

    return Fault(
        name=name,
        what=what,
        needs=(need,),
        seconds=(3.0, 7.0),
        harm=Harm.NOTHING,
        claims="network",
        choose=choose,
        apply=apply,
        verify=verify,
        heal=heal,
    )


FAULTS: Final = (
    _fault(
        "loss",
        "one packet of ten is lost, in all directions",
        Rule(loss=0.1),
        "dropped",
        need=PACKETS,
    ),
    _fault(
        "heavy-loss",
        "half of the packets from and to a node are lost",
        Rule(loss=0.5),
        "dropped",
        _one,
        need=PACKETS,
    ),
    _fault("delay", "every packet takes 60 ms longer", Rule(delay_ms=60), "delayed"),
    _fault(
        "long-delay",
        "every packet from and to a node takes half a second longer",
        Rule(delay_ms=500),
        "delayed",
        _one,
    ),
    _fault(
        "disorder",
        "packets overtake each other, and some arrive twice",
        Rule(delay_ms=5, jitter_ms=40, duplicates=0.05),
        "duplicated",
        need=PACKETS,
    ),
    _fault(
        "bandwidth",
        "a node can send and receive 40 KB a second",
        Rule(bytes_per_second=40_000),
        "delayed",
        _one,
    ),
)
