"""The leader: sending the log, counting what is safe, proving that it leads (Raft 5.3, 5.4).

Appends are made in `flush`, when the driver asks for what is ready, and not at each proposal:
whatever was proposed in between goes out together.
"""

import zlib

from corvo.raft import membership as members
from corvo.raft.errors import Compacted
from corvo.raft.messages import (
    NOBODY,
    AppendRequest,
    AppendResponse,
    Entry,
    Heartbeat,
    HeartbeatResponse,
    Kind,
    ReadContext,
    ReadRequest,
    ReadResponse,
    Snapshot,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotPull,
    TimeoutNow,
    TransferRequest,
)
from corvo.raft.progress import Flow, Progress
from corvo.raft.quorum import Outcome, joint_committed, joint_outcome
from corvo.raft.ready import Read
from corvo.raft.roles import become_follower
from corvo.raft.state import Leadership, Raft

# Sending.


def flush(raft: Raft, leadership: Leadership) -> None:
    """Make every message that the others are due now."""
    if leadership.reads.wants_round:
        leadership.reads.start_round()
        leadership.heartbeat_due = True
        count_reads(raft, leadership)
    if leadership.heartbeat_due:
        leadership.heartbeat_due = False
        for replica, progress in leadership.progress.items():
            _send_heartbeat(raft, leadership, replica, progress)
    for replica, progress in leadership.progress.items():
        _send_appends(raft, leadership, replica, progress)


def _send_heartbeat(raft: Raft, leadership: Leadership, replica: int, progress: Progress) -> None:
    # Never beyond what it holds: the entries there may still be another leader's.
    commit = min(raft.log.commit, progress.match)
    progress.sent_commit = max(progress.sent_commit, commit)
    is_in_log = progress.match >= raft.log.base.index
    raft.send(
        Heartbeat(
            *raft.to(replica),
            commit=commit,
            round=leadership.reads.round,
            acknowledged=progress.match,
            acknowledged_term=raft.log.term(progress.match) if is_in_log else 0,
            acknowledged_by=raft.instance_of(replica),
        )
    )


def _send_appends(raft: Raft, leadership: Leadership, replica: int, progress: Progress) -> None:
    owes_commit = progress.sent_commit < min(raft.log.commit, progress.next - 1)
    may_be_empty = progress.wants_append or owes_commit
    while not progress.is_paused:
        if not _send_append(raft, leadership, replica, progress, may_be_empty=may_be_empty):
            return
        may_be_empty = False


def _send_append(
    raft: Raft, leadership: Leadership, replica: int, progress: Progress, *, may_be_empty: bool
) -> bool:
    log = raft.log
    previous = progress.next - 1
    if progress.wanted is not None:
        _offer_snapshot(raft, leadership, replica, progress)
        return False
    try:
        previous_term = log.term(previous)
        entries = _entries_for(raft, progress)
    except Compacted:
        _offer_snapshot(raft, leadership, replica, progress)
        return False
    if not entries and not may_be_empty:
        return False
    raft.send(
        AppendRequest(
            *raft.to(replica),
            previous_index=previous,
            previous_term=previous_term,
            entries=entries,
            commit=log.commit,
        )
    )
    last = previous + len(entries)
    progress.wants_append = False
    progress.sent_commit = max(progress.sent_commit, min(log.commit, last))
    progress.sent(last_index=last, count=len(entries), size=sum(entry.size for entry in entries))
    return True


def _entries_for(raft: Raft, progress: Progress) -> tuple[Entry, ...]:
    last = raft.log.last_index
    if progress.next > last or not progress.may_carry_entries:
        return ()
    return tuple(raft.log.entries(progress.next, last, raft.settings.append_bytes_max))


