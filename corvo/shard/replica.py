"""`Replica`: one member of a shard: Raft, the state machine, and the requests that wait.

It has no tasks, clock, sockets or files. A driver feeds it requests, messages, ticks and finished
writes, and calls `work` for what is to be done; production drives it with trio, the simulator with
a plain loop.

**A submission** is checked at the door, gathers while the disk is busy, becomes one entry with
whatever gathered beside it, and is answered when that entry is applied here: also when leadership
was lost meanwhile, for then this replica learns as a follower what became of it. Without a leader
it learns nothing: then the client gets the answer that the outcome is unknown, in bounded time.

**A fetch** that would find nothing is answered at once from the applied state, without an entry, if
nothing else is on its way; its link is notified of new work (`corvo.shard.empty_fetches`).

**A question** is answered from the applied state behind a proof, made after it was asked, that this
replica's leader still leads.
"""

from contextlib import suppress
from random import Random
from typing import Final, TypeAlias

import msgspec

from corvo.measures import JOB_NS
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.numbers import Counters
from corvo.protocol.ops.base import Limits, Op, Rejected, encode_json
from corvo.protocol.ops.keys import HOME as KEYS_HOME
from corvo.protocol.ops.work import Claims, Fetch
from corvo.protocol.queries import QUERIES, AskHere, EffectsTaken
from corvo.protocol.versions import held_back
from corvo.raft import (
    AnyMessage,
    AppendRequest,
    Change,
    Entry,
    Kind,
    Membership,
    Node,
    NotLeader,
    Overloaded,
    ReadContext,
    Ready,
    Refused,
    Transferring,
    Write,
)
from corvo.shard.counting import QueueCounts
from corvo.shard.empty_fetches import EmptyFetchWatchers
from corvo.shard.gathering import INTERNAL, Gathering, Submission
from corvo.shard.machine import Answer, Machine
from corvo.shard.membership import Steering, Transfer, successor
from corvo.shard.ops import NUMBERS, OPS, admit
from corvo.shard.ops.cluster import MAP_CHANGED, RaiseOpVersion
from corvo.shard.ops.schedules import FireSchedules
from corvo.shard.ops.transfer import (
    BeginEpoch,
    Delivered,
    Receive,
    ReceiveMany,
    Renumber,
    Skip,
)
from corvo.shard.ops.upkeep import Lead, Walked
from corvo.shard.ops.upkeep import Upkeep as UpkeepOp
from corvo.shard.queries import answer_bytes
from corvo.shard.relaying import Batch, Relaying
from corvo.shard.state import entry
from corvo.shard.state.select import has_work
from corvo.shard.state.tx import Tx
from corvo.shard.upkeep import Upkeep
from corvo.steered_clock import SteeredClock

GRACE_MS: Final = 5_000
"""No lease ends so long after a leader took over."""
ROUNDS_MAX: Final = 64
APPLIED_BYTES_MAX: Final = 256 << 10
"""Entries applied in one call of `work`, some ten milliseconds: then others get their turn."""
BUSY_MS: Final = 50
"""What somebody is told to wait when there is no room; a full gathering is applied in less than
a second."""

Outbound: TypeAlias = tuple[int, wire.Answer | wire.Push]
"""A message, and the link that it is for."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica is told once."""

    retention_ms: int = 7 * 86_400_000
    """How long finished jobs are kept where the queue does not say."""
    grace_ms: int = GRACE_MS
    limits: Limits = Limits()
    election_ticks: int = 10
    settled_ticks: int = 100
    """How long the first replica of the place must be able to lead before it is to lead."""
    again_ticks: int = 600
    """The time between two such transfers."""
    op_version: int = wire.OP_VERSION
    """The greatest that this process knows."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done now; see `corvo.raft.ready` for the duty that comes with a write."""

    messages: tuple[AnyMessage, ...] = ()
    write: Write | None = None
    outbound: tuple[Outbound, ...] = ()
    batches: tuple[Batch, ...] = ()
    """Effects to be submitted to other shards: see `corvo.shard.relaying`."""
    shards_wanted: tuple[int, ...] = ()  # other shards to which a link is needed from now on
    snapshot_wanted: int | None = None
    has_more: bool = False  # whether `work` should be called again at once
    wake_ns: int | None = None
    """The elapsed time at which it should be called again, if nothing happens before."""


