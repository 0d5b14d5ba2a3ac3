"""The links to the other replicas of the shard, for our messages; theirs come over their own links.

There is one to each member of the Raft group, to each node that is to become one by the cluster
map, and to each replica that has a link to this one: a vote is answered also by a replica that does
not know the candidate yet.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from corvo.connections import Route
from corvo.kept_link import KeptLink, Retry
from corvo.link import Link, LinkAbsent, LinkLost
from corvo.protocol import wire
from corvo.shard.config import ShardConfig
from corvo.telemetry import Log
from corvo.topology import Topology

_RETRY: Final = Retry(first_s=0.1, max_s=0.5)
"""How soon it is known that the process of a leader has ended, also if it had just begun."""


class ReplicaLinks:
    """See above; `run` keeps them."""

    def __init__(
        self,
        config: ShardConfig,
        topology: Topology,
        *,
        opened: Callable[[], None],
        absent: Callable[[int], None],
    ) -> None:
        """`opened` is called when there is another link.

        `absent` is called once with a node whose process is known to have ended: its links in both
        directions are lost, and nothing listens there.
        """
        self._opened = opened
        self._absent = absent
        self._own: Final = config.node
        self._shard: Final = config.shard
        self._hello: Final = wire.make_hello(config, wire.REPLICA, shard=config.shard)
        self._topology = topology
        self._members: frozenset[int] = frozenset()
        self._incoming: Counter[int] = Counter()
        self._open: dict[int, Link] = {}
        self._present: set[int] = set()  # had a link, and are not known to have ended since
        self._kept: dict[int, trio.CancelScope] = {}
        self._changed = trio.Event()

    def send(self, replica: int, frame: bytes) -> None:
        """Send a message; what is not taken is lost, as on any network."""
        link = self._open.get(replica)
        if link is not None:
            link.send(wire.Peer(frame))

    def close_older(self, op_version: int) -> None:
        """Send nothing more to replicas that are older than this; a new link is refused."""
        for link in [*self._open.values()]:
            if link.peer.op_version < op_version:
                link.close(f"the cluster has op version {op_version} now")

    def follow(self, members: Iterable[int]) -> None:
        """These belong to the group now."""
        self._members = frozenset(members)
        self._changed.set()

    @contextmanager
    def incoming(self, node: int) -> Iterator[None]:
        """The time of a link from a replica to this one."""
        self._incoming[node] += 1
        # It may lead, and end, before our own link to it is open for the first time.
        self._present.add(node)
        self._changed.set()
        try:
            yield
        finally:
            self._incoming[node] -= 1
            self._changed.set()

    @property
    def _wanted(self) -> set[int]:
        place = self._topology.map.places[self._shard]
        return {*self._members, *place, *(+self._incoming)} - {self._own}

    async def run(self, log: Log) -> None:
        """Keep the links that are wanted, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_map)
            while True:
                self._changed = trio.Event()
                wanted = self._wanted
                for node in sorted(wanted - self._kept.keys()):
                    self._kept[node] = scope = trio.CancelScope()
                    nursery.start_soon(self._keep, node, scope, log)
                for node in sorted(self._kept.keys() - wanted):
                    self._kept.pop(node).cancel()
                await self._changed.wait()

    async def _watch_map(self) -> None:
        while True:
            await self._topology.changes()
            self._changed.set()

    async def _keep(self, node: int, scope: trio.CancelScope, log: Log) -> None:
        async def serve(link: Link) -> None:
            self._open[node] = link
            self._present.add(node)
            self._opened()
            try:
                while await link.receive(wire.BETWEEN_REPLICAS):
                    pass
            finally:
                if self._open.get(node) is link:
                    del self._open[node]

        def find() -> Route:
            route = self._topology.route(self._shard, node)
            if route is None:
                raise LinkLost(f"node {node} has no address in the cluster map", was_sent=False)
            return route

        def failed(error: Exception) -> None:
            is_gone = isinstance(error, LinkAbsent) and not self._incoming[node]
            if is_gone and node in self._present:
                self._present.discard(node)
                self._absent(node)

        name = f"shard-{self._shard} of node {node}"
        link = KeptLink(name, find, self._hello, serve, retry=_RETRY, failed=failed)
        with scope:
            await link.run(log)