def _offer_snapshot(raft: Raft, leadership: Leadership, replica: int, progress: Progress) -> None:
    """Offer what the log no longer has. Without a fitting snapshot, ask the driver for one."""
    # Whatever comes of it, the next try waits for a sign of life.
    progress.paused = True
    if not progress.is_active:
        return
    least = max(raft.log.base.index, progress.wanted or 0)
    snapshot = raft.storage.snapshot()
    if snapshot is None or snapshot.index < least:
        leadership.snapshot_wanted = max(least, leadership.snapshot_wanted or 0)
        return
    progress.become_snapshot(snapshot)
    # Whatever was committed before our term is in our log, but before our own first commit we
    # cannot tell how much of it that is.
    goal = raft.log.commit if raft.is_established else raft.log.last_index
    raft.send(SnapshotOffer(*raft.to(replica), snapshot=snapshot, goal=goal))


# Hearing.


def _heard(raft: Raft, replica: int) -> tuple[Leadership, Progress] | None:
    leadership = raft.leadership
    if leadership is None:
        # It answers somebody we no longer are.
        return None
    progress = leadership.progress.get(replica)
    if progress is None:
        raft.refused["not_a_member"] += 1
        return None
    progress.is_active = True
    return leadership, progress


def on_append_response(raft: Raft, message: AppendResponse) -> None:
    """A follower accepted, rejected, or asks for a snapshot."""
    heard = _heard(raft, message.source)
    if heard is None:
        return
    leadership, progress = heard
    if message.index > raft.log.last_index and not message.wants_snapshot:
        raft.refused["beyond_the_log"] += 1
        return
    progress.commit = max(progress.commit, min(message.commit, raft.log.commit))
    if message.wants_snapshot:
        _on_snapshot_wanted(progress, message)
    elif message.rejected:
        _on_rejected(raft, progress, message)
    else:
        _on_accepted(raft, leadership, progress, message)
    _leave_when_known(raft, leadership)


def _on_snapshot_wanted(progress: Progress, message: AppendResponse) -> None:
    """It holds nothing that counts: it is new, or is to be repaired."""
    offered = progress.offered
    if offered is not None and progress.wanted is not None and offered.index >= message.index:
        return
    progress.match = 0
    progress.wanted = message.index
    progress.become_probe()


def _on_rejected(raft: Raft, progress: Progress, message: AppendResponse) -> None:
    hint = message.hint_index
    if message.hint_term:
        # Skip the whole terms in which the logs cannot agree: one round trip a term.
        hint, _ = raft.log.agreement(message.hint_index, message.hint_term)
    if progress.rejected(index=message.index, hint=hint):
        if progress.flow is Flow.REPLICATE:
            progress.become_probe()
        progress.wants_append = True


def _on_accepted(
    raft: Raft, leadership: Leadership, progress: Progress, message: AppendResponse
) -> None:
    news = progress.acked(message.index)
    if not news and not (progress.flow is Flow.PROBE and message.index == progress.match):
        return
    match progress.flow:
        case Flow.PROBE:
            progress.become_replicate()
        case Flow.SNAPSHOT if progress.match >= raft.log.base.index:
            progress.become_replicate()
        case Flow.REPLICATE:
            progress.window.free_to(message.index)
        case _:
            pass
    progress.wanted = None
    advance_commit(raft)
    if message.source == leadership.heir and progress.match == raft.log.last_index:
        raft.send(TimeoutNow(*raft.to(message.source)))


def on_heartbeat_response(raft: Raft, message: HeartbeatResponse) -> None:
    """A sign of life: try again what was waiting, and count the read round it answers."""
    heard = _heard(raft, message.source)
    if heard is None:
        return
    leadership, progress = heard
    if message.round > leadership.reads.round:
        raft.refused["unknown_round"] += 1
        return
    progress.commit = max(progress.commit, min(message.commit, raft.log.commit))
    if progress.has_installed(min(message.commit, raft.log.commit)):
        # The acknowledgement was lost: it says so again when it is asked from there.
        progress.probe_from(progress.commit)
    progress.paused = False
    if progress.flow is Flow.PROBE or progress.match < raft.log.last_index:
        progress.wants_append = True
    progress.round = max(progress.round, message.round)
    count_reads(raft, leadership)
    _leave_when_known(raft, leadership)


# Committing.


