"""Which shard owns a queue: for ever the same, and the same as Go's hash says."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.placement import fnv32a, shard_of_queue

# Published with the algorithm (draft-eastlake-fnv), or computed by Go's `hash/fnv`.
VECTORS: Final = {
    "": 0x811C9DC5,
    "a": 0xE40C292C,
    "b": 0xE70C2DE5,
    "f": 0xE30C2799,
    "fo": 0x6222E842,
    "foo": 0xA9F37ED7,
    "foob": 0x3F5076EF,
    "fooba": 0x39AAA18A,
    "foobar": 0xBF9CF968,
}


@pytest.mark.parametrize(("name", "value"), VECTORS.items())
def test_the_hash_is_fnv_1a_of_32_bits(name: str, value: int) -> None:
    assert fnv32a(name) == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_hash_is_that_of_the_utf_8_as_arithmetic_without_a_bound_has_it(name: str) -> None:
    value = 2_166_136_261
    for byte in name.encode():
        value = ((value ^ byte) * 16_777_619) % 2**32

    assert fnv32a(name) == value


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 64))
def test_a_queue_lives_in_one_of_the_shards(queue: str, shards: int) -> None:
    shard = shard_of_queue(queue, shards)

    assert shard == fnv32a(queue) % shards
    assert 0 <= shard < shards


def test_queues_stay_where_they_are() -> None:
    # Written out: a queue that is looked for elsewhere is a queue that was lost.
    places = {name: shard_of_queue(name, 4) for name in VECTORS}

    assert places == {
        "": 1,
        "a": 0,
        "b": 1,
        "f": 1,
        "fo": 2,
        "foo": 3,
        "foob": 3,
        "fooba": 2,
        "foobar": 0,
    }


def test_queues_are_spread_about_evenly() -> None:
    places = [shard_of_queue(f"queue-{number}", 4) for number in range(10_000)]

    assert all(2_200 < places.count(shard) < 2_800 for shard in range(4))


def test_a_namespace_is_part_of_the_name() -> None:
    places = {shard_of_queue(f"{space}::mail", 64) for space in ("a", "b", "c", "d")}

    assert len(places) > 1


def test_one_shard_owns_every_queue() -> None:
    assert {shard_of_queue(name, 1) for name in VECTORS} == {0}


def test_no_shards_at_all_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        shard_of_queue("mail", 0)
