"""Copies of all shards for one backup, and the links that hold them.

One link goes to the leader of each shard. First all leaders stop to send effects to other shards,
and to remove those that were taken (`wire.BeginBackup`). Then each makes a copy that has all which
was confirmed until then. So the copies fit: an effect of one shard on another is in the outbox of
the first copy, or was taken in the second one, or both, and its number says which. Meanwhile only
effects between shards wait. If a leader changed, all begins again.
"""

import math
from typing import Final, TypeVar

import msgspec
import trio

from corvo.connections import Address, dial
from corvo.errors import StoreDamaged, WireError
from corvo.kv import sums
from corvo.kv.sums import Sum
from corvo.link import Link, LinkLost
from corvo.protocol import wire
from corvo.protocol.queries import GetMoment
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Problem, overloaded
from corvo.router.shards.links import Shard, Shards
from corvo.topology import Topology

BACKUPS_MAX: Final = 2
"""Backups that one node makes at a time."""
_COPY_S: Final = 60.0
"""How long the copies of all shards may take, with all tries: a checkpoint of each."""
_TRIES: Final = 3
"""So many times all begins again because a leader changed."""
_UNREAD_S: Final = 60.0
"""How long copies are held before the client begins to read them."""

A = TypeVar("A", bound=wire.BackupAnswer)


class LeaderChanged(Exception):
    """The copies do not fit to each other."""


