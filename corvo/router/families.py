"""Every metric there is, and the text that a scraper reads: Prometheus' format 0.0.4.

A family is declared once, here; what is not declared cannot be told. `docs/metrics.md` lists them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from corvo.measures import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
_PIECE_LINES: Final = 500
"""Lines that are put together at a time: far less than a millisecond."""


class Family(msgspec.Struct, frozen=True):
    """One metric, with all its labels."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()


FAMILIES: Final[dict[str, Family]] = {
    # This node.
    "corvo_build_info": Family(GAUGE, "What runs here; always 1.", ("version", "python")),
    "corvo_node_info": Family(
        GAUGE, "Which node this is; always 1.", ("cluster", "node", "durability")
    ),
    "corvo_cluster_is_leader": Family(GAUGE, "Whether this node leads one of its shards."),
    # What goes through the router.
    "corvo_throughput_enqueued_total": Family(COUNTER, "Jobs put into queues."),
    "corvo_throughput_completed_total": Family(COUNTER, "Jobs that workers were done with."),
    "corvo_throughput_failed_total": Family(COUNTER, "Runs of jobs that workers reported failed."),
    "corvo_http_requests_total": Family(COUNTER, "Requests answered.", ("method", "route", "code")),
    "corvo_http_request_errors_total": Family(
        COUNTER, "Requests answered with a status of 400 or more.", ("method", "route")
    ),
    "corvo_http_request_duration_seconds": Family(
        HISTOGRAM, "From a request that is there in whole to its answer.", ("method", "route")
    ),
    "corvo_http_requests_in_flight": Family(
        GAUGE, "Requests being answered, without fetches that wait."
    ),
    "corvo_http_connections": Family(GAUGE, "Connections of clients that are open."),
    "corvo_http_problems_total": Family(
        COUNTER, "Requests answered with a problem, by its code.", ("code",)
    ),
    "corvo_rate_limit_throttled_total": Family(
        COUNTER, "Requests refused because their client makes too many."
    ),
    "corvo_fetch_waiters": Family(GAUGE, "Fetches that wait for work."),
    "corvo_claims_given_back_total": Family(
        COUNTER, "Claims released because their client had gone before it was answered."
    ),
    "corvo_lifecycle_streams_open": Family(GAUGE, "Streams that are open."),
    "corvo_lifecycle_streams_max": Family(GAUGE, "Streams that may be open."),
    "corvo_event_listeners": Family(GAUGE, "Clients that listen to events."),
    "corvo_event_listeners_max": Family(GAUGE, "How many may listen."),
    "corvo_lifecycle_idle_fetch_total": Family(
        COUNTER, "Fetches that found nothing, and cost no entry in the log.", ("shard",)
    ),
    # Queues.
    "corvo_queues": Family(GAUGE, "Queues there are."),
    "corvo_jobs": Family(GAUGE, "Jobs by state, in all queues.", ("state",)),
    "corvo_queue_jobs": Family(GAUGE, "Jobs by queue and state.", ("queue", "state")),
    "corvo_queue_oldest_pending_seconds": Family(
        GAUGE, "How long the first in the queue has had its place; 0 when none waits.", ("queue",)
    ),
    "corvo_queue_paused": Family(GAUGE, "Whether the queue is paused.", ("queue",)),
    "corvo_workers_registered": Family(GAUGE, "Workers that fetched within the last day."),
    "corvo_workers_active": Family(GAUGE, "Workers heard of within the last minute."),
    "corvo_workers_deaf": Family(
        GAUGE, "Workers that are heard of, and do not ask for work though they have room for it."
    ),
    # The mirror of this node.
    "corvo_mirror_up": Family(GAUGE, "Whether the mirror answered in time."),
    "corvo_mirror_whole": Family(
        GAUGE, "Whether all of the shard is there: no full pass is under way.", ("shard",)
    ),
    "corvo_mirror_lag_entries": Family(
        GAUGE, "Entries that the shard has applied and the mirror not seen.", ("shard",)
    ),
    "corvo_mirror_lag_seconds": Family(
        GAUGE, "How old what the mirror has of the shard is; 0 when it has all.", ("shard",)
    ),
    "corvo_mirror_changes_total": Family(COUNTER, "Documents taken in.", ("shard",)),
    "corvo_mirror_write_lag_seconds": Family(
        HISTOGRAM, "From a change in a shard to its row being written."
    ),
    "corvo_mirror_rebuilds_total": Family(COUNTER, "Rebuilds that were asked for or had to be."),
    "corvo_mirror_file_bytes": Family(GAUGE, "Bytes of the mirror's file."),
    "corvo_mirror_questions_total": Family(COUNTER, "Questions answered."),
    "corvo_mirror_interrupted_total": Family(
        COUNTER, "Questions whose time was over before all was looked at."
    ),
    # Shards: what this node's replica of each is, and does.
    "corvo_shard_scrape_success": Family(
        GAUGE, "Whether the replica of this node answered in time.", ("shard",)
    ),
    "corvo_shard_scrape_seconds": Family(GAUGE, "How long it took to answer.", ("shard",)),
    "corvo_shard_calls_in_flight": Family(
        GAUGE, "Requests of this router that wait for the shard.", ("shard",)
    ),
    "corvo_shard_disk_full": Family(
        GAUGE, "Whether nothing new is taken for want of room.", ("shard",)
    ),
    "corvo_data_dir_free_bytes": Family(
        GAUGE, "Bytes that may still be written to the shard's disk.", ("shard",)
    ),
    "corvo_raft_state": Family(GAUGE, "0 follower, 1 candidate, 2 leader.", ("shard",)),
    "corvo_raft_is_leader": Family(GAUGE, "Whether the replica leads its shard.", ("shard",)),
    "corvo_raft_has_leader": Family(GAUGE, "Whether the replica knows a leader.", ("shard",)),
    "corvo_raft_leader_changes_total": Family(
        COUNTER, "How often another leader, or the same in a new term, was known.", ("shard",)
    ),
    "corvo_raft_term": Family(GAUGE, "The number of the reign.", ("shard",)),
    "corvo_raft_first_index": Family(GAUGE, "Where the log begins.", ("shard",)),
    "corvo_raft_last_index": Family(GAUGE, "Where the log ends.", ("shard",)),
    "corvo_raft_commit_index": Family(GAUGE, "Up to where it is agreed on.", ("shard",)),
    "corvo_raft_applied_index": Family(GAUGE, "Up to where it is in the state.", ("shard",)),
    "corvo_raft_voters": Family(GAUGE, "Replicas that count.", ("shard",)),
    "corvo_raft_learners": Family(GAUGE, "Replicas that only learn.", ("shard",)),
    "corvo_raft_repairing": Family(
        GAUGE, "Whether the replica lost some of its log and neither votes nor leads.", ("shard",)
    ),
    "corvo_raft_peer_active": Family(
        GAUGE, "Whether the leader has heard of another replica lately.", ("shard", "peer")
    ),
    "corvo_raft_peer_lag_entries": Family(
        GAUGE, "Entries of the leader that another replica may not have.", ("shard", "peer")
    ),
    "corvo_raft_apply_pending": Family(GAUGE, "Ops that wait for agreement.", ("shard",)),
    "corvo_raft_apply_max_pending": Family(
        GAUGE, "How many may wait before others are turned away.", ("shard",)
    ),
    "corvo_raft_apply_overload_total": Family(
        COUNTER, "Ops turned away because too many waited.", ("shard",)
    ),
    "corvo_raft_uncommitted_bytes": Family(
        GAUGE, "Bytes proposed and not agreed on, at the leader.", ("shard",)
    ),
    "corvo_raft_reads_waiting": Family(
        GAUGE, "Proofs of leadership under way, for reads.", ("shard",)
    ),
    "corvo_raft_applied_total": Family(COUNTER, "Entries applied since the start.", ("shard",)),
    "corvo_raft_commit_seconds": Family(
        HISTOGRAM, "From the proposal of an entry to its being applied.", ("shard",)
    ),
    "corvo_raft_batch_size": Family(HISTOGRAM, "Ops in an entry.", ("shard",)),
    "corvo_raft_log_fsync_seconds": Family(
        HISTOGRAM, "Seconds to make the log durable, the wait for a thread included.", ("shard",)
    ),
    "corvo_raft_log_bytes_total": Family(COUNTER, "Bytes of entries logged.", ("shard",)),
    "corvo_raft_log_replay_bytes": Family(
        GAUGE, "Bytes of entries logged behind the last checkpoint.", ("shard",)
    ),
    "corvo_raft_snapshot_latest_index": Family(
        GAUGE, "The applied index of the newest checkpoint.", ("shard",)
    ),
    "corvo_raft_snapshots_total": Family(COUNTER, "Checkpoints made since the start.", ("shard",)),
    "corvo_raft_snapshot_age_seconds": Family(
        GAUGE, "Since the newest checkpoint was made; not told before the first.", ("shard",)
    ),
    "corvo_ops_total": Family(
        COUNTER, "Ops asked for here and applied, also those that were refused.", ("shard", "op")
    ),
    "corvo_ops_refused_total": Family(
        COUNTER, "Ops applied that were refused, by reason.", ("shard", "reason")
    ),
    "corvo_leases_expired_total": Family(
        COUNTER, "Jobs taken back from workers that were not heard of in time.", ("shard",)
    ),
    **{
        f"corvo_scheduler_{verb}_total": Family(COUNTER, f"{what}.", ("shard",))
        for verb, what in (
            ("promote", "Scheduled and retrying jobs made pending"),
            ("reclaim", "Jobs taken back from their workers"),
            ("expire", "Jobs given up because their time was over"),
            ("purge", "Finished jobs removed because their retention was over"),
        )
    },
    **{
        f"corvo_scheduler_last_{verb}_seconds": Family(
            GAUGE, f"When there was something to {verb} last, in seconds since 1970.", ("shard",)
        )
        for verb in ("promote", "reclaim", "expire", "purge")
    },
    # Processes.
    "corvo_process_cpu_seconds_total": Family(
        COUNTER, "Processor time spent.", ("process", "mode")
    ),
    "corvo_process_resident_memory_bytes": Family(GAUGE, "Memory in use.", ("process",)),
    "corvo_process_threads": Family(GAUGE, "Threads.", ("process",)),
    "corvo_process_open_fds": Family(GAUGE, "Descriptors that are open.", ("process",)),
    "corvo_process_max_fds": Family(GAUGE, "Descriptors that may be open.", ("process",)),
    "corvo_process_start_time_seconds": Family(
        GAUGE, "When the process began, in seconds since 1970.", ("process",)
    ),
    "corvo_process_tasks": Family(GAUGE, "Tasks in the event loop.", ("process",)),
    "corvo_event_loop_lag_seconds": Family(
        HISTOGRAM, "By how much a task of the loop woke too late.", ("process",)
    ),
    "corvo_event_loop_stalls_total": Family(
        COUNTER, "How often the loop was stuck for more than a quarter of a second.", ("process",)
    ),
    "corvo_gc_pause_seconds": Family(
        HISTOGRAM, "Seconds that collections of garbage took.", ("process",)
    ),
    # Of this page itself.
    "corvo_metrics_errors_total": Family(
        COUNTER, "Answers of shards that this page had to do without."
    ),
    "corvo_metrics_series_dropped_total": Family(
        COUNTER, "Queues told together as `other`, because there are more than have a line each."
    ),
}


