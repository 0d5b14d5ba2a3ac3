"""One node whose peers are played by the test: for rules about a single replica.

The node is replica 1 and has a disk that is instant, as long as `work` does its duty. The functions
below make the messages of its peers.
"""

from random import Random

import msgspec

from corvo.raft import (
    NOBODY,
    AnyMessage,
    Entry,
    HardState,
    Kind,
    Membership,
    Node,
    Read,
    Role,
    Settings,
    Statistics,
    Write,
)
from corvo.raft.membership import voters_of
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    VoteRequest,
    VoteResponse,
)
from corvo.raft.state import Raft
from tests.raft.group import members, raft_of, with_log


class Lone:
    """A node, its disk, and what has come out of it."""

    def __init__(
        self,
        membership: Membership | int = 3,
        *,
        terms: tuple[int, ...] = (),
        term: int | None = None,
        vote: int = NOBODY,
        commit: int = 0,
        seed: int = 1,
        settings: dict[str, int] | None = None,
    ) -> None:
        if isinstance(membership, int):
            membership = members(*range(1, membership + 1))
        self.membership = membership
        self.storage = with_log(membership, terms, term=term, commit=commit)
        if vote != NOBODY:
            self.storage.put(Write(token=1, hard_state=HardState(term or 0, vote, commit)))
        self.node = Node(Settings(**{"replica": 1, **(settings or {})}), self.storage, Random(seed))
        self.applied: list[Entry] = []
        self.reads: list[Read] = []

    @property
    def raft(self) -> Raft:
        """The state inside."""
        return raft_of(self.node)

    @property
    def role(self) -> Role:
        """What it is now."""
        return self.raft.role

    @property
    def log(self) -> list[tuple[int, int]]:
        """(index, term) of each entry it has."""
        log = self.raft.log
        return [(index, log.term(index)) for index in range(log.first_index, log.last_index + 1)]

    @property
    def picture(self) -> tuple[Statistics, int]:
        """Everything about it but the messages that it refused."""
        return msgspec.structs.replace(self.node.statistics(), refused={}), self.raft.elapsed

    def work(self) -> list[AnyMessage]:
        """Do everything it wants done; returns what it sends."""
        sent: list[AnyMessage] = []
        while ready := self.node.ready():
            sent += ready.messages
            if ready.write is not None:
                self.storage.put(ready.write)
                sent += ready.write.messages
                self.node.stored(ready.write.token)
            self.applied += ready.committed
            self.reads += ready.reads
            if ready.committed:
                self.node.advance(ready.committed[-1].index)
        return sent

    def hear(self, *messages: AnyMessage) -> list[AnyMessage]:
        """Take in messages, and work; returns what it sends."""
        for message in messages:
            self.node.step(message)
        return self.work()

    def tick(self, times: int = 1) -> list[AnyMessage]:
        """Ticks, with work after each; returns what it sends."""
        sent: list[AnyMessage] = []
        for _ in range(times):
            self.node.tick()
            sent += self.work()
        return sent

    def tick_until_it_asks(self) -> int:
        """Tick until it asks for pre-votes; returns how many ticks that took."""
        for ticks in range(1, 10_000):
            if any(isinstance(message, VoteRequest) for message in self.tick()):
                return ticks
        raise AssertionError("it never stands for election")

    def win_pre_vote(self) -> None:
        """Campaign, with everybody in favour: it stands for election in the next term."""
        self.node.campaign()
        term = self.raft.term + (self.role is Role.PRE_CANDIDATE)
        for voter in self._others:
            self.node.step(vote(voter, term, pre=True))
        assert self.role is Role.CANDIDATE, "the pre-vote was not won"

    def stand(self) -> list[AnyMessage]:
        """Become a candidate; returns what it sends."""
        self.win_pre_vote()
        return self.work()

    def lead(self) -> list[AnyMessage]:
        """Be elected; returns what it sends as a leader, with its own writes done."""
        self.win_pre_vote()
        self.work()
        return self.hear(*(vote(voter, self.node.term) for voter in self._others))

    @property
    def _others(self) -> list[int]:
        return [voter for voter in voters_of(self.membership) if voter != 1]


def in_role(role: Role, *, term: int, terms: tuple[int, ...] = ()) -> Lone:
    """One of three, in this role and term; a follower or pre-candidate knows no leader."""
    elected = role in (Role.CANDIDATE, Role.LEADER)
    lone = Lone(terms=terms, term=term - 1 if elected else term)
    match role:
        case Role.PRE_CANDIDATE:
            lone.node.campaign()
            lone.work()
        case Role.CANDIDATE:
            lone.stand()
        case Role.LEADER:
            lone.lead()
        case Role.FOLLOWER:
            pass
    assert (lone.role, lone.node.term) == (role, term), "the role was not reached"
    return lone


# ---- What its peers say.


def entries(first: int, *terms: int) -> tuple[Entry, ...]:
    """Entries from index `first`, of these terms."""
    return tuple(
        Entry(index, term, Kind.NORMAL, b"%d" % index) for index, term in enumerate(terms, first)
    )


def vote_request(
    source: int,
    term: int,
    *,
    last: tuple[int, int] = (0, 0),
    pre: bool = False,
    forced: bool = False,
) -> VoteRequest:
    """A request for a vote by a candidate whose log ends at `last` (index, term)."""
    return VoteRequest(
        source, 1, term, 0, last_index=last[0], last_term=last[1], pre=pre, forced=forced
    )


def vote(source: int, term: int, *, granted: bool = True, pre: bool = False) -> VoteResponse:
    """An answer to our own request."""
    return VoteResponse(source, 1, term, 0, pre=pre, granted=granted)


def append(
    source: int,
    term: int,
    *,
    after: tuple[int, int] = (0, 0),
    new: tuple[Entry, ...] = (),
    commit: int = 0,
) -> AppendRequest:
    """A leader's append of `new` entries behind `after` (index, term)."""
    return AppendRequest(
        source, 1, term, 0, previous_index=after[0], previous_term=after[1], entries=new,
        commit=commit,
    )  # fmt: skip


def accept(source: int, term: int, index: int, *, commit: int = 0) -> AppendResponse:
    """A follower holds everything up to `index`."""
    return AppendResponse(source, 1, term, 0, index=index, commit=commit)


def reject(source: int, term: int, index: int, *, hint: tuple[int, int]) -> AppendResponse:
    """A follower has not what we said is at `index`; `hint` is (index, term)."""
    return AppendResponse(
        source, 1, term, 0, index=index, rejected=True, hint_index=hint[0], hint_term=hint[1]
    )


def heartbeat(source: int, term: int, *, commit: int = 0, round_: int = 0) -> Heartbeat:
    """A leader's heartbeat."""
    return Heartbeat(source, 1, term, 0, commit=commit, round=round_)


def pulse(source: int, term: int, *, round_: int = 0) -> HeartbeatResponse:
    """A follower's answer to a heartbeat."""
    return HeartbeatResponse(source, 1, term, 0, round=round_)
