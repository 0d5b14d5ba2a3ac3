"""One replica's process: the driver that `corvo.raft.ready` asks for, on a simulated machine.

A process is alive while `node` is set. Everything that it will do later is an event of its
*incarnation*; when it ends, those events find another incarnation and do nothing.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from corvo.raft import (
    AnyMessage,
    DiskFull,
    Entry,
    FrameError,
    Kind,
    LogDamaged,
    LogFailed,
    Membership,
    Node,
    Read,
    Ready,
    Settings,
    Snapshot,
    Write,
)
from corvo.raft.codec import Codec
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.recovery import quarantine
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.state import Raft
from tests.sim.chance import fork
from tests.sim.contact import Contact
from tests.sim.failures import Stuck, Violation
from tests.sim.machine import Machine, State
from tests.sim.options import MS, TICK_NS
from tests.sim.oracles import inside
from tests.support.files import Crashed, MemoryFiles

if TYPE_CHECKING:
    from tests.sim.world import World

CLUSTER: Final = 0xC0
_ROUNDS_MAX: Final = 2_000
"""Calls of `ready` in a row; a node that always has more to do never comes to rest."""


class LostPower(Crashed):
    """The machine ended here."""


class Member(Protocol):
    """What a driver tells things to: a `Node`, or what is built around one."""

    def step(self, message: AnyMessage) -> None:
        """A message from another replica."""

    def tick(self, missed: int = 0) -> None:
        """One tick has passed."""

    def stored(self, token: int, *, intact: bool = True) -> None:
        """A write is durable."""


class Host:
    """A machine with one disk and, most of the time, one process."""

    raft: Raft
    """What the node of the last process believes, for the oracles."""
    machine: Machine
    """What the last process applied entries to."""

    def __init__(self, world: "World", replica: int, membership: Membership) -> None:
        self.world = world
        self.replica = replica
        self.instance = world.instance_of(replica)
        self.files = MemoryFiles(fork(world.options.seed, f"files {replica}"))
        self.incarnation = 0
        self.is_paused = False
        self.tick_ns = TICK_NS
        self.slowness = 1
        self.fuse: int | None = None
        """Crash after so many more steps."""
        self.tears = False
        """Lose power before the next sync."""
        self.awaits_change: int | None = None
        """Crash so many steps of the disk after a change of the membership comes to it."""
        self.is_retired = False
        """Shut down for good, after the group let it go."""
        self.is_wiped = False
        """Has forgotten everything. Nobody may believe what it says."""
        self.is_mending = False
        """Set aside as damaged, and not yet durably called whole again."""
        self.is_damaged = False
        """Damaged at rest, and the process has not looked yet."""
        self.owed: tuple[int, int] | None = None
        """The last entry, index and term, that an older copy of the disk has forgotten."""
        self._owes_repair = False  # its repair was heard of
        self._first = membership
        self._random = fork(world.options.seed, f"host {replica}")
        self._codec = Codec(CLUSTER)
        self._limits = world.options.limits
        self._applied_at_end = 0
        self._lost_power = False
        self._alive: tuple[Node, DiskStorage, State] | None = None
        self._forget()

    def _forget(self) -> None:
        """What only a running process has."""
        self.leading_term = 0
        self.commit_seen = 0
        self.handed = 0
        self.contact = Contact()
        self._queue: deque[Write] = deque()
        self._done: deque[tuple[Write, bool]] = deque()
        self._disk_is_busy = False
        self._syncing = 0
        self._page: deque[Entry] = deque()
        self._reads: list[Read] = []
        self._installing = False
        self._backlog: list[Callable[[], None]] = []
        self._missed = 0
        self._checkpointed = 0

    # What others may see.

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self._alive is not None

    @property
    def node(self) -> Node:
        """The replica of the running process."""
        assert self._alive is not None, f"replica {self.replica} is down"
        return self._alive[0]

    @property
    def storage(self) -> DiskStorage:
        """Its log."""
        assert self._alive is not None, f"replica {self.replica} is down"
        return self._alive[1]

    @property
    def state(self) -> State:
        """What it has applied."""
        assert self._alive is not None, f"replica {self.replica} is down"
        return self._alive[2]

    @property
    def member(self) -> Member:
        """What is told of messages, ticks and finished writes."""
        return self.node

    @property
    def is_leader(self) -> bool:
        """Whether it runs and leads, or takes itself for a leader."""
        return self._alive is not None and self._alive[0].is_leader

    # Life and death.

    def start(self) -> None:
        """Begin a process on what the disk holds."""
        if self._alive is not None or self.is_retired:
            return
        self._forget()
        try:
            storage = self._open()
            state = self._restore(storage)
        except (Crashed, LogFailed, DiskFull):
            self.end(power_loss=self._random.random() < 0.5)
            self.world.later(self._random.randrange(1, 10) * TICK_NS, self.start)
            return
        node = self._make_node(storage, state)
        self._alive = node, storage, state
        self.raft = inside(node)
        self.handed = state.applied
        self._checkpointed = state.applied
        self.world.note(b"start %d %d" % (self.replica, state.applied))
        self.world.oracles.look(self, applied_before=state.applied)
        self.world.oracles.in_force(self)
        self.do(int(self._random.random() * self.tick_ns), self._tick)
        self.do(0, self._work)

    def _make_node(self, storage: DiskStorage, state: State) -> Node:
        return Node(
            self._settings(storage),
            storage,
            fork(self.world.options.seed, f"node {self.replica} {self.incarnation}"),
            applied=state.applied,
            repair=storage.repairing,
        )

    def _settings(self, storage: DiskStorage) -> Settings:
        """What this life allows a node."""
        return Settings(
            replica=self.replica,
            instance=storage.identity.instance,
            election_ticks=self._limits.election_ticks,
            heartbeat_ticks=self._limits.heartbeat_ticks,
            append_bytes_max=self._limits.append_bytes_max,
            window_messages_max=self._limits.window_messages_max,
            window_bytes_max=self._limits.window_bytes_max,
            uncommitted_bytes_max=self._limits.uncommitted_bytes_max,
            page_bytes_max=self._limits.page_bytes_max,
            chunk_bytes_max=self._limits.chunk_bytes_max,
            reads_waiting_max=self._limits.reads_waiting_max,
            promotion_lag_max=self._limits.promotion_lag_max,
        )

    def _open(self) -> DiskStorage:
        oracles = self.world.oracles
        identity = Identity("sim", self.replica, self.instance)
        try:
            storage = self._open_once(identity)
        except LogDamaged:
            if not self.is_damaged:
                raise
            oracles.damaged(self.replica)
            self.is_mending = True
            self.files.close()
            quarantine(self.files)
            self.world.counts["logs set aside"] += 1
            self.files.close()
            storage = self._open_once(identity)
        self.is_damaged = False
        if self._owes_repair and not storage.repairing:
            raise Violation("repair-forgotten", f"replica {self.replica} is whole after a restart")
        self.is_mending = storage.repairing
        oracles.opened(self.replica, storage)
        return storage

    def _open_once(self, identity: Identity) -> DiskStorage:
        return DiskStorage.open(
            self.files, identity, self._first, segment_bytes=self._limits.segment_bytes
        )

    def _restore(self, storage: DiskStorage) -> State:
        """After a crash of the process any applied index may be kept; else that of the snapshot."""
        machine = self.machine = self.world.make_machine()
        if storage.snapshot() is not None:
            machine.load(b"".join(storage.snapshot_data()))
        index = machine.applied
        if not self._lost_power:
            kept = min(self._applied_at_end, storage.last_index)
            if kept > index:
                index = self._random.choice((kept, self._random.randrange(index, kept + 1)))
        while machine.applied < index:
            for entry in storage.entries(machine.applied + 1, index, 1 << 30):
                machine.apply(entry)
        self.world.oracles.applied(self.replica, machine.applied, machine.digest)
        return machine

    def end(self, *, power_loss: bool) -> None:
        """The process, or the whole machine, ends at once."""
        if self._alive is not None:
            self._applied_at_end = self.state.applied
            self.world.oracles.refused(self.replica, dict(self.raft.refused))
            self.world.gather(self.raft.refused)
        self.world.note(b"end %d" % self.replica)
        self._lost_power = power_loss or (self._lost_power and self._alive is None)
        self._alive = None
        self.incarnation += 1
        self.is_paused = False
        self.fuse = None
        if power_loss:
            self.files.power_loss(self._random)
        else:
            self.files.process_crash()
        self.world.workload.ended(self.replica)

    def wipe(self) -> None:
        """Another machine with an empty disk takes the place of this one."""
        self.end(power_loss=True)
        self.is_wiped = True
        self.instance += 1_000_000
        self.files = MemoryFiles(fork(self.world.options.seed, f"wiped {self.replica}"))
        self._first = Membership()
        self._applied_at_end = 0
        self.world.oracles.wiped(self.replica)
        self.world.counts["replicas wiped"] += 1

    def copied_disk(self) -> MemoryFiles:
        """A copy of everything on the disk."""
        return self.files.copy()

    def roll_back(self, files: MemoryFiles) -> None:
        """The disk of this machine is replaced by an older copy of it."""
        self.end(power_loss=True)
        shadow = self.world.oracles.shadow(self.replica)
        self.owed = shadow.last_index, shadow.last_term
        self._owes_repair = False
        self._applied_at_end = 0
        self.files = files
        files.power_loss(self._random)
        self.world.network.forget(self.replica)
        self.world.oracles.rolled_back(self.replica)
        self.world.counts["replicas rolled back"] += 1

    @property
    def is_behind_its_word(self) -> bool:
        """Whether it still lacks what its older copy has forgotten."""
        if self.owed is not None and self.world.oracles.shadow(self.replica).holds(*self.owed):
            self.owed = None
        return self.owed is not None

    def pause(self) -> None:
        """Stand still: what arrives waits, ticks are missed."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on: first with what waited, then one tick that knows of the others."""
        if not self.is_paused or self._alive is None:
            return
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self._guarded(self.incarnation, action)
        missed, self._missed = self._missed, 0
        self._guarded(self.incarnation, partial(self._tick_once, missed))

    # Doing things.

    def do(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Let this process do something later, if it still lives then."""
        self.world.later(delay_ns, partial(self._guarded, self.incarnation, action))

    def _guarded(self, incarnation: int, action: Callable[[], None]) -> None:
        if incarnation != self.incarnation or self._alive is None:
            return
        if self.is_paused:
            if action == self._tick:
                self._missed += 1
                self.do(self.tick_ns, self._tick)
            else:
                self._backlog.append(action)
            return
        try:
            action()
        except (Crashed, LogFailed, LogDamaged) as error:
            if isinstance(error, LogDamaged) and not self.is_damaged:
                raise
            self.world.counts["crashes in a step"] += 1
            share = 1.0 if isinstance(error, LostPower) else self.world.power_loss_share
            self.end(power_loss=self._random.random() < share)
            self.world.later(self._random.randrange(1, 20) * TICK_NS, self.start)

    def burn(self) -> None:
        """One step of the driver: here a process may end."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                raise Crashed

    def tell(self, call: Callable[[], None]) -> None:
        """Call the node, and look at what it believes afterwards."""
        before = self.raft.log.applied
        call()
        self.world.oracles.look(self, applied_before=before)

    def receive(self, source: int, frame: bytes, is_damaged: bool) -> None:
        """A frame arrived."""
        if self._alive is None:
            self.world.counts["frames to the dead"] += 1
            return
        self._guarded(self.incarnation, partial(self._receive, source, frame, is_damaged))

    def _receive(self, source: int, frame: bytes, is_damaged: bool) -> None:
        try:
            message = self._codec.decode(frame)
        except FrameError:
            if not is_damaged:
                raise
            return
        if is_damaged:
            raise Violation("damaged-frame", f"replica {self.replica} takes {frame!r} for whole")
        before = self.contact.before(self, message)
        self.world.oracles.reads.arrives(self, message)
        self.tell(lambda: self.member.step(message))
        self.contact.after(self, message, before)
        self._work()

    def _tick(self) -> None:
        self.do(self.tick_ns, self._tick)
        self._tick_once(0)

    def _tick_once(self, missed: int) -> None:
        self.tell(lambda: self.member.tick(missed))
        self.contact.tick(self)
        self._work()

    def burst(self, ticks: int) -> None:
        """The clock catches up at once."""
        for _ in range(ticks):
            if self._alive is not None and not self.is_paused:
                self._guarded(self.incarnation, partial(self._tick_once, 0))

    def call(self, action: Callable[[Node], None]) -> None:
        """Let a client or operator call the node; the driver looks at what came of it."""
        if self._alive is None:
            return

        def called() -> None:
            self.tell(lambda: action(self.node))
            self._work()

        self._guarded(self.incarnation, called)

    # The duty of a driver.

    def _work(self) -> None:
        node, limits = self.node, self._limits
        for _ in range(_ROUNDS_MAX):
            may_write = len(self._queue) + self._syncing + len(self._done) < limits.writes_in_flight
            if may_write and limits.gather and self._random.random() < limits.gather:
                may_write = False
                self.do(self._disk_delay() + MS, self._work)
            has_ready = node.has_ready
            before = self.raft.log.applied
            ready = node.ready(may_write=may_write)
            self.world.oracles.look(self, applied_before=before)
            if not ready:
                return
            if not has_ready:
                raise Violation("has-ready", f"replica {self.replica} denied {ready}")
            self._carry_out(ready)
        raise Stuck("restless", f"replica {self.replica} always has something to do")

    def _carry_out(self, ready: Ready) -> None:
        for message in ready.messages:
            self._send(message)
        if ready.write is not None:
            self._queue.append(ready.write)
            if ready.write.install is not None:
                self._installing = True
            self._start_disk()
        for context in ready.reads_lost:
            self.world.workload.read_lost(self.replica, context)
        self._reads += ready.reads
        for read in ready.reads:
            self.world.oracles.reads.check(self, self.replica, read.context, term=self.raft.term)
        if ready.committed:
            self.world.oracles.handed_out(self, ready.committed)
            self._page.extend(ready.committed)
            if (
                self.world.is_chaos
                and self.world.options.has("apply_lag")
                and self._random.random() < 0.7
            ):
                self.do(int(self._random.random() * 2 * TICK_NS), self._apply)
            else:
                self._apply_page(len(self._page))
        self._answer_reads()
        if ready.snapshot_wanted is not None:
            self.do(self._disk_delay(), self._checkpoint)

    def _send(self, message: AnyMessage) -> None:
        self.burn()
        if self.node.is_repairing and message.term == self.raft.term:
            # It was heard in its new term: a restart must not bring its vote back.
            self.is_mending = self._owes_repair = True
        self.world.oracles.sent(self, message)
        self.world.network.send(self.replica, message.target, self._codec.encode(message))

    # Writing.

    def _disk_delay(self) -> int:
        disk_ns = self.world.options.disk_ns * self.slowness
        return int(disk_ns * (0.5 + self._random.random()))

    def _start_disk(self) -> None:
        if not self._disk_is_busy and self._queue:
            self._disk_is_busy = True
            self.do(self._disk_delay(), self._put)

    def _put(self) -> None:
        batch: list[tuple[Write, bool]] = []
        for _ in range(self._random.randrange(1, len(self._queue) + 1)):
            self.burn()
            write = self._queue[0]
            self.world.oracles.put(self.replica, write)
            if self.awaits_change is not None and any(
                entry.kind is Kind.CONFIG for entry in write.entries
            ):
                self.files.crash_at = (len(self.files.steps) + self.awaits_change, "after")
                self.awaits_change = None
            try:
                intact = self.storage.put(write)
            except DiskFull:
                self.world.counts["puts on a full disk"] += 1
                self.world.oracles.not_done(self.replica)
                break
            batch.append((write, intact))
            self._queue.popleft()
        if batch:
            self._syncing = len(batch)
            self.do(self._disk_delay(), partial(self._sync, batch))
        else:
            self.do(TICK_NS // 4, self._put)

    def _sync(self, batch: list[tuple[Write, bool]]) -> None:
        self.burn()
        if self.tears and any(write.entries for write, _ in batch):
            self.tears = False
            raise LostPower
        try:
            self.storage.sync()
        except DiskFull:
            self.do(TICK_NS // 4, partial(self._sync, batch))
            return
        self.world.oracles.synced(self.replica)
        self._done.extend(batch)
        self._syncing = 0
        for _ in batch:
            self.do(self._disk_delay() // 4, self._stored)
        self._disk_is_busy = False
        self._start_disk()

    def _stored(self) -> None:
        write, intact = self._done.popleft()
        for message in write.messages:
            self._send(message)
        self.burn()
        if write.install is not None:
            self._install(write.install)
        self.tell(lambda: self.member.stored(write.token, intact=intact))
        if write.install is not None:
            self.world.oracles.in_force(self)
        if self.storage.repairing and not self.node.is_repairing:
            self._end_repair()
        self._work()

    def _end_repair(self) -> None:
        self.world.oracles.repaired(self.replica)
        self._owes_repair = False
        try:
            self.storage.repaired()
        except DiskFull:
            return
        self.world.counts["repairs"] += 1
        self.world.oracles.synced(self.replica)
        self.is_mending = False

    def _install(self, snapshot: Snapshot) -> None:
        self.machine.load(b"".join(self.storage.snapshot_data()))
        if self.machine.applied != snapshot.index:
            raise Violation("snapshot-of-another-index", f"{self.machine.applied}, not {snapshot}")
        self.handed = self._checkpointed = snapshot.index
        self._installing = False
        self.world.counts["snapshots installed"] += 1
        self.world.oracles.applied(self.replica, snapshot.index, self.machine.digest)

    # Applying.

    def _apply(self) -> None:
        if not self._page:
            return
        self._apply_page(self._random.randrange(1, len(self._page) + 1))
        if self._page:
            self.do(int(self._random.random() * TICK_NS), self._apply)
        self._answer_reads()
        self._work()

    def _apply_page(self, count: int) -> None:
        machine, world = self.machine, self.world
        for _ in range(count):
            self.burn()
            entry = self._page.popleft()
            machine.apply(entry)
            world.oracles.applied(self.replica, entry.index, machine.digest)
            world.workload.applied(self.replica, entry)
        self.tell(lambda: self.node.advance(machine.applied))
        world.oracles.in_force(self)
        if world.options.has("snapshot") and (
            machine.applied >= self._checkpointed + self._limits.snapshot_every
        ):
            self._checkpointed = machine.applied
            self.do(self._disk_delay(), self._checkpoint)

    def _answer_reads(self) -> None:
        if not self._reads:
            return
        due = [read for read in self._reads if read.index <= self.machine.applied]
        self._reads = [read for read in self._reads if read.index > self.machine.applied]
        for read in due:
            self.world.workload.read_done(self, read)

    def _checkpoint(self) -> None:
        """Make a snapshot of what is applied, and cut the log below it."""
        applied = self.machine.applied
        storage, oracles = self.storage, self.world.oracles
        made = storage.snapshot()
        if self._installing or applied <= max(storage.base.index, made.index if made else 0):
            return
        is_polite = not self.world.is_chaos
        if is_polite and made in self.node.snapshots_in_use:
            return
        described = self.node.describe_state()
        if described is None:
            return
        data = self.machine.save()
        pieces = [data[at : at + 64] for at in range(0, len(data), 64)]
        try:
            storage.make_snapshot(index=applied, membership=described.membership, data=pieces)
        except DiskFull:
            return
        oracles.synced(self.replica)
        self.world.counts["snapshots made"] += 1
        index = applied - self._limits.tail
        if is_polite:
            index = min(index, self.node.needed_from - 1)
        if index <= storage.base.index:
            return
        oracles.will_rebase(self.replica, index, storage.term(index))
        try:
            storage.compact(index=index, membership=oracles.groups.at(index))
        except DiskFull:
            oracles.not_done(self.replica)
        else:
            oracles.synced(self.replica)
