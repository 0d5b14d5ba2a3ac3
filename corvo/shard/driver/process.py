"""The shard process: sockets, disk and clock around one `Replica`, which decides.

    <data_dir>/log/      the durable log               corvo.raft.disk.wal
    <data_dir>/state/    the state and checkpoints     corvo.kv.checkpoints
    <data_dir>/poison    the entry that ended this process, if one did
    <known>              what it is known to have had       corvo.shard.driver.known
    <data_dir>/clock     the clock, for the next process      corvo.shard.driver.timekeeping

It is told what it is by one line of JSON on stdin and leaves when stdin closes, so that nothing
outlives its parent. Once it can be reached it says `ready` on stdout. Exit codes: 0 as asked; 70
when something failed that a restart may mend; 71 for damage or a poisonous entry, which it does
not; 72 for a config that cannot work.

One task works the replica and is woken by whatever happens; one carries out writes, each made
durable on a thread while the rest goes on; the others listen, dial and tick.
"""

import random
import secrets
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import trio

from corvo import clock, telemetry
from corvo.child import (
    DAMAGED,
    FAILED,
    MISCONFIGURED,
    OK,
    Notice,
    Parent,
    Update,
    collect_seldom,
    complain,
    first_of,
    say_ready,
    tell,
)
from corvo.connections import accept_link, listen_unix
from corvo.errors import (
    CorvoError,
    NewerEntry,
    Poisoned,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreRefused,
    WireError,
)
from corvo.handover import serve_handed
from corvo.kv import directories
from corvo.link import Link, LinkLost
from corvo.placement import fnv32a
from corvo.process_stats import ProcessStatsReader
from corvo.protocol import wire
from corvo.protocol.queries import EffectsTaken
from corvo.raft import (
    DiskFull,
    FrameError,
    LogDamaged,
    LogFailed,
    Membership,
    RaftError,
    Role,
    Write,
)
from corvo.raft.codec import Codec
from corvo.raft.disk.filesystem import DirectoryRefused
from corvo.raft.membership import members_of
from corvo.shard.config import BadConfig, ShardConfig, read_config
from corvo.shard.driver.copying import Copying
from corvo.shard.driver.disk import DAMAGED_STATE, Disk, open_parts
from corvo.shard.driver.following import AppliedSignal, serve_follower
from corvo.shard.driver.known import EVERY_S, Note, ShardLost, peers_of
from corvo.shard.driver.opening import Parts, machine_on
from corvo.shard.driver.other_shard import OtherShard
from corvo.shard.driver.poison import Poison
from corvo.shard.driver.removal import wait_until_unneeded
from corvo.shard.driver.repairs import RepairLog
from corvo.shard.driver.replica_links import ReplicaLinks
from corvo.shard.driver.room import room_needed, wait_for_room
from corvo.shard.driver.snapshots import Snapshots
from corvo.shard.driver.syncing import Syncer
from corvo.shard.driver.timekeeping import NAME as CLOCK_NOTE
from corvo.shard.driver.timekeeping import ClockNote, log_notice
from corvo.shard.gathering import INTERNAL
from corvo.shard.ops.transfer import Renumber, Skip
from corvo.shard.replica import Work
from corvo.telemetry import SILENT, Log
from corvo.topology import topology_of

_RETRY_S: Final = 0.25
"""Between two tries of what may come back: room on the disk."""
_STAND_S: Final = 0.06
"""Between two tries to become the leader after one that has ended, more or less by chance; and how
that grows."""
_STAND_GROWS: Final = 1.1
_STAND_S_MAX: Final = 0.5
_VOTES_DUE: Final = 2
"""So many times a candidate waits for votes before it takes the election for one without result."""
_HAND_OVER_S: Final = 1.0
"""How long a stop waits for another leader; it takes some milliseconds."""
_GOODBYE_S: Final = 0.5
"""How long a stop waits then for clients to read their last answers."""
_RELAXED_S: Final = 0.5
"""With relaxed durability, how long a write may wait for the disk."""
_PULSE_S: Final = 1.0
_SWITCH_S: Final = 50e-6
"""How long the thread that syncs waits for the interpreter while entries are applied. Every write
waits with it, twice, and the default is a hundred times as long as it has to do."""
_TICKS_ALONE: Final = 3
"""Of a replica that has nobody beside it, so many go in one: no timeout is at stake, and a node
that idles should cost next to nothing."""
_TIME_NAMESPACE: Final = Path("/proc/self/ns/time")
"""Each has an elapsed time of its own."""


