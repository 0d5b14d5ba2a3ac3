"""One process of a shard, as `corvo.shard.driver.process` drives it, on a disk in memory.

What is put into the log is durable when the write is done. A process that ends loses the write
under way, or not; a machine that loses power takes the state back to its last checkpoint.
"""

from functools import partial
from typing import TYPE_CHECKING, Final, cast

import msgspec

from corvo.kv.tables import read_meta
from corvo.protocol import wire
from corvo.protocol.numbers import Numbers
from corvo.protocol.ops.base import encode_json
from corvo.protocol.queries import NUMBERS, EffectsTaken, GetNumbers, GetTaken
from corvo.raft import AnyMessage, Membership, MemoryStorage, Write
from corvo.raft.disk.identity import Identity
from corvo.raft.disk.wal import DiskStorage
from corvo.shard.config import ShardConfig
from corvo.shard.driver.opening import assemble, first_membership
from corvo.shard.driver.removal import TIMES, leads_without
from corvo.shard.machine import Answer, Decoded
from corvo.shard.machine import Machine as State
from corvo.shard.ops import NUMBERS as OPS
from corvo.shard.ops.transfer import Skip
from corvo.shard.queries import answer_bytes
from corvo.shard.relaying import Batch
from corvo.shard.replica import Work
from tests.sim.chance import fork
from tests.sim.clusters.linked import Linked, PeerLink
from tests.sim.failures import Stuck
from tests.sim.options import MS
from tests.sim.shards.clock import BEGIN_NS
from tests.support.memory import MemoryStates

if TYPE_CHECKING:
    from tests.sim.clusters.machine import Machine

_ROUNDS_MAX: Final = 200
_LOOK_TICKS: Final = 10
"""Between two looks whether the replica is still needed, and two calls without a reason."""
_TICK_MS: Final = 500
"""What the replica takes a tick for, so that leaders change often enough for a short run."""
_BOOT_NS: Final = 20_000 * MS


class Disk(MemoryStorage):
    """The directory of one replica."""

    def __init__(self, node: int, instance: int, membership: Membership) -> None:
        super().__init__(membership)
        self.identity = Identity("sim", node, instance)
        self.states = MemoryStates(applied=lambda store: read_meta(store).applied)

    @property
    def is_blank(self) -> bool:
        """Whether it never had a state: what such a replica knows is worth nothing."""
        return not self.base.membership.voters


class Watched(State):
    """A state machine whose every entry goes into the ledger."""

    def __init__(self, process: "Process", disk: Disk) -> None:
        world, shard = process.machine.world, process.shard
        super().__init__(
            disk.states.store,
            shard=shard,
            shards=world.options.shards,
            feed_bytes_max=world.options.feed_bytes,
        )
        self._ledger = world.ledgers[shard]
        self._process = process

    def apply(
        self, *, index: int, term: int, data: bytes, decoded: Decoded | None = None
    ) -> list[Answer]:
        answers = super().apply(index=index, term=term, data=data, decoded=decoded)
        self._ledger.applied(self._process, index, term, data, self.digest)
        if self.tx.cluster_map is not None:
            self._ledger.saw_map(self.tx.cluster_map)
        return answers

    def skip(self, *, index: int, term: int) -> None:
        super().skip(index=index, term=term)
        self._ledger.applied(self._process, index, term, b"", self.digest)


