"""`Node`: one replica of one group, without threads, clock, sockets or files.

The driver feeds it ticks, messages and proposals, and carries out what `ready` hands back (see
`corvo.raft.ready` for the order). A loop that does all of it:

    node.tick()
    for message in received:
        node.step(message)
    while ready := node.ready():
        send(ready.messages)
        if ready.write:
            storage.put(ready.write)
            storage.sync()
            send(ready.write.messages)
            node.stored(ready.write.token)
        for entry in ready.committed:
            state_machine.apply(entry)
        if ready.committed:
            node.advance(ready.committed[-1].index)
"""

from collections import deque
from collections.abc import Iterator
from random import Random

import msgspec

from corvo.raft import core, election, replication
from corvo.raft import membership as members
from corvo.raft.errors import (
    ChangeRefused,
    Misuse,
    NotLeader,
    Overloaded,
    Refused,
    TooLarge,
    Transferring,
)
from corvo.raft.following import forward_read
from corvo.raft.membership import Action, Change
from corvo.raft.messages import (
    NOBODY,
    AnyMessage,
    Entry,
    HardState,
    Kind,
    Membership,
    ReadContext,
    ReadRequest,
    Snapshot,
    TransferRequest,
)
from corvo.raft.progress import ProgressView
from corvo.raft.ready import Ready, Write
from corvo.raft.replication import ask_read, may_inherit, start_transfer
from corvo.raft.roles import become_follower
from corvo.raft.settings import Settings
from corvo.raft.state import Incoming, Leadership, Raft, Repair, Role
from corvo.raft.storage import Storage


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """A node at one moment, for people and metrics."""

    replica: int
    role: Role
    term: int
    vote: int
    leader: int | None
    commit: int
    applied: int
    stable: int
    first_index: int
    last_index: int
    membership: Membership
    is_repairing: bool
    transfer_to: int | None
    uncommitted_bytes: int
    reads_waiting: int
    writes_under_way: int
    snapshot_received: tuple[int, int] | None
    """(bytes received, bytes in all) of a snapshot being pulled."""
    progress: tuple[ProgressView, ...]
    refused: dict[str, int]  # messages not taken, by reason: malformed, old, from strangers