class ShardLink:
    """The link to the leader of one shard; `run` keeps it."""

    def __init__(self, shard: int, node: int) -> None:
        self.shard: Final = shard
        self.node: Final = node
        self._link: Link | None = None
        self._heard, self._answers = trio.open_memory_channel[wire.BackupAnswer](1)

    async def run(
        self,
        address: Address,
        hello: wire.Hello,
        task_status: "trio.TaskStatus[str]" = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Open it, say why not or nothing, and read it until it ends, which keeps it alive."""
        with self._heard:
            try:
                async with dial(address, hello, node=self.node) as self._link:
                    task_status.started("")
                    while answers := await self._link.receive(wire.TO_BACKUP):
                        for answer in answers:
                            await self._heard.send(answer)
            except (LinkLost, WireError) as error:
                if self._link is None:
                    task_status.started(str(error))

    async def ask(self, request: wire.BackupRequest, kind: type[A]) -> A:
        """Ask for one thing. Raises `LinkLost`."""
        assert self._link is not None, "it is open"
        self._link.send(request)
        try:
            answer = await self._answers.receive()
        except trio.EndOfChannel:
            raise LinkLost(f"the leader of shard {self.shard} cannot be reached any more") from None
        if not isinstance(answer, kind):
            raise LinkLost(f"the leader of shard {self.shard} answered something else")
        return answer


class Copy(msgspec.Struct, frozen=True):
    """The copy of one shard."""

    node: int
    index: int
    sums: bytes
    files: dict[str, Sum]


def _read_copy(link: ShardLink, told: wire.StateCopied | LinkLost) -> Copy:
    """What a leader says of its copy. Raises `LinkLost` and `StoreDamaged`."""
    if isinstance(told, LinkLost):
        raise told
    if told.problem:
        raise LinkLost(f"shard {link.shard} cannot be copied: {told.problem}")
    return Copy(link.node, told.index, told.sums, sums.decode(told.sums) if told.sums else {})


class Copies:
    """The copies of one backup. `run` makes and holds them."""

    def __init__(self, config: RouterConfig, shards: Shards, topology: Topology) -> None:
        self.made: list[Copy] = []
        """By shard."""
        self._config = config
        self._shards = shards
        self._topology = topology
        self._links: list[ShardLink] = []
        self._done = trio.Event()
        self._unread: trio.CancelScope | None = None

    async def run(
        self, task_status: "trio.TaskStatus[Problem | None]" = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Make the copies, say so or why not, and hold them until `close`."""
        problem: Problem | None = None
        until = trio.current_time() + _COPY_S
        for _ in range(_TRIES):
            async with trio.open_nursery() as links:
                problem = await self._try(links, until)
                if problem is None:
                    task_status.started(None)
                    await self._hold()
                links.cancel_scope.cancel()
            if problem is None:
                return
            if trio.current_time() >= until:
                break
        task_status.started(problem)

    async def _try(self, links: trio.Nursery, until: float) -> Problem | None:
        """Make the copies. Returns why there are none."""
        try:
            with trio.fail_at(until):
                await self._make(links)
        except Problem as problem:
            return problem
        except (LeaderChanged, LinkLost, StoreDamaged) as error:
            why = str(error)
        except trio.TooSlowError:
            why = f"the copies of all shards take more than {_COPY_S:g} s"
        else:
            return None
        return Problem(
            503, "BACKUP_FAILED", f"no backup was made: {why}; try again", retry_after_ms=1_000
        )

    async def _hold(self) -> None:
        """Wait for `close`; for a limited time until the client begins to read."""
        with trio.move_on_after(_UNREAD_S) as self._unread:
            await self._done.wait()

    async def _make(self, links: trio.Nursery) -> None:
        self._links = [await self._open(links, shard) for shard in self._shards]
        terms = []
        for link in self._links:
            begun = await link.ask(wire.BeginBackup(1), wire.BackupBegun)
            if not begun.term:
                raise LeaderChanged(f"shard {link.shard} has another leader")
            terms.append(begun.term)
        # What was confirmed until now is to be in the copies.
        least = [(await shard.ask(GetMoment())).index for shard in self._shards]
        told: dict[int, wire.StateCopied | LinkLost] = {}

        async def copy(link: ShardLink) -> None:
            try:
                asked = wire.CopyState(1, least[link.shard])
                told[link.shard] = await link.ask(asked, wire.StateCopied)
            except LinkLost as lost:
                told[link.shard] = lost

        async with trio.open_nursery() as nursery:
            for link in self._links:
                nursery.start_soon(copy, link)
        self.made = [_read_copy(link, told[link.shard]) for link in self._links]
        for shard, term in zip(self._shards, terms, strict=True):
            # A leader that is cut off does not know that another one sends effects by now. An
            # answer that was proven in its term, after all copies, shows that there was none.
            await shard.ask(GetMoment())
            if shard.led_term != term:
                raise LeaderChanged(f"shard {shard.number} has another leader")
        for link in self._links:
            ended = await link.ask(wire.EndBackup(1), wire.BackupEnded)
            if not ended.is_consistent:
                raise LeaderChanged(f"shard {link.shard} had several leaders meanwhile")

    async def _open(self, links: trio.Nursery, shard: Shard) -> ShardLink:
        """A link to the leader of a shard. Raises `Problem`, `LinkLost` and `LeaderChanged`."""
        await shard.ask(GetMoment())  # which waits for a leader
        node = shard.leader
        if node is None:
            raise LeaderChanged(f"shard {shard.number} has no leader")
        route = self._topology.route(shard.number, node)
        if route is None:
            raise LinkLost(f"there is no way to node {node}, which leads shard {shard.number}")
        hello = wire.make_hello(self._config, wire.BACKUP, shard=shard.number)
        link = ShardLink(shard.number, node)
        why: str = await links.start(link.run, route.address, hello)
        if why:
            raise LinkLost(why)
        return link

    async def read(self, shard: int, name: str, offset: int) -> bytes:
        """Bytes of a file; empty at its end. Raises `LinkLost`."""
        part = await self._links[shard].ask(wire.ReadCopy(1, name, offset), wire.CopyPart)
        return part.data

    def begin_reading(self) -> None:
        """The client begins to read: the copies are held until `close`."""
        if self._unread is not None:
            self._unread.deadline = math.inf

    def close(self) -> None:
        """Let go of the copies."""
        self._done.set()


class Backups:
    """The backups that this node makes; `run` has them go on."""

    def __init__(self, config: RouterConfig, shards: Shards, topology: Topology) -> None:
        self._config = config
        self._shards = shards
        self._topology = topology
        self._nursery: trio.Nursery | None = None
        self._count = 0

    async def run(self) -> None:
        """Hold copies until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await trio.sleep_forever()

    async def begin(self) -> Copies:
        """Copies of all shards; `close` lets go of them. Raises `Problem`."""
        if self._nursery is None:
            error = "the server is starting: try again"
            raise Problem(503, "BACKUP_FAILED", error, retry_after_ms=1_000)
        if self._count >= BACKUPS_MAX:
            raise overloaded(f"{self._count} backups are being made, the limit")
        copies = Copies(self._config, self._shards, self._topology)
        self._count += 1

        async def run(task_status: "trio.TaskStatus[Problem | None]") -> None:
            try:
                await copies.run(task_status)
            finally:
                self._count -= 1

        problem = await self._nursery.start(run)
        if problem is not None:
            raise problem
        return copies
