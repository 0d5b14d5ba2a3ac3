"""The caller of a request: name, role, scope, positions and rate, as one value.

It is made where a request comes in (`corvo.router.api.Api.who`), and is all that is passed on to
shards, mirror and rates of who asks.
"""

from typing import Final

import msgspec

from corvo.model import DEFAULT_NAMESPACE
from corvo.scopes import EVERYTHING, NOTHING, Scope


class ReadHere:
    """A read that any replica may answer, and how old the answers are that came."""

    def __init__(self) -> None:
        self.contact_ms: int | None = 0
        """The longest time since a replica received a message of its leader; None if unknown."""

    def note(self, contact_ms: int | None) -> None:
        """An answer came from a replica with such a contact."""
        if self.contact_ms is not None:
            self.contact_ms = None if contact_ms is None else max(contact_ms, self.contact_ms)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, with which rights, as of which position, and at whose rate."""

    name: str
    """For the trail of a job."""
    role: str = ""
    """One of `corvo.model.ROLES`; the empty role may do nothing."""
    key_hash: str = ""
    """Of the API key; empty for the admin key, and for every caller of an open server."""
    scope: Scope = NOTHING
    """The queues that the caller may see and change."""
    namespace: str = DEFAULT_NAMESPACE
    """Of the API key. There is only one so far, and nothing is decided by it."""
    min_seq: dict[int, int] = {}
    """By shard, the position that a read must have reached: the header `Corvo-Min-Seq`."""
    here: ReadHere | None = None
    """Set if the caller takes an answer of any replica: `consistency=local`."""
    rate_id: str = ""
    """The client whose rate limit applies: see `corvo.router.auth.rates.client_of`. Empty while no
    rate is limited."""

    @property
    def signature(self) -> str:
        """The name for a job's trail; empty for a caller of an open server, who has no name."""
        return "" if self.name == ANONYMOUS.name and not self.key_hash else self.name

    def as_of(self, min_seq: dict[int, int]) -> "Caller":
        """The same caller, whose reads wait for another position."""
        return msgspec.structs.replace(self, min_seq=min_seq)


ANONYMOUS: Final = Caller(name="anonymous", role="admin", scope=EVERYTHING)
"""Every caller of an open server."""
NOBODY: Final = Caller(name="nobody")
"""The caller of a route that is open to all: its key is not looked at."""
ROUTER: Final = Caller(name="router", scope=EVERYTHING)
"""The router itself, where it reads for its own purposes."""
