"""Links to all replicas of a shard: each says who leads, and requests go to the one that does.

Every replica tells its links about each change of its leader. So the leader is found without
asking around, also while one replica is cut off from it: the replica that says of itself that it
leads, in the highest term, is the one. A link that is no longer the leader's is kept, because
requests that were sent over it are still answered there.

A shard that is moved is led by its former leader until the new replicas have caught up. So there is
a link also to a replica that the map does not name, as long as another one names it as the leader.
"""

from collections.abc import Callable
from typing import Final

import trio

from corvo.connections import Route
from corvo.kept_link import BETWEEN_NODES, WITHIN_NODE, KeptLink
from corvo.leader_reports import Report, leading, named
from corvo.link import Link, LinkClient, LinkLost, open_client
from corvo.protocol import wire
from corvo.telemetry import SILENT, Log
from corvo.topology import Topology

_SILENT_MAX: Final = 3
"""A replica that is silent while requests wait is asked so many times for a sign of life."""
_DRAIN_S: Final = 10.0
"""How long requests may take that were sent to a replica which does not belong to the shard now."""


class Member(Report):
    """The link to one replica, and what the replica reports."""

    def __init__(self, node: int, link: KeptLink, scope: trio.CancelScope) -> None:
        super().__init__(node)
        self.link: Final = link
        self.scope: Final = scope
        self.client: LinkClient | None = None
        self._opened: Link | None = None
        self._looked_at = 0.0
        self._asked = 0  # times, since it was heard
        self._contact: float | None = None

    @property
    def contact(self) -> float | None:
        """When the replica last sent something, by trio's clock; None if it never did."""
        return self._opened.heard_at if self._opened is not None else self._contact

    def opened(self, link: Link, client: LinkClient) -> None:
        """Note that its link is open."""
        self.client, self._opened = client, link
        self.is_open = True

    def look(self) -> None:
        """Leave the link if requests wait, and the replica does not answer that it is there.

        A lost machine resets no connection. Looks are counted and no time is measured, so that a
        pause of this process is not taken for one of the other.
        """
        link, client = self._opened, self.client
        if link is None or client is None:
            return
        is_heard, self._looked_at = link.heard_at > self._looked_at, trio.current_time()
        if is_heard or not client.calls_in_flight:
            self._asked = 0
        elif self._asked < _SILENT_MAX:
            self._asked += 1
            link.send(wire.Ping(0))
        else:
            self._asked = 0
            self.link.reopen()

    def closed(self) -> None:
        """Note that its link was lost: the link itself, with its buffers, is not kept."""
        self._contact = self.contact
        self.client = self._opened = None
        super().closed()


