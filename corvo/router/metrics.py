"""The counters of a router: nothing here waits or writes; `corvo.router.node.families` shows them.

Every label comes from a set that cannot grow: methods that we know, paths of the route table, and
statuses that we give. A client makes no series.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from operator import add, sub
from typing import Final

from corvo import clock
from corvo.measures import REQUEST_S, Histogram, LoopTimes, empty
from corvo.protocol.numbers import COUNTED
from corvo.times import MINUTE_NS

METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
OTHER: Final = "other"
"""The method or the route of a request that has none of ours."""
_STEP_QUEUES: Final = 500
"""Some 0.7 ms."""
CODES_MAX: Final = 100
"""Codes of problems that are told apart: more than there are."""
MINUTES: Final = 60


class Timing:
    """Requests of one method for one route."""

    __slots__ = ("codes", "seconds")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        """How many were answered with which status."""
        self.seconds: Histogram = empty(REQUEST_S)


class Minute:
    """What happened in one minute."""

    __slots__ = ("completed", "enqueued", "failed", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        """Since 1970."""
        self.enqueued = 0
        self.completed = 0
        self.failed = 0


class Throughput:
    """How many jobs went through this router, in all and in each of the last minutes.

    What comes in a batch or by a stream counts as many as it has, and what was refused does not.
    """

    def __init__(self, now_ns: Callable[[], int] = clock.now_ns) -> None:
        self.enqueued_total = 0
        self.completed_total = 0
        self.failed_total = 0
        self._now_ns = now_ns
        self._minutes: deque[Minute] = deque(maxlen=MINUTES)

    def enqueued(self, count: int = 1) -> None:
        """Jobs were put into queues."""
        self.enqueued_total += count
        self._minute().enqueued += count

    def completed(self, count: int = 1) -> None:
        """Workers were done with jobs."""
        self.completed_total += count
        self._minute().completed += count

    def failed(self, count: int = 1) -> None:
        """Workers gave jobs up."""
        self.failed_total += count
        self._minute().failed += count

    def minutes(self) -> list[Minute]:
        """The last sixty, the present one included, oldest first."""
        now = self._now_ns() // MINUTE_NS
        known = {minute.number: minute for minute in self._minutes}
        return [known.get(number) or Minute(number) for number in range(now - MINUTES + 1, now + 1)]

    def _minute(self) -> Minute:
        now = self._now_ns() // MINUTE_NS
        if self._minutes:
            last = self._minutes[-1]
            if last.number >= now:  # a clock that was set back goes on in the minute it was in
                return last
        self._minutes.append(Minute(now))
        return self._minutes[-1]


class OtherQueues:
    """The counters of all queues without lines of their own, together.

    They rise by what those of the queues rise from one scrape to the next, and so never fall: not
    if a queue is deleted or gets lines of its own, and not if a shard's process starts again. What
    a queue has counted before it has no lines any more is not counted again.
    """

    def __init__(self) -> None:
        self.counts = [0] * len(COUNTED)
        self._seen: dict[int, tuple[float, dict[str, tuple[int, ...]]]] = {}
        """By shard: when its process started, and the counters of each queue at the last scrape."""

    def take(
        self, shard: int, started_s: float, counters: Mapping[str, tuple[int, ...]]
    ) -> Iterator[None]:
        """A shard has told of its queues without lines of their own: in steps, for they are many.

        Several scrapes may be in it at once, and may bring older counters than another one did.
        """
        known_s, seen = self._seen.get(shard, (0.0, {}))
        if known_s != started_s:
            seen = {}
            self._seen[shard] = (started_s, seen)
        for place, (queue, told) in enumerate(counters.items()):
            if place % _STEP_QUEUES == 0:
                yield
            before = seen.get(queue)
            if before is None:
                seen[queue] = told
            elif told != before:
                now = seen[queue] = tuple(map(max, told, before))
                self.counts = [*map(add, self.counts, map(sub, now, before))]
        for queue in seen.keys() - counters.keys():
            del seen[queue]


class Metrics:
    """All that one router counts."""

    def __init__(self, now_ns: Callable[[], int] = clock.now_ns) -> None:
        self.loop: Final = LoopTimes()
        """Kept by the watchdog."""
        self.throughput: Final = Throughput(now_ns)
        self.errors = 0
        """Answers of shards that a page of metrics had to do without."""
        self.dropped = 0
        """Queues that had no lines of their own in a page of metrics, page by page."""
        self.others: Final = OtherQueues()
        self.aborts: Counter[str] = Counter()
        """Of HTTP/2, by the limit that was exceeded: see `SlowLane`."""
        self.readings: Final[dict[str, Callable[[], float]]] = {}
        """By metric, numbers that others keep, and that are read by a scrape."""
        self.problems: Final[dict[str, int]] = {}
        """By code, requests that were refused or failed."""
        self.dropped_listeners: Final[dict[str, int]] = {"gone": 0, "slow": 0}
        """By reason, clients that followed events and were disconnected."""
        self.ignored: Final[dict[str, int]] = {}
        """By route, fields and parameters of requests that had no effect."""
        self._timings: dict[tuple[str, str], Timing] = {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered. `route` is a path of the table, or `other`."""
        timing = self._timings.get((method, route))
        if timing is None:
            timing = self._begin(method, route)
        measured = timing.seconds
        measured.counts[bisect_left(REQUEST_S, seconds)] += 1
        measured.total += seconds
        codes = timing.codes
        codes[status] = codes.get(status, 0) + 1

    def _begin(self, method: str, route: str) -> Timing:
        known = method if method in METHODS else OTHER
        return self._timings.setdefault((known, route), Timing())

    def refuse(self, code: str) -> None:
        """A request was answered with a problem."""
        if code not in self.problems and len(self.problems) >= CODES_MAX:
            code = OTHER
        self.problems[code] = self.problems.get(code, 0) + 1

    def drop(self, reason: str) -> None:
        """A client that followed events was disconnected, for a reason of `dropped_listeners`."""
        self.dropped_listeners[reason] += 1

    def ignore(self, route: str, count: int) -> None:
        """A request had fields without effect. `route` is a path of the table."""
        self.ignored[route] = self.ignored.get(route, 0) + count

    def timings(self) -> list[tuple[str, str, Timing]]:
        """Method, route and what was seen of it, in order."""
        return [(*key, timing) for key, timing in sorted(self._timings.items())]

    def read(self, metric: str, reading: Callable[[], float]) -> None:
        """Show a number that another object keeps, as a metric of `corvo.router.node.families`."""
        self.readings[metric] = reading
