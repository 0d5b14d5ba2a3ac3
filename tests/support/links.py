"""The other end of a link, played by hand, and clocks to play under."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Final, ParamSpec

import msgspec
import pytest
import trio
from trio.testing import (
    MockClock,
    memory_stream_pair,
)

from corvo.link import Link, LinkClient, LinkLost, LinkSettings, open_client, open_link
from corvo.protocol.wire import (
    EVERYTHING,
    FROM_ROUTER,
    REPLICA,
    ROUTER,
    Answer,
    AnyMessage,
    FrameReader,
    Push,
    Reply,
    encode_many,
    make_hello,
)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has no config, for its hello."""

    cluster: str = "rookery"
    node: int = 1
    shards: int = 1
    instance: str = ""


US: Final = make_hello(Member(shards=4), ROUTER, shard=3)
THEM: Final = make_hello(Member(shards=4, node=2), REPLICA, shard=3)
STRANGER: Final = make_hello(Member(shards=4, node=2, cluster="nest"), REPLICA, shard=3)
SETTINGS: Final = LinkSettings()

P = ParamSpec("P")
_HANG_S: Final = 300.0
"""A test that takes longer hangs. On a busy machine, an upgrade of all nodes takes two minutes."""


def jumping(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test under a clock that jumps to the next deadline when all tasks wait."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def whole() -> None:
            # Longer than any wait that a test is about: what hangs, fails at once.
            with trio.fail_after(1_000_000):
                await test(*args, **kwargs)

        trio.run(whole, clock=MockClock(autojump_threshold=0))

    return run


def on_sockets(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test under the real clock, since a kernel takes real time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def whole() -> None:
            with trio.fail_after(_HANG_S):
                await test(*args, **kwargs)

        trio.run(whole)

    return run


class OneByte(trio.abc.Stream):
    """Hands out what comes byte by byte."""

    def __init__(self, inner: trio.abc.Stream) -> None:
        self._inner = inner

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._inner.receive_some(1)

    async def aclose(self) -> None:
        await self._inner.aclose()


class Gated(OneByte):
    """Takes each piece down, and holds it up until the gate is open."""

    def __init__(self, inner: trio.abc.Stream) -> None:
        super().__init__(inner)
        self.gate = trio.Event()
        self.pieces: list[bytes] = []

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))
        await self.gate.wait()
        await self._inner.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._inner.receive_some(max_bytes)


class Raw:
    """The other end, played by hand."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._frames = FrameReader()
        self.heard: list[AnyMessage] = []

    async def say(self, *messages: AnyMessage) -> None:
        await self.stream.send_all(encode_many(messages))

    async def hear(self, count: int) -> list[AnyMessage]:
        """The next messages, so many of them."""
        while len(self.heard) < count:
            data = await self.stream.receive_some()
            assert data, f"the link ended after {self.heard}"
            self.heard += self._frames.receive(data, EVERYTHING)
        heard, self.heard = self.heard[:count], self.heard[count:]
        return heard

    async def hear_the_end(self) -> list[AnyMessage]:
        """Everything that still comes."""
        while data := await self.stream.receive_some():
            self.heard += self._frames.receive(data, EVERYTHING)
        heard, self.heard = self.heard, []
        return heard


@asynccontextmanager
async def link_and_raw(settings: LinkSettings = SETTINGS) -> AsyncIterator[tuple[Link, Raw]]:
    """A link, and whom it talks to after the hellos."""
    ours, theirs = memory_stream_pair()
    raw = Raw(theirs)
    await raw.say(THEM)
    async with open_link(ours, US, settings) as link:
        assert await raw.hear(1) == [US]
        yield link, raw


@asynccontextmanager
async def client_and_raw(
    settings: LinkSettings = SETTINGS, pushed: Callable[[Push], None] = lambda _: None
) -> AsyncIterator[tuple[LinkClient, Raw]]:
    """The same with a client."""
    ours, theirs = memory_stream_pair()
    raw = Raw(theirs)
    await raw.say(THEM)
    async with open_link(ours, US, settings) as link, open_client(link, pushed) as client:
        assert await raw.hear(1) == [US]
        yield client, raw


async def echo(stream: trio.abc.Stream) -> None:
    """A replica that answers each request with its own body."""
    async with open_link(stream, THEM) as link:
        while requests := await link.receive(FROM_ROUTER):
            assert link.send_many([Reply(one.id, "", one.body, one.id) for one in requests])


async def take(into: list[Answer], call: Callable[[], Awaitable[Answer]]) -> None:
    into.append(await call())


async def lose(into: list[LinkLost], call: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(LinkLost) as caught:
        await call()
    into.append(caught.value)
