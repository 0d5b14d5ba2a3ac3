"""For each alert, series with which it fires, and series near its limit with which it does not.

A series is written as promtool reads it: `0+5x60` is a value at each of 61 minutes, the first 0 and
each one 5 more than the one before. Labels that are not given are those of `LABELS`.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

Series: TypeAlias = Mapping[str, str]
LABELS: Final = {"instance": "a:8080", "job": "corvo"}
MINUTES: Final = 60
_LONG: Final = 480


class Case(NamedTuple):
    """Series that make an alert fire, and series that do not."""

    fires: Series
    quiet: Series
    minutes: int = MINUTES
    """When the alert is looked at."""
    firing: int = 1
    """Alerts that fire: the sums over nodes must be one."""


def shown(series: str) -> str:
    """A series with the labels that all have."""
    name, _, inner = series.removesuffix("}").partition("{")
    given = re.findall(r'(\w+)="', inner)
    added = [f'{label}="{value}"' for label, value in LABELS.items() if label not in given]
    return f"{name}{{{','.join([*filter(None, [inner]), *added])}}}"


def steady(value: float, minutes: int = MINUTES) -> str:
    """A value that does not change."""
    return f"{value}x{minutes}"


def rising(step: float, minutes: int = MINUTES, start: float = 0) -> str:
    """A value that rises by a step each minute; it falls by one below 0."""
    return f"{start}{step:+}x{minutes}"


def buckets(name: str, labels: str, counts: Mapping[str, float]) -> Series:
    """A histogram whose buckets rise each minute by these numbers."""
    return {f'{name}_bucket{{{labels},le="{le}"}}': rising(step) for le, step in counts.items()}


def voters(active: int, voters: int) -> Series:
    """A shard as its leader sees it."""
    return {
        'corvo_raft_is_leader{shard="0"}': steady(1),
        'corvo_raft_voters{shard="0"}': steady(voters),
        'corvo_shard_voters_active{shard="0"}': steady(active),
    }


def disk(free: str, minutes: int = MINUTES) -> Series:
    """A disk of 1,000 bytes."""
    return {
        'corvo_data_dir_free_bytes{shard="0"}': free,
        'corvo_data_dir_size_bytes{shard="0"}': steady(1_000, minutes),
    }


def queue(pending: int, oldest_s: int, *, paused: int = 0, workers: int = 1) -> Series:
    """A queue with pending jobs."""
    return {
        'corvo_queue_jobs{queue="mail",state="pending"}': steady(pending),
        'corvo_queue_oldest_pending_seconds{queue="mail"}': steady(oldest_s),
        'corvo_queue_paused{queue="mail"}': steady(paused),
        'corvo_queue_workers{queue="mail"}': steady(workers),
    }


def flow(pending: int, enqueued: float, *, ended: float) -> Series:
    """A queue, its new jobs in a minute, and its ends of each of the three kinds."""
    found = {**queue(pending, 60)}
    for what, step in (
        ("enqueued", enqueued),
        *((end, ended) for end in ("completed", "dead", "cancelled")),
    ):
        # Two nodes have led its shard.
        each = rising(step / 2)
        found |= nodes(f"corvo_jobs_{what}_total", 'queue="mail"', each, each)
    return found


def nodes(name: str, labels: str, *values: str) -> Series:
    """A metric on nodes a, b, and so on."""
    return {
        f'{name}{{{labels},instance="{node}:8080"}}': value
        for node, value in zip("abc", values, strict=False)
    }


_ENQUEUE: Final = 'method="POST",route="/api/v1/enqueue"'
_PROBE: Final = 'method="GET",route="/readyz"'
_SYNC: Final = "corvo_raft_log_fsync_seconds"
_COMMIT: Final = "corvo_raft_commit_seconds"
_LATE: Final = "corvo_schedule_lateness_seconds"
_DAY_S: Final = 86_400

CASES: Final[Mapping[str, Case]] = {
    "CorvoShardNoLeader": Case(
        {
            **nodes("corvo_raft_has_leader", 'shard="0"', steady(0), steady(0)),
            # The process of the shard is down.
            'corvo_shard_scrape_success{shard="1"}': steady(0),
        },
        {
            **nodes("corvo_raft_has_leader", 'shard="0"', steady(0), steady(1)),
            **nodes("corvo_shard_scrape_success", 'shard="1"', steady(0), steady(1)),
            'corvo_raft_has_leader{shard="1",instance="b:8080"}': steady(1),
        },
        firing=2,
    ),
    "CorvoQuorumAtRisk": Case(voters(2, 3), voters(3, 3)),
    "CorvoLeaderChanges": Case(
        nodes("corvo_raft_leader_changes_total", 'shard="0"', rising(1), rising(0.9)),
        nodes("corvo_raft_leader_changes_total", 'shard="0"', rising(0.2), rising(0.3)),
    ),
    "CorvoReplicaBehind": Case(
        {'corvo_shard_replica_lag_entries{shard="0",node="2"}': steady(10_001)},
        {'corvo_shard_replica_lag_entries{shard="0",node="2"}': steady(10_000)},
    ),
    "CorvoReplicaRepairing": Case(
        {'corvo_raft_repairing{shard="0"}': steady(1)},
        {'corvo_raft_repairing{shard="0"}': f"0x50 {steady(1, 9)}"},
    ),
    "CorvoEffectsStalled": Case(
        {'corvo_shard_effects_stalled_seconds{shard="0",to="1"}': steady(61)},
        {'corvo_shard_effects_stalled_seconds{shard="0",to="1"}': steady(60)},
    ),
    "CorvoNodeUnreachable": Case(
        nodes("corvo_cluster_node_reachable", 'node="3"', steady(0), steady(0)),
        nodes("corvo_cluster_node_reachable", 'node="3"', steady(0), steady(1)),
    ),
    "CorvoNodeDown": Case(
        {"up": steady(0)}, {"up": steady(1), 'up{job="node-exporter"}': steady(0)}
    ),
    "CorvoNodeNotReady": Case(
        {"corvo_node_ready": steady(0)}, {"corvo_node_ready": f"1x56 {steady(0, 3)}"}
    ),
    "CorvoShardNotAnswering": Case(
        {'corvo_shard_scrape_success{shard="0"}': steady(0)},
        {'corvo_shard_scrape_success{shard="0"}': steady(1)},
    ),
    "CorvoProcessRestarts": Case(
        {'corvo_process_start_time_seconds{process="shard-0"}': "100x50 200x3 300x3 400x3"},
        {'corvo_process_start_time_seconds{process="shard-0"}': "100x50 200x3 300x6"},
    ),
    "CorvoEventLoopStalls": Case(
        {'corvo_event_loop_stalls_total{process="router"}': rising(1)},
        {'corvo_event_loop_stalls_total{process="router"}': rising(0.3)},
    ),
    "CorvoClockOff": Case(
        {
            # Node 3 is wrong, so it finds both others wrong.
            'corvo_cluster_clock_offset_seconds{node="2",instance="a:8080"}': steady(0.01),
            'corvo_cluster_clock_offset_seconds{node="3",instance="a:8080"}': steady(-0.6),
            'corvo_cluster_clock_offset_seconds{node="3",instance="b:8080"}': steady(-0.6),
            'corvo_cluster_clock_offset_seconds{node="2",instance="c:8080"}': steady(0.6),
        },
        {'corvo_cluster_clock_offset_seconds{node="3"}': steady(-0.4)},
    ),
    "CorvoShardClockOff": Case(
        {'corvo_shard_clock_offset_seconds{shard="0"}': steady(-5.1)},
        {'corvo_shard_clock_offset_seconds{shard="0"}': steady(-4.9)},
    ),
    "CorvoCertificateEnds": Case(
        # promtool begins at the Unix time 0.
        {'corvo_tls_certificate_end_seconds{use="http"}': steady(13 * _DAY_S, 120)},
        {'corvo_tls_certificate_end_seconds{use="http"}': steady(15 * _DAY_S, 120)},
        minutes=120,
    ),
    "CorvoDiskFull": Case(
        {'corvo_shard_disk_full{shard="0"}': steady(1)},
        {'corvo_shard_disk_full{shard="0"}': steady(0)},
    ),
    "CorvoDiskNearlyFull": Case(disk(steady(99)), disk(steady(100))),
    "CorvoDiskWillFill": Case(
        disk(rising(-0.2, _LONG, 240), _LONG),
        # The same course on a disk with more room.
        disk(rising(-0.2, _LONG, 360), _LONG),
        minutes=_LONG,
    ),
    "CorvoSlowSync": Case(
        buckets(_SYNC, 'shard="0"', {"0.4096": 9, "0.8192": 10, "+Inf": 10}),
        buckets(_SYNC, 'shard="0"', {"0.4096": 10, "0.8192": 10, "+Inf": 10}),
    ),
    "CorvoSlowCommit": Case(
        buckets(_COMMIT, 'shard="0"', {"0.2048": 9, "0.4096": 10, "+Inf": 10}),
        buckets(_COMMIT, 'shard="0"', {"0.2048": 10, "0.4096": 10, "+Inf": 10}),
    ),
    "CorvoMirrorBehind": Case(
        {'corvo_mirror_lag_seconds{shard="0"}': steady(11)},
        {'corvo_mirror_lag_seconds{shard="0"}': f"0x59 {steady(3_600, 0)}"},
    ),
    "CorvoMirrorDown": Case({"corvo_mirror_up": steady(0)}, {"corvo_mirror_up": steady(1)}),
    "CorvoOldestJob": Case(queue(1, 301), {**queue(1, 900, paused=1)}),
    "CorvoQueueGrowing": Case(flow(1_001, 100, ended=29), flow(1_001, 100, ended=30)),
    "CorvoQueueNoWorkers": Case(queue(1, 1, workers=0), queue(0, 0, workers=0)),
    "CorvoWorkersNotFetching": Case(
        {"corvo_workers_deaf": steady(1)}, {"corvo_workers_deaf": steady(0)}
    ),
    "CorvoDeadJobs": Case(
        nodes("corvo_queue_jobs", 'queue="mail",state="dead"', rising(1), rising(1)),
        # Dead jobs of before, some of which are retried.
        nodes("corvo_queue_jobs", 'queue="mail",state="dead"', rising(-1, start=90), steady(90)),
    ),
    "CorvoFailureRatio": Case(
        {
            "corvo_throughput_failed_total": rising(3),
            "corvo_throughput_completed_total": rising(7),
        },
        {
            "corvo_throughput_failed_total": rising(2),
            "corvo_throughput_completed_total": rising(8),
        },
    ),
    "CorvoLeasesExpire": Case(
        nodes("corvo_leases_expired_total", 'shard="0"', rising(0.4), rising(0.4)),
        nodes("corvo_leases_expired_total", 'shard="0"', rising(0.3), rising(0.3)),
    ),
    "CorvoRequestsRejected": Case(
        {
            f'corvo_http_requests_total{{{_ENQUEUE},code="201"}}': rising(95),
            f'corvo_http_requests_total{{{_ENQUEUE},code="429"}}': rising(5),
        },
        {
            f'corvo_http_requests_total{{{_ENQUEUE},code="201"}}': rising(1_000),
            f'corvo_http_requests_total{{{_ENQUEUE},code="503"}}': rising(5),
            f'corvo_http_requests_total{{{_PROBE},code="503"}}': rising(500),
        },
    ),
    "CorvoSchedulesLate": Case(
        buckets(_LATE, 'shard="0"', {"10": 9, "60": 10, "+Inf": 10}),
        buckets(_LATE, 'shard="0"', {"10": 10, "60": 10, "+Inf": 10}),
    ),
}
