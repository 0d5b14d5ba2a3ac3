"""The dispatch of the core: messages, ticks, finished writes and applied entries.

`step` is the door: what is malformed, from a stranger or from the past is refused here, counted in
`refused`, and changes nothing, but that the commit index in an old vote is used. Then the rule of
terms (Raft 5.1), then one handler a message type.
"""

from typing import Final, assert_never

from corvo.raft import election, following, replication, validity
from corvo.raft import membership as members
from corvo.raft.messages import (
    NOBODY,
    AnyMessage,
    AppendRequest,
    AppendResponse,
    Entry,
    Heartbeat,
    HeartbeatResponse,
    Kind,
    Membership,
    ReadRequest,
    ReadResponse,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotPull,
    TimeoutNow,
    TransferRequest,
    VoteRequest,
    VoteResponse,
)
from corvo.raft.ready import Write
from corvo.raft.roles import become_follower, renewed_progress, sync_progress
from corvo.raft.state import Raft, Role

FROM_LEADERS: Final = (AppendRequest, Heartbeat, SnapshotOffer, SnapshotChunk)
"""What only the leader of its term sends."""


def step(raft: Raft, message: AnyMessage) -> None:
    """Take in a message from another replica. Never raises; what is not for us changes nothing."""
    problem = validity.problem(message, raft.id) or _stranger(raft, message)
    if problem is not None:
        raft.refused[problem] += 1
        return
    if message.term > raft.term:
        if not _enter_term(raft, message):
            return
    elif message.term < raft.term:
        # Neither what it says of its term is believed, nor who sent it.
        _answer_the_past(raft, message)
        return
    _remember_instance(raft, message)
    _handle(raft, message)
    following.forget_overtaken(raft)
    following.end_repair(raft)


def _stranger(raft: Raft, message: AnyMessage) -> str | None:
    """Whether another data directory speaks for a replica that we know: it may have forgotten."""
    if not message.instance:
        return None
    pinned = dict(raft.membership.pins).get(message.source)
    if not pinned and _may_be_replaced(raft, message.source):
        return None
    known = pinned or raft.instances.get(message.source, message.instance)
    return None if message.instance == known else "instance"


def _may_be_replaced(raft: Raft, source: int) -> bool:
    """Whether a replica is a learner, and no change under way may make it a voter.

    It may have been added again after it was removed, with another directory. A message that was
    under way meanwhile is then from the old one, and must not shut the new one out.
    """
    leadership = raft.leadership
    if leadership is not None and raft.log.applied < leadership.pending_change:
        return False
    return source not in members.voters_of(raft.membership)


def _remember_instance(raft: Raft, message: AnyMessage) -> None:
    """The first data directory to speak for a voter is the one, until the membership says so.

    Of a learner it is the newest one, and nothing that another one acknowledged counts for it.
    """
    source, leadership = message.source, raft.leadership
    known = raft.instances.get(source)
    is_news = message.instance not in {0, known}
    if not is_news or source not in members.members_of(raft.membership):
        return
    raft.instances[source] = message.instance
    if known is not None and leadership is not None:
        leadership.progress[source] = renewed_progress(raft, leadership.progress[source])


def _enter_term(raft: Raft, message: AnyMessage) -> bool:
    """A message from a later term. False when it is dealt with, or is to be ignored."""
    match message:
        case VoteRequest() if raft.in_lease and not message.forced:
            # We hear a leader: whoever wants another does not, or was removed (Raft 9.6, 4.2.3).
            raft.refused["vote_in_lease"] += 1
            return False
        case VoteRequest(pre=True):
            # Only a question: our term stays.
            return True
        case VoteResponse(pre=True, granted=True):
            # It carries the term that was asked about.
            return True
        case _:
            leader = message.source if isinstance(message, FROM_LEADERS) else NOBODY
            become_follower(raft, message.term, leader)
            return True


def _answer_the_past(raft: Raft, message: AnyMessage) -> None:
    """A message from an earlier term is ignored, but a sender who cannot know is told our term.

    Of a refused vote the commit index is believed all the same: what was committed stays so.
    """
    raft.refused["old_term"] += 1
    if isinstance(message, FROM_LEADERS):
        # With pre-vote nobody else would tell a leader of the past that we can no longer follow it.
        raft.send(AppendResponse(*raft.to(message.source), index=0))
    elif isinstance(message, VoteRequest) and message.pre:
        election.answer_vote(raft, message, granted=False)
    elif isinstance(message, VoteResponse) and message.source in members.voters_of(raft.membership):
        # A refused pre-vote leaves the voter in its term, so no later answer would tell us either.
        election.learn_commit(raft, message.commit, message.commit_term)


