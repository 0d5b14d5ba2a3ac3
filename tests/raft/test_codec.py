"""Messages as bytes: what goes in comes out, and whatever else comes in is refused by name."""

import struct
import zlib
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.raft import AnyMessage, Entry, Kind, Membership, Message, Snapshot
from corvo.raft.codec import FRAME_BYTES_MAX, VERSION, Codec
from corvo.raft.errors import FrameError
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
from corvo.raft.settings import Settings

CLUSTER: Final = 0x0102030405060708
HEAD: Final = 15  # bytes before the message: magic, version, cluster, checksum

MEMBERSHIP: Final = Membership((1, 2), (2, 3), (4,), (3,), auto_leave=True, pins=((2, 9),))
SNAPSHOT: Final = Snapshot(7, 2, MEMBERSHIP, 300, b"\xaa" * 4)

SAMPLES: Final[tuple[AnyMessage, ...]] = (
    VoteRequest(1, 2, 3, 4, last_index=5, last_term=2, pre=True, forced=False),
    VoteRequest(1, 2, 3, 4, 5, 2, pre=False, forced=True, commit=300, commit_term=2),
    VoteResponse(2, 1, 3, 1 << 63, pre=False, granted=True, commit=6, commit_term=2),
    AppendRequest(1, 2, 3, 4, 5, 2, (Entry(6, 3, Kind.NOOP, b""),), commit=5),
    AppendRequest(
        1,
        2,
        3,
        4,
        previous_index=5,
        previous_term=2,
        entries=(Entry(6, 3, Kind.NORMAL, b"data"), Entry(7, 3, Kind.CONFIG, b"\x92\x90\xc3")),
        commit=5,
    ),
    AppendResponse(2, 1, 3, 4, index=7),
    AppendResponse(2, 1, 3, 4, 7, True, 6, 2, 5, True),
    Heartbeat(1, 2, 3, 4, 5, 6, acknowledged=7, acknowledged_term=2, acknowledged_by=1 << 63),
    HeartbeatResponse(2, 1, 3, 4, round=6, commit=5),
    TimeoutNow(1, 2, 3, 4),
    TransferRequest(2, 1, 3, 4, heir=3),
    ReadRequest(2, 1, 3, 4, context=1 << 61),
    ReadResponse(1, 2, 3, 4, context=1 << 61, index=9, index_term=2),
    SnapshotOffer(1, 2, 3, 4, snapshot=SNAPSHOT, goal=9),
    SnapshotPull(2, 1, 3, 4, snapshot=SNAPSHOT, offset=100),
    SnapshotChunk(1, 2, 3, 4, SNAPSHOT, offset=100, data=b"piece", checksum=0xFFFFFFFF),
)

GOLDEN: Final = Path(__file__).with_name("frames_version_1.txt").read_text().splitlines()
"""The frame of each sample. These bytes are on the wires and change only with `VERSION`."""

HEARTBEAT_BEFORE: Final = "4352010102030405060708f66700e19705010203040506"
"""A heartbeat before it had the three fields about acknowledgements."""

numbers = st.integers(0, (1 << 64) - 1)
blobs = st.binary(max_size=50)
ids = st.lists(st.integers(1, 20), max_size=4, unique=True).map(lambda some: tuple(sorted(some)))
pins = st.lists(st.tuples(numbers, numbers), max_size=2).map(tuple)
memberships = st.builds(Membership, ids, ids, ids, ids, st.booleans(), pins)
entries = st.lists(
    st.builds(Entry, numbers, numbers, st.sampled_from(Kind), blobs), max_size=4
).map(tuple)
snapshots = st.builds(Snapshot, numbers, numbers, memberships, numbers, blobs)

FIELDS: Final[dict[object, st.SearchStrategy[object]]] = {
    int: numbers,
    bool: st.booleans(),
    bytes: blobs,
    Snapshot: snapshots,
    tuple[Entry, ...]: entries,
}
"""How to fill a field, by its type: a message with a new kind of field has to add it here."""


def any_message() -> st.SearchStrategy[AnyMessage]:
    """Every type there is: a new one joins by being a message."""
    return st.one_of([_filled(kind) for kind in Message.__subclasses__()])


def _filled(kind: type[Message]) -> st.SearchStrategy[AnyMessage]:
    fields = [FIELDS[field.type] for field in msgspec.structs.fields(kind)]
    return st.tuples(*fields).map(lambda values: kind(*values))  # type: ignore[arg-type,return-value]


