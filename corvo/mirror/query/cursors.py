"""Cursors of searches: where a page begins or ends, as text that clients send back.

A cursor is a place in an order, not a number of rows: what comes in or goes out elsewhere does not
move it. It knows the filter and the order that it was made for.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from corvo.mirror.query.terms import NotAnswered, encode_json
from corvo.protocol.questions import Filter

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
Key: TypeAlias = tuple[str | Number | None, ...]
"""By what a job is ordered: what is sorted by, when it was created, its id, its shard."""
Way: TypeAlias = Literal["after", "from", "before", "until"]
"""The page behind a place or the one before it; `from` and `until` have what is there, too."""

_VERSION: Final = 1
_DIGEST_BYTES: Final = 8
_UNKNOWN: Final = "unknown cursor; send the cursor of an answer, or leave it out for the first page"


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One cursor."""

    version: int
    digest: bytes
    way: Way
    key: Annotated[tuple[str | Number | None, ...], msgspec.Meta(max_length=4)]
    """Empty: the very beginning."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Cursor).decode


def digest_of(given: Filter, *words: str) -> bytes:
    """What a cursor knows of a filter, and of what else its place depends on."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    digest.update(encode_json(given))
    digest.update(encode_json(words))
    return digest.digest()


def write_cursor(digest: bytes, way: Way, key: Key) -> str:
    """A cursor for a client."""
    written = _encode(Cursor(_VERSION, digest, way, key))
    return urlsafe_b64encode(written).decode().rstrip("=")


def read_cursor(text: str, digest: bytes, key_types: tuple[type | tuple[type, ...], ...]) -> Cursor:
    """What a client sent as a cursor. Raises `NotAnswered`."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        cursor = _decode(urlsafe_b64decode(padded))
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise _bad(_UNKNOWN) from None
    if cursor.version != _VERSION:
        raise _bad("the cursor is of another version; start with the first page")
    if cursor.digest != digest:
        raise _bad("the cursor belongs to another filter or order; start with the first page")
    fits = len(cursor.key) in {0, len(key_types)} and all(map(isinstance, cursor.key, key_types))
    if not fits:
        raise _bad(_UNKNOWN)
    return cursor


def _bad(error: str) -> NotAnswered:
    return NotAnswered("bad_cursor", f"cursor: {error}", "cursor")
