"""From what router and shards have counted to the page of metrics."""

import platform
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from corvo import __version__
from corvo.measures import Vitals
from corvo.model import STATES
from corvo.questions import Standing
from corvo.router.config import RouterConfig
from corvo.router.families import Page, label
from corvo.router.metrics import OTHER, Metrics
from corvo.router.standing import lag_entries, lag_s, write_lag
from corvo.shard.gathering import WAITING_OPS_MAX
from corvo.shard.numbers import Numbers, QueueNumbers

QUEUES_MAX: Final = 1_000
"""Queues that have lines of their own."""
ACTIVE_NS: Final = 60 * 1_000_000_000
"""How long ago a worker may have been heard of to be called active."""
_STEP: Final = 50
"""Queues whose lines are made at a time: some 0.2 ms."""
_ROLES: Final = {"follower": 0, "learner": 0, "leader": 2}
_SCHEDULED: Final = (
    ("promote", "Promote"),
    ("reclaim", "Reclaim"),
    ("expire", "Expire"),
    ("purge", "Purge"),
)


class Queues:
    """The queues of all shards: up to a number of them each by itself, the others together."""

    def __init__(self, queues_max: int = QUEUES_MAX) -> None:
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
            self.shown.append(queue)
        if len(self.shown) >= 2 * self._queues_max:
            self.settle()

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
        self.shown.sort(key=_name_of)
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


def _name_of(queue: QueueNumbers) -> str:
    return queue.name


class ShardScrape(msgspec.Struct, kw_only=True):
    """What was learned of one shard."""

    number: int
    calls_in_flight: int
    numbers: Numbers | None = None
    """None when it did not answer in time."""
    seconds: float = 0.0
    is_whole: bool = False
    """Whether its queues and workers were told, too."""


class Scrape(msgspec.Struct, kw_only=True):
    """Everything that the page is made of."""

    now_ns: int
    metrics: Metrics
    config: RouterConfig
    vitals: Vitals
    tasks: int
    shards: list[ShardScrape]
    queues: Queues
    workers: dict[str, int]
    """When each was heard of."""
    parked: int
    given_back: int
    streams: int
    listeners: int
    has_mirror: bool = False
    mirror: Standing | None = None
    """None when it did not answer in time, or there is none."""
    deaf: int | None = None
    """Workers that are heard of and do not ask for work; None when that cannot be known."""


def render(scrape: Scrape) -> Iterator[bytes]:
    """The page in pieces, none of which takes long; some are empty."""
    page = Page()
    _node(page, scrape)
    _requests(page, scrape)
    yield b""
    for shard in scrape.shards:
        _shard(page, scrape, shard)
        yield b""
    yield from _queues(page, scrape)
    if scrape.has_mirror:
        _mirror(page, scrape)
    _process(page, scrape)
    yield from page.pieces()


def _node(page: Page, scrape: Scrape) -> None:
    config, metrics = scrape.config, scrape.metrics
    python = platform.python_version()
    page.add("corvo_build_info", 1, label({"version": __version__, "python": python}))
    names = {"cluster": config.cluster, "node": str(config.node), "durability": config.durability}
    page.add("corvo_node_info", 1, label(names))
    leads = any(shard.numbers and shard.numbers.role == "leader" for shard in scrape.shards)
    page.add("corvo_cluster_is_leader", int(leads))
    page.add("corvo_metrics_errors_total", metrics.errors)
    page.add("corvo_metrics_series_dropped_total", metrics.dropped)


def _requests(page: Page, scrape: Scrape) -> None:
    throughput = scrape.metrics.throughput
    page.add("corvo_throughput_enqueued_total", throughput.enqueued_total)
    page.add("corvo_throughput_completed_total", throughput.completed_total)
    page.add("corvo_throughput_failed_total", throughput.failed_total)
    page.add("corvo_fetch_waiters", scrape.parked)
    page.add("corvo_claims_given_back_total", scrape.given_back)
    page.add("corvo_lifecycle_streams_open", scrape.streams)
    page.add("corvo_lifecycle_streams_max", scrape.config.limits.streams_max)
    page.add("corvo_event_listeners", scrape.listeners)
    page.add("corvo_event_listeners_max", scrape.config.limits.listeners_max)
    problems = scrape.metrics.problems
    for problem, count in sorted(problems.items()):
        page.add("corvo_http_problems_total", count, label({"code": problem}))
    page.add("corvo_rate_limit_throttled_total", problems.get("RATE_LIMITED", 0))
    for name, reading in scrape.metrics.readings.items():
        page.add(name, reading())
    for method, route, timing in scrape.metrics.timings():
        labels = label({"method": method, "route": route})
        for code, count in sorted(timing.codes.items()):
            page.add("corvo_http_requests_total", count, f'{labels[:-1]},code="{code}"}}')
        errors = sum(count for code, count in timing.codes.items() if code >= 400)
        page.add("corvo_http_request_errors_total", errors, labels)
        page.add_histogram("corvo_http_request_duration_seconds", timing.seconds, labels)


