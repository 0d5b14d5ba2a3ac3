"""Whom a host has heard, counted from outside: the rules of leases and of CheckQuorum.

A replica that hears its leader leaves term and vote alone when another asks for an election
(Raft 4.2.3, 6). A leader that hears no majority stops leading.
"""

from typing import TYPE_CHECKING

import msgspec

from corvo.raft import NOBODY, AnyMessage, Membership, Role
from corvo.raft.messages import TransferRequest, VoteRequest, VoteResponse
from tests.sim.failures import Violation
from tests.sim.groups import is_quorum
from tests.sim.oracles import FROM_LEADERS

if TYPE_CHECKING:
    from tests.sim.host import Host

_LONG_AGO = 1 << 30


class Before(msgspec.Struct, frozen=True):
    """What a replica was before a message."""

    term: int
    vote: int
    leader: int
    in_contact: bool
    refusals: int
    """Because of the lease."""


class Contact:
    """What one process has heard."""

    def __init__(self) -> None:
        self._ticks = 0
        self._leader_heard = -_LONG_AGO
        self._heard: dict[int, int] = {}
        self._leading_since = (0, 0)
        self._grace = 0  # the last tick at which there was a reason to wait
        self._group = Membership()
        self._transfer_asked = 0
        self._known_since: int | None = None  # that this leader was removed

    def tick(self, host: "Host") -> None:
        """A tick passes."""
        self._ticks += 1
        if host.raft.role is Role.LEADER:
            self._check_quorum(host)

    def transfer_asked(self) -> None:
        """Somebody asks for a transfer, again or to somebody else: it begins anew."""
        self._transfer_asked = self._ticks

    def before(self, host: "Host", message: AnyMessage) -> Before:
        """A message is about to be taken in."""
        raft, ticks = host.raft, host.raft.settings.election_ticks
        in_contact = self._ticks - self._leader_heard < ticks and raft.leader != NOBODY
        if raft.role is Role.LEADER:
            in_contact = True
        if isinstance(message, TransferRequest):
            self.transfer_asked()
        if message.term >= raft.term:
            self._heard[message.source] = self._ticks
        refusals = raft.refused["vote_in_lease"]
        return Before(raft.term, raft.vote, raft.leader, in_contact, refusals)

    def after(self, host: "Host", message: AnyMessage, before: Before) -> None:
        """It was taken in."""
        raft = host.raft
        if raft.leader != before.leader or raft.term != before.term:
            self._leader_heard = -_LONG_AGO
        from_leader = isinstance(message, FROM_LEADERS) and raft.leader == message.source
        if from_leader and message.term == raft.term:
            self._leader_heard = self._ticks
        if not isinstance(message, VoteRequest) or message.forced or message.term <= before.term:
            return
        if raft.refused["vote_in_lease"] > before.refusals and not before.in_contact:
            raise Violation("lease-of-nobody", f"replica {host.replica} refuses {message}")
        if before.in_contact:
            waiting = (*raft.messages[-1:], *raft.messages_after_write[-1:])
            granted = any(
                isinstance(answer, VoteResponse)
                and answer.granted
                and answer.target == message.source
                and answer.term == message.term
                for answer in waiting
            )
            if granted or (raft.term, raft.vote) != (before.term, before.vote):
                raise Violation(
                    "lease", f"replica {host.replica} hears {before.leader} and takes {message}"
                )

    def _check_quorum(self, host: "Host") -> None:
        raft = host.raft
        group = raft.membership
        if self._leading_since[0] != raft.term:
            self._leading_since = (raft.term, self._ticks)
            self._grace = self._ticks
        if group is not self._group:
            self._group = group
            self._grace = self._ticks
        self._check_transfer(host)
        self._check_removed(host)
        since = self._ticks - 2 * raft.settings.election_ticks - 1
        if self._grace >= since:
            return
        if not is_quorum(
            group, lambda voter: voter == host.replica or self._heard.get(voter, -1) >= since
        ):
            raise Violation("leads-alone", f"leader {host.replica} of {raft.term} hears too few")

    def _check_removed(self, host: "Host") -> None:
        """A leader that is no voter any more goes soon after the others know of it."""
        # While links are cut it may hear enough to lead, and not from those who know.
        if host.world.is_chaos or not self._is_removed(host) or not self._is_known(host):
            self._known_since = None
            return
        if self._known_since is None:
            self._known_since = self._ticks
        if self._ticks - self._known_since > 2 * host.raft.settings.election_ticks + 2:
            raise Violation("removed-leader-stays", f"{host.replica} of {host.raft.membership}")

    def check_left(self, host: "Host") -> None:
        """It does not go before.

        The others may be in a joint state still, and need who is gone (Raft 4.3).
        """
        if self._is_removed(host) and not self._is_known(host):
            raise Violation("removed-leader-leaves", f"{host.replica} of {host.raft.membership}")

    def _is_removed(self, host: "Host") -> bool:
        group = host.raft.membership
        return bool(group.voters) and host.replica not in (*group.voters, *group.outgoing)

    def _is_known(self, host: "Host") -> bool:
        """Whether a majority knows, or knew when it was last up, that the removal is committed."""
        removed = host.world.oracles.groups.since(host.raft.log.applied)
        known = [
            other.replica for other in host.world.hosts.values() if other.raft.log.commit >= removed
        ]
        return is_quorum(host.raft.membership, lambda voter: voter in known)

    def _check_transfer(self, host: "Host") -> None:
        """A leader that hands over takes no writes, so that has to end (Raft 3.10)."""
        raft = host.raft
        heir = raft.leadership.heir if raft.leadership is not None else NOBODY
        if not heir:
            return
        if self._ticks - self._transfer_asked > raft.settings.election_ticks + 1:
            raise Violation("transfer-without-end", f"leader {host.replica} to {heir}")
