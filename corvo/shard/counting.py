"""What happened in each queue, in the entries that this replica proposed and applied: for metrics.

An entry is proposed by one replica, so each fact is counted by one at most: not by followers, and
not when the log is replayed. No counter falls, but for that of a queue that was deleted.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import Final

from corvo.protocol.numbers import COUNTED, QueueCounters, QueueCountersPage
from corvo.shard.state.throughput import Happened

QUEUES_MAX: Final = 10_000
"""Queues that are counted by themselves: some 300 bytes each."""


class QueueCounts:
    """The counters of a replica, by queue, from its start on."""

    def __init__(self, queues_max: int = QUEUES_MAX) -> None:
        self._queues_max = queues_max
        self._rows: dict[str, list[int]] = {}
        self._names: list[str] = []  # of the rows, in order
        self._others = [0] * len(COUNTED)
        """Of the queues for which there was no room when something happened in them."""

    def take(self, happened: Iterable[Happened], *, is_ours: bool) -> None:
        """An entry is applied: count what it has brought, if it was proposed here."""
        rows = self._rows
        for queue, counts in happened:
            if not counts:
                self._forget(queue)
            elif is_ours:
                row = rows.get(queue)
                if row is None:
                    row = self._new_row(queue)
                for place, count in enumerate(counts):
                    if count:  # most are 0
                        row[place] += count

    def page(self, *, after: str, limit: int) -> QueueCountersPage:
        """Some queues by name."""
        names = self._names
        start = bisect_right(names, after)
        some = names[start : start + limit]
        is_end = start + limit >= len(names)
        return QueueCountersPage(
            [QueueCounters(name, tuple(self._rows[name])) for name in some],
            tuple(self._others),
            "" if is_end else some[-1],
        )

    def _new_row(self, queue: str) -> list[int]:
        """The row for a queue that has none: that of the others, if there is no room."""
        if len(self._names) >= self._queues_max:
            return self._others
        insort(self._names, queue)
        row = self._rows[queue] = [0] * len(COUNTED)
        return row

    def _forget(self, queue: str) -> None:
        if self._rows.pop(queue, None) is not None:
            self._names.remove(queue)
