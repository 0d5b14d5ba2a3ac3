"""What must never happen, judged from messages, disks and applied entries.

Nothing here asks the code under test whether it is right. What a node believes (that it leads, that
an index is committed) is looked at only to learn *when* to judge; *whether* it may is decided from
what left other nodes and from what is durable on their disks (`shadow`).
"""

from typing import TYPE_CHECKING, Final

from corvo.raft import Entry, HardState, Kind, Membership, Node, Snapshot, Storage, Write
from corvo.raft.messages import (
    AnyMessage,
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    ReadResponse,
    SnapshotChunk,
    SnapshotOffer,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from corvo.raft.state import Raft
from tests.sim.failures import Violation
from tests.sim.groups import Groups, everybody, is_quorum
from tests.sim.reads import ReadRule
from tests.sim.shadow import Rebase, Shadow

if TYPE_CHECKING:
    from tests.sim.host import Host

FROM_LEADERS: Final = (AppendRequest, Heartbeat, SnapshotOffer, SnapshotChunk)

IMPOSSIBLE: Final = (
    "second_leader",
    "beyond_the_log",
    "unknown_round",
    "negative",
    "terms",
    "gap",
    "source",
    "not_for_us",
    "snapshot_damaged",
    "instance",
    "forgotten",
)
"""Reasons for a refusal that no correct group ever gives cause for."""

_LATELY: Final = 20  # entries


def inside(node: Node) -> Raft:
    """What a node believes."""
    return node._raft


class Oracles:
    """One for a whole run; every host reports to it."""

    def __init__(self, first: Membership) -> None:
        self.groups = Groups(first)
        self.shadows: dict[int, Shadow] = {}
        self.leaders: dict[int, int] = {}  # by term
        self.votes: dict[tuple[int, int], int] = {}  # (replica, term) -> candidate
        self.acked: dict[int, int] = {}  # the last term in which a replica acknowledged anything
        self.barred: dict[int, int] = {}  # the last term of a replica that was damaged since
        self.granted: dict[tuple[int, int], list[int]] = {}  # (term, candidate) -> voters
        self.would_grant: dict[tuple[int, int], list[int]] = {}  # the same of pre-votes
        self.sent_entries: dict[tuple[int, int], int] = {}  # (leader's term, index) -> its term
        self.entries: dict[tuple[int, int], tuple[Entry, int]] = {}  # (index, term)
        self.committed = 0
        self.terms: list[int] = [0]  # of committed entries, by index
        self.commits: list[tuple[int, int]] = [(0, 0)]  # (index, the term of who committed it)
        self.established: set[int] = set()  # terms whose leader has committed; asked, never walked
        self.log: list[Entry] = []  # committed entries as they were handed out
        self.digests: dict[int, int] = {0: 0}
        self.floor = 0  # acknowledged to a client
        self.reads = ReadRule()
        self.elections = 0
        self.has_impostor = False
        self.has_older = False
        self.proposals: dict[bytes, int] = {}  # where each is in the log

    def shadow(self, replica: int) -> Shadow:
        """The disk of a replica."""
        return self.shadows.setdefault(replica, Shadow(replica))

    # Disks.

    def put(self, replica: int, write: Write) -> None:
        """A write was handed to a disk."""
        self.shadow(replica).pending.append(write)
        if write.install is not None:
            self._check_snapshot(replica, write.install)

    def synced(self, replica: int) -> None:
        """Everything put is durable."""
        shadow = self.shadow(replica)
        for entry in shadow.sync():
            before = entry.index - 1
            known = shadow.entry(before)
            previous = known.term if known is not None else shadow.base_term
            if shadow.entry(entry.index) is entry:
                self._check_matching(replica, entry, previous)
                if entry.kind is Kind.CONFIG:
                    self._check_change(replica, entry, shadow)

    def _check_matching(self, replica: int, entry: Entry, previous: int) -> None:
        """Equal index and term: equal data, and the same before it (Raft 5.3)."""
        name = (entry.index, entry.term)
        known = self.entries.setdefault(name, (entry, previous))
        if known != (entry, previous):
            raise Violation(
                "log-matching", f"replica {replica} has {entry} behind {previous}, not {known}"
            )

    def _check_change(self, replica: int, entry: Entry, shadow: Shadow) -> None:
        """One change at a time, and none before a leader has committed anything (Ongaro 2015)."""
        open_changes = [
            other.index
            for other in shadow.entries
            if other.kind is Kind.CONFIG and self.committed < other.index < entry.index
        ]
        if open_changes:
            raise Violation("two-changes", f"replica {replica}: {entry} behind {open_changes}")
        if entry.term not in self.established:
            raise Violation("change-too-early", f"replica {replica}: {entry}")

    def will_rebase(self, replica: int, index: int, term: int) -> None:
        """A log is about to be cut; the process may die half way."""
        self.shadow(replica).pending.append(Rebase(index, term))

    def not_done(self, replica: int) -> None:
        """The disk was full: the last thing asked of it was not done."""
        self.shadow(replica).pending.pop()

    def damaged(self, replica: int) -> None:
        """A disk lost what it had acknowledged; the log was set aside."""
        self.shadow(replica).damaged()
        # Whoever led then may still count what it acknowledged.
        self.barred[replica] = self.acked.get(replica, 0)

    def wiped(self, replica: int) -> None:
        """A replica lost everything, and comes back under its name with another directory."""
        self.shadow(replica).damaged()
        self.shadow(replica).hard_state = HardState()
        self.has_impostor = True

    def may_forget(self, replica: int, known: int) -> bool:
        """Whether a replica may lose what it did after a copy that knows of commits up to `known`.

        Such a replica is not told before it hears a leader, so it has a vote for a while. All
        others have what it ever confirmed, and an entry of its term: so that is of no consequence.
        Nor have the members changed since, for it may be elected by the group that it knows.
        """
        group = self.groups.newest
        shadow, others = self.shadow(replica), [*everybody(group)]
        if replica not in others or known < self.groups.since(self.committed):
            return False
        others.remove(replica)
        return bool(others) and all(
            self.shadow(other).last_term >= shadow.hard_state.term
            and self.shadow(other).holds(shadow.last_index, shadow.last_term)
            for other in others
        )

    def rolled_back(self, replica: int) -> None:
        """A replica comes back with an older copy of its disk."""
        self.shadow(replica).rolled_back()
        self.has_older = True

    def repaired(self, replica: int) -> None:
        """A replica takes itself for mended."""
        self._check_owed(replica, "calls itself mended")

    def opened(self, replica: int, storage: Storage) -> None:
        """A log was opened after a crash, or after it was set aside as damaged."""
        shadow = self.shadow(replica)
        if not shadow.is_set_aside:
            shadow.compare(storage)
        if storage.hard_state.term < shadow.hard_state.term:
            raise Violation("term-lost", f"replica {replica} comes back in an earlier term")
        shadow.adopt(storage)

    def refused(self, replica: int, counts: dict[str, int]) -> None:
        """What a node refused in its life."""
        for reason in IMPOSSIBLE:
            is_caused = (reason == "instance" and self.has_impostor) or (
                reason == "forgotten" and self.has_older
            )
            if counts.get(reason) and not is_caused:
                raise Violation(f"refused-{reason}", f"replica {replica}: {counts}")

    # Messages.

    def sent(self, host: "Host", message: AnyMessage) -> None:
        """A message leaves a host."""
        replica = host.replica
        if host.is_wiped:
            return  # whoever counts it is found out: nothing here does
        if message.source != replica:
            raise Violation("forged", f"replica {replica} sends {message}")
        self.reads.sent(message)
        match message:
            case VoteRequest(pre=True):
                # A question about a term that has not begun.
                self._check_owed(replica, "asks for votes")
                return
            case VoteResponse(pre=True, granted=True):
                self._check_owed(replica, "would vote")
                self.would_grant.setdefault((message.term, message.target), []).append(replica)
                return
            case VoteResponse(granted=True):
                self._check_vote(replica, message.term, message.target)
                self.granted.setdefault((message.term, message.target), []).append(replica)
            case VoteRequest():
                self._check_vote(replica, message.term, replica)
                self._check_asked_first(host, message)
            case AppendRequest():
                self._note_append(message)
            case AppendResponse() if not (message.rejected or message.wants_snapshot):
                self._check_ack(replica, message)
            case ReadResponse():
                self.reads.answers(host, message)
            case _:
                pass
        if isinstance(message, AppendResponse | HeartbeatResponse):
            self._check_told(host, message.commit)
        if isinstance(message, FROM_LEADERS) and self.leaders.get(message.term) != replica:
            raise Violation("not-the-leader", f"replica {replica} sends {message}")
        if message.term <= self.barred.get(replica, 0):
            raise Violation("repair-in-an-old-term", f"replica {replica} sends {message}")
        if self.shadow(replica).hard_state.term < message.term:
            raise Violation("term-not-durable", f"replica {replica} sends {message}")

    def _check_told(self, host: "Host", commit: int) -> None:
        """Who says that a change is committed still knows after a loss of power.

        A removed leader goes when it was told; nobody might be left to tell again.
        """
        replica = host.replica
        change, shadow = self.groups.since(commit), self.shadow(replica)
        if shadow.known < change:
            raise Violation("change-not-durable", f"replica {replica} says {commit}, of {change}")

    def _check_vote(self, replica: int, term: int, candidate: int) -> None:
        self._check_owed(replica, "votes")
        first = self.votes.setdefault((replica, term), candidate)
        if first != candidate:
            raise Violation("voted-twice", f"replica {replica} in {term}: {first}, {candidate}")
        durable = self.shadow(replica).hard_state
        if durable.term <= term and (durable.term, durable.vote) != (term, candidate):
            raise Violation(
                "vote-not-durable", f"replica {replica} votes {candidate} in {term}: {durable}"
            )

    def _check_asked_first(self, host: "Host", message: VoteRequest) -> None:
        """Without an order to do so nobody stands whom a majority would not elect (Raft 9.6)."""
        if message.forced:
            return
        replica = host.replica
        voters = [replica, *self.would_grant.get((message.term, replica), [])]
        applied = host.raft.log.applied
        # It may have applied a change since it asked.
        groups = self.groups.between(max(0, applied - _LATELY), applied)
        if not any(is_quorum(group, lambda voter: voter in voters) for group in groups):
            raise Violation("stands-unasked", f"replica {replica}: {message}, only {voters}")

    def _check_owed(self, replica: int, does: str) -> None:
        """A damaged replica has no say before it holds every committed entry that it once had."""
        shadow = self.shadow(replica)
        claimed = shadow.claimed
        if claimed is None:
            return
        owed = min(self.committed, claimed.last_index)
        while owed and not claimed.holds(owed, self.terms[owed]):
            owed -= 1
        if owed and not shadow.holds(owed, self.terms[owed]):
            raise Violation("damaged-votes", f"replica {replica} {does}, lacking entry {owed}")
        shadow.claimed = None

    def _note_append(self, message: AppendRequest) -> None:
        for index, term in (
            (message.previous_index, message.previous_term),
            *((entry.index, entry.term) for entry in message.entries),
        ):
            known = self.sent_entries.setdefault((message.term, index), term)
            if known != term:
                raise Violation("leader-rewrites", f"{message} had term {known} at {index}")
        if message.commit > self.committed:
            raise Violation("commit-from-nowhere", f"{message}: {self.committed} is committed")

    def _check_ack(self, replica: int, message: AppendResponse) -> None:
        """What is acknowledged in the present term is durable, and the leader's."""
        shadow, index = self.shadow(replica), message.index
        self.acked[replica] = max(self.acked.get(replica, 0), message.term)
        if shadow.hard_state.term != message.term or not index:
            return
        term = self.sent_entries.get((message.term, index))
        if term is None:
            # Nothing of this leader's went there: it may only be what is committed.
            term = self.terms[index] if index <= self.committed else -1
        if not shadow.holds(index, term):
            raise Violation("ack-before-sync", f"replica {replica} sends {message}")

    # What nodes come to believe.

    def look(self, host: "Host", *, applied_before: int) -> None:
        """Something happened at a host."""
        raft = host.raft
        leads = raft.leadership is not None
        if leads and host.leading_term != raft.term:
            self._elected(host, raft)
        commit = raft.log.commit
        if commit > host.commit_seen:
            # A leader may have stepped aside in the very step in which it committed.
            term = host.leading_term if leads or host.leading_term == raft.term else 0
            self._commit_seen(host, raft, commit, term=term, applied_before=applied_before)
            host.commit_seen = commit
        if not leads:
            if host.leading_term == raft.term and any(
                isinstance(message, TimeoutNow) for message in raft.messages[-1:]
            ):
                host.contact.check_left(host)
            host.leading_term = 0
            if raft.role.value == "leader":
                raise Violation("role", f"replica {host.replica} leads without leading")

    def _elected(self, host: "Host", raft: Raft) -> None:
        replica, term = host.replica, raft.term
        first = self.leaders.setdefault(term, replica)
        if first != replica:
            raise Violation("two-leaders", f"term {term}: {first} and {replica}")
        host.leading_term = term
        self.elections += 1
        self._check_owed(replica, "leads")
        durable = self.shadow(replica).hard_state
        if (durable.term, durable.vote) != (term, replica):
            raise Violation("vote-not-durable", f"replica {replica} leads {term}: {durable}")
        voters = [replica, *self.granted.get((term, replica), [])]
        group = self.groups.at(raft.log.applied)
        if not is_quorum(group, lambda voter: voter in voters):
            raise Violation("elected-by-few", f"{replica} leads {term} by {voters} of {group}")
        self._check_knows_group(replica, raft)
        if raft.log.last_term != term:
            # Nothing else lets it commit what it inherited, or answer a read.
            raise Violation("no-first-entry", f"{replica} leads {term} and appends nothing")
        index = max(index for index, by in self.commits if by < term)
        if index > raft.log.base.index and not raft.log.matches(index, self.terms[index]):
            raise Violation("leader-completeness", f"{replica} leads {term} without entry {index}")

    def _check_knows_group(self, replica: int, raft: Raft) -> None:
        """A leader is elected by the newest group that it can know of.

        Of the changes in its log all but the last are committed, or the last would not be there.
        """
        log = raft.log
        first, known = log.applied + 1, log.commit
        entries = log.entries(first, log.last_index, 1 << 40) if first <= log.last_index else []
        changes = [entry.index for entry in entries if entry.kind is Kind.CONFIG]
        if len(changes) > 1 or any(index <= known for index in changes):
            raise Violation("group-not-applied", f"replica {replica} leads before {changes}")

    def _commit_seen(
        self, host: "Host", raft: Raft, commit: int, *, term: int, applied_before: int
    ) -> None:
        log, replica = raft.log, host.replica
        if term:
            self.established.add(term)
        if commit <= self.committed:
            if commit > log.base.index and not log.matches(commit, self.terms[commit]):
                raise Violation("committed-another", f"replica {replica} commits {commit}")
            return
        if not term:
            raise Violation("commit-from-nowhere", f"replica {replica} commits {commit} by itself")
        if log.term(commit) != term:
            raise Violation(
                "commit-of-another-term", f"leader {replica} of {term} commits {commit} by counting"
            )
        groups = self.groups.between(applied_before, log.applied)
        durable = [voter for voter, shadow in self.shadows.items() if shadow.held(commit, term)]
        if not any(is_quorum(group, lambda voter: voter in durable) for group in groups):
            raise Violation(
                "commit-not-durable", f"leader {replica} commits {commit}, on {durable} of {groups}"
            )
        self.terms += [log.term(index) for index in range(self.committed + 1, commit + 1)]
        self.committed = commit
        self.commits.append((commit, term))

    def handed_out(self, host: "Host", entries: tuple[Entry, ...]) -> None:
        """A node gives its state machine something to apply."""
        shadow = self.shadow(host.replica)
        for entry in entries:
            index = entry.index
            if index != host.handed + 1:
                raise Violation("apply-order", f"replica {host.replica}: {entry}")
            host.handed = index
            if index > self.committed:
                raise Violation("apply-uncommitted", f"replica {host.replica}: {entry}")
            if index == len(self.log) + 1:
                self.log.append(entry)
                self.groups.take(entry)
                self._check_once(entry)
            if self.log[index - 1] != entry or self.terms[index] != entry.term:
                raise Violation(
                    "state-machine-safety",
                    f"replica {host.replica} applies {entry}, others {self.log[index - 1]}",
                )
            if not shadow.holds(index, entry.term):
                raise Violation("apply-not-durable", f"replica {host.replica}: {entry}")

    def _check_once(self, entry: Entry) -> None:
        """Every proposal is its own, so none may be in the log twice."""
        if entry.data and entry.kind is Kind.NORMAL:
            first = self.proposals.setdefault(entry.data, entry.index)
            if first != entry.index:
                raise Violation("doubled", f"{entry} is at {first} as well")

    # State machines.

    def applied(self, replica: int, index: int, digest: int) -> None:
        """A state machine has a digest at an index, however it came there."""
        first = self.digests.setdefault(index, digest)
        if first != digest:
            raise Violation("digest", f"replica {replica} at {index}: {digest}, not {first}")

    def in_force(self, host: "Host") -> None:
        """The membership of a node follows from what it applied."""
        raft = host.raft
        if not raft.log.applied and raft.membership == Membership():
            return  # a newcomer, or one whose log was set aside
        if raft.membership != self.groups.at(raft.log.applied) and not raft.log.is_installing:
            raise Violation(
                "membership",
                f"replica {host.replica} at {raft.log.applied}: {raft.membership}, not"
                f" {self.groups.at(raft.log.applied)}",
            )

    def kept(self, replica: int, index: int, membership: Membership) -> None:
        """A log is cut or a snapshot is made at an index, with the membership in force there.

        A wrong one harms only at the next start, or where the snapshot is installed: rare in a run.
        """
        if membership != self.groups.at(index):
            raise Violation(
                "kept-membership",
                f"replica {replica} at {index}: {membership}, not {self.groups.at(index)}",
            )

    def _check_snapshot(self, replica: int, snapshot: Snapshot) -> None:
        index = snapshot.index
        if index > self.committed or self.terms[index] != snapshot.term:
            raise Violation("snapshot-uncommitted", f"replica {replica} installs {snapshot}")
        if snapshot.membership != self.groups.at(index):
            raise Violation("snapshot-membership", f"replica {replica} installs {snapshot}")

    # Clients.

    def acknowledge(self, index: int) -> None:
        """A client was told of something at `index`; nobody may read behind it any more."""
        self.floor = max(self.floor, index)

    def read(self, replica: int, *, index: int, floor: int) -> None:
        """A read is answered at `index`; `floor` was acknowledged before it began."""
        if index < floor:
            raise Violation("stale-read", f"replica {replica} reads at {index} behind {floor}")
        if index > self.committed:
            raise Violation("read-ahead", f"replica {replica} reads at {index}")