def advance_commit(raft: Raft) -> None:
    """Commit what a majority holds, if that is an entry of our own term.

    An older entry on a majority may still be replaced (Raft 5.4.2, figure 8), so it is committed
    only together with one of ours.
    """
    leadership = raft.leadership
    assert leadership is not None, "only a leader commits by counting"
    index = raft.majority_match()
    if index <= raft.log.commit or not raft.log.matches(index, raft.term):
        return
    raft.log.commit_to(index)
    while leadership.uncommitted and leadership.uncommitted[0][0] <= index:
        leadership.uncommitted_bytes -= leadership.uncommitted.popleft()[1]
    leadership.reads.release_early(index)


# Reads.


def ask_read(raft: Raft, leadership: Leadership, context: ReadContext, asker: int) -> None:
    """Read at the present commit once a round proves that we lead; before our first, later."""
    if raft.is_established:
        leadership.reads.ask(context, asker, raft.log.commit)
    else:
        leadership.reads.ask_early(context, asker)


def on_read_request(raft: Raft, message: ReadRequest) -> None:
    """A follower asks on behalf of its driver."""
    leadership = raft.leadership
    if leadership is None or len(leadership.reads) >= raft.settings.reads_waiting_max:
        raft.refused["read_not_taken"] += 1
        return
    ask_read(raft, leadership, ReadContext(message.context), message.source)


def count_reads(raft: Raft, leadership: Leadership) -> None:
    """Answer every read whose round a majority has confirmed."""

    def confirmed(replica: int) -> int:
        if replica == raft.id:
            return leadership.reads.round
        progress = leadership.progress.get(replica)
        return progress.round if progress else 0

    group = raft.membership
    round_ = joint_committed(group.voters, group.outgoing, confirmed)
    for read in leadership.reads.confirm(round_):
        if read.asker == NOBODY:
            raft.reads.append(Read(read.context, read.index))
            continue
        term = raft.log.term(read.index) if read.index >= raft.log.base.index else 0
        raft.send(
            ReadResponse(
                *raft.to(read.asker), context=read.context, index=read.index, index_term=term
            )
        )


# Ticking.


def tick_leader(raft: Raft, leadership: Leadership) -> None:
    """Beat, and check that a majority is still there."""
    leadership.heartbeat_elapsed += 1
    if leadership.heartbeat_elapsed >= raft.settings.heartbeat_ticks:
        leadership.heartbeat_elapsed = 0
        leadership.heartbeat_due = True
    for progress in leadership.progress.values():
        _tick_snapshot(raft, progress)
    leadership.transfer_elapsed += 1
    if leadership.transfer_elapsed >= raft.settings.election_ticks:
        leadership.heir = NOBODY
    if raft.elapsed < raft.settings.election_ticks:
        return
    raft.elapsed = 0
    if not _quorum_is_active(raft, leadership):
        become_follower(raft, raft.term, NOBODY)
        return
    for progress in leadership.progress.values():
        progress.is_active = False


def _tick_snapshot(raft: Raft, progress: Progress) -> None:
    if progress.flow is not Flow.SNAPSHOT:
        return
    progress.quiet_ticks += 1
    if progress.quiet_ticks >= 3 * raft.settings.election_ticks:
        # Longer than the follower waits before it asks again: the offer was lost, or the follower.
        progress.become_probe()


def _quorum_is_active(raft: Raft, leadership: Leadership) -> bool:
    active = {replica: progress.is_active for replica, progress in leadership.progress.items()}
    active[raft.id] = True
    group = raft.membership
    return joint_outcome(group.voters, group.outgoing, active) is Outcome.WON


def decides_alone(raft: Raft, leadership: Leadership) -> bool:
    """Whether no other replica can lead: none of them votes, and no change is under way."""
    group = raft.membership
    is_over = raft.log.applied >= leadership.pending_change
    return is_over and not group.outgoing and group.voters == (raft.id,)


# Handing over and leaving.


