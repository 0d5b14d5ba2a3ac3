"""One replica's process: `corvo.shard.driver.process` on a simulated machine, without trio.

The log is on the model disk. The state is in `MemoryStates`: a crash of the process keeps it as it
is, a loss of power takes it back to the newest checkpoint.
"""

from copy import deepcopy
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from corvo.kv.tables import read_meta
from corvo.protocol import wire
from corvo.raft import DiskFull, Membership, Node, Read, ReadContext, Ready, Settings, Snapshot
from corvo.raft.disk.wal import DiskStorage
from corvo.raft.storage import Storage
from corvo.shard.config import ShardConfig
from corvo.shard.driver.opening import assemble
from corvo.shard.machine import Answer, Decoded, Machine
from corvo.shard.relaying import Batch, Relaying
from corvo.shard.replica import Replica, Work
from tests.sim.chance import fork
from tests.sim.failures import Stuck, Violation
from tests.sim.host import Host
from tests.sim.machine import State
from tests.sim.options import MS
from tests.sim.shards.book import decode
from tests.sim.shards.clock import Clock
from tests.sim.shards.links import Link
from tests.sim.shards.neighbour import NEIGHBOUR
from tests.sim.shards.times import Belief
from tests.sim.shards.unanswered import Unanswered
from tests.support.files import MemoryFiles
from tests.support.memory import MemoryStates

if TYPE_CHECKING:
    from tests.sim.shards.world import ShardWorld

_RETRY_NS = 250 * MS
"""Between two tries of what a full disk refused, as in the process."""
_NOTED_NS = 1_000 * MS
"""A change of the clock's offset that the process notes."""
_ROUNDS_MAX = 200
"""Calls of `work` in a row that each have more to do."""
_SPINS_MAX = 20
"""Wishes in a row to be called at once that come to nothing."""


class WatchedNode(Node):
    """A node whose every step is shown to the oracles, for the replica calls it by itself."""

    def __init__(
        self,
        host: "ReplicaHost",
        settings: Settings,
        storage: Storage,
        random: Random,
        *,
        applied: int,
        repair: bool,
    ) -> None:
        super().__init__(settings, storage, random, applied=applied, repair=repair)
        self._host = host

    def ready(self, *, may_write: bool = True) -> Ready:
        host, oracles = self._host, self._host.world.oracles
        has_ready, before = self.has_ready, self._raft.log.applied
        ready = super().ready(may_write=may_write)
        oracles.look(host, applied_before=before)
        if ready and not has_ready:
            raise Violation("has-ready", f"replica {host.replica} denied {ready}")
        for read in ready.reads:
            self._check(read)
        if ready.committed:
            oracles.handed_out(host, ready.committed)
        return ready

    def _check(self, read: Read) -> None:
        host = self._host
        host.world.oracles.reads.check(host, host.replica, read.context, term=self._raft.term)

    def advance(self, index: int) -> None:
        host = self._host
        before = self._raft.log.applied
        super().advance(index)
        host.world.oracles.look(host, applied_before=before)
        host.world.oracles.in_force(host)

    def propose(self, data: bytes) -> int:
        host = self._host
        host.world.times.proposed(host, data)
        index = super().propose(data)
        host.unanswered.proposed(decode(data)[2])
        return index

    def read_index(self) -> ReadContext:
        host = self._host
        context = super().read_index()
        host.world.oracles.reads.asked(host, host.replica, context)
        return context


class WatchedMachine(Machine):
    """A state machine whose every entry goes into the book; the process may end around each."""

    def __init__(self, host: "ReplicaHost") -> None:
        super().__init__(host.states.store, shard=0, shards=host.world.options.shards)
        self._host = host

    def apply(
        self, *, index: int, term: int, data: bytes, decoded: Decoded | None = None
    ) -> list[Answer]:
        host = self._host
        host.burn()
        answers = super().apply(index=index, term=term, data=data, decoded=decoded)
        world = host.world
        world.oracles.applied(host.replica, index, self.digest)
        world.times.applied(host, data, self.tx.now_ns)
        world.book.applied(host.replica, index, data, answers, now_ns=self.tx.now_ns)
        host.burn()
        return answers

    def skip(self, *, index: int, term: int) -> None:
        host = self._host
        host.burn()
        super().skip(index=index, term=term)
        host.world.oracles.applied(host.replica, index, self.digest)
        host.world.book.skipped(index)