class Process:
    """One life of it."""

    def __init__(self, machine: "Machine", shard: int) -> None:
        self.machine = machine
        self.shard = shard
        world, directory, options = machine.world, machine.directory, machine.world.options
        known = machine.topology.map
        self.config = ShardConfig(
            cluster="sim",
            node=machine.number,
            shard=shard,
            shards=options.shards,
            data_dir="",
            sockets={shard: ""},
            map=known,
            is_new_member=known.version > 0 and shard not in directory.shards,
            has_left=shard in directory.left,
            election_ticks=10,
            tick_ms=_TICK_MS,
            grace_ms=0,
            feed_bytes=options.feed_bytes,
            checkpoint_entries=options.checkpoint_entries,
            keep_entries=options.keep_entries,
        )
        disk = directory.shards.get(shard)
        if disk is None:
            instance = world.dice.getrandbits(40)
            membership = first_membership(self.config, instance)
            disk = directory.shards[shard] = Disk(machine.number, instance, membership)
        self.disk = disk
        self.life = world.next_life()
        random = fork(options.seed, f"process {self.life}")
        self.replica = assemble(self.config, cast("DiskStorage", disk), disk.states, random)
        self.replica.machine = Watched(self, self.disk)
        self._links: dict[int, PeerLink] = {}
        self._numbers: dict[PeerLink, int] = {}
        self._last_link = 0
        self._others: dict[int, Linked] = {}
        self._write: Write | None = None
        self._wake_at: int | None = None
        self._ticks = 0
        self._without = 0
        world.ledgers[shard].opened(self)
        machine.do(0, self.work)

    @property
    def node(self) -> int:
        """The number of its node, and of the replica."""
        return self.machine.number

    @property
    def is_leader(self) -> bool:
        """Whether it takes itself for the leader."""
        return self.replica.node.is_leader

    def end(self, *, power_loss: bool) -> None:
        """It ends at once."""
        write = self._write
        if write is not None and write.install is None and self.machine.world.dice.random() < 0.5:
            self.disk.put(write)
        self.disk.states.crash(power_loss=power_loss)
        for linked in self._others.values():
            linked.close()
        for link in list(self._numbers):
            link.break_off()

    # Time.

    def tick(self, missed: int) -> None:
        """One tick."""
        self._ticks += 1
        self.replica.tick(missed)
        if self._ticks % _LOOK_TICKS == self.life % _LOOK_TICKS:
            self._look_whether_needed()
            self.work()
        elif self.replica.node.is_due:
            self.work()

    def _look_whether_needed(self) -> None:
        topology = self.machine.topology
        if self.node in topology.map.places[self.shard]:
            self._without = 0
            return

        def make(number: int) -> wire.Ask:
            return wire.Ask(number, NUMBERS[GetNumbers], encode_json(GetNumbers()))

        def answered(answer: wire.Answer | None) -> None:
            is_without = (
                isinstance(answer, wire.Reply)
                and not answer.code
                and leads_without(msgspec.json.decode(answer.body, type=Numbers), self.node)
            )
            self._without = self._without + 1 if is_without else 0
            if self._without >= TIMES and self.machine.processes.get(self.shard) is self:
                self.machine.unneeded(self.shard)

        if not self.machine.router.linked(self.shard).request(make, answered):
            self._without = 0

    # What a driver does.

    def work(self) -> None:
        """Work the replica, and carry out what comes of it."""
        if self.machine.processes.get(self.shard) is not self:
            return
        world = self.machine.world
        elapsed_ns, wall_ns = world.now + _BOOT_NS, world.now + BEGIN_NS + self.machine.skew_ns
        for _ in range(_ROUNDS_MAX):
            self.replica.place = self.machine.topology.map.places[self.shard]
            work = self.replica.work(elapsed_ns, wall_ns, may_write=self._write is None)
            world.ledgers[self.shard].look(self)
            self._carry_out(work)
            if not work.has_more:
                self._plan(work, elapsed_ns)
                return
        raise Stuck("restless", f"shard {self.shard} of {self.node} always has something to do")

    def _carry_out(self, work: Work) -> None:
        if work.write is not None:
            assert self._write is None
            self._write = work.write
            self.machine.do(self.machine.disk_delay(), self._stored)
        for message in work.messages:
            self._send(message)
        for client, answer in work.outbound:
            link = self._links.get(client)
            if link is not None:
                link.answer(answer)
        for shard in work.shards_wanted:
            self._others[shard] = Linked(
                self.machine, shard, is_shard=True, changed=partial(self._leader_changed, shard)
            )
            self._others[shard].refresh()
        for batch in work.batches:
            self._send_effects(batch)
        if work.snapshot_wanted is not None:
            make = partial(self._snapshot, work.snapshot_wanted)
            self.machine.do(self.machine.disk_delay(), make)

    def _plan(self, work: Work, elapsed_ns: int) -> None:
        if work.wake_ns is None:
            return
        at = self.machine.world.now + max(work.wake_ns - elapsed_ns, 1)
        if self._wake_at is None or at < self._wake_at:
            self._wake_at = at
            self.machine.do(at - self.machine.world.now, partial(self._wake, at))

    def _wake(self, at: int) -> None:
        if self._wake_at == at:
            self._wake_at = None
            self.work()

    def _send(self, message: AnyMessage) -> None:
        self.machine.send_raft(self.shard, message)

    def receive(self, message: AnyMessage) -> None:
        """A message from another replica."""
        self.replica.step(message)
        self.work()

    def _stored(self) -> None:
        write = self._write
        if write is None or self.machine.processes.get(self.shard) is not self:
            return
        intact = self.disk.put(write)
        for message in write.messages:
            self._send(message)
        if write.install is not None:
            self.disk.states.install(iter([self.disk.snapshot_data]))
            self.replica.installed(Watched(self, self.disk))
            self.machine.world.counts["snapshots installed"] += 1
            self.machine.world.ledgers[self.shard].opened(self)
        self._write = None
        self.replica.stored(write.token, intact=intact)
        self.disk.repairing = self.disk.repairing and self.replica.node.is_repairing
        if self.disk.last_index - self.disk.states.checkpointed >= self.config.checkpoint_entries:
            self._checkpoint()
        self.work()

    def _checkpoint(self) -> None:
        states, disk, node = self.disk.states, self.disk, self.replica.node
        if self.replica.machine.applied > states.checkpointed:
            states.checkpoint()
        made = states.checkpointed
        index = min(made, node.needed_from - 1, made - self.config.keep_entries)
        membership = self.replica.membership_at(index) if index > disk.base.index else None
        if membership is not None:
            disk.compact(index=index, membership=membership)

    def _snapshot(self, wanted: int) -> None:
        """A snapshot for a replica that lacks what the log has no more."""
        if self._write is not None and self._write.install is not None:
            return
        states, node = self.disk.states, self.replica.node
        if self.replica.machine.applied > states.checkpointed:
            states.checkpoint()
        made = states.checkpointed
        if made < wanted or not node.is_leader or self.disk.snapshot() in node.snapshots_in_use:
            return
        membership = self.replica.membership_at(made)
        if membership is not None and made >= self.disk.base.index:
            data = b"".join(states.stream())
            self.disk.make_snapshot(index=made, membership=membership, data=data)
            self.work()

    # Links of clients.

    def link_began(self, link: PeerLink) -> None:
        """A client comes."""
        self._last_link += 1
        link.number = self._last_link
        self._links[link.number] = link
        self._numbers[link] = link.number
        self.replica.joined(link.number, is_shard=link.is_shard)
        self.work()

    def hear(self, link: PeerLink, message: wire.Request) -> None:
        """A client asks for something."""
        number = self._numbers.get(link)
        if number is None:
            return
        if isinstance(message, wire.Submit):
            self.replica.submit(number, message)
        else:
            self.replica.ask(number, message)
        self.work()

    def left(self, link: PeerLink) -> None:
        """A client is gone."""
        number = self._numbers.pop(link, None)
        if number is not None:
            del self._links[number]
            self.replica.left(number)

    def numbers(self) -> Numbers:
        """What the replica tells of itself."""
        found = answer_bytes(self.replica, NUMBERS[GetNumbers], encode_json(GetNumbers()))
        assert isinstance(found, Numbers)
        return found

    # Effects on other shards.

    def moved(self) -> None:
        """There is another map."""
        for linked in self._others.values():
            linked.refresh()

    def _leader_changed(self, shard: int) -> None:
        relaying = self.replica.relaying
        if self._others[shard].is_led:
            relaying.opened(shard)
            self.machine.do(0, self.work)
        else:
            relaying.closed(shard, "no leader is known")

    def _send_effects(self, batch: Batch) -> None:
        linked = self._others[batch.shard]
        linked.request(
            lambda number: wire.Submit(number, batch.op, batch.body),
            partial(self._effects_answered, batch),
        )

    def _effects_answered(self, batch: Batch, answer: wire.Answer | None) -> None:
        if answer is None:
            return  # the loss of the link is reported as a change of the leader
        relaying = self.replica.relaying
        pause_ms = relaying.answered(batch, answer)
        destination = relaying.destination(batch.shard)
        if destination.is_in_doubt:
            destination.is_in_doubt = False
            self._compare(batch.shard)
        if pause_ms:
            self.machine.do(pause_ms * MS, partial(self._try_again, batch))
        self.work()

    def _try_again(self, batch: Batch) -> None:
        self.replica.relaying.try_again(batch)
        self.work()

    def _compare(self, shard: int) -> None:
        linked, body = self._others[shard], encode_json(GetTaken(source=self.shard))

        def answered(answer: wire.Answer | None) -> None:
            if isinstance(answer, wire.Reply) and not answer.code:
                theirs = msgspec.json.decode(answer.body, type=EffectsTaken)
                op = self.replica.compare(shard, theirs)
                if isinstance(op, Skip):
                    self.machine.world.counts["effects skipped"] += 1
                    skip = encode_json(op)
                    linked.request(
                        lambda number: wire.Submit(number, OPS[Skip], skip), lambda _: None
                    )
                self.work()

        linked.request(lambda number: wire.Ask(number, NUMBERS[GetTaken], body), answered)