class Page:
    """Takes numbers in any order, and gives them as text, family by family."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, value: float, labels: str = "") -> None:
        """One number; `labels` come from `label`."""
        self._of(name).append(f"{name}{labels} {value}")

    def add_histogram(self, name: str, histogram: Histogram, labels: str = "") -> None:
        """A histogram, its buckets added up as the format wants it."""
        lines = self._of(name)
        inner = f"{labels[1:-1]}," if labels else ""
        seen = 0
        for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
            seen += count
            lines.append(f'{name}_bucket{{{inner}le="{bound}"}} {seen}')
        seen += histogram.counts[-1]
        lines.append(f'{name}_bucket{{{inner}le="+Inf"}} {seen}')
        lines.append(f"{name}_sum{labels} {histogram.total}")
        lines.append(f"{name}_count{labels} {seen}")

    def _of(self, name: str) -> list[str]:
        lines = self._lines.get(name)
        if lines is None:
            assert name in FAMILIES, f"{name} is not declared"
            lines = self._lines[name] = []
        return lines

    def pieces(self) -> Iterator[bytes]:
        """The text, in pieces that are quickly made."""
        for name, family in FAMILIES.items():
            lines = self._lines.get(name)
            if not lines:
                continue
            yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n".encode()
            for start in range(0, len(lines), _PIECE_LINES):
                text = "\n".join(lines[start : start + _PIECE_LINES])
                yield f"{text}\n".encode()


def label(labels: Mapping[str, str]) -> str:
    """Labels as they stand behind a metric's name."""
    inner = ",".join(f'{name}="{escape(value)}"' for name, value in labels.items())
    return f"{{{inner}}}"


def escape(value: str) -> str:
    """The value of a label, which may be anything."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
