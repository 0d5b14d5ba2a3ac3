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

from corvo.errors import WireError
from corvo.raft import codec
from corvo.raft.messages import AppendRequest, Entry, Kind
from corvo.wire import (
    BETWEEN_REPLICAS,
    BODY_BYTES_MAX,
    EVERYTHING,
    FRAME_BYTES_MAX,
    FROM_ROUTER,
    HELLO_BYTES_MAX,
    REPLICA,
    ROUTER,
    TO_ROUTER,
    WIRE_VERSION,
    AnyMessage,
    Ask,
    Busy,
    Changes,
    Follow,
    Frames,
    Goodbye,
    Happening,
    Happenings,
    Hello,
    KeysChanged,
    Leading,
    NotLeader,
    Opening,
    Pair,
    Peer,
    Ping,
    Pong,
    Reply,
    Reset,
    Scan,
    Scanned,
    Submit,
    WorkAvailable,
    encode,
    encode_many,
    refuse,
)

HELLO: Final = Hello(REPLICA, 1, 3, "rookery", WIRE_VERSION, 12, (1 << 64) - 1)

SAMPLES: Final[tuple[AnyMessage, ...]] = (
    HELLO,
    Ping(1),
    Pong(1 << 40),
    Goodbye("shutting down"),
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
)

GOLDEN: Final = Path(__file__).with_name("wire_frames_version_1.txt").read_text().splitlines()
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
    frames = Frames()
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
        (TO_ROUTER, {Reply, NotLeader, Busy, WorkAvailable, Leading, KeysChanged}),
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
            Frames().receive(encode(sample), group)  # type: ignore[arg-type]
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
    frames = Frames()
    first, second = encode(Ping(1)), encode(Ping(2))

    early = frames.receive(first[:-1], EVERYTHING)
    late = frames.receive(first[-1:] + second[:3], EVERYTHING)
    was_between = frames.is_between
    last = frames.receive(second[3:], EVERYTHING)

    assert (early, late, last) == ([], [Ping(1)], [Ping(2)])
    assert not was_between
    assert frames.is_between


def test_a_mutable_piece_may_be_used_again_by_whoever_handed_it_over() -> None:
    frames = Frames()
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
        Frames().receive(framed(payload), EVERYTHING)


stretches: Final = st.one_of(
    any_message.map(encode), st.binary(max_size=80).map(framed), st.binary(max_size=60)
)


@given(st.lists(stretches, max_size=6), st.data())
def test_whatever_comes_is_what_the_slow_twin_makes_of_it_or_a_wire_error(
    parts: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    frames = Frames()
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
        messages = Frames().receive(framed(payload), EVERYTHING)
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
        messages = Frames().receive(frame, EVERYTHING)
    except WireError:
        assert twin(frame) is None
    else:
        assert messages == twin(frame)


def test_a_frame_over_the_limit_is_refused_by_its_length_alone() -> None:
    over = encode(Peer(bytes(94)))
    frames = Frames(frame_bytes_max=len(over) - 5)

    with pytest.raises(WireError, match="98 bytes; at most 97"):
        frames.receive(over[:4], EVERYTHING)


def test_a_frame_at_the_limit_is_taken() -> None:
    message = Peer(bytes(94))
    frame = encode(message)

    messages = Frames(frame_bytes_max=len(frame) - 4).receive(frame, EVERYTHING)

    assert messages == [message]


def test_a_message_larger_than_a_peer_would_take_is_not_sent() -> None:
    with pytest.raises(WireError):
        encode(Peer(bytes(FRAME_BYTES_MAX)))
    with pytest.raises(WireError):
        encode_many([Ping(1), Peer(bytes(FRAME_BYTES_MAX))])


def test_a_claimed_length_takes_no_memory() -> None:
    frames = Frames()
    tracemalloc.start()

    messages = frames.receive(FRAME_BYTES_MAX.to_bytes(4, "big") + b"\x92\x1e\xc6", EVERYTHING)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert messages == []
    assert peak < 100_000


def test_behind_a_broken_frame_nothing_is_read() -> None:
    frames = Frames()
    with pytest.raises(WireError):
        frames.receive(framed(b"\xc0"), EVERYTHING)

    with pytest.raises(AssertionError):
        frames.receive(encode(Ping(1)), EVERYTHING)


# The hello.


def test_a_hello_is_read_from_pieces_and_what_is_behind_it_is_kept() -> None:
    data = encode(HELLO) + encode(Ping(1))

    for cut in range(len(encode(HELLO))):
        opening = Opening()
        assert opening.receive(data[:cut]) is None
        assert opening.receive(data[cut:]) == (HELLO, encode(Ping(1)))


def test_a_hello_of_single_bytes_is_whole_with_its_last_one() -> None:
    opening = Opening()
    frame = encode(HELLO)

    heard = [opening.receive(frame[at : at + 1]) for at in range(len(frame))]

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
        Opening().receive(data)


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_garbage_for_a_hello_is_refused_or_waited_on(pieces: list[bytes]) -> None:
    opening = Opening()

    try:
        heard = [opening.receive(piece) for piece in pieces]
    except WireError:
        return

    assert heard == [None] * len(pieces)


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        (HELLO, "another replica of node 1: two nodes have the same number"),
        (msgspec.structs.replace(HELLO, node=2), None),
        (msgspec.structs.replace(HELLO, role=ROUTER), None),
        (msgspec.structs.replace(HELLO, node=2, cluster="nest"), "cluster 'nest', not 'rookery'"),
        (msgspec.structs.replace(HELLO, node=2, shard=4), "shard 4, not 3"),
        (
            msgspec.structs.replace(HELLO, node=2, wire_version=0, cluster="nest"),
            "wire version 0; at least 1 is spoken here",
        ),
        (msgspec.structs.replace(HELLO, node=2, wire_version=WIRE_VERSION + 1), None),
        (msgspec.structs.replace(HELLO, node=2, op_version=13, config_digest=0), None),
    ],
)
def test_two_talk_unless_what_differs_would_do_harm(theirs: Hello, reason: str | None) -> None:
    assert refuse(HELLO, theirs) == reason
