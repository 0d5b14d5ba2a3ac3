"""The hub: follows the feeds of all shards while clients listen, and keeps their latest pages.

Whoever listens reads those at his own pace. One who is further back reads pages of his own from the
shard, one at a time, and few do so at once. So nobody is waited for, nothing is kept for anybody,
and a client that reads slowly costs what it holds in its hands.

Those who want the same and have come to the present are an audience: what is new is made for all of
them at once, and they are woken in slices, between which requests get their turn.

With nobody there, there is no link and no page.
"""

import math
from collections.abc import Hashable
from typing import Final, Protocol

import msgspec
import trio

from corvo.connections import Address, dial
from corvo.errors import WireError
from corvo.kept_link import KeptLink
from corvo.link import Link, LinkLost
from corvo.protocol import wire
from corvo.router.config import RouterConfig
from corvo.router.feeds.rings import Page, Ring, page_of
from corvo.router.http.sse import Place
from corvo.telemetry import SILENT, Log
from corvo.topology import Nearest, Topology

PAGE_EVENTS: Final = 1_000
READERS_MAX: Final = 16
"""Pages that are being read for those who are further back, of all shards."""
LINGER_S: Final = 5.0
"""How long the feeds are followed for nobody: whoever was cut off comes back soon."""
TOGETHER: Final = 8
"""So many are woken at once, which takes less than half a millisecond; then requests get their
turn."""
WAKE: Final = 4
"""The work of waking one, in units: to find that there is nothing new for an audience is one."""
PAUSE_S: Final = 0.001
"""The shortest that `epoll` can wait."""
ANSWER_S: Final = 10.0
"""How long a shard takes at most to make a page of what it has."""
_GATHER_S: Final = 0.01
"""Between two pages, and between two rounds: what happens meanwhile comes in one page, and wakes
everybody once."""
_GATHER_EACH_S: Final = 0.000_1
"""The same for each one who listens: a thousand are woken three times in a second, with pauses."""
_NO_DIGEST: Final = 0xFFFF_FFFF
"""At place 0 the digest is 0, so this is of no log: what is answered says where the log stands."""


class Gone(msgspec.Struct, frozen=True):
    """There is nothing to go on with behind a place, or not all since a time."""

    begin: Place
    """From here on there is."""
    whole_ns: int
    """And since this time."""


class Found(msgspec.Struct, frozen=True):
    """The place of a time."""

    place: Place
    since_ns: int
    """Everything before is before the place. It is not later than the shard's own time."""


