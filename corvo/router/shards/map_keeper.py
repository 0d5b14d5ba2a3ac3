"""Keeping of the cluster map in a router: announced to, read from shard 0, passed to the node.

At its start the router announces the node that it belongs to: its name, its address and its
release. It then reads the map whenever shard 0 reports a change, on the link that answers come
over, and now and then. A newer map goes to the links of this router, and to the node, which keeps
it and updates the other processes.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import trio

from corvo.child import Notice
from corvo.errors import CorvoError
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.ops.cluster import HOME, Announced, announcement
from corvo.protocol.queries import GetMap, MapFound
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Problem
from corvo.router.shards.links import Shards
from corvo.telemetry import Log
from corvo.topology import Topology

CONFIRM_S: Final = 10.0
"""Between two readings when nothing happens."""
_RETRY_S: Final = 0.5
_REFUSED: Final = frozenset({"other_instance", "node_removed", "name_taken", "node_not_found"})
"""Refusals of a node that must not run as it is."""


class NodeRefused(CorvoError):
    """The cluster does not take this node: an operator has to change something."""


class MapKeeper:
    """Keeps the map of one router."""

    def __init__(
        self,
        config: RouterConfig,
        shards: Shards,
        topology: Topology,
        tell: Callable[[Notice], None],
    ) -> None:
        self._config = config
        self._shard = shards[HOME]
        self._topology = topology
        self._tell = tell
        self._bell = trio.Event()
        self.is_announced = config.own is None
        """Whether the map has this node as it is now."""

    def ring(self) -> None:
        """The map may have changed: the shard said so, or there is a new leader."""
        self._bell.set()

    async def run(self, log: Log) -> None:
        """Announce the node, and keep the map. Raises `NodeRefused`."""
        while self._config.own is not None:
            self._bell = trio.Event()
            pause_s = CONFIRM_S
            try:
                if self.is_announced:
                    await self._read()
                else:
                    await self._announce(log)
            except Problem as problem:
                if problem.reason in _REFUSED:
                    raise NodeRefused(problem.error) from problem
                log.debug("cluster.map_unread", reason=problem.error)
                pause_s = _RETRY_S
            with trio.move_on_after(pause_s):
                await self._bell.wait()

    async def _announce(self, log: Log) -> None:
        own, known = self._config.own, self._config.map
        assert own is not None, "a server that runs alone is not announced"
        first = known if known is not None and known.version == 0 else None
        op = announcement(own, number=own.number, first=first)
        answer = await self._shard.submit(op)
        announced = _decode_announced(answer.body)
        self.is_announced = True
        log.info("cluster.announced", node=announced.number, map=announced.map.version)
        self._take(announced.map)

    async def _read(self) -> None:
        found = _decode_found((await self._shard.ask(GetMap())).body).map
        if found is not None:
            self._take(found)

    def _take(self, found: ClusterMap) -> None:
        if found.version > self._topology.map.version:
            self._topology.update(found, self._topology.sockets)
            self._tell(Notice(map=found))


_decode_announced: Final = msgspec.json.Decoder(Announced).decode
_decode_found: Final = msgspec.json.Decoder(MapFound).decode
