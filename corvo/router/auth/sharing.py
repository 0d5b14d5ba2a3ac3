"""Sharing of rates: what clients use here is reported to the routers of the other nodes.

A report follows a use after `REPORT_S`, and has all uses of that time. So an idle router sends
nothing. Reports are not repeated: a node that cannot be reached counts by itself meanwhile, and is
not told afterwards.
"""

from typing import Final

import msgspec
import trio

from corvo.protocol.routers import REPORT_USE, UsedTokens
from corvo.router.auth.rates import Rates
from corvo.router.shards.peers import PeerRouters

REPORT_S: Final = 0.2
"""Between a use and its report: the longer, the more a client gets that sends to all nodes."""


class RateSharing:
    """Reports of one router."""

    def __init__(self, rates: Rates, peers: PeerRouters) -> None:
        self._rates = rates
        self._peers = peers
        self._bell = trio.Event()

    async def run(self) -> None:
        """Report until cancelled."""
        if not self._rates.has_limits:
            return
        self._rates.on_use = self._ring
        while True:
            self._bell = trio.Event()
            if not self._rates.has_used:
                await self._bell.wait()
            await trio.sleep(REPORT_S)
            self._peers.tell(REPORT_USE, _encode(UsedTokens(self._rates.take_used())))

    def _ring(self) -> None:
        self._bell.set()


_encode: Final = msgspec.msgpack.Encoder().encode
