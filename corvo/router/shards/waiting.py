"""Fetches that found nothing and wait: who is woken when there may be work again.

A shard that answers a fetch with nothing remembers the router's link, and tells it once when one of
the queues may give something. Here is kept whose fetch that was. A *seeker* is one fetch of one
client: it asks, and while nothing is there it is parked.

- Work was announced while it asked: its empty answer may be older than the news, so it asks again.
- Work is announced while it is parked: the longest parked one of the queue is woken, and no other.
- It found something: there may be more, and the shard has told nobody, for nobody's fetch was empty
  since. So it wakes the next one; and who finds something at the end of such a chain wakes twice as
  many as the one before it, for a thousand waiting workers must not be fed one by one.
- It leaves while it asks: what was announced to it must not be lost, so it wakes the next one, too.
"""

from collections.abc import Callable, Iterable
from typing import Final

WAKE_MAX: Final = 64
"""How many one seeker wakes at most."""


class Seeker:
    """One fetch."""

    __slots__ = ("_wake", "is_asking", "is_stirred", "owes", "queues", "width")

    def __init__(self, queues: tuple[str, ...], wake: Callable[[], None]) -> None:
        self.queues: Final = queues
        self.is_asking = True
        self.is_stirred = False
        """Whether work was announced since it began to ask."""
        self.owes = False
        """Whether it was woken for work, and has not looked for it yet."""
        self.width = 1
        """How many it wakes when it finds something."""
        self._wake = wake

    def wake(self) -> None:
        """Let it ask again."""
        self._wake()


class Parking:
    """Seekers by the queues that they seek in."""

    def __init__(self) -> None:
        self._parked: dict[str, dict[Seeker, None]] = {}
        self._asking: dict[str, dict[Seeker, None]] = {}
        self.parked_count = 0

    # A seeker's life.

    def begin(self, queues: Iterable[str], wake: Callable[[], None]) -> Seeker:
        """A fetch begins to ask."""
        seeker = Seeker(tuple(dict.fromkeys(queues)), wake)
        self._ask(seeker)
        return seeker

    def park(self, seeker: Seeker) -> bool:
        """It found nothing. False when it is to ask again at once instead of waiting."""
        assert seeker.is_asking
        if seeker.is_stirred:
            seeker.is_stirred = False
            seeker.owes = True
            return False
        self._stop_asking(seeker)
        seeker.owes = False
        seeker.width = 1
        for queue in seeker.queues:
            self._parked.setdefault(queue, {})[seeker] = None
        self.parked_count += 1
        return True

    def end(self, seeker: Seeker, *, found: bool = False) -> None:
        """It has found something, or leaves."""
        if not seeker.is_asking:
            self._unpark(seeker)
            return
        self._stop_asking(seeker)
        if found or seeker.owes:
            count = seeker.width if found else 1
            for queue in seeker.queues:
                self._wake_some(queue, count, 2 * count if found else 1)

    def _ask(self, seeker: Seeker) -> None:
        seeker.is_asking = True
        seeker.is_stirred = False
        for queue in seeker.queues:
            self._asking.setdefault(queue, {})[seeker] = None

    def _stop_asking(self, seeker: Seeker) -> None:
        seeker.is_asking = False
        for queue in seeker.queues:
            asking = self._asking[queue]
            del asking[seeker]
            if not asking:
                del self._asking[queue]

    def _unpark(self, seeker: Seeker) -> None:
        for queue in seeker.queues:
            parked = self._parked[queue]
            del parked[seeker]
            if not parked:
                del self._parked[queue]
        self.parked_count -= 1

    # What is announced.

    def announce(self, queue: str) -> None:
        """There may be work in a queue."""
        for seeker in self._asking.get(queue, ()):
            seeker.is_stirred = True
        self._wake_some(queue, 1, 1)

    def stir(self, queues: Callable[[str], bool]) -> None:
        """Whoever was to tell of work has forgotten us: all that wait for such queues ask again."""
        for queue in [queue for queue in self._asking if queues(queue)]:
            for seeker in self._asking[queue]:
                seeker.is_stirred = True
        for queue in [queue for queue in self._parked if queues(queue)]:
            self._wake_some(queue, len(self._parked.get(queue, ())), 1)

    def _wake_some(self, queue: str, count: int, width: int) -> None:
        parked = self._parked.get(queue)
        if parked is None:
            return
        for seeker in list(parked)[:count] if count > 1 else [next(iter(parked))]:
            self._unpark(seeker)
            self._ask(seeker)
            seeker.owes = True
            seeker.width = min(width, WAKE_MAX)
            seeker.wake()

    def is_parked(self, seeker: Seeker) -> bool:
        """Whether it waits."""
        return not seeker.is_asking