def open_clock_note(config: ShardConfig, disk: Disk) -> ClockNote:
    """The note of the shard's clock."""
    boot = disk.boot_id()
    if _TIME_NAMESPACE.exists():
        boot = f"{boot} {_TIME_NAMESPACE.readlink()}"
    return ClockNote(Path(config.data_dir) / CLOCK_NOTE, boot=boot)


class Process:
    """One replica at work."""

    def __init__(
        self,
        config: ShardConfig,
        parts: Parts,
        poison: Poison,
        note: ClockNote,
        log: Log = SILENT,
        *,
        read_clocks: Callable[[], tuple[int, int]] = clock.elapsed_and_now_ns,
    ) -> None:
        """`read_clocks`: elapsed time since the boot of the machine, and its wall clock."""
        self._config = config
        self._note = note
        self._log = log
        self._repairs = RepairLog(log)
        self._read_clocks = read_clocks
        self._stalled: set[int] = set()  # other shards that have taken no effects for long
        self._root = Path(config.data_dir)
        self._replica = parts.replica
        self._storage = parts.storage
        self._states = parts.states
        self._known = parts.known
        self._poison = poison
        self._is_stuck = False  # a write waits for room
        self._room = directories.Room(self._root)
        self._bell = trio.Event()
        self._wake_ns: int | None = None  # when the replica is worked, if the bell is not rung
        self._write: Write | None = None
        self._put: bool | None = None  # the write is in the log, intact or not, and being synced
        self._state = trio.Lock()  # whoever holds it may make or replace checkpoints
        # Whoever holds it may change the log; taken behind `_state`. It is no lock, because one
        # task takes it at once for a write that another one waits for.
        self._disk = trio.Semaphore(1, max_value=1)
        self._noting = trio.Lock()
        self._is_note_due = trio.Event()
        self._syncer = Syncer(self._storage.sync)
        self._sync_began = 0.0
        self._applied = AppliedSignal()
        self._links: dict[int, Link] = {}
        self._link_ended = trio.Event()
        self._last_link = INTERNAL
        self._topology = topology_of(config)
        self._replicas = ReplicaLinks(
            config, self._topology, opened=self._seek_leader, absent=self._note_absent
        )
        self._is_standing = False
        self._has_left: trio.Event | None = None  # set when a leader that is to end leads no more
        self._linked: Membership | None = None  # whose members the links are to
        self._others: dict[int, OtherShard] = {}
        self._codec = Codec(fnv32a(config.cluster))
        self._hello: Final = wire.make_hello(config, wire.REPLICA, shard=config.shard)
        self._logged_bytes = 0  # since the last checkpoint
        self._checkpoint_due = trio.Event()
        self._snapshots = Snapshots(
            config,
            self._storage,
            self._states,
            self._replica,
            state=self._state,
            disk=self._disk,
            made=self._ring,
        )
        self._nursery: trio.Nursery | None = None
        self._counters = parts.replica.counters
        self._stats_reader = ProcessStatsReader()
        self._counters.stats = self._stats_reader.read()
        self._counters.disk.losses = self._known.losses
        self._pulse_due = 0.0

    async def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until cancelled."""
        config = self._config
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._syncer.start()
            nursery.start_soon(self._carry_out_writes)
            nursery.start_soon(self._make_checkpoints)
            nursery.start_soon(self._snapshots.run)
            nursery.start_soon(self._tick)
            nursery.start_soon(self._note_now_and_then)
            if config.relaxed:
                nursery.start_soon(self._sync_now_and_then)
            if config.peer_socket:
                await nursery.start(serve_handed, config.peer_socket, self._serve_node)
            nursery.start_soon(self._replicas.run, self._log)
            nursery.start_soon(self._tell_when_unneeded)
            if self._replica.node.membership.voters == (config.node,):
                self._replica.node.campaign()  # there is nobody to wait for
            nursery.start_soon(self._work)
            listener = await listen_unix(config.socket)
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            ready()

    def updated(self, update: Update) -> None:
        """The node says where everything is now."""
        self._topology.update(update.map, update.sockets)

    def _note_absent(self, node: int) -> None:
        """The process of another replica has ended: do not wait for what it leads."""
        if self._replica.node.leader == node:
            self._replica.node.forget_leader()
            self._bell.set()
        self._seek_leader()

    def _seek_leader(self) -> None:
        """Stand for election soon, if there is no leader: not everybody is to wait for a timeout.

        A leader that is elected and ends at once has never been known.
        """
        if self._replica.node.leader is None and not self._is_standing:
            assert self._nursery is not None, "there are links"
            self._is_standing = True
            self._nursery.start_soon(self._stand_for_election)

    async def _stand_for_election(self) -> None:
        """Stand until there is a leader, or Raft's own timeout goes on.

        A vote is refused while the other replica still believes in the leader. It learns of the end
        as this one did, about now, or some tries later; and it may have less of the log, so that
        only this one can be elected. The replicas begin one after the other, in the order of their
        place: if two stand at the same time, each has its own vote.
        """
        raft, place = self._replica.node, self._replica.place
        own = self._config.node
        await trio.sleep(_STAND_S * (place.index(own) if own in place else len(place)))
        timeout_s = self._config.election_ticks * self._config.tick_ms / 1_000
        until = trio.current_time() + timeout_s
        pause_s, votes_due = _STAND_S, 0
        while trio.current_time() < until:
            await trio.sleep(pause_s * (0.2 + random.random()))  # noqa: S311 -- no secret
            if raft.leader is not None:
                break
            pause_s = min(pause_s * _STAND_GROWS, _STAND_S_MAX)
            is_waiting = raft.statistics().role is Role.CANDIDATE and votes_due > 0
            votes_due = votes_due - 1 if is_waiting else _VOTES_DUE
            if not is_waiting:
                raft.campaign()
                self._bell.set()
        self._is_standing = False

    async def _tell_when_unneeded(self) -> None:
        # Again and again: the node ignores a report that is older than its map.
        while True:
            await wait_until_unneeded(self._config, self._topology)
            self._log.info("replica.unneeded", then="its node may stop it, and remove its data")
            tell(Notice(unneeded=self._config.shard))

    async def leave(self) -> None:
        """Hand leadership over before the end, and let clients read their last answers."""
        if not self._replica.leave():
            return
        self._has_left = trio.Event()
        self._bell.set()
        with trio.move_on_after(_HAND_OVER_S):
            await self._has_left.wait()
        for link in self._links.values():
            link.close("this replica is stopped")
        with trio.move_on_after(_GOODBYE_S):
            while self._links:
                await self._link_ended.wait()

    def close(self) -> None:
        """Stop cleanly: what is kept on disk says so."""
        self._syncer.close()
        self._stats_reader.close()
        self._room.close()
        self._states.close()
        self._storage.sync()
        note = self._next_note()
        self._storage.close()
        if note is not None:
            with suppress(StoreFull):
                self._known.put(note)

    # The replica.

    def _ring(self) -> None:
        """Something happened: the replica is to be worked soon."""
        self._bell.set()

    async def _work(self) -> None:
        """Work the replica whenever something happened, or became due."""
        while True:
            self._bell = trio.Event()
            work = self._turn()
            self._wake_ns = work.wake_ns
            self._look_at_clock()
            if work.has_more:
                await trio.lowlevel.checkpoint()
            elif work.wake_ns is None:
                await self._bell.wait()
            else:
                pause_s = max(0.0, (work.wake_ns - self._read_clocks()[0]) / 1e9)
                with trio.move_on_after(pause_s):
                    await self._bell.wait()

    def _turn(self) -> Work:
        """Work the replica once, and carry out what comes of it."""
        while True:
            with self._poison.watching(self._replica):
                work = self._replica.work(*self._read_clocks(), may_write=self._write is None)
            self._look_at_members()
            self._repairs.look(self._replica.node)
            self._carry_out(work)
            if self._has_left is not None and self._replica.has_left:
                self._has_left.set()
            self._applied.notify(self._replica.machine.applied)
            if work.write is None or not work.has_more:
                return work
            # The disk has something to do; what it did before is applied meanwhile.

    def _react(self) -> None:
        """Something happened: work the replica at once, and not only when its task has its turn.

        While a write is under way that would be for nothing: what comes in gathers behind it, save
        what can be answered without a write.
        """
        if self._write is not None:
            if self._replica.has_answers:
                self._bell.set()
            return
        work = self._turn()
        wake_ns = work.wake_ns
        is_sooner = wake_ns is not None and (self._wake_ns is None or wake_ns < self._wake_ns)
        if work.has_more or is_sooner:
            self._bell.set()

    def _look_at_members(self) -> None:
        """Let the group follow the map, and have a link to each replica that belongs to it now."""
        known = self._topology.map
        if known is not self._replica.map:
            self._replicas.close_older(known.op_version)
            self._replica.map, self._replica.place = known, known.places[self._config.shard]
        membership = self._replica.node.membership
        if membership is not self._linked:
            self._linked = membership
            self._replicas.follow(members_of(membership))
            # Whether damage may be set aside depends on who else has the shard.
            self._is_note_due.set()

    def _carry_out(self, work: Work) -> None:
        if work.write is not None:
            self._begin_write(work.write)
        for message in work.messages:
            self._replicas.send(message.target, self._codec.encode(message))
        gathered: dict[int, list[wire.AnyMessage]] = {}
        for client, answer in work.outbound:
            gathered.setdefault(client, []).append(answer)
        for client, answers in gathered.items():
            link = self._links.get(client)
            if link is not None:
                send_all(link, answers)
        if work.snapshot_wanted is not None:
            self._snapshots.wanted = work.snapshot_wanted
            self._checkpoint_due.set()
        for shard in work.shards_wanted:
            self._link_to_shard(shard)
        for batch in work.batches:
            self._others[batch.shard].send(batch)

    def _link_to_shard(self, shard: int) -> None:
        """Keep a link to another shard from now on."""
        assert self._nursery is not None
        config, relaying = self._config, self._replica.relaying
        other = OtherShard(config, shard, self._topology, relaying, self._react, self._compare)
        self._others[shard] = other
        self._nursery.start_soon(other.run, self._log)

    async def _tick(self) -> None:
        period = self._config.tick_ms / 1_000
        due = trio.current_time() + period
        while True:
            await trio.sleep_until(due)
            late_s = trio.current_time() - due
            step_s = period * _TICKS_ALONE if self._is_alone else period
            missed = int(late_s / step_s)
            due += (missed + 1) * step_s
            self._replica.tick(missed)
            self._counters.lag.observe(max(0.0, late_s))
            if trio.current_time() >= self._pulse_due:
                # What costs more than the tick, and what no timeout depends on.
                self._pulse_due = trio.current_time() + _PULSE_S
                self._look_for_room()
                self._count()
                self._look_at_effects()
                self._bell.set()
            elif self._replica.node.is_due or self._replica.has_answers:
                self._bell.set()

    def _look_at_clock(self) -> None:
        """Log what there is to be said of the clock, and keep the note for the next process."""
        steered = self._replica.clock
        if steered.notice is not None:
            log_notice(self._log, steered.notice)
            steered.notice = None
        self._note.keep(steered)

    def _look_at_effects(self) -> None:
        """Log once when another shard takes no effects for long, and when it does again."""
        replica = self._replica
        for other in self._others.values():
            other.note_error()
        seen = replica.relaying.look(trio.current_time()) if replica.node.is_leader else []
        self._counters.effects = seen
        stalled = {each.shard: each for each in seen if each.is_stalled}
        for shard in sorted(stalled.keys() - self._stalled):
            each = stalled[shard]
            self._log.warning(
                "effects.stalled",
                to=f"shard-{shard}",
                waiting=each.waiting,
                reason=each.error or "it cannot be reached",
            )
        for shard in sorted(self._stalled - stalled.keys()):
            self._log.info("effects.moving", to=f"shard-{shard}")
        self._stalled = {*stalled}

    def _compare(self, shard: int, theirs: EffectsTaken) -> Skip | None:
        """Compare effects with another shard. Returns the op for it, if one is needed there."""
        own, other = f"shard-{self._config.shard}", f"shard-{shard}"
        op = self._replica.compare(shard, theirs)
        if isinstance(op, Renumber):
            count = op.taken - op.common
            self._log.warning("effects.forgotten", by=own, of=own, to=other, count=count)
        if isinstance(op, Skip):
            count = op.seq - theirs.seq
            self._log.warning("effects.forgotten", by=other, of=own, to=other, count=count)
            return op
        return None

    @property
    def _is_alone(self) -> bool:
        membership = self._replica.node.membership
        own = (self._config.node,)
        return membership.voters == own == self._replica.place and not membership.learners

    def _look_for_room(self) -> None:
        """Take nothing new while the disk is nearly full."""
        room = self._room.bytes()
        self._replica.disk_is_full = self._is_stuck or room < self._config.room_bytes_min
        self._counters.disk.room_bytes = room
        self._counters.disk.disk_bytes = self._room.disk_bytes()

    def _check_room(self, write: Write) -> None:
        """Raise `DiskFull` when the log might take entries for which the state has no room then.

        Not left to the next tick: others may fill a disk within milliseconds. A state that meets
        the full disk ends the process, and a log that waits for room does not.
        """
        if write.entries and self._room.bytes() < room_needed(self._config):
            raise DiskFull(f"{self._root} has no room for what follows from new entries")

    def _count(self) -> None:
        """Note what metrics tell of this process."""
        self._counters.stats = self._stats_reader.read()
        self._counters.disk.checkpointed = self._states.checkpointed
        self._counters.disk.log_bytes_ahead = self._logged_bytes

    # Writing.

    def _begin_write(self, write: Write) -> None:
        """Put a write into the log and begin to sync it, if that can be done at once."""
        assert self._write is None
        assert self._put is None
        self._write = write
        if write.is_barrier or self._may_wait(write) or self._disk.value == 0:
            self._syncer.skip()
            return
        self._disk.acquire_nowait()
        try:
            self._check_room(write)
            self._put = self._storage.put(write)
        except DiskFull:
            self._disk.release()  # the task that carries out writes finds the same, and waits
            self._syncer.skip()
            return
        self._sync_began = trio.current_time()
        self._syncer.begin()

    async def _carry_out_writes(self) -> None:
        """Make one write after the other durable, and say so."""
        while True:
            await self._syncer.wait()
            write = self._write
            assert write is not None
            intact = True
            if not write.is_barrier:
                intact = await self._make_durable(write)
            for message in write.messages:
                self._replicas.send(message.target, self._codec.encode(message))
            if write.install is not None:
                await self._install()
            self._write = None
            self._replica.stored(write.token, intact=intact)
            if self._storage.repairing and not self._replica.node.is_repairing:
                await self._end_repair()
            self._react()

    async def _end_repair(self) -> None:
        """Note that the replica has everything again, and remove what was damaged."""
        async with self._disk:
            if self._replica.node.is_repairing:
                return  # another repair began meanwhile
            try:
                self._storage.repaired()
            except DiskFull:
                return  # said again with the next write
        damaged = Path(self._config.data_dir) / DAMAGED_STATE
        await trio.to_thread.run_sync(partial(shutil.rmtree, damaged, ignore_errors=True))

    def _may_wait(self, write: Write) -> bool:
        """Whether a write need not be durable yet.

        Relaxed durability is for entries: a vote, or a snapshot that is about to become the state,
        cannot be taken back.
        """
        return self._config.relaxed and write.hard_state is None and write.install is None

    def _finish_sync(self) -> None:
        """The sync that was begun with the write has ended. Raises `DiskFull`."""
        self._disk.release()
        self._syncer.unwrap()
        self._counters.disk.fsync.observe(trio.current_time() - self._sync_began)

    async def _make_durable(self, write: Write) -> bool:
        may_wait = self._may_wait(write)
        intact, self._put = self._put, None
        is_synced = intact is not None
        is_durable = False
        while intact is None or not is_durable:
            try:
                if is_synced:
                    is_synced = False
                    self._finish_sync()
                else:
                    async with self._disk:
                        if intact is None:
                            self._check_room(write)
                            intact = self._storage.put(write)
                        if not may_wait:
                            await self._sync()
                is_durable = True
            except DiskFull:
                # Not waited for under the lock: a log that is cut sets room free.
                self._is_stuck = self._replica.disk_is_full = True
                self._look_for_room()
                await trio.sleep(_RETRY_S)
        if self._is_stuck:
            self._is_stuck = False
            self._look_for_room()
        written = sum(entry.size for entry in write.entries)
        self._logged_bytes += written
        self._counters.disk.log_bytes += written
        if self._is_far_ahead:
            self._checkpoint_due.set()
        return intact

    @property
    def _is_far_ahead(self) -> bool:
        """Whether the log has run so far ahead of the checkpoint that another is due."""
        ahead = self._storage.last_index - self._states.checkpointed
        return (
            self._logged_bytes >= self._config.checkpoint_bytes
            or ahead >= self._config.checkpoint_entries
        )

    async def _sync_now_and_then(self) -> None:
        """Relaxed durability is bounded: this is how much a loss of power can take."""
        while True:
            await trio.sleep(_RELAXED_S)
            async with self._disk:
                with suppress(DiskFull):  # the next write will find out, and say so
                    await self._sync()

    async def _sync(self) -> None:
        """Make all of the log durable. Whoever calls this holds `_disk`."""
        began = trio.current_time()
        await trio.to_thread.run_sync(self._storage.sync)
        self._counters.disk.fsync.observe(trio.current_time() - began)

    async def _install(self) -> None:
        """A snapshot has arrived as a whole: it becomes the state."""
        async with self._state, self._disk:
            data = self._storage.snapshot_data()
            received = await trio.to_thread.run_sync(self._states.receive, data)
            self._states.become(received)
        self._replica.installed(machine_on(self._config, self._states))

    # Checkpoints.

    async def _make_checkpoints(self) -> None:
        """Keep a recent checkpoint, and the log no longer than from there."""
        while True:
            await self._checkpoint_due.wait()
            self._checkpoint_due = trio.Event()
            try:
                await self._checkpoint()
                async with self._disk:
                    index = self._states.checkpointed
                    self._cut_log(index)
                self._snapshots.checkpointed()
                await self._note_standing()
            except (DiskFull, StoreFull):
                await trio.sleep(_RETRY_S)
                self._checkpoint_due.set()

    async def _checkpoint(self) -> None:
        """Make another checkpoint if one is due."""
        made, wanted = self._states.checkpointed, self._snapshots.wanted
        is_due = self._is_far_ahead
        if wanted is not None:
            is_due = is_due or made < wanted or self._replica.membership_at(made) is None
        if not is_due or self._replica.machine.applied <= made:
            return
        async with self._state:
            await self._make_checkpoint()

    async def _make_checkpoint(self) -> None:
        """Make a checkpoint. The caller holds `_state`."""
        self._logged_bytes = 0
        if not self._config.relaxed:
            await trio.to_thread.run_sync(self._states.checkpoint)
        else:
            # What is in a checkpoint is durable, and so the log has to be before it, and all that
            # may be applied meanwhile.
            async with self._disk:
                await self._sync()
                await trio.to_thread.run_sync(self._states.checkpoint)
        self._counters.disk.checkpoints += 1
        self._counters.disk.checkpointed_ns = clock.now_ns()

    def _cut_log(self, checkpointed: int) -> None:
        node = self._replica.node
        index = min(checkpointed, node.needed_from - 1, checkpointed - self._config.keep_entries)
        if self._snapshots.copied is not None:
            index = min(index, self._snapshots.copied)
        if index <= self._storage.base.index:
            return
        membership = self._replica.membership_at(index)
        if membership is not None:  # else it is before the last start; the next checkpoint is not
            self._storage.compact(index=index, membership=membership)

    # What the node knows of this shard.

    async def _note_now_and_then(self) -> None:
        """Note how far the log is, and who else has it."""
        while True:
            with trio.move_on_after(EVERY_S):
                await self._is_note_due.wait()
            self._is_note_due = trio.Event()
            await self._note_standing()

    async def _note_standing(self) -> None:
        async with self._noting:
            if (note := self._next_note()) is not None:
                with suppress(StoreFull):
                    await trio.to_thread.run_sync(self._known.put, note)

    def _next_note(self) -> Note | None:
        node = self._replica.node
        peers = peers_of(node.membership, self._config.node)
        return self._known.next_note(self._storage, committed=node.commit, peers=peers)

    # Links.

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Serve a process of this node."""
        await self._serve_link(accept_link(stream, self._hello))

    async def _serve_node(self, stream: trio.SocketStream) -> None:
        """Serve a process of another node."""
        security, judge = self._topology.security, self._topology.refusal
        hello = self._topology.hello(self._hello)
        accepting = accept_link(stream, hello, security=security, log=self._log, judge=judge)
        await self._serve_link(accepting)

    async def _serve_link(self, accepting: AbstractAsyncContextManager[Link]) -> None:
        with suppress(LinkLost, WireError, FrameError):
            async with accepting as link:
                if link.peer.role == wire.REPLICA:
                    await self._receive_raft(link)
                elif link.peer.role in {wire.MIRROR, wire.FOLLOWER}:
                    await serve_follower(link, self._replica, self._applied)
                elif link.peer.role == wire.BACKUP:
                    await self._copying().serve(link)
                else:
                    await self._serve_client(link)

    def _copying(self) -> Copying:
        """Copies of the state for a backup."""
        return Copying(
            self._replica,
            self._states,
            self._applied,
            state=self._state,
            checkpoint=self._make_checkpoint,
            bytes_per_second=self._config.snapshot_bytes_per_second,
        )

    async def _serve_client(self, link: Link) -> None:
        self._last_link += 1
        client = self._last_link
        self._links[client] = link
        self._replica.joined(client, is_shard=link.peer.role == wire.SHARD)
        self._bell.set()
        try:
            while messages := await link.receive(wire.FROM_ROUTER):
                self._look_for_room()  # what is refused now is not stuck behind a write later
                for message in messages:
                    if isinstance(message, wire.Submit):
                        self._replica.submit(client, message)
                    else:
                        self._replica.ask(client, message)
                self._react()
        finally:
            del self._links[client]
            self._replica.left(client)
            self._link_ended.set()
            self._link_ended = trio.Event()

    async def _receive_raft(self, link: Link) -> None:
        with self._replicas.incoming(link.peer.node):
            while messages := await link.receive(wire.BETWEEN_REPLICAS):
                for message in messages:
                    self._replica.step(self._codec.decode(message.data))
                self._bell.set()


