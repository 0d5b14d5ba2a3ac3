"""Frames between processes: what goes in comes out, however it is cut; all else is refused."""

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo import __version__
from corvo.errors import WireError
from corvo.protocol.wire import (
    ALL_SHARDS,
    BACKUP,
    BETWEEN_REPLICAS,
    BODY_BYTES_MAX,
    EVERYTHING,
    FOLLOWER,
    FRAME_BYTES_MAX,
    FROM_ROUTER,
    HELLO_BYTES_MAX,
    JOINER,
    MIRROR,
    OP_OLDEST,
    OP_VERSION,
    REPLICA,
    ROUTER,
    SHARD,
    TO_ROUTER,
    WIRE_OLDEST,
    WIRE_VERSION,
    AnyMessage,
    Ask,
    BackupBegun,
    BackupEnded,
    BeginBackup,
    Busy,
    Challenge,
    Changes,
    CopyPart,
    CopyState,
    EndBackup,
    Follow,
    FrameReader,
    Goodbye,
    Happening,
    Happenings,
    Hello,
    HelloReader,
    KeysChanged,
    Leading,
    MapChanged,
    NotLeader,
    Pair,
    Peer,
    Ping,
    Pong,
    Proof,
    ReadCopy,
    Reply,
    Reset,
    Scan,
    Scanned,
    Seek,
    Sought,
    StateCopied,
    Submit,
    WorkAvailable,
    encode,
    encode_many,
    make_hello,
    needing,
    refusal,
)
from corvo.raft import codec
from corvo.raft.messages import AppendRequest, Entry, Kind
from tests.support.links import Member

HELLO: Final = Hello(REPLICA, 1, 3, "rookery", WIRE_VERSION, 12, 8, 1, 11, "not today", "ab", "0.1")
FIRST_HELLO: Final = "0000001f9801a77265706c6963610103a7726f6f6b657279010ccfffffffffffffffff"
"""As it was before a hello had the oldest versions and a refusal."""

SAMPLES: Final[tuple[AnyMessage, ...]] = (
    HELLO,
    Ping(1),
    Pong(1 << 40),
    Goodbye("shutting down"),
    Challenge(bytes(range(32)), 2),
    Proof(bytes(range(32, 64))),
    Submit(2, 7, b'{"queue":"emails"}'),
    Ask(3, 1, b"{}"),
    Reply(4, "", b'{"id":"s03_job_1"}', 1042),
    Reply(5, "job_not_active", b""),
    NotLeader(6, 2),
    NotLeader(7, None),
    Busy(8, 250),
    WorkAvailable(("emails", "küche")),
    WorkAvailable(()),
    Leading(2, 9),
    Leading(None, 10),
    KeysChanged(1042),
    MapChanged(7),
    Peer(b"CR\x01\x00"),
    Follow(9, 1042, 0xC0FFEE),
    Follow(10, 0, 0, wants_documents=False, wants_events=True, keys_max=50, after_key=b"j|a"),
    Scan(11),
    Follow(9, 1042, 0xC0FFEE, through=1050, through_digest=0xBADCAFE),
    Scan(12, b"j|s03_job_1", 20),
    Changes(
        13,
        1043,
        0xBADCAFE,
        1_700_000_000_000_000_001,
        1050,
        ((b"j|s03_job_1", b"\x90"), (b"j|s03_job_2", None)),
        (
            Happenings(
                1043,
                1_700_000_000_000_000_000,
                (Happening("started", "s03_job_1", "emails", "", "active", 1, "worker-1"),),
            ),
        ),
        b"j|s03_job_2",
    ),
    Changes(14, 1043, 0xBADCAFE, 1, 1043, ()),
    Reset(15, 1043, 0xBADCAFE, 1_700_000_000_000_000_001, 1000, 0xC0FFEE),
    Scanned(16, ((b"b|s03_batch_1", b"{}"),), b"b|s03_batch_1", 1043),
    Scanned(17, (), b"", 1043),
    Seek(18, 1_700_000_000_000_000_000),
    Sought(18, 1042, 0xC0FFEE, 1_700_000_000_000_000_001, 0),
    BeginBackup(19),
    CopyState(20, 1042),
    ReadCopy(21, "000412.ldb", 262_144),
    EndBackup(22),
    BackupBegun(19, 7),
    StateCopied(20, 1043, b"corvo checkpoint 1"),
    StateCopied(20, 0, b"", "no room"),
    CopyPart(21, b"raven"),
    BackupEnded(22, is_consistent=True),
)