def frame_of(payload: bytes, *, cluster: int = CLUSTER, version: int = VERSION) -> bytes:
    """A frame whose checksum is right, whatever is in it."""
    head = struct.pack(">2sBQ", b"CR", version, cluster)
    return head + struct.pack(">I", zlib.crc32(head + payload)) + payload


def refusal(frame: bytes, codec: Codec | None = None) -> str:
    """Why this is no message."""
    with pytest.raises(FrameError) as caught:
        (codec or Codec(CLUSTER)).decode(frame)
    assert str(caught.value).startswith(f"{caught.value.reason}: ")
    return caught.value.reason


def by_name(sample: AnyMessage) -> str:
    """The id of a parametrised test."""
    return type(sample).__name__


# ---- What goes in comes out.


@given(any_message())
def test_every_message_comes_back_as_it_was(message: AnyMessage) -> None:
    codec = Codec(CLUSTER)

    back = codec.decode(codec.encode(message))

    assert back == message
    assert type(back) is type(message)


@pytest.mark.parametrize(("sample", "golden"), list(zip(SAMPLES, GOLDEN, strict=True)))
def test_the_bytes_of_version_one_never_change(sample: AnyMessage, golden: str) -> None:
    codec = Codec(CLUSTER)

    assert codec.encode(sample).hex() == golden
    assert codec.decode(bytes.fromhex(golden)) == sample


def test_every_message_has_golden_bytes_and_a_tag_of_its_own() -> None:
    kinds = Message.__subclasses__()

    assert {type(sample) for sample in SAMPLES} == set(kinds)
    assert [kind.__struct_config__.tag for kind in kinds] == list(range(1, 14))
    assert VERSION == 1


def test_a_message_of_a_later_release_with_one_more_field_is_still_read() -> None:
    known = HeartbeatResponse(1, 2, 3, 4, round=6, commit=5)

    assert Codec(CLUSTER).decode(frame_of(b"\x98\x06\x01\x02\x03\x04\x06\x05\xa3new")) == known


def test_a_message_of_an_earlier_release_without_the_fields_that_have_a_default_is_read() -> None:
    known = HeartbeatResponse(1, 2, 3, 4, round=6)

    assert Codec(CLUSTER).decode(frame_of(b"\x96\x06\x01\x02\x03\x04\x06")) == known


def test_a_heartbeat_of_a_release_that_says_nothing_of_acknowledgements_is_read() -> None:
    known = Heartbeat(1, 2, 3, 4, commit=5, round=6)

    assert Codec(CLUSTER).decode(bytes.fromhex(HEARTBEAT_BEFORE)) == known


# ---- What else comes in.


@pytest.mark.parametrize("sample", SAMPLES, ids=by_name)
def test_a_frame_that_ends_early_is_refused_wherever_it_does(sample: AnyMessage) -> None:
    frame = Codec(CLUSTER).encode(sample)

    reasons = [refusal(frame[:length]) for length in range(len(frame))]

    assert reasons == ["short"] * HEAD + ["checksum"] * (len(frame) - HEAD)


@pytest.mark.parametrize("sample", SAMPLES, ids=by_name)
def test_a_frame_with_any_one_bit_flipped_is_refused(sample: AnyMessage) -> None:
    frame = Codec(CLUSTER).encode(sample)
    named = ["magic"] * 16 + ["version"] * 8 + ["cluster"] * 64

    for bit in range(len(frame) * 8):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        expected = named[bit] if bit < len(named) else "checksum"
        assert refusal(bytes(flipped)) == expected, f"bit {bit}"


@pytest.mark.parametrize("sample", SAMPLES, ids=by_name)
def test_a_frame_with_something_behind_it_is_refused(sample: AnyMessage) -> None:
    frame = Codec(CLUSTER).encode(sample)

    assert refusal(frame + b"\x00") == "checksum"
    assert refusal(frame_of(frame[HEAD:] + b"\x00")) == "message"
    assert refusal(frame_of(frame[HEAD:] * 2)) == "message"


@given(st.binary(max_size=100))
def test_garbage_is_refused(garbage: bytes) -> None:
    assert refusal(garbage) in {"short", "magic"}


@given(st.binary(max_size=100))
def test_garbage_with_a_right_checksum_is_a_message_or_refused(garbage: bytes) -> None:
    try:
        message = Codec(CLUSTER).decode(frame_of(garbage))
    except FrameError as refused:
        assert refused.reason == "message"  # noqa: PT017 - a value is as good an outcome
    else:
        assert isinstance(message, Message)


