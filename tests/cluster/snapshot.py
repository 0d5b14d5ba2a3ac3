"""An empty node takes the place of one that is lost, while the others have many jobs and new ones.

The log does not reach back to the first job, so the new replicas get snapshots. Sixteen connections
put single jobs in all the time: before, during and after the installation.
"""

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import trio

from tests.cluster.answers import Status
from tests.cluster.comparing import numbers_of
from tests.cluster.figures import Times
from tests.cluster.nodes import Cluster, Member, as_initial, cluster_of, members_in
from tests.cluster.producing import Producers
from tests.cluster.syncing import bare_syncs
from tests.node.gauges import look_at

SHARDS: Final = 2
CONNECTIONS: Final = 16
CALM_S: Final = 10.0
_LOOK_S: Final = 0.2


class Seen(msgspec.Struct):
    """The result of a run."""

    jobs: int
    fill_s: float
    install_s: float
    """From the start of the new node until it votes in all shards."""
    times: dict[str, Times]
    """The time of each enqueue, by what went on meanwhile."""
    bare: dict[str, Times]
    sizes: dict[int, int]
    """By shard, the bytes of the snapshot that the new node has received."""
    rss_mib: dict[str, tuple[int, int]]
    """By process, the memory before, and the most of it afterwards."""
    repeated: int


class Replacing:
    """One run."""

    def __init__(self, cluster: Cluster, calm_s: float) -> None:
        self._cluster = cluster
        self._calm_s = calm_s
        self._producers = Producers(cluster)
        self._phases: dict[str, tuple[float, float]] = {}
        self._sizes: dict[int, int] = {}
        self._rss: dict[str, tuple[int, int]] = {}
        self._watched: list[Member] = cluster.members[:2]

    async def run(self, directory: Path, jobs: int, tell: Callable[[str], None]) -> Seen:
        """Fill the cluster, and replace a node."""
        *staying, lost, new = self._cluster.members
        began = monotonic()
        await self._producers.fill(jobs)
        fill_s = monotonic() - began
        tell(f"{jobs} jobs put in, in {fill_s:.0f} s")
        async with bare_syncs(directory) as bare, trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            for number in range(CONNECTIONS):
                nursery.start_soon(self._producers.produce, number, staying[number % len(staying)])
            await self._spend("before")
            lost.kill()
            await self._cluster.gone(lost)
            reason = {"reason": "its disk is lost", "force": True}
            remove = f"/api/v1/cluster/nodes/{lost.name}/remove"
            await self._cluster.until(staying[0], "POST", remove, reason)
            await self._spend("a node is lost")
            began = monotonic()
            await self._cluster.start(new)
            self._watched.append(new)
            while not await self._votes(staying[0]):  # noqa: ASYNC110 -- another process
                await trio.sleep(_LOOK_S)
            install_s = monotonic() - began
            await self._producers.times.until_one(began)
            self._phases["during"] = (began, monotonic())
            await self._spend("after")
            nursery.cancel_scope.cancel()
        return Seen(
            jobs=jobs,
            fill_s=fill_s,
            install_s=install_s,
            times={
                name: self._producers.times.between(*phase) for name, phase in self._phases.items()
            },
            bare={name: bare.times.between(*phase) for name, phase in self._phases.items()},
            sizes=self._sizes,
            rss_mib=self._rss,
            repeated=self._producers.repeated,
        )

    async def _spend(self, name: str) -> None:
        began = monotonic()
        await trio.sleep(self._calm_s)
        await self._producers.times.until_one(began)
        self._phases[name] = (began, monotonic())

    async def _votes(self, member: Member) -> bool:
        """Whether the newest node, which is the fourth, votes in all shards."""
        answer = await self._cluster.until(member, "GET", "/api/v1/cluster/status")
        shards = answer.read(Status).cluster.shards
        voting = [each for shard in shards for each in shard.replicas if each.is_voter]
        return sum(each.node == len(self._cluster.members) for each in voting) == SHARDS

    async def _watch(self) -> None:
        """Note the memory of shards, and the snapshots that arrive."""
        while True:
            await trio.sleep(_LOOK_S)
            for member in [each for each in self._watched if each.running is not None]:
                for name, pid in member.pids.items():
                    if name.startswith("shard"):
                        self._note_rss(f"{name} of {member.name}", pid)
            for shard in range(SHARDS if len(self._watched) > 2 else 0):
                await self._note_size(shard)

    def _note_rss(self, name: str, pid: int) -> None:
        mib = look_at(pid, 0).rss_kib >> 10
        before, most = self._rss.get(name, (mib, mib))
        self._rss[name] = (before, max(most, mib))

    async def _note_size(self, shard: int) -> None:
        new = self._watched[-1]
        if (new.data / "node.json").exists():
            numbers = await numbers_of(new, shard)
            if numbers is not None and numbers.snapshot_received is not None:
                self._sizes[shard] = max(self._sizes.get(shard, 0), numbers.snapshot_received[1])


async def run(
    directory: Path,
    *,
    jobs: int,
    calm_s: float = CALM_S,
    tell: Callable[[str], None] = lambda _: None,
    **settings: str,
) -> Seen:
    """Replace a node of a cluster of three that has so many jobs."""
    members = await members_in(directory, ("a", "b", "c", "d"), shards=str(SHARDS), **settings)
    as_initial(members[:3])
    members[3].settings["cluster.join"] = members[0].peer
    async with cluster_of(members) as cluster:
        for member in members[:3]:
            await cluster.start(member)
        for member in members[:3]:
            await member.node.hear("node.ready")
        return await Replacing(cluster, calm_s).run(directory, jobs, tell)
