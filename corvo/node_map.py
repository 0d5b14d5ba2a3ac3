"""The cluster map of a node while it runs, and the processes of shards that follow from it.

The router says when there is a newer map. It is kept in the data directory, so that the next start
finds the other nodes, and every process is updated. A shard that the map places here is started.
The process of a replica that is not needed any more (`corvo.shards_held`) is stopped, and its data
are removed.
"""

from typing import Final

import msgspec
import trio

from corvo import __version__
from corvo.child import Notice
from corvo.config import Config
from corvo.datadir import NeededRelease
from corvo.plans import OpenedNode, plans_of, shard_name
from corvo.protocol.cluster import ClusterMap
from corvo.shards_held import ShardsHeld
from corvo.supervisor import Supervisor
from corvo.telemetry import Log

_WAITING_MAX: Final = 1_000
"""Notices that wait; a process has one about each map, and one about each shard."""


class NodeMap:
    """What is known of the cluster; `run` acts on it."""

    def __init__(self, config: Config, opened: OpenedNode, log: Log) -> None:
        self.opened = opened
        self._config = config
        self._log = log
        self._held = ShardsHeld(opened.identity.node, opened.map, opened.there)
        # Before the first map comes: it may place shards elsewhere whose replicas have begun here.
        self._note()
        self._send, self._receive = trio.open_memory_channel[Notice](_WAITING_MAX)

    def hear(self, notice: Notice) -> None:
        """Take a notice of a process."""
        try:
            self._send.send_nowait(notice)
        except trio.WouldBlock:
            self._log.warning("notice.lost", why="the disk of the data directory is too slow")

    async def run(self, supervisor: Supervisor) -> None:
        """Act on notices until cancelled."""
        async for notice in self._receive:
            if notice.unneeded is not None:
                self._held.unneeded(notice.unneeded)
            known = notice.map
            if known is not None and known.version > self.opened.map.version:
                await trio.to_thread.run_sync(self._keep, known)
                self._log.info("cluster.map", version=known.version, nodes=len(known.nodes))
                # The replicas that are new start before it is noted that they are there.
                self.opened = msgspec.structs.replace(self.opened, map=known)
                supervisor.follow(plans_of(self._config, self.opened))
                self._held.take(known)
                self._note()
            await self._remove(supervisor)

    def _keep(self, known: ClusterMap) -> None:
        """Keep a map. No older release opens the directory before newer ops are used."""
        directory = self.opened.directory
        directory.need_release(release_of(known.op_version))
        directory.keep_map(known)

    async def _remove(self, supervisor: Supervisor) -> None:
        """Remove replicas that are not needed any more."""
        for number in self._held.take_removable():
            await supervisor.retire(shard_name(number))
            await trio.to_thread.run_sync(self.opened.directory.remove_shard, number)
            self._held.removed(number)
            self._note()
            supervisor.follow(plans_of(self._config, self.opened))
            self._log.info("shard.moved_away", shard=number)

    def _note(self) -> None:
        self.opened = msgspec.structs.replace(self.opened, there=self._held.there)


def release_of(op_version: int) -> NeededRelease:
    """What the data of a node need once its processes may use ops of that version."""
    return NeededRelease(op_version=op_version, release=__version__)
