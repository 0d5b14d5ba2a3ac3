"""API keys: who may do what. They are kept in shard 0, and routers ask for them there.

A key never comes here, and never gets into the log: what is stored is its hash, and a router that
is shown a key looks for the hash of that.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from corvo.model import DEFAULT_NAMESPACE, ROLES
from corvo.protocol.ops.base import (
    ITEMS_MAX,
    Limits,
    Name,
    Nanos,
    Rejected,
    TypedOp,
)
from corvo.protocol.ops.checks import (
    bad_name,
)

HOME: Final = 0
"""The shard that has them: there is one list, and one order in which it changes."""


KEYS_MAX: Final = 10_000
"""Every router has all of them in memory."""


SCOPE_MAX: Final = 100
"""Names and beginnings of queues that one key may list."""


KeyHash: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
"""The length is there for the `$`, which lets a line end behind it."""


class KeyDone(msgspec.Struct, frozen=True):
    """What became of a key."""

    key_hash: str
    status: str
    keys: int
    """How many there are now."""


class KeyOp(TypedOp[KeyDone | Rejected], frozen=True, kw_only=True):
    """An op on a key."""

    key_hash: KeyHash


class UpsertAPIKey(KeyOp, frozen=True, kw_only=True):
    """Make a key known, or change what one may do."""

    name: Name
    role: Name
    namespace: Name = DEFAULT_NAMESPACE
    queue_scope: Annotated[tuple[Name, ...], msgspec.Meta(max_length=ITEMS_MAX)] = ()
    enabled: bool = True
    expires_ns: Nanos = 0

    def check(self, limits: Limits) -> Rejected | None:
        """A key that would not do what its maker believes is refused."""
        if self.role not in ROLES:
            return _bad("role", f"role {self.role!r} is none of {', '.join(ROLES)}")
        if self.namespace != DEFAULT_NAMESPACE:
            return _bad("namespace", f"the only namespace is {DEFAULT_NAMESPACE!r}")
        if self.role == "admin" and self.queue_scope:
            return _bad("queue_scope", "an admin could make a key for any queue: leave it empty")
        if len(self.queue_scope) > SCOPE_MAX:
            return _bad("queue_scope", f"queue_scope has more than {SCOPE_MAX} names")
        for number, pattern in enumerate(self.queue_scope):
            field = f"queue_scope[{number}]"
            if "*" in pattern[:-1]:
                return _bad(field, f"{field} may have a * at its end only")
            refused = bad_name(field, pattern)
            if refused is not None:
                return refused
        return bad_name("name", self.name)


class DeleteAPIKey(KeyOp, frozen=True, kw_only=True):
    """Make a key of no use from here on."""


def _bad(field: str, error: str) -> Rejected:
    return Rejected("bad_request", error, field=field)