GOLDEN: Final = Path(__file__).with_name("wire_frames_version_3.txt").read_text().splitlines()
"""The frame of each sample. These bytes are between processes of different releases during an
upgrade, and change only with `WIRE_VERSION`."""

KINDS: Final[tuple[type[AnyMessage], ...]] = get_args(AnyMessage)

numbers = st.integers(0, (1 << 64) - 1)
blobs = st.binary(max_size=300)
texts = st.text(max_size=40)

FIELDS: Final[dict[object, st.SearchStrategy[object]]] = {
    int: numbers,
    int | None: st.none() | numbers,
    str: texts,
    bytes: blobs,
    bool: st.booleans(),
    tuple[str, ...]: st.lists(texts, max_size=5).map(tuple),
    tuple[Pair, ...]: st.lists(st.tuples(blobs, st.none() | blobs), max_size=3).map(tuple),
    tuple[Happenings, ...]: st.lists(
        st.builds(
            Happenings,
            numbers,
            numbers,
            st.lists(
                st.builds(
                    Happening, texts, texts, texts, texts, texts, numbers, texts, texts, blobs
                ),
                max_size=3,
            ).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
}
"""How to fill a field, by its type: a message with a new kind of field has to add it here."""


def filled(kind: type[AnyMessage]) -> st.SearchStrategy[AnyMessage]:
    fields = [FIELDS[field.type] for field in msgspec.structs.fields(kind)]
    return st.tuples(*fields).map(lambda values: kind(*values))


any_message: Final = st.one_of([filled(kind) for kind in KINDS])


def framed(payload: bytes) -> bytes:
    """The slow twin of what `encode` puts around a message."""
    return bytes([len(payload) >> shift & 0xFF for shift in (24, 16, 8, 0)]) + payload


def received(data: bytes, *, cuts: Sequence[int] = ()) -> list[AnyMessage]:
    """What comes out when `data` comes in pieces."""
    frames = FrameReader()
    ends = [*sorted(cuts), len(data)]
    messages: list[AnyMessage] = []
    start = 0
    for end in ends:
        messages += frames.receive(data[start:end], EVERYTHING)
        start = end
    assert frames.is_between
    return messages


# What goes in comes out.


@given(st.lists(any_message, max_size=5))
def test_many_messages_come_out_as_they_went_in(messages: list[AnyMessage]) -> None:
    data = encode_many(messages)

    assert received(data) == messages


@given(any_message)
def test_a_frame_is_the_length_and_the_plain_msgpack_of_the_message(message: AnyMessage) -> None:
    frame = encode(message)

    assert frame == framed(msgspec.msgpack.encode(message))


@given(st.lists(any_message, max_size=5))
def test_many_frames_are_single_frames_in_a_row(messages: list[AnyMessage]) -> None:
    together = encode_many(messages)

    assert together == b"".join(encode(message) for message in messages)


@pytest.mark.parametrize(("sample", "line"), list(zip(SAMPLES, GOLDEN, strict=True)))
def test_the_bytes_of_a_message_never_change(sample: AnyMessage, line: str) -> None:
    name, frame = line.split()

    assert name == type(sample).__name__
    assert encode(sample).hex() == frame
    assert received(bytes.fromhex(frame)) == [sample]


def test_every_message_has_a_sample() -> None:
    assert {type(sample) for sample in SAMPLES} == set(KINDS)


@pytest.mark.parametrize(
    ("group", "kinds"),
    [
        (FROM_ROUTER, {Submit, Ask}),
        (TO_ROUTER, {Reply, NotLeader, Busy, WorkAvailable, Leading, KeysChanged, MapChanged}),
        (BETWEEN_REPLICAS, {Peer}),
    ],
    ids=["from router", "to router", "between replicas"],
)
def test_a_group_takes_its_own_messages_and_no_others(
    group: object, kinds: set[type[AnyMessage]]
) -> None:
    taken = set()

    for sample in SAMPLES:
        try:
            FrameReader().receive(encode(sample), group)  # type: ignore[arg-type]
        except WireError:
            continue
        taken.add(type(sample))

    assert taken == kinds | {Ping, Pong, Goodbye}


def test_a_field_that_only_a_newer_version_has_is_passed_over() -> None:
    newer = framed(msgspec.msgpack.encode([24, 2, 9, {"since": [1, "ü"]}]))

    assert received(newer) == [Leading(2, 9)]


def test_a_field_that_an_older_version_does_not_have_gets_its_default() -> None:
    older = framed(msgspec.msgpack.encode([20, 4, "", b"{}"]))

    assert received(older) == [Reply(4, "", b"{}", 0)]


def test_the_largest_raft_frame_fits_into_a_frame() -> None:
    peers = codec.Codec(1)
    empty = peers.encode(AppendRequest(1, 2, 3, 4, 5, 2, (Entry(6, 3, Kind.NORMAL, b""),), 5))
    entry = Entry(6, 3, Kind.NORMAL, bytes(codec.FRAME_BYTES_MAX - len(empty) - 3))
    largest = peers.encode(AppendRequest(1, 2, 3, 4, 5, 2, (entry,), 5))

    messages = received(encode(Peer(largest)))

    assert len(largest) == codec.FRAME_BYTES_MAX
    assert messages == [Peer(largest)]


@pytest.mark.parametrize(
    "largest",
    [
        Submit((1 << 64) - 1, (1 << 64) - 1, bytes(BODY_BYTES_MAX)),
        Ask((1 << 64) - 1, (1 << 64) - 1, bytes(BODY_BYTES_MAX)),
        Reply((1 << 64) - 1, "c" * 900, bytes(BODY_BYTES_MAX), (1 << 64) - 1),
    ],
    ids=["submit", "ask", "reply"],
)
def test_the_largest_body_fits_into_a_frame(largest: AnyMessage) -> None:
    assert received(encode(largest)) == [largest]


# However it is cut.


def test_bytes_that_come_one_at_a_time_make_the_same_messages() -> None:
    data = encode_many(SAMPLES)

    assert received(data, cuts=range(1, len(data))) == list(SAMPLES)


def test_two_pieces_cut_anywhere_make_the_same_messages() -> None:
    data = encode_many(SAMPLES)

    for cut in range(len(data) + 1):
        assert received(data, cuts=[cut]) == list(SAMPLES)


@given(st.lists(any_message, max_size=6), st.data())
def test_pieces_of_any_size_make_the_same_messages(
    messages: list[AnyMessage], data: st.DataObject
) -> None:
    stream = encode_many(messages)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))

    assert received(stream, cuts=cuts) == messages


