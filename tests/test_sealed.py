"""Small files of JSON with a checksum: every change is noticed."""

import msgspec
import pytest

from corvo.sealed import seal, unseal


class Kept(msgspec.Struct, frozen=True):
    name: str
    number: int = 0
    more: tuple[int, ...] = ()


KEPT = Kept("rook", 1_042, (1, 2))


@pytest.mark.parametrize("pretty", [False, True])
def test_what_was_sealed_can_be_read_again(*, pretty: bool) -> None:
    encoded = msgspec.json.encode(KEPT)

    sealed = seal(msgspec.json.format(encoded) + b"\n" if pretty else encoded)

    assert unseal(sealed, Kept) == KEPT
    assert msgspec.json.decode(sealed)["number"] == 1_042


def test_a_file_of_an_earlier_version_has_no_checksum() -> None:
    assert unseal(msgspec.json.encode(KEPT) + b"\n", Kept) == KEPT


def test_no_flipped_bit_changes_what_is_read() -> None:
    sealed = seal(msgspec.json.encode(KEPT))
    refused = 0
    for bit in range(8 * len(sealed)):
        data = bytearray(sealed)
        data[bit // 8] ^= 1 << (bit % 8)
        try:
            assert unseal(bytes(data), Kept) == KEPT
        except (msgspec.DecodeError, UnicodeError):
            refused += 1

    # In the name of the last field a change has no effect.
    assert refused > 8 * len(sealed) * 3 // 4


def test_a_file_that_was_cut_is_refused() -> None:
    sealed = seal(msgspec.json.encode(KEPT))
    for end in range(len(sealed) - 1):
        with pytest.raises(msgspec.DecodeError):
            unseal(sealed[:end], Kept)
