"""The latest pages of one shard's feed, in memory, for all clients that listen.

A page begins at a place and ends at one; the next begins where it ended. Whoever listens holds a
place, and no page: what is dropped here is dropped for everybody, and has to be read again from
the shard by those who have not come so far.
"""

import itertools
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import cached_property
from typing import Final, TypeAlias

import msgspec

from corvo.protocol import wire
from corvo.router.feeds.events import EventFilter, KeptEvent, kept_events
from corvo.router.http.sse import Place

EVENTS_MAX: Final = 10_000
"""Of one shard; the last page is kept however large it is."""
BYTES_MAX: Final = 8 << 20


Index: TypeAlias = dict[str, list[int]]
"""Where events are in a page, by the name of something that they have."""


class Page:
    """A piece of a feed."""

    def __init__(self, start: Place, end: Place, events: list[KeptEvent], now_ns: int = 0) -> None:
        self.start: Final = start
        self.end: Final = end
        self.events: Final = events
        self.now_ns: Final = now_ns
        """The shard's time at the end."""

    @cached_property
    def _by_job(self) -> Index:
        return _index(told.what.job_id for told in self.events)

    @cached_property
    def _by_queue(self) -> Index:
        return _index(told.what.queue for told in self.events)

    @cached_property
    def _by_type(self) -> Index:
        return _index(told.type for told in self.events)

    def among(self, event_filter: EventFilter) -> Sequence[int]:
        """Which of the events somebody may want, in order: the others need not be looked at.

        A thousand clients that wait for a job each are not to look at every event of everybody.
        """
        if event_filter.job_ids:
            return _found(self._by_job, event_filter.job_ids)
        if event_filter.queues:
            return _found(self._by_queue, event_filter.queues)
        if event_filter.types:
            return _found(self._by_type, event_filter.types)
        return range(len(self.events))

    def place(self, given: int) -> Place:
        """Where somebody stands who has so many of the events."""
        behind = given - len(self.events)
        if behind < 0:
            return msgspec.structs.replace(self.start, given=given)
        # Somebody's page that began here may have been longer.
        return msgspec.structs.replace(self.end, given=behind)

    def given_at(self, place: Place) -> int:
        """How many of the events somebody has who stands at a place that lies in the page."""
        if place.index == self.start.index:
            return place.given
        before = sum(told.index <= place.index for told in self.events)
        return before + place.given


def _index(names: Iterable[str]) -> Index:
    index: Index = {}
    for at, name in enumerate(names):
        index.setdefault(name, []).append(at)
    return index


def _found(index: Index, names: frozenset[str]) -> Sequence[int]:
    few, many = (index, names) if len(index) < len(names) else (names, index)
    found = [index[name] for name in few if name in many]
    return found[0] if len(found) == 1 else sorted(itertools.chain.from_iterable(found))


def page_of(shard: int, start: Place, changes: wire.Changes) -> Page:
    """The page that a shard answered to whoever asked for what is behind `start`."""
    end = Place(changes.index, changes.digest)
    begin = Place(start.index, start.digest)
    return Page(begin, end, kept_events(shard, changes.happenings), changes.now_ns)


class Nowhere(Enum):
    """Why there is no page for a place."""

    BEFORE = auto()
    """It was dropped, or is not known to be of this log: the shard has to be asked."""
    BEHIND = auto()
    """There is nothing yet."""


class Ring:
    """The latest pages behind one another. A log that is another one gets another ring."""

    def __init__(self, shard: int, start: Place, now_ns: int = 0) -> None:
        self.end = start
        """Where it ends, and the next page begins."""
        self.now_ns = now_ns
        """The shard's time there."""
        self._shard = shard
        self._pages: dict[int, Page] = {}  # by where they begin, in order
        self._events = 0
        self._bytes = 0

    def add(self, changes: wire.Changes) -> None:
        """What was answered to whoever asked for what is behind `end`."""
        assert changes.index >= self.end.index, "a feed does not go back"
        if changes.index == self.end.index:
            return
        page = page_of(self._shard, self.end, changes)
        self._pages[page.start.index] = page
        self.end = page.end
        self.now_ns = page.now_ns
        self._events += len(page.events)
        self._bytes += _bytes(page)
        while len(self._pages) > 1 and self._is_full:
            dropped = self._pages.pop(next(iter(self._pages)))
            self._events -= len(dropped.events)
            self._bytes -= _bytes(dropped)

    @property
    def _is_full(self) -> bool:
        # Pages without events are few: what has none is told together.
        return self._events + len(self._pages) > EVENTS_MAX or self._bytes > BYTES_MAX

    def knows(self, place: Place) -> bool:
        """Whether a place is of this log for certain: where digests can be compared."""
        if place.index == self.end.index:
            return place.digest == self.end.digest
        page = self._pages.get(place.index)
        return page is not None and page.start.digest == place.digest

    def page_at(self, place: Place) -> Page | Nowhere:
        """The page in which a place of this log lies: at its beginning or in it, not at its end."""
        if place.index >= self.end.index:
            return Nowhere.BEHIND
        page = self._pages.get(place.index)
        if page is not None:
            return page
        # In the middle of one: somebody read pages of his own, which ended elsewhere.
        for page in reversed(self._pages.values()):
            if page.start.index < place.index:
                return page
        return Nowhere.BEFORE


def _bytes(page: Page) -> int:
    return sum(told.size for told in page.events)