def test_a_message_comes_out_with_its_last_byte_and_not_before() -> None:
    frames = FrameReader()
    first, second = encode(Ping(1)), encode(Ping(2))

    early = frames.receive(first[:-1], EVERYTHING)
    late = frames.receive(first[-1:] + second[:3], EVERYTHING)
    was_between = frames.is_between
    last = frames.receive(second[3:], EVERYTHING)

    assert (early, late, last) == ([], [Ping(1)], [Ping(2)])
    assert not was_between
    assert frames.is_between


def test_a_mutable_piece_may_be_used_again_by_whoever_handed_it_over() -> None:
    frames = FrameReader()
    piece = bytearray(encode(Ping(1))[:-1])

    frames.receive(piece, EVERYTHING)
    piece[:] = bytes(len(piece))

    assert frames.receive(encode(Ping(1))[-1:], EVERYTHING) == [Ping(1)]


# All else is refused.


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc0",
        b"\x01",
        b"\x90",
        b"\x91\x01",
        b"\x92\x63\x01",
        b"\x92\x02\xa1a",
        b"\x92\x02\x01\x00",
        b"\x92\x04\xa1\xff",
        b"\x93\x02\x01" + b"\x91" * 100_000,
        b"\x92\x17\xdd\xff\xff\xff\xff",
        b"\x92\x1e\xc6\xff\xff\xff\xff",
    ],
    ids=[
        "nothing",
        "nil",
        "a number",
        "no tag",
        "a field missing",
        "an unknown tag",
        "text for a number",
        "junk behind it",
        "text that is not UTF-8",
        "nested beyond reason",
        "more queues than bytes",
        "more data than bytes",
    ],
)
def test_a_frame_that_holds_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        FrameReader().receive(framed(payload), EVERYTHING)


