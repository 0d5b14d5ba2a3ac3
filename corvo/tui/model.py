"""The state of `corvo top`: the last documents of the server, and rates that follow from them.

`Meter` counts events since its first summary: the server counts those of the present minute, and
the total of the minute before. So each two summaries that are less than a minute apart tell how
many events were between them, on the clock of the server.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import sub
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
NO_MINUTES: Final = Minutes(enqueued=[], completed=[], failed=[])

BARS: Final = 15
_STEP_NS: Final = 4 * S
_THIN_NS: Final = 3 * S
MINUTE, QUARTER, HOUR = "1 m", "15 m", "1 h"
SPANS: Final = (QUARTER, HOUR, MINUTE)
"""Times that bars can show, in the order of the key."""


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
    sums: dict[str, Count]
    """Since the first sample, by queue."""
    total: Count
    """Of all queues together."""


class Recent(msgspec.Struct, frozen=True):
    """Events of the last minute, by the summaries of that time."""

    samples: tuple[_Sample, ...] = ()

    def of(self, name: str = "") -> Minutes:
        """Events of a queue, or of all, in steps of four seconds; the oldest step first."""
        if len(self.samples) < 2:
            return NO_MINUTES
        ends_ns = self.samples[-1].at_ns
        begins_ns = max(self.samples[0].at_ns, ends_ns - BARS * _STEP_NS)
        counts, place = [], 0
        for step in range(BARS, -1, -1):
            at_ns = ends_ns - step * _STEP_NS
            if at_ns < begins_ns:
                continue
            while place + 1 < len(self.samples) and self.samples[place + 1].at_ns <= at_ns:
                place += 1
            counts.append(self._at(at_ns, place, name))
        steps = [tuple(map(sub, now, then)) for then, now in pairwise(counts)]
        return Minutes(
            enqueued=[step[0] for step in steps],
            completed=[step[1] for step in steps],
            failed=[step[2] for step in steps],
        )

    def _at(self, at_ns: int, place: int, name: str) -> Count:
        """The counts at a moment, which is between a sample and the next one."""
        before = self.samples[place]
        after = self.samples[min(place + 1, len(self.samples) - 1)]
        begun = before.sums.get(name, _NOTHING) if name else before.total
        ended = after.sums.get(name, _NOTHING) if name else after.total
        share = (at_ns - before.at_ns) / ((after.at_ns - before.at_ns) or 1)
        came, done, lost = (
            one + round(share * (other - one)) for one, other in zip(begun, ended, strict=True)
        )
        return came, done, lost


class Meter:
    """Rates by the difference of summaries."""

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        self._minute_ns = 0
        self._is_known = False
        self._counts: dict[str, Count] = {}
        """Of the minute of the last sample, by queue."""

    def add(self, summary: Summary) -> None:
        """Take the next summary. An older one, of a node that is behind, is ignored."""
        at_ns, minute_ns = parse_time(summary.at), parse_time(summary.minute)
        self._is_known = at_ns is not None and minute_ns is not None
        if at_ns is None or minute_ns is None:
            return  # the mirror is unavailable: rates are unknown until it is back
        last = self._samples[-1] if self._samples else None
        if last is not None and at_ns <= last.at_ns:
            return
        gap = (minute_ns - self._minute_ns) // MINUTE_NS if last is not None else 0
        if gap not in {0, 1}:
            self._samples.clear()
            last = None
        counts = {queue.name: _this_minute(queue) for queue in summary.queues}
        sums: dict[str, Count] = {}
        total = _NOTHING
        if last is not None:
            sums, total = self._added(summary, last, counts, has_new_minute=gap == 1)
        self._counts, self._minute_ns = counts, minute_ns
        self._samples.append(_Sample(at_ns, sums, total))
        self._forget()

    def _added(
        self, summary: Summary, last: _Sample, counts: dict[str, Count], *, has_new_minute: bool
    ) -> tuple[dict[str, Count], Count]:
        """The sums of the next sample."""
        sums: dict[str, Count] = {}
        total = last.total
        for queue in summary.queues:
            before = self._counts.get(queue.name, _NOTHING)
            known = last.sums.get(queue.name, _NOTHING)
            now = counts[queue.name]
            if now == before and not has_new_minute:
                sums[queue.name] = known
                continue
            rest = _last_minute(queue) if has_new_minute else _NOTHING
            # A difference below zero is no event: the answering node is another one, or the
            # queue was deleted meanwhile.
            came = (
                max(0, now[0] + rest[0] - before[0]),
                max(0, now[1] + rest[1] - before[1]),
                max(0, now[2] + rest[2] - before[2]),
            )
            sums[queue.name] = (known[0] + came[0], known[1] + came[1], known[2] + came[2])
            total = (total[0] + came[0], total[1] + came[1], total[2] + came[2])
        return sums, total

    def _forget(self) -> None:
        """Keep a minute of samples; the older ones not closer than needed for bars."""
        samples = self._samples
        while len(samples) > 2 and samples[-1].at_ns - samples[1].at_ns >= BARS * _STEP_NS:
            if self._base == 0:
                break
            del samples[0]
        place = self._base - 1
        if place >= 1 and samples[place].at_ns - samples[place - 1].at_ns < _THIN_NS:
            del samples[place]

    @property
    def _base(self) -> int:
        """The place of the sample from which rates are counted."""
        until_ns = self._samples[-1].at_ns - WINDOW_NS
        old = [place for place, each in enumerate(self._samples) if each.at_ns <= until_ns]
        return old[-1] if old else 0

    def recent(self) -> Recent:
        """The last minute."""
        return Recent(tuple(self._samples))

    def rates(self) -> dict[str, Rate]:
        """By queue; empty before the second summary, and while the mirror is unavailable."""
        if len(self._samples) < 2 or not self._is_known:
            return {}
        first, last = self._samples[self._base], self._samples[-1]
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
    all_minutes: Minutes = NO_MINUTES
    """Of all queues together."""
    recent: Recent = Recent()
    details: Mapping[str, Detail] = {}
    """By what was asked for: see `corvo.tui.places.Place.wanted`."""
    server: str = ""
    """The address that answered."""
    pattern: str = ""
    """Only queues that match it are here; empty: all."""
    error: str = ""
    """Why the last request failed; empty if it did not."""
    is_refused: bool = False
    """Whether the server answered with that error."""
    silent_s: float = 0.0
    """Time since the last data."""

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

    def bars(self, name: str, span: str) -> Minutes:
        """Events of a queue as numbers for bars."""
        if span == MINUTE:
            return self.recent.of(name)
        return _grouped(self.minutes.get(name, NO_MINUTES), span)

    def total_bars(self, span: str) -> Minutes:
        """Of all queues together."""
        if span == MINUTE:
            return self.recent.of()
        return _grouped(self.all_minutes, span)


def together(minutes: Iterable[Minutes]) -> Minutes:
    """The minutes of some queues, added up."""
    columns = [(each.enqueued, each.completed, each.failed) for each in minutes]
    came, done, lost = (
        [sum(values) for values in zip(*column, strict=False)]
        for column in (zip(*columns, strict=True) if columns else ((), (), ()))
    )
    return Minutes(enqueued=came, completed=done, failed=lost)


def _grouped(minutes: Minutes, span: str) -> Minutes:
    """The last quarter of an hour, or four minutes of an hour together."""
    size = 4 if span == HOUR else 1

    def steps(values: Sequence[int]) -> list[int]:
        last = values[-BARS * size :]
        return [sum(last[max(0, end - size) : end]) for end in range(len(last), 0, -size)][::-1]

    return Minutes(
        enqueued=steps(minutes.enqueued),
        completed=steps(minutes.completed),
        failed=steps(minutes.failed),
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
