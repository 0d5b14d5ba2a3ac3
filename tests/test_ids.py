"""Ids say where a thing was made, sort by age and are never given twice."""

from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.ids import ORDINALS, Mint, shard_of

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
NOW_NS: Final = 1_700_000_000_000_000_000

PLACES: Final = st.tuples(
    st.integers(0, 2**48 - 1), st.integers(0, 2**55 - 1), st.integers(0, ORDINALS - 1)
)
"""Milliseconds, log index, and the number within an entry."""


def minted(ms: int, index: int, ordinal: int, *, shard: int = 3) -> str:
    mint = Mint(shard, ms * 1_000_000, index)
    mint._ordinal = ordinal
    return mint.job()


def read(job_id: str) -> tuple[int, int, int]:
    """What an id says, bit by bit."""
    number = 0
    for letter in job_id[-26:]:
        number = number * 32 + ALPHABET.index(letter)
    return number >> 80, number >> 25 & (1 << 55) - 1, number & (1 << 25) - 1


def test_an_id_is_these_letters() -> None:
    first = Mint(3, NOW_NS, 7)
    last = Mint(0, (2**48 - 1) * 1_000_000, 2**55 - 1)
    last._ordinal = ORDINALS - 1

    assert first.job() == "s03_job_01HF7YAT000000000000700000"
    assert last.job() == "s00_job_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"


@given(PLACES)
def test_an_id_says_when_it_was_made_in_which_entry_and_as_what(
    place: tuple[int, int, int],
) -> None:
    job_id = minted(*place)

    assert read(job_id) == place
    assert job_id.startswith("s03_job_")
    assert len(job_id) == 34


@given(PLACES, PLACES)
def test_ids_of_a_shard_sort_as_they_were_made(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    is_before = minted(*one) < minted(*other)

    assert is_before == (one < other)


def test_thousands_of_ids_of_a_few_entries_are_unique_and_ascending() -> None:
    mints = [Mint(3, NOW_NS + later, 5 + later) for later in range(4)]

    made = [mint.job() for mint in mints for _ in range(3_000)]

    assert len(set(made)) == len(made)
    assert all(before < after for before, after in pairwise(made))


def test_every_kind_of_thing_is_numbered_in_one_row() -> None:
    mint = Mint(12, NOW_NS, 9)

    made = [mint.mint("batch"), mint.job(), mint.mint("sched"), mint.mint("job")]

    assert [name.rpartition("_")[0] for name in made] == [
        "s12_batch",
        "s12_job",
        "s12_sched",
        "s12_job",
    ]
    assert [read(name)[2] for name in made] == [0, 1, 2, 3]


def test_two_shards_never_make_the_same_id() -> None:
    made = {Mint(shard, NOW_NS, 1).job() for shard in range(200)}

    assert len(made) == 200


def test_two_replicas_make_the_same_ids() -> None:
    one, other = Mint(3, NOW_NS, 9), Mint(3, NOW_NS, 9)

    assert [one.job() for _ in range(100)] == [other.job() for _ in range(100)]


def test_more_than_an_entry_can_number_is_a_bug() -> None:
    mint = Mint(3, NOW_NS, 9)
    mint._ordinal = ORDINALS - 1
    mint.mint("job")

    with pytest.raises(AssertionError, match="more things"):
        mint.mint("job")
    with pytest.raises(IndexError):
        mint.job()


# Which shard an id names.


@given(st.integers(0, 200) | st.integers(0, 10**9 - 1), st.sampled_from(["job", "batch", "sched"]))
def test_an_id_names_the_shard_that_made_it(shard: int, kind: str) -> None:
    made = Mint(shard, NOW_NS, 1).mint(kind)

    assert shard_of(made) == shard


CHOSEN: Final = (
    "",
    "_",
    "s",
    "s_",
    "s3_job_1",
    "s03",
    "03_job_1",
    "S03_job_1",
    "sxx_job_1",
    "s-1_job_1",
    "s+1_job_1",
    "s 1_job_1",
    "s1.5_job_1",
    "s007_job_1",
    "s00000_job_1",
    "s\u0660\u0663_job_1",
    "s\u00b2\u00b2_job_1",
    "job_01HF7YAT00",
    "order-17",
    "s" + "1" * 5_000 + "_",
)


@pytest.mark.parametrize("identifier", CHOSEN, ids=lambda it: it[:12])
def test_an_id_that_somebody_chose_names_no_shard(identifier: str) -> None:
    assert shard_of(identifier) is None


@given(st.text(), st.text("0123456789s_", max_size=14))
def test_whatever_an_id_is_it_names_a_shard_or_none(chosen: str, similar: str) -> None:
    for identifier in (chosen, similar, f"s{similar}"):
        shard = shard_of(identifier)

        assert shard is None or identifier.startswith(f"s{shard:02d}_")
