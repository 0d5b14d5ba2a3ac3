"""The rule of linearizable reads: proof, fresher than the question, that the leader leads.

A leader may answer a read only when a majority has answered a heartbeat that it sent *after* it was
asked (Raft 6.4). Heartbeats and their answers are followed here by their round, as they travel.
"""

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from corvo.raft import AnyMessage
from corvo.raft.messages import Heartbeat, HeartbeatResponse, ReadRequest, ReadResponse
from tests.sim.failures import Violation
from tests.sim.groups import is_quorum

if TYPE_CHECKING:
    from tests.sim.host import Host


class Asked(msgspec.Struct, frozen=True):
    """A leader was asked to read."""

    moment: int
    applied: int
    """What the leader had applied then."""


class ReadRule:
    """One for a whole run. Moments are counted: each message sent and each question is one."""

    def __init__(self) -> None:
        self._moment = 0
        self._sent: dict[tuple[int, int], int] = {}  # (term, round) -> when it was first sent
        self._answered: dict[tuple[int, int], int] = {}  # (term, follower) -> newest round
        self._asked: dict[tuple[int, int, int], deque[Asked]] = {}  # (leader, asker, context)

    def sent(self, message: AnyMessage) -> None:
        """A message leaves a host."""
        if isinstance(message, Heartbeat):
            self._moment += 1
            self._sent.setdefault((message.term, message.round), self._moment)

    def arrives(self, host: "Host", message: AnyMessage) -> None:
        """A message is about to be taken in."""
        if isinstance(message, HeartbeatResponse):
            key = message.term, message.source
            self._answered[key] = max(self._answered.get(key, 0), message.round)
        elif isinstance(message, ReadRequest):
            self.asked(host, message.source, message.context)

    def asked(self, host: "Host", asker: int, context: int) -> None:
        """A leader takes a question, of its own driver or of another replica's."""
        if host.raft.leadership is not None:
            self._moment += 1
            question = Asked(self._moment, host.raft.log.applied)
            # The network may double a question. Each copy is answered, in their order.
            self._asked.setdefault((host.replica, asker, context), deque()).append(question)

    def answers(self, host: "Host", message: ReadResponse) -> None:
        """A leader answers another replica."""
        # It may have waited for the disk, and the host for another term.
        self.check(host, message.target, message.context, term=message.term)

    def check(self, host: "Host", asker: int, context: int, *, term: int) -> None:
        """Whether an answer is due. A follower only hands on what its leader answered."""
        copies = self._asked.get((host.replica, asker, context))
        if not copies:
            return
        asked = copies.popleft()
        leader = host.replica

        def confirms(voter: int) -> bool:
            if voter == leader:
                return True
            round_ = self._answered.get((term, voter), 0)
            return self._sent.get((term, round_), 0) > asked.moment

        groups = host.world.oracles.groups.between(asked.applied, host.raft.log.applied)
        if not any(is_quorum(group, confirms) for group in groups):
            raise Violation("read-unproven", f"leader {leader} of {term} answers {asker}: {asked}")
