"""Waiting fetches: which one is woken when a queue may have work again.

A shard that answers a fetch with nothing remembers the router's link, and notifies it once when one
of the queues may have a job. This module knows whose fetch that was. A fetch asks its shards, and
is parked while there is no job.

- Notified while it asks: the empty answer may be older than the notification, so it asks again.
- Notified while parked: of the fetches parked for this queue, the one parked longest is woken.
- It found a job: there may be more, and no notification comes, for no fetch was empty since.
  So it wakes the next one. Each fetch woken like this that finds a job wakes twice as many as the
  one before it, so that a thousand parked workers are not woken one after the other.
- It ends while it asks: its notification must not be lost, so it wakes the next one.
"""

from collections.abc import Callable, Iterable
from typing import Final

WAKE_MAX: Final = 64
"""How many fetches one fetch wakes at most."""


class WaitingFetch:
    """One fetch of one client, from its first question to its answer."""

    __slots__ = ("_wake", "is_asking", "must_recheck", "queues", "wake_count", "was_woken")

    def __init__(self, queues: tuple[str, ...], wake: Callable[[], None]) -> None:
        self.queues: Final = queues
        self.is_asking = True
        self.must_recheck = False
        """Whether there was a notification since it began to ask."""
        self.was_woken = False
        """Whether it was woken, and has not asked since."""
        self.wake_count = 1
        """How many it wakes when it finds a job."""
        self._wake = wake

    def wake(self) -> None:
        """Let it ask again."""
        self._wake()


class WaitingFetches:
    """Fetches by their queues."""

    def __init__(self) -> None:
        self._parked: dict[str, dict[WaitingFetch, None]] = {}
        self._asking: dict[str, dict[WaitingFetch, None]] = {}
        self.parked_count = 0

    # One fetch.

    def begin(self, queues: Iterable[str], wake: Callable[[], None]) -> WaitingFetch:
        """Add a fetch, which asks now."""
        waiting = WaitingFetch(tuple(dict.fromkeys(queues)), wake)
        self._ask(waiting)
        return waiting

    def park(self, waiting: WaitingFetch) -> bool:
        """Park a fetch that found no job. False when it must ask again at once."""
        assert waiting.is_asking
        if waiting.must_recheck:
            waiting.must_recheck = False
            waiting.was_woken = True
            return False
        self._stop_asking(waiting)
        waiting.was_woken = False
        waiting.wake_count = 1
        for queue in waiting.queues:
            self._parked.setdefault(queue, {})[waiting] = None
        self.parked_count += 1
        return True

    def end(self, waiting: WaitingFetch, *, found: bool = False) -> None:
        """Remove a fetch that found a job, or ends."""
        if not waiting.is_asking:
            self._unpark(waiting)
            return
        self._stop_asking(waiting)
        if found or waiting.was_woken:
            count = waiting.wake_count if found else 1
            for queue in waiting.queues:
                self._wake_some(queue, count, 2 * count if found else 1)

    def _ask(self, waiting: WaitingFetch) -> None:
        waiting.is_asking = True
        waiting.must_recheck = False
        for queue in waiting.queues:
            self._asking.setdefault(queue, {})[waiting] = None

    def _stop_asking(self, waiting: WaitingFetch) -> None:
        waiting.is_asking = False
        for queue in waiting.queues:
            asking = self._asking[queue]
            del asking[waiting]
            if not asking:
                del self._asking[queue]

    def _unpark(self, waiting: WaitingFetch) -> None:
        for queue in waiting.queues:
            parked = self._parked[queue]
            del parked[waiting]
            if not parked:
                del self._parked[queue]
        self.parked_count -= 1

    # Notifications.

    def notify(self, queue: str) -> None:
        """Wake a fetch: there may be a job in a queue."""
        for waiting in self._asking.get(queue, ()):
            waiting.must_recheck = True
        self._wake_some(queue, 1, 1)

    def recheck(self, queues: Callable[[str], bool]) -> None:
        """Let all fetches of some queues ask again: their shard has forgotten the link."""
        for queue in [queue for queue in self._asking if queues(queue)]:
            for waiting in self._asking[queue]:
                waiting.must_recheck = True
        for queue in [queue for queue in self._parked if queues(queue)]:
            self._wake_some(queue, len(self._parked.get(queue, ())), 1)

    def _wake_some(self, queue: str, count: int, wake_count: int) -> None:
        parked = self._parked.get(queue)
        if parked is None:
            return
        for waiting in list(parked)[:count] if count > 1 else [next(iter(parked))]:
            self._unpark(waiting)
            self._ask(waiting)
            waiting.was_woken = True
            waiting.wake_count = min(wake_count, WAKE_MAX)
            waiting.wake()

    def is_parked(self, waiting: WaitingFetch) -> bool:
        """Whether a fetch waits to be woken."""
        return not waiting.is_asking
