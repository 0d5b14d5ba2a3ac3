"""The numbers of router, shards and mirror, collected for one scrape of the metrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from corvo.measures import Histogram, LoopTimes, ProcessStats
from corvo.model import STATES
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.numbers import COUNTED, Numbers, QueueNumbers
from corvo.protocol.questions import Standing
from corvo.router.config import RouterConfig
from corvo.router.metrics import OTHER, Metrics, OtherQueues

QUEUES_MAX: Final = 1_000
"""Queues that have lines of their own."""
_APART_NS: Final = 100_000_000
ACTIVE_NS: Final = 60 * 1_000_000_000
"""How long ago a worker may have been heard of to be called active."""


class Queues:
    """The queues of all shards: up to a number of them each by itself, the others together."""

    def __init__(self, queues_max: int = QUEUES_MAX, *, ahead_ns: int = 0) -> None:
        """`ahead_ns`: how far the wall clock is ahead of the clock of the shard that is read."""
        self._ahead_ns = ahead_ns if abs(ahead_ns) >= _APART_NS else 0
        self.count = 0
        self.totals = [0] * len(STATES)
        """Jobs by the number of their state."""
        self.shown: list[QueueNumbers] = []
        self.dropped = 0
        """Queues that are told together."""
        self.rest = [0] * len(STATES)
        self._queues_max = queues_max

    @property
    def is_full(self) -> bool:
        """Whether further ones, if they come by their names, are only counted."""
        return len(self.shown) >= self._queues_max

    def add(self, queues: Iterable[QueueNumbers]) -> None:
        """Take in some; those of one shard come by their names."""
        totals = self.totals
        for queue in queues:
            self.count += 1
            for number, count in enumerate(queue.counts):
                totals[number] += count
            self.shown.append(self._by_wall_clock(queue))
        if len(self.shown) >= 2 * self._queues_max:
            self.settle()

    def _by_wall_clock(self, queue: QueueNumbers) -> QueueNumbers:
        """A queue whose times are by the wall clock, as the time of the page is."""
        if not self._ahead_ns or not queue.oldest_ns:
            return queue
        return msgspec.structs.replace(queue, oldest_ns=queue.oldest_ns + self._ahead_ns)

    def merge(self, others: "Queues") -> None:
        """Take in those of a shard, as far as they were told one by one."""
        self.count += others.count
        self.dropped += others.dropped
        for number in range(len(STATES)):
            self.totals[number] += others.totals[number]
            self.rest[number] += others.rest[number]
        self.shown += others.shown

    def settle(self) -> None:
        """Of all that were taken in, show the first by name, and tell the others together.

        A queue that is named as those are would be in their way, and is then one of them.
        """
        self.shown.sort(key=lambda queue: queue.name)
        if len(self.shown) <= self._queues_max and not self.dropped:
            return
        shown = [queue for queue in self.shown if queue.name != OTHER]
        others = [queue for queue in self.shown if queue.name == OTHER]
        others += shown[self._queues_max :]
        self.shown = shown[: self._queues_max]
        self.dropped += len(others)
        for queue in others:
            for number, count in enumerate(queue.counts):
                self.rest[number] += count


class ProcessScrape(msgspec.Struct, kw_only=True):
    """What was learned of one process of this node."""

    name: str
    stats: ProcessStats | None = None
    mirror: Standing | None = None
    """The mirror's own numbers, in the place of stats."""
    lag: Histogram | None = None
    """Of its event loop."""
    loop: LoopTimes | None = None
    tasks: int | None = None

    @property
    def cpu_seconds(self) -> dict[tuple[str, ...], float | Histogram]:
        """By mode."""
        if self.mirror is not None:
            return {("all",): self.mirror.cpu_seconds}
        assert self.stats is not None
        return {("user",): self.stats.cpu_user_s, ("system",): self.stats.cpu_system_s}

    @property
    def resident_bytes(self) -> int | None:
        """Memory in use."""
        if self.mirror is not None:
            return self.mirror.rss_bytes
        return self.stats.resident_bytes if self.stats is not None else None


