"""Which shards a node has a replica of: by the cluster map, and by what is in its directory.

A shard that the map places here gets a replica. A replica that is to leave is needed until it does
not belong to its shard any more, which its process reports: only then are its data removed.
"""

from collections.abc import Iterable
from typing import Final

from corvo.protocol.cluster import ClusterMap


class ShardsHeld:
    """Of one node."""

    def __init__(self, node: int, known: ClusterMap, there: Iterable[int]) -> None:
        """`there`: the shards of which the directory has data.

        Those that the map places here are started, and so they will have data.
        """
        self._node: Final = node
        self.map = known
        self.there = frozenset({*there, *known.shards_of(node)})
        self._unneeded: set[int] = set()
        """Shards that have no replica here any more, as their processes say."""

    @property
    def here(self) -> list[int]:
        """The shards that have a replica on this node, or are to have one."""
        return sorted({*self.map.shards_of(self._node), *self.there})

    def take(self, known: ClusterMap) -> bool:
        """Follow a map; returns whether it is newer than the one known."""
        if known.version <= self.map.version:
            return False
        self.map = known
        placed = known.shards_of(self._node)
        self.there |= {*placed}
        self._unneeded -= {*placed}
        return True

    def unneeded(self, shard: int) -> None:
        """A replica reports that it does not belong to its shard any more.

        Not if a later map places the shard here: the replica may be a member again by now.
        """
        if shard not in self.map.shards_of(self._node):
            self._unneeded.add(shard)

    def take_removable(self) -> list[int]:
        """The shards whose replicas are to be stopped and removed now."""
        found = sorted(self._unneeded)
        self._unneeded.clear()
        return found

    def removed(self, shard: int) -> None:
        """The data of a replica are removed."""
        self.there -= {shard}
