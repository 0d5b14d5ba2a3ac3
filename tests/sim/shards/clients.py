"""All clients of a run, and those who only read."""

from typing import TYPE_CHECKING

import msgspec

from corvo.protocol import wire
from tests.sim.host import Host
from tests.sim.options import TICK_NS
from tests.sim.shards.callers import Caller
from tests.sim.shards.links import Link
from tests.sim.shards.neighbour import Neighbour
from tests.sim.shards.people import Nodes, Operator
from tests.sim.shards.producers import Producer
from tests.sim.shards.schedulers import Scheduler
from tests.sim.shards.words import GET_QUEUE
from tests.sim.shards.workers import Worker
from tests.sim.workload import Workload

if TYPE_CHECKING:
    from tests.sim.shards.world import ShardWorld


class Prober(Caller):
    """Tries whether a shard takes anything."""

    _probed: Host | None = None

    def open_probe(self, host: Host) -> None:
        """Have one host take a setting that changes nothing."""
        self._probed = host
        fields = {"queue": "probe", "retention_ms": 0}
        self.call("SetRetention", dict(fields), lambda _: None, again=False)

    def link(self) -> Link | None:
        """The link to that host, whether it leads or not."""
        return self.link_to(self._probed.replica) if self._probed is not None else None


class Reader:
    """One question over one link."""

    def __init__(self, clients: "Clients", host: Host) -> None:
        world = clients.world
        self.began = world.now
        self.replica = host.replica
        self._clients = clients
        self._floor = world.oracles.floor
        self._link = Link(world, self, world.host(host.replica), clients.dice)
        clients.links[self._link] = None
        queue = clients.dice.choice(clients.queues)
        self._link.send(wire.Ask(1, GET_QUEUE, msgspec.json.encode({"queue": queue})))

    def heard(self, link: Link, message: wire.Answer | wire.Push) -> None:
        """An answer, or a word about who leads."""
        if isinstance(message, wire.Push):
            return
        world = self._clients.world
        if isinstance(message, wire.Reply):
            assert not message.code, f"a question was refused: {message.body!r}"
            world.counts["reads checked"] += 1
            world.oracles.read(self.replica, index=message.index, floor=self._floor)
            world.oracles.acknowledge(message.index)
            readers = self._clients.readers
            readers[self.replica] = readers.get(self.replica, 0) + 1
        else:
            world.counts["reads lost"] += 1
        self._clients.asking.pop(self, None)
        link.break_off()

    def lost(self, link: Link) -> None:
        """Nobody will know."""
        self._clients.asking.pop(self, None)


class Clients(Workload):
    """Everybody."""

    def __init__(self, world: "ShardWorld") -> None:
        super().__init__(world)
        self.world = world
        self.dice = self._random
        options = world.options
        # Of two shards, the first has those with even numbers.
        self.queues = tuple(f"q{options.shards * number}" for number in range(options.queues))
        self.known: dict[str, None] = {}
        """Jobs that somebody has heard of."""
        self.links = world.links
        self.asking: dict[Reader, None] = {}

    def begin(self) -> None:
        """Clients begin to work, and do so until the end."""
        world, options = self.world, self.world.options
        self.prober = Prober(world, "probe")
        self.operator = Operator(world, "o0")
        self.nodes = Nodes(world, "m0")
        self.scheduler = Scheduler(world, "s0")
        self.neighbour = Neighbour(world)
        self.producers = [Producer(world, f"p{number}") for number in range(options.producers)]
        self.workers = [Worker(world, f"w{number}") for number in range(options.workers)]
        for producer in self.producers:
            producer.begin()
        for worker in self.workers:
            worker.begin()
        if options.has("people"):
            self.operator.begin()
        if options.has("nodes"):
            self.nodes.begin()
        if options.has("schedules"):
            self.scheduler.begin()
        if options.has("effects"):
            self.neighbour.begin()
        if options.reads:
            self.world.later(TICK_NS, self._next)

    def neighbour_ends(self) -> None:
        """The process of the other shard ends, and is there again."""
        self.neighbour.end()

    def know(self, job_id: str) -> None:
        """Somebody has heard of a job."""
        self.known.setdefault(job_id, None)

    @property
    def is_waiting(self) -> bool:
        """Whether anybody still waits for an answer."""
        others = (self.operator, self.neighbour, self.nodes, self.scheduler)
        return any(caller.waits for caller in (*others, *self.producers, *self.workers))

    def _next(self) -> None:
        hosts = self.world.running
        rate = self.world.options.reads / (2 if self.world.is_chaos else 10)
        self.world.later(int(self.dice.expovariate(rate) * TICK_NS) + 1, self._next)
        if hosts:
            self.read(self.dice.choice(hosts))

    def write(self, host: Host) -> None:
        """Somebody tries whether a host takes anything."""
        self.prober.open_probe(host)

    def read(self, host: Host) -> None:
        """Somebody asks one host."""
        self.asking[Reader(self, host)] = None

    def replied(self, index: int) -> None:
        """Somebody was told of an entry."""
        self.written_at = max(self.written_at, index)

    def oldest_read(self, replicas: list[int]) -> int:
        """When the oldest question at one of these was asked that is not answered."""
        return min(
            (reader.began for reader in self.asking if reader.replica in replicas),
            default=self.world.now,
        )

    def ended(self, replica: int) -> None:
        """A process ended, and its links with it."""
        for link in [link for link in self.links if link.host.replica == replica]:
            link.break_off()