stretches: Final = st.one_of(
    any_message.map(encode), st.binary(max_size=80).map(framed), st.binary(max_size=60)
)


@given(st.lists(stretches, max_size=6), st.data())
def test_whatever_comes_is_what_the_slow_twin_makes_of_it_or_a_wire_error(
    parts: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    frames = FrameReader()
    messages: list[AnyMessage] = []

    try:
        for start, end in pairwise([0, *cuts, len(stream)]):
            messages += frames.receive(stream[start:end], EVERYTHING)
    except WireError:
        assert twin(stream) is None
    else:
        assert messages == twin(stream)


def twin(stream: bytes | bytearray) -> list[AnyMessage] | None:
    """The same with everything at hand; None when it is refused."""
    messages: list[AnyMessage] = []
    while len(stream) >= 4:
        size = sum(byte << shift for byte, shift in zip(stream, (24, 16, 8, 0), strict=False))
        if size > FRAME_BYTES_MAX:
            return None
        if len(stream) < 4 + size:
            break
        try:
            messages.append(msgspec.msgpack.decode(stream[4 : 4 + size], type=AnyMessage))
        except (ValueError, RecursionError):
            return None
        stream = stream[4 + size :]
    return messages


@given(st.binary(max_size=80))
def test_a_well_framed_garbage_is_refused_or_a_message(payload: bytes) -> None:
    try:
        messages = FrameReader().receive(framed(payload), EVERYTHING)
    except WireError:
        return

    assert [type(message) in KINDS for message in messages] == [True]


@given(any_message, st.data())
def test_a_changed_byte_does_no_more_than_the_slow_twin_says(
    message: AnyMessage, data: st.DataObject
) -> None:
    frame = bytearray(encode(message))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))

    try:
        messages = FrameReader().receive(frame, EVERYTHING)
    except WireError:
        assert twin(frame) is None
    else:
        assert messages == twin(frame)


def test_a_frame_over_the_limit_is_refused_by_its_length_alone() -> None:
    over = encode(Peer(bytes(94)))
    frames = FrameReader(frame_bytes_max=len(over) - 5)

    with pytest.raises(WireError, match="98 bytes; at most 97"):
        frames.receive(over[:4], EVERYTHING)


def test_a_frame_at_the_limit_is_taken() -> None:
    message = Peer(bytes(94))
    frame = encode(message)

    messages = FrameReader(frame_bytes_max=len(frame) - 4).receive(frame, EVERYTHING)

    assert messages == [message]


def test_a_message_larger_than_a_peer_would_take_is_not_sent() -> None:
    with pytest.raises(WireError):
        encode(Peer(bytes(FRAME_BYTES_MAX)))
    with pytest.raises(WireError):
        encode_many([Ping(1), Peer(bytes(FRAME_BYTES_MAX))])


def test_a_claimed_length_takes_no_memory() -> None:
    frames = FrameReader()
    tracemalloc.start()

    messages = frames.receive(FRAME_BYTES_MAX.to_bytes(4, "big") + b"\x92\x1e\xc6", EVERYTHING)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert messages == []
    assert peak < 100_000


def test_behind_a_broken_frame_nothing_is_read() -> None:
    frames = FrameReader()
    with pytest.raises(WireError):
        frames.receive(framed(b"\xc0"), EVERYTHING)

    with pytest.raises(AssertionError):
        frames.receive(encode(Ping(1)), EVERYTHING)


# The hello.


def test_a_hello_is_read_from_pieces_and_what_is_behind_it_is_kept() -> None:
    data = encode(HELLO) + encode(Ping(1))

    for cut in range(len(encode(HELLO))):
        reader = HelloReader()
        assert reader.receive(data[:cut]) is None
        assert reader.receive(data[cut:]) == (HELLO, encode(Ping(1)))


def test_a_hello_of_single_bytes_is_whole_with_its_last_one() -> None:
    reader = HelloReader()
    frame = encode(HELLO)

    heard = [reader.receive(frame[at : at + 1]) for at in range(len(frame))]

    assert heard == [None] * (len(frame) - 1) + [(HELLO, b"")]


