"""The node that leads is killed under load, again and again.

Clients use the first node, which stays. Of the others, the one that leads the most shards is
killed with all of its processes, and started again once the shards work without it. For each kill
it is noted how long each shard had no success: of those that it led, and of the others.

With `cut`, the node is cut off from the others instead, as if its machine were lost: no connection
is reset. This needs network namespaces.
"""

from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.cluster.figures import Times
from tests.cluster.nodes import (
    Cluster,
    Member,
    as_initial,
    cluster_of,
    members_in,
    members_of,
)
from tests.cluster.syncing import bare_syncs
from tests.node.crowd import Crowd
from tests.node.history import judge
from tests.support.networks import Network, network_of

_CALM: Final = 100
"""Successes of each shard between two kills."""
_LOOK_S: Final = 1.0
_NAMES: Final = ("a", "b", "c")


class Standing(msgspec.Struct):
    """What the health of a node says about its shards."""

    status: str
    groups: list["Group"]


class Group(msgspec.Struct):
    leader_id: str = ""


class Kill(msgspec.Struct, frozen=True):
    """What one kill did."""

    victim: str
    led_s: list[float]
    """The longest pause of each shard that the node led."""
    others_s: list[float]


class Seen(msgspec.Struct):
    """What came of it."""

    kills: list[Kill]
    wrongs: list[str]
    events: int
    oddities: dict[str, int]
    bare: Times
    """Syncs of a small file beside it, which tell a stall of the disk."""


class Failover:
    """One run."""

    def __init__(self, cluster: Cluster, shards: int, network: Network | None = None) -> None:
        self._cluster = cluster
        self._network = network
        self.crowd: Final = Crowd(cluster[0].address, shards, clients=[cluster[0].client])
        self.kills: list[Kill] = []

    async def run(self, kills: int) -> Seen:
        """Kill so many leaders."""
        directory = self._cluster[0].data.parent
        async with bare_syncs(directory) as bare, trio.open_nursery() as nursery:
            nursery.start_soon(self.crowd.run)
            await self.crowd.more(_CALM)
            for _ in range(kills):
                await self._kill_one()
            self.crowd.close()
            await self.crowd.ended.wait()
        found = await self.crowd.look_up()
        wrongs = judge(self.crowd.history, found)
        return Seen(self.kills, wrongs, len(self.crowd.history), self.crowd.oddities, bare.times)

    async def _leaders(self) -> list[str]:
        """By shard, the number of the leader's node, once all is well and another node leads.

        It has been so for a while: leadership may be handed over just now, so that it is balanced.
        """
        path = "/api/v1/cluster/status"
        before: list[str] = []
        while True:
            answer = await self._cluster.until(self._cluster[0], "GET", path)
            standing = answer.read(Standing)
            leaders = [group.leader_id for group in standing.groups]
            if standing.status == "healthy" and leaders == before and {*leaders} != {"1"}:
                return leaders
            before = leaders
            await trio.sleep(_LOOK_S)

    async def _kill_one(self) -> None:
        leaders = await self._leaders()
        numbers = {str(number): member for number, member in enumerate(self._cluster.members, 1)}
        led = {number: leaders.count(number) for number in numbers if number != "1"}
        number = max(led, key=lambda each: (led[each], each))
        victim = numbers[number]
        began = trio.current_time()
        if self._network is not None and victim.place is not None:
            await self._network.isolate(victim.place)
        else:
            victim.kill()
            await self._cluster.gone(victim)
        await self.crowd.more(_CALM)
        gaps = self.crowd.longest_gap(began)
        was_led = [leader == number for leader in leaders]
        self.kills.append(
            Kill(
                victim.name,
                [gap for gap, mine in zip(gaps, was_led, strict=True) if mine],
                [gap for gap, mine in zip(gaps, was_led, strict=True) if not mine],
            )
        )
        await self._back(victim)

    async def _back(self, victim: Member) -> None:
        if self._network is not None:
            await self._network.heal()
        else:
            await self._cluster.start(victim)
            await victim.node.hear("node.ready")
        await self.crowd.more(_CALM)


async def run(directory: Path, *, kills: int = 1, shards: int = 4, cut: bool = False) -> Seen:
    """Kill so many nodes of a cluster of three, or cut them off."""
    if not cut:
        members = await members_in(directory, _NAMES, shards=str(shards))
        return await _run(members, kills, shards)
    async with network_of(len(_NAMES)) as network:
        members = members_of(directory, network, shards=str(shards))
        return await _run(members, kills, shards, network)


async def _run(
    members: list[Member], kills: int, shards: int, network: Network | None = None
) -> Seen:
    as_initial(members)
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        return await Failover(cluster, shards, network).run(kills)
