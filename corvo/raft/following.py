"""The follower: appends, heartbeats, and pulling a snapshot (Raft 5.3, 7)."""

import zlib

from corvo.raft.election import learn_commit
from corvo.raft.messages import (
    NOBODY,
    AnyMessage,
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    ReadContext,
    ReadResponse,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotPull,
)
from corvo.raft.ready import Read
from corvo.raft.roles import become_follower
from corvo.raft.state import Forwarded, Incoming, Raft, Repair, Role


def follow(raft: Raft, leader: int) -> bool:
    """A message of our term came from its leader. False if that cannot be."""
    if raft.role is Role.LEADER or raft.leader not in (NOBODY, leader):
        raft.refused["second_leader"] += 1
        return False
    if raft.role is not Role.FOLLOWER or raft.leader == NOBODY:
        become_follower(raft, raft.term, leader)
    raft.elapsed = 0
    return True


def on_append(raft: Raft, message: AppendRequest) -> None:
    """Take over entries that follow one we have; say where we still agree otherwise."""
    if not follow(raft, message.source):
        return
    if raft.is_blank or not _follows(raft):
        _ask_for_snapshot(raft)
        return
    if message.previous_index < raft.log.commit:
        # What is committed agrees already; the leader may move on from there.
        _accept(raft, raft.log.commit)
        return
    if raft.log.matches(message.previous_index, message.previous_term):
        last = raft.log.merge(message.previous_index, message.entries)
        raft.log.commit_to(min(message.commit, last))
        _accept(raft, last)
        return
    hint_index, hint_term = raft.log.agreement(message.previous_index, message.previous_term)
    raft.send(
        AppendResponse(
            *raft.to(message.source),
            index=message.previous_index,
            rejected=True,
            hint_index=hint_index,
            hint_term=hint_term,
            commit=raft.log.commit,
        )
    )


def _accept(raft: Raft, index: int) -> None:
    """Say that everything up to `index` is here: once for all that is durable with one write."""
    answer = AppendResponse(*raft.to(raft.leader), index=index, commit=raft.log.commit)
    waiting = raft.messages_after_write
    if waiting and _covers(answer, waiting[-1]):
        waiting.pop()
    raft.send(answer)


def _covers(answer: AppendResponse, earlier: AnyMessage) -> bool:
    """Whether the leader learns nothing from an earlier message that this one does not say."""
    return (
        isinstance(earlier, AppendResponse)
        and not earlier.rejected
        and (earlier.target, earlier.term) == (answer.target, answer.term)
        and earlier.index <= answer.index
    )


def on_heartbeat(raft: Raft, message: Heartbeat) -> None:
    """The leader lives; what it says is committed is within what we acknowledged."""
    if not follow(raft, message.source):
        return
    if _has_forgotten(raft, message):
        _begin_repair(raft)
        return
    if _follows(raft):
        if _agrees(raft, message):
            raft.log.commit_to(message.commit)
    elif raft.repair is not None and raft.repair.goal_term != raft.term:
        # An idle leader sends no append that would let us ask.
        _ask_for_snapshot(raft)
    # A snapshot on its way to the disk could be forgotten, and the leader may go by what we know.
    known = 0 if raft.log.is_installing else raft.log.commit
    raft.send(HeartbeatResponse(*raft.to(message.source), round=message.round, commit=known))


def on_read_response(raft: Raft, message: ReadResponse) -> None:
    """The leader answers a read that we sent on, if it still waits."""
    context = ReadContext(message.context)
    waiting = [read for read in raft.forwarded if read.context != context]
    if len(waiting) == len(raft.forwarded):
        raft.refused["unknown_read"] += 1
        return
    raft.forwarded = waiting
    # Should the notice of the commit have been lost, the read need not wait for the next.
    learn_commit(raft, message.index, message.index_term)
    raft.reads.append(Read(context, message.index))


# Pulling a snapshot.