@given(any_message(), st.data())
def test_a_message_damaged_before_its_checksum_was_made_is_a_message_or_refused(
    message: AnyMessage, data: st.DataObject
) -> None:
    payload = bytearray(Codec(CLUSTER).encode(message)[HEAD:])
    position = data.draw(st.integers(0, len(payload) - 1))
    payload[position] = data.draw(st.integers(0, 255))

    try:
        back = Codec(CLUSTER).decode(frame_of(bytes(payload)))
    except FrameError as refused:
        assert refused.reason == "message"  # noqa: PT017 - a value is as good an outcome
    else:
        assert isinstance(back, Message)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc0", id="nil"),
        pytest.param(b"\x80", id="a map"),
        pytest.param(b"\x90", id="an empty array"),
        pytest.param(b"\x95\x0e\x01\x02\x03\x04", id="a tag that is not given out"),
        pytest.param(b"\x95\x00\x01\x02\x03\x04", id="tag zero"),
        pytest.param(b"\x94\x07\x01\x02\x03", id="a field too few"),
        pytest.param(b"\x95\x07\x01\x02\x03\xa14", id="text for a number"),
        pytest.param(b"\x95\x07\x01\x02\x03\xcb" + bytes(8), id="a float for a number"),
        pytest.param(b"\x95\x07\x01\x02\x03\xc3", id="a truth for a number"),
        pytest.param(b"\xdd\xff\xff\xff\xff\x07", id="an array longer than the frame"),
        pytest.param(
            b"\x99\x03\x01\x02\x03\x04\x05\x02\x91\x94\x06\x03\x07\xc4\x00\x05", id="entry kind 7"
        ),
        pytest.param(
            b"\x99\x03\x01\x02\x03\x04\x05\x02\x91\x94\x06\x03\x00\xc6\xff\xff\xff\xff\x05",
            id="data longer than the frame",
        ),
    ],
)
def test_well_formed_frames_without_a_message_are_refused(payload: bytes) -> None:
    assert refusal(frame_of(payload)) == "message"


def test_a_frame_with_a_deeply_nested_extra_field_is_refused() -> None:
    payload = b"\x96\x07\x01\x02\x03\x04" + b"\x91" * 100_000 + b"\x00"

    assert refusal(frame_of(payload)) == "message"


@pytest.mark.conformance("X34")
@pytest.mark.parametrize("cluster", [0, CLUSTER ^ 1, (1 << 64) - 1])
def test_x34_a_frame_of_another_cluster_is_refused(cluster: int) -> None:
    frame = Codec(cluster).encode(TimeoutNow(1, 2, 3, 4))

    assert refusal(frame) == "cluster"
    with pytest.raises(FrameError, match=f"from cluster {cluster:#x}, not {CLUSTER:#x}"):
        Codec(CLUSTER).decode(frame)


@pytest.mark.conformance("X34")
@pytest.mark.parametrize("version", [0, 2, 255])
def test_x34_a_frame_of_another_version_is_refused(version: int) -> None:
    payload = Codec(CLUSTER).encode(TimeoutNow(1, 2, 3, 4))[HEAD:]

    assert refusal(frame_of(payload, version=version)) == "version"


# ---- Size.


def test_a_message_too_large_for_a_frame_is_refused_where_it_is_made() -> None:
    def chunk(size: int) -> SnapshotChunk:
        return SnapshotChunk(1, 2, 3, 4, SNAPSHOT, 0, bytes(size), 0)

    codec = Codec(CLUSTER, bytes_max=1000)
    around = len(codec.encode(chunk(500))) - 500

    assert len(codec.encode(chunk(1000 - around))) == 1000
    with pytest.raises(FrameError, match=f"^oversize: {1001} bytes; at most 1000"):
        codec.encode(chunk(1001 - around))


def test_a_frame_too_large_is_refused_unread() -> None:
    codec = Codec(CLUSTER, bytes_max=1000)
    frame = Codec(CLUSTER).encode(SnapshotChunk(1, 2, 3, 4, SNAPSHOT, 0, bytes(1000), 0))

    assert refusal(frame, codec) == "oversize"
    assert refusal(bytes(1001), codec) == "oversize"


def test_the_largest_entry_that_settings_allow_fits_into_a_frame() -> None:
    settings = Settings(replica=1)
    largest = Entry(1 << 62, 1 << 62, Kind.NORMAL, bytes(settings.entry_bytes_max))
    message = AppendRequest(1, 2, 1 << 62, (1 << 64) - 1, 1 << 62, 1 << 62, (largest,), 1 << 62)

    assert len(Codec(CLUSTER).encode(message)) <= FRAME_BYTES_MAX
