"""The state of `corvo top`: the last documents of the server, and rates that follow from them.

`Meter` counts events since its first summary: the server counts those of the present minute, and
the total of the minute before. So each two summaries that are less than a minute apart tell how
many events were between them, on the clock of the server.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from corvo.client.cluster import Events, Status
from corvo.client.dashboard import Job, Jobs, Minutes, Queue, Summary, Timeline, Worker
from corvo.client_commands.tables import ranges
from corvo.times import MINUTE_NS, S, parse_time
from corvo.tui.looks import span

WINDOW_NS: Final = 10 * S
"""Rates are of so much time: one second alone would flicker."""

Count: TypeAlias = tuple[int, int, int]
"""Jobs that were enqueued and completed, and attempts that failed."""
_NOTHING: Final[Count] = (0, 0, 0)


class Rate(msgspec.Struct, frozen=True):
    """Events a second."""

    enqueued: float = 0.0
    completed: float = 0.0
    failed: float = 0.0

    @property
    def error_share(self) -> float:
        """Failed attempts of all that ended."""
        ended = self.completed + self.failed
        return self.failed / ended if ended else 0.0


class _Sample(NamedTuple):
    at_ns: int
    minute_ns: int
    counts: dict[str, Count]
    """Of the minute, by queue."""
    sums: dict[str, Count]
    """Since the first sample, by queue."""


class Meter:
    """Rates by the difference of summaries."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def add(self, summary: Summary) -> None:
        """Take the next summary. An older one, of a node that is behind, is ignored."""
        at_ns, minute_ns = parse_time(summary.at), parse_time(summary.minute)
        if at_ns is None or minute_ns is None:
            self._samples.clear()  # the mirror is unavailable, and counts are not known
            return
        last = self._samples[-1] if self._samples else None
        if last is not None and at_ns <= last.at_ns:
            return
        gap = (minute_ns - last.minute_ns) // MINUTE_NS if last is not None else 0
        if gap not in {0, 1}:
            self._samples.clear()
            last = None
        counts = {queue.name: _this_minute(queue) for queue in summary.queues}
        sums: dict[str, Count] = {}
        if last is not None:
            for queue in summary.queues:
                before = last.counts.get(queue.name, _NOTHING)
                known = last.sums.get(queue.name, _NOTHING)
                now = counts[queue.name]
                if now == before and not gap:
                    sums[queue.name] = known
                    continue
                rest = _last_minute(queue) if gap else _NOTHING
                # A difference below zero is no event: the answering node is another one, or the
                # queue was deleted meanwhile.
                sums[queue.name] = (
                    known[0] + max(0, now[0] + rest[0] - before[0]),
                    known[1] + max(0, now[1] + rest[1] - before[1]),
                    known[2] + max(0, now[2] + rest[2] - before[2]),
                )
        self._samples.append(_Sample(at_ns, minute_ns, counts, sums))
        while len(self._samples) > 2 and at_ns - self._samples[1].at_ns >= WINDOW_NS:
            self._samples.popleft()

    def rates(self) -> dict[str, Rate]:
        """By queue; empty before the second summary."""
        if len(self._samples) < 2:
            return {}
        first, last = self._samples[0], self._samples[-1]
        seconds = (last.at_ns - first.at_ns) / S
        rates = {}
        for name, now in last.sums.items():
            before = first.sums.get(name, _NOTHING)
            if now == before:
                rates[name] = _QUIET
            else:
                rates[name] = Rate(
                    (now[0] - before[0]) / seconds,
                    (now[1] - before[1]) / seconds,
                    (now[2] - before[2]) / seconds,
                )
        return rates


_QUIET: Final = Rate()


def _this_minute(queue: Queue) -> Count:
    return (
        queue.enqueued_this_minute or 0,
        queue.completed_this_minute or 0,
        queue.failed_this_minute or 0,
    )


def _last_minute(queue: Queue) -> Count:
    return queue.enqueued_1m or 0, queue.completed_1m or 0, queue.failed_1m or 0


Document: TypeAlias = list[Worker] | Status | Jobs | Events | tuple[Job, Timeline]


class Detail(msgspec.Struct, frozen=True):
    """A document of an open view, or the error instead."""

    document: Document | None = None
    error: str = ""


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is shown, at one moment."""

    summary: Summary | None = None
    rates: Mapping[str, Rate] = {}
    """Empty before the second summary."""
    minutes: Mapping[str, Minutes] = {}
    """The last whole minutes of queues with events."""
    details: Mapping[str, Detail] = {}
    """By what was asked for: see `corvo.tui.places.Place.wanted`."""
    server: str = ""
    """The address that answered."""
    error: str = ""
    """Why the last request failed; empty if it did not."""
    silent_s: float = 0.0
    """Time since the last answer."""

    @property
    def at_ns(self) -> int:
        """The time of the server in its last summary."""
        return (parse_time(self.summary.at) if self.summary is not None else 0) or 0

    def age_s(self, text: str) -> float | None:
        """How long ago a moment was, by the clock of the server."""
        at_ns = parse_time(text) if text else None
        return None if at_ns is None else max(0.0, (self.at_ns - at_ns) / S)

    @property
    def total_rate(self) -> Rate | None:
        """Of all queues together."""
        if not self.rates:
            return None
        rates = self.rates.values()
        return Rate(
            sum(rate.enqueued for rate in rates),
            sum(rate.completed for rate in rates),
            sum(rate.failed for rate in rates),
        )

    @property
    def total_minutes(self) -> Minutes:
        """Of all queues together."""
        columns = zip(*(each.enqueued for each in self.minutes.values()), strict=True)
        done = zip(*(each.completed for each in self.minutes.values()), strict=True)
        lost = zip(*(each.failed for each in self.minutes.values()), strict=True)
        return Minutes(
            enqueued=list(map(sum, columns)),
            completed=list(map(sum, done)),
            failed=list(map(sum, lost)),
        )


def warnings(data: Data) -> list[str]:
    """Sentences about what is not well, the worst first."""
    summary = data.summary
    if summary is None:
        return []
    found = []
    unled = [shard.shard for shard in summary.shards if shard.status != "up"]
    if len(unled) == 1:
        found.append(f"shard {unled[0]} has no leader: its queues take no jobs")
    elif unled:
        found.append(f"shards {ranges(unled)} have no leader: their queues take no jobs")
    if summary.cluster:
        nodes = summary.cluster.nodes
        away = [node.name for node in nodes if node.is_reachable is False]
        if away:
            found.append(f"node {', '.join(away)} cannot be reached")
        if len(nodes) > 1 and not summary.cluster.can_lose:
            found.append("the loss of one more node can stop writes")
    if summary.source == "shards":
        found.append("the mirror is unavailable: no rates, no lists of jobs")
    idle = [
        queue
        for queue in summary.queues
        if queue.workers == 0 and queue.counts.get("pending", 0) and not queue.paused
    ]
    idle.sort(key=lambda queue: queue.oldest_pending_at or "~")
    for queue in idle[:3]:
        age_s = data.age_s(queue.oldest_pending_at)
        oldest = f"oldest {span(age_s)}, " if age_s is not None else ""
        found.append(f"{queue.name}: {oldest}no workers")
    if len(idle) > 3:
        found.append(f"{len(idle) - 3} more queues have no workers")
    return found
