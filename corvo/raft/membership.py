"""Changing who belongs to the group, always by way of the joint state.

A `Change` lists what to do. Applying it *enters* the joint state: the new voters beside the old
ones (`outgoing`), and a majority of both is needed for everything. Applying a change with nothing
in it *leaves*. With `auto` the leader proposes leaving by itself once entering is applied. There is
no one-step path: changes by leaders of different terms could then reach disjoint majorities
(Ongaro, raft-dev 2015), and one road is easier to prove than two.

Zero is no replica; a step that names it does nothing, so that a change can be blanked out.
"""

import enum

import msgspec

from corvo.raft.errors import ChangeRefused
from corvo.raft.messages import NOBODY, Membership


class Action(enum.IntEnum):
    """What one step does."""

    ADD_VOTER = 1
    ADD_LEARNER = 2
    REMOVE = 3


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One replica's part in a change."""

    action: Action
    replica: int
    instance: int = 0  # where not 0: only this data directory may speak for the replica from now on


class Change(msgspec.Struct, frozen=True, array_like=True):
    """What a CONFIG entry carries. No steps: leave the joint state."""

    steps: tuple[Step, ...] = ()
    auto: bool = True  # leave the joint state without being asked

    @property
    def leaves(self) -> bool:
        """Whether this ends the joint state."""
        return not self.steps


LEAVE = Change()


def encode(change: Change) -> bytes:
    """The bytes of a CONFIG entry."""
    return msgspec.msgpack.encode(change)


def decode(data: bytes) -> Change:
    """What `encode` made. Raises `msgspec.ValidationError` on anything else."""
    return msgspec.msgpack.decode(data, type=Change)


def is_joint(membership: Membership) -> bool:
    """Whether two majorities are needed."""
    return bool(membership.outgoing)


def voters_of(membership: Membership) -> tuple[int, ...]:
    """Everybody with a vote in either half, sorted."""
    return tuple(sorted({*membership.voters, *membership.outgoing}))


def members_of(membership: Membership) -> tuple[int, ...]:
    """Everybody who is sent the log, sorted."""
    return tuple(
        sorted(
            {
                *membership.voters,
                *membership.outgoing,
                *membership.learners,
                *membership.learners_next,
            }
        )
    )


def changed(membership: Membership, change: Change) -> Membership:
    """The membership after `change`. Raises `ChangeRefused` where that cannot be."""
    return _left(membership) if change.leaves else _entered(membership, change)


def applied(membership: Membership, data: bytes) -> Membership:
    """The membership after a committed CONFIG entry, which was checked before it was proposed."""
    try:
        return changed(membership, decode(data))
    except (ChangeRefused, msgspec.DecodeError) as error:
        raise AssertionError(f"a committed change does not fit {membership}: {error}") from error


def _entered(membership: Membership, change: Change) -> Membership:
    if is_joint(membership):
        raise ChangeRefused("the group is joint: the change before this one has not ended")
    if not membership.voters:
        raise ChangeRefused("a group without voters cannot be changed")
    voters, learners = set(membership.voters), set(membership.learners)
    learners_next: set[int] = set()
    pins = dict(membership.pins)
    for step in change.steps:
        if step.replica == NOBODY:
            continue
        for role in (voters, learners, learners_next):
            role.discard(step.replica)
        match step.action:
            case Action.ADD_VOTER:
                voters.add(step.replica)
            case Action.ADD_LEARNER if step.replica in membership.voters:
                # It still votes in the outgoing half; both at once would be two roles.
                learners_next.add(step.replica)
            case Action.ADD_LEARNER:
                learners.add(step.replica)
            case _:
                assert step.action is Action.REMOVE, "there is no other action"
        if step.instance and step.action is not Action.REMOVE:
            pins[step.replica] = step.instance
    if not voters:
        raise ChangeRefused("the change would leave no voter")
    return Membership(
        voters=tuple(sorted(voters)),
        outgoing=membership.voters,
        learners=tuple(sorted(learners)),
        learners_next=tuple(sorted(learners_next)),
        auto_leave=change.auto,
        pins=tuple(sorted(pins.items())),
    )


def _left(membership: Membership) -> Membership:
    if not is_joint(membership):
        raise ChangeRefused("the group is not joint: there is nothing to leave")
    learners = tuple(sorted({*membership.learners, *membership.learners_next}))
    staying = {*membership.voters, *learners}
    return Membership(
        voters=membership.voters,
        learners=learners,
        # Until now who was removed still voted in the outgoing half, and was held to its pin.
        pins=tuple(pin for pin in membership.pins if pin[0] in staying),
    )
