"""A machine: its data directory, and most of the time the node that runs on it."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from corvo.connections import PeerAddress
from corvo.peer_security import PeerSecurity
from corvo.protocol.cluster import ClusterMap, ClusterNode
from corvo.raft import AnyMessage
from corvo.raft.codec import Codec
from corvo.shards_held import ShardsHeld
from corvo.topology import Topology, refusal_of
from tests.sim.clusters.linked import welcomes
from tests.sim.clusters.mirror import Mirror, Rows
from tests.sim.clusters.process import Disk, Process
from tests.sim.clusters.router import Router
from tests.sim.options import TICK_NS

if TYPE_CHECKING:
    from tests.sim.clusters.world import ClusterWorld

_CODEC: Final = Codec(0xC0)
_RETRY_TICKS: Final = 10


class Directory:
    """What a node keeps."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.number = 0
        """Of the node; 0 while it has not joined."""
        self.map: ClusterMap | None = None
        self.shards: dict[int, Disk] = {}
        self.left: set[int] = set()  # shards of which a replica was removed; asked, never walked
        self.mirror: dict[int, Rows] = {}


class Machine:
    """One of them. A node lives on it while `is_alive`."""

    def __init__(self, world: "ClusterWorld", number: int, zone: str) -> None:
        self.world = world
        self.id: Final = number
        self.zone: Final = zone
        self.address: Final = f"m{number}:9400"
        self.directory = world.new_directory()
        self.name = f"n{number}"
        self.incarnation = 0
        self.is_alive = False
        self.is_wanted = False
        """Whether it runs, or would be started again."""
        self.refused = ""
        """Why the cluster does not take the node; empty while it does."""
        self.may_be_refused = False
        """Whether its directory was lost, or its node removed."""
        self.is_paused = False
        self.tick_ns = TICK_NS
        self.slowness = 1
        self.skew_ns = world.dice.randrange(-(10**9), 10**9)
        self.processes: dict[int, Process] = {}
        self._backlog: list[Callable[[], None]] = []
        self._missed = 0
        self._open: set[tuple[int, int, int, int]] = set()  # asked, never walked

    # What the faults of `tests.sim.faults` look at.

    @property
    def replica(self) -> int:
        """Its number in the network."""
        return self.id

    @property
    def is_leader(self) -> bool:
        """Whether a shard is led here."""
        return any(process.is_leader for process in self.processes.values())

    @property
    def number(self) -> int:
        """The number of the node."""
        return self.directory.number

    # Life and death.

    def start(self) -> None:
        """Start a node on what the directory has."""
        if self.is_alive or not self.is_wanted or self.refused:
            return
        self.is_alive = True
        self._missed = 0
        self._backlog = []
        if self.number:
            self._known()
        else:
            self._join()

    def _known(self) -> None:
        """A directory that has a number: another node is asked what became of it."""
        directory = self.directory
        assert directory.map is not None
        other = self.world.any_serving(self)
        if other is not None:
            newest = other.topology.map
            reason = refusal_of(newest, self.number, directory.instance)
            if reason:
                self.refuse(reason)
                return
            if newest.version > directory.map.version:
                directory.map = newest
        self._run()

    def _join(self) -> None:
        """Become a node: one of the first ones, or with a number from the cluster."""
        world = self.world
        other = world.any_serving(self)
        if world.first.named(self.name) is not None:
            self._begin_first(other)
        elif other is None or not other.router.announce(self, number=0, then=self._joined):
            self.do(_RETRY_TICKS * TICK_NS, self._try_again)

    def _begin_first(self, other: "Machine | None") -> None:
        """Be one of the first nodes, unless another one knows better."""
        first = self.world.first
        own = first.named(self.name)
        assert own is not None
        found = other.topology.map.named(self.name) if other is not None else None
        if other is not None and found is not None:
            known, instance = other.topology.map, self.directory.instance
            reason = refusal_of(known, found.number, instance)
            if reason:
                self.refuse(reason)
                return
        self.directory.map, self.directory.number = first, own.number
        self._run()

    def _try_again(self) -> None:
        if not self.number:
            self._join()

    def _joined(self, number: int, known: ClusterMap | None, reason: str) -> None:
        if self.number:
            return
        if reason:
            self.refuse(reason)
        elif known is None:
            self.do(_RETRY_TICKS * TICK_NS, self._try_again)
        else:
            self.directory.number, self.directory.map = number, known
            self.world.counts["nodes joined"] += 1
            self._run()

    def _run(self) -> None:
        directory, world = self.directory, self.world
        known = directory.map
        assert known is not None
        world.ledgers[0].saw_map(known)
        self.topology = Topology(
            node=self.number,
            known=known,
            sockets=dict.fromkeys(range(world.options.shards), "here"),
            security=PeerSecurity(),
        )
        self.held = ShardsHeld(self.number, known, directory.shards)
        self._follow_sockets()
        self.router = Router(self)
        for shard in self.held.here:
            self._start_process(shard)
        self.held.take(known)
        self.router.begin()
        self.mirror = Mirror(self)
        self.do(int(world.dice.random() * self.tick_ns), self._tick)

    def _start_process(self, shard: int) -> None:
        if shard not in self.processes:
            self.processes[shard] = Process(self, shard)

    def _follow_sockets(self) -> None:
        self.topology.update(self.held.map, dict.fromkeys(self.held.here, "here"))

    @property
    def is_serving(self) -> bool:
        """Whether it belongs to the cluster, as far as it knows."""
        return self.is_alive and bool(self.number) and bool(self.directory.map)

    def end(self, *, power_loss: bool) -> None:
        """The node ends at once."""
        if not self.is_alive:
            return
        self.is_alive = self.is_paused = False
        self.incarnation += 1
        self._backlog = []
        processes, self.processes = self.processes, {}
        for process in processes.values():
            process.end(power_loss=power_loss)
        if self.number:
            self.router.close()
        if power_loss:
            self.directory.mirror = {}
        for link in [link for link in self.world.links if self.world.concerns(link, self)]:
            link.break_off()

    def refuse(self, reason: str) -> None:
        """The cluster does not take this node."""
        self.world.counts["nodes refused"] += 1
        self.refused = reason
        self.end(power_loss=False)

    def wipe(self) -> None:
        """Its disk is replaced by an empty one."""
        self.end(power_loss=True)
        self.directory = self.world.new_directory()

    def pause(self) -> None:
        """Stand still."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on with what waited."""
        if not self.is_paused:
            return
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.act(action)
        missed, self._missed = self._missed, 0
        if self.is_alive:
            self._tick_once(missed)

    # Doing things.

    def do(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Let this node do something later, if it still lives then."""
        self.world.later(delay_ns, partial(self._guarded, self.incarnation, action))

    def _guarded(self, incarnation: int, action: Callable[[], None]) -> None:
        if incarnation == self.incarnation:
            self.act(action)

    def act(self, action: Callable[[], None]) -> None:
        """Let it do something now, or when it goes on."""
        if not self.is_alive:
            return
        if self.is_paused:
            if action == self._tick:
                self._missed += 1
                self.do(self.tick_ns, self._tick)
            else:
                self._backlog.append(action)
            return
        action()

    def _tick(self) -> None:
        self.do(self.tick_ns, self._tick)
        self._tick_once(0)

    def _tick_once(self, missed: int) -> None:
        for process in list(self.processes.values()):
            process.tick(missed)

    def disk_delay(self) -> int:
        """How long a write takes."""
        return int(self.world.options.disk_ns * self.slowness * (0.5 + self.world.dice.random()))

    # Messages between replicas.

    def send_raft(self, shard: int, message: AnyMessage) -> None:
        """Send a message to the node that the map names."""
        route = self.topology.route(shard, message.target)
        if route is None or not isinstance(route.address, PeerAddress):
            return
        there = self.world.machine_at(route.address.host)
        if there.is_alive and there.is_serving:
            name = (there.id, there.incarnation, shard, self.incarnation)
            if self.world.is_cut(self.id, there.id):
                self._open.discard(name)
            elif name not in self._open:
                if not welcomes(there, self, expected=route.address.instance):
                    self.world.counts["links refused"] += 1
                    return
                self._open.add(name)
        frame = bytes((shard,)) + _CODEC.encode(message)
        self.world.network.send(self.id, there.id, frame)

    def receive_raft(self, frame: bytes) -> None:
        """A message for one of the replicas here."""
        process = self.processes.get(frame[0])
        if process is not None:
            self.act(partial(process.receive, _CODEC.decode(frame[1:])))

    def welcomes(self, source: "Machine", *, expected: str) -> bool:
        """Whether a connection of another node is accepted."""
        return self.is_alive and self.is_serving and welcomes(self, source, expected=expected)

    # The map.

    def take_map(self, known: ClusterMap) -> None:
        """There is a newer map."""
        self.world.ledgers[0].saw_map(known)
        if not self.held.take(known):
            return
        self.directory.map = known
        self._follow_sockets()
        for shard in self.held.here:
            self._start_process(shard)
        self.router.moved()
        for process in list(self.processes.values()):
            process.moved()
            process.work()

    def unneeded(self, shard: int) -> None:
        """A replica here does not belong to its shard any more."""
        self.held.unneeded(shard)
        for each in self.held.take_removable():
            process = self.processes.pop(each)
            process.end(power_loss=False)
            self.world.ledgers[each].removed(self)
            del self.directory.shards[each]
            self.directory.left.add(each)
            self.held.removed(each)
            self._follow_sockets()
            self.world.counts["replicas removed"] += 1

    def described(self) -> ClusterNode:
        """This node, as the map is to have it."""
        return ClusterNode(
            number=self.number or 1,
            name=self.name,
            address=self.address,
            zone=self.zone,
            instance=self.directory.instance,
        )
