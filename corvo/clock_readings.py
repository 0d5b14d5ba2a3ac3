"""Reading the wall clock of another node, over a link to its router."""

from typing import Final

import msgspec

from corvo import clock
from corvo.clock_offsets import Reading, read_clock
from corvo.errors import WireError
from corvo.link import LinkClient, LinkLost
from corvo.protocol import wire
from corvo.protocol.routers import GET_CLOCK, ClockShown


async def read_clock_of(client: LinkClient) -> Reading | None:
    """The clock of a router; None if it does not answer, or is of a release without this."""
    asked_ns = clock.steady_ns()
    try:
        answer = await client.ask(GET_CLOCK, b"")
        took_ns, now_ns = clock.steady_ns() - asked_ns, clock.now_ns()
        if not isinstance(answer, wire.Reply) or answer.code:
            return None
        shown = _decode(answer.body)
        return read_clock(shown.now_ns, at_ns=now_ns, took_ns=took_ns, tz_version=shown.tz_version)
    except (LinkLost, WireError, msgspec.MsgspecError):
        return None


_decode: Final = msgspec.msgpack.Decoder(ClockShown).decode
