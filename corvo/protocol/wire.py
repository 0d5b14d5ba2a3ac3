"""Every message between processes, and the frames that they travel in.

    length:4 | message (msgpack array, first its tag)

The length is big-endian and counts the message alone. Tags are never reused. A new field goes at
the end and has a default: an older process ignores a field that it does not know, and a newer one
fills in a missing field, so it needs no new `WIRE_VERSION`.

A link begins with a `Hello` in both directions, and `refusal` decides from the two whether it may
be used (docs/adr/0012); between nodes, both ends prove first that they know the cluster secret
(`corvo.hellos`). The messages after it depend on the roles of the two ends; each such
`Group` is a union of its own, so that a receiver's `match` can be checked for completeness. Ops,
queries and their results travel as the JSON bytes that a client sent or will get, documents as the
bytes that are stored.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from corvo import __version__
from corvo.errors import WireError

WIRE_VERSION: Final = 3
"""The version of frames and messages. It rises with a message that a process of the version before
would misunderstand: a new tag, or a new meaning."""

WIRE_OLDEST: Final = 3
"""The oldest wire version that this release still understands."""

OP_VERSION: Final = 6
"""The version of ops, queries and documents, also of those in a feed. It rises with each op, query
or field that a process of the version before would not know (`corvo.protocol.versions`)."""

OP_OLDEST: Final = 2
"""The oldest op version that this release still works with."""

BODY_BYTES_MAX: Final = 16 << 20
"""The largest frame of `corvo.raft.codec`, and so the largest body of a message."""

FRAME_BYTES_MAX: Final = BODY_BYTES_MAX + 1024
"""The largest body, with room for the message around it, a refusal's code included."""

HELLO_BYTES_MAX: Final = 4096
"""A hello has about 100 bytes. Its sender is unknown until it is read, so little is kept for it.
The other messages at the beginning of a link have the same limit."""

_TLS: Final = b"\x16\x03"
"""How TLS begins. It is no beginning of a frame: that would be too large for a hello."""

NONCE_BYTES: Final = 32
"""Of a `Challenge`: a random number that never comes twice."""

_RELEASE_MAX: Final = 40
"""Characters of a peer's release in a refusal."""

REFUSAL_MAX: Final = 500
"""Characters of a refusal, which has to fit into a hello."""

ROUTER: Final = "router"
REPLICA: Final = "replica"
MIRROR: Final = "mirror"
"""The mirror: it follows shards, and answers a router's questions."""
FOLLOWER: Final = "follower"
"""A router that follows a shard's events."""
BACKUP: Final = "backup"
"""A router that copies the states of all shards for a backup."""
JOINER: Final = "joiner"
"""A node that is about to join: it belongs to no cluster yet, and knows of none."""
SHARD: Final = "shard"
"""A replica that submits an effect to another shard: it may use the ops for shards alone."""

_ROLES: Final = (ROUTER, REPLICA, MIRROR, FOLLOWER, BACKUP, SHARD, JOINER)
_LINKED: Final = (
    {ROUTER, REPLICA},
    {ROUTER, MIRROR},
    {REPLICA},
    {MIRROR, REPLICA},
    {FOLLOWER, REPLICA},
    {BACKUP, REPLICA},
    {SHARD, REPLICA},
    {JOINER, ROUTER},
    {ROUTER},
)
"""The roles of the two ends of each kind of link."""

ALL_SHARDS: Final = -1
"""For `Hello.shard`, of a link between a router and a mirror."""


# What every link carries.


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The first message in each direction: the sender, and which releases it works with.

    It is read before the versions are compared, so its fields keep their places for ever.
    """

    role: str
    node: int
    shard: int  # the shard that this link is about
    cluster: str
    wire_version: int
    op_version: int
    shards: int  # how many shards the cluster has
    wire_oldest: int = 1
    op_oldest: int = 1
    refusal: str = ""
    """In the answer to a hello: why the link is refused; empty when it is accepted."""
    instance: str = ""
    """The number of the node's data directory; empty for a server that runs alone."""
    release: str = ""
    """The version of corvo, for people."""


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Asks an idle peer for a `Pong`."""

    id: int


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Answers the `Ping` of that id."""

    id: int