@pytest.mark.parametrize(
    "data",
    [
        encode(Ping(1)),
        framed(b""),
        b"GET / HTTP/1.1\r\n",
        (HELLO_BYTES_MAX + 1).to_bytes(4, "big"),
        framed(b"\x98\x01\xa1\xff\x01\x03\xa1r\x01\x01\x01"),
    ],
    ids=["another message", "nothing", "a browser", "too long", "text that is not UTF-8"],
)
def test_a_link_that_begins_with_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        HelloReader().receive(data)


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_garbage_for_a_hello_is_refused_or_waited_on(pieces: list[bytes]) -> None:
    reader = HelloReader()

    try:
        heard = [reader.receive(piece) for piece in pieces]
    except WireError:
        return

    assert heard == [None] * len(pieces)


def test_a_hello_of_before_is_read_with_the_defaults_of_what_it_lacks() -> None:
    found = HelloReader().receive(bytes.fromhex(FIRST_HELLO))

    assert found == (Hello(REPLICA, 1, 3, "rookery", 1, 12, (1 << 64) - 1, 1, 1, ""), b"")


def test_the_longest_refusal_fits_into_a_hello() -> None:
    theirs = msgspec.structs.replace(THEIRS, cluster="\x00" * 3_000)

    reason = refusal(OURS, theirs)

    assert reason
    assert len(encode(msgspec.structs.replace(OURS, refusal=reason))) < HELLO_BYTES_MAX


# Who may use a link.

OURS: Final = make_hello(Member(shards=4), ROUTER, shard=3)
THEIRS: Final = make_hello(Member(shards=4, node=2), REPLICA, shard=3)


def test_a_hello_says_which_release_its_sender_is() -> None:
    versions = (OURS.wire_version, OURS.wire_oldest, OURS.op_version, OURS.op_oldest)

    assert versions == (WIRE_VERSION, WIRE_OLDEST, OP_VERSION, OP_OLDEST)
    assert (OURS.cluster, OURS.node, OURS.shards, OURS.refusal) == ("rookery", 1, 4, "")


OTHERS: Final[dict[str, tuple[Hello, str]]] = {
    "another cluster": (
        msgspec.structs.replace(THEIRS, cluster="nest"),
        (
            "the replica of node 2 belongs to cluster 'nest', and the router of node 1 to"
            " 'rookery': check the address and the data directory"
        ),
    ),
    "another number of shards": (
        msgspec.structs.replace(THEIRS, shards=8),
        (
            "the replica of node 2 has 8 shards, and the router of node 1 has 4: the nodes of a"
            " cluster have the same number; check the data directory"
        ),
    ),
    "another shard": (
        msgspec.structs.replace(THEIRS, shard=2),
        (
            "the replica of node 2 is for shard 2, and the router of node 1 for shard 3:"
            " check the address"
        ),
    ),
    "a mirror": (
        msgspec.structs.replace(THEIRS, role=MIRROR, shard=ALL_SHARDS),
        (
            "the mirror of node 2 is for all shards, and the router of node 1 for shard 3:"
            " check the address"
        ),
    ),
    "a role that has no links to ours": (
        msgspec.structs.replace(THEIRS, role=FOLLOWER),
        "the follower of node 2 has no links to the router of node 1: check the address",
    ),
    "a role of a later release": (
        msgspec.structs.replace(THEIRS, role="crow\nbar"),
        "the process of node 2 has no links to the router of node 1: check the address",
    ),
    "an older wire version": (
        msgspec.structs.replace(THEIRS, wire_version=WIRE_OLDEST - 1, cluster="nest"),
        (
            "the replica of node 2 is older: it has wire version 2, and the router of node 1 needs"
            f" 3 or later; upgrade node 2 to corvo {__version__!r}"
        ),
    ),
    "a newer wire version": (
        msgspec.structs.replace(THEIRS, wire_version=9, wire_oldest=WIRE_VERSION + 1),
        (
            "the router of node 1 is older: it has wire version 3, and the replica of node 2 needs"
            f" 4 or later; upgrade node 1 to corvo {__version__!r}"
        ),
    ),
    "an older op version": (
        msgspec.structs.replace(THEIRS, op_version=OP_OLDEST - 1),
        (
            "the replica of node 2 is older: it has op version 1, and the router of node 1 needs"
            f" 2 or later; upgrade node 2 to corvo {__version__!r}"
        ),
    ),
    "a newer op version": (
        msgspec.structs.replace(THEIRS, op_version=9, op_oldest=OP_VERSION + 1, release="2\n"),
        (
            f"the router of node 1 is older: it has op version {OP_VERSION}, and the replica of"
            f" node 2 needs {OP_VERSION + 1} or later; upgrade node 1 to corvo '2\\n'"
        ),
    ),
    "an older process of the same node": (
        msgspec.structs.replace(THEIRS, node=1, wire_version=WIRE_OLDEST - 1),
        (
            "the replica of node 1 is older: it has wire version 2, and the router of node 1 needs"
            " 3 or later; restart node 1"
        ),
    ),
}


