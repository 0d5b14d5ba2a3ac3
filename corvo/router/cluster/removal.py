"""Whether a node may be removed: by what the replicas of every shard say of their voters.

The cluster map would let any node be removed that does not have the only replica of a shard. But a
removed node is refused by all others, so it votes no more, while it counts until the leader of each
of its shards has changed the group. That change needs a majority of the voters of before.
"""

from collections.abc import Iterable, Sequence

import msgspec

from corvo.protocol.cluster import ClusterMap, ClusterNode
from corvo.protocol.numbers import Numbers
from corvo.router.cluster.overview import ShardSeen


class Refusal(msgspec.Struct, frozen=True):
    """Why a node may not be removed now."""

    code: str
    error: str


def refusal(
    node: ClusterNode, known: ClusterMap, shards: Sequence[ShardSeen], *, own: int, force: bool
) -> Refusal | None:
    """Why a node may not be removed; None if it may.

    `own` is the node that asks, and `force` removes a node that could still be drained.
    """
    for shard in shards:
        found = _shard_refusal(node, known, shard, force=force)
        if found is not None:
            return found
    votes_in = [shard.number for shard in shards if node.number in _voters(shard.best)]
    if votes_in and not force and _is_reachable(node.number, shards, own):
        return Refusal(
            "NODE_NOT_DRAINED",
            f"{_named(node)} is reachable and votes in {_listed('shard', votes_in)}: drain it"
            ' first, and remove it when it has no replicas; or send "force": true',
        )
    return None


def _shard_refusal(
    node: ClusterNode, known: ClusterMap, shard: ShardSeen, *, force: bool
) -> Refusal | None:
    """Why one shard does not allow it."""
    number, best = node.number, shard.best
    is_placed = number in known.places[shard.number]
    if best is None:
        if force and not is_placed:
            return None
        how = "" if is_placed else '; or send "force": true'
        return Refusal(
            "VOTERS_UNKNOWN",
            f"shard {shard.number} does not answer, so its voters are not known:"
            f" {shard.error or 'no replica has answered in time'}. Remove {_named(node)} when the"
            f" shard is available again{how}",
        )
    if number not in _voters(best):
        if shard.led_by is not None or not is_placed:
            return None
        return _no_leader(node, shard)
    for voters in (best.voters, best.outgoing):
        staying = {each for each in _alive(voters, shard) if known.node(each)} - {number}
        if voters and 2 * len(staying) <= len(voters):
            return Refusal(
                "NO_MAJORITY",
                f"without {_named(node)}, shard {shard.number} would have no majority of its"
                f" voters: they are {_listed('node', voters)}, and of the others"
                f" {_listed('node', staying) if staying else 'no node'} can be reached. Wait until"
                " more of them are back, or drain the node",
            )
    return None if shard.led_by is not None else _no_leader(node, shard)


def _no_leader(node: ClusterNode, shard: ShardSeen) -> Refusal:
    return Refusal(
        "VOTERS_UNKNOWN",
        f"shard {shard.number} has no leader now, so its voters are not known for certain. Remove"
        f" {_named(node)} when the shard has one",
    )


def _voters(numbers: Numbers | None) -> set[int]:
    return set() if numbers is None else {*numbers.voters, *numbers.outgoing}


def _alive(voters: Iterable[int], shard: ShardSeen) -> set[int]:
    """The voters that answered. One under repair does not vote."""
    answers = shard.answers
    return {each for each in voters if each in answers and not answers[each].is_repairing}


def _is_reachable(number: int, shards: Sequence[ShardSeen], own: int) -> bool:
    seen = (shard.of(number) for shard in shards)
    return number == own or any(each is not None and each.link.is_up for each in seen)


def _named(node: ClusterNode) -> str:
    return f"node {node.number} ({node.name})"


def _listed(what: str, numbers: Iterable[int]) -> str:
    listed = sorted(numbers)
    return f"{what}{'s' * (len(listed) > 1)} {', '.join(map(str, listed))}"
