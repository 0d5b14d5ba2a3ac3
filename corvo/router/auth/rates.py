"""Rate limits of requests: each client has a token bucket for reads and one for writes.

A bucket holds up to `burst` tokens and gets `rate` new ones in a second; a request takes one, and
one with many items as many as it has. It is kept as the moment at which it will be full again, so
that a bucket is one number and costs nothing while nobody asks. Times are in ns/`rate`, where a
token is a whole number and nothing is rounded.

Clients are remembered up to a bound, and whoever has not asked for longest is forgotten first: that
gives them a full bucket, which they most likely have by then.
"""

from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Final

from corvo.router.caller import Caller
from corvo.router.config import Limits
from corvo.router.http.messages import Problem

CLIENTS_MAX: Final = 10_000
"""Of each kind of bucket; some 200 bytes a client."""
_TOKEN: Final = 1_000_000_000
_SITE_BITS: Final = 64
"""Of an IPv6 address: what a provider gives to one customer, who is one client."""


class Rates:
    """The buckets of all clients."""

    def __init__(self, limits: Limits, *, clients_max: int = CLIENTS_MAX) -> None:
        self._reads = _Buckets("reading", limits.read_rate, limits.read_burst, clients_max)
        self._writes = _Buckets("writing", limits.write_rate, limits.write_burst, clients_max)
        self.has_limits: Final = bool(limits.read_rate or limits.write_rate)
        """Whether a client may have to wait."""

    def charge(
        self,
        client: str,
        *,
        is_write: bool,
        now_s: Callable[[], float],
        items: int = 1,
        charged: int = 0,
    ) -> None:
        """Take what a request costs. Raises `Problem` when the client has to wait.

        `now_s` is a clock that only ever rises; it is read where there is a limit. How many items a
        request has is known only when its body was read; what it was `charged` at the door is taken
        off then. One with more items than the burst costs the burst: it could never be made
        otherwise.
        """
        buckets = self._writes if is_write else self._reads
        if buckets.rate:
            cost = min(items, buckets.burst) - charged
            if cost > 0:
                buckets.charge(client, cost, now_s())

    def __len__(self) -> int:
        """How many clients are remembered, those that read and write twice."""
        return len(self._reads.full_at) + len(self._writes.full_at)


class _Buckets:
    def __init__(self, doing: str, rate: int, burst: int, clients_max: int) -> None:
        self.rate = rate
        self._doing = doing
        self.burst = burst
        self._clients_max = clients_max
        self.full_at: dict[str, int] = {}
        """By client, whoever asked longest ago first."""

    def charge(self, client: str, tokens: int, now_s: float) -> None:
        now = int(now_s * 1e9) * self.rate
        cost = tokens * _TOKEN
        full_at = max(self.full_at.pop(client, now), now)
        missing = full_at + cost - now - self.burst * _TOKEN
        self.full_at[client] = full_at if missing > 0 else full_at + cost
        if len(self.full_at) > self._clients_max:
            del self.full_at[next(iter(self.full_at))]
        if missing > 0:
            raise self._refusal(-(-missing // (self.rate * 1_000_000)))

    def _refusal(self, wait_ms: int) -> Problem:
        return Problem(
            429,
            "RATE_LIMITED",
            f"too many requests: {self._doing} is limited to {self.rate} a second of one client,"
            f" and {self.burst} at once; try again in {wait_ms} ms",
            retry_after_ms=wait_ms,
        )


def client_of(caller: Caller, peer: str) -> str:
    """The client whose bucket a request is charged to: its key, or else its address."""
    return caller.key_hash or site_of(peer)


def site_of(peer: str) -> str:
    """The address of one customer: of IPv6, the part that a provider gives away as a whole."""
    if ":" not in peer:
        return peer
    address = IPv6Address(peer.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{int(address) >> (128 - _SITE_BITS):x}::"