def test_a_process_that_is_older_than_the_cluster_is_refused_by_both_ends() -> None:
    needing_more = needing(OURS, OP_VERSION + 1)
    joining = make_hello(Member(shards=4, node=0), JOINER, shard=3)

    reason = refusal(needing_more, THEIRS)

    assert needing(OURS, 1) == OURS
    assert reason == refusal(THEIRS, needing_more)
    assert reason.endswith(f"upgrade node 2 to corvo {__version__!r}")
    assert refusal(joining, needing_more) == (
        f"the node that starts is older: it has op version {OP_VERSION}, and the router of node 1"
        f" needs {OP_VERSION + 1} or later; upgrade it to corvo {__version__!r}"
    )


@pytest.mark.parametrize(("theirs", "reason"), OTHERS.values(), ids=OTHERS)
def test_a_link_is_refused_with_one_line_that_says_why(theirs: Hello, reason: str) -> None:
    assert refusal(OURS, theirs) == reason
    assert refusal(theirs, OURS), "the other end comes to the same end"


@pytest.mark.parametrize("name", [name for name in OTHERS if "older" in name or "newer" in name])
def test_both_ends_say_the_same_of_which_is_older(name: str) -> None:
    theirs, reason = OTHERS[name]

    assert refusal(theirs, OURS) == reason


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ROUTER, REPLICA),
        (FOLLOWER, REPLICA),
        (BACKUP, REPLICA),
        (MIRROR, REPLICA),
        (SHARD, REPLICA),
        (REPLICA, REPLICA),
        (ROUTER, MIRROR),
    ],
)
def test_every_kind_of_link_that_there_is_may_be_used(ours: str, theirs: str) -> None:
    dialled = msgspec.structs.replace(THEIRS, role=theirs)
    dialling = msgspec.structs.replace(OURS, role=ours)

    assert (refusal(dialling, dialled), refusal(dialled, dialling)) == ("", "")


@pytest.mark.parametrize(
    "theirs",
    [
        msgspec.structs.replace(THEIRS, wire_version=WIRE_VERSION + 1, op_version=OP_VERSION + 7),
        msgspec.structs.replace(THEIRS, wire_oldest=0, op_oldest=0),
    ],
)
def test_a_newer_peer_that_still_works_with_ours_is_taken(theirs: Hello) -> None:
    assert (refusal(OURS, theirs), refusal(theirs, OURS)) == ("", "")


def test_the_node_that_was_dialled_must_be_the_one_that_answers() -> None:
    assert refusal(OURS, THEIRS, node=2) == ""
    assert refusal(OURS, THEIRS, node=3) == (
        "the replica of node 2 answers at the address of node 3: check the address"
    )


def test_two_replicas_of_one_node_are_refused() -> None:
    ours = msgspec.structs.replace(THEIRS, node=1)

    assert refusal(ours, ours) == "two replicas of shard 3 are on node 1: number the nodes apart"


def test_a_process_of_the_first_version_is_refused_by_its_version() -> None:
    first = HelloReader().receive(bytes.fromhex(FIRST_HELLO))
    assert first is not None

    assert refusal(OURS, first[0]) == (
        "the replica of node 1 is older: it has wire version 1, and the router of node 1 needs 3 or"
        " later; restart node 1"
    )
