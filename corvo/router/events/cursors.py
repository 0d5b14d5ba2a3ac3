"""Cursors: a position in the feeds of all shards, and the frames that come after it.

Frames are taken from the pages that the hub keeps. Where a position is further back than those, a
page is read for this cursor alone.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
import trio

from corvo.errors import WireError
from corvo.link import LinkLost
from corvo.router.feeds.events import EventFilter, KeptEvent
from corvo.router.feeds.hub import Feed, Found, Gone
from corvo.router.feeds.rings import Nowhere, Page, Ring
from corvo.router.http import sse
from corvo.router.http.sse import Place
from corvo.times import MS

PIECE_BYTES: Final = 64 << 10
"""About so much is sent at a time."""
LOOKS_MAX: Final = 2_000
"""Events that are looked at before others are let on."""
RETRY_S: Final = 0.25
"""Until a shard that could not be asked is asked again."""
READ_S: Final = 5.0
"""How long one page may take."""
AHEAD_S: Final = 0.25
"""How long a shard is asked for what is behind all that it is known to have. It answers at once
when its log has no such place, and else when it has come so far: that may take for ever."""


LATE_NS: Final = 60_000_000_000
"""How much later than others a shard may apply what it stamped at the same time, for numbers."""


class Choice(Protocol):
    """The events that somebody wants, and how they are written."""

    @property
    def wanted(self) -> EventFilter:
        """What `picks` looks at: the others are not."""

    @property
    def has_names(self) -> bool:
        """Whether a frame has the type of its event as its name."""

    def picks(self, told: KeptEvent) -> bool:
        """Whether an event is sent."""


class Spot:
    """Where a client stands in one shard's feed."""

    def __init__(
        self, feed: Feed, place: Place | None, *, since_ns: int = 0, due_ns: int = 0
    ) -> None:
        self.place = place
        """None is the present, whenever it is known."""
        self.due_ns = due_ns
        """All that happened before this time was given."""
        self.since_ns = since_ns
        """If not 0, the place is the one before this time, and has to be asked for."""
        self.retry_at = 0.0
        """When the shard is asked again that could not be; 0 when it need not be."""
        self._feed = feed
        self._ring: Ring | None = None  # the log that the place is known to be of
        self._page: Page | None = None  # that was read for us alone

    @property
    def is_settled(self) -> bool:
        """Whether it is known that the log goes on from here."""
        return self._page is not None or (self._ring is not None and self._ring is self._feed.ring)

    def find(self) -> Page | Nowhere:
        """The page in which the place lies, if it is there."""
        found = self._find()
        if found is not Nowhere.BEFORE:
            self.retry_at = 0.0
        return found

    def _find(self) -> Page | Nowhere:
        if self._page is not None:
            return self._page
        if self.since_ns:
            return Nowhere.BEFORE
        ring = self._feed.ring
        if ring is None:
            return Nowhere.BEHIND
        if self.place is None:
            self.place, self._ring = ring.end, ring
            self.due_ns = max(self.due_ns, ring.now_ns)
        if self._ring is not ring:
            if not ring.knows(self.place):
                return Nowhere.BEFORE
            self._ring = ring
        return ring.page_at(self.place)

    def move(self, page: Page, given: int) -> None:
        """So many events of a page were given, or not wanted."""
        self.place = page.place(given)
        if self.place.index == page.end.index:
            self.due_ns = max(self.due_ns, page.now_ns)
        if page is self._page and self.place.index == page.end.index:
            self._page = None

    def given_ns(self, newest_ns: int) -> int | None:
        """All that happened before this time was given; None while the present is not known.

        Where there is nothing more to be given, that is nearly the present: of what the shard did
        until it was heard last, everything is in the ring.
        """
        ring = self._feed.ring
        if self.place is None:
            return None
        if ring is None or self._ring is not ring or self.place != ring.end:
            return self.due_ns
        if math.isinf(self._feed.age_s):
            return self.due_ns
        present_ns = newest_ns - int(self._feed.age_s * 1e9) - LATE_NS
        return max(self.due_ns, ring.now_ns, present_ns)

    async def read(self) -> Gone | None:
        """Read the page behind the place, or find the place; `Gone` if the feed has lost it.

        A shard that is away is asked again later.
        """
        if self.since_ns:
            return await self._seek()
        assert self.place is not None
        ring = self._feed.ring
        found: Page | Gone | None = None
        is_there = ring is not None and self.place.index < ring.end.index
        try:
            with trio.move_on_after(READ_S if is_there else AHEAD_S):
                found = await self._feed.read(self.place)
        except (LinkLost, WireError):
            found = None
        if isinstance(found, Gone):
            return found
        self._note(found is not None)
        if found is not None:
            self._page, self._ring = found, ring
        return None

    async def _seek(self) -> Gone | None:
        found: Found | Gone | None = None
        try:
            with trio.move_on_after(READ_S):
                found = await self._feed.seek(self.since_ns)
        except (LinkLost, WireError):
            found = None
        if isinstance(found, Gone):
            return found
        self._note(found is not None)
        if found is not None:
            self.place, self.due_ns, self.since_ns = found.place, found.since_ns, 0
        return None

    def _note(self, is_there: bool) -> None:
        self.retry_at = 0.0 if is_there else trio.current_time() + RETRY_S


