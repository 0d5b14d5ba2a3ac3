"""Two nodes with a link between them, over bytes in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import pytest
import trio
from trio.testing import memory_stream_pair

from corvo import connections as links
from corvo.connections import PeerAddress, accept_link, dial
from corvo.errors import WireError
from corvo.link import Link, LinkLost, LinkRefused
from corvo.peer_security import PeerSecurity
from corvo.protocol.wire import FROM_ROUTER, Hello, Leading, Submit
from corvo.telemetry import Level, Log, Style
from tests.support.links import SETTINGS, THEM, US

SECURITY: Final = PeerSecurity(secret="a secret of the rookery")  # noqa: S106 -- of tests alone
OTHER: Final = PeerSecurity(secret="a secret of the nest")  # noqa: S106 -- see SECURITY


class Lines:
    """A log, and what it was given."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []
        self.log: Final = Log(self._put, "shard-3", Style(is_text=False), Level.INFO)

    def _put(self, line: bytes) -> None:
        found = msgspec.json.decode(line, type=dict[str, object])
        del found["time"], found["process"], found["level"]
        self.lines.append(found)


class Pair:
    """Two nodes, and the bytes between them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.near, self.far = memory_stream_pair()
        self.reason = ""
        """Why the end that was dialled has refused."""
        self.is_closed = trio.Event()
        self.log = Lines()

        async def connect(*_: object) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            return self.near

        monkeypatch.setattr(links, "connect", connect)

    @asynccontextmanager
    async def answers(
        self, security: PeerSecurity = SECURITY, hello: Hello = THEM
    ) -> AsyncIterator[list[Submit]]:
        """A replica that is dialled, and what it has received."""
        received: list[Submit] = []

        async def serve() -> None:
            try:
                async with accept_link(
                    self.far, hello, SETTINGS, security=security, log=self.log.log
                ) as link:
                    link.send(Leading(2, 9))
                    while messages := await link.receive(FROM_ROUTER):
                        received.extend(one for one in messages if isinstance(one, Submit))
            except (LinkLost, WireError) as error:
                self.reason = str(error)
            self.is_closed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield received
            await self.is_closed.wait()

    async def refused(self, security: PeerSecurity = SECURITY, *, node: int = 2) -> str:
        """Dial, and be refused with this reason."""
        with pytest.raises(LinkRefused) as caught:
            async with dials(security, node=node):
                pytest.fail("the link was opened")
        assert not caught.value.was_sent
        return str(caught.value)


@asynccontextmanager
async def dials(
    security: PeerSecurity = SECURITY, *, hello: Hello = US, node: int = 2
) -> AsyncIterator[Link]:
    address = PeerAddress("node-2.test", 9400, "shard-3", security)
    async with dial(address, hello, SETTINGS, node=node) as link:
        yield link