class Node:
    """One replica. Not thread-safe; every method returns at once."""

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        random: Random,
        *,
        applied: int = 0,
        repair: bool = False,
        returned: bool = False,
    ) -> None:
        """Start, or go on, from what `storage` holds and the state machine has `applied`.

        `random` must draw differently at every start: attempts to read are named by it, and an old
        answer must not fit a new attempt. `repair` says that the log lost something it once
        acknowledged. `returned` says that this replica was a member once, with another data
        directory: it does not vote while it has no state. Else a replica that was away since then,
        and knows the group of then, could be elected by it beside the present leader. Raises
        `InvalidSettings`, and `Misuse` where log and state machine cannot belong together.
        """
        settings.check()
        base = storage.base
        if not base.index <= applied <= storage.last_index:
            raise Misuse(
                f"the state machine has applied {applied}, but the log holds {base.index + 1} to"
                f" {storage.last_index}: restore it from a snapshot of the log's base or later"
            )
        raft = Raft(settings, storage, random, applied)
        raft.has_returned = returned
        _recall(raft, settings.page_bytes_max)
        become_follower(raft, raft.term, NOBODY)
        if repair:
            become_follower(raft, raft.term + 1, NOBODY)
            raft.repair = Repair()
        self._raft = raft
        self._handed_state = raft.durable
        self._writes: deque[Write] = deque()
        self._token = 0

    # What comes in.

    def tick(self, missed: int = 0) -> None:
        """One tick has passed.

        After a pause, drain what has arrived and call this once with the number of ticks that were
        missed: a leader that stood still for an election timeout stops leading.
        """
        core.tick(self._raft, missed)

    def step(self, message: AnyMessage) -> None:
        """Take in a message from another replica. Never raises."""
        core.step(self._raft, message)

    def propose(self, data: bytes) -> int:
        """Append `data` to the log; returns its index, which means nothing until it is committed.

        Raises `NotLeader`, `Transferring`, `TooLarge`, or `Overloaded` when too much waits for
        commit; nothing was changed then. A lost leadership may replace the entry: compare terms
        when it is applied.
        """
        leadership = self._leading()
        largest = self._raft.settings.entry_bytes_max
        if len(data) > largest:
            raise TooLarge(f"the entry has {len(data)} bytes; entry_bytes_max is {largest}")
        waiting = leadership.uncommitted_bytes
        if data and waiting and waiting + len(data) > self._raft.settings.uncommitted_bytes_max:
            raise Overloaded(
                f"{waiting} bytes wait for commit; uncommitted_bytes_max is"
                f" {self._raft.settings.uncommitted_bytes_max}"
            )
        return replication.append(self._raft, leadership, Kind.NORMAL, data)

    def propose_change(self, change: Change, *, force: bool = False) -> int:
        """Change the membership; takes effect, in two steps, when applied.

        Raises like `propose`, and `ChangeRefused`: while another change is under way, before this
        leader has committed anything, or when a new voter has not caught up (unless `force`).
        """
        leadership = self._leading()
        raft = self._raft
        if not raft.is_established:
            raise ChangeRefused("this leader has not committed anything in its term yet")
        if raft.log.applied < leadership.pending_change:
            raise ChangeRefused(f"the change at {leadership.pending_change} is not applied yet")
        if change.leaves and raft.membership.auto_leave:
            raise ChangeRefused("the joint state ends by itself")
        members.changed(raft.membership, change)  # raises what is wrong with it
        if not force:
            self._check_promotions(leadership, change)
        return replication.append(raft, leadership, Kind.CONFIG, members.encode(change))

    def read_index(self) -> ReadContext:
        """Start an attempt to read; its answer comes in `Ready.reads`, or `Ready.reads_lost`.

        Every attempt gets a fresh context, retries included. Raises `NotLeader` while no leader is
        known, and `Overloaded` past `reads_waiting_max`.
        """
        raft = self._raft
        leadership = raft.leadership
        if leadership is None and raft.leader == NOBODY:
            raise NotLeader(None)
        waiting = len(leadership.reads) if leadership else len(raft.forwarded)
        if waiting >= raft.settings.reads_waiting_max:
            raise Overloaded(f"{waiting} reads wait already: that is reads_waiting_max")
        context = ReadContext(raft.next_context)
        raft.next_context += 1
        if leadership is not None:
            ask_read(raft, leadership, context, NOBODY)
        else:
            forward_read(raft, context)
            raft.send(ReadRequest(*raft.to(raft.leader), context=context))
        return context

    def transfer(self, heir: int) -> None:
        """Hand leadership to `heir`; to the present leader, call off a transfer.

        On a follower the leader is asked. Given up after an election timeout. Raises `NotLeader`
        where no leader is known, and `Refused` when `heir` is not a voter.
        """
        raft = self._raft
        if raft.leader == NOBODY:
            raise NotLeader(None)
        if not may_inherit(raft, heir):
            raise Refused(f"replica {heir} is not a voter and cannot lead")
        if raft.leadership is not None:
            start_transfer(raft, raft.leadership, heir)
        else:
            raft.send(TransferRequest(*raft.to(raft.leader), heir=heir))

    def campaign(self) -> None:
        """Stand for election now instead of after a timeout, if this replica may."""
        election.campaign(self._raft)

    def forget_leader(self) -> None:
        """Stop waiting for a leader that is known, by other means, to be gone."""
        if self._raft.role is Role.FOLLOWER:
            become_follower(self._raft, self._raft.term, NOBODY)

    # What goes out, and what was done with it.

    @property
    def has_ready(self) -> bool:
        """Whether `ready` may have something to hand out."""
        raft = self._raft
        return bool(
            raft.messages
            or raft.messages_after_write
            or raft.reads
            or raft.reads_lost
            or raft.leadership
            or raft.log.has_next_committed
            or self._has_to_store
        )

    @property
    def is_due(self) -> bool:
        """Whether a tick has made something to hand out.

        Of `has_ready`, this is what becomes due by time alone: a driver need not look after a tick
        that has changed nothing.
        """
        raft = self._raft
        return bool(
            raft.messages
            or raft.messages_after_write
            or raft.reads_lost
            or (raft.leadership is not None and raft.leadership.heartbeat_due)
            or self._has_to_store
        )

    def ready(self, *, may_write: bool = True) -> Ready:
        """Everything to be done now; falsy when there is nothing.

        With `may_write` false no write is handed out: while the disk is busy, what gathers becomes
        one write later.
        """
        raft = self._raft
        leadership = raft.leadership
        if leadership is not None:
            replication.flush(raft, leadership)
        write = self._next_write() if may_write else None
        committed = raft.log.next_committed(raft.settings.page_bytes_max)
        if committed:
            core.remember_configs(raft, committed)
        wanted = None
        if raft.leadership is not None:
            wanted, raft.leadership.snapshot_wanted = raft.leadership.snapshot_wanted, None
        ready = Ready(
            messages=tuple(raft.messages),
            write=write,
            committed=committed,
            reads=tuple(raft.reads),
            reads_lost=tuple(raft.reads_lost),
            snapshot_wanted=wanted,
        )
        raft.messages, raft.reads, raft.reads_lost = [], [], []
        return ready

    def stored(self, token: int, *, intact: bool = True) -> None:
        """The write `token` is durable and its messages are sent.

        `intact` is false when its chunk completed a snapshot that is not what was offered. Raises
        `Misuse` unless it is the oldest write under way.
        """
        if not self._writes or self._writes[0].token != token:
            raise Misuse(f"write {token} is not the oldest one under way")
        core.written(self._raft, self._writes.popleft(), intact=intact)

    def advance(self, index: int) -> None:
        """Everything handed out up to `index` is applied. Raises `Misuse` if it cannot be."""
        core.applied(self._raft, index)

    # What is known.

    @property
    def leader(self) -> int | None:
        """Who leads, as far as this replica knows."""
        return self._raft.leader or None

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads its term."""
        return self._raft.role is Role.LEADER

    @property
    def is_repairing(self) -> bool:
        """Whether this replica is still being made whole and has no vote."""
        return self._raft.repair is not None

    @property
    def term(self) -> int:
        """The present term."""
        return self._raft.term

    @property
    def commit(self) -> int:
        """The last index that is known to be committed."""
        return self._raft.log.commit

    @property
    def membership(self) -> Membership:
        """The membership in force: that of the applied index."""
        return self._raft.membership

    @property
    def knows_all(self) -> bool:
        """Whether this replica leads, and has applied what any leader before it has committed."""
        leadership, log = self._raft.leadership, self._raft.log
        return leadership is not None and log.applied >= leadership.noop_index

    @property
    def may_change(self) -> bool:
        """Whether this replica leads and no change is under way: a change may be proposed."""
        raft = self._raft
        leadership = raft.leadership
        if leadership is None or leadership.left_at is not None or leadership.heir != NOBODY:
            return False
        is_over = raft.log.applied >= leadership.pending_change
        return raft.is_established and is_over and not members.is_joint(raft.membership)

    def describe_state(self) -> Snapshot | None:
        """The name, without size and checksum, of the state as it is applied now.

        None while a snapshot is being installed: the state is about to be replaced.
        """
        log = self._raft.log
        if log.is_installing:
            return None
        return Snapshot(log.applied, log.term(log.applied), self._raft.membership)

    @property
    def snapshots_in_use(self) -> tuple[Snapshot, ...]:
        """What followers are pulling from this leader. Keep these, or they begin anew for ever."""
        leadership = self._raft.leadership
        progress = leadership.progress.values() if leadership else ()
        offered = [each.offered for each in progress if each.offered is not None]
        return tuple(
            snapshot for at, snapshot in enumerate(offered) if snapshot not in offered[:at]
        )

    @property
    def needed_from(self) -> int:
        """The first entry that some follower still needs: compact below it, if there is room to.

        Followers that were not heard of lately do not count; they may be gone for good.
        """
        leadership, log = self._raft.leadership, self._raft.log
        needed = log.applied + 1
        for progress in leadership.progress.values() if leadership else ():
            if progress.offered is not None:
                needed = min(needed, progress.offered.index + 1)
            elif progress.is_active:
                needed = min(needed, progress.match + 1)
        return needed

    def statistics(self) -> Statistics:
        """A frozen picture of this moment."""
        raft = self._raft
        leadership, log, incoming = raft.leadership, raft.log, raft.incoming
        learners = {*raft.membership.learners}
        return Statistics(
            replica=raft.id,
            role=raft.role,
            term=raft.term,
            vote=raft.vote,
            leader=self.leader,
            commit=log.commit,
            applied=log.applied,
            stable=log.stable,
            first_index=log.first_index,
            last_index=log.last_index,
            membership=raft.membership,
            is_repairing=self.is_repairing,
            transfer_to=(leadership.heir or None) if leadership else None,
            uncommitted_bytes=leadership.uncommitted_bytes if leadership else 0,
            reads_waiting=len(leadership.reads) if leadership else len(raft.forwarded),
            writes_under_way=len(self._writes),
            snapshot_received=(incoming.received, incoming.snapshot.size) if incoming else None,
            progress=tuple(
                progress.view(replica, is_learner=replica in learners)
                for replica, progress in (leadership.progress.items() if leadership else ())
            ),
            refused=dict(raft.refused),
        )

    # Inside.

    def _leading(self) -> Leadership:
        leadership = self._raft.leadership
        if leadership is None:
            raise NotLeader(self.leader)
        if leadership.left_at is not None:
            raise Transferring(
                "this leader was removed from the group and is about to stop leading"
            )
        if leadership.heir != NOBODY:
            raise Transferring(f"leadership is being handed to replica {leadership.heir}")
        return leadership

    def _check_promotions(self, leadership: Leadership, change: Change) -> None:
        """A voter that cannot acknowledge yet would make the group need those who can."""
        raft = self._raft
        for step in change.steps:
            known = step.replica in members.voters_of(raft.membership) or step.replica == NOBODY
            if step.action is not Action.ADD_VOTER or known:
                continue
            progress = leadership.progress.get(step.replica)
            if progress is None or not progress.may_vote:
                raise ChangeRefused(
                    f"replica {step.replica} does not follow yet: add it as a learner first"
                )
            lag = raft.log.last_index - progress.match
            if lag > raft.settings.promotion_lag_max:
                raise ChangeRefused(f"replica {step.replica} still lacks {lag} entries")

    @property
    def _state_is_new(self) -> bool:
        raft, handed = self._raft, self._handed_state
        return (handed.term, handed.vote) != (raft.term, raft.vote) or (
            raft.log.committed_change > handed.commit
        )

    @property
    def _has_to_store(self) -> bool:
        raft = self._raft
        return self._state_is_new or raft.log.has_unwritten or bool(raft.chunk or raft.install)

    def _next_write(self) -> Write | None:
        raft = self._raft
        has_to_store = self._has_to_store
        if not has_to_store and not raft.messages_after_write:
            return None
        if raft.install is not None and raft.log.handed > raft.log.applied:
            # The state that is about to be replaced is being written to.
            return None
        released, raft.messages_after_write = tuple(raft.messages_after_write), []
        if not has_to_store and not self._writes:
            # What these waited for has become durable meanwhile.
            raft.messages.extend(released)
            return None
        hard_state = None
        if self._state_is_new:
            hard_state = self._handed_state = HardState(raft.term, raft.vote, raft.log.commit)
        self._token += 1
        write = Write(
            token=self._token,
            repair=raft.repair_is_new,
            hard_state=hard_state,
            chunk=raft.chunk,
            install=raft.install,
            entries=raft.log.take_unwritten(),
            messages=released,
        )
        raft.log.write_started(write.token, installs=raft.install is not None)
        raft.chunk = raft.install = None
        raft.repair_is_new = False
        self._writes.append(write)
        return write


def _recall(raft: Raft, bytes_max: int) -> None:
    """Take up what the storage remembers: commit, membership, and a snapshot half received."""
    storage, log = raft.storage, raft.log
    changes = list(_changes(storage, bytes_max))
    log.commit_to(storage.hard_state.commit)
    if len(changes) > 1:
        # A leader proposes a change only when the one before is applied, so the last proves that
        # the last but one is committed. The record that said so may not have been synced when the
        # entries were kept. Without it, this replica could campaign two memberships behind and be
        # elected by voters that the group no longer has; one behind is safe: one of two is joint.
        log.commit_to(changes[-2].index)
    log.remember_changes(entry.index for entry in changes)
    log.change_saved(storage.hard_state.commit)
    raft.membership = storage.base.membership
    for entry in changes:
        if entry.index <= log.applied:
            raft.membership = members.applied(raft.membership, entry.data)
    if storage.partial is not None:
        partial = storage.partial
        # Leader term 0: any offer of the same stream goes on where this one ended.
        raft.incoming = Incoming(partial.snapshot, partial.received, partial.received, 0)


def _changes(storage: Storage, bytes_max: int) -> Iterator[Entry]:
    """Every membership change in the durable log."""
    first = storage.base.index + 1
    while first <= storage.last_index:
        entries = storage.entries(first, storage.last_index, bytes_max)
        yield from (entry for entry in entries if entry.kind is Kind.CONFIG)
        first = entries[-1].index + 1