def on_offer(raft: Raft, message: SnapshotOffer) -> None:
    """What we need is cut off at the leader: pull its snapshot, unless we need none after all."""
    if not follow(raft, message.source):
        return
    snapshot, log = message.snapshot, raft.log
    if log.is_installing:
        return
    if not _follows(raft):
        if snapshot.index < log.commit:
            _ask_for_snapshot(raft)
            return
        raft.repair = Repair(goal_term=raft.term, goal_index=message.goal)
    elif snapshot.index <= log.commit:
        _accept(raft, log.commit)
        return
    elif log.matches(snapshot.index, snapshot.term):
        log.commit_to(snapshot.index)
        _accept(raft, snapshot.index)
        return
    _pull(raft, message)


def _pull(raft: Raft, message: SnapshotOffer) -> None:
    current, snapshot = raft.incoming, message.snapshot
    if current is not None and current.snapshot != snapshot:
        if current.leader_term == raft.term and snapshot.index < current.snapshot.index:
            raft.refused["old_offer"] += 1
            return
        current = None
    if current is None:
        if raft.chunk is not None:
            # No write has taken it yet, and its stream was just given up.
            raft.chunk = None
            raft.storing.pop()
        current = Incoming(snapshot, received=0, expected=0, leader_term=raft.term)
    current.leader_term = raft.term
    raft.incoming = current
    if current.received == snapshot.size and current.received > 0:
        # Only the installing was missing when this replica was last stopped.
        _install(raft, current)
    elif current.received == current.expected:
        # Otherwise a chunk is on its way to the disk, and storing it asks for the next.
        _ask_for_chunk(raft, current)


def on_chunk(raft: Raft, message: SnapshotChunk) -> None:
    """The next bytes of what we pull. Anything else, or anything damaged, is dropped."""
    if not follow(raft, message.source):
        return
    current = raft.incoming
    if current is None or message.snapshot != current.snapshot or current.leader_term != raft.term:
        raft.refused["chunk_of_another_stream"] += 1
        return
    is_asked_for = current.expected == current.received == message.offset
    if not is_asked_for or raft.log.is_installing:
        raft.refused["chunk_out_of_order"] += 1
        return
    end = message.offset + len(message.data)
    if zlib.crc32(message.data) != message.checksum or end > current.snapshot.size:
        raft.refused["chunk_damaged"] += 1
        return
    if not message.data and current.snapshot.size > 0:
        raft.refused["chunk_damaged"] += 1
        return
    raft.chunk = message
    raft.storing.append(current)
    current.expected = end
    current.quiet_ticks = 0


def chunk_stored(raft: Raft, chunk: SnapshotChunk, *, intact: bool) -> None:
    """A chunk is durable: pull the next, or install when it was the last."""
    current = raft.storing.popleft()
    if current is not raft.incoming:
        # Another stream, or the same begun anew, has taken its place on the disk.
        return
    if not intact:
        raft.refused["snapshot_damaged"] += 1
        raft.incoming = None
        return
    current.received = chunk.offset + len(chunk.data)
    if current.received == current.snapshot.size:
        _install(raft, current)
    elif raft.leader != NOBODY and current.leader_term == raft.term:
        _ask_for_chunk(raft, current)


def _ask_for_chunk(raft: Raft, current: Incoming) -> None:
    assert current.expected == current.received, "one chunk at a time"
    current.quiet_ticks = 0
    raft.send(
        SnapshotPull(*raft.to(raft.leader), snapshot=current.snapshot, offset=current.received)
    )


def _install(raft: Raft, current: Incoming) -> None:
    """Replace the log by the snapshot."""
    if raft.role is not Role.FOLLOWER:
        # A complete stream in a candidate's hands may be old; whoever wins will offer again.
        return
    snapshot = current.snapshot
    overtaken = raft.log.matches(snapshot.index, snapshot.term)
    assert not (_follows(raft) and overtaken), "what was acknowledged is not cut"
    raft.incoming = None
    raft.install = snapshot
    raft.log.restore(snapshot)
    raft.membership = snapshot.membership
    # A member may have been removed meanwhile, and added again with another data directory.
    raft.instances.clear()
    raft.configs.clear()
    if raft.repair is not None:
        raft.repair.installed = True
    if raft.leader != NOBODY:
        _accept(raft, snapshot.index)


