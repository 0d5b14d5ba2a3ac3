"""How a replica changes role. Each function leaves a state in which every other is right."""

from corvo.raft import membership as members
from corvo.raft.messages import NOBODY, Entry, Kind
from corvo.raft.progress import Progress
from corvo.raft.state import Leadership, Raft, Role


def become_follower(raft: Raft, term: int, leader: int) -> None:
    """Follow `leader`, or nobody yet, in `term`."""
    assert term >= raft.term, "terms only rise"
    _reset(raft, term)
    raft.role = Role.FOLLOWER
    raft.leader = leader


def become_pre_candidate(raft: Raft) -> None:
    """Ask whether an election would be won. Term and vote stay: nothing has happened yet."""
    assert raft.role is not Role.LEADER, "a leader does not campaign"
    raft.role = Role.PRE_CANDIDATE
    raft.leader = NOBODY
    raft.votes = {}
    raft.elapsed = 0
    raft.new_timeout()


def become_candidate(raft: Raft) -> None:
    """Stand for election in the next term."""
    assert raft.role is not Role.LEADER, "a leader does not campaign"
    _reset(raft, raft.term + 1)
    raft.role = Role.CANDIDATE
    raft.vote = raft.id


def become_leader(raft: Raft) -> None:
    """Lead the term, and append the entry that will commit everything before it."""
    assert raft.role is Role.CANDIDATE, "only a candidate is elected"
    assert raft.is_vote_saved, "a leader's vote for itself is durable"
    _reset(raft, raft.term)
    raft.role = Role.LEADER
    raft.leader = raft.id
    last_index = raft.log.last_index
    # Any entry of the uncommitted tail may be a change: take all of it for one.
    raft.leadership = Leadership(noop_index=last_index + 1, pending_change=last_index)
    sync_progress(raft, newcomers_active=False)
    raft.log.append((Entry(last_index + 1, raft.term, Kind.NOOP, b""),))


def sync_progress(raft: Raft, *, newcomers_active: bool) -> None:
    """Make the leader track exactly the members, in the order of their ids.

    A replica just added gets one election timeout to be heard before CheckQuorum counts on it.
    """
    leadership = raft.leadership
    assert leadership is not None, "only a leader tracks others"
    known = leadership.progress
    leadership.progress = {
        replica: known.get(replica) or _new_progress(raft, is_active=newcomers_active)
        for replica in members.members_of(raft.membership)
        if replica != raft.id
    }


def _new_progress(raft: Raft, *, is_active: bool) -> Progress:
    progress = Progress(
        next_index=raft.log.last_index + 1,
        messages_max=raft.settings.window_messages_max,
        bytes_max=raft.settings.window_bytes_max,
    )
    progress.is_active = is_active
    progress.added_at = raft.log.last_index
    return progress


def renewed_progress(raft: Raft, before: Progress) -> Progress:
    """The record of another data directory under the number of a replica that was tracked."""
    progress = _new_progress(raft, is_active=before.is_active)
    progress.added_at = before.added_at
    return progress


def _reset(raft: Raft, term: int) -> None:
    if term != raft.term:
        raft.term = term
        raft.vote = NOBODY
    raft.leader = NOBODY
    raft.votes = {}
    raft.elapsed = 0
    raft.new_timeout()
    if raft.leadership is not None:
        raft.reads_lost.extend(raft.leadership.reads.own())
        raft.leadership = None
    raft.reads_lost.extend(read.context for read in raft.forwarded)
    raft.forwarded = []