class ReplicaHost(Host):
    """A machine with one disk, one state, and most of the time one process."""

    world: "ShardWorld"
    whole: Replica
    """The replica of the last process."""

    def __init__(self, world: "ShardWorld", replica: int, membership: Membership) -> None:
        self.clock = Clock()
        self.note: tuple[int, int] | None = None
        """The boot, and the offset of the steered clock: what the process leaves for the next."""
        self.states = MemoryStates(applied=lambda store: read_meta(store).applied)
        self._copies: list[tuple[MemoryFiles, MemoryStates]] = []
        """Copies of the disk, and of the state that was on it."""
        self.links: dict[int, Link] = {}
        super().__init__(world, replica, membership)
        options = world.options
        self._config = ShardConfig(
            cluster="sim",
            node=replica,
            shard=0,
            shards=options.shards,
            data_dir="",
            sockets={},
            election_ticks=options.limits.election_ticks,
            retention_ms=options.retention_ms,
            grace_ms=options.grace_ms,
            checkpoint_entries=options.checkpoint_entries,
            keep_entries=options.keep_entries,
        )

    def _forget(self) -> None:
        super()._forget()
        self.links = {}
        self.unanswered = Unanswered(self.replica)
        self._last_link = 0
        self._neighbour: Link | None = None
        self._batches: dict[int, Batch] = {}
        self._last_request = 0
        self._wake_at: int | None = None
        self._spins = 0
        self._is_checkpointing = False
        self._snapshot_wanted: int | None = None
        self.believes: Belief | None = None
        """A start that took the wall clock's word, and is not in the log yet."""
        self.began: Belief | None = None
        """The same, for the life of this process."""
        self.has_followed = False
        """Whether the clock of this process has taken over a stamp of another leader."""

    @property
    def member(self) -> Replica:
        """The replica is told, and tells its node."""
        return self.whole

    # Life and death.

    def _restore(self, storage: DiskStorage) -> State:
        random = fork(self.world.options.seed, f"replica {self.replica} {self.incarnation}")
        offset_ns = None
        if self.note is not None and self.note[0] == self.clock.boots:
            offset_ns = self.note[1]
            self.world.counts["clocks that go on"] += 1
        self.whole = assemble(self._config, storage, self.states, random, clock_offset_ns=offset_ns)
        self.whole.machine = WatchedMachine(self)
        options = self.world.options
        self.whole.relaying = Relaying(
            batch_effects=options.batch_effects, window_batches=options.window_batches
        )
        machine = self.whole.machine
        self.world.oracles.applied(self.replica, machine.applied, machine.digest)
        return _Present(self)

    def _make_node(self, storage: DiskStorage, state: State) -> Node:
        """Another one in the place of the replica's: with this run's limits, and watched."""
        node = WatchedNode(
            self,
            self._settings(storage),
            storage,
            fork(self.world.options.seed, f"node {self.replica} {self.incarnation}"),
            applied=state.applied,
            repair=storage.repairing,
        )
        self.whole.node = node
        return node

    def end(self, *, power_loss: bool) -> None:
        neighbour = self._neighbour
        super().end(power_loss=power_loss)
        if neighbour is not None:
            neighbour.break_off()
        self.states.crash(power_loss=power_loss)
        self.clock.thaw(self.world.now)
        if power_loss:
            self.clock.reboot(self.world.now)

    def copied_disk(self) -> MemoryFiles:
        files = super().copied_disk()
        self._copies.append((files, deepcopy(self.states)))
        return files

    def roll_back(self, files: MemoryFiles) -> None:
        super().roll_back(files)
        [self.states] = [deepcopy(states) for copied, states in self._copies if copied is files]
        self.states.crash(power_loss=True)

    # Links.

    def link_began(self, link: Link) -> None:
        """A client comes."""
        if not self.is_alive:
            link.break_off()
            return
        self._last_link += 1
        link.number = self._last_link
        self.links[link.number] = link
        self._guarded(self.incarnation, partial(self._joined, link.number))

    def _joined(self, client: int) -> None:
        if client in self.links:
            self.whole.joined(client, is_shard=self.links[client].is_shard)
            self._work()

    def link_brought(self, link: Link, message: wire.Request) -> None:
        """A client asks for something."""
        self._guarded(self.incarnation, partial(self._hear, link.number, message))

    def _hear(self, client: int, message: wire.Request) -> None:
        if client not in self.links:
            return
        if isinstance(message, wire.Submit):
            self.unanswered.asked(client, message)
            self.whole.submit(client, message)
        else:
            self.whole.ask(client, message)
        self._work()

    def link_ended(self, link: Link) -> None:
        """A client is gone."""
        if self.links.pop(link.number, None) is not None and self.is_alive:
            self._guarded(self.incarnation, partial(self._left, link.number))

    def _left(self, client: int) -> None:
        self.unanswered.left(client)
        self.whole.left(client)
        self._work()

    # The link to another shard, of which this is the client.

    def _reach_neighbour(self) -> None:
        self._neighbour = self.world.clients.neighbour.reached_by(self)

    def heard(self, link: Link, message: wire.Answer | wire.Push) -> None:
        """The other shard says something."""
        if link is self._neighbour:
            self._guarded(self.incarnation, partial(self._heard, link, message))

    def _heard(self, link: Link, message: wire.Answer | wire.Push) -> None:
        if link is not self._neighbour:
            return
        relaying = self.whole.relaying
        if isinstance(message, wire.Push):
            relaying.opened(NEIGHBOUR)
        else:
            batch = self._batches.pop(message.id)
            pause_ms = relaying.answered(batch, message)
            if pause_ms:
                self.do(pause_ms * MS, partial(self._try_again, relaying, batch))
        self._work()

    def _try_again(self, relaying: Relaying, batch: Batch) -> None:
        relaying.try_again(batch)
        self._work()

    def lost(self, link: Link) -> None:
        """The other shard is gone, or the way to it."""
        if link is self._neighbour:
            self._neighbour = None
            self._guarded(self.incarnation, self._lost_neighbour)

    def _lost_neighbour(self) -> None:
        self._batches.clear()
        self.whole.relaying.closed(NEIGHBOUR, "the link to it is lost")
        self.do(50 * MS, self._reach_neighbour)

    def _send_effects(self, batch: Batch) -> None:
        if self._neighbour is None:
            return  # and it is about to learn of that
        self._last_request += 1
        self._batches[self._last_request] = batch
        self._neighbour.send(wire.Submit(self._last_request, batch.op, batch.body))

    # The duty of a driver.

    def _work(self) -> None:
        limits = self._limits
        for _ in range(_ROUNDS_MAX):
            is_idle = not (self._queue or self._syncing or self._done)
            if is_idle and limits.gather and self._random.random() < limits.gather:
                is_idle = False
                self.do(self._disk_delay() + MS, self._work)
            work = self._work_once(may_write=is_idle)
            self._do_work(work)
            if not work.has_more:
                self.unanswered.check(leads=self.node.is_leader)
                self._plan(work)
                return
        raise Stuck("restless", f"replica {self.replica} always has something to do")

    def _work_once(self, *, may_write: bool) -> Work:
        clock, now, steered = self.clock, self.world.now, self.whole.clock
        offset_ns = steered.offset_ns
        if offset_ns is None and self.node.is_leader:
            times = self.world.times
            latest_ns, latest_at_ns = times.latest_ns, times.latest_at_ns
            elapsed_ns, wall_ns = clock.elapsed_ns(now), clock.wall_ns(now)
            self.believes = self.began = Belief(elapsed_ns, wall_ns, latest_ns, latest_at_ns)
        work = self.whole.work(clock.elapsed_ns(now), clock.wall_ns(now), may_write=may_write)
        if steered.offset_ns != offset_ns and not self.node.is_leader:
            self.has_followed, self.believes = True, None
        if steered.notice is not None:
            self.world.counts[f"notices {steered.notice.course.value}"] += 1
            steered.notice = None
        return work

    def _tick_once(self, missed: int) -> None:
        super()._tick_once(missed)
        offset_ns = self.whole.clock.offset_ns
        if offset_ns is not None:
            noted_ns = self.note[1] if self.note and self.note[0] == self.clock.boots else None
            if noted_ns is None or abs(offset_ns - noted_ns) >= _NOTED_NS:
                self.note = self.clock.boots, offset_ns

    def _do_work(self, work: Work) -> None:
        for message in work.messages:
            self._send(message)
        for client, answer in work.outbound:
            self.burn()
            self.unanswered.answered(client, answer)
            link = self.links.get(client)
            if link is not None:
                link.answer(answer)
        for _ in work.shards_wanted:
            self._reach_neighbour()
        for batch in work.batches:
            self.burn()
            self._send_effects(batch)
        if work.write is not None:
            self._queue.append(work.write)
            self._installing = self._installing or work.write.install is not None
            self._start_disk()
        if work.snapshot_wanted is not None:
            self._snapshot_wanted = work.snapshot_wanted
            self._begin_checkpoint()

    def _plan(self, work: Work) -> None:
        """Be woken when the replica wants to be."""
        if work.wake_ns is None:
            return
        delay_ns = self.clock.delay_ns(self.world.now, work.wake_ns)
        is_vain = not (delay_ns or work.messages or work.write or work.outbound)
        self._spins = self._spins + 1 if is_vain else 0
        if self._spins > _SPINS_MAX:
            raise Stuck("spins", f"replica {self.replica} wants to be woken again and again")
        at = self.world.now + max(delay_ns, 1)
        if self._wake_at is None or at < self._wake_at:
            self._wake_at = at
            self.do(at - self.world.now, partial(self._wake, at))

    def _wake(self, at: int) -> None:
        if self._wake_at == at:
            self._wake_at = None
            self._work()

    # Writing and checkpoints.

    @property
    def _is_far_ahead(self) -> bool:
        """Whether the log has run so far ahead of the checkpoint that another is due."""
        ahead = self.storage.last_index - self.states.checkpointed
        return ahead >= self._config.checkpoint_entries

    def _stored(self) -> None:
        super()._stored()
        if self._is_far_ahead:
            self._begin_checkpoint()

    def _put(self) -> None:
        is_full = self.world.counts["puts on a full disk"]
        super()._put()
        self.whole.disk_is_full = self.world.counts["puts on a full disk"] > is_full

    def _install(self, snapshot: Snapshot) -> None:
        self.burn()
        self.states.install(self.storage.snapshot_data())
        self.burn()
        machine = WatchedMachine(self)
        self.whole.installed(machine)
        if machine.applied != snapshot.index:
            raise Violation("snapshot-of-another-index", f"{machine.applied}, not {snapshot}")
        self.handed = snapshot.index
        self._installing = False
        self.world.counts["snapshots installed"] += 1
        self.world.oracles.applied(self.replica, snapshot.index, machine.digest)

    def _begin_checkpoint(self) -> None:
        if not self._is_checkpointing:
            self._is_checkpointing = True
            self.do(self._disk_delay(), self._make_checkpoint)

    def _make_checkpoint(self) -> None:
        made, wanted = self.states.checkpointed, self._snapshot_wanted
        is_due = self._is_far_ahead
        if wanted is not None:
            is_due = is_due or made < wanted or self.whole.membership_at(made) is None
        self.burn()
        if is_due and self.whole.machine.applied > made:
            self.states.checkpoint()
            self.world.counts["checkpoints"] += 1
        self.burn()
        self.do(self._disk_delay(), self._use_checkpoint)

    def _use_checkpoint(self) -> None:
        """Cut the log behind a checkpoint, and have a snapshot of it when somebody wants one."""
        if self._disk_is_busy or self._installing:
            self.do(self._disk_delay() + MS, self._use_checkpoint)
            return
        self._is_checkpointing = False
        checkpointed = self.states.checkpointed
        try:
            self._cut_log(checkpointed)
            self._make_snapshot(checkpointed)
        except DiskFull:
            self.world.counts["checkpoints on a full disk"] += 1
            self.do(_RETRY_NS, self._begin_checkpoint)
        self._work()

    def _cut_log(self, checkpointed: int) -> None:
        node, storage, oracles = self.node, self.storage, self.world.oracles
        index = min(checkpointed, node.needed_from - 1, checkpointed - self._config.keep_entries)
        if index <= storage.base.index:
            return
        membership = self.whole.membership_at(index)
        if membership is None:
            return
        oracles.kept(self.replica, index, membership)
        oracles.will_rebase(self.replica, index, storage.term(index))
        try:
            storage.compact(index=index, membership=membership)
        except DiskFull:
            oracles.not_done(self.replica)
            raise
        oracles.synced(self.replica)
        self.world.counts["logs cut"] += 1

    def _make_snapshot(self, checkpointed: int) -> None:
        wanted, storage, node = self._snapshot_wanted, self.storage, self.node
        if not node.is_leader:
            self._snapshot_wanted = None
            return
        if wanted is None or checkpointed < wanted or storage.snapshot() in node.snapshots_in_use:
            return
        membership = self.whole.membership_at(checkpointed)
        if membership is None:
            return
        self._snapshot_wanted = None
        self.world.oracles.kept(self.replica, checkpointed, membership)
        storage.make_snapshot(index=checkpointed, membership=membership, data=self.states.stream())
        self.world.oracles.synced(self.replica)
        self.world.counts["snapshots made"] += 1


class _Present:
    """What a host has applied, whichever machine it is that holds it now."""

    def __init__(self, host: ReplicaHost) -> None:
        self._host = host

    @property
    def applied(self) -> int:
        return self._host.whole.machine.applied

    @property
    def digest(self) -> int:
        return self._host.whole.machine.digest
