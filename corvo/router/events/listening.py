"""One client of an event stream: what it is sent, at its own pace.

A client that resumes reads alone at first: pages of the hub, or its own from a shard's disk, until
it has all that there is. Then it reads along in the channel of all that want the same, unless it is
a dashboard. If it falls too far behind the channel, it reads alone again.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec
import trio

from corvo.errors import CorvoError
from corvo.router.api import Api
from corvo.router.events.boards import Board
from corvo.router.events.channels import Channel, Kind, join
from corvo.router.events.cursors import RETRY_S, Begin, Choice, Cursor
from corvo.router.events.topics import Tail
from corvo.router.feeds.events import EventFilter, KeptEvent
from corvo.router.feeds.hub import Gone
from corvo.router.http import sse
from corvo.router.http.messages import Problem, Request, Sink, encode_json, overloaded
from corvo.router.http.sse import Place
from corvo.times import MS

CHECK_S: Final = 5.0
"""How often it is looked up whether the key is still good."""
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

    def __init__(
        self, places: Mapping[int, Place], gone: Mapping[int, Gone], *, is_numbered: bool
    ) -> None:
        super().__init__("the place is gone")
        shards = sorted(gone)
        if is_numbered:
            last_id = str(-(-max([each.whole_ns for each in gone.values()]) // MS))
        else:
            last_id = sse.render({**places, **{shard: gone[shard].begin for shard in shards}})
        names = ", ".join(str(shard) for shard in shards)
        self.body: Final = GoneBody(
            error=f"shard {names} no longer stores the events after this id, or was restored with "
            "another log: read the current state again, and continue with last_event_id",
            code="GONE",
            outcome="not_applied",
            last_event_id=last_id,
            shards=shards,
        )


class _Over(CorvoError):
    """The stream ends, and the client is told why."""


class _Shown:
    """The events of a dashboard."""

    has_names: Final = False

    def __init__(self, board: Board, event_filter: EventFilter, request: Request) -> None:
        self.wanted: Final = board.event_filter(event_filter)
        self.tail: Final = Tail()
        self._board = board
        self._event_filter = event_filter
        self._request = request

    def picks(self, told: KeptEvent) -> bool:
        """See `Choice`. The board is told of every job that it shows."""
        self._board.note(told.what.job_id)
        if not self._board.has_tail:
            return False
        is_match = self._event_filter.matches(told, self._request.caller.scope)
        return is_match and self.tail.lets(trio.current_time())


class Listener:
    """One client."""

    def __init__(
        self,
        api: Api,
        request: Request,
        event_filter: EventFilter,
        begin: Begin,
        board: Board | None = None,
    ) -> None:
        """One with a board gets events as messages, if the board has them."""
        self._api = api
        self._hub = api.hub
        self._request = request
        self._event_filter = event_filter
        self._board = board
        self._shown = _Shown(board, event_filter, request) if board is not None else None
        self._is_numbered = begin.is_numbered
        self._cursor = Cursor(self._hub.feeds, begin)
        self._sent_id = ""
        self._sent_at = self._checked_at = trio.current_time()
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
        self._hub.enter()

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
                seen = self._hub.rounds
                await self._settle_all()
                if all(spot.is_settled for spot in self._cursor.spots.values()):
                    return
                with trio.move_on_after(RETRY_S):
                    await self._hub.changed(seen)

    async def _settle_all(self) -> None:
        gone: dict[int, Gone] = {}
        for shard in self._cursor.gaps(trio.current_time()):
            lost = await self._cursor.spots[shard].read()
            if lost is not None:
                gone[shard] = lost
        if gone:
            raise PlaceGone(self._cursor.places, gone, is_numbered=self._is_numbered)

    # The stream.

    async def run(self, sink: Sink) -> None:
        """Send what happens until the client has had enough, or we have. Raises `ClientGone`."""
        try:
            self._cursor.begin()  # a client that is cut off before the first event misses nothing
            self._sent_id = self._cursor.id
            first = sse.position(self._sent_id) if self._sent_id else b"\n"
            await self._send(sink, sse.RETRY + first)
            farewell = await self._run(sink)
            with trio.move_on_after(_FAREWELL_S):
                await sink.send(farewell)
        finally:
            self.leave()
            if sink.is_slow:
                self._api.metrics.drop("slow")

    async def _run(self, sink: Sink) -> bytes:
        """Returns the last words."""
        try:
            while True:
                channel = await self._read_alone(sink)
                await self._read_along(channel, sink)
        except PlaceGone as gone:
            self._api.metrics.drop("gone")
            return sse.frame(encode_json(gone.body), event="" if self._board else "gone")
        except _Over as over:
            # What was looked at and not wanted need not be looked at again.
            last_id = self._cursor.id
            return (sse.position(last_id) if last_id else b"") + sse.comment(str(over))

    async def _send(self, sink: Sink, data: bytes) -> None:
        await sink.send(data)
        self._sent_at = trio.current_time()

    async def _check(self) -> None:
        """Raise `_Over` when the stream has to end."""
        if self._hub.is_stopping:
            raise _Over("the server stops")
        now_s = trio.current_time()
        if now_s - self._checked_at >= CHECK_S:
            self._checked_at = now_s
            try:
                self._request.caller = await self._api.reader(self._request)
            except Problem as problem:
                raise _Over(problem.error) from None

    def _is_silent(self) -> bool:
        return trio.current_time() - self._sent_at >= sse.KEEPALIVE_S

    def _keepalive(self, now_id: str) -> bytes:
        """The place moves on also where nothing is wanted: else it would be gone one day."""
        moved = sse.position(now_id) if now_id not in {"", self._sent_id} else b""
        self._sent_id = now_id
        return moved + sse.KEEPALIVE

    def _due(self) -> float:
        """When something is to be done though nothing happens."""
        return min(self._sent_at + sse.KEEPALIVE_S, self._checked_at + CHECK_S)

    # Alone.

    @property
    def _kind(self) -> Kind:
        return Kind(self._event_filter, self._request.caller.scope, self._is_numbered)

    async def _read_alone(self, sink: Sink) -> Channel:
        """Send what there is, until there is no more and others want the same."""
        cursor = self._cursor
        while True:
            seen = self._hub.rounds
            await self._check()
            for shard in cursor.gaps(trio.current_time()):
                await self._read(shard)
            if cursor.has_page:
                await self._hub.turn()
            choice: Choice = self._kind if self._shown is None else self._shown
            piece, has_more = cursor.take(choice)
            if piece:
                self._sent_id = cursor.id
            if self._board is not None:
                piece += await self._boarded(self._board)
            if not piece and self._is_silent():
                piece = self._keepalive(cursor.id)
            if piece:
                await self._send(sink, piece)
            elif not has_more:
                if self._board is None and not cursor.gaps():
                    channel = join(self._hub, self._kind, cursor)
                    if channel is not None:
                        return channel
                with trio.move_on_at(self._due_alone()):
                    await self._hub.changed(seen)

    def _due_alone(self) -> float:
        board_at = self._board.due() if self._board is not None else math.inf
        retries = [spot.retry_at for spot in self._cursor.spots.values() if spot.retry_at]
        return min([self._due(), board_at, *retries])

    async def _boarded(self, board: Board) -> bytes:
        """What is to be told beside events."""
        assert self._shown is not None
        frames = await board.frames(self._request.caller)
        dropped = self._shown.tail.take_dropped(trio.current_time())
        if dropped:
            frames.append(dropped)
        now_id = self._cursor.id
        return b"".join([sse.frame(data, id_text=now_id) for data in frames])

    async def _read(self, shard: int) -> None:
        """Read the page that comes next of a shard. Raises `PlaceGone`."""
        spot = self._cursor.spots[shard]
        lost = await spot.read()
        if lost is not None:
            if self._board is None or self._board.has_tail:
                raise PlaceGone(self._cursor.places, {shard: lost}, is_numbered=self._is_numbered)
            # Nobody misses events here: how things are is looked at anew.
            spot.place = None
            self._board.note_all()

    # Along with others.

    async def _read_along(self, channel: Channel, sink: Sink) -> None:
        """Send what the channel has, until it or this client has to be left behind."""
        number, mark = channel.end, channel.mark
        channel.enter()
        try:
            while True:
                await self._check()
                found = channel.since(number)
                if found is None or channel.kind != self._kind:
                    return
                data, number, end = found
                if end is not None:
                    mark = end
                    self._sent_id = mark.id
                    await self._send(sink, data)
                elif channel.is_over:
                    return
                elif self._is_silent():
                    await self._send(sink, self._keepalive(channel.mark.id))
                else:
                    with trio.move_on_at(self._due()):
                        await channel.changed(number)
        finally:
            mark = channel.mark if number == channel.end else mark
            channel.leave()
            self._cursor = Cursor(self._hub.feeds, mark.begin(is_numbered=self._is_numbered))
            self._cursor.begin()
