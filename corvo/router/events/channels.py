"""Channels: clients that want the same events, and are sent the same bytes.

    pages of the hub  ->  one cursor  ->  pieces, each made once  ->  all members

A member has a number: the piece that it is sent next. Members that read at their own pace are woken
for a piece and take all that there is up to its end. One for whom the pieces are no longer kept
goes on by itself, from the place where it stands.
"""

from collections import deque
from typing import Final

import msgspec
import trio

from corvo.router.events.cursors import Begin, Cursor
from corvo.router.feeds.events import EventFilter, KeptEvent
from corvo.router.feeds.hub import Hub
from corvo.router.http.sse import Place
from corvo.scopes import Scope

KEPT_BYTES_MAX: Final = 16 << 20
"""Of pieces, in all channels together; each keeps its last one in any case."""
SENT_BYTES_MAX: Final = 256 << 10
"""About so much is sent to a member at a time."""


class Kind(msgspec.Struct, frozen=True):
    """What all members of a channel want, and may see."""

    wanted: EventFilter
    scope: Scope
    is_numbered: bool = False
    """Whether ids are numbers."""

    @property
    def has_names(self) -> bool:
        """See `Choice`."""
        return True

    def picks(self, told: KeptEvent) -> bool:
        """See `Choice`."""
        return self.wanted.matches(told, self.scope)


class Mark(msgspec.Struct, frozen=True):
    """Where a member stands."""

    places: dict[int, Place]
    id: str

    def begin(self, *, is_numbered: bool) -> Begin:
        """What goes on from there."""
        return Begin(self.places, is_numbered, number=int(self.id or 0) if is_numbered else 0)


class Piece(msgspec.Struct, frozen=True):
    """Frames, and where they end."""

    data: bytes
    end: Mark


class Channel:
    """All members that want the same."""

    def __init__(self, hub: Hub, kind: Kind, cursor: Cursor) -> None:
        self._hub = hub
        self._kind = kind
        self._cursor = cursor
        self._pieces: deque[Piece] = deque()
        self._bytes = 0
        self._told = 0
        self._waiting = trio.lowlevel.ParkingLot()
        self.end = 0
        """The number of the piece that is made next."""
        self.members = 0
        self.is_over = False
        """Whether the hub has lost the place: each member goes on by itself."""

    # What the hub does.

    def advance(self) -> int:
        """Make what comes next: how much work it was, 0 when there was none."""
        if self.is_over:
            return 0
        if self._cursor.gaps():
            self.is_over = True
            self._hub.audiences.pop(self._kind, None)
            return 0
        data, has_more = self._cursor.take(self._kind)
        if data:
            self._pieces.append(Piece(data, self.mark))
            self._bytes += len(data)
            self.end += 1
            bytes_max = KEPT_BYTES_MAX // max(1, len(self._hub.audiences))
            while self._bytes > bytes_max and len(self._pieces) > 1:
                self._bytes -= len(self._pieces.popleft().data)
        return has_more + (len(data) >> 11)

    def crowd(self) -> trio.lowlevel.ParkingLot:
        """Those who wait for something that there is now."""
        crowd = trio.lowlevel.ParkingLot()
        if self._told < self.end or self.is_over or self._hub.is_stopping:
            self._told = self.end
            crowd, self._waiting = self._waiting, crowd
        return crowd

    # What members do.

    @property
    def kind(self) -> Kind:
        """What its members want."""
        return self._kind

    def enter(self) -> None:
        """Another member."""
        self.members += 1

    def leave(self) -> None:
        """One member fewer; without any, it ends."""
        self.members -= 1
        if not self.members and self._hub.audiences.get(self._kind) is self:
            del self._hub.audiences[self._kind]

    @property
    def mark(self) -> Mark:
        """Where it ends."""
        return Mark(self._cursor.places, self._cursor.id)

    def meets(self, cursor: Cursor) -> bool:
        """Whether somebody who stands there has all that was sent here, and no more."""
        self.advance()
        return not self.is_over and cursor.places == self._cursor.places

    def since(self, number: int) -> tuple[bytes, int, Mark | None] | None:
        """Pieces from a number on, the number behind them, and where that is if there are any.

        None when they are not kept.
        """
        at = number - (self.end - len(self._pieces))
        if at < 0:
            return None
        taken: list[bytes] = []
        size, end = 0, None
        while at < len(self._pieces) and size < SENT_BYTES_MAX:
            piece = self._pieces[at]
            taken.append(piece.data)
            size += len(piece.data)
            end = piece.end
            at += 1
        return taken[0] if len(taken) == 1 else b"".join(taken), number + len(taken), end

    async def changed(self, number: int) -> None:
        """Wait until there is the piece of that number, or the channel is over."""
        if number == self.end and not self.is_over and not self._hub.is_stopping:
            await self._waiting.park()


def join(hub: Hub, kind: Kind, cursor: Cursor) -> Channel | None:
    """The channel of a kind, for somebody who has all that there is; None when it is elsewhere.

    A new channel begins where the first member stands, with its cursor.
    """
    found = hub.audiences.get(kind)
    if found is None:
        hub.audiences[kind] = made = Channel(hub, kind, cursor)
        return made
    assert isinstance(found, Channel)
    return found if found.meets(cursor) else None
