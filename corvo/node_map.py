"""The cluster map of a node while it runs, and the processes of shards that follow from it.

The router says when there is a newer map. It is kept in the data directory, so that the next start
finds the other nodes, and every process is updated. A shard that the map places here is started. A
replica that is to leave is needed until it does not belong to its shard any more, which its process
says; then the process is stopped, and its data are removed.
"""

from typing import Final

import msgspec
import trio

from corvo.child import Notice
from corvo.config import Config
from corvo.plans import OpenedNode, plans_of, shard_name
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
        self._unneeded: set[int] = set()
        """Shards that have no replica here any more, as their processes say."""
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
                self._unneeded.add(notice.unneeded)
            known = notice.map
            if known is not None and known.version > self.opened.map.version:
                await trio.to_thread.run_sync(self.opened.directory.keep_map, known)
                self._log.info("cluster.map", version=known.version, nodes=len(known.nodes))
                self.opened = msgspec.structs.replace(self.opened, map=known)
                supervisor.follow(plans_of(self._config, self.opened))
                here = known.shards_of(self.opened.identity.node)
                self._note(self.opened.there | {*here})
                self._unneeded -= {*here}
            await self._remove(supervisor)

    async def _remove(self, supervisor: Supervisor) -> None:
        """Remove replicas that are not needed any more."""
        here = self.opened.map.shards_of(self.opened.identity.node)
        for number in sorted(self._unneeded - {*here}):
            self._unneeded.discard(number)
            await supervisor.retire(shard_name(number))
            await trio.to_thread.run_sync(self.opened.directory.remove_shard, number)
            self._note(self.opened.there - {number})
            supervisor.follow(plans_of(self._config, self.opened))
            self._log.info("shard.moved_away", shard=number)

    def _note(self, there: frozenset[int]) -> None:
        self.opened = msgspec.structs.replace(self.opened, there=there)
