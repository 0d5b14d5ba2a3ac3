"""Memberships as the oracles see them: derived from committed entries alone.

Written a second time on purpose, in other words than `corvo.raft.membership`.
"""

from bisect import bisect_right
from collections.abc import Callable

import msgspec

from corvo.raft import Entry, Kind, Membership

_CHANGE = msgspec.msgpack.Decoder(tuple[tuple[tuple[int, int, int], ...], bool])
_ADD_VOTER, _ADD_LEARNER, _REMOVE = 1, 2, 3


class Groups:
    """Which membership was in force from which index on."""

    def __init__(self, first: Membership) -> None:
        self._indexes = [0]
        self._memberships = [first]

    @property
    def newest(self) -> Membership:
        """The one of the last committed change."""
        return self._memberships[-1]

    def at(self, index: int) -> Membership:
        """The one in force when everything up to `index` is applied."""
        return self._memberships[bisect_right(self._indexes, index) - 1]

    def since(self, index: int) -> int:
        """From which index on the one in force at `index` was."""
        return self._indexes[bisect_right(self._indexes, index) - 1]

    def between(self, first: int, last: int) -> list[Membership]:
        """Every one that was in force at some moment from `first` to `last`."""
        start = bisect_right(self._indexes, first) - 1
        return self._memberships[start : bisect_right(self._indexes, last)]

    def take(self, entry: Entry) -> None:
        """The next committed entry."""
        if entry.kind is Kind.CONFIG:
            self._indexes.append(entry.index)
            self._memberships.append(following(self.newest, entry.data))


def following(before: Membership, data: bytes) -> Membership:
    """The membership behind a change."""
    steps, auto = _CHANGE.decode(data)
    pins = dict(before.pins)
    if not steps:
        learners = sorted([*before.learners, *before.learners_next])
        stay = [*before.voters, *learners]
        return Membership(
            voters=before.voters,
            learners=tuple(learners),
            pins=tuple((replica, pin) for replica, pin in before.pins if replica in stay),
        )
    roles = dict.fromkeys(before.learners, "learner") | dict.fromkeys(before.voters, "voter")
    for action, replica, instance in steps:
        if not replica:
            continue
        if action == _REMOVE:
            roles.pop(replica, None)
        else:
            roles[replica] = "voter" if action == _ADD_VOTER else "learner"
            if instance:
                pins[replica] = instance
    learners = sorted(replica for replica, role in roles.items() if role == "learner")
    return Membership(
        voters=tuple(sorted(replica for replica, role in roles.items() if role == "voter")),
        outgoing=before.voters,
        learners=tuple(replica for replica in learners if replica not in before.voters),
        learners_next=tuple(replica for replica in learners if replica in before.voters),
        auto_leave=auto,
        pins=tuple(sorted(pins.items())),
    )


def is_quorum(membership: Membership, agrees: Callable[[int], bool]) -> bool:
    """Whether a majority agrees, of each half in a joint group."""
    for half in (membership.voters, membership.outgoing):
        if half and 2 * sum(1 for voter in half if agrees(voter)) <= len(half):
            return False
    return True


def everybody(membership: Membership) -> list[int]:
    """All members, whatever their role, sorted."""
    roles = (
        membership.voters,
        membership.outgoing,
        membership.learners,
        membership.learners_next,
    )
    return sorted({replica for role in roles for replica in role})