class Standing(msgspec.Struct, frozen=True, gc=False):
    """How far a replica has come."""

    applied: int
    commit: int


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """An entry of another leader that was new when it arrived, and is not applied."""

    index: int
    term: int
    elapsed_ns: int


class Question(msgspec.Struct, frozen=True, gc=False):
    """A read that waits."""

    client: int
    message: wire.Ask


class Replica:
    """One replica of one shard. Not thread-safe; every method returns at once."""

    def __init__(
        self,
        settings: Settings,
        node: Node,
        machine: Machine,
        random: Random,
        clock: SteeredClock,
    ) -> None:
        self.node = node
        self.machine = machine
        self.clock: Final = clock
        self.disk_is_full = False
        """Set by the driver while there is no room: nothing new is taken, and reads go on."""
        self._settings = settings
        self._random = random
        self._gathering = Gathering()
        self._watchers = EmptyFetchWatchers()
        self._upkeep = Upkeep(retention_ms=settings.retention_ms, op_version=settings.op_version)
        self._outbound: list[Outbound] = []
        self._asked: list[Question] = []
        self._here: list[Question] = []  # to be answered from this replica's state
        self._proving: dict[ReadContext, list[Question]] = {}
        self._reading: list[tuple[int, list[Question]]] = []
        self._links: dict[int, bool] = {}  # and whether a shard is at the other end
        self._internal = 0  # ops of our own that are not applied yet
        self.relaying = Relaying()
        """Told by the driver of links to other shards, and of answers to `Work.batches`."""
        self._wanted: list[int] = []
        self._batches: list[Batch] = []
        self._led_term = 0
        self._leaderless_ticks = 0
        self._announced: tuple[int | None, int] = (None, 0)
        self._memberships = [(machine.applied, node.membership)]
        self.place: tuple[int, ...] = ()
        """The replicas that are to be the group, by the cluster map. Set by the driver; without it
        the group stays as it is."""
        self.map: ClusterMap | None = None
        """The cluster map, as this node has it: its op version says which ops may be proposed. Set
        by the driver; without it, there are only replicas of this release."""
        self._is_leaving = False
        self._steering = Steering(
            election_ticks=settings.election_ticks,
            settled_ticks=settings.settled_ticks,
            again_ticks=settings.again_ticks,
        )
        # The times at which `work` was called last: that of stamps, and elapsed time.
        self._now_ns = machine.now_ns
        self._elapsed_ns = 0
        self._has_contact = False  # since `work` was called last
        self._newest: Entry | None = None  # the last that the leader sent as a new one since then
        self._awaited: Arrived | None = None
        self._contact_ns: int | None = None
        self.applying: int | None = None
        """The entry that is being applied: asked for when an exception came out of `work`."""
        self._untaken: Ready | None = None  # what is to be applied with the next call of `work`
        self.counters: Final = Counters()
        self.queue_counts: Final = QueueCounts()

    # Links.

    def joined(self, client: int, *, is_shard: bool = False) -> None:
        """A link began; links are numbered from 1 and no number is used twice.

        Another shard's may bring what no router may ask for.
        """
        assert client != INTERNAL
        self._links[client] = is_shard
        self._say(client, wire.Leading(self.node.leader, self.node.term))

    def left(self, client: int) -> None:
        """A link ended: nobody is there to be answered."""
        self._links.pop(client, None)
        self._watchers.forget(client)

    # What comes in.

    def submit(self, client: int, message: wire.Submit) -> None:
        """Somebody asks for an op."""
        if not self.node.is_leader or self._is_leaving:
            self._say(client, wire.NotLeader(message.id, self.node.leader))
            return
        if self.disk_is_full:
            full = Rejected("disk_full", "the shard's disk is full: nothing was changed")
            self._refuse(client, message.id, full)
            return
        is_shard = self._links.get(client, False)
        if self._gathering.is_full_of_effects if is_shard else self._gathering.is_full:
            self.counters.busy += 1
            self._say(client, wire.Busy(message.id, BUSY_MS))
            return
        op = admit(message.op, message.body, self._settings.limits, private=is_shard)
        if isinstance(op, Rejected):
            self._refuse(client, message.id, op)
            return
        held = held_back(op, self.map) if self.map is not None else None
        if held is not None:
            self._refuse(client, message.id, held)
            return
        # Under a request key it may have found something before: the state knows.
        if isinstance(op, Fetch) and not op.request_key and self._is_in_vain(op):
            self.counters.fetches_empty += 1
            self._say(client, wire.Reply(message.id, "", _NOTHING, self.machine.applied))
            self._wait_for(client, op)
            return
        effects = _effects_of(op) if is_shard else 0
        self._gathering.add(client, message.id, (message.op, message.body), op, effects=effects)

    def ask(self, client: int, message: wire.Ask) -> None:
        """Somebody asks a question."""
        query = QUERIES.get(message.query)
        if query is None:
            unknown = Rejected("unknown_query", f"there is no query {message.query}")
            self._refuse(client, message.id, unknown)
        elif query is AskHere:
            self._here.append(Question(client, message))  # the time is known in `work` only
        elif query.is_local:
            self._answer(Question(client, message))
        else:
            self._asked.append(Question(client, message))

    def step(self, message: AnyMessage) -> None:
        """A message from another replica."""
        self.node.step(message)
        if message.source == self.node.leader and message.term == self.node.term:
            self._has_contact = True
            # An entry that is committed may be hours old: this replica missed it.
            if isinstance(message, AppendRequest) and message.entries:
                last = message.entries[-1]
                self._newest = last if last.index > message.commit else None

    def tick(self, missed: int = 0) -> None:
        """One tick has passed; `missed` before it were slept through."""
        self.node.tick(missed)
        self._steer()
        if self._led_term and not self.node.is_leader:
            self._stand_down()
        self._leaderless_ticks = 0 if self.node.leader is not None else self._leaderless_ticks + 1
        if self._leaderless_ticks == self._settings.election_ticks:
            self._give_up_proposed()

    def stored(self, token: int, *, intact: bool = True) -> None:
        """A write is durable, and its messages are sent."""
        self.node.stored(token, intact=intact)
        self._note_membership()

    def installed(self, machine: Machine) -> None:
        """A snapshot took the place of the state. To be called before `stored` of that write."""
        self.machine = machine
        if machine.tx.shard == KEYS_HOME:
            self._tell_of_keys(machine.applied)  # nobody knows what came with it
        if machine.tx.cluster_map is not None:
            self._tell_of_map()
        for submission in self._gathering.skipped_to(machine.applied):
            self._tell_unknown(
                submission,
                "a snapshot replaced the state meanwhile, so the request may have taken effect",
            )

    def compare(self, shard: int, theirs: EffectsTaken) -> Renumber | Skip | None:
        """Another shard says which effects it has taken. Returns what one of both has forgotten.

        A new leader has forgotten nothing: it may lack what the one before has sent, until the
        first entry of its own is applied.
        """
        if not self._led_term or not self.node.knows_all:
            return None
        op = self.relaying.compared(self.machine.tx, shard, theirs)
        if isinstance(op, Renumber):
            self._propose_own(op)
        return op

    def change_membership(self, change: Change, *, force: bool = False) -> int:
        """Change who belongs to the shard; raises as `Node.propose_change` does."""
        return self.node.propose_change(change, force=force)

    def leave(self) -> bool:
        """Hand leadership over, because this process is to end. Returns whether that can be.

        From now on no op is taken.
        """
        heir = successor(self.node) if self.node.is_leader else None
        if heir is None:
            return False
        self._is_leaving = True
        self.transfer(heir)
        return True

    @property
    def has_left(self) -> bool:
        """Whether another replica may lead, and nothing waits here for an answer any more."""
        return not (self.node.is_leader or self.waiting or self._outbound)

    def transfer(self, heir: int) -> None:
        """Hand leadership over; raises as `Node.transfer` does."""
        self.node.transfer(heir)

    def _steer(self) -> None:
        """Bring the group nearer to its place in the map."""
        step = self._steering.tick(self.node, self.place)
        # What is refused is tried again, for it may be another leader's by then.
        with suppress(NotLeader, Transferring, Refused):
            if isinstance(step, Transfer):
                self.transfer(step.heir)
            elif step is not None:
                self.change_membership(step)

    # What is to be done.

    def work(self, elapsed_ns: int, wall_ns: int, *, may_write: bool = True) -> Work:
        """Everything to be done now. Unless it `may_write`, what is submitted goes on gathering.

        `elapsed_ns` is the time since the boot of the machine, `wall_ns` what its wall clock shows.
        """
        messages: list[AnyMessage] = []
        write: Write | None = None
        wanted: int | None = None
        has_more = True
        applied_bytes = 0
        now_ns = self._read_clock(elapsed_ns, wall_ns)
        if self._untaken is not None:
            ready, self._untaken = self._untaken, None
            applied_bytes += self._take_in(ready)
        for _ in range(ROUNDS_MAX):
            self._lead(now_ns)
            if may_write and write is None:
                self._propose(now_ns)
            if self._asked:
                self._prove()
            ready = self.node.ready(may_write=may_write and write is None)
            if not ready:
                has_more = False
                break
            messages += ready.messages
            write = write or ready.write
            wanted = ready.snapshot_wanted if ready.snapshot_wanted is not None else wanted
            if ready.write is not None and ready.write.install is None and ready.committed:
                self._untaken = ready  # first let the disk begin: it works while this is applied
                break
            applied_bytes += self._take_in(ready)
            if not ready.committed:
                has_more = False  # only an entry that is applied makes more to do
                break
            if applied_bytes >= APPLIED_BYTES_MAX:
                break
        self._notify(now_ns)
        self._announce()
        here, self._here = self._here, []
        for question in here:
            self._answer(question)
        batches, self._batches = tuple(self._batches), []
        shards, self._wanted = tuple(self._wanted), []
        outbound, self._outbound = tuple(self._outbound), []
        return Work(
            messages=tuple(messages),
            write=write,
            outbound=outbound,
            batches=batches,
            shards_wanted=shards,
            snapshot_wanted=wanted,
            has_more=has_more,
            wake_ns=self._wake_ns(),
        )

    def _read_clock(self, elapsed_ns: int, wall_ns: int) -> int:
        """The time for what is done now. Only a leader has one that is not in the log."""
        self._elapsed_ns, self._now_ns = elapsed_ns, self.machine.now_ns
        if self._has_contact or self.node.is_leader:
            self._has_contact, self._contact_ns = False, elapsed_ns
        self._await(elapsed_ns)
        if self.node.is_leader:
            self._now_ns = self.clock.read(elapsed_ns, wall_ns, last_ns=self.machine.now_ns)
        return self._now_ns

    def _take_in(self, ready: Ready) -> int:
        """Apply what is committed, and answer. Returns how many bytes that was."""
        for read in ready.reads:
            self._reading.append((read.index, self._proving.pop(read.context)))
        for context in ready.reads_lost:
            for question in self._proving.pop(context):
                self._say(question.client, wire.NotLeader(question.message.id, self.node.leader))
        for committed in ready.committed:
            self._apply(committed.index, committed.term, committed.kind, committed.data)
            if committed.kind is Kind.CONFIG or committed is ready.committed[-1]:
                self.node.advance(committed.index)
                self._note_membership()
        self._answer_questions()
        return sum(committed.size for committed in ready.committed)

    def _note_membership(self) -> None:
        """Remember from which index on a membership is in force."""
        if self.node.membership != self._memberships[-1][1]:
            self._memberships.append((self.machine.applied, self.node.membership))

    # Proposing.

    def _lead(self, now_ns: int) -> None:
        """A new leader begins with grace; then it does what is due."""
        node = self.node
        if not node.is_leader:
            self._stand_down()
            return
        if self._led_term != node.term:
            self._led_term = node.term
            self._internal = 0
            self._upkeep.took_over()
            self._propose_own(Lead(grace_ms=self._settings.grace_ms), first=True)
            if self.machine.tx.shards > 1:
                self._propose_own(BeginEpoch(), first=True)
        if self._internal == 0:
            for op in self._upkeep.due(self.machine.tx, now_ns):
                # The map of this node may be older than the schedules that it allowed.
                if not isinstance(op, FireSchedules) or self._may_propose(op):
                    self._propose_own(op)
        due = self.relaying.due(self.machine.tx)
        if due is not None:
            self._wanted += due.wanted
            self._batches += due.batches
            for removal in due.removals:
                self._propose_own(removal)

    def _stand_down(self) -> None:
        led_term, self._led_term = self._led_term, 0
        if led_term:
            self.relaying.stand_down()
        self._internal = 0
        for submission in self._gathering.refuse_gathered():
            if submission.client != INTERNAL:
                lost = wire.NotLeader(submission.request, self.node.leader)
                self._say(submission.client, lost)
        self._watchers.clear()
        if led_term == self.node.term and self.node.leader is None:
            # No other replica took over: it was a majority that was not heard of for long.
            self._give_up_proposed()

    def _give_up_proposed(self) -> None:
        """Answer what was proposed and may not be decided before the network is healed."""
        for submission in self._gathering.give_up_proposed():
            self._tell_unknown(
                submission,
                "the leader could not reach a majority of the shard's replicas, so the request may"
                " have taken effect",
            )

    def _propose_own(self, op: Op, *, first: bool = False) -> None:
        if not isinstance(op, Delivered):  # effects may come without end, and upkeep goes on
            self._internal += 1
        assert self._may_propose(op), f"{type(op).__name__} has no form for an older replica"
        record = (NUMBERS[type(op)], encode_json(op))
        self._gathering.add(INTERNAL, self._led_term, record, op, first=first)

    def _may_propose(self, op: Op) -> bool:
        """Whether every replica can decode an op of this leader."""
        is_first = isinstance(op, RaiseOpVersion)  # proposed when all nodes know it
        return is_first or self.map is None or held_back(op, self.map) is None

    def _propose(self, now_ns: int) -> None:
        node, gathering = self.node, self._gathering
        while gathering.has_gathered and node.is_leader:
            chosen = gathering.next_entry()
            stamp = entry.Stamp(max(now_ns, self.machine.now_ns + 1), self._random.getrandbits(32))
            data = entry.encode(stamp, [submission.record for submission in chosen])
            try:
                index = node.propose(data)
            except (Overloaded, Transferring):
                return  # they wait where they are; a leader that is leaving gives them up
            gathering.proposed(chosen, index=index, term=node.term, stamp=stamp, data=data)
            self.counters.batch.observe(len(chosen))

    def _prove(self) -> None:
        """One proof of leadership for all questions that gathered."""
        asked, self._asked = self._asked, []
        try:
            self._proving[self.node.read_index()] = asked
        except NotLeader as error:
            for question in asked:
                self._say(question.client, wire.NotLeader(question.message.id, error.leader))
        except Overloaded:
            for question in asked:
                self._say(question.client, wire.Busy(question.message.id, BUSY_MS))

    # Applying.

    def _apply(self, index: int, term: int, kind: Kind, data: bytes) -> None:
        ours, lost = self._gathering.applied(index=index, term=term)
        machine = self.machine
        self.applying = index
        if kind is Kind.NORMAL and data:
            decoded = ours.decoded(data) if ours is not None else None
            answers = machine.apply(index=index, term=term, data=data, decoded=decoded)
            if machine.tx.keys_changed:
                self._tell_of_keys(index)
            if machine.tx.map_changed:
                self._tell_of_map()
            if self._awaited is not None and index >= self._awaited.index:
                self._follow(index, term)
            self._count(machine.tx, is_ours=ours is not None)
            if ours is not None:
                self._deliver(ours.submissions, answers, index)
        else:
            machine.skip(index=index, term=term)
        self.applying = None
        self.counters.entries += 1
        if ours is not None:
            # An entry's stamp is the time at which it was proposed.
            self.counters.commit.observe(max(0, self._now_ns - ours.stamp.now_ns) / 1e9)
        for submission in lost:
            if submission.client == INTERNAL:
                self._own_applied(submission)
            else:
                refusal = wire.NotLeader(submission.request, self.node.leader)
                self._say(submission.client, refusal)

    def _await(self, elapsed_ns: int) -> None:
        """Remember when the newest entry has arrived, until it is applied."""
        newest, self._newest = self._newest, None
        if newest is None or newest.kind is not Kind.NORMAL:
            return
        if newest.index <= self.node.commit:
            return  # a message behind it says that it is committed: it may be old, too
        # Of several under way, the first counts: newer ones would put it off again and again.
        if self._awaited is None:
            self._awaited = Arrived(newest.index, newest.term, elapsed_ns)

    def _follow(self, index: int, term: int) -> None:
        """An entry is applied that was new when it arrived: set the clock by its stamp."""
        awaited, self._awaited = self._awaited, None
        assert awaited is not None
        if (awaited.index, awaited.term) == (index, term) and not self.node.is_leader:
            self.clock.follow(awaited.elapsed_ns, self.machine.now_ns)

    def _deliver(self, done: tuple[Submission, ...], answers: list[Answer], index: int) -> None:
        assert len(done) == len(answers), "an entry has the ops that were put into it"
        ops = self.counters.ops
        for submission, result in zip(done, answers, strict=True):
            client = submission.client
            ops[submission.record[0]] += 1
            if client == INTERNAL:
                is_late = result.code == MAP_CHANGED  # then new places are computed
                assert is_late or not result.code, f"an op of our own was refused: {result.body!r}"
                self._count_upkeep(submission.record[0], result.body)
                self._own_applied(submission)
                continue
            if result.code:
                refused = self.counters.refused
                refused[result.code] = refused.get(result.code, 0) + 1
            self._reply(client, submission.request, result.code, result.body, index)
            if submission.record[0] == _FETCH and result.body == _NOTHING:
                self._wait_for(client, _decode_fetch(submission.record[1]))

    def _count(self, tx: Tx, *, is_ours: bool) -> None:
        """Count what an entry has brought; only the replica that proposed it does."""
        self.queue_counts.take(tx.minutes.happened, is_ours=is_ours)
        if not is_ours:
            return
        counters = self.counters
        if tx.waited_ns:
            counters.waited.observe_all(tx.waited_ns, JOB_NS, 1e9)
        if tx.ran_ns:
            counters.ran.observe_all(tx.ran_ns, JOB_NS, 1e9)
        for run, late_ns in tx.runs:
            counters.came(run, late_ns)

    def _count_upkeep(self, number: int, body: bytes) -> None:
        op = OPS[number]
        if issubclass(op, UpkeepOp):
            self.counters.kept_up(op.__name__, _decode_walked(body).done, self._now_ns)

    def _own_applied(self, submission: Submission) -> None:
        if submission.request == self._led_term:
            number, body = submission.record
            if number == _DELIVERED:
                self.relaying.removed(_decode_delivered(body).shard)
            else:
                self._internal -= 1

    def _tell_unknown(self, submission: Submission, why: str) -> None:
        if submission.client == INTERNAL:
            self._own_applied(submission)
            return
        unknown = Rejected("unknown", why)
        self._refuse(submission.client, submission.request, unknown)

    # Waiting for work.

    def _is_in_vain(self, fetch: Fetch) -> bool:
        """Whether a fetch would find nothing, and nothing that is on its way can change that."""
        tx = self.machine.tx
        return self._gathering.is_idle and not any(
            has_work(tx, queue, now_ns=self._now_ns).count for queue in fetch.queues
        )

    def _wait_for(self, client: int, fetch: Fetch) -> None:
        """A fetch found nothing and was answered: its link is told when another may find something.

        That may be now: a fetch clears away so much and no more, and then there is another behind.
        """
        for queue in fetch.queues:
            for link, told in self._watchers.add(client, queue):
                self._say(link, wire.WorkAvailable((told,)))
            self.machine.tx.touched[queue] = None

    def _notify(self, now_ns: int) -> None:
        """Notify the links that watch queues which may have jobs now."""
        tx = self.machine.tx
        touched = [queue for queue in tx.touched if queue in self._watchers]
        tx.touched = {}
        due = self._watchers.take_due(now_ns) if self._watchers.retries else []
        told: dict[int, list[str]] = {}
        for queue in (*touched, *due):
            allowed = has_work(tx, queue, now_ns=now_ns)
            if allowed.count:
                for link in self._watchers.take(queue):
                    told.setdefault(link, []).append(queue)
            elif allowed.until_ns:
                self._watchers.retry_at(queue, allowed.until_ns)
        for link, queues in told.items():
            self._say(link, wire.WorkAvailable(tuple(queues)))

    # Questions.

    def _answer_questions(self) -> None:
        applied = self.machine.applied
        due = [questions for index, questions in self._reading if index <= applied]
        if due:
            self._reading = [waiting for waiting in self._reading if waiting[0] > applied]
            for questions in due:
                for question in questions:
                    self._answer(question)

    def _answer(self, question: Question) -> None:
        message = question.message
        result = answer_bytes(self, message.query, message.body)
        code = result.code if isinstance(result, Rejected) else ""
        body = encode_json(result)
        self._reply(question.client, message.id, code, body, self.machine.applied)

    # Saying.

    def _reply(self, client: int, request: int, code: str, body: bytes, index: int) -> None:
        if len(body) > wire.BODY_BYTES_MAX:
            large = Rejected(
                "answer_too_large",
                "the request took effect, but its answer is too large to be sent",
            )
            code, body = large.code, encode_json(large)
        self._say(client, wire.Reply(request, code, body, index))

    def _refuse(self, client: int, request: int, refusal: Rejected) -> None:
        self._say(client, wire.Reply(request, refusal.code, encode_json(refusal)))

    def _say(self, client: int, message: wire.Answer | wire.Push) -> None:
        if client in self._links:
            self._outbound.append((client, message))

    def _announce(self) -> None:
        """Tell everybody when another leads."""
        known = (self.node.leader, self.node.term)
        if known != self._announced:
            self._announced = known
            self.counters.leaders += known[0] is not None
            for client in self._links:
                self._say(client, wire.Leading(*known))

    def _tell_of_keys(self, index: int) -> None:
        """Tell every router that API keys changed, before whoever changed them is answered."""
        self.machine.tx.keys_changed = False
        self._tell_routers(wire.KeysChanged(index))

    def _tell_of_map(self) -> None:
        """Tell every router that there is another cluster map, before the change is answered."""
        tx = self.machine.tx
        tx.map_changed = False
        assert tx.cluster_map is not None, "a map is changed, and never removed"
        self._tell_routers(wire.MapChanged(tx.cluster_map.version))

    def _tell_routers(self, push: wire.Push) -> None:
        for client, is_shard in self._links.items():
            if not is_shard:
                self._say(client, push)

    # Time and checkpoints.

    def _wake_ns(self) -> int | None:
        """When something becomes due that nobody will announce."""
        if not self.node.is_leader or self._internal:
            return None
        wake_ns = self._upkeep.next_ns(self.machine.tx)
        retry_ns = self._watchers.next_ns
        if retry_ns is not None:
            wake_ns = min(wake_ns, retry_ns)
        return self.clock.elapsed_at(wake_ns)

    def standing(self) -> "Standing":
        """How far this replica has come."""
        return Standing(self.machine.applied, self.node.commit)

    @property
    def has_answers(self) -> bool:
        """Whether `work` has something to say, or to prove, that no write has to come before."""
        if self._outbound or self._asked or self._here:
            return True
        return self._led_term > 0 and self.relaying.has_changed

    @property
    def waiting(self) -> int:
        """Ops that wait for agreement, or to be proposed."""
        return self._gathering.waiting

    @property
    def contact_ms(self) -> int | None:
        """How long ago a message of the leader came last; 0 for the leader, None for never."""
        if self._contact_ns is None:
            return None
        return max(0, self._elapsed_ns - self._contact_ns) // 1_000_000

    def membership_at(self, index: int) -> Membership | None:
        """The membership in force at an index; None when it was applied before the last start."""
        assert index <= self.machine.applied
        for since, membership in reversed(self._memberships):
            if since <= index:
                return membership
        return None


def _effects_of(op: Op) -> int:
    """How many effects of another shard an op brings."""
    match op:
        case ReceiveMany(effects=effects):
            return len(effects)
        case Receive():
            return 1
        case _:
            return 0


_NOTHING: Final = encode_json(Claims([]))
_FETCH: Final = NUMBERS[Fetch]
_DELIVERED: Final = NUMBERS[Delivered]
_decode_delivered: Final = msgspec.json.Decoder(Delivered).decode
_decode_walked: Final = msgspec.json.Decoder(Walked).decode
_decode_fetch: Final = msgspec.json.Decoder(Fetch).decode
