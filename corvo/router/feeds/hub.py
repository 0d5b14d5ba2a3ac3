"""The hub: follows the feeds of all shards while clients listen, and keeps their latest pages.

Whoever listens reads those at his own pace. One who is further back reads pages of his own from the
shard, one at a time, and few do so at once. So nobody is waited for, nothing is kept for anybody,
and a client that reads slowly costs what it holds in its hands.

With nobody there, there is no link and no page.
"""

from typing import Final

import msgspec
import trio

from corvo.errors import WireError
from corvo.kept_link import KeptLink
from corvo.link import Link, LinkLost, UnixAddress, dial
from corvo.protocol import wire
from corvo.router.config import RouterConfig
from corvo.router.feeds.rings import Page, Ring, page_of
from corvo.router.http.sse import Place
from corvo.telemetry import SILENT, Log

PAGE_EVENTS: Final = 1_000
READERS_MAX: Final = 16
"""Pages that are being read for those who are further back, of all shards."""
LINGER_S: Final = 5.0
"""How long the feeds are followed for nobody: whoever was cut off comes back soon."""
BELLS: Final = 32
"""Those who listen are woken in so many groups."""
_TOGETHER: Final = 64
"""So many are woken at once: that takes two milliseconds."""
_GATHER_S: Final = 0.01
"""Between two pages, and between two bells: what happens meanwhile comes in one page, and wakes
everybody once."""
_GATHER_EACH_S: Final = 0.000_2
"""The same for each one who listens: a thousand are woken five times in a second."""
_NO_DIGEST: Final = 0xFFFF_FFFF
"""At place 0 the digest is 0, so this is of no log: what is answered says where the log stands."""


class Gone(msgspec.Struct, frozen=True):
    """There is nothing to go on with behind a place."""

    begin: Place
    """From here on there is."""


class Feed:
    """One shard's feed."""

    def __init__(self, shard: int, hub: "Hub") -> None:
        self.shard: Final = shard
        self.ring: Ring | None = None
        """None until it is known where the log stands."""
        self._hub = hub
        self._link: Final = KeptLink(
            f"feed of shard-{shard}",
            UnixAddress(hub.config.sockets[shard]),
            wire.make_hello(hub.config, wire.FOLLOWER, shard=shard),
            self._follow,
        )

    async def run(self, log: Log = SILENT) -> None:
        """Follow it until cancelled."""
        await self._link.run(log)

    async def _follow(self, link: Link) -> None:
        while True:
            place = self.ring.end if self.ring is not None else Place(0, _NO_DIGEST)
            answer = await _ask(link, place)
            if isinstance(answer, wire.Reset):
                # Nothing is known of this log, or of what happened in it meanwhile. Whoever listens
                # finds another ring, and sees for himself whether he can go on.
                self.ring = Ring(self.shard, Place(answer.index, answer.digest))
            else:
                assert self.ring is not None, "there is no log that the probe would fit to"
                self.ring.add(answer)
            self._hub.news.set()
            await trio.sleep(self._hub.gather_s)

    async def read(self, place: Place) -> Page | Gone:
        """The page behind a place. Waits while there is nothing. Raises as links do."""
        async with self._hub.readers, dial(self._link.address, self._link.hello) as link:
            answer = await _ask(link, place)
        if isinstance(answer, wire.Reset):
            return Gone(Place(answer.begin, answer.begin_digest))
        return page_of(self.shard, place, answer)


async def _ask(link: Link, place: Place) -> wire.Changes | wire.Reset:
    """What is behind a place. One link asks one thing at a time, so one id does for all."""
    link.send(
        wire.Follow(
            id=1,
            after=place.index,
            digest=place.digest,
            wants_documents=False,
            wants_events=True,
            keys_max=PAGE_EVENTS,
        )
    )
    heard = await link.receive(wire.TO_FOLLOWER)
    if not heard:
        raise LinkLost(f"the shard left: {link.goodbye}")
    if len(heard) > 1 or isinstance(heard[0], wire.Scanned):
        raise WireError("an answer that nothing was asked for")
    return heard[0]


class Hub:
    """All feeds of this node, for all who listen here."""

    def __init__(self, config: RouterConfig) -> None:
        self.config: Final = config
        self.feeds: Final = [Feed(shard, self) for shard in range(config.shards)]
        self.readers: Final = trio.Semaphore(READERS_MAX)
        self.listeners = 0
        self._bells = [trio.Event() for _ in range(BELLS)]
        self.news = trio.Event()
        """Set by feeds; everybody is woken for all of them together."""
        self.is_stopping = False
        self._came = 0
        self._wanted = trio.Event()
        self._unwanted = trio.Event()

    @property
    def gather_s(self) -> float:
        """How long a feed is let be between two pages."""
        return _GATHER_S + self.listeners * _GATHER_EACH_S

    def enter(self) -> int:
        """Somebody listens from now on; the number of their bell."""
        self.listeners += 1
        self._wanted.set()
        if self._unwanted.is_set():
            self._unwanted = trio.Event()
        self._came += 1
        return self._came

    def leave(self) -> None:
        """Somebody has gone."""
        assert self.listeners > 0
        self.listeners -= 1
        if not self.listeners:
            self._wanted = trio.Event()
            self._unwanted.set()

    def bell(self, number: int) -> trio.Event:
        """Rung when there may be something new, and replaced, for one out of `BELLS`."""
        return self._bells[number % BELLS]

    def _ring(self, numbers: range) -> None:
        for number in numbers:
            self._bells[number].set()
            self._bells[number] = trio.Event()

    def stop(self) -> None:
        """Have everybody leave."""
        self.is_stopping = True
        self._ring(range(BELLS))

    async def run(self, log: Log = SILENT) -> None:
        """Follow the feeds while there are listeners."""
        while True:
            await self._wanted.wait()
            async with trio.open_nursery() as nursery:
                for feed in self.feeds:
                    nursery.start_soon(feed.run, log)
                nursery.start_soon(self._keep_ringing)
                await self._wait_for_quiet()
                nursery.cancel_scope.cancel()
            for feed in self.feeds:
                feed.ring = None

    async def _keep_ringing(self) -> None:
        while True:
            await self.news.wait()
            self.news = trio.Event()
            # A crowd is woken in turn, so that requests get their turn in between.
            step = max(1, BELLS * _TOGETHER // max(self.listeners, 1))
            for first in range(0, BELLS, step):
                self._ring(range(first, min(first + step, BELLS)))
                await trio.sleep(self.gather_s * min(step, BELLS) / BELLS)

    async def _wait_for_quiet(self) -> None:
        while True:
            await self._unwanted.wait()
            with trio.move_on_after(LINGER_S):
                await self._wanted.wait()
            if not self.listeners:
                return
