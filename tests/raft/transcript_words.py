"""How transcripts put things: one line for a message, an entry, a write, a node.

An entry or a position in the log is `index/term`. `t2` is a term. Steps of a change are `+4` for a
voter, `~4` for a learner, `-4` for a removal.
"""

from collections.abc import Iterable

from corvo.raft import (
    Action,
    AnyMessage,
    Change,
    Entry,
    Kind,
    Membership,
    Node,
    ProgressView,
    Role,
    Snapshot,
    Step,
    Write,
)
from corvo.raft.membership import decode, voters_of
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
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

SIGNS = {"+": Action.ADD_VOTER, "~": Action.ADD_LEARNER, "-": Action.REMOVE}
ACTIONS = {action: sign for sign, action in SIGNS.items()}


class Names:
    """Stable names, A, B, C, for numbers that chance has drawn."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def of(self, number: int) -> str:
        """The name of `number`, the next free one when it is new."""
        return self._names.setdefault(number, chr(ord("A") + len(self._names)))


# Data.


def data_words(data: bytes) -> str:
    """The data of an entry; only the size where it is long."""
    return f'"{data.decode()}"' if len(data) <= 20 else f"{len(data)} bytes"


def change_words(change: Change) -> str:
    """A membership change as it is written in a command."""
    if change.leaves:
        return "leave"
    steps = [f"{ACTIONS[step.action]}{step.replica}" for step in change.steps]
    return " ".join(steps + ([] if change.auto else ["explicit"]))


def change_of(words: Iterable[str]) -> Change:
    """What `change_words` wrote."""
    words = list(words)
    steps = [word for word in words if word != "explicit"]
    return Change(
        steps=tuple(Step(SIGNS[word[0]], int(word[1:])) for word in steps),
        auto="explicit" not in words,
    )


def entry_words(entry: Entry) -> str:
    """One entry with its position."""
    position = f"{entry.index}/{entry.term}"
    match entry.kind:
        case Kind.NOOP:
            return f"{position} no-op"
        case Kind.CONFIG:
            return f"{position} change {change_words(decode(entry.data))}"
        case Kind.NORMAL:
            return f"{position} {data_words(entry.data)}"


def entries_words(entries: Iterable[Entry]) -> str:
    """Entries as a list."""
    return f"[{', '.join(map(entry_words, entries))}]"


def membership_words(membership: Membership) -> str:
    """Who belongs to the group, and in which part."""
    parts = {
        "voters": membership.voters,
        "outgoing": membership.outgoing,
        "learners": membership.learners,
        "learners-next": membership.learners_next,
    }
    words = [f"{name} {' '.join(map(str, ids))}" for name, ids in parts.items() if ids]
    if membership.outgoing:
        words.append("leaves by itself" if membership.auto_leave else "waits to be left")
    return ", ".join(words) or "nobody"


def snapshot_words(snapshot: Snapshot) -> str:
    """A snapshot by its position."""
    return f"snapshot {snapshot.index}/{snapshot.term}"


# Messages.


def message_words(message: AnyMessage, names: Names) -> str:
    """Who tells whom, in which term, and what."""
    content = _content(message, names)
    return f"{message.source}->{message.target} t{message.term} {content}"


def _content(message: AnyMessage, names: Names) -> str:
    match message:
        case VoteRequest():
            return (
                f"{'pre-vote' if message.pre else 'vote'}?{' forced' if message.forced else ''}"
                f" last {message.last_index}/{message.last_term}"
                + _known(message.commit, message.commit_term)
            )
        case VoteResponse():
            return (
                f"{'pre-vote' if message.pre else 'vote'} {'yes' if message.granted else 'no'}"
                + _known(message.commit, message.commit_term)
            )
        case AppendRequest():
            return (
                f"append prev {message.previous_index}/{message.previous_term}"
                f" {entries_words(message.entries)} commit {message.commit}"
            )
        case AppendResponse():
            return _answer(message)
        case Heartbeat():
            return f"beat round {message.round} commit {message.commit}"
        case HeartbeatResponse():
            return f"beat-answer round {message.round} commit {message.commit}"
        case TimeoutNow():
            return "take-over"
        case TransferRequest():
            return f"transfer? to {message.heir}"
        case ReadRequest():
            return f"read? {names.of(message.context)}"
        case ReadResponse():
            return f"read {names.of(message.context)} at {message.index}/{message.index_term}"
        case _:
            return _snapshot_content(message)


def _snapshot_content(message: SnapshotOffer | SnapshotPull | SnapshotChunk) -> str:
    name = snapshot_words(message.snapshot)
    match message:
        case SnapshotOffer(snapshot=snapshot):
            members = membership_words(snapshot.membership)
            return f"offer {name} ({members}) {snapshot.size} bytes goal {message.goal}"
        case SnapshotPull():
            return f"pull {name} from {message.offset}"
        case SnapshotChunk():
            return f"chunk {name} at {message.offset} {data_words(message.data)}"


def _known(commit: int, term: int) -> str:
    return f" commit {commit}/{term}" if commit else ""


def _answer(message: AppendResponse) -> str:
    if message.wants_snapshot:
        return f"snapshot? of {message.index} or later"
    if message.rejected:
        hint = f"{message.hint_index}/{message.hint_term}"
        return f"reject {message.index} hint {hint} commit {message.commit}"
    return f"accept {message.index} commit {message.commit}"


def kind_of(message: AnyMessage) -> str:
    """The word by which a filter names this sort of message."""
    return _content(message, Names()).split()[0]


# Work and state.


def write_words(write: Write) -> str:
    """What a write puts on disk."""
    parts = []
    if write.hard_state is not None:
        state = write.hard_state
        parts.append(f"term {state.term} vote {state.vote or 'nobody'}")
    if write.chunk is not None:
        parts.append(f"chunk of {snapshot_words(write.chunk.snapshot)} at {write.chunk.offset}")
    if write.install is not None:
        parts.append(f"install {snapshot_words(write.install)}")
    if write.entries:
        parts.append(entries_words(write.entries))
    return ", ".join(parts) or "nothing, in its turn"


def role_words(node: Node) -> str:
    """Role, term and leader."""
    state = node.statistics()
    match state.role:
        case Role.FOLLOWER:
            return f"follower of {state.leader or 'nobody'} in t{state.term}"
        case role:
            heir = f", handing over to {state.transfer_to}" if state.transfer_to else ""
            return f"{role.value.replace('_', '-')} in t{state.term}{heir}"


def part_words(node: Node, replica: int) -> str:
    """The part a node thinks it has in the group."""
    membership = node.membership
    if replica in voters_of(membership):
        return "voter"
    return "learner" if replica in membership.learners else "outsider"


def status_words(node: Node) -> str:
    """A node in one line."""
    state = node.statistics()
    return (
        f"{state.replica} {part_words(node, state.replica)}, {role_words(node)},"
        f" vote {state.vote or 'nobody'}, log {state.first_index}..{state.last_index}"
        f" stable {state.stable} commit {state.commit} applied {state.applied}"
    )


def progress_words(view: ProgressView) -> str:
    """What a leader knows of another in one line."""
    words = [f"{view.replica} {view.flow.value} match {view.match} next {view.next}"]
    words.append(f"commit {view.commit}")
    if view.messages_in_flight:
        words.append(f"in flight {view.messages_in_flight} ({view.bytes_in_flight} bytes)")
    if view.snapshot_index is not None:
        words.append(f"pulls {view.snapshot_index}")
    flags = {"paused": view.is_paused, "silent": not view.is_active, "learner": view.is_learner}
    return " ".join(words + [flag for flag, is_set in flags.items() if is_set])
