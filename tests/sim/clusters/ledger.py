"""What must never happen, judged at each step: one ledger for each shard.

A ledger is shown each leader, each entry that a replica applies, each map, and each replica whose
data are removed. It asks no code under test whether that is right.
"""

import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from corvo.protocol.cluster import ClusterMap
from corvo.raft import Membership
from tests.sim.failures import Violation

if TYPE_CHECKING:
    from tests.sim.clusters.machine import Machine
    from tests.sim.clusters.process import Disk, Process
    from tests.sim.clusters.world import ClusterWorld

_NONE: Final = Membership()


class Ledger:
    """Of one shard. The one of shard 0 has the maps and the numbers of nodes, too."""

    def __init__(self, world: "ClusterWorld", shard: int) -> None:
        self._world = world
        self._shard = shard
        self._leaders: dict[int, int] = {}  # by term: the life of the process
        self._entries: dict[int, tuple[int, int]] = {}  # by index: term, checksum
        self._digests: dict[int, int] = {}
        self._maps: dict[int, bytes] = {}
        self._names: dict[int, str] = {}
        self._groups: list[Membership] = []
        self._known: dict[int, Membership] = {}  # by life: the last membership that was looked at
        self.last = 0
        self.newest = _NONE
        """The group, as the replica that has applied most of the log knows it."""
        self._newest_at = -1

    def look(self, process: "Process") -> None:
        """A process has worked."""
        node = process.replica.node
        if node.is_leader:
            first = self._leaders.setdefault(node.term, process.life)
            if first != process.life:
                raise Violation(
                    "two-leaders", f"shard {self._shard}, term {node.term}: {process.node}"
                )
            self._world.counts[f"elections of shard {self._shard}"] = len(self._leaders)
        membership = node.membership
        if self._known.get(process.life) is not membership:
            self._known[process.life] = membership
            self._changed(process, membership)

    def _changed(self, process: "Process", membership: Membership) -> None:
        """A replica knows another group: of what is committed, so it must be able to go on."""
        applied = process.replica.machine.applied
        if not applied or applied < self._newest_at or not membership.voters:
            return
        self._newest_at, self.newest = applied, membership
        for voters in (membership.voters, membership.outgoing):
            whole = [voter for voter in voters if self._is_whole(voter)]
            if voters and 2 * len(whole) <= len(voters):
                raise Violation("majority", f"shard {self._shard}: of {membership} only {whole}")

    def _is_whole(self, number: int) -> bool:
        """Whether the replica of a node has what it has acknowledged."""
        machine = self._world.owner(number)
        if machine is None:
            return False
        disk = machine.directory.shards.get(self._shard)
        return disk is not None and not (disk.is_blank and self._shard in machine.directory.left)

    def applied(self, process: "Process", index: int, term: int, data: bytes, digest: int) -> None:
        """A replica has applied an entry."""
        entry = (term, zlib.crc32(data))
        if self._entries.setdefault(index, entry) != entry:
            raise Violation(
                "state-machine-safety",
                f"shard {self._shard}: node {process.node} applies another entry {index}",
            )
        self._check(process.node, index, digest)
        if index > self.last:
            self.last = index
            self._world.counts["entries"] += 1

    def opened(self, process: "Process") -> None:
        """A process has begun, or has got a snapshot."""
        machine = process.replica.machine
        self._check(process.node, machine.applied, machine.digest)

    def _check(self, number: int, index: int, digest: int) -> None:
        if self._digests.setdefault(index, digest) != digest:
            raise Violation("digest", f"shard {self._shard}: node {number} at {index}")

    def removed(self, machine: "Machine") -> None:
        """The data of a replica are about to be removed: nothing may count on them."""
        number = machine.number
        group = self.newest
        if number in (*group.voters, *group.outgoing):
            raise Violation("removed-a-voter", f"shard {self._shard}: node {number} of {group}")
        if number in machine.topology.map.places[self._shard]:
            raise Violation("removed-a-place", f"shard {self._shard}: node {number}")

    # The map.

    def saw_map(self, known: ClusterMap) -> None:
        """A map is known somewhere: what has a version has one content."""
        if known.version in self._maps and self._maps_seen is known:
            return
        self._maps_seen = known
        content = msgspec.json.encode(known)
        if self._maps.setdefault(known.version, content) != content:
            raise Violation("two-maps", f"version {known.version}")
        for node in known.nodes:
            if node.instance:
                self.named(node.number, node.instance)

    _maps_seen: ClusterMap | None = None

    def named(self, number: int, instance: str) -> None:
        """A node has a number: it is never given to another one."""
        if self._names.setdefault(number, instance) != instance:
            raise Violation("number-given-twice", f"{number}: {self._names[number]}, {instance}")

    def disk_of(self, number: int) -> "Disk | None":
        """The directory of a node's replica."""
        machine = self._world.owner(number)
        return machine.directory.shards.get(self._shard) if machine is not None else None
