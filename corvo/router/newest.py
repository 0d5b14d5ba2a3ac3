"""Pages of a list that several sources have together, the newest first.

A source is a shard, or some queues of one. Each is asked for its newest entries, and again behind
those, until a page is full. `Newest` says which source is to be asked, and what can be shown.
"""

from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from corvo.router.http.params import Place

PAGE_BYTES_MAX: Final = 8 << 20
"""A page that becomes larger is cut short."""
ROUNDS_MAX: Final = 10
"""Questions to each source for one page."""

T = TypeVar("T")


class Entry(NamedTuple, Generic[T]):
    """An entry of a list: its place there, itself, and its bytes in an answer."""

    place: Place
    item: T
    size: int


class Source:
    """A part of a list in one shard, and how far it was read."""

    def __init__(self, shard: int, before: Place | None, queues: Sequence[str] = ()) -> None:
        """`queues` are the only ones that are read of the shard, where they are named."""
        self.shard: Final = shard
        self.queues: Final = list(queues)
        self.before = before
        """With what comes behind this the next question goes on; None is the beginning."""
        self.is_at_end = False


class Newest(Generic[T]):
    """One page of a list that comes from many places: the newest first, whoever has them.

    An entry may be shown once every source was read as far back as where it stands. A source that
    has to be read far back holds up the others, so a page may end early, at the place up to which
    all were read.
    """

    def __init__(self, sources: Sequence[Source], limit: int) -> None:
        self._sources = list(sources)
        self._limit = limit
        self._found: list[Entry[T]] = []
        self._size = 0

    def next(self) -> list[Source]:
        """The sources to be asked before the page is as long as it may be; none when it is."""
        if self._size >= PAGE_BYTES_MAX:
            return []
        is_full = len(self._found) >= self._limit
        needed = self._found[self._limit - 1].place if is_full else None
        return [
            source
            for source in self._sources
            if not source.is_at_end
            and (needed is None or source.before is None or _is_behind(needed, source.before))
        ]

    def hear(self, source: Source, found: Sequence[Entry[T]], reached: Place | None) -> None:
        """What a source had next, and the place that it was read to; None is its end."""
        self._found += found
        self._size += sum(entry.size for entry in found)
        self._found.sort(key=lambda each: _order(each.place), reverse=True)
        if reached is None:
            source.is_at_end = True
        else:
            source.before = reached

    def page(self) -> tuple[list[T], Place | None]:
        """What can be shown, and the place behind which the next page begins, if there is one."""
        reached = self._reached()
        shown: list[T] = []
        size = 0
        last: Place | None = None
        for entry in self._found:
            is_known = reached is None or not _is_behind(entry.place, reached)
            if not is_known or len(shown) == self._limit or size >= PAGE_BYTES_MAX:
                return shown, last if is_known else reached
            shown.append(entry.item)
            size += entry.size
            last = entry.place
        return shown, reached

    def _reached(self) -> Place | None:
        """How far back all sources were read; None when that is to the end."""
        places = [source.before for source in self._sources if not source.is_at_end]
        reached: Place | None = None
        for place in places:
            assert place is not None, "every source was asked once"
            if reached is None or _is_behind(reached, place):
                reached = place
        return reached


def _order(place: Place) -> tuple[int, bytes]:
    return place.at_ns, place.job_id.encode()


def _is_behind(place: Place, other: Place) -> bool:
    """Whether a place comes later in the list than another: it is older."""
    return _order(place) < _order(other)
