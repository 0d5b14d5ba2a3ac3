"""The bytes of a log entry: what is written is read again, and nothing else is taken for one."""

from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corvo.shard.state.entry import MAGIC, BadEntry, Record, Stamp, decode, encode

STAMPS: Final = st.builds(Stamp, now_ns=st.integers(0, 2**64 - 1), dice=st.integers(0, 2**32 - 1))
NUMBERS: Final = st.integers(1, 2**40)
RECORDS: Final = st.lists(st.tuples(NUMBERS, st.binary(max_size=300)), max_size=8)

STAMP: Final = Stamp(0x0102030405060708, 0xF1F2F3F4)
STAMP_BYTES: Final = b"\x00\x0c\x01\x02\x03\x04\x05\x06\x07\x08\xf1\xf2\xf3\xf4"

# Written out by hand, for a log lives longer than the code that wrote it.
GOLDEN: Final[dict[str, tuple[list[Record], bytes]]] = {
    "a stamp alone": ([], b"CB1\x01" + STAMP_BYTES),
    "one op": ([(1, b"{}")], b"CB1\x02" + STAMP_BYTES + b"\x01\x02{}"),
    "ops in their order": (
        [(3, b'{"a":1}'), (1, b"")],
        b"CB1\x03" + STAMP_BYTES + b'\x03\x07{"a":1}' + b"\x01\x00",
    ),
    "the largest number of one byte": (
        [(127, b"x" * 127)],
        b"CB1\x02" + STAMP_BYTES + b"\x7f\x7f" + b"x" * 127,
    ),
    "a number of two bytes": ([(128, b"x")], b"CB1\x02" + STAMP_BYTES + b"\x80\x01\x01x"),
    "a length of two bytes": (
        [(5, b"x" * 300)],
        b"CB1\x02" + STAMP_BYTES + b"\x05\xac\x02" + b"x" * 300,
    ),
    "a length of three bytes": (
        [(5, b"x" * 16_384)],
        b"CB1\x02" + STAMP_BYTES + b"\x05\x80\x80\x01" + b"x" * 16_384,
    ),
    "more than 127 records": (
        [(1, b"")] * 127,
        b"CB1\x80\x01" + STAMP_BYTES + b"\x01\x00" * 127,
    ),
}


@pytest.mark.parametrize(("records", "data"), GOLDEN.values(), ids=GOLDEN)
def test_an_entry_is_these_bytes(records: list[Record], data: bytes) -> None:
    encoded = encode(STAMP, records)

    assert encoded == data
    assert decode(data) == (STAMP, records)


@given(STAMPS, RECORDS)
@example(Stamp(0, 0), [])
@example(Stamp(2**64 - 1, 2**32 - 1), [(2**40, b"")])
def test_what_was_encoded_is_decoded_again(stamp: Stamp, records: list[Record]) -> None:
    data = encode(stamp, records)

    assert decode(data) == (stamp, records)


def test_records_may_come_from_anywhere_they_are_gone_through_once() -> None:
    records = [(1, b"a"), (2, b"b")]

    data = encode(STAMP, iter(records))

    assert decode(data) == (STAMP, records)


@given(STAMPS, RECORDS)
@example(STAMP, [(300, b"x" * 200)])
def test_no_part_of_an_entry_is_an_entry(stamp: Stamp, records: list[Record]) -> None:
    data = encode(stamp, records)

    for end in range(len(data)):
        with pytest.raises(BadEntry):
            decode(data[:end])


@given(STAMPS, RECORDS, st.binary(min_size=1, max_size=40))
def test_nothing_may_follow_an_entry(stamp: Stamp, records: list[Record], more: bytes) -> None:
    data = encode(stamp, records)

    with pytest.raises(BadEntry, match="follows the last record"):
        decode(data + more)


@given(st.binary(max_size=80), st.booleans())
def test_garbage_is_an_entry_or_a_bad_entry(garbage: bytes, is_begun: bool) -> None:
    data = MAGIC + garbage if is_begun else garbage

    try:
        stamp, records = decode(data)
    except BadEntry:
        return

    assert decode(encode(stamp, records)) == (stamp, records)


@given(STAMPS, RECORDS, st.data())
def test_an_entry_with_one_byte_changed_ends_in_nothing_worse(
    stamp: Stamp, records: list[Record], data: st.DataObject
) -> None:
    entry = bytearray(encode(stamp, records))
    at = data.draw(st.integers(0, len(entry) - 1))
    entry[at] = data.draw(st.integers(0, 255))

    try:
        changed, again = decode(bytes(entry))
    except BadEntry:
        return

    assert decode(encode(changed, again)) == (changed, again)


BAD: Final = {
    "nothing": b"",
    "another magic": b"CB2\x01" + STAMP_BYTES,
    "no records": b"CB1\x00",
    "an op and no stamp": b"CB1\x01\x01\x02{}",
    "a stamp that is not the first": b"CB1\x02\x01\x02{}" + STAMP_BYTES,
    "two stamps": b"CB1\x02" + STAMP_BYTES * 2,
    "a stamp of 11 bytes": b"CB1\x01\x00\x0b" + b"x" * 11,
    "a stamp of 13 bytes": b"CB1\x01\x00\x0d" + b"x" * 13,
    "more records than there are": b"CB1\x02" + STAMP_BYTES,
    "more records than there can be": b"CB1" + b"\xff" * 9 + b"\x01" + STAMP_BYTES,
    "a record longer than the rest": b"CB1\x02" + STAMP_BYTES + b"\x01\x03{}",
    "a record longer than any": b"CB1\x02" + STAMP_BYTES + b"\x01" + b"\xff" * 9 + b"\x01{}",
    "a number that does not end": b"CB1" + b"\x80" * 11,
    "a number of eleven bytes": b"CB1" + b"\x81" + b"\x80" * 9 + b"\x00" + STAMP_BYTES,
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_this_is_no_entry(data: bytes) -> None:
    with pytest.raises(BadEntry):
        decode(data)


def test_a_number_may_be_written_longer_than_it_need_be() -> None:
    data = b"CB1\x82\x00" + STAMP_BYTES + b"\x85\x00\x81\x80\x00x"

    assert decode(data) == (STAMP, [(5, b"x")])


@pytest.mark.parametrize("now_ns", [-1, 2**64])
def test_a_time_that_does_not_fit_is_a_bug(now_ns: int) -> None:
    with pytest.raises(OverflowError):
        encode(Stamp(now_ns), [])


def test_an_op_with_the_number_of_the_stamp_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="one stamp"):
        encode(STAMP, [(1, b"{}"), (0, b"{}")])
