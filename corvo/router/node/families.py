"""Every metric there is: its name, its text, and the value that it shows. A new one is one row.

`docs/metrics.md` lists them. The page is rendered in pieces, none of which takes long.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from corvo import __version__
from corvo.model import STATES
from corvo.protocol.numbers import COUNTED, WAITING_OPS_MAX, Numbers, QueueNumbers
from corvo.protocol.ops import NAMES
from corvo.protocol.ops.schedules import SKIPPED
from corvo.protocol.questions import ShardStanding, Standing
from corvo.router.metrics import OTHER, Timing
from corvo.router.node.exposition import Group, Page, counter, gauge, histogram
from corvo.router.node.health import lag_entries, lag_s, write_lag
from corvo.router.node.scrape import ACTIVE_NS, ClusterScrape, ProcessScrape, Scrape, ShardScrape

_QUEUES_AT_A_TIME: Final = 50
"""Queues whose lines are made at a time: some 0.2 ms."""
_ROLES: Final = {"follower": 0, "learner": 0, "leader": 2}
_STATES: Final = tuple(state.word for state in sorted(STATES, key=lambda state: state.number))


def _reading(name: str) -> Callable[[Scrape], float | None]:
    """A number that another object keeps: see `Metrics.read`."""

    def read(scrape: Scrape) -> float | None:
        reading = scrape.metrics.readings.get(name)
        return reading() if reading is not None else None

    return read


NODE: Final = Group[Scrape](
    (),
    (
        gauge(
            "corvo_build_info",
            "Version of Corvo and of Python; always 1.",
            lambda _: {(__version__, platform.python_version()): 1},
            "version python",
        ),
        gauge(
            "corvo_node_info",
            "Cluster, node id and durability of this node; always 1.",
            lambda it: {(it.config.cluster, str(it.config.node), it.config.durability): 1},
            "cluster node durability",
        ),
        gauge(
            "corvo_cluster_is_leader",
            "1 if this node leads at least one of its shards.",
            lambda it: int(
                any(shard.numbers and shard.numbers.role == "leader" for shard in it.shards)
            ),
        ),
        gauge(
            "corvo_node_ready",
            "1 if requests can be sent to this node: `/readyz` answers 200.",
            lambda it: int(it.is_ready),
        ),
        gauge(
            "corvo_tls_certificate_end_seconds",
            "Unix time at which the first certificate of a file ends. `use` is `http` (`tls_cert`)"
            " or `peer` (`cluster.tls_cert`). Only with TLS.",
            lambda it: {(use,): end_s for use, end_s in it.certificate_ends_s.items()},
            "use",
        ),
        # Requests.
        counter(
            "corvo_throughput_enqueued_total",
            "Jobs enqueued through this router.",
            lambda it: it.metrics.throughput.enqueued_total,
        ),
        counter(
            "corvo_throughput_completed_total",
            "Jobs that workers acknowledged through this router.",
            lambda it: it.metrics.throughput.completed_total,
        ),
        counter(
            "corvo_throughput_failed_total",
            "Attempts that workers reported as failed through this router.",
            lambda it: it.metrics.throughput.failed_total,
        ),
        counter(
            "corvo_http_requests_total",
            "HTTP requests answered.",
            lambda it: {
                (method, route, str(code)): count
                for method, route, timing in it.metrics.timings()
                for code, count in sorted(timing.codes.items())
            },
            "method route code",
        ),
        counter(
            "corvo_http_request_errors_total",
            "HTTP requests answered with a status of 400 or more.",
            lambda it: {
                (method, route): _errors(timing) for method, route, timing in it.metrics.timings()
            },
            "method route",
        ),
        histogram(
            "corvo_http_request_duration_seconds",
            "Seconds from the last byte of a request to its answer.",
            lambda it: {
                (method, route): timing.seconds for method, route, timing in it.metrics.timings()
            },
            "method route",
        ),
        gauge(
            "corvo_http_requests_in_flight",
            "HTTP requests being answered, without long polls that wait for work.",
            _reading("corvo_http_requests_in_flight"),
        ),
        gauge(
            "corvo_http_connections", "Open client connections.", _reading("corvo_http_connections")
        ),
        counter(
            "corvo_http_pauses_total",
            "Pauses of client connections that sent many requests or frames at once.",
            _reading("corvo_http_pauses_total"),
        ),
        counter(
            "corvo_http2_aborts_total",
            "HTTP/2 connections ended (by the kind of frames that were too many) and answers"
            " aborted (`stalled`, `answer_bytes`).",
            lambda it: {(reason,): count for reason, count in sorted(it.metrics.aborts.items())},
            "reason",
        ),
        counter(
            "corvo_http_problems_total",
            "HTTP requests answered with an error, by error code.",
            lambda it: {(code,): count for code, count in sorted(it.metrics.problems.items())},
            "code",
        ),
        counter(
            "corvo_http_ignored_fields_total",
            "Fields and query parameters of requests that had no effect, named in `warnings`.",
            lambda it: {(route,): count for route, count in sorted(it.metrics.ignored.items())},
            "route",
        ),
        counter(
            "corvo_trace_spans_exported_total",
            "Spans that the receiver of traces has taken; only if traces are switched on.",
            _reading("corvo_trace_spans_exported_total"),
        ),
        counter(
            "corvo_trace_spans_dropped_total",
            "Spans that were lost: the queue was full, or the receiver did not take them.",
            _reading("corvo_trace_spans_dropped_total"),
        ),
        counter(
            "corvo_wrong_api_keys_total",
            "API keys of requests that were unknown, disabled or expired.",
            _reading("corvo_wrong_api_keys_total"),
        ),
        gauge(
            "corvo_wrong_api_keys_waiting",
            "Delayed answers to wrong API keys (`limits.guess_delay_ms`).",
            _reading("corvo_wrong_api_keys_waiting"),
        ),
        counter(
            "corvo_rate_limit_throttled_total",
            "Requests rejected because their client exceeded its rate limit.",
            lambda it: it.metrics.problems.get("RATE_LIMITED", 0),
        ),
        gauge(
            "corvo_fetch_waiters", "Long polls that wait for work.", _reading("corvo_fetch_waiters")
        ),
        counter(
            "corvo_claims_given_back_total",
            "Fetched jobs released because the client had disconnected before the answer.",
            _reading("corvo_claims_given_back_total"),
        ),
        gauge(
            "corvo_lifecycle_streams_open",
            "Open streams (`/api/v1/stream`).",
            _reading("corvo_lifecycle_streams_open"),
        ),
        gauge(
            "corvo_lifecycle_streams_max",
            "Limit of open streams.",
            lambda it: it.config.limits.streams_max,
        ),
        gauge(
            "corvo_event_listeners",
            "Clients that listen to events.",
            _reading("corvo_event_listeners"),
        ),
        gauge(
            "corvo_event_listeners_max",
            "Limit of clients that listen to events.",
            lambda it: it.config.limits.listeners_max,
        ),
        counter(
            "corvo_event_listeners_dropped_total",
            "Clients disconnected from events: `slow` did not read for `limits.send_ms`, `gone` was"
            " further behind than the stored events.",
            lambda it: {(reason,): count for reason, count in it.metrics.dropped_listeners.items()},
            "reason",
        ),
        # All queues and workers. A sum over some shards would look as if jobs had gone, so these
        # are shown only when every shard has answered.
        gauge(
            "corvo_queues",
            "Queues in all shards.",
            lambda it: it.queues.count if it.is_whole else None,
        ),
        gauge(
            "corvo_jobs",
            "Jobs in all queues, by state.",
            lambda it: it.queues.totals if it.is_whole else None,
            "state",
            _STATES,
        ),
        gauge(
            "corvo_workers_registered",
            "Workers that have fetched within the last 24 hours.",
            lambda it: len(it.workers) if it.is_whole else None,
        ),
        gauge(
            "corvo_workers_active",
            "Workers that have fetched or renewed a lease within the last 60 seconds.",
            lambda it: _active(it) if it.is_whole else None,
        ),
        gauge(
            "corvo_workers_deaf",
            "Workers that renew leases and have room for jobs, but do not fetch.",
            lambda it: it.not_fetching if it.is_whole else None,
        ),
        gauge(
            "corvo_mirror_up",
            "1 if the mirror answered in time.",
            lambda it: int(it.mirror is not None) if it.has_mirror else None,
        ),
        # This page.
        counter(
            "corvo_metrics_errors_total",
            "Shards that did not answer a scrape in time, counted once per scrape.",
            lambda it: it.metrics.errors,
        ),
        counter(
            "corvo_metrics_series_dropped_total",
            "Queues shown together as `other`, beyond the 1,000 with lines of their own.",
            lambda it: it.metrics.dropped,
        ),
    ),
)

CLUSTER: Final = Group[ClusterScrape](
    (),
    (
        gauge(
            "corvo_cluster_nodes",
            "Nodes of the cluster, by state: `active` or `draining`.",
            lambda it: it.states,
            "state",
        ),
        gauge(
            "corvo_cluster_map_version",
            "Version of the cluster map that this node has.",
            lambda it: it.map.version,
        ),
        gauge(
            "corvo_cluster_node_reachable",
            "1 if this router has a connection to a replica on the node. Only nodes with replicas.",
            lambda it: {(str(node),): int(is_up) for node, is_up in sorted(it.reachable.items())},
            "node",
        ),
        gauge(
            "corvo_cluster_clock_offset_seconds",
            "Seconds by which the wall clock of another node is ahead of that of this node"
            " (negative: behind).",
            lambda it: {(str(node),): ns / 1e9 for node, ns in sorted(it.clocks_ns.items())},
            "node",
        ),
    ),
)

QUEUE: Final = Group[tuple[QueueNumbers, int, int | None]](
    ("queue",),
    (
        gauge(
            "corvo_queue_oldest_pending_seconds",
            "Age of the oldest pending job; 0 if there is none.",
            lambda it: max(0, it[1] - it[0].oldest_ns) / 1e9 if it[0].oldest_ns else 0,
        ),
        gauge("corvo_queue_paused", "1 if the queue is paused.", lambda it: int(it[0].paused)),
        gauge(
            "corvo_queue_workers",
            "Workers that fetch from the queue, on any node. Absent while there may be others.",
            lambda it: it[2],
        ),
    ),
)

QUEUE_JOBS: Final = Group[Sequence[int]](
    ("queue",),
    (gauge("corvo_queue_jobs", "Jobs of the queue, by state.", lambda it: it, "state", _STATES),),
)

_COUNTED_TEXTS: Final = {
    "enqueued": "Jobs created in the queue, also by schedules, chains and batches.",
    "fetched": "Jobs that workers fetched.",
    "completed": "Jobs that became completed.",
    "failed": "Attempts that failed, those that ran for too long included.",
    "retried": "Failed attempts after which the job waits for its next one.",
    "dead": "Jobs that became dead: expired and rejected ones, too.",
    "cancelled": "Jobs that became cancelled.",
    "expired": "Jobs that expired. They are dead, too.",
    "lease_expired": "Jobs taken back from their workers, because the lease or the run time was"
    " over.",
    "duplicate": "Jobs not created, because one with the id or the unique key existed.",
}

QUEUE_COUNTERS: Final = Group[Sequence[int]](
    ("queue",),
    tuple(
        counter(f"corvo_jobs_{what}_total", _COUNTED_TEXTS[what], itemgetter(place))
        for place, what in enumerate(COUNTED)
    ),
)

SHARD: Final = Group[ShardScrape](
    ("shard",),
    (
        gauge(
            "corvo_shard_scrape_success",
            "1 if the shard's replica on this node answered the scrape in time.",
            lambda it: int(it.numbers is not None and it.is_whole) if it.is_here else None,
        ),
        gauge(
            "corvo_shard_scrape_seconds",
            "Seconds that the shard took to answer the scrape.",
            lambda it: it.seconds,
        ),
        gauge(
            "corvo_shard_calls_in_flight",
            "Requests of this router that wait for the shard.",
            lambda it: it.calls_in_flight,
        ),
    ),
)

REPLICA: Final = Group[Numbers](
    ("shard",),
    (
        gauge(
            "corvo_raft_state",
            "Raft role of the replica: 0 follower, 1 candidate, 2 leader.",
            lambda it: _ROLES.get(it.role, 1),
        ),
        gauge(
            "corvo_raft_is_leader",
            "1 if the replica leads its shard.",
            lambda it: int(it.role == "leader"),
        ),
        gauge(
            "corvo_raft_has_leader",
            "1 if the replica knows a leader of its shard.",
            lambda it: int(it.leader is not None),
        ),
        counter(
            "corvo_raft_leader_changes_total",
            "Leader changes: a new leader, or the same one in a new term.",
            lambda it: it.counted.leaders,
        ),
        gauge("corvo_raft_term", "Raft term.", lambda it: it.term),
        gauge(
            "corvo_raft_first_index",
            "Index of the first entry in the log.",
            lambda it: it.first_index,
        ),
        gauge(
            "corvo_raft_last_index", "Index of the last entry in the log.", lambda it: it.last_index
        ),
        gauge(
            "corvo_raft_commit_index", "Index of the last committed entry.", lambda it: it.commit
        ),
        gauge(
            "corvo_raft_applied_index", "Index of the last applied entry.", lambda it: it.applied
        ),
        gauge("corvo_raft_voters", "Voting replicas of the shard.", lambda it: len(it.voters)),
        gauge(
            "corvo_shard_voters_active",
            "Voting replicas that the leader has received a message of lately, the leader included."
            " Only if this node leads the shard.",
            lambda it: _voters_active(it) if _leads(it) else None,
        ),
        gauge(
            "corvo_raft_learners",
            "Replicas of the shard that receive the log and do not vote.",
            lambda it: len(it.learners),
        ),
        gauge(
            "corvo_raft_repairing",
            "1 if the replica lost a part of its log, and neither votes nor leads.",
            lambda it: int(it.is_repairing),
        ),
        gauge(
            "corvo_shard_clock_offset_seconds",
            "Seconds by which the wall clock is ahead of the shard's clock (negative: behind)."
            " Only if this node leads the shard.",
            lambda it: it.clock.ahead_ns / 1e9 if it.clock is not None else None,
        ),
        gauge(
            "corvo_shard_effects_waiting",
            "Effects on another shard (`to`) that it has not taken.",
            lambda it: {(str(each.shard),): each.waiting for each in it.counted.effects},
            "to",
        ),
        gauge(
            "corvo_shard_missing_dependencies",
            "Jobs of the shard that other jobs wait for (`depends_on`) and that do not exist yet.",
            lambda it: it.missing,
        ),
        gauge(
            "corvo_shard_effects_stalled_seconds",
            "Seconds for which another shard (`to`) has taken no effect, while effects wait.",
            lambda it: {(str(each.shard),): each.stalled_s for each in it.counted.effects},
            "to",
        ),
        gauge(
            "corvo_raft_peer_active",
            "1 if the leader has received a message of the peer lately.",
            lambda it: {(str(peer.replica),): int(peer.is_active) for peer in it.peers},
            "peer",
        ),
        gauge(
            "corvo_raft_peer_lag_entries",
            "Entries of the leader's log that the peer has not confirmed.",
            lambda it: {
                (str(peer.replica),): max(0, it.last_index - peer.match) for peer in it.peers
            },
            "peer",
        ),
        gauge(
            "corvo_shard_replicas",
            "Replicas in the shard's group, learners included. Only if this node leads the shard.",
            lambda it: len({*it.voters, *it.outgoing, *it.learners}) if _leads(it) else None,
        ),
        gauge(
            "corvo_shard_replica_lag_entries",
            "Committed entries that the replica on the node is not known to have. Only if this node"
            " leads the shard.",
            lambda it: {
                (str(peer.replica),): max(0, it.commit - peer.match)
                for peer in it.peers
                if _leads(it)
            },
            "node",
        ),
        gauge("corvo_raft_apply_pending", "Ops that wait to be committed.", lambda it: it.waiting),
        gauge(
            "corvo_raft_apply_max_pending",
            "Limit of ops that wait; more are rejected as OVERLOADED.",
            lambda _: WAITING_OPS_MAX,
        ),
        counter(
            "corvo_raft_apply_overload_total",
            "Ops rejected because too many waited.",
            lambda it: it.counted.busy,
        ),
        gauge(
            "corvo_raft_uncommitted_bytes",
            "Bytes that the leader has proposed and that are not committed.",
            lambda it: it.uncommitted_bytes,
        ),
        gauge(
            "corvo_raft_reads_waiting",
            "Reads that wait for a proof of leadership.",
            lambda it: it.reads_waiting,
        ),
        counter(
            "corvo_raft_applied_total",
            "Entries applied since the process started.",
            lambda it: it.counted.entries,
        ),
        histogram(
            "corvo_raft_commit_seconds",
            "Seconds from the proposal of an entry to its being applied.",
            lambda it: it.counted.commit,
        ),
        histogram("corvo_raft_batch_size", "Ops in one entry.", lambda it: it.counted.batch),
        histogram(
            "corvo_raft_log_fsync_seconds",
            "Seconds to sync the log to disk, the wait for the sync thread included.",
            lambda it: it.counted.disk.fsync,
        ),
        counter(
            "corvo_raft_log_bytes_total",
            "Bytes of entries written to the log.",
            lambda it: it.counted.disk.log_bytes,
        ),
        gauge(
            "corvo_raft_log_replay_bytes",
            "Bytes of entries after the newest checkpoint: what a start replays.",
            lambda it: it.counted.disk.log_bytes_ahead,
        ),
        gauge(
            "corvo_raft_snapshot_latest_index",
            "Applied index of the newest checkpoint.",
            lambda it: it.counted.disk.checkpointed,
        ),
        counter(
            "corvo_raft_snapshots_total",
            "Checkpoints made since the process started.",
            lambda it: it.counted.disk.checkpoints,
        ),
        gauge(
            "corvo_shard_disk_full",
            "1 if writes are rejected because the disk is full.",
            lambda it: int(it.disk_is_full),
        ),
        gauge(
            "corvo_data_dir_free_bytes",
            "Free bytes on the shard's disk.",
            lambda it: it.counted.disk.room_bytes,
        ),
        gauge(
            "corvo_data_dir_size_bytes",
            "Size of the shard's disk in bytes.",
            lambda it: it.counted.disk.disk_bytes or None,
        ),
        counter(
            "corvo_ops_total",
            "Ops submitted to this replica and applied, refused ones included.",
            lambda it: {(name,): it.counted.ops[number] for number, name in NAMES.items()},
            "op",
        ),
        counter(
            "corvo_ops_refused_total",
            "Applied ops that were refused, by reason.",
            lambda it: {(reason,): count for reason, count in sorted(it.counted.refused.items())},
            "reason",
        ),
        counter(
            "corvo_lifecycle_idle_fetch_total",
            "Fetches answered without a log entry, because there was no work.",
            lambda it: it.counted.fetches_empty,
        ),
        counter(
            "corvo_leases_expired_total",
            "Leases that expired: jobs taken back from their workers.",
            lambda it: _upkeep_done(it, "Reclaim"),
        ),
        counter(
            "corvo_scheduler_promote_total",
            "Scheduled and retrying jobs that became pending.",
            lambda it: _upkeep_done(it, "Promote"),
        ),
        counter(
            "corvo_scheduler_reclaim_total",
            "Jobs taken back from their workers.",
            lambda it: _upkeep_done(it, "Reclaim"),
        ),
        counter(
            "corvo_scheduler_expire_total",
            "Jobs ended because their expiry time had passed.",
            lambda it: _upkeep_done(it, "Expire"),
        ),
        counter(
            "corvo_scheduler_purge_total",
            "Finished jobs deleted because their retention time had passed.",
            lambda it: _upkeep_done(it, "Purge"),
        ),
        gauge(
            "corvo_schedules",
            "Schedules of the shard.",
            lambda it: it.schedules,
        ),
        counter(
            "corvo_schedule_fired_total",
            "Due times of schedules that created a job.",
            lambda it: it.counted.fired,
        ),
        counter(
            "corvo_schedule_skipped_total",
            "Due times of schedules that created no job, by reason. After a long pause of the"
            " server, fewer are counted than were `missed`.",
            lambda it: {(reason,): it.counted.skipped.get(reason, 0) for reason in SKIPPED},
            "reason",
        ),
        histogram(
            "corvo_schedule_lateness_seconds",
            "Seconds from a due time, its jitter included, to the entry that created the job."
            " Due times that waited for the end of an earlier job are left out.",
            lambda it: it.counted.lateness,
        ),
        histogram(
            "corvo_job_wait_seconds",
            "Seconds from when a job became pending, or came into its queue, to its fetch.",
            lambda it: it.counted.waited,
        ),
        histogram(
            "corvo_job_run_seconds",
            "Seconds from the fetch of a job to its ack or fail.",
            lambda it: it.counted.ran,
        ),
        gauge(
            "corvo_scheduler_last_promote_seconds",
            "Unix time of the last promote run that changed a job.",
            lambda it: _upkeep_last_s(it, "Promote"),
        ),
        gauge(
            "corvo_scheduler_last_reclaim_seconds",
            "Unix time of the last reclaim run that changed a job.",
            lambda it: _upkeep_last_s(it, "Reclaim"),
        ),
        gauge(
            "corvo_scheduler_last_expire_seconds",
            "Unix time of the last expire run that changed a job.",
            lambda it: _upkeep_last_s(it, "Expire"),
        ),
        gauge(
            "corvo_scheduler_last_purge_seconds",
            "Unix time of the last purge run that changed a job.",
            lambda it: _upkeep_last_s(it, "Purge"),
        ),
    ),
)

CHECKPOINT: Final = Group[tuple[Numbers, int]](
    ("shard",),
    (
        gauge(
            "corvo_raft_snapshot_age_seconds",
            "Seconds since the newest checkpoint was made; absent before the first.",
            lambda it: _age_s(it[1], it[0].counted.disk.checkpointed_ns),
        ),
    ),
)

MIRROR: Final = Group[Standing](
    (),
    (
        counter(
            "corvo_mirror_rebuilds_total",
            "Full rebuilds of the mirror, requested or necessary.",
            lambda it: it.rebuilds,
        ),
        gauge(
            "corvo_mirror_file_bytes", "Size of the mirror's SQLite file.", lambda it: it.file_bytes
        ),
        counter(
            "corvo_mirror_questions_total",
            "Queries answered by the mirror.",
            lambda it: it.questions,
        ),
        counter(
            "corvo_mirror_interrupted_total",
            "Queries stopped at their time limit, with a partial answer.",
            lambda it: it.interrupted,
        ),
        histogram(
            "corvo_mirror_write_lag_seconds",
            "Seconds from a change in a shard to its row in the mirror.",
            write_lag,
        ),
    ),
)

MIRRORED: Final = Group[tuple[ShardStanding, Numbers | None]](
    ("shard",),
    (
        counter(
            "corvo_mirror_changes_total",
            "Changed documents of the shard that the mirror has read.",
            lambda it: it[0].changes,
        ),
        gauge(
            "corvo_mirror_whole",
            "1 unless a full rebuild of the shard's rows is running.",
            lambda it: int(it[0].is_whole),
        ),
        gauge(
            "corvo_mirror_lag_entries",
            "Entries that the shard has applied and the mirror has not read.",
            lambda it: lag_entries(it[0], it[1]) if it[1] else None,
        ),
        gauge(
            "corvo_mirror_lag_seconds",
            "Seconds that the mirror is behind the shard; 0 if it has all entries.",
            lambda it: lag_s(it[0], it[1]) if it[1] else None,
        ),
    ),
)

PROCESS: Final = Group[ProcessScrape](
    ("process",),
    (
        counter(
            "corvo_process_cpu_seconds_total",
            "Processor time used.",
            lambda it: it.cpu_seconds,
            "mode",
        ),
        gauge(
            "corvo_process_resident_memory_bytes", "Resident memory.", lambda it: it.resident_bytes
        ),
        gauge(
            "corvo_process_threads", "Threads.", lambda it: it.stats.threads if it.stats else None
        ),
        gauge(
            "corvo_process_open_fds",
            "Open file descriptors.",
            lambda it: it.stats.descriptors if it.stats else None,
        ),
        gauge(
            "corvo_process_max_fds",
            "Limit of open file descriptors.",
            lambda it: it.stats.descriptors_max if it.stats else None,
        ),
        gauge(
            "corvo_process_start_time_seconds",
            "Unix time at which the process started.",
            lambda it: it.stats.started_s if it.stats else None,
        ),
        gauge("corvo_process_tasks", "Tasks in the event loop.", lambda it: it.tasks),
        histogram(
            "corvo_event_loop_lag_seconds",
            "Seconds by which a timer of the event loop fired late.",
            lambda it: it.lag,
        ),
        counter(
            "corvo_event_loop_stalls_total",
            "Times that the event loop was blocked for more than 250 ms.",
            lambda it: it.loop.stalls if it.loop else None,
        ),
        histogram(
            "corvo_gc_pause_seconds",
            "Seconds of one garbage collection.",
            lambda it: it.loop.collections if it.loop else None,
        ),
    ),
)

FAMILIES: Final = {
    declared.name: declared
    for group in (
        NODE.declared(),
        CLUSTER.declared(),
        QUEUE.declared(),
        QUEUE_JOBS.declared(),
        QUEUE_COUNTERS.declared(),
        SHARD.declared(),
        REPLICA.declared(),
        CHECKPOINT.declared(),
        MIRROR.declared(),
        MIRRORED.declared(),
        PROCESS.declared(),
    )
    for declared in group
}
"""All of them by name, in the order of the page."""


def render(scrape: Scrape) -> Iterator[bytes]:
    """The page in pieces, none of which takes long; some are empty."""
    page = Page(FAMILIES.values())
    page.add(NODE, scrape)
    if scrape.cluster is not None:
        page.add(CLUSTER, scrape.cluster)
    page.add(PROCESS, scrape.process, scrape.process.name)
    yield b""
    for shard in scrape.shards:
        _add_shard(page, shard, scrape.now_ns)
        yield b""
    shown, workers = scrape.queues.shown, scrape.workers_by_queue
    for start in range(0, len(shown), _QUEUES_AT_A_TIME):
        some = shown[start : start + _QUEUES_AT_A_TIME]
        page.add_all(
            QUEUE,
            [
                (
                    (queue, scrape.now_ns, None if workers is None else workers.get(queue.name, 0)),
                    (queue.name,),
                )
                for queue in some
            ],
        )
        page.add_all(QUEUE_JOBS, [(queue.counts, (queue.name,)) for queue in some])
        yield b""
    counted = [(counts, (name,)) for name, counts in scrape.counters.items()]
    for start in range(0, len(counted), _QUEUES_AT_A_TIME):
        page.add_all(QUEUE_COUNTERS, counted[start : start + _QUEUES_AT_A_TIME])
        yield b""
    if scrape.queues.dropped:
        page.add(QUEUE_JOBS, scrape.queues.rest, OTHER)
    if scrape.mirror is not None:
        _add_mirror(page, scrape.mirror, scrape.shards)
    yield from page.pieces()


def _add_shard(page: Page, shard: ShardScrape, now_ns: int) -> None:
    name = str(shard.number)
    page.add(SHARD, shard, name)
    numbers = shard.numbers
    if numbers is None:
        return
    page.add(REPLICA, numbers, name)
    page.add(CHECKPOINT, (numbers, now_ns), name)
    counted = numbers.counted
    process = ProcessScrape(name=f"shard-{name}", stats=counted.stats, lag=counted.lag)
    page.add(PROCESS, process, process.name)


def _add_mirror(page: Page, mirror: Standing, shards: Sequence[ShardScrape]) -> None:
    page.add(MIRROR, mirror)
    numbers = {shard.number: shard.numbers for shard in shards}
    for standing in mirror.shards:
        page.add(MIRRORED, (standing, numbers.get(standing.shard)), str(standing.shard))
    page.add(PROCESS, ProcessScrape(name="mirror", mirror=mirror), "mirror")


def _leads(numbers: Numbers) -> bool:
    return numbers.role == "leader"


def _voters_active(numbers: Numbers) -> int:
    active = {numbers.replica, *(peer.replica for peer in numbers.peers if peer.is_active)}
    return len(active.intersection(numbers.voters))


def _errors(timing: Timing) -> int:
    return sum(count for code, count in timing.codes.items() if code >= 400)


def _active(scrape: Scrape) -> int:
    return sum(scrape.now_ns - seen_ns <= ACTIVE_NS for seen_ns in scrape.workers.values())


def _age_s(now_ns: int, then_ns: int) -> float | None:
    return max(0, now_ns - then_ns) / 1e9 if then_ns else None


def _upkeep_done(numbers: Numbers, op: str) -> int:
    upkeep = numbers.counted.upkeep.get(op)
    return upkeep.done if upkeep else 0


def _upkeep_last_s(numbers: Numbers, op: str) -> float | None:
    upkeep = numbers.counted.upkeep.get(op)
    return upkeep.last_ns / 1e9 if upkeep and upkeep.last_ns else None
