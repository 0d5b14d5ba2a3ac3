"""What a router counts, and the page that it is told on."""

import re
import sys
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.measures import DISK_S, JOB_S, LATE_S, REQUEST_S, Histogram, ProcessStats, empty
from corvo.model import STATES
from corvo.protocol.cluster import ClusterNode, first_map
from corvo.protocol.numbers import (
    COUNTED,
    ClockNumbers,
    Counters,
    DiskNumbers,
    EffectNumbers,
    Numbers,
    PeerNumbers,
    QueueNumbers,
    Upkeep,
)
from corvo.protocol.questions import LAG_BOUNDS_MS, ShardStanding, Standing
from corvo.router.config import RouterConfig
from corvo.router.metrics import CODES_MAX, MINUTES, OTHER, Metrics, Throughput
from corvo.router.node.exposition import (
    Group,
    Page,
    Sample,
    Samples,
    counter,
    escape,
    gauge,
    histogram,
)
from corvo.router.node.families import FAMILIES, QUEUE_JOBS, REPLICA, render
from corvo.router.node.health import readiness, warnings_of
from corvo.router.node.scrape import (
    ACTIVE_NS,
    QUEUES_MAX,
    ClusterScrape,
    ProcessScrape,
    Queues,
    Scrape,
    ShardScrape,
)
from tests.support.promtool import needs_promtool, promtool

ROOT: Final = Path(__file__).parents[2]
NOW_NS: Final = 1_700_000_000_000_000_000
MINUTE_NS: Final = 60 * 1_000_000_000
CLUSTER: Final = replace(
    first_map(
        [
            ClusterNode(number=number, name=f"n{number}", is_draining=number == 2)
            for number in (1, 2, 3)
        ],
        shards=1,
        replicas=3,
    ),
    version=7,
)


class Clock:
    """A time of day that a test sets."""

    def __init__(self) -> None:
        self.now_ns = NOW_NS

    def __call__(self) -> int:
        return self.now_ns


# ---- Counting requests.


def test_requests_are_counted_by_method_route_and_status() -> None:
    metrics = Metrics()

    metrics.observe("POST", "/api/v1/enqueue", 201, 0.002)
    metrics.observe("POST", "/api/v1/enqueue", 201, 0.004)
    metrics.observe("POST", "/api/v1/enqueue", 400, 0.001)
    metrics.observe("GET", "/livez", 200, 20.0)

    (_, livez, of_livez), (_, enqueue, of_enqueue) = metrics.timings()
    assert (livez, of_livez.codes) == ("/livez", {200: 1})
    assert of_livez.seconds.counts[-1] == 1
    assert (enqueue, of_enqueue.codes) == ("/api/v1/enqueue", {201: 2, 400: 1})
    assert of_enqueue.seconds.count == 3
    assert of_enqueue.seconds.total == pytest.approx(0.007)


def test_a_client_makes_no_series() -> None:
    metrics = Metrics()

    for number in range(1_000):
        metrics.observe(f"METHOD{number}", OTHER, 404, 0.001)
        metrics.refuse(f"CODE{number}")

    [(method, route, timing)] = metrics.timings()
    assert (method, route, timing.codes) == (OTHER, OTHER, {404: 1_000})
    assert len(metrics.problems) == CODES_MAX + 1
    assert sum(metrics.problems.values()) == 1_000


# ---- Throughput.


