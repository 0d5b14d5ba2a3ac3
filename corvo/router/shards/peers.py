"""The routers of the other nodes: links to them, and what they are asked.

A worker fetches from one node, and may be asked about at any. So what routers have seen of workers,
and of the cluster, is put together from all routers. Answers are used again for a moment, because
dashboards ask often. A router that does not answer makes the whole incomplete. What clients use of
their rates is sent to all of them (`corvo.router.auth.sharing`).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

import msgspec
import trio

from corvo.clock_offsets import Reading
from corvo.clock_readings import read_clock_of
from corvo.connections import Route
from corvo.errors import WireError
from corvo.kept_link import BETWEEN_NODES, KeptLink
from corvo.link import Link, LinkClient, LinkLost, open_client
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.queries import MapFound
from corvo.protocol.routers import (
    GET_EVENTS,
    GET_NODE_MAP,
    GET_SEEN_WORKERS,
    ObservedEvents,
    SeenWorkers,
)
from corvo.router.config import RouterConfig
from corvo.telemetry import SILENT, Log
from corvo.topology import Topology

_PATIENCE_S: Final = 0.5
_USED_S: Final = 1.0
"""How long an answer is used again."""

T = TypeVar("T")


class Answers(msgspec.Struct, Generic[T], frozen=True):
    """The answers of the other routers to one question."""

    by_node: dict[int, T]
    missing: list[int]  # nodes whose routers did not answer

    @property
    def is_whole(self) -> bool:
        """Whether every other node of the cluster has answered."""
        return not self.missing


class Question(Generic[T]):
    """A question without arguments, which all routers are asked at once."""

    def __init__(self, number: int, decode: Callable[[bytes], T]) -> None:
        self.number: Final = number
        self.decode: Final = decode
        self.turn: Final = trio.Lock()
        self.answers: Answers[T] | None = None
        self.asked_at = 0.0


class PeerRouters:
    """The routers of the other nodes; `run` keeps links to them."""

    def __init__(self, config: RouterConfig, topology: Topology) -> None:
        self._topology = topology
        self._hello = wire.make_hello(config, wire.ROUTER, shard=wire.ALL_SHARDS)
        self._scopes: dict[int, trio.CancelScope] = {}
        self._clients: dict[int, LinkClient] = {}
        self.workers: Final = Question(GET_SEEN_WORKERS, _decode_workers)
        """The workers that the routers have seen."""
        self.events: Final = Question(GET_EVENTS, _decode_events)
        """The changes of the cluster that the routers have observed."""
        self._maps: Final = Question(GET_NODE_MAP, _decode_map)

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

    async def ask(self, question: Question[T]) -> Answers[T]:
        """The answers of the other routers, as of a second ago at most."""
        async with question.turn:
            now = trio.current_time()
            if question.answers is None or now - question.asked_at > _USED_S:
                question.answers, question.asked_at = await self._ask_all(question), now
            return question.answers

    async def read_maps(self) -> list[ClusterMap]:
        """The cluster maps that the other routers have."""
        answers = await self.ask(self._maps)
        return [found.map for found in answers.by_node.values() if found.map is not None]

    def tell(self, number: int, body: bytes) -> None:
        """Send the routers that are linked something that they only confirm."""
        for client in self._clients.values():
            with suppress(LinkLost):  # it has just been lost, and its task does not know yet
                client.begin_query(number, body)

    async def read_clocks(self) -> dict[int, Reading]:
        """The clocks of the routers that answer in time, by their nodes."""
        found: dict[int, Reading] = {}

        async def read(node: int, client: LinkClient) -> None:
            reading = await read_clock_of(client)
            if reading is not None:
                found[node] = reading

        with trio.move_on_after(_PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for node, client in list(self._clients.items()):
                    nursery.start_soon(read, node, client)
        return {node: found[node] for node in sorted(found)}

    async def _ask_all(self, question: Question[T]) -> Answers[T]:
        nodes = [route.node for route in self._topology.to_nodes()]
        found: dict[int, T] = {}

        async def ask(node: int, client: LinkClient) -> None:
            try:
                answer = await client.ask(question.number, b"")
                if isinstance(answer, wire.Reply) and not answer.code:
                    found[node] = question.decode(answer.body)
            except (LinkLost, WireError, msgspec.MsgspecError, UnicodeError):
                return  # the node is named as missing

        with trio.move_on_after(_PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for node, client in list(self._clients.items()):
                    nursery.start_soon(ask, node, client)
        return Answers(
            {node: found[node] for node in sorted(found)},
            [node for node in nodes if node not in found],
        )


_decode_workers: Final = msgspec.msgpack.Decoder(SeenWorkers).decode
_decode_map: Final = msgspec.msgpack.Decoder(MapFound).decode
_decode_events: Final = msgspec.msgpack.Decoder(ObservedEvents).decode
