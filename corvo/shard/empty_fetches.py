"""Long poll: the links whose last fetch from a queue found no job, to be notified of the next.

A fetch that finds no job is answered at once, and its queues are remembered for its link. When one
of the queues may have a job, the link is notified once, and its router fetches again.
"""

from typing import Final

WATCHED_MAX: Final = 100_000
"""Pairs of link and queue. Beyond it, links of the oldest queue are notified without a reason."""


class EmptyFetchWatchers:
    """Links by the queues in which they found no job."""

    def __init__(self) -> None:
        self._links: dict[str, dict[int, None]] = {}
        self._count = 0
        self.retries: dict[str, int] = {}
        """By watched queue, when it may give jobs again without any change to it."""

    def __contains__(self, queue: str) -> bool:
        """Whether a link watches this queue."""
        return queue in self._links

    def add(self, link: int, queue: str) -> list[tuple[int, str]]:
        """Note that a link found no job. Returns links and queues to notify for want of room."""
        links = self._links.setdefault(queue, {})
        if link in links:
            return []
        links[link] = None
        self._count += 1
        if self._count <= WATCHED_MAX:
            return []
        oldest = next(iter(self._links))
        return [(watcher, oldest) for watcher in self.take(oldest)]

    def take(self, queue: str) -> list[int]:
        """The links to notify of a queue; they do not watch it any more."""
        links = self._links.pop(queue, None)
        self.retries.pop(queue, None)
        if links is None:
            return []
        self._count -= len(links)
        return list(links)

    def forget(self, link: int) -> None:
        """Remove a link that ended."""
        for queue in [queue for queue, links in self._links.items() if link in links]:
            links = self._links[queue]
            del links[link]
            self._count -= 1
            if not links:
                del self._links[queue]
                self.retries.pop(queue, None)

    def clear(self) -> None:
        """Remove all: this replica is not the leader any more."""
        self._links, self.retries, self._count = {}, {}, 0

    def retry_at(self, queue: str, at_ns: int) -> None:
        """Note that a watched queue gives no job before a certain time."""
        if queue in self._links:
            self.retries[queue] = at_ns

    def take_due(self, now_ns: int) -> list[str]:
        """The watched queues that may give jobs again, each once."""
        due = [queue for queue, at_ns in self.retries.items() if at_ns <= now_ns]
        for queue in due:
            del self.retries[queue]
        return due

    @property
    def next_ns(self) -> int | None:
        """When the next of them may give jobs again."""
        return min(self.retries.values(), default=None)