def test_jobs_are_counted_in_the_minute_in_which_they_went_by() -> None:
    clock = Clock()
    throughput = Throughput(clock)

    throughput.enqueued(5)
    clock.now_ns += MINUTE_NS
    throughput.enqueued()
    throughput.completed(3)
    clock.now_ns += 3 * MINUTE_NS
    throughput.failed(2)

    minutes = throughput.minutes()
    assert len(minutes) == MINUTES
    assert [each.number for each in minutes] == list(
        range(clock.now_ns // MINUTE_NS - 59, clock.now_ns // MINUTE_NS + 1)
    )
    seen = [(each.enqueued, each.completed, each.failed) for each in minutes[-5:]]
    assert seen == [(5, 0, 0), (1, 3, 0), (0, 0, 0), (0, 0, 0), (0, 0, 2)]
    assert (throughput.enqueued_total, throughput.completed_total, throughput.failed_total) == (
        6,
        3,
        2,
    )


def test_an_hour_later_a_minute_is_forgotten_and_the_total_is_not() -> None:
    clock = Clock()
    throughput = Throughput(clock)
    throughput.enqueued(5)

    clock.now_ns += 59 * MINUTE_NS
    last = throughput.minutes()[0].enqueued
    clock.now_ns += MINUTE_NS
    throughput.enqueued(1)

    assert last == 5
    assert sum(each.enqueued for each in throughput.minutes()) == 1
    assert throughput.enqueued_total == 6


def test_a_clock_that_is_set_back_loses_nothing_and_keeps_the_bound() -> None:
    clock = Clock()
    throughput = Throughput(clock)
    random = Random(1)

    for _ in range(1_000):
        clock.now_ns = NOW_NS + random.randrange(200) * MINUTE_NS
        throughput.enqueued()

    clock.now_ns = NOW_NS + 200 * MINUTE_NS
    assert throughput.enqueued_total == 1_000
    assert len(throughput._minutes) <= MINUTES
    numbers = [each.number for each in throughput._minutes]
    assert numbers == sorted({*numbers})


# ---- Queues, of which only so many have lines of their own.


def queue(name: str, *counts: int) -> QueueNumbers:
    return QueueNumbers(name, (*counts, *[0] * (len(STATES) - len(counts))), False, 0)


names = st.lists(st.sampled_from(["a", "b", "c", "d", "e", OTHER, "z"]), unique=True)


@given(names, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_the_first_by_name_are_shown_and_the_rest_together(
    given_names: list[str], queues_max: int, shards: int, page: int
) -> None:
    by_name = {name: queue(name, number) for number, name in enumerate(given_names, start=1)}
    whole = Queues(queues_max)
    for shard in range(shards):
        part = Queues(queues_max)
        theirs = sorted(given_names[shard::shards])
        for start in range(0, len(theirs), page):
            part.add(by_name[name] for name in theirs[start : start + page])
        whole.merge(part)

    whole.settle()

    shown = sorted(given_names)
    if len(shown) > queues_max:
        shown = [name for name in shown if name != OTHER][:queues_max]
    rest = [by_name[name] for name in given_names if name not in shown]
    assert [each.name for each in whole.shown] == shown
    assert whole.dropped == len(rest)
    assert whole.count == len(given_names)
    assert whole.rest[0] == sum(each.counts[0] for each in rest)
    assert whole.totals[0] == sum(each.counts[0] for each in by_name.values())


def test_no_more_queues_are_kept_than_twice_as_many_as_are_shown() -> None:
    queues = Queues(10)

    for number in range(1_000):
        queues.add([queue(f"queue-{number:04}", 1)])
        assert len(queues.shown) < 20

    queues.settle()
    assert (len(queues.shown), queues.dropped, queues.rest[0]) == (10, 990, 990)


def test_effects_that_another_shard_does_not_take_are_a_warning() -> None:
    told = numbers()
    told.counted.effects.append(EffectNumbers(shard=2, waiting=1, stalled_s=9.9))

    *_, warning = warnings_of({0: told})

    assert warning == (
        "shard-0: 3 effects wait for shard-1, which has taken none for 12 s: it cannot be reached"
    )
    assert readiness([], is_verbose=False, warnings=[warning]).warnings == [warning]


# ---- The page.


def counters() -> Counters:
    """Of a replica to which everything has happened."""
    disk = DiskNumbers(
        room_bytes=1 << 30, disk_bytes=1 << 32, log_bytes=1_000, checkpoints=1, checkpointed=9
    )
    disk.checkpointed_ns = NOW_NS - 5 * MINUTE_NS
    late = empty(LATE_S)
    late.observe(0.004)
    late.observe(7_200)
    return Counters(
        refused={"job_not_found": 2},
        fetches_empty=1,
        entries=9,
        leaders=1,
        upkeep={
            name: Upkeep(3, NOW_NS) for name in ("Promote", "Reclaim", "Expire", "Purge", "Sweep")
        },
        fired=5,
        skipped={"overlap": 2},
        lateness=late,
        disk=disk,
        stats=ProcessStats(cpu_user_s=1.5, resident_bytes=1 << 20),
        effects=[EffectNumbers(shard=1, waiting=3, stalled_s=12.5)],
    )


def numbers() -> Numbers:
    """A leader of three, to which everything has happened."""
    return Numbers(
        replica=1,
        role="leader",
        term=3,
        leader=1,
        commit=9,
        applied=9,
        first_index=1,
        last_index=12,
        voters=(1, 2),
        learners=(3,),
        is_repairing=False,
        uncommitted_bytes=0,
        reads_waiting=0,
        waiting=4,
        peers=[PeerNumbers(replica=2, match=10, is_active=True, is_learner=False)],
        now_ns=NOW_NS,
        digest=1,
        disk_is_full=False,
        counted=counters(),
        clock=ClockNumbers("faster", 1_500_000_000, NOW_NS),
        schedules=40,
    )


def scrape(*shards: ShardScrape, queues: Queues | None = None) -> Scrape:
    metrics = Metrics(Clock())
    metrics.observe("POST", "/api/v1/enqueue", 201, 0.002)
    metrics.observe("POST", "/api/v1/ack/{job_id}", 409, 0.002)
    metrics.refuse("RATE_LIMITED")
    for _ in range(6):
        metrics.drop("slow")
    metrics.ignore("/api/v1/enqueue", 2)
    metrics.aborts["ping"] = 3
    metrics.throughput.enqueued(7)
    metrics.read("corvo_http_requests_in_flight", lambda: 2)
    metrics.read("corvo_http_connections", lambda: 3)
    for name, value in (
        ("corvo_fetch_waiters", 4),
        ("corvo_claims_given_back_total", 1),
        ("corvo_lifecycle_streams_open", 2),
        ("corvo_event_listeners", 3),
        ("corvo_http_pauses_total", 6),
        ("corvo_trace_spans_exported_total", 8),
        ("corvo_trace_spans_dropped_total", 2),
        ("corvo_wrong_api_keys_total", 5),
        ("corvo_wrong_api_keys_waiting", 1),
    ):
        metrics.read(name, partial(int, value))
    return Scrape(
        now_ns=NOW_NS,
        metrics=metrics,
        config=RouterConfig(
            cluster="rookery",
            node=1,
            shards=len(shards),
            sockets=dict(enumerate([""] * len(shards))),
            listen=[3],
        ),
        process=ProcessScrape(
            name="router", stats=ProcessStats(), lag=metrics.loop.lag, loop=metrics.loop, tasks=9
        ),
        shards=list(shards),
        cluster=ClusterScrape(
            map=CLUSTER, reachable={1: True, 2: False}, clocks_ns={2: -700_000_000}
        ),
        queues=queues or Queues(),
        workers={"w-1": NOW_NS, "w-2": NOW_NS - ACTIVE_NS - 1},
        has_mirror=True,
        mirror=standing(len(shards)),
        not_fetching=1,
        workers_by_queue={"mail": 2},
        counters={"mail": range(1, len(COUNTED) + 1)},
        is_ready=True,
        certificate_ends_s={"http": 1_800_000_000},
    )


def standing(shards: int) -> Standing:
    """A mirror that has seen eight entries of each shard, the last a minute ago."""
    return Standing(
        shards=[
            ShardStanding(
                shard=shard,
                index=8,
                now_ns=NOW_NS - MINUTE_NS,
                through=8,
                is_linked=True,
                is_whole=shard == 0,
                passes=1,
                changes=30,
            )
            for shard in range(shards)
        ],
        file_bytes=4_096,
        jobs=7,
        rebuilds=2,
        lag_seconds=[3, 1] + [0] * (len(LAG_BOUNDS_MS) - 1),
        lag_sum_ms=44.0,
        questions=11,
        interrupted=1,
        schema=1,
        rss_bytes=1 << 25,
        cpu_seconds=2.5,
    )


def whole(number: int = 0, **changed: object) -> ShardScrape:
    seen = msgspec.structs.replace(numbers(), **changed)  # type: ignore[arg-type]
    return ShardScrape(number=number, calls_in_flight=0, numbers=seen, is_whole=True)


def text(made: Scrape) -> str:
    made.queues.settle()
    return b"".join(render(made)).decode()


@pytest.mark.parametrize("ahead_ns", [0, 3_600_000_000_000, -60_000_000_000])
def test_how_long_a_job_waits_is_by_the_clock_of_its_shard(ahead_ns: int) -> None:
    queues = Queues(ahead_ns=ahead_ns)
    waits_ns = NOW_NS - ahead_ns - MINUTE_NS
    queues.add([QueueNumbers("mail", queue("mail", 1, 0).counts, False, waits_ns)])
    queues.add([QueueNumbers("empty", queue("mail", 0, 0).counts, False, 0)])

    lines = text(scrape(whole(), queues=queues)).splitlines()

    assert 'corvo_queue_oldest_pending_seconds{queue="mail"} 60.0' in lines
    assert 'corvo_queue_oldest_pending_seconds{queue="empty"} 0' in lines


def test_a_page_tells_what_was_counted() -> None:
    queues = Queues()
    queues.add([QueueNumbers("mail", queue("mail", 3, 1).counts, True, NOW_NS - MINUTE_NS)])

    lines = text(scrape(whole(), queues=queues)).splitlines()

    for line in (
        'corvo_http_requests_total{method="POST",route="/api/v1/enqueue",code="201"} 1',
        'corvo_http_request_errors_total{method="POST",route="/api/v1/ack/{job_id}"} 1',
        'corvo_http_request_errors_total{method="POST",route="/api/v1/enqueue"} 0',
        'corvo_http_problems_total{code="RATE_LIMITED"} 1',
        'corvo_http2_aborts_total{reason="ping"} 3',
        "corvo_rate_limit_throttled_total 1",
        "corvo_http_requests_in_flight 2",
        "corvo_throughput_enqueued_total 7",
        "corvo_fetch_waiters 4",
        "corvo_trace_spans_dropped_total 2",
        "corvo_wrong_api_keys_total 5",
        "corvo_lifecycle_streams_open 2",
        "corvo_event_listeners 3",
        "corvo_event_listeners_max 1000",
        'corvo_event_listeners_dropped_total{reason="gone"} 0',
        'corvo_event_listeners_dropped_total{reason="slow"} 6',
        'corvo_shard_clock_offset_seconds{shard="0"} 1.5',
        'corvo_shard_replicas{shard="0"} 3',
        'corvo_schedules{shard="0"} 40',
        'corvo_schedule_fired_total{shard="0"} 5',
        'corvo_schedule_skipped_total{shard="0",reason="overlap"} 2',
        'corvo_schedule_skipped_total{shard="0",reason="missed"} 0',
        'corvo_schedule_lateness_seconds_bucket{shard="0",le="0.005"} 1',
        'corvo_schedule_lateness_seconds_count{shard="0"} 2',
        'corvo_shard_replica_lag_entries{shard="0",node="2"} 0',
        'corvo_cluster_nodes{state="active"} 2',
        'corvo_cluster_nodes{state="draining"} 1',
        "corvo_cluster_map_version 7",
        'corvo_cluster_node_reachable{node="1"} 1',
        'corvo_cluster_node_reachable{node="2"} 0',
        'corvo_cluster_clock_offset_seconds{node="2"} -0.7',
        'corvo_queue_jobs{queue="mail",state="pending"} 3',
        'corvo_queue_jobs{queue="mail",state="active"} 1',
        'corvo_queue_jobs{queue="mail",state="dead"} 0',
        'corvo_queue_oldest_pending_seconds{queue="mail"} 60.0',
        'corvo_queue_paused{queue="mail"} 1',
        'corvo_jobs{state="pending"} 3',
        "corvo_queues 1",
        "corvo_workers_registered 2",
        "corvo_workers_active 1",
        "corvo_cluster_is_leader 1",
        'corvo_raft_state{shard="0"} 2',
        'corvo_raft_apply_pending{shard="0"} 4',
        'corvo_raft_peer_lag_entries{shard="0",peer="2"} 2',
        'corvo_raft_snapshot_age_seconds{shard="0"} 300.0',
        'corvo_ops_refused_total{shard="0",reason="job_not_found"} 2',
        'corvo_leases_expired_total{shard="0"} 3',
        'corvo_scheduler_promote_total{shard="0"} 3',
        'corvo_shard_scrape_success{shard="0"} 1',
        'corvo_process_cpu_seconds_total{process="shard-0",mode="user"} 1.5',
        "corvo_mirror_up 1",
        'corvo_mirror_whole{shard="0"} 1',
        'corvo_mirror_lag_entries{shard="0"} 1',
        'corvo_mirror_lag_seconds{shard="0"} 60.0',
        'corvo_mirror_changes_total{shard="0"} 30',
        "corvo_mirror_rebuilds_total 2",
        'corvo_mirror_write_lag_seconds_bucket{le="0.01"} 3',
        'corvo_mirror_write_lag_seconds_bucket{le="0.025"} 4',
        "corvo_mirror_write_lag_seconds_sum 0.044",
        'corvo_process_cpu_seconds_total{process="mirror",mode="all"} 2.5',
        "corvo_workers_deaf 1",
    ):
        assert line in lines


def test_a_shard_that_did_not_answer_is_missing_and_said_to_be() -> None:
    page = text(scrape(whole(0), ShardScrape(number=1, calls_in_flight=0)))

    assert 'corvo_shard_scrape_success{shard="1"} 0' in page
    assert 'corvo_raft_state{shard="1"}' not in page
    assert 'corvo_raft_state{shard="0"}' in page
    # A sum over the shards that are left would look as if jobs had gone.
    assert not re.search(r"^corvo_(jobs|queues|workers_active)\b", page, re.MULTILINE)


def test_buckets_are_added_up_as_the_format_wants_it() -> None:
    measured = empty((0.1, 1.0))
    for measure in (0.1, 0.5, 0.6, 7.0):
        measured.observe(measure)
    group = Group[Histogram](
        ("shard",), (histogram("corvo_raft_commit_seconds", "", lambda seen: seen),)
    )
    page = Page(group.declared())

    page.add(group, measured, "0")

    assert b"".join(page.pieces()).decode().splitlines()[2:] == [
        'corvo_raft_commit_seconds_bucket{shard="0",le="0.1"} 1',
        'corvo_raft_commit_seconds_bucket{shard="0",le="1.0"} 3',
        'corvo_raft_commit_seconds_bucket{shard="0",le="+Inf"} 4',
        'corvo_raft_commit_seconds_sum{shard="0"} 8.2',
        'corvo_raft_commit_seconds_count{shard="0"} 4',
    ]


label_values = st.text('a"\\\n{}é', max_size=3)
pairs_of_values: st.SearchStrategy[tuple[str, ...]] = st.tuples(label_values, label_values)
single_values: st.SearchStrategy[tuple[str, ...]] = st.tuples(label_values)
numbers_to_show = st.integers(-3, 3) | st.floats(allow_nan=False)
samples: st.SearchStrategy[Sample] = numbers_to_show
histograms: st.SearchStrategy[Sample] = st.lists(st.integers(0, 3), min_size=3, max_size=3).map(
    lambda counts: Histogram((0.5, 2.0), counts, 1.5)
)


def plainly(name: str, labels: dict[str, str], sample: float | Histogram) -> list[str]:
    """The lines of one sample, each written by itself."""

    def line(end: str, value: float, **more: str) -> str:
        pairs = [f'{each}="{escape(text)}"' for each, text in {**labels, **more}.items()]
        return f"{name}{end}{'{' + ','.join(pairs) + '}' if pairs else ''} {value}"

    if not isinstance(sample, Histogram):
        return [line("", sample)]
    first, second, third = accumulate(sample.counts)
    return [
        line("_bucket", first, le="0.5"),
        line("_bucket", second, le="2.0"),
        line("_bucket", third, le="+Inf"),
        line("_sum", sample.total),
        line("_count", third),
    ]


def by_labels(of_family: Samples, listed: list[str]) -> dict[tuple[str, ...], Sample]:
    """Samples by the label values that they are for."""
    if of_family is None:
        return {}
    if isinstance(of_family, dict):
        return of_family
    if isinstance(of_family, Sequence):
        return {(value,): sample for value, sample in zip(listed, of_family, strict=True)}
    return {(): of_family}


@given(st.booleans(), st.lists(label_values, max_size=4, unique=True), st.data())
def test_samples_of_many_sources_are_written_as_each_by_itself(
    has_labels: bool, sources: list[str], data: st.DataObject
) -> None:
    listed = data.draw(st.lists(label_values, max_size=3, unique=True))
    counts = st.lists(numbers_to_show, min_size=len(listed), max_size=len(listed))
    each: dict[str, st.SearchStrategy[Samples]] = {
        "one": st.none() | samples,
        "some": st.dictionaries(pairs_of_values, samples, max_size=3),
        "listed": counts | counts.map(tuple),
        "spread": st.none() | histograms,
        "spreads": st.dictionaries(single_values, histograms, max_size=2),
    }
    seen = {source: data.draw(st.fixed_dictionaries(each)) for source in sources}
    group = Group[str](
        ("source",) if has_labels else (),
        (
            gauge("one", "", lambda it: seen[it]["one"]),
            counter("some", "", lambda it: seen[it]["some"], "x y"),
            gauge("listed", "", lambda it: seen[it]["listed"], "x", listed),
            histogram("spread", "", lambda it: seen[it]["spread"]),
            histogram("spreads", "", lambda it: seen[it]["spreads"], "x"),
        ),
    )
    page = Page(group.declared())

    page.add_all(group, [(it, (it,) if has_labels else ()) for it in sources])

    lines: list[str] = []
    for family in group.families:
        for source, of_source in seen.items():
            own = {"source": source} if has_labels else {}
            of_family = of_source[family.name]
            for key, sample in by_labels(of_family, listed).items():
                labels = {**own, **dict(zip(family.labels, key, strict=True))}
                lines += plainly(family.name, labels, sample)
    told = b"".join(page.pieces()).decode().split("\n")[:-1]
    assert [line for line in told if not line.startswith("#")] == lines


def test_a_family_stands_together_whatever_the_order_in_which_it_is_told() -> None:
    page = Page(FAMILIES.values())
    page.add(REPLICA, numbers(), "0")
    page.add(QUEUE_JOBS, queue("mail").counts, "mail")
    page.add(REPLICA, numbers(), "1")

    lines = b"".join(page.pieces()).decode().splitlines()

    families = [line.partition("{")[0] for line in lines if not line.startswith("#")]
    begun = [name for name, _ in groupby(re.sub("_(bucket|sum|count)$", "", it) for it in families)]
    assert len(begun) == len({*begun})
    terms = [line for line in lines if line.startswith("corvo_raft_term{")]
    assert terms == ['corvo_raft_term{shard="0"} 3', 'corvo_raft_term{shard="1"} 3']


def test_a_name_can_be_anything_and_breaks_no_line() -> None:
    queues = Queues()
    queues.add([queue('a"} 1\nb{\\', 1)])

    page = text(scrape(whole(), queues=queues))

    assert 'corvo_queue_jobs{queue="a\\"} 1\\nb{\\\\",state="pending"} 1' in page.splitlines()


def test_the_page_of_a_thousand_queues_comes_in_small_pieces() -> None:
    queues = Queues()
    queues.add(queue(f"queue-{number}", 1) for number in range(QUEUES_MAX + 500))
    queues.settle()

    pieces = list(render(scrape(whole(), queues=queues)))

    assert len(pieces) > 2 * QUEUES_MAX // 50
    assert max(piece.count(b"\n") for piece in pieces) <= 500
    assert b'corvo_queue_jobs{queue="other",state="pending"} 500' in b"".join(pieces)


def calls_of_page(queues_shown: int) -> int:
    """How many functions of Python are called for a page."""
    queues = Queues()
    queues.add(queue(f"queue-{number}", 1) for number in range(queues_shown))
    made = scrape(whole(), queues=queues)
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        text(made)
    finally:
        sys.setprofile(before)
    return calls


def test_a_queue_takes_fewer_calls_than_lines() -> None:
    # The router answers nothing else while it writes the lines of some queues.
    lines = 3 + len(STATES)

    assert (calls_of_page(200) - calls_of_page(100)) / 100 < lines


def told_families(page: str) -> set[str]:
    return {*re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE)}


def test_a_mirror_that_has_seen_all_is_not_late_however_long_ago_that_was() -> None:
    lines = text(scrape(whole(applied=8))).splitlines()

    assert 'corvo_mirror_lag_entries{shard="0"} 0' in lines
    assert 'corvo_mirror_lag_seconds{shard="0"} 0.0' in lines


def test_a_mirror_that_is_away_is_told_as_down_and_one_that_is_not_to_be_there_not_at_all() -> None:
    away, none = scrape(whole()), scrape(whole())
    away.mirror = none.mirror = None
    none.has_mirror = False

    told = [line for line in text(away).splitlines() if "corvo_mirror" in line and line[0] != "#"]

    assert told == ["corvo_mirror_up 0"]
    assert "corvo_mirror" not in text(none)


def test_the_lag_behind_a_shard_that_does_not_answer_is_not_told() -> None:
    silent = ShardScrape(number=0, calls_in_flight=0)

    page = text(scrape(silent))

    assert 'corvo_mirror_changes_total{shard="0"} 30' in page
    assert "corvo_mirror_lag_entries" not in page


@pytest.mark.parametrize(
    ("role", "active", "expected"),
    [("leader", (True, True), "2"), ("leader", (False, True), "1"), ("follower", (True, True), "")],
)
def test_learners_are_no_active_voters(role: str, active: tuple[bool, bool], expected: str) -> None:
    voter, learner = active
    peers = [
        PeerNumbers(replica=2, match=10, is_active=voter, is_learner=False),
        PeerNumbers(replica=3, match=10, is_active=learner, is_learner=True),
    ]

    page = text(scrape(whole(0, role=role, peers=peers)))

    found = re.findall(r'^corvo_shard_voters_active\{shard="0"\} (\d+)$', page, re.MULTILINE)
    assert found == [expected] * bool(expected)


def test_the_workers_of_a_queue_are_shown_only_while_all_are_known() -> None:
    queues = [queue("mail", 1), queue("sms", 1)]
    known, unknown = (Queues(), Queues())
    known.add(queues)
    unknown.add(queues)
    without = scrape(whole(), queues=unknown)
    without.workers_by_queue = None

    shown = [
        [line for line in text(made).splitlines() if line.startswith("corvo_queue_workers")]
        for made in (scrape(whole(), queues=known), without)
    ]

    assert shown == [
        ['corvo_queue_workers{queue="mail"} 2', 'corvo_queue_workers{queue="sms"} 0'],
        [],
    ]


def test_every_family_that_is_declared_is_told() -> None:
    queues = Queues()
    queues.add([queue("mail", 1)])

    page = text(scrape(whole(), queues=queues))

    assert told_families(page) == set(FAMILIES)


def test_every_line_has_the_labels_that_its_family_declares() -> None:
    queues = Queues()
    queues.add([queue("mail", 1)])

    page = text(scrape(whole(0), whole(1, role="follower", peers=[]), queues=queues))

    for line in page.splitlines():
        if line.startswith("#"):
            continue
        name, _, inner = line.partition(" ")[0].partition("{")
        plain = re.sub(r"_(bucket|sum|count)$", "", name)
        family = FAMILIES.get(name) or FAMILIES[plain]
        found = tuple(each for each in re.findall(r'(\w+)="', inner) if each != "le")
        assert found == family.labels, line
        assert (family.kind == "histogram") == (name != plain)


@needs_promtool
def test_promtool_has_nothing_to_say_about_it() -> None:
    queues = Queues(3)
    queues.add(queue(name, 1) for name in ("mail", 'a"} 1\nb{\\', "ünïcode", "bulk", OTHER))

    page = text(scrape(whole(0), whole(1), queues=queues))

    assert promtool("check", "metrics", text=page) == ""


# ---- The page of documentation.

TABLE: Final = re.compile(r"(?<=<!-- metrics -->\n).*?(?=<!-- /metrics -->)", re.DOTALL)


def table() -> str:
    """Every metric as a row."""
    rows = [("metric", "kind", "labels", "meaning"), ("---",) * 4]
    rows += [
        (f"`{name}`", family.kind, ", ".join(family.labels), family.help)
        for name, family in FAMILIES.items()
    ]
    return "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows)


def test_the_documentation_lists_every_metric() -> None:
    drawn = TABLE.search((ROOT / "docs" / "metrics.md").read_text())

    assert drawn is not None, "docs/metrics.md has lost its markers"
    assert drawn[0] == table(), f"paste this:\n\n{table()}"


def test_the_buckets_that_the_documentation_names_are_those_that_there_are() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()

    assert ", ".join(f"{bound:g}" for bound in REQUEST_S) in page
    first = ", ".join(f"{bound:,g}" for bound in JOB_S[:-1])
    assert f"{first} and {JOB_S[-1]:,g} seconds" in " ".join(page.split())
    assert f"{DISK_S[0] * 1e3:g} ms to {DISK_S[-1] * 1e3:g} ms" in page