class Feed:
    """One shard's feed."""

    def __init__(self, shard: int, hub: "Hub") -> None:
        self.shard: Final = shard
        self.ring: Ring | None = None
        """None until it is known where the log stands."""
        self._hub = hub
        self._open: Link | None = None  # the last one that was
        self._asked_at = 0.0
        self._complete_at = -math.inf
        self._nearest: Final = Nearest(hub.topology, shard)
        self._link: Final = KeptLink(
            f"feed of shard-{shard}",
            self._nearest,
            wire.make_hello(hub.config, wire.FOLLOWER, shard=shard),
            self._follow,
        )

    async def run(self, log: Log = SILENT) -> None:
        """Follow it until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._nearest.keep, self._link)
            await self._link.run(log)

    @property
    def age_s(self) -> float:
        """The ring has all that the shard had applied so long ago.

        It has all when an answer says so. A shard that has more answers soon; so while it lives and
        does not answer, it has no more.
        """
        known_at = self._complete_at
        if self._open is not None and self._open.heard_at - ANSWER_S > self._asked_at:
            known_at = max(known_at, self._open.heard_at - ANSWER_S)
        return trio.current_time() - known_at

    async def _follow(self, link: Link) -> None:
        self._open = link
        self._nearest.reached()
        while True:
            place = self.ring.end if self.ring is not None else Place(0, _NO_DIGEST)
            self._asked_at = trio.current_time()
            answer = await _ask(link, place)
            if isinstance(answer, wire.Reset) or answer.index >= answer.through:
                self._complete_at = trio.current_time()
            if isinstance(answer, wire.Reset):
                # Nothing is known of this log, or of what happened in it meanwhile. Whoever listens
                # finds another ring, and sees for himself whether he can go on.
                self.ring = Ring(self.shard, Place(answer.index, answer.digest), answer.now_ns)
            else:
                assert self.ring is not None, "there is no log that the probe would fit to"
                self.ring.add(answer)
            self._hub.news.set()
            await trio.sleep(self._hub.gather_s)

    @property
    def _address(self) -> Address:
        """That of the replica that is followed, or was last."""
        return (self._nearest.last or self._nearest()).address

    async def read(self, place: Place) -> Page | Gone:
        """The page behind a place. Waits while there is nothing. Raises as links do."""
        async with self._hub.readers, dial(self._address, self._link.hello) as link:
            answer = await _ask(link, place)
        if isinstance(answer, wire.Reset):
            begin = Place(answer.begin, answer.begin_digest)
            return Gone(begin, answer.now_ns + 1)
        return page_of(self.shard, place, answer)

    async def seek(self, since_ns: int) -> Found | Gone:
        """The place before all events of a time and later. Raises as links do."""
        async with self._hub.readers, dial(self._address, self._link.hello) as link:
            link.send(wire.Seek(1, since_ns))
            answer = await _heard(link)
        if not isinstance(answer, wire.Sought):
            raise WireError("a time was answered with something else")
        place = Place(answer.index, answer.digest)
        if answer.whole_ns:
            return Gone(place, answer.whole_ns)
        return Found(place, min(since_ns, answer.now_ns))


async def _ask(link: Link, place: Place) -> wire.Changes | wire.Reset:
    """What is behind a place."""
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
    answer = await _heard(link)
    if not isinstance(answer, wire.Changes | wire.Reset):
        raise WireError("a place was answered with something else")
    return answer


async def _heard(link: Link) -> wire.FollowerAnswer:
    """The answer. One link asks one thing at a time, so one id does for all."""
    heard = await link.receive(wire.TO_FOLLOWER)
    if not heard:
        raise LinkLost(f"the shard left: {link.goodbye}")
    if len(heard) > 1:
        raise WireError("an answer that nothing was asked for")
    return heard[0]


class Audience(Protocol):
    """Those who are sent the same bytes: see `corvo.router.events.channels`."""

    def advance(self) -> int:
        """Make what comes next for them: how much work it was, 0 when there was none.

        In units of which `WAKE` are the work of waking one.
        """

    def crowd(self) -> trio.lowlevel.ParkingLot:
        """Those who wait for something that there is now; each is in it once."""


class Hub:
    """All feeds of this node, for all who listen here."""

    def __init__(self, config: RouterConfig, topology: Topology) -> None:
        self.config: Final = config
        self.topology: Final = topology
        self.feeds: Final = [Feed(shard, self) for shard in range(config.shards)]
        self.readers: Final = trio.Semaphore(READERS_MAX)
        self.listeners = 0
        self.audiences: Final[dict[Hashable, Audience]] = {}
        """By what they want."""
        self.news = trio.Event()
        """Set by feeds; everybody is woken for all of them together."""
        self.rounds = 0
        """How often that was."""
        self.is_stopping = False
        self._alone = trio.lowlevel.ParkingLot()
        self._turns = trio.StrictFIFOLock()
        self._spent = 0
        self._wanted = trio.Event()
        self._unwanted = trio.Event()

    @property
    def gather_s(self) -> float:
        """How long a feed is let be between two pages."""
        return _GATHER_S + self.listeners * _GATHER_EACH_S

    def enter(self) -> None:
        """Somebody listens from now on."""
        self.listeners += 1
        self._wanted.set()
        if self._unwanted.is_set():
            self._unwanted = trio.Event()

    def leave(self) -> None:
        """Somebody has gone."""
        assert self.listeners > 0
        self.listeners -= 1
        if not self.listeners:
            self._wanted = trio.Event()
            self._unwanted.set()

    async def changed(self, rounds: int) -> None:
        """Wait until there may be something new, for somebody who reads alone.

        `rounds` is what there was before it looked.
        """
        if rounds == self.rounds and not self.is_stopping:
            await self._alone.park()

    async def turn(self) -> None:
        """Wait for one's turn to look at events alone: one at a time, with requests in between."""
        async with self._turns:
            await trio.sleep(PAUSE_S)

    def stop(self) -> None:
        """Have everybody leave."""
        self.is_stopping = True
        for crowd in [self._alone, *(audience.crowd() for audience in self.audiences.values())]:
            crowd.unpark_all()

    async def run(self, log: Log = SILENT) -> None:
        """Follow the feeds while there are listeners."""
        while True:
            await self._wanted.wait()
            async with trio.open_nursery() as nursery:
                for feed in self.feeds:
                    nursery.start_soon(feed.run, log)
                nursery.start_soon(self._keep_telling)
                await self._wait_for_quiet()
                nursery.cancel_scope.cancel()
            for feed in self.feeds:
                feed.ring = None

    async def _keep_telling(self) -> None:
        while True:
            await self.news.wait()
            self.news = trio.Event()
            for audience in list(self.audiences.values()):
                await self._tell(audience)
            self.rounds += 1
            alone, self._alone = self._alone, trio.lowlevel.ParkingLot()
            await self._wake(alone)
            await trio.sleep(self.gather_s)

    async def _tell(self, audience: Audience) -> None:
        """Make what there is, and wake all who wait for it: once, or for each large piece.

        What comes while they are woken is for the next round, or else there would be no pause.
        """
        while work := audience.advance():
            await self._spend(work)
            if work >= TOGETHER * WAKE:
                await self._wake(audience.crowd())
        await self._spend(1)
        await self._wake(audience.crowd())

    async def _wake(self, crowd: trio.lowlevel.ParkingLot) -> None:
        """Wake a crowd in slices."""
        while crowd:
            left = TOGETHER - self._spent // WAKE
            await self._spend(len(crowd.unpark(count=left)) * WAKE)

    async def _spend(self, work: int) -> None:
        """Pause when so much has been done that requests should get their turn."""
        self._spent += work
        if self._spent >= TOGETHER * WAKE:
            self._spent = 0
            await trio.sleep(PAUSE_S)

    async def _wait_for_quiet(self) -> None:
        while True:
            await self._unwanted.wait()
            with trio.move_on_after(LINGER_S):
                await self._wanted.wait()
            if not self.listeners:
                return