def _shard(page: Page, scrape: Scrape, shard: ShardScrape) -> None:
    labels = label({"shard": str(shard.number)})
    numbers = shard.numbers
    page.add("corvo_shard_scrape_success", int(numbers is not None and shard.is_whole), labels)
    page.add("corvo_shard_scrape_seconds", shard.seconds, labels)
    page.add("corvo_shard_calls_in_flight", shard.calls_in_flight, labels)
    if numbers is None:
        return
    _raft(page, numbers, labels)
    _disk(page, numbers, labels, scrape.now_ns)
    _ops(page, numbers, labels)
    process = label({"process": f"shard-{shard.number}"})
    _vitals(page, numbers.vitals, f"shard-{shard.number}")
    page.add_histogram("corvo_event_loop_lag_seconds", numbers.lag, process)


def _raft(page: Page, numbers: Numbers, labels: str) -> None:
    is_leader = numbers.role == "leader"
    for name, value in (
        ("state", _ROLES.get(numbers.role, 1)),
        ("is_leader", int(is_leader)),
        ("has_leader", int(numbers.leader is not None)),
        ("leader_changes_total", numbers.leaders),
        ("term", numbers.term),
        ("first_index", numbers.first_index),
        ("last_index", numbers.last_index),
        ("commit_index", numbers.commit),
        ("applied_index", numbers.applied),
        ("voters", len(numbers.voters)),
        ("learners", len(numbers.learners)),
        ("repairing", int(numbers.is_repairing)),
        ("apply_pending", numbers.waiting),
        ("apply_max_pending", WAITING_OPS_MAX),
        ("apply_overload_total", numbers.busy),
        ("uncommitted_bytes", numbers.uncommitted_bytes),
        ("reads_waiting", numbers.reads_waiting),
        ("applied_total", numbers.entries),
    ):
        page.add(f"corvo_raft_{name}", value, labels)
    page.add_histogram("corvo_raft_commit_seconds", numbers.commit_seconds, labels)
    page.add_histogram("corvo_raft_batch_size", numbers.batch_ops, labels)
    for peer in numbers.peers:
        named = f'{labels[:-1]},peer="{peer.replica}"}}'
        page.add("corvo_raft_peer_active", int(peer.is_active), named)
        page.add("corvo_raft_peer_lag_entries", max(0, numbers.last_index - peer.match), named)


def _disk(page: Page, numbers: Numbers, labels: str, now_ns: int) -> None:
    disk = numbers.disk
    page.add("corvo_shard_disk_full", int(numbers.disk_is_full), labels)
    page.add("corvo_data_dir_free_bytes", disk.room_bytes, labels)
    page.add_histogram("corvo_raft_log_fsync_seconds", disk.fsync, labels)
    page.add("corvo_raft_log_bytes_total", disk.log_bytes, labels)
    page.add("corvo_raft_log_replay_bytes", disk.log_bytes_ahead, labels)
    page.add("corvo_raft_snapshot_latest_index", disk.checkpointed, labels)
    page.add("corvo_raft_snapshots_total", disk.checkpoints, labels)
    if disk.checkpointed_ns:
        age_s = max(0, now_ns - disk.checkpointed_ns) / 1e9
        page.add("corvo_raft_snapshot_age_seconds", age_s, labels)


def _ops(page: Page, numbers: Numbers, labels: str) -> None:
    for op, count in numbers.ops.items():
        page.add("corvo_ops_total", count, f'{labels[:-1]},op="{op}"}}')
    for reason, count in sorted(numbers.refused.items()):
        page.add("corvo_ops_refused_total", count, f'{labels[:-1]},reason="{reason}"}}')
    page.add("corvo_lifecycle_idle_fetch_total", numbers.fetches_empty, labels)
    for verb, op in _SCHEDULED:
        upkeep = numbers.upkeep.get(op)
        page.add(f"corvo_scheduler_{verb}_total", upkeep.done if upkeep else 0, labels)
        if upkeep and upkeep.last_ns:
            page.add(f"corvo_scheduler_last_{verb}_seconds", upkeep.last_ns / 1e9, labels)
    reclaimed = numbers.upkeep.get("Reclaim")
    page.add("corvo_leases_expired_total", reclaimed.done if reclaimed else 0, labels)


