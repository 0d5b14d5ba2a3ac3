"""The router of a node: it announces the node, keeps the cluster map, and serves clients.

The rules are those of `corvo.router.shards.map_keeper`.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.ops import NUMBERS as OPS
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.ops.cluster import HOME, Announce, Announced, announcement
from corvo.protocol.queries import NUMBERS, AskHere, GetMap, Here, MapFound
from tests.sim.clusters.linked import Linked, Then
from tests.sim.options import TICK_NS

if TYPE_CHECKING:
    from tests.sim.clusters.machine import Machine

_CONFIRM_TICKS: Final = 100
_RETRY_TICKS: Final = 5
_REFUSED: Final = frozenset({"other_instance", "node_removed", "name_taken", "node_not_found"})


class Router:
    """Of one life of a node."""

    def __init__(self, machine: "Machine") -> None:
        self._machine = machine
        self._links: dict[int, Linked] = {}
        self._is_announced = False
        self._is_asking = False
        self._is_rung = False

    def begin(self) -> None:
        """Announce the node, and keep the map."""
        self.linked(HOME)
        self._keep()

    def linked(self, shard: int) -> Linked:
        """The links to a shard: opened when they are needed first."""
        linked = self._links.get(shard)
        if linked is None:
            linked = self._links[shard] = Linked(
                self._machine,
                shard,
                changed=self._ring if shard == HOME else lambda: None,
                pushed=self._pushed,
            )
            linked.refresh()
        return linked

    def close(self) -> None:
        """The process ends."""
        for linked in self._links.values():
            linked.close()

    def moved(self) -> None:
        """There is another map."""
        for linked in self._links.values():
            linked.refresh()

    def submit(self, shard: int, op: int, body: bytes, then: Then) -> bool:
        """Ask the leader of a shard for an op; False while none is known."""
        return self.linked(shard).request(lambda number: wire.Submit(number, op, body), then)

    # The map.

    def _pushed(self, push: wire.Push) -> None:
        if isinstance(push, wire.MapChanged):
            self._ring()

    def _ring(self) -> None:
        if self._is_asking:
            self._is_rung = True
        else:
            self._machine.do(0, self._ask)

    def _keep(self) -> None:
        is_well = self._is_announced and self.linked(HOME).is_led
        self._machine.do((_CONFIRM_TICKS if is_well else _RETRY_TICKS) * TICK_NS, self._keep)
        self._ask()

    def _ask(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        self._is_rung = False
        if not self._is_announced:
            own = self._machine
            known = own.topology.map
            first = known if known.version == 0 else None
            asked = self.announce(own, number=own.number, then=self._announced, first=first)
        else:
            body = encode_json(GetMap())
            asked = self.linked(HOME).request(
                lambda number: wire.Ask(number, NUMBERS[GetMap], body), self._read
            )
        if not asked:
            self._is_asking = False
            self._read_anywhere()

    def _read_anywhere(self) -> None:
        """Read the maps of others: the leader may be on a node that this one does not know."""
        here = AskHere(number=NUMBERS[GetMap], query=msgspec.Raw(encode_json(GetMap())))
        body = encode_json(here)

        def read(answer: wire.Answer | None) -> None:
            if isinstance(answer, wire.Reply) and not answer.code:
                self._take(msgspec.json.decode(answer.body, type=Here).answer)

        self.linked(HOME).request_each(
            lambda number: wire.Ask(number, NUMBERS[AskHere], body), read
        )
        own = self._machine
        for node in own.topology.map.nodes:
            other = own.world.owner(node.number)
            if other is not None:
                own.do(TICK_NS, partial(self._read_of_router, other))

    def _read_of_router(self, other: "Machine") -> None:
        """Read the map of another node, if it answers."""
        own = self._machine
        if not own.number:
            return  # the node has ended meanwhile, and its directory was replaced
        if own.world.can_ask(own, other) and own.topology.map.version < other.topology.map.version:
            own.take_map(other.topology.map)

    def _again(self) -> None:
        self._is_asking = False
        if self._is_rung:
            self._machine.do(TICK_NS, self._ask)

    def _read(self, answer: wire.Answer | None) -> None:
        if isinstance(answer, wire.Reply) and not answer.code:
            self._take(answer.body)
        self._again()

    def _take(self, answer: bytes | msgspec.Raw) -> None:
        found = msgspec.json.decode(answer, type=MapFound).map
        if found is not None and found.version > self._machine.topology.map.version:
            self._machine.take_map(found)

    def _announced(self, number: int, known: ClusterMap | None, reason: str) -> None:
        machine = self._machine
        if reason:
            machine.refuse(reason)
            return
        if known is not None:
            assert number == machine.number, f"node {machine.number} was given {number}"
            self._is_announced = True
            if known.version > machine.topology.map.version:
                machine.take_map(known)
        self._again()

    def announce(
        self,
        node: "Machine",
        *,
        number: int,
        then: Callable[[int, ClusterMap | None, str], None],
        first: ClusterMap | None = None,
    ) -> bool:
        """Announce a node; `then` gets its number and the map, or nothing, or why it is refused."""
        op = announcement(node.described(), number=number, first=first)
        incarnation = node.incarnation

        def answered(answer: wire.Answer | None) -> None:
            if node.incarnation != incarnation:
                return
            if not isinstance(answer, wire.Reply):
                then(0, None, "")
            elif answer.code in _REFUSED:
                then(0, None, msgspec.json.decode(answer.body, type=Rejected).error)
            elif answer.code:
                then(0, None, "")
            else:
                found = msgspec.json.decode(answer.body, type=Announced)
                node.world.ledgers[0].named(found.number, node.directory.instance)
                then(found.number, found.map, "")

        return self.submit(HOME, OPS[Announce], encode_json(op), partial(_later, node, answered))


def _later(node: "Machine", then: Then, answer: wire.Answer | None) -> None:
    """The answer travels on to the node that asked."""
    node.world.later(node.world.options.latency_ns, partial(then, answer))
