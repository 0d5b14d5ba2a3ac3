"""Partitions: packets between hosts are dropped, in both directions or in one."""

from collections.abc import Callable, Iterable
from typing import Final

from chaos.cluster.machine import NETWORK
from chaos.cluster.network import CLIENTS, Pair
from chaos.cluster.rules import CLEAR, Rule
from chaos.faults.fault import Case, Fault, Ground, Harm

_CUT: Final = Rule(is_cut=True)


def _pairs(case: Case) -> list[Pair]:
    return [(pair[0], pair[1]) for pair in (each.split(">") for each in case.args["cut"].split())]


def _case(nodes: Iterable[str], pairs: Iterable[Pair]) -> Case:
    cut = " ".join(f"{source}>{target}" for source, target in pairs)
    return Case(nodes=sorted(nodes), args={"cut": cut})


def both(ones: Iterable[str], others: Iterable[str]) -> list[Pair]:
    """All directions between hosts of one side and hosts of the other."""
    second = list(others)
    return [pair for one in ones for other in second for pair in ((one, other), (other, one))]


def _names(ground: Ground) -> list[str]:
    return sorted(node.name for node in ground.cluster.members)


def isolated(ground: Ground) -> Case | None:
    """One node against all others."""
    node = ground.one()
    return None if node is None else _alone(ground, node.name)


def isolated_leader(ground: Ground) -> Case | None:
    """A node that leads a shard against all others."""
    node = ground.leader()
    return None if node is None else _alone(ground, node.name)


def _alone(ground: Ground, name: str) -> Case:
    others = [each for each in _names(ground) if each != name]
    return _case([name], both([name], others))


def _deaf(ground: Ground) -> Case | None:
    node = ground.leader() or ground.one()
    if node is None:
        return None
    others = [each for each in _names(ground) if each != node.name]
    return _case([node.name], [(other, node.name) for other in others])


def _mute(ground: Ground) -> Case | None:
    node = ground.leader() or ground.one()
    if node is None:
        return None
    others = [each for each in _names(ground) if each != node.name]
    return _case([node.name], [(node.name, other) for other in others])


def _bridge(ground: Ground) -> Case | None:
    """Two sides that reach one node in the middle, and not each other."""
    names = _names(ground)
    ground.random.shuffle(names)
    _, *rest = names
    half = len(rest) // 2
    return _case(rest, both(rest[:half], rest[half:]))


def _ring(ground: Ground) -> Case | None:
    """Each node reaches only the next one: no majority reaches each other in both directions."""
    names = _names(ground)
    ground.random.shuffle(names)
    return _case(names, [(names[number], names[number - 1]) for number in range(len(names))])


def _scattered(ground: Ground) -> Case | None:
    """No node reaches another."""
    names = _names(ground)
    pairs = [(one, other) for one in names for other in names if one != other]
    return _case(names, pairs)


def _lost_answers(ground: Ground) -> Case | None:
    """Requests of the clients reach a node, and its answers are lost."""
    node = ground.one()
    return None if node is None else _case([node.name], [(node.name, CLIENTS)])


async def _cut(ground: Ground, case: Case) -> None:
    counts = await ground.cluster.network.counts()
    case.seen = {f"{one}>{other}": counts[one, other].dropped for one, other in _pairs(case)}
    await ground.cluster.network.set(dict.fromkeys(_pairs(case), _CUT))


async def _dropped(ground: Ground, case: Case) -> str:
    """The number of packets that the cut has dropped."""
    counts = await ground.cluster.network.counts()
    dropped = {
        f"{one}>{other}": counts[one, other].dropped - case.seen[f"{one}>{other}"]
        for one, other in _pairs(case)
    }
    lost = {pair: count for pair, count in dropped.items() if count}
    if not lost:
        return ""
    return "dropped packets: " + ", ".join(f"{pair}={count}" for pair, count in lost.items())


async def _join(ground: Ground, case: Case) -> None:
    await ground.cluster.network.set(dict.fromkeys(_pairs(case), CLEAR))


def _fault(
    name: str,
    what: str,
    choose: Callable[[Ground], Case | None],
    *,
    harm: Harm = Harm.NODE,
    weight: float = 1.0,
    nodes_min: int = 3,
) -> Fault:
    return Fault(
        name=name,
        what=what,
        needs=(NETWORK,),
        weight=weight,
        seconds=(2.0, 7.0),
        harm=harm,
        claims="network",
        nodes_min=nodes_min,
        choose=choose,
        apply=_cut,
        verify=_dropped,
        heal=_join,
    )


FAULTS: Final = (
    _fault("isolate-node", "a node and all others drop each other's packets", isolated, weight=2),
    _fault("isolate-leader", "the same for a node that leads a shard", isolated_leader, weight=2),
    _fault("one-way-in", "a node receives no packets of the others, and they receive its", _deaf),
    _fault("one-way-out", "no other node receives the packets of a node", _mute),
    _fault("bridge", "two sides that reach one node between them, and not each other", _bridge),
    _fault(
        "ring",
        "each node is received by the next one only, so that no leader is possible",
        _ring,
        harm=Harm.MAJORITY,
        weight=0.3,
    ),
    _fault(
        "scatter",
        "no node reaches another, so that no leader is possible",
        _scattered,
        harm=Harm.MAJORITY,
        weight=0.3,
    ),
    _fault(
        "lost-answers",
        "requests of clients reach a node, and the answers are dropped",
        _lost_answers,
        harm=Harm.NOTHING,
        nodes_min=1,
    ),
)