def _queues(page: Page, scrape: Scrape) -> Iterator[bytes]:
    queues = scrape.queues
    if all(shard.is_whole for shard in scrape.shards):
        _totals(page, scrape)
    for start in range(0, len(queues.shown), _STEP):
        for queue in queues.shown[start : start + _STEP]:
            labels = label({"queue": queue.name})
            age_s = max(0, scrape.now_ns - queue.oldest_ns) / 1e9 if queue.oldest_ns else 0
            _jobs(page, labels, queue.counts)
            page.add("corvo_queue_oldest_pending_seconds", age_s, labels)
            page.add("corvo_queue_paused", int(queue.paused), labels)
        yield b""
    if queues.dropped:
        _jobs(page, label({"queue": OTHER}), queues.rest)


def _totals(page: Page, scrape: Scrape) -> None:
    """What all shards have together; nothing is better than too little, which looks like a fall."""
    page.add("corvo_queues", scrape.queues.count)
    for state in STATES:
        page.add("corvo_jobs", scrape.queues.totals[state.number], label({"state": state.word}))
    heard = scrape.workers.values()
    page.add("corvo_workers_registered", len(heard))
    recent = sum(1 for seen_ns in heard if scrape.now_ns - seen_ns <= ACTIVE_NS)
    page.add("corvo_workers_active", recent)
    if scrape.deaf is not None:
        page.add("corvo_workers_deaf", scrape.deaf)


def _jobs(page: Page, labels: str, counts: Sequence[int]) -> None:
    for state, count in zip(_STATES, counts, strict=True):
        page.add("corvo_queue_jobs", count, f'{labels[:-1]},state="{state}"}}')


_STATES: Final = tuple(state.word for state in sorted(STATES, key=lambda state: state.number))


def _mirror(page: Page, scrape: Scrape) -> None:
    standing = scrape.mirror
    page.add("corvo_mirror_up", int(standing is not None))
    if standing is None:
        return
    page.add("corvo_mirror_rebuilds_total", standing.rebuilds)
    page.add("corvo_mirror_file_bytes", standing.file_bytes)
    page.add("corvo_mirror_questions_total", standing.questions)
    page.add("corvo_mirror_interrupted_total", standing.interrupted)
    page.add_histogram("corvo_mirror_write_lag_seconds", write_lag(standing))
    numbers = {shard.number: shard.numbers for shard in scrape.shards}
    for shard in standing.shards:
        labels = label({"shard": str(shard.shard)})
        page.add("corvo_mirror_changes_total", shard.changes, labels)
        page.add("corvo_mirror_whole", int(shard.is_whole), labels)
        there = numbers.get(shard.shard)
        if there is not None:
            page.add("corvo_mirror_lag_entries", lag_entries(shard, there), labels)
            page.add("corvo_mirror_lag_seconds", lag_s(shard, there), labels)
    of_mirror = {"process": "mirror"}
    page.add(
        "corvo_process_cpu_seconds_total",
        standing.cpu_seconds,
        label({**of_mirror, "mode": "all"}),
    )
    page.add("corvo_process_resident_memory_bytes", standing.rss_bytes, label(of_mirror))


def _process(page: Page, scrape: Scrape) -> None:
    loop = scrape.metrics.loop
    labels = label({"process": "router"})
    _vitals(page, scrape.vitals, "router")
    page.add("corvo_process_tasks", scrape.tasks, labels)
    page.add_histogram("corvo_event_loop_lag_seconds", loop.lag, labels)
    page.add("corvo_event_loop_stalls_total", loop.stalls, labels)
    page.add_histogram("corvo_gc_pause_seconds", loop.collections, labels)


def _vitals(page: Page, vitals: Vitals, process: str) -> None:
    labels = label({"process": process})
    for mode, seconds in (("user", vitals.cpu_user_s), ("system", vitals.cpu_system_s)):
        named = label({"process": process, "mode": mode})
        page.add("corvo_process_cpu_seconds_total", seconds, named)
    page.add("corvo_process_resident_memory_bytes", vitals.resident_bytes, labels)
    page.add("corvo_process_threads", vitals.threads, labels)
    page.add("corvo_process_open_fds", vitals.descriptors, labels)
    page.add("corvo_process_max_fds", vitals.descriptors_max, labels)
    page.add("corvo_process_start_time_seconds", vitals.started_s, labels)
