"""How a leader changes its group to what the cluster map says: one step at a time.

1. Replicas that are missing are added as learners; learners that are not wanted are removed.
2. Once all that are wanted have caught up, they become the voters in one change, which removes the
   others too. So the group is never smaller than before while a replacement is not ready.
3. A leader that is not wanted itself stays a voter until then, and hands over. Its successor
   removes it.
4. The first replica of the place should lead. It gets the leadership when it has been able to lead
   for a while, and not again soon after.

An old map costs changes that are taken back later, and no safety: that is Raft's.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from corvo.raft import Action, Change, Flow, Membership, Node, Step
from corvo.raft.membership import is_joint, members_of

LAG_MAX: Final = 200
"""Entries that a replica may lack and still become a voter, or the leader: a busy leader is always
some ahead."""


class Follower(msgspec.Struct, frozen=True):
    """A replica, as the leader knows it."""

    lag: int  # entries that it lacks
    is_active: bool  # whether it was heard of lately
    follows: bool = True  # whether it is sent entries ahead, and no snapshot

    @property
    def is_ready(self) -> bool:
        """Whether it could vote or lead at once."""
        return self.is_active and self.follows and self.lag <= LAG_MAX


class Group(msgspec.Struct, frozen=True):
    """The group, as its leader knows it."""

    own: int
    membership: Membership
    followers: Mapping[int, Follower]
    may_change: bool  # whether the leader is established, and no change is under way

    def is_ready(self, replica: int) -> bool:
        """Whether a replica could vote or lead at once."""
        follower = self.followers.get(replica)
        return replica == self.own or (follower is not None and follower.is_ready)

    def is_active(self, replica: int) -> bool:
        """Whether a replica was heard of lately."""
        follower = self.followers.get(replica)
        return replica == self.own or (follower is not None and follower.is_active)


class Transfer(msgspec.Struct, frozen=True):
    """The leadership should go to another replica."""

    heir: int
    is_leaving: bool  # whether this leader is not wanted in the group at all


NextStep: TypeAlias = Change | Transfer | None


def next_step(group: Group, place: tuple[int, ...]) -> NextStep:
    """What brings the group nearer to its place; None for nothing, or nothing now."""
    if not group.may_change or is_joint(group.membership) or not place:
        return None
    change = _to_learners(group, place) or _to_voters(group, place)
    if change is not None:
        return change if _is_safe(group, change) else None
    return _to_leader(group, place)


def _to_learners(group: Group, place: tuple[int, ...]) -> Change | None:
    """Add what is missing, and remove learners that are not wanted."""
    missing = sorted({*place} - {*members_of(group.membership)})
    surplus = sorted({*group.membership.learners} - {*place})
    steps = [Step(Action.ADD_LEARNER, replica) for replica in missing]
    steps += [Step(Action.REMOVE, replica) for replica in surplus]
    return Change(tuple(steps)) if steps else None


def _to_voters(group: Group, place: tuple[int, ...]) -> Change | None:
    """Let those vote that should, and nobody else, once all of them are ready."""
    new = sorted({*group.membership.learners} & {*place})
    old = sorted({*group.membership.voters} - {*place, group.own})
    if not all(group.is_ready(replica) for replica in new):
        return None
    steps = [Step(Action.ADD_VOTER, replica) for replica in new]
    steps += [Step(Action.REMOVE, replica) for replica in old]
    return Change(tuple(steps)) if steps else None


def _is_safe(group: Group, change: Change) -> bool:
    """Whether a majority of the voters after a change can be reached."""
    voters = {*group.membership.voters}
    for step in change.steps:
        voters.discard(step.replica)
        if step.action is Action.ADD_VOTER:
            voters.add(step.replica)
    return 2 * sum(group.is_active(voter) for voter in voters) > len(voters)


def _to_leader(group: Group, place: tuple[int, ...]) -> Transfer | None:
    """Let the first of the place lead, or any of it if this leader is not wanted."""
    is_leaving = group.own not in place
    heirs = place if is_leaving else place[:1]
    for heir in heirs:
        if heir != group.own and heir in group.membership.voters and group.is_ready(heir):
            return Transfer(heir, is_leaving)
    return None


def successor(node: Node) -> int | None:
    """The voter to whom a leader that stops should hand over; None for a group of its own.

    It is the one that lacks least of those that were heard of lately.
    """
    group = look(node)
    heirs = [
        (group.followers[voter].lag, voter)
        for voter in group.membership.voters
        if voter != group.own and group.is_active(voter)
    ]
    return min(heirs)[1] if heirs else None


class Steering:
    """The same in time: asked at every tick of a leader."""

    def __init__(self, *, election_ticks: int, settled_ticks: int, again_ticks: int) -> None:
        """A transfer follows when an heir was ready for `settled_ticks`.

        After one, or a try, there is none for `again_ticks`. A leader that is leaving does not
        wait, and tries again after `settled_ticks`.
        """
        self._election_ticks: Final = election_ticks
        self._settled_ticks: Final = settled_ticks
        self._again_ticks: Final = again_ticks
        self._now = 0
        self._term = 0
        self._heir = 0
        self._ready_since = 0
        self._ready_at = 0
        self._tried_at: int | None = None

    def tick(self, node: Node, place: tuple[int, ...]) -> NextStep:
        """A tick has passed: what the leader is to do now."""
        self._now += 1
        if not node.is_leader:
            return None
        if node.term != self._term:
            self._term = node.term
            self._heir = 0
        membership = node.membership
        is_settled = {*membership.voters} == {*place} and not membership.learners
        if is_settled and place[0] == node.leader:
            return None
        step = next_step(look(node), place)
        if isinstance(step, Transfer) and not self._is_time(step):
            return None
        return step

    def _is_time(self, transfer: Transfer) -> bool:
        """Whether an heir has been one for long enough, and none was tried lately."""
        # A leader forgets once in an election timeout whom it has heard of.
        was_ready = self._now - self._ready_at <= self._election_ticks
        if transfer.heir != self._heir or not was_ready:
            self._heir = transfer.heir
            self._ready_since = self._now
        self._ready_at = self._now
        pause = self._settled_ticks if transfer.is_leaving else self._again_ticks
        if self._tried_at is not None and self._now - self._tried_at < pause:
            return False
        if not transfer.is_leaving and self._now - self._ready_since < self._settled_ticks:
            return False
        self._tried_at = self._now
        return True


def look(node: Node) -> Group:
    """The group, as a node that leads it knows it."""
    seen = node.statistics()
    followers = {
        each.replica: Follower(
            lag=seen.last_index - each.match,
            is_active=each.is_active,
            follows=each.flow is Flow.REPLICATE,
        )
        for each in seen.progress
    }
    return Group(seen.replica, seen.membership, followers, node.may_change)