def _handle(raft: Raft, message: AnyMessage) -> None:
    """One handler a message type; the frequent ones first."""
    match message:
        case AppendResponse():
            replication.on_append_response(raft, message)
        case AppendRequest():
            following.on_append(raft, message)
        case HeartbeatResponse():
            replication.on_heartbeat_response(raft, message)
        case Heartbeat():
            following.on_heartbeat(raft, message)
        case VoteRequest():
            election.on_vote_request(raft, message)
        case VoteResponse():
            election.on_vote_response(raft, message)
        case TimeoutNow():
            election.on_timeout_now(raft, message)
        case TransferRequest():
            replication.on_transfer_request(raft, message)
        case ReadRequest():
            replication.on_read_request(raft, message)
        case ReadResponse():
            following.on_read_response(raft, message)
        case SnapshotOffer():
            following.on_offer(raft, message)
        case SnapshotPull():
            replication.on_pull(raft, message)
        case SnapshotChunk():
            following.on_chunk(raft, message)
        case _:
            assert_never(message)


# Time.


def tick(raft: Raft, missed: int) -> None:
    """One tick passes. `missed` others did too while the process stood still; they do not count."""
    raft.elapsed += 1
    leadership = raft.leadership
    if leadership is not None:
        is_old = missed >= raft.settings.election_ticks
        if is_old and not replication.decides_alone(raft, leadership):
            # Others may lead by now, and our answers would be as old as the pause.
            become_follower(raft, raft.term, NOBODY)
            return
        replication.tick_leader(raft, leadership)
        return
    following.tick_forwarded(raft)
    following.tick_incoming(raft)
    if raft.elapsed >= raft.timeout:
        # `elapsed` goes on where it may not campaign: nothing renews a lease but its leader.
        election.campaign(raft)


# The disk.


def written(raft: Raft, write: Write, *, intact: bool) -> None:
    """`write`, the oldest under way, is durable."""
    raft.log.write_done(write.token)
    if write.hard_state is not None:
        raft.durable = write.hard_state
        raft.log.change_saved(write.hard_state.commit)
        election.own_vote_durable(raft)
    if write.chunk is not None:
        following.chunk_stored(raft, write.chunk, intact=intact)
    following.end_repair(raft)
    if raft.leadership is not None:
        replication.advance_commit(raft)


# The state machine.


def applied(raft: Raft, index: int) -> None:
    """Everything up to `index` is applied: membership changes among it take effect now."""
    raft.log.applied_to(index)
    while raft.configs and raft.configs[0][0] <= index:
        _, data = raft.configs.popleft()
        _switch(raft, members.applied(raft.membership, data))
    replication.leave_joint_if_due(raft)


def remember_configs(raft: Raft, entries: tuple[Entry, ...]) -> None:
    """Keep the changes among entries that are handed out, until they are applied."""
    raft.configs.extend((entry.index, entry.data) for entry in entries if entry.kind is Kind.CONFIG)


def _switch(raft: Raft, membership: Membership) -> None:
    before, raft.membership = raft.membership, membership
    leadership = raft.leadership
    present = {*members.members_of(membership)}
    promoted = {*members.voters_of(membership)} - {*members.voters_of(before)}
    if leadership is not None:
        # Only the leader knows which directory it promoted.
        promoted -= {one for one, known in leadership.progress.items() if known.is_current}
    for gone in [each for each in raft.instances if each not in present or each in promoted]:
        # Added again, it may come with another data directory.
        del raft.instances[gone]
    if leadership is None:
        # Not campaigning either: an unapplied change forbids that.
        assert raft.role is Role.FOLLOWER, "nobody campaigns past a change"
        return
    sync_progress(raft, newcomers_active=True)
    if raft.id not in members.voters_of(membership):
        leadership.left_at = leadership.pending_change
    if not replication.may_inherit(raft, leadership.heir):
        leadership.heir = NOBODY
    # With fewer voters something may be committed, or a read proven, by what is known already.
    replication.advance_commit(raft)
    replication.count_reads(raft, leadership)
