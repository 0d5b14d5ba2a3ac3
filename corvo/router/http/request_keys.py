"""Request keys: the names that callers give their requests, as ops and shards know them.

A client's key belongs to the API key that showed it, and to what the request is about: a queue, the
jobs that it names, or one of the other subjects below. An op has one text that is made of all
three, so the state machine needs to know nothing of this, and keys of two callers never meet.

A request is sent as parts, each to a shard. Each part has a key of its own that does not depend on
the shards: the same request again has the same parts.
"""

from hashlib import blake2b
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from corvo.protocol.ops.base import Op, encode_json
from corvo.router.http.bodies import REQUEST_KEY_MAX
from corvo.router.http.messages import Request, bad_field

_HASH_BYTES: Final = 24

OpT = TypeVar("OpT", bound=Op)


class OwnedKey(msgspec.Struct, frozen=True):
    """A client's key, and the API key that showed it."""

    name: str = ""
    """As the client has it; empty for a request without one."""
    owner: str = ""
    """The hash of the API key; empty for the admin key, and for callers of an open server."""

    def of(self, *subject: str | int) -> str:
        """The key of what is done to a subject: `queue` and its name, `jobs` and their ids."""
        if not self.name:
            return ""
        whole = encode_json((self.owner, self.name, *subject))
        return blake2b(whole, digest_size=_HASH_BYTES).hexdigest()

    def on(self, op: OpT, *subject: str | int, earlier: str = "") -> OpT:
        """An op under the key of its subject; without a key, the op as it is.

        `earlier` is the key that the op had before version 2 of the ops, if not the client's.
        """
        if not self.name:
            return op
        return replace(op, request_key=self.of(*subject), earlier_key=earlier or self.name)


NO_KEY: Final = OwnedKey()


def request_key(request: Request, in_body: str | None = None) -> OwnedKey:
    """The client's name for this request, in the header or the body. Raises `Problem`."""
    header = request.headers.get("idempotency-key")
    if not (header or in_body):
        return NO_KEY
    if in_body and header and in_body != header:
        raise bad_field(
            "request_key", "request_key and Idempotency-Key differ: send only one of them"
        )
    name = header or in_body or ""
    field = "Idempotency-Key" if header is not None else "request_key"
    if len(name) > REQUEST_KEY_MAX:
        raise bad_field(field, f"{field}: expected at most {REQUEST_KEY_MAX} characters")
    if not (name.isascii() and name.isprintable()):
        raise bad_field(field, f"{field}: expected printable ASCII characters")
    return OwnedKey(name, request.caller.key_hash)


def derived(request_key: str, number: int) -> str:
    """The key of one part of an op that has a key."""
    text = f"{request_key}\n{number}"
    return blake2b(text.encode(), digest_size=_HASH_BYTES).hexdigest()


def earlier_key_of(name: str, places: list[int], count: int) -> str:
    """The key that an op with these items of a request had before version 2 of the ops."""
    if not name or len(places) == count:
        return name
    text = f"{name}\n{','.join(map(str, places))}"
    return blake2b(text.encode(), digest_size=_HASH_BYTES).hexdigest()