def send_all(link: Link, messages: list[wire.AnyMessage]) -> None:
    """Send what somebody is told, or end the link: whoever misses an answer has to ask again."""
    try:
        is_taken = link.send_many(messages, at_once=True)
    except WireError as error:
        link.close(f"an answer cannot be sent: {error}")
        return
    if not is_taken:
        link.close("too slow: answers were lost")


def log_findings(config: ShardConfig, parts: Parts, log: Log) -> None:
    """Log what was found wrong with the data, and did not keep the shard from starting."""
    aside, loss = parts.aside, parts.known.loss
    if aside is not None:
        log.warning(
            "log.set_aside",
            damage=aside.damage,
            files=aside.files,
            checkpoint=aside.checkpoint,
            then="nothing is lost: the checkpoint has these entries; check the disk",
        )
    if parts.damage:
        log.error(
            "replica.set_aside",
            damage=parts.damage,
            then="the other replicas send the state; check the disk",
        )
    if loss is not None:
        log.warning("data.loss_accepted", why=loss.why, known=loss.known, found=loss.found)
    elif config.accept_loss >= 0:
        log.warning("data.complete", then="remove the setting accept_loss: nothing is lost")


async def serve(config: ShardConfig, disk: Disk, poison: Poison, parent: Parent, log: Log) -> None:
    """Be a replica until stdin closes."""
    if not await wait_for_room(config, parent):
        return
    note = open_clock_note(config, disk)
    elections = Random(secrets.randbits(64))  # noqa: S311 -- dice for elections, not for secrets
    parts = open_parts(config, disk, elections, clock_offset_ns=note.read())
    log_findings(config, parts, log)
    poison.refuse(applied=parts.replica.machine.applied)
    if parts.is_after_crash:
        poison.be_wary()
    process = Process(config, parts, poison, note, log)
    was_asked = False
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(process.run, ready=say_ready))
            was_asked = await parent.wait(process.updated)
            if was_asked:
                await process.leave()
            nursery.cancel_scope.cancel()
    except ExceptionGroup as group:  # what a nursery makes of any failure
        error = first_of(group)
        if isinstance(error, LogDamaged) and parts.known.peers:
            problem = f"the next start sets the log aside, and other replicas send it: {error}"
            raise LogFailed(problem) from error
        if not isinstance(error, StoreError):
            raise
        parts.states.distrust()
        problem = f"the live state is of no more use, and will be made again: {error}"
        raise StoreFailed(problem) from error
    process.close()
    if was_asked:
        note.remove()


