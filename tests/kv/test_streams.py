"""A stream of files gives back what went in, however it is cut, and refuses everything else."""

from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.errors import StoreDamaged
from corvo.kv.streams import NAME_BYTES_MAX, PIECE_BYTES_MAX, Source, Unpacking, pack

SMALL = {"CURRENT": b"MANIFEST-000002\n", "000005.ldb": b"table" * 3, "empty": b""}

files = st.dictionaries(
    st.text("abc.-0", min_size=1, max_size=20), st.binary(max_size=300), max_size=4
)


def whole(contents: dict[str, bytes]) -> bytes:
    return b"".join(packed(contents))


def packed(contents: dict[str, bytes]) -> Iterable[bytes]:
    return pack(Source(name, len(data), partial(iter, [data])) for name, data in contents.items())


def unpacked(stream: Iterable[bytes]) -> dict[str, bytes]:
    unpacking = Unpacking(stream)
    found = {}
    while (following := unpacking.following()) is not None:
        name, size = following
        found[name] = b"".join(unpacking.data())
        assert len(found[name]) == size
    return found


@given(files, st.integers(1, 50))
def test_a_stream_gives_back_the_files_however_it_is_cut(
    contents: dict[str, bytes], step: int
) -> None:
    data = whole(contents)

    pieces = [data[start : start + step] for start in range(0, len(data), step)]

    assert unpacked(pieces) == contents


def test_empty_pieces_mean_nothing() -> None:
    pieces = [b"", *packed(SMALL), b"", b""]

    assert unpacked(pieces) == SMALL


def test_a_piece_is_never_longer_than_a_frame_can_carry() -> None:
    contents = {"big": bytes(3 * PIECE_BYTES_MAX + 7)}

    pieces = list(packed(contents))

    assert max(map(len, pieces)) == PIECE_BYTES_MAX
    assert unpacked(pieces) == contents


def test_any_changed_bit_is_damage() -> None:
    data = whole(SMALL)

    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            with pytest.raises(StoreDamaged):
                unpacked([bytes(changed)])


def test_any_end_that_comes_too_early_is_damage() -> None:
    data = whole(SMALL)

    for size in range(len(data)):
        with pytest.raises(StoreDamaged):
            unpacked([data[:size]])


@pytest.mark.parametrize("more", [[b"x"], [b"", b"x"]])
def test_anything_behind_the_end_is_damage(more: list[bytes]) -> None:
    with pytest.raises(StoreDamaged, match="continues after"):
        unpacked([whole(SMALL), *more])


def test_bytes_behind_the_end_in_the_same_piece_are_damage() -> None:
    with pytest.raises(StoreDamaged, match="continues after"):
        unpacked([whole(SMALL) + b"x"])


def test_pieces_lost_doubled_or_out_of_order_are_damage() -> None:
    contents = {str(number): bytes([number]) * 5 for number in range(4)}
    pieces = list(packed(contents))

    for at in range(1, len(pieces) - 1):
        lost = pieces[:at] + pieces[at + 1 :]
        doubled = pieces[:at] + pieces[at : at + 1] + pieces[at:]
        swapped = [*pieces[:at], pieces[at + 1], pieces[at], *pieces[at + 2 :]]
        for wrong in (lost, doubled, swapped):
            with pytest.raises(StoreDamaged):
                unpacked(wrong)


def test_a_source_that_is_not_as_long_as_it_said_is_a_bug() -> None:
    sources = [Source("short", 5, lambda: [b"four"])]

    with pytest.raises(AssertionError, match="short"):
        list(pack(sources))


@pytest.mark.parametrize("name", ["", "x" * (NAME_BYTES_MAX + 1)])
def test_a_name_that_no_file_system_takes_is_a_bug(name: str) -> None:
    with pytest.raises(AssertionError, match="not a name"):
        list(pack([Source(name, 0, list)]))