def start_transfer(raft: Raft, leadership: Leadership, heir: int) -> None:
    """Hand over to `heir` as soon as it has the whole log; the caller checked that it may lead."""
    if heir == leadership.heir:
        return
    leadership.heir = NOBODY
    if heir == raft.id:
        return
    leadership.heir = heir
    leadership.transfer_elapsed = 0
    progress = leadership.progress[heir]
    if progress.match == raft.log.last_index:
        raft.send(TimeoutNow(*raft.to(heir)))
    else:
        progress.wants_append = True


def on_transfer_request(raft: Raft, message: TransferRequest) -> None:
    """A follower's driver asks us to hand over."""
    leadership = raft.leadership
    if leadership is None or not may_inherit(raft, message.heir):
        raft.refused["heir"] += 1
        return
    start_transfer(raft, leadership, message.heir)


def may_inherit(raft: Raft, heir: int) -> bool:
    """Whether `heir` is a voter to whom leadership may go."""
    return heir in raft.membership.voters


def _leave_when_known(raft: Raft, leadership: Leadership) -> None:
    """A removed leader goes once a majority knows that it may.

    Left earlier, the others may still be in the joint state and need the votes of those who are
    gone.
    """
    left_at = leadership.left_at
    if left_at is None:
        return

    def known(replica: int) -> int:
        progress = leadership.progress.get(replica)
        return progress.commit if progress else 0

    if joint_committed(raft.membership.voters, raft.membership.outgoing, known) >= left_at:
        _step_aside(raft, leadership)


def _step_aside(raft: Raft, leadership: Leadership) -> None:
    """Stop leading, and tell the best of the others to go on without waiting."""
    best = max(
        raft.membership.voters,
        key=lambda voter: leadership.progress[voter].match if voter in leadership.progress else 0,
    )
    raft.send(TimeoutNow(*raft.to(best)))
    become_follower(raft, raft.term, NOBODY)


# Serving a snapshot.


def on_pull(raft: Raft, message: SnapshotPull) -> None:
    """Send the next chunk of the snapshot that this follower was offered."""
    heard = _heard(raft, message.source)
    if heard is None:
        return
    _, progress = heard
    snapshot = message.snapshot
    if progress.flow is not Flow.SNAPSHOT or progress.offered != snapshot:
        # An old stream. If it still needs one, the answer to its next append says so.
        raft.refused["pull_of_another_stream"] += 1
        return
    progress.quiet_ticks = 0
    data = _chunk(raft, snapshot, message.offset)
    if data is None:
        progress.become_probe()
        return
    raft.send(
        SnapshotChunk(
            *raft.to(message.source),
            snapshot=snapshot,
            offset=message.offset,
            data=data,
            checksum=zlib.crc32(data),
        )
    )


def _chunk(raft: Raft, snapshot: Snapshot, offset: int) -> bytes | None:
    if offset > snapshot.size:
        return None
    data = raft.storage.chunk(snapshot, offset, raft.settings.chunk_bytes_max)
    # No bytes before the end: the snapshot is not what it was when it was offered.
    return None if not data and offset < snapshot.size else data


# Proposing.


def append(raft: Raft, leadership: Leadership, kind: Kind, data: bytes) -> int:
    """Put one entry at the end of the leader's log."""
    index = raft.log.last_index + 1
    raft.log.append((Entry(index, raft.term, kind, data),))
    if kind is Kind.CONFIG:
        leadership.pending_change = index
    elif data:
        leadership.uncommitted.append((index, len(data)))
        leadership.uncommitted_bytes += len(data)
    return index


def leave_joint_if_due(raft: Raft) -> None:
    """End a joint state that was entered to be left by itself: once, and also as a new leader."""
    leadership = raft.leadership
    group = raft.membership
    if leadership is None or not (members.is_joint(group) and group.auto_leave):
        return
    if not raft.is_established:
        # Nobody changes the membership before the first commit of its term (Ongaro 2015).
        return
    if raft.log.applied >= leadership.pending_change:
        append(raft, leadership, Kind.CONFIG, members.encode(members.LEAVE))