def tick_incoming(raft: Raft) -> None:
    """Ask again for a chunk that does not come: the question or the answer was lost."""
    current = raft.incoming
    if current is None or raft.leader == NOBODY or current.leader_term != raft.term:
        return
    if current.expected != current.received:
        # A chunk is on its way to the disk; storing it asks for the next.
        return
    if current.received == current.snapshot.size > 0:
        # It was complete while we campaigned.
        _install(raft, current)
        return
    current.quiet_ticks += 1
    if current.quiet_ticks >= raft.settings.election_ticks:
        _ask_for_chunk(raft, current)


# Repair.


def _agrees(raft: Raft, message: Heartbeat) -> bool:
    """Whether our log is the leader's, up to where the leader believes it is.

    If it is not, the entries up to the commit may be of another leader. A leader of an earlier
    release does not say what was acknowledged.
    """
    index = message.acknowledged
    return index <= raft.log.commit or raft.log.matches(index, message.acknowledged_term)


def _has_forgotten(raft: Raft, message: Heartbeat) -> bool:
    """Whether this directory acknowledged an entry in this term and does not have it.

    No crash does that: an acknowledgement leaves when the entry is durable, and entries of a leader
    are not cut in its term. So the directory is an older copy, or its disk lost what was synced.
    """
    if message.acknowledged_by != raft.settings.instance or _agrees(raft, message):
        return False
    return message.acknowledged > raft.log.last_index or message.acknowledged_term > 0


def _begin_repair(raft: Raft) -> None:
    """Vote and lead no more, from a new term on. Durable with that term: see `Write.repair`."""
    raft.refused["forgotten"] += 1
    become_follower(raft, raft.term + 1, NOBODY)
    raft.repair = Repair()
    raft.repair_is_new = True


def _ask_for_snapshot(raft: Raft) -> None:
    raft.send(
        AppendResponse(
            *raft.to(raft.leader),
            # There is no snapshot of nothing.
            index=max(raft.log.commit, 1),
            rejected=True,
            commit=raft.log.commit,
            wants_snapshot=True,
        )
    )


def _follows(raft: Raft) -> bool:
    """Whether this replica takes appends: it has nothing to repair, or has its snapshot already."""
    repair = raft.repair
    return repair is None or (repair.installed and repair.goal_term == raft.term)


def forget_overtaken(raft: Raft) -> None:
    """Stop pulling what the log has made needless: appends have brought the entries after all.

    Installing it would cut what came behind, and was acknowledged.
    """
    if raft.incoming is None or not _follows(raft):
        return
    snapshot, log = raft.incoming.snapshot, raft.log
    if snapshot.index <= log.commit or log.matches(snapshot.index, snapshot.term):
        log.commit_to(snapshot.index)
        raft.incoming = None


def end_repair(raft: Raft) -> None:
    """Become a full member again once everything that may have been committed is here."""
    repair = raft.repair
    if repair is None or not _follows(raft):
        return
    if min(raft.log.stable, raft.log.commit) >= repair.goal_index:
        raft.repair = None


# Reads.


def forward_read(raft: Raft, context: ReadContext) -> None:
    """Remember a read that was sent to the leader."""
    raft.forwarded.append(Forwarded(context))


def tick_forwarded(raft: Raft) -> None:
    """Give up reads that the leader has not answered within an election timeout."""
    for read in raft.forwarded:
        read.quiet_ticks += 1
    if raft.forwarded and raft.forwarded[0].quiet_ticks >= raft.settings.election_ticks:
        late = [read for read in raft.forwarded if read.quiet_ticks >= raft.settings.election_ticks]
        raft.reads_lost.extend(read.context for read in late)
        raft.forwarded = raft.forwarded[len(late) :]