def main(disk: Disk | None = None) -> int:
    """Read the config and serve; returns the exit code."""
    parent = Parent()
    try:
        config = read_config(parent.read_line())
    except BadConfig as error:
        return complain("shard", MISCONFIGURED, "config", error)
    collect_seldom()
    sys.setswitchinterval(_SWITCH_S)
    poison = Poison(Path(config.data_dir) / "poison")
    name = f"shard-{config.shard}"
    with telemetry.open_log(name, form=config.log_format, level=config.log_level) as log:
        try:
            trio.run(serve, config, disk or Disk(), poison, parent, log)
        except Exception as error:  # noqa: BLE001 -- behind this there is only the exit code
            return end(first_of(error))
    return OK


def end(error: BaseException) -> int:
    """Say why this process ends; returns the exit code."""
    match error:
        case BadConfig() | DirectoryRefused() | StoreRefused() | NewerEntry():
            return complain("shard", MISCONFIGURED, "refused", error)
        case LogDamaged() | StoreDamaged() | Poisoned() | ShardLost():
            return complain("shard", DAMAGED, "stays down", error)
        case CorvoError() | RaftError() | OSError():
            return complain("shard", FAILED, "failed", error)
        case _:
            traceback.print_exception(error, file=sys.stderr)
            return complain("shard", FAILED, "this is a bug", error)