class Begin(msgspec.Struct, frozen=True):
    """Where a cursor begins, and which ids it gives."""

    places: dict[int, Place] = {}
    """By shard; without one, at the present."""
    is_numbered: bool = False
    since_ns: int = 0
    """If not 0, behind everything before this time."""
    number: int = 0
    """If not 0, the id of `places`."""


class Cursor:
    """A position in all feeds."""

    def __init__(self, feeds: Sequence[Feed], begin: Begin) -> None:
        self._feeds = feeds
        self._is_numbered = begin.is_numbered
        self._number = begin.number
        due_ns = begin.number * MS
        self.spots: Final = {
            feed.shard: Spot(
                feed, begin.places.get(feed.shard), since_ns=begin.since_ns, due_ns=due_ns
            )
            for feed in feeds
        }
        self._parts = [""] * len(self.spots)  # of the id, by shard
        self._first = 0  # the shard that is looked at before the others

    @property
    def places(self) -> dict[int, Place]:
        """The position, without the shards whose present is not known yet."""
        places = {shard: spot.place for shard, spot in self.spots.items()}
        return {shard: place for shard, place in places.items() if place is not None}

    @property
    def id(self) -> str:
        """The id of the last event that was taken, or looked at."""
        return self._numbered() if self._is_numbered else ",".join(filter(None, self._parts))

    def _numbered(self) -> str:
        """Milliseconds before which everything was given: it never goes back.

        It is empty while a shard has to be asked for the place, and while none is known.
        """
        if any(spot.since_ns for spot in self.spots.values()):
            return ""
        newest_ns = max([feed.ring.now_ns for feed in self._feeds if feed.ring is not None] or [0])
        given = [spot.given_ns(newest_ns) for spot in self.spots.values()]
        known = [each for each in given if each is not None]
        if known:
            self._number = max(self._number, min(known) // MS)
        return str(self._number) if known else ""

    def begin(self) -> None:
        """Have the id name all places that are known: a client goes on from here."""
        for shard, place in self.places.items():
            self._parts[shard] = sse.render_place(shard, place)

    @property
    def has_page(self) -> bool:
        """Whether there is something to be looked at."""
        return any(isinstance(spot.find(), Page) for spot in self.spots.values())

    def gaps(self, now_s: float = math.inf) -> list[int]:
        """The shards of which a page has to be read, and now."""
        return [
            shard
            for shard, spot in self.spots.items()
            if spot.find() is Nowhere.BEFORE and spot.retry_at <= now_s
        ]

    def take(self, choice: Choice) -> tuple[bytes, bool]:
        """The frames that come next, and whether there may be more."""
        frames: list[bytes] = []
        looked = size = 0
        for shard in self._in_turn():
            spot = self.spots[shard]
            page = spot.find()
            if not isinstance(page, Page):
                continue
            assert spot.place is not None
            given = page.given_at(spot.place)
            until = len(page.events)
            among = page.among(choice.wanted)
            for at in itertools.islice(among, bisect_left(among, given), None):
                if size >= PIECE_BYTES or looked >= LOOKS_MAX:
                    until = at
                    break
                looked += 1
                told = page.events[at]
                if choice.picks(told):
                    spot.due_ns = max(spot.due_ns, told.now_ns)
                    self._parts[shard] = sse.render_place(shard, page.place(at + 1))
                    name = told.type if choice.has_names else ""
                    frames.append(sse.frame(told.json(), id_text=self.id, event=name))
                    size += len(frames[-1])
            spot.move(page, max(given, until))
            self._parts[shard] = sse.render_place(shard, spot.place)
            looked += 1  # the page itself: there may be another one behind it
        return b"".join(frames), looked > 0

    def _in_turn(self) -> list[int]:
        """All shards, each time another one first: none is to wait for what others have to say."""
        self._first = (self._first + 1) % len(self.spots)
        shards = list(self.spots)
        return shards[self._first :] + shards[: self._first]
