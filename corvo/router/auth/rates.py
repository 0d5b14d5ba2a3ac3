"""Rate limits of requests: each client has a token bucket for reads and one for writes.

A bucket holds up to `burst` tokens and gets `rate` new ones in a second; a request takes one, and
one with many items as many as it has. It is kept as the moment at which it will be full again, so
that a bucket is one number and costs nothing while nobody asks. Times are in ns/`rate`, where a
token is a whole number and nothing is rounded.

A client may send to any node of a cluster. So each router reports to the others what its clients
have used, and its buckets pay for what others report (`corvo.router.auth.sharing`). A bucket may
owe tokens then: what several nodes gave at the same moment is repaid before there is more.

Clients are remembered up to a bound, and whoever has not asked for longest is forgotten first: that
gives them a full bucket, which they most likely have by then.
"""

from collections.abc import Callable, Iterable
from ipaddress import IPv6Address
from typing import Final

from corvo.protocol.routers import Use
from corvo.router.caller import Caller
from corvo.router.config import Limits
from corvo.router.http.messages import Problem

CLIENTS_MAX: Final = 10_000
"""Of each kind of bucket; some 200 bytes a client."""
REPORTED_MAX: Final = 2_000
"""Clients in one report: a router takes some milliseconds to read it."""
_TOKEN: Final = 1_000_000_000
_OWED_S: Final = 1
"""A bucket owes at most what all nodes can have given within this time, in which reports arrive."""
_SITE_BITS: Final = 64
"""Of an IPv6 address: what a provider gives to one customer, who is one client."""


class Rates:
    """The buckets of all clients."""

    def __init__(self, limits: Limits, *, clients_max: int = CLIENTS_MAX) -> None:
        self._reads = _Buckets("reading", limits.read_rate, limits.read_burst, clients_max)
        self._writes = _Buckets("writing", limits.write_rate, limits.write_burst, clients_max)
        self.has_limits: Final = bool(limits.read_rate or limits.write_rate)
        """Whether a client may have to wait."""
        self.on_use: Callable[[], None] | None = None
        """Called with each use; what is used is remembered for `take_used` while this is set."""

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
                if self.on_use is not None:
                    buckets.note(client, cost)
                    self.on_use()

    def take_used(self) -> list[Use]:
        """What clients have used here since they were last taken, of as many as fit in a report."""
        reads, writes = self._reads.used, self._writes.used
        clients = [*dict.fromkeys((*reads, *writes))][:REPORTED_MAX]
        return [Use(each, reads.pop(each, 0), writes.pop(each, 0)) for each in clients]

    @property
    def has_used(self) -> bool:
        """Whether there is something to take."""
        return bool(self._reads.used or self._writes.used)

    def pay(self, uses: Iterable[Use], *, nodes: int, now_s: float) -> None:
        """Take what clients have used at another of so many nodes."""
        for use in uses:
            self._reads.pay(use.client, use.reads, nodes, now_s)
            self._writes.pay(use.client, use.writes, nodes, now_s)

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
        self.used: dict[str, int] = {}
        """Tokens by client that other nodes have not been told about."""

    def charge(self, client: str, tokens: int, now_s: float) -> None:
        now = int(now_s * 1e9) * self.rate
        cost = tokens * _TOKEN
        full_at = max(self.full_at.pop(client, now), now)
        missing = full_at + cost - now - self.burst * _TOKEN
        self._remember(client, full_at if missing > 0 else full_at + cost)
        if missing > 0:
            raise self._refusal(-(-missing // (self.rate * 1_000_000)))

    def note(self, client: str, tokens: int) -> None:
        """Note a use for the next report. There is room for as many clients as have buckets."""
        if client in self.used or len(self.used) < self._clients_max:
            self.used[client] = self.used.get(client, 0) + tokens

    def pay(self, client: str, tokens: int, nodes: int, now_s: float) -> None:
        """Take tokens that were used elsewhere. The bucket may owe some after that."""
        if self.rate and tokens:
            now = int(now_s * 1e9) * self.rate
            full_at = max(self.full_at.pop(client, now), now) + tokens * _TOKEN
            most = nodes * (self.burst + self.rate * _OWED_S) * _TOKEN
            self._remember(client, min(full_at, now + most))

    def _remember(self, client: str, full_at: int) -> None:
        self.full_at[client] = full_at
        if len(self.full_at) > self._clients_max:
            del self.full_at[next(iter(self.full_at))]

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
