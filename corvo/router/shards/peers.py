"""The routers of the other nodes: links to them, and what they are asked.

A worker fetches from one node, and may be asked about at any. So what a router has seen of workers
is put together from all routers of the cluster. An answer is used again for a moment, because
dashboards ask often. A router that does not answer makes the whole incomplete, and says nothing.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import trio

from corvo.errors import WireError
from corvo.kept_link import BETWEEN_NODES, KeptLink
from corvo.link import Link, LinkClient, LinkLost, Route, open_client
from corvo.protocol import wire
from corvo.protocol.routers import GET_SEEN_WORKERS, SeenWorker, SeenWorkers
from corvo.router.config import RouterConfig
from corvo.telemetry import SILENT, Log
from corvo.topology import Topology

_PATIENCE_S: Final = 0.5
_USED_S: Final = 1.0
"""How long an answer is used again."""


class SeenElsewhere(msgspec.Struct, frozen=True):
    """The workers that other routers have seen."""

    workers: list[SeenWorker]
    is_whole: bool  # whether every other node of the cluster has answered


class PeerRouters:
    """The routers of the other nodes; `run` keeps links to them."""

    def __init__(self, config: RouterConfig, topology: Topology) -> None:
        self._topology = topology
        self._hello = wire.make_hello(config, wire.ROUTER, shard=wire.ALL_SHARDS)
        self._scopes: dict[int, trio.CancelScope] = {}
        self._clients: dict[int, LinkClient] = {}
        self._asking = trio.Lock()
        self._seen: SeenElsewhere | None = None
        self._seen_at = 0.0

    async def run(self, log: Log = SILENT) -> None:
        """Keep a link to the router of each other node in the map."""
        async with trio.open_nursery() as nursery:
            while True:
                wanted = {route.node for route in self._topology.to_nodes()}
                for node in sorted(wanted - self._scopes.keys()):
                    self._scopes[node] = trio.CancelScope()
                    nursery.start_soon(self._keep, node, log)
                for node in sorted(self._scopes.keys() - wanted):
                    self._scopes.pop(node).cancel()
                await self._topology.changes()

    async def _keep(self, node: int, log: Log) -> None:
        def find() -> Route:
            for route in self._topology.to_nodes():
                if route.node == node:
                    return route
            raise LinkLost(f"node {node} has no address", was_sent=False)

        async def serve(link: Link) -> None:
            async with open_client(link) as client:
                self._clients[node] = client
                try:
                    await trio.sleep_forever()
                finally:
                    del self._clients[node]

        link = KeptLink(f"router of node {node}", find, self._hello, serve, retry=BETWEEN_NODES)
        with self._scopes[node]:
            await link.run(log)

    async def seen(self) -> SeenElsewhere:
        """The workers that the other routers have seen, as of a second ago at most."""
        async with self._asking:
            now = trio.current_time()
            if self._seen is None or now - self._seen_at > _USED_S:
                self._seen, self._seen_at = await self._ask_all(), now
            return self._seen

    async def _ask_all(self) -> SeenElsewhere:
        nodes = {route.node for route in self._topology.to_nodes()}
        found: dict[int, list[SeenWorker]] = {}

        async def ask(node: int, client: LinkClient) -> None:
            try:
                answer = await client.ask(GET_SEEN_WORKERS, b"")
                if isinstance(answer, wire.Reply) and not answer.code:
                    found[node] = _decode(answer.body).workers
            except (LinkLost, WireError, msgspec.MsgspecError):
                return  # which makes the whole incomplete

        with trio.move_on_after(_PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for node, client in list(self._clients.items()):
                    nursery.start_soon(ask, node, client)
        return SeenElsewhere(list(_together(found)), is_whole=found.keys() >= nodes)


def _together(found: dict[int, list[SeenWorker]]) -> Iterator[SeenWorker]:
    for node in sorted(found):
        yield from found[node]


_decode: Final = msgspec.msgpack.Decoder(SeenWorkers).decode
