"""Who would like to hear that there is work: links whose last fetch from a queue found nothing.

Nobody polls. A fetch that finds nothing is answered at once and its queues are remembered; when one
of them may have something, those who asked are told, once, and ask again.
"""

from typing import Final

HUNGRY_MAX: Final = 100_000
"""Pairs of link and queue. Beyond it the oldest are told that there may be work, and ask again."""


class Hunger:
    """Links by the queues that they found empty."""

    def __init__(self) -> None:
        self._links: dict[str, dict[int, None]] = {}
        self._count = 0
        self.refills: dict[str, int] = {}
        """Hungry queues that will give again by themselves, and when."""

    def __contains__(self, queue: str) -> bool:
        """Whether somebody waits for this queue."""
        return queue in self._links

    def add(self, link: int, queue: str) -> list[tuple[int, str]]:
        """A link found a queue empty. Returns who has to be told for want of room."""
        links = self._links.setdefault(queue, {})
        if link in links:
            return []
        links[link] = None
        self._count += 1
        if self._count <= HUNGRY_MAX:
            return []
        oldest = next(iter(self._links))
        return [(told, oldest) for told in self.feed(oldest)]

    def feed(self, queue: str) -> list[int]:
        """A queue may have work: who is to be told. They are hungry no more."""
        links = self._links.pop(queue, None)
        self.refills.pop(queue, None)
        if links is None:
            return []
        self._count -= len(links)
        return list(links)

    def gone(self, link: int) -> None:
        """A link ended."""
        for queue in [queue for queue, links in self._links.items() if link in links]:
            links = self._links[queue]
            del links[link]
            self._count -= 1
            if not links:
                del self._links[queue]
                self.refills.pop(queue, None)

    def clear(self) -> None:
        """This replica does not lead any more: whoever waits has to ask another."""
        self._links, self.refills, self._count = {}, {}, 0

    def refill(self, queue: str, until_ns: int) -> None:
        """A hungry queue gives nothing before a certain time."""
        if queue in self._links:
            self.refills[queue] = until_ns

    def refilled(self, now_ns: int) -> list[str]:
        """The hungry queues whose time has come, each once."""
        due = [queue for queue, until_ns in self.refills.items() if until_ns <= now_ns]
        for queue in due:
            del self.refills[queue]
        return due

    @property
    def next_ns(self) -> int | None:
        """When the next of them gives again."""
        return min(self.refills.values(), default=None)
