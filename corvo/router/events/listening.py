"""One client of an event stream: from positions in the feeds to frames, at the client's pace.

It holds a place for each shard and at most one page that was read for it alone. What it is given
is taken from the hub's pages; where it is further back than those, pages are read for it, until it
has caught up. It is sent one piece at a time, and the next is made when that has left.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

import msgspec
import trio

from corvo.errors import CorvoError, WireError
from corvo.link import LinkLost
from corvo.router.api import Api
from corvo.router.events.boards import Board
from corvo.router.events.topics import Tail
from corvo.router.feeds.events import EventFilter, KeptEvent
from corvo.router.feeds.hub import Feed, Gone
from corvo.router.feeds.rings import Nowhere, Page, Ring
from corvo.router.http import sse
from corvo.router.http.messages import Problem, Request, Sink, encode_json, overloaded
from corvo.router.http.sse import Place

PIECE_BYTES: Final = 64 << 10
"""About so much is sent at a time."""
LOOKS_MAX: Final = 2_000
"""Events that are looked at before others are let on."""
CHECK_S: Final = 5.0
"""How often it is looked up whether the key is still good."""
RETRY_S: Final = 0.25
"""Until a shard that could not be asked is asked again."""
READ_S: Final = 5.0
"""How long one page may take."""
AHEAD_S: Final = 0.25
"""How long a shard is asked for what is behind all that it is known to have. It answers at once
when its log has no such place, and else when it has come so far: that may take for ever."""
_FAREWELL_S: Final = 1.0


class GoneBody(msgspec.Struct, frozen=True, kw_only=True, tag="gone"):
    """Why nothing can be gone on with, and what can be."""

    error: str
    code: str
    outcome: str
    last_event_id: str
    shards: list[int]


class PlaceGone(CorvoError):
    """Shards do not have what is behind the places that were asked for."""

    def __init__(self, places: Mapping[int, Place], gone: Mapping[int, Place]) -> None:
        super().__init__("the place is gone")
        shards = sorted(gone)
        names = ", ".join(str(shard) for shard in shards)
        self.body: Final = GoneBody(
            error=f"shard {names} no longer stores the events after this id, or was restored with "
            "another log: read the current state again, and continue with last_event_id",
            code="GONE",
            outcome="not_applied",
            last_event_id=sse.render({**places, **gone}),
            shards=shards,
        )


class Spot:
    """Where a client stands in one shard's feed."""

    def __init__(self, feed: Feed, place: Place | None) -> None:
        self.place = place
        """None is the present, whenever it is known."""
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
        ring = self._feed.ring
        if ring is None:
            return Nowhere.BEHIND
        if self.place is None:
            self.place, self._ring = ring.end, ring
        if self._ring is not ring:
            if not ring.knows(self.place):
                return Nowhere.BEFORE
            self._ring = ring
        return ring.page_at(self.place)

    def move(self, page: Page, given: int) -> None:
        """So many events of a page were given, or not wanted."""
        self.place = page.place(given)
        if page is self._page and self.place.index == page.end.index:
            self._page = None

    async def read(self) -> Place | None:
        """Read the page behind the place; where the shard can go on from when it cannot from there.

        A shard that is away is asked again later.
        """
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
            return found.begin
        self.retry_at = 0.0 if found is not None else trio.current_time() + RETRY_S
        if found is not None:
            self._page, self._ring = found, ring
        return None