class ShardScrape(msgspec.Struct, kw_only=True):
    """What was learned of one shard."""

    number: int
    calls_in_flight: int
    numbers: Numbers | None = None
    """None when it did not answer in time."""
    is_here: bool = True
    """Whether this node has a replica of it."""
    seconds: float = 0.0
    counters: dict[str, tuple[int, ...]] | None = None
    """By queue, what the replica has counted; None if it did not tell."""
    others: tuple[int, ...] = ()
    """The same of the queues for which it has no room."""
    is_whole: bool = False
    """Whether its queues and workers were told, too."""


NOTHING: Final = (0,) * len(COUNTED)
"""The counters of a queue in which nothing has happened yet."""
_TOGETHER: Final = ""  # among the queues of a shard; no queue has this name


def as_known(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Counters as this release knows them: a process of another one may have fewer or more."""
    return (*counts, *NOTHING)[: len(COUNTED)]


def counters_of(
    queues: Queues,
    shards: Iterable[ShardScrape],
    shard_of: Callable[[str], int],
    others: OtherQueues | None,
) -> Iterator[dict[str, Sequence[int]]]:
    """The counters of the queues that are shown, and of all others together.

    In steps: the last dictionary has all of it. A queue has counters from its first scrape on, so
    that a rate shows also what happens first. `others` is None for a caller that may not know of
    all queues: it gets those that are shown.
    """
    left = {shard.number: dict(shard.counters) for shard in shards if shard.counters is not None}
    found: dict[str, Sequence[int]] = {}
    for queue in queues.shown:
        of_shard = left.get(shard_of(queue.name))
        if of_shard is not None:
            found[queue.name] = of_shard.pop(queue.name, NOTHING)
    yield found
    if others is None:
        return
    for shard in shards:
        # Without the queues of a shard, the first queues by name are not known.
        if shard.numbers is not None and shard.counters is not None and shard.is_whole:
            hidden = left[shard.number] | {_TOGETHER: shard.others}
            for _ in others.take(shard.number, shard.numbers.counted.stats.started_s, hidden):
                yield found
    if queues.dropped:
        found[OTHER] = others.counts
    yield found


class ClusterScrape(msgspec.Struct, kw_only=True):
    """The cluster, as this node knows it without asking."""

    map: ClusterMap
    reachable: dict[int, bool]
    """Whether there is a link to each node."""
    clocks_ns: Mapping[int, int] = {}
    """By node: its wall clock minus that of this node."""

    @property
    def states(self) -> dict[tuple[str, ...], float | Histogram]:
        """The number of nodes by state."""
        draining = sum(node.is_draining for node in self.map.nodes)
        return {("active",): len(self.map.nodes) - draining, ("draining",): draining}


class Scrape(msgspec.Struct, kw_only=True):
    """Everything that the page is made of."""

    now_ns: int
    metrics: Metrics
    config: RouterConfig
    process: ProcessScrape
    """The router."""
    shards: list[ShardScrape]
    cluster: ClusterScrape | None = None
    """None for a server that runs alone."""
    queues: Queues
    workers: dict[str, int]
    """When each was heard of."""
    has_mirror: bool = False
    mirror: Standing | None = None
    """None when it did not answer in time, or there is none."""
    not_fetching: int | None = None
    """Workers that are heard of and do not ask for work; None when that cannot be known."""
    workers_by_queue: Mapping[str, int] | None = None
    """Workers that fetch from each queue; None while there may be others."""
    counters: Mapping[str, Sequence[int]] = {}
    """What happened in the queues that are shown, as this node's replicas have counted it; and in
    the others together, if there are some."""
    is_ready: bool
    """Whether requests should be sent to this node."""
    certificate_ends_s: Mapping[str, float] = {}
    """By use, when the certificates of a file begin to end. Unix time."""

    @property
    def is_whole(self) -> bool:
        """Whether every shard has answered."""
        return all(shard.is_whole for shard in self.shards)
