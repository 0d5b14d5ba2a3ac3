"""Keeping of the cluster map in a router: announced to, read from shard 0, passed to the node.

At its start the router announces the node that it belongs to: its name, its address and its
release. It then reads the map whenever shard 0 reports a change, on the link that answers come
over, and now and then. A newer map goes to the links of this router, and to the node, which keeps
it and updates the other processes.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec
import trio

from corvo import __version__
from corvo.child import Notice
from corvo.errors import CorvoError
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.ops.cluster import HOME, Announced, announcement
from corvo.protocol.queries import GetMap, MapFound
from corvo.protocol.versions import OLDER_RELEASE, too_old
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Problem
from corvo.router.shards.links import Answer, Shards
from corvo.telemetry import SILENT, Log
from corvo.topology import Topology

CONFIRM_S: Final = 10.0
"""Between two readings when nothing happens."""
_RETRY_S: Final = 0.5
_REFUSED: Final = frozenset(
    {"other_instance", "node_removed", "name_taken", "node_not_found", OLDER_RELEASE}
)
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
        read_maps: Callable[[], Awaitable[list[ClusterMap]]],
    ) -> None:
        """`read_maps` asks the routers of the other nodes for the maps that they have."""
        self._config = config
        self._shard = shards[HOME]
        self._topology = topology
        self._tell = tell
        self._read_maps: Final = read_maps
        self._bell = trio.Event()
        self._log = SILENT
        self.is_announced = config.own is None
        """Whether the map has this node as it is now."""

    def ring(self) -> None:
        """The map may have changed: the shard said so, or there is a new leader."""
        self._bell.set()

    async def run(self, log: Log) -> None:
        """Announce the node, and keep the map. Raises `NodeRefused`."""
        self._log = log
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
                await self._read_anywhere()
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
        self._take_answer(await self._shard.ask(GetMap()))

    async def _read_anywhere(self) -> None:
        """Read the maps that others have: the leader may be on a node that this one lacks.

        All replicas are asked. A replica on this node cannot answer such a leader, and so it gets
        no entries: its map is as old as the one that is known. The routers of the other nodes are
        asked too, because all replicas that are known may have been moved meanwhile.
        """
        with suppress(Problem):
            for answer in await self._shard.ask_each_here(GetMap()):
                self._take_answer(answer)
        for found in await self._read_maps():
            self._take(found)

    def _take_answer(self, answer: Answer) -> None:
        found = _decode_found(answer.body).map
        if found is not None:
            self._take(found)

    def _take(self, found: ClusterMap) -> None:
        before = self._topology.map
        if found.version > before.version:
            reason = too_old(found, has=wire.OP_VERSION, release=__version__)
            if reason:
                raise NodeRefused(reason)
            if before.node(self._config.node) and not found.node(self._config.node):
                self._log_removal(found)
            self._topology.update(found, self._topology.sockets)
            self._tell(Notice(map=found))

    def _log_removal(self, found: ClusterMap) -> None:
        removed = found.removal_of(self._config.node)
        self._log.error(
            "cluster.removed",
            node=self._config.node,
            reason=removed.reason if removed is not None else "",
            then="stop this node; it can join again with an empty data directory",
        )


_decode_announced: Final = msgspec.json.Decoder(Announced).decode
_decode_found: Final = msgspec.json.Decoder(MapFound).decode