class ShardLinks:
    """The links to one shard; `run` keeps them."""

    def __init__(
        self,
        shard: int,
        topology: Topology,
        hello: wire.Hello,
        *,
        pushed: Callable[[wire.Push], None] = lambda _: None,
        changed: Callable[[], None] = lambda: None,
        linked: Callable[[], None] = lambda: None,
    ) -> None:
        """`pushed` takes what the leader's replica says unasked.

        `changed` is called when another replica leads, or none, or one in another term. `linked` is
        called when a link is open, or lost.
        """
        self.shard: Final = shard
        self.leader: LinkClient | None = None
        """The link to the leader; None while none is known."""
        self._topology = topology
        self._hello = hello
        self._pushed = pushed
        self._changed = changed
        self._linked = linked
        self.term = 0
        """The highest term that any replica has named."""
        self._members: dict[int, Member] = {}
        self._node: int | None = None
        self._bell = trio.Event()
        """Set when another set of replicas may have to be linked."""
        self.led_term = 0
        """The term of the leader; 0 while none is known."""

    @property
    def leader_node(self) -> int | None:
        """The node of the leader."""
        return self._node

    @property
    def any(self) -> LinkClient | None:
        """A link to some replica, to the leader's if possible."""
        if self.leader is not None:
            return self.leader
        open_ = (member.client for member in self._members.values())
        return next((client for client in open_ if client is not None), None)

    @property
    def members(self) -> list[Member]:
        """The replicas that are linked, by their nodes."""
        return [self._members[node] for node in sorted(self._members)]

    @property
    def last_error(self) -> str:
        """Why there is no leader, while there is none."""
        told = [
            f"node {member.node}: "
            + ("knows no leader" if member.client is not None else member.link.last_error)
            for member in self._members.values()
        ]
        if len(told) == 1:
            [member] = self._members.values()
            return "no leader is elected yet" if member.client else member.link.last_error
        return "; ".join(told) or "no node is known that has a replica"

    @property
    def calls_in_flight(self) -> int:
        """Requests that wait for an answer."""
        clients = (member.client for member in self._members.values())
        return sum(client.calls_in_flight for client in clients if client is not None)

    async def run(self, log: Log = SILENT) -> None:
        """Keep a link to each replica that the map names, and to the leader."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_map)
            while True:
                self._bell = trio.Event()
                wanted = self._wanted()
                for node in sorted(wanted - self._members.keys()):
                    self._members[node] = member = self._make(node)
                    nursery.start_soon(self._keep, member, log)
                for node in sorted(self._members.keys() - wanted):
                    nursery.start_soon(self._drop, self._members.pop(node))
                    self._choose()
                await self._bell.wait()

    async def _watch_map(self) -> None:
        while True:
            self._bell.set()
            await self._topology.changes()

    def _wanted(self) -> set[int]:
        """The nodes to link to."""
        wanted = {route.node for route in self._topology.routes(self.shard)}
        leader = named(self._members.values())
        if leader is not None and self._topology.route(self.shard, leader) is not None:
            wanted.add(leader)
        return wanted

    def _make(self, node: int) -> Member:
        async def serve(link: Link) -> None:
            await self._serve(member, link)

        is_here = node == self._topology.node
        link = KeptLink(
            f"shard-{self.shard}" if is_here else f"shard-{self.shard} of node {node}",
            lambda: self._route(node),
            self._hello,
            serve,
            retry=WITHIN_NODE if is_here else BETWEEN_NODES,
        )
        member = Member(node, link, trio.CancelScope())
        return member

    def _route(self, node: int) -> Route:
        route = self._topology.route(self.shard, node)
        if route is None:
            raise LinkLost(f"node {node} has no address", was_sent=False)
        return route

    async def _keep(self, member: Member, log: Log) -> None:
        with member.scope:
            await member.link.run(log)

    async def _drop(self, member: Member) -> None:
        """Leave a replica that does not belong to the shard, when it had time to answer."""
        await trio.sleep(_DRAIN_S)
        member.scope.cancel()

    async def _serve(self, member: Member, link: Link) -> None:
        def on_push(push: wire.Push) -> None:
            if isinstance(push, wire.Leading):
                member.heard(push.leader, push.term)
                self.term = max(self.term, push.term)
                self._choose()
                self._bell.set()
            elif member.node == self._node:
                self._pushed(push)

        async with open_client(link, on_push) as client:
            member.opened(link, client)
            self._linked()
            try:
                await trio.sleep_forever()
            finally:
                member.closed()
                self._linked()
                self._choose()

    def look(self) -> None:
        """Give up links to other nodes over which requests wait, and nothing comes."""
        for member in self._members.values():
            if member.node != self._topology.node:
                member.look()

    def not_leader(self, client: LinkClient, term: int) -> None:
        """A replica has refused a request because it does not lead.

        The request was sent when it led in that term. What the replica said meanwhile is newer.
        """
        for member in self._members.values():
            if member.client is client and member.refused(term):
                self._choose()

    def _choose(self) -> None:
        """Take the leader of the highest term."""
        best = leading(self._members.values())
        client = best.client if best is not None else None
        term = best.term if best is not None else 0
        # The same replica in another term has forgotten what it knew of its links.
        if client is not self.leader or term != self.led_term:
            self.leader, self.led_term = client, term
            self._node = best.node if best is not None else None
            self._changed()