class Listener:
    """One client."""

    def __init__(
        self,
        api: Api,
        request: Request,
        event_filter: EventFilter,
        places: dict[int, Place],
        board: Board | None = None,
    ) -> None:
        """One with a board gets events as messages, if the board has them."""
        self._api = api
        self._hub = api.hub
        self._request = request
        self._event_filter = event_filter
        self._board = board
        # A board is told of every job that it shows, whatever events are wanted beside it.
        self._wanted: Final = (
            board.event_filter(event_filter) if board is not None else event_filter
        )
        self._tail = Tail() if board is not None else None
        self._wants_events = board is None or board.has_tail
        self._spots: Final = {
            feed.shard: Spot(feed, places.get(feed.shard)) for feed in self._hub.feeds
        }
        self._parts: Final = [""] * len(self._spots)  # of the id, by shard
        self._sent_id = ""
        self._first = 0  # the shard that is looked at before the others
        self._number = 0
        self._is_here = False

    def enter(self) -> None:
        """Take one's place among those who listen. Raises `Problem` when there is none."""
        listeners_max = self._api.limits.listeners_max
        if self._hub.listeners >= listeners_max:
            raise overloaded(
                f"{self._hub.listeners} clients follow events, the limit (limits.listeners_max)",
                retry_after_ms=5_000,
            )
        self._is_here = True
        self._number = self._hub.enter()

    def leave(self) -> None:
        """It is over, or nobody came."""
        if self._is_here:
            self._is_here = False
            self._hub.leave()

    async def take_back(self) -> None:
        """The client has gone before anything was sent."""
        self.leave()

    # Before the first byte.

    async def settle(self) -> None:
        """Find out whether all shards can go on from the places. Raises `PlaceGone`.

        A shard that is away is not waited for longer than a request would be: that it cannot is
        told when it is back.
        """
        until = trio.current_time() + self._api.limits.leader_wait_ms / 1_000
        with trio.move_on_at(until):
            while not self._hub.is_stopping:
                changed = self._hub.bell(self._number)
                await self._settle_all()
                if all(spot.is_settled for spot in self._spots.values()):
                    return
                with trio.move_on_after(RETRY_S):
                    await changed.wait()

    async def _settle_all(self) -> None:
        gone: dict[int, Place] = {}
        for shard, spot in self._spots.items():
            if spot.find() is Nowhere.BEFORE and spot.retry_at <= trio.current_time():
                begin = await spot.read()
                if begin is not None:
                    gone[shard] = begin
        if gone:
            raise PlaceGone(self._places(), gone)

    def _places(self) -> dict[int, Place]:
        places = {shard: spot.place for shard, spot in self._spots.items()}
        return {shard: place for shard, place in places.items() if place is not None}

    # The stream.

    async def run(self, sink: Sink) -> None:
        """Send what happens until the client has had enough, or we have. Raises `ClientGone`."""
        try:
            await sink.send(self._begin())
            farewell = await self._run(sink)
            with trio.move_on_after(_FAREWELL_S):
                await sink.send(farewell)
        finally:
            self.leave()

    def _begin(self) -> bytes:
        """Whoever is cut off before the first event goes on from here, and misses nothing."""
        for shard, place in self._places().items():
            self._parts[shard] = sse.render_place(shard, place)
        self._sent_id = self._id()
        return sse.RETRY + (sse.position(self._sent_id) if self._sent_id else b"\n")

    async def _run(self, sink: Sink) -> bytes:
        """Returns the last words."""
        sent_at = checked_at = trio.current_time()
        while True:
            changed, now = self._hub.bell(self._number), trio.current_time()
            if self._hub.is_stopping:
                return self._at_the_end("the server stops")
            if now - checked_at >= CHECK_S:
                checked_at = now
                try:
                    self._request.caller = await self._api.reader(self._request)
                except Problem as problem:
                    return self._at_the_end(problem.error)
            try:
                piece, has_more = await self._next_piece()
            except PlaceGone as gone:
                return sse.frame(encode_json(gone.body), event="" if self._board else "gone")
            if self._board is not None:
                piece += await self._boarded(self._board)
            if not piece and now - sent_at >= sse.KEEPALIVE_S:
                piece = self._keepalive()
            if piece:
                await sink.send(piece)
                sent_at = trio.current_time()
            elif has_more:
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_at(
                    self._due(min(sent_at + sse.KEEPALIVE_S, checked_at + CHECK_S))
                ):
                    await changed.wait()

    def _due(self, at: float) -> float:
        """When something is to be done though nothing happens."""
        board_at = self._board.due() if self._board is not None else math.inf
        retries = [spot.retry_at for spot in self._spots.values() if spot.retry_at]
        return min([at, board_at, *retries])

    async def _boarded(self, board: Board) -> bytes:
        """What is to be told beside events."""
        assert self._tail is not None
        frames = await board.frames(self._request.caller)
        dropped = self._tail.take_dropped(trio.current_time())
        if dropped:
            frames.append(dropped)
        now_id = self._id()
        return b"".join([sse.frame(data, id_text=now_id) for data in frames])

    def _keepalive(self) -> bytes:
        """The place moves on also where nothing is wanted: else it would be gone one day."""
        now_id = self._id()
        moved = sse.position(now_id) if now_id != self._sent_id else b""
        self._sent_id = now_id
        return moved + sse.KEEPALIVE

    def _at_the_end(self, why: str) -> bytes:
        """What was looked at and not wanted need not be looked at again."""
        last_id = self._id()
        return (sse.position(last_id) if last_id else b"") + sse.comment(why)

    async def _next_piece(self) -> tuple[bytes, bool]:
        """What is to be sent next, and whether there may be more. Raises `PlaceGone`."""
        frames: list[bytes] = []
        looked = size = 0
        for shard in self._in_turn():
            spot = self._spots[shard]
            page = spot.find()
            if page is Nowhere.BEFORE and spot.retry_at <= trio.current_time():
                page = await self._read(shard, spot)
            if not isinstance(page, Page):
                continue
            assert spot.place is not None
            given = page.given_at(spot.place)
            until = len(page.events)
            among = page.among(self._wanted)
            for at in itertools.islice(among, bisect_left(among, given), None):
                if size >= PIECE_BYTES or looked >= LOOKS_MAX:
                    until = at
                    break
                looked += 1
                told = page.events[at]
                if self._board is not None:
                    self._board.note(told.what.job_id)
                if self._is_wanted(told):
                    frames.append(self._frame(told, page.place(at + 1)))
                    size += len(frames[-1])
            spot.move(page, max(given, until))
            self._parts[shard] = sse.render_place(shard, spot.place)
            looked += 1  # the page itself: there may be another one behind it
        return b"".join(frames), looked > 0

    def _in_turn(self) -> list[int]:
        """All shards, each time another one first: none is to wait for what others have to say."""
        self._first = (self._first + 1) % len(self._spots)
        shards = list(self._spots)
        return shards[self._first :] + shards[: self._first]

    async def _read(self, shard: int, spot: Spot) -> Page | Nowhere:
        begin = await spot.read()
        if begin is not None:
            if self._board is None or self._wants_events:
                raise PlaceGone(self._places(), {shard: begin})
            # Nobody misses events here: how things are is looked at anew.
            spot.place = None
            self._board.note_all()
        return spot.find() if spot.retry_at == 0.0 else Nowhere.BEFORE

    def _is_wanted(self, told: KeptEvent) -> bool:
        if not self._wants_events or not self._event_filter.matches(told, self._request.caller):
            return False
        return self._tail is None or self._tail.lets(trio.current_time())

    def _frame(self, told: KeptEvent, place: Place) -> bytes:
        self._parts[told.shard] = sse.render_place(told.shard, place)
        self._sent_id = self._id()
        event = told.type if self._board is None else ""
        return sse.frame(told.json(), id_text=self._sent_id, event=event)

    def _id(self) -> str:
        return ",".join(filter(None, self._parts))
