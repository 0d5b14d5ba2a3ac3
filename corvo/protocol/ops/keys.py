"""Ops on API keys. Shard 0 stores the keys, and routers read them there.

A key itself is never sent here and never in the log: its hash is stored, and a router looks a key
up by its hash.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from corvo.model import DEFAULT_NAMESPACE, ROLES
from corvo.protocol.ops.base import ITEMS_MAX, Limits, Name, Nanos, Rejected, TypedOp, bad_request
from corvo.protocol.ops.checks import bad_name

HOME: Final = 0
"""The shard that stores them: there is one list, with one order of changes."""

KEYS_MAX: Final = 10_000
"""Largest number of keys: every router has all of them in memory."""

SCOPE_MAX: Final = 100
"""Names and prefixes of queues that one key may list."""

KeyHash: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
"""The length is checked because `$` accepts a line feed at the end."""


class KeyDone(msgspec.Struct, frozen=True):
    """The result for a key."""

    key_hash: str
    status: str
    keys: int  # number of keys now


class KeyOp(TypedOp[KeyDone | Rejected], frozen=True, kw_only=True):
    """An op on a key."""

    key_hash: KeyHash


class UpsertAPIKey(KeyOp, frozen=True, kw_only=True):
    """Create a key, or change its rights."""

    NUMBER = 38
    name: Name
    role: Name
    namespace: Name = DEFAULT_NAMESPACE
    queue_scope: Annotated[tuple[Name, ...], msgspec.Meta(max_length=ITEMS_MAX)] = ()
    enabled: bool = True
    expires_ns: Nanos = 0
    is_early: bool = False
    """Whether it is for an open server, which stays open. It counts only while all keys are so."""

    def check(self, limits: Limits) -> Rejected | None:
        """Refuse an invalid key."""
        if self.role not in ROLES:
            return bad_request(
                "role", f"role: expected one of {', '.join(ROLES)}; got {self.role!r}"
            )
        if self.namespace != DEFAULT_NAMESPACE:
            return bad_request("namespace", f"namespace: expected {DEFAULT_NAMESPACE!r}")
        if self.role == "admin" and self.queue_scope:
            return bad_request(
                "queue_scope", "queue_scope: an admin key has access to all queues; leave it empty"
            )
        if len(self.queue_scope) > SCOPE_MAX:
            return bad_request("queue_scope", f"queue_scope: expected at most {SCOPE_MAX} names")
        for number, pattern in enumerate(self.queue_scope):
            field = f"queue_scope[{number}]"
            if "*" in pattern[:-1]:
                return bad_request(field, f"{field}: `*` is allowed only at the end")
            refused = bad_name(field, pattern)
            if refused is not None:
                return refused
        return bad_name("name", self.name)


class DeleteAPIKey(KeyOp, frozen=True, kw_only=True):
    """Delete a key."""

    NUMBER = 39
