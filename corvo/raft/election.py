"""Elections: pre-vote, vote, and the voter's side of both (Raft 5.2, 5.4.1, 9.6)."""

from corvo.raft import membership as members
from corvo.raft.messages import NOBODY, TimeoutNow, VoteRequest, VoteResponse
from corvo.raft.quorum import Outcome, joint_outcome
from corvo.raft.roles import become_candidate, become_follower, become_leader, become_pre_candidate
from corvo.raft.state import Raft, Role


def campaign(raft: Raft, *, forced: bool = False) -> None:
    """Try to become leader, if this replica may.

    Not while a committed change is unapplied: it could win with voters that no longer count.
    """
    if raft.role is Role.LEADER or not raft.is_promotable or raft.has_unapplied_change:
        return
    if forced:
        _stand(raft, forced=True)
        return
    become_pre_candidate(raft)
    raft.votes[raft.id] = True
    _ask(raft, term=raft.term + 1, pre=True, forced=False)
    _count(raft)


def _stand(raft: Raft, *, forced: bool) -> None:
    become_candidate(raft)
    # Our own vote counts when it is durable: see `own_vote_durable`.
    _ask(raft, term=raft.term, pre=False, forced=forced)


def _ask(raft: Raft, *, term: int, pre: bool, forced: bool) -> None:
    commit, commit_term = raft.commit_info()
    for voter in members.voters_of(raft.membership):
        if voter != raft.id:
            raft.send(
                VoteRequest(
                    raft.id,
                    voter,
                    term,
                    raft.settings.instance,
                    last_index=raft.log.last_index,
                    last_term=raft.log.last_term,
                    pre=pre,
                    forced=forced,
                    commit=commit,
                    commit_term=commit_term,
                )
            )


def own_vote_durable(raft: Raft) -> None:
    """The hard state is on disk: a candidate's vote for itself counts from now on."""
    if raft.role is Role.CANDIDATE and raft.is_vote_saved:
        raft.votes[raft.id] = True
        _count(raft)


def _count(raft: Raft) -> None:
    match joint_outcome(raft.membership.voters, raft.membership.outgoing, raft.votes):
        case Outcome.WON if raft.role is Role.PRE_CANDIDATE:
            _stand(raft, forced=False)
        case Outcome.WON if raft.is_vote_saved:
            become_leader(raft)
        case Outcome.LOST:
            become_follower(raft, raft.term, NOBODY)
        case _:
            pass


def on_timeout_now(raft: Raft, message: TimeoutNow) -> None:
    """The leader hands over to us: campaign without asking first."""
    if raft.role is Role.FOLLOWER and raft.leader in (NOBODY, message.source):
        campaign(raft, forced=True)


def on_vote_request(raft: Raft, message: VoteRequest) -> None:
    """Grant a vote once a term, to a log with everything ours has.

    Whether we think ourselves a voter does not matter: the candidate may know a newer membership.
    It may know an older one, too: then a blank replica has forgotten what it promised there.
    """
    learn_commit(raft, message.commit, message.commit_term)
    free = raft.vote == message.source or (raft.vote == NOBODY and raft.leader == NOBODY)
    # A pre-vote is for a later term, in which we have not voted.
    may = (message.pre and message.term > raft.term) or free
    granted = (
        may
        and raft.repair is None
        and not (raft.has_returned and raft.is_blank)
        and raft.log.is_up_to_date(last_index=message.last_index, last_term=message.last_term)
    )
    if granted and not message.pre and raft.vote == NOBODY:
        # A vote asked for again is not given again: that would renew the lease of a leader unheard.
        raft.elapsed = 0
        raft.vote = message.source
    answer_vote(raft, message, granted=granted)


def answer_vote(raft: Raft, message: VoteRequest, *, granted: bool) -> None:
    """Send the answer; a granted pre-vote is about the term asked for, any other about ours."""
    commit, commit_term = (0, 0) if granted else raft.commit_info()
    raft.send(
        VoteResponse(
            raft.id,
            message.source,
            message.term if granted else raft.term,
            raft.settings.instance,
            pre=message.pre,
            granted=granted,
            commit=commit,
            commit_term=commit_term,
        )
    )


def on_vote_response(raft: Raft, message: VoteResponse) -> None:
    """Count an answer to what we are asking now."""
    asking = Role.PRE_CANDIDATE if message.pre else Role.CANDIDATE
    if raft.role is not asking or message.source not in members.voters_of(raft.membership):
        return
    if message.pre and message.granted and message.term != raft.term + 1:
        # It answers the question of an earlier term.
        return
    learn_commit(raft, message.commit, message.commit_term)
    # Learning of a committed change may have ended the campaign.
    if raft.role is asking:
        raft.votes[message.source] = message.granted
        _count(raft)


def learn_commit(raft: Raft, commit: int, term: int) -> None:
    """Take over a commit index seen in vote traffic, if our log has that entry.

    A voter of a joint group that missed the commit of leaving it could otherwise wait for ever for
    voters that are gone. A candidate that learns of a change gives up: apply first.
    """
    if raft.role is Role.LEADER or raft.repair is not None or not commit:
        return
    before = raft.log.commit
    if commit <= before or not raft.log.matches(commit, term):
        return
    raft.log.commit_to(commit)
    campaigning = raft.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
    if campaigning and raft.log.has_config(before + 1, commit):
        become_follower(raft, raft.term, NOBODY)