class Goodbye(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The last message of a sender that leaves in order; without it, the link was lost."""

    reason: str


# Between nodes, before the hello of the end that was dialled (`corvo.hellos`).


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Asks the other end to prove that it knows the cluster secret."""

    nonce: bytes
    node: int = 0
    """The node that was dialled, 0 for any; sent by the end that dials."""


class Proof(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Answers a `Challenge`: a MAC of all frames of the link up to this one."""

    mac: bytes  # empty without a cluster secret


# A router to a replica.


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Asks the leader to carry out an op."""

    id: int
    op: int
    body: bytes


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Asks for the answer to a query, which changes nothing."""

    id: int
    query: int
    body: bytes


# A replica to a router.


class Reply(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Answers a `Submit` or an `Ask`."""

    id: int
    code: str  # the code of the refusal; empty for a request that was carried out
    body: bytes
    index: int = 0  # the position in the shard's log that the answer is as of; 0 when it has none


class NotLeader(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Answers a request that only the leader takes. It had no effect."""

    id: int
    leader: int | None


class Busy(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Answers a request for which there is no room. It had no effect."""

    id: int
    retry_after_ms: int


class WorkAvailable(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """A fetch from one of these queues may find a job now."""

    queues: tuple[str, ...]


class Leading(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """The node of the shard's leader, as far as this replica knows; None without a leader."""

    leader: int | None
    term: int


class KeysChanged(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """The list of API keys may have changed at this position in the log."""

    index: int


class MapChanged(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """The cluster map has this version now, or a later one."""

    version: int


# Replicas among themselves.


class Peer(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """One frame of `corvo.raft.codec`."""

    data: bytes


# A follower to a replica. It asks for one thing at a time and for the next when it likes, so that a
# slow one costs the replica nothing.


class Follow(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """Asks for the changes after a position in the log. The answer waits until there are some."""

    id: int
    after: int  # the follower's position; 0 with digest 0 for a follower that has nothing
    digest: int  # the state's digest at that position: proof that it is the same log
    wants_documents: bool = True
    wants_events: bool = False
    keys_max: int = 1_000
    """Documents at most, but for those of one entry; events, when no documents are wanted."""
    after_key: bytes = b""
    """`Changes.more` of the last answer, when it had one: continue after that key."""
    through: int = 0
    """The greatest `through` of all documents that the follower has, if greater than `after`; else
    0. A log that was taken back to before it is another log, although `after` is in both."""
    through_digest: int = 0


class Scan(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """Asks for documents as they are now, in the order of their keys: a page of a full pass."""

    id: int
    after: bytes = b""  # the last key of the page before; empty for the first page
    keys_max: int = 1_000
    least: int = 0
    """The index that the documents must be as new as: a replica that lags answers when it has come
    so far. Without it, changes between the two would never be told."""


class Seek(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """Asks for the position before all entries of a time and later."""

    id: int
    since_ns: int


# A replica to a follower.

Pair: TypeAlias = tuple[bytes, bytes | None]
"""A key of the store, and its document as it is stored; None when it is gone."""


class Happening(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that happened: an event. All of one entry happened at the entry's time."""

    what: str  # a stored word of `corvo.model.EventType`
    job_id: str = ""
    queue: str = ""
    kind: str = ""
    state: str = ""  # the job's state after the event; empty for a job that is gone
    attempt: int = 0
    by: str = ""
    why: str = ""
    data: bytes = b""  # JSON: the progress, of `progress`


class Happenings(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What happened in one entry, in order."""

    index: int
    now_ns: int
    events: tuple[Happening, ...]


class Changes(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """Answers `Follow`: the changes after `after`, up to and including `index`."""

    id: int
    index: int
    digest: int
    now_ns: int  # the state's own time at `index`
    through: int
    """The position that the documents are as of, `index` or later: the follower's copy is exact
    once it has reached it."""
    pairs: tuple[Pair, ...]  # each document once, however often it changed
    happenings: tuple[Happenings, ...] = ()
    more: bytes = b""
    """Empty, unless the documents of the entry after `index` are too large for one answer. Then
    `index` is the follower's own position, and the answer has the documents up to this key: the
    follower asks again with this as `after_key`. Without it, that entry begins again."""
    through_digest: int = 0  # the state's digest at `through`


class Reset(msgspec.Struct, frozen=True, array_like=True, tag=43):
    """Answers `Follow` when the feed has no changes from that position.

    The feed does not reach back so far, or it is not the same log. The follower continues after
    `index`, and gets the documents of before by a full pass.
    """

    id: int
    index: int  # the replica's position
    digest: int
    now_ns: int
    begin: int  # the feed still has all events after this position
    begin_digest: int


class Scanned(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """Answers `Scan`."""

    id: int
    pairs: tuple[Pair, ...]
    last: bytes  # the last key of the page; empty at the end of the pass
    through: int
    through_digest: int = 0


class Sought(msgspec.Struct, frozen=True, array_like=True, tag=46):
    """Answers `Seek`: all entries that the feed has of that time and later are after `index`."""

    id: int
    index: int
    digest: int
    now_ns: int  # the state's own time
    whole_ns: int
    """0, if the feed has all entries since the time that was asked for. Else it has all of this
    time and later, and may have lost some before."""


# A router that makes a backup, to the leader of a shard. All that it has begun ends with its link.


class BeginBackup(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """Asks the leader to send no effects to other shards from now on, and to remove none.

    So the copy of one shard has taken only what the copy of the other has given, and no copy lacks
    an effect that the copy of the other has not taken.
    """

    id: int


class CopyState(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """Asks for a copy of the state, once it has this index or a later one."""

    id: int
    least: int


class ReadCopy(msgspec.Struct, frozen=True, array_like=True, tag=52):
    """Asks for bytes of a file of the copy."""

    id: int
    name: str
    offset: int


class EndBackup(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """All shards are copied: effects may go on. The copy stays until the link ends."""

    id: int


# The leader to a router that makes a backup.


class BackupBegun(msgspec.Struct, frozen=True, array_like=True, tag=54):
    """Answers `BeginBackup`."""

    id: int
    term: int  # 0 if the replica does not lead


class StateCopied(msgspec.Struct, frozen=True, array_like=True, tag=55):
    """Answers `CopyState`."""

    id: int
    index: int  # the position in the shard's log that the copy is as of; 0 for an empty state
    sums: bytes
    """The files of the copy and their sums, as `corvo.kv.sums` writes them; empty without files."""
    problem: str = ""  # why there is no copy


class CopyPart(msgspec.Struct, frozen=True, array_like=True, tag=56):
    """Answers `ReadCopy`."""

    id: int
    data: bytes  # empty at the end of the file


class BackupEnded(msgspec.Struct, frozen=True, array_like=True, tag=57):
    """Answers `EndBackup`."""

    id: int
    is_consistent: bool  # whether the replica has led in the same term since `BeginBackup`


Control: TypeAlias = Ping | Pong | Goodbye
First: TypeAlias = Hello | Challenge | Proof | Goodbye
Request: TypeAlias = Submit | Ask
Answer: TypeAlias = Reply | NotLeader | Busy
Push: TypeAlias = WorkAvailable | Leading | KeysChanged | MapChanged
FollowerRequest: TypeAlias = Follow | Scan | Seek
FollowerAnswer: TypeAlias = Changes | Reset | Scanned | Sought
BackupRequest: TypeAlias = BeginBackup | CopyState | ReadCopy | EndBackup
BackupAnswer: TypeAlias = BackupBegun | StateCopied | CopyPart | BackupEnded
AnyMessage: TypeAlias = (
    First
    | Control
    | Request
    | Answer
    | Push
    | Peer
    | FollowerRequest
    | FollowerAnswer
    | BackupRequest
    | BackupAnswer
)

Message = TypeVar("Message")


class Group(Generic[Message]):
    """The messages that one end of a link may receive after the hello, `Control` included."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[Message | Control]") -> None:
        self.decode: Callable[[memoryview], Message | Control] = decoder.decode


FROM_ROUTER: Final[Group[Request]] = Group(msgspec.msgpack.Decoder(Request | Control))
TO_ROUTER: Final[Group[Answer | Push]] = Group(msgspec.msgpack.Decoder(Answer | Push | Control))
BETWEEN_REPLICAS: Final[Group[Peer]] = Group(msgspec.msgpack.Decoder(Peer | Control))
FROM_FOLLOWER: Final[Group[FollowerRequest]] = Group(
    msgspec.msgpack.Decoder(FollowerRequest | Control)
)
TO_FOLLOWER: Final[Group[FollowerAnswer]] = Group(msgspec.msgpack.Decoder(FollowerAnswer | Control))
FROM_BACKUP: Final[Group[BackupRequest]] = Group(msgspec.msgpack.Decoder(BackupRequest | Control))
TO_BACKUP: Final[Group[BackupAnswer]] = Group(msgspec.msgpack.Decoder(BackupAnswer | Control))
EVERYTHING: Final[Group[AnyMessage]] = Group(msgspec.msgpack.Decoder(AnyMessage))
"""Any message, for a receiver that does not use them."""

_FIRST: Final[msgspec.msgpack.Decoder[First]] = msgspec.msgpack.Decoder(First)
_ENCODER: Final = msgspec.msgpack.Encoder()
_SIZE: Final = struct.Struct(">I")
_PREFIX_BYTES: Final = _SIZE.size


def encode(message: AnyMessage) -> bytes:
    """One frame. Raises `WireError` when it is larger than any peer would take."""
    payload = _ENCODER.encode(message)
    return _prefix(payload) + payload


def encode_many(messages: Iterable[AnyMessage]) -> bytes:
    """Their frames, one after the other. Raises `WireError` as `encode` does."""
    parts = []
    for message in messages:
        payload = _ENCODER.encode(message)
        parts.append(_prefix(payload))
        parts.append(payload)
    return b"".join(parts)


def _prefix(payload: bytes) -> bytes:
    if len(payload) > FRAME_BYTES_MAX:
        raise WireError(f"a message of {len(payload)} bytes; at most {FRAME_BYTES_MAX}")
    return _SIZE.pack(len(payload))


class FrameReader:
    """The receiving side of a link: bytes in, complete messages out.

    After a `WireError` the beginning of the next frame is unknown, and the object is unusable.
    """

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._held = bytearray()  # the beginning of a frame, and never a whole one
        self._is_broken = False

    @property
    def is_between(self) -> bool:
        """Whether all that came was whole frames."""
        return not self._held

    def receive(self, data: bytes | bytearray, group: Group[Message]) -> list[Message | Control]:
        """The messages that `data` completes. Raises `WireError` for what is no frame of ours."""
        assert not self._is_broken, "nothing can be read after a broken frame"
        if self._held:
            self._held += data
            data = self._held
        # Whatever is raised from here on leaves it so.
        self._is_broken = True
        messages, end = self._decode(data, group.decode)
        if data is self._held:
            del self._held[:end]
        else:
            self._held += data[end:]
        self._is_broken = False
        return messages

    def _decode(
        self, data: bytes | bytearray, decode: Callable[[memoryview], Message | Control]
    ) -> tuple[list[Message | Control], int]:
        """The messages of all whole frames, and where the first one that is not whole begins."""
        messages: list[Message | Control] = []
        start, end = 0, len(data)
        # A view, so that large frames are not copied once more; closed, so that `data` can shrink.
        with memoryview(data) as view:
            while (body := start + _PREFIX_BYTES) <= end:
                size: int = _SIZE.unpack_from(view, start)[0]
                if size > self._frame_bytes_max:
                    raise WireError(f"a frame of {size} bytes; at most {self._frame_bytes_max}")
                if body + size > end:
                    break
                start = body + size
                messages.append(_decoded(decode, view[body:start]))
        return messages, start


class FirstFrames:
    """The receiving side of a link that has just begun: the first frames, one at a time."""

    def __init__(self) -> None:
        self._held = bytearray()

    def add(self, data: bytes | bytearray) -> None:
        """Take what was received."""
        self._held += data

    def take(self) -> tuple[First, bytes] | None:
        """The next message with its frame, once it is complete. Raises `WireError`."""
        size = int.from_bytes(self._held[:_PREFIX_BYTES], "big")
        if self._held.startswith(_TLS):
            raise WireError(
                "the other node uses TLS, and this one does not: set cluster.tls_cert on all nodes"
            )
        if len(self._held) >= _PREFIX_BYTES and size > HELLO_BYTES_MAX:
            raise WireError(f"the first frame has {size} bytes, too many for a hello")
        end = _PREFIX_BYTES + size
        if len(self._held) < end:
            return None
        frame = bytes(self._held[:end])
        del self._held[:end]
        return _decoded(_FIRST.decode, memoryview(frame)[_PREFIX_BYTES:]), frame

    @property
    def rest(self) -> bytes:
        """The bytes after the frames that were taken."""
        return bytes(self._held)


class HelloReader:
    """The receiving side of a link within a node: one `Hello`, and the bytes after it."""

    def __init__(self) -> None:
        self._frames = FirstFrames()

    def receive(self, data: bytes | bytearray) -> tuple[Hello, bytes] | None:
        """The hello once it is complete, with the bytes after it. Raises `WireError`."""
        self._frames.add(data)
        found = self._frames.take()
        if found is None:
            return None
        if not isinstance(found[0], Hello):
            raise WireError("the first frame is no hello")
        return found[0], self._frames.rest


Decoded = TypeVar("Decoded")


def _decoded(decode: Callable[[memoryview], Decoded], payload: memoryview) -> Decoded:
    try:
        return decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Not msgpack, no message of this group, text that is none, or nested beyond all reason.
        raise WireError(f"a frame that is no message: {error}") from error


class Member(Protocol):
    """A process of a cluster, as its config names it."""

    @property
    def cluster(self) -> str:
        """The cluster's name."""

    @property
    def node(self) -> int:
        """The node that the process belongs to."""

    @property
    def shards(self) -> int:
        """How many shards the cluster has."""

    @property
    def instance(self) -> str:
        """The number of the node's data directory; empty for a server that runs alone."""


def make_hello(member: Member, role: str, *, shard: int) -> Hello:
    """The hello of a process of this release."""
    return Hello(
        role=role,
        node=member.node,
        shard=shard,
        cluster=member.cluster,
        wire_version=WIRE_VERSION,
        op_version=OP_VERSION,
        shards=member.shards,
        wire_oldest=WIRE_OLDEST,
        op_oldest=OP_OLDEST,
        instance=member.instance,
        release=__version__,
    )


def needing(ours: Hello, op_version: int) -> Hello:
    """The hello of a process of a cluster of that op version: it works with no older one."""
    return msgspec.structs.replace(ours, op_oldest=max(ours.op_oldest, op_version))


def refusal(ours: Hello, theirs: Hello, *, node: int = 0) -> str:
    """Why two processes must not use a link, in one line for an operator; empty when they may.

    `node` is the node that was dialled, 0 for any. The line names both ends, since both log it.
    """
    return _why_refused(ours, theirs, node)[:REFUSAL_MAX]


def _why_refused(ours: Hello, theirs: Hello, node: int) -> str:
    they, we = _name(theirs), _name(ours)
    for older, newer in ((theirs, ours), (ours, theirs)):
        if older.wire_version < newer.wire_oldest:
            return _too_old("wire", older, older.wire_version, newer, newer.wire_oldest)
        if older.op_version < newer.op_oldest:
            return _too_old("op", older, older.op_version, newer, newer.op_oldest)
    is_joining = JOINER in {theirs.role, ours.role}
    if theirs.cluster != ours.cluster and not is_joining:
        return (
            f"{they} belongs to cluster {theirs.cluster!r}, and {we} to {ours.cluster!r}:"
            " check the address and the data directory"
        )
    if theirs.shards != ours.shards and not is_joining:
        return (
            f"{they} has {theirs.shards} shards, and {we} has {ours.shards}: the nodes of a cluster"
            " have the same number; check the data directory"
        )
    if {theirs.role, ours.role} not in _LINKED:
        return f"{they} has no links to {we}: check the address"
    if theirs.shard != ours.shard:
        return (
            f"{they} is for {_of(theirs.shard)}, and {we} for {_of(ours.shard)}: check the address"
        )
    if node and theirs.node != node:
        return f"{they} answers at the address of node {node}: check the address"
    if theirs.role == ours.role == REPLICA and theirs.node == ours.node:
        return f"two replicas of {_of(ours.shard)} are on node {ours.node}: number the nodes apart"
    return ""


def _too_old(what: str, older: Hello, version: int, newer: Hello, oldest: int) -> str:
    fix = "restart" if older.node == newer.node else "upgrade"
    which = f"node {older.node}" if older.role != JOINER else "it"
    to = f" to corvo {newer.release[:_RELEASE_MAX]!r}" if newer.release and fix == "upgrade" else ""
    return (
        f"{_name(older)} is older: it has {what} version {version}, and {_name(newer)} needs"
        f" {oldest} or later; {fix} {which}{to}"
    )


def _name(hello: Hello) -> str:
    if hello.role == JOINER:
        return "the node that starts"
    role = hello.role if hello.role in _ROLES else "process"
    return f"the {role} of node {hello.node}"


def _of(shard: int) -> str:
    return "all shards" if shard == ALL_SHARDS else f"shard {shard}"
