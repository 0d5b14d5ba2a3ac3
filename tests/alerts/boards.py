"""The two Grafana dashboards of the chart, made from tables of panels.

`make docs` writes them into `files/dashboards/`: `python -m tests.alerts.boards`. Each query has
only metrics of docs/metrics.md, so a dashboard needs no recording rules.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.helm.values_reference import CHART

DIRECTORY: Final = CHART / "files" / "dashboards"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS: Final = 24
_STAT_HEIGHT: Final = 4
_HEIGHT: Final = 8


class Query(NamedTuple):
    """One query of a panel, and the name of its lines."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """One panel. Its unit is one of Grafana's."""

    title: str
    about: str
    unit: str
    queries: Sequence[Query]
    is_stat: bool = False


class Row(NamedTuple):
    """Panels below one heading."""

    title: str
    panels: Sequence[Panel]


class Board(NamedTuple):
    """One dashboard."""

    uid: str
    title: str
    about: str
    variables: Sequence[tuple[str, str]]
    """Name, and the query of its values."""
    rows: Sequence[Row]


def stat(title: str, expr: str, about: str, unit: str = "short") -> Panel:
    """A panel with one number."""
    return Panel(title, about, unit, [Query(expr)], is_stat=True)


def lines(title: str, about: str, unit: str, *queries: tuple[str, str]) -> Panel:
    """A panel with lines over time."""
    return Panel(title, about, unit, [Query(*query) for query in queries])


_CLUSTER: Final = 'namespace=~"$namespace",job=~"$job"'
_NODE: Final = f'{_CLUSTER},instance=~"$instance"'
_QUEUE: Final = f'{_CLUSTER},queue=~"$queue"'
_WITHOUT_PROBES: Final = f'{_NODE},route!~"/(livez|readyz|startupz|healthz|metrics)"'
_BY_NODE: Final = "{{instance}}"
_BY_SHARD: Final = "shard {{shard}}"
_BY_REPLICA: Final = "shard {{shard}} {{instance}}"
_BY_PROCESS: Final = "{{process}} {{instance}}"
_BY_QUEUE: Final = "{{queue}}"


def rate(metric: str, labels: str = _NODE) -> str:
    """The rate of a counter."""
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def quantile(share: float, metric: str, by: str) -> str:
    """A quantile of a histogram."""
    buckets = rate(f"{metric}_bucket")
    return f"histogram_quantile({share}, sum by ({by}, le) ({buckets}))"


def times(metric: str) -> Sequence[tuple[str, str]]:
    """Quantiles of a histogram of jobs, of all queues."""
    buckets = rate(f"{metric}_bucket", _CLUSTER)
    return [
        (f"histogram_quantile({share}, sum by (le) ({buckets}))", f"{100 * share:g} %")
        for share in (0.5, 0.95, 0.99)
    ]


def counted(what: str) -> str:
    """What happens in the chosen queues, per second."""
    return f"sum by (queue) ({rate(f'corvo_jobs_{what}_total', _QUEUE)})"


def mean(metric: str, by: str) -> str:
    """The mean of a histogram."""
    total, number = rate(f"{metric}_sum"), rate(f"{metric}_count")
    return f"sum by ({by}) ({total}) / sum by ({by}) ({number})"


def jobs(state: str) -> str:
    """The jobs of the chosen queues in a state; each node knows the same."""
    return f'max by (queue) (corvo_queue_jobs{{{_QUEUE},state="{state}"}})'


def all_jobs(state: str) -> str:
    """The jobs of all queues in a state."""
    return f'max(corvo_jobs{{{_CLUSTER},state="{state}"}})'


_COMMON: Final = (
    ("namespace", "label_values(corvo_build_info, namespace)"),
    ("job", 'label_values(corvo_build_info{namespace=~"$namespace"}, job)'),
)

OPERATORS: Final = Board(
    "corvo-operators",
    "Corvo: operators",
    "Nodes, shards, disks and requests of a server or cluster.",
    (*_COMMON, ("instance", f"label_values(corvo_build_info{{{_CLUSTER}}}, instance)")),
    (
        Row(
            "Overview",
            (
                stat(
                    "Nodes ready",
                    f"sum(corvo_node_ready{{{_CLUSTER}}})",
                    "Nodes that answer 200 at /readyz.",
                ),
                stat(
                    "Shards with a leader",
                    f"count(max by (shard) (corvo_raft_has_leader{{{_CLUSTER}}}) == 1)",
                    "Jobs of a shard without a leader cannot change.",
                ),
                stat("Pending", all_jobs("pending"), "Jobs that wait for a worker."),
                stat("Active", all_jobs("active"), "Jobs that workers have."),
                stat("Dead", all_jobs("dead"), "Jobs that are not retried."),
                stat(
                    "Oldest pending job",
                    f"max(corvo_queue_oldest_pending_seconds{{{_CLUSTER}}})",
                    "Age of the oldest pending job of all queues.",
                    "s",
                ),
                stat(
                    "Workers",
                    f"max(corvo_workers_active{{{_CLUSTER}}})",
                    "Workers of the last minute.",
                ),
                stat(
                    "Free disk",
                    f"min(corvo_data_dir_free_bytes{{{_CLUSTER}}}"
                    f" / corvo_data_dir_size_bytes{{{_CLUSTER}}})",
                    "Free share of the fullest disk.",
                    "percentunit",
                ),
            ),
        ),
        Row(
            "Requests",
            (
                lines(
                    "Jobs",
                    "Jobs enqueued, completed and failed attempts per second.",
                    "ops",
                    (f"sum({rate('corvo_throughput_enqueued_total')})", "enqueued"),
                    (f"sum({rate('corvo_throughput_completed_total')})", "completed"),
                    (f"sum({rate('corvo_throughput_failed_total')})", "failed"),
                ),
                lines(
                    "Requests by status",
                    "HTTP requests per second, without probes.",
                    "reqps",
                    (
                        (f"sum by (code) ({rate('corvo_http_requests_total', _WITHOUT_PROBES)})"),
                        "{{code}}",
                    ),
                ),
                lines(
                    "Time of a request",
                    "Half of the requests, and 99 of 100, are faster. Fetches wait for jobs.",
                    "s",
                    (
                        quantile(0.5, "corvo_http_request_duration_seconds", "route"),
                        "{{route}} 50 %",
                    ),
                    (
                        quantile(0.99, "corvo_http_request_duration_seconds", "route"),
                        "{{route}} 99 %",
                    ),
                ),
                lines(
                    "Rejected requests by code",
                    "Error codes of the HTTP API per second.",
                    "reqps",
                    (f"sum by (code) ({rate('corvo_http_problems_total')})", "{{code}}"),
                ),
                lines(
                    "Connections",
                    "Open connections, waiting fetches, streams and listeners.",
                    "short",
                    (f"sum(corvo_http_connections{{{_NODE}}})", "connections"),
                    (f"sum(corvo_fetch_waiters{{{_NODE}}})", "waiting fetches"),
                    (f"sum(corvo_lifecycle_streams_open{{{_NODE}}})", "streams"),
                    (f"sum(corvo_event_listeners{{{_NODE}}})", "event listeners"),
                ),
                lines(
                    "Leases and schedules",
                    "Expired leases, and due times that created a job or did not, per second.",
                    "ops",
                    (f"sum({rate('corvo_leases_expired_total')})", "leases expired"),
                    (f"sum({rate('corvo_schedule_fired_total')})", "schedules fired"),
                    (
                        f"sum by (reason) ({rate('corvo_schedule_skipped_total')})",
                        "schedules skipped: {{reason}}",
                    ),
                ),
            ),
        ),
        Row(
            "Shards",
            (
                lines(
                    "Leaders",
                    "1 on the node that leads the shard.",
                    "short",
                    (f"corvo_raft_is_leader{{{_NODE}}}", _BY_REPLICA),
                ),
                lines(
                    "Leader changes",
                    "Leader changes of each shard per second.",
                    "ops",
                    (
                        f"max by (shard) ({rate('corvo_raft_leader_changes_total')})",
                        _BY_SHARD,
                    ),
                ),
                lines(
                    "Active voters",
                    "Voters that the leader reaches, and all voters.",
                    "short",
                    (f"max by (shard) (corvo_shard_voters_active{{{_CLUSTER}}})", _BY_SHARD),
                    (
                        f"max by (shard) (corvo_raft_voters{{{_CLUSTER}}})",
                        "shard {{shard}} all",
                    ),
                ),
                lines(
                    "Replicas behind",
                    "Committed entries that a replica lacks.",
                    "short",
                    (
                        f"max by (shard, node) (corvo_shard_replica_lag_entries{{{_CLUSTER}}})",
                        "shard {{shard}} node {{node}}",
                    ),
                ),
                lines(
                    "Entries",
                    "Committed entries per second.",
                    "ops",
                    (f"max by (shard) ({rate('corvo_raft_commit_index', _CLUSTER)})", _BY_SHARD),
                ),
                lines(
                    "Ops in an entry",
                    "Mean number of ops that share one entry, and so one sync.",
                    "short",
                    (mean("corvo_raft_batch_size", "shard"), _BY_SHARD),
                ),
                lines(
                    "Time of a commit",
                    "99 of 100 entries are applied faster.",
                    "s",
                    (quantile(0.99, "corvo_raft_commit_seconds", "shard"), _BY_SHARD),
                ),
                lines(
                    "Time of a sync",
                    "99 of 100 syncs to the disk are faster.",
                    "s",
                    (
                        quantile(0.99, "corvo_raft_log_fsync_seconds", "instance, shard"),
                        _BY_REPLICA,
                    ),
                ),
                lines(
                    "Not committed",
                    "Entries that the leader has and a majority has not.",
                    "short",
                    (
                        (
                            f"max by (shard) ((corvo_raft_last_index{{{_CLUSTER}}}"
                            f" - corvo_raft_commit_index{{{_CLUSTER}}})"
                            f" and corvo_raft_is_leader{{{_CLUSTER}}} == 1)"
                        ),
                        _BY_SHARD,
                    ),
                ),
                lines(
                    "Waiting ops",
                    "Ops that wait to be committed; more than the limit are rejected.",
                    "short",
                    (f"max by (shard) (corvo_raft_apply_pending{{{_NODE}}})", _BY_SHARD),
                ),
                lines(
                    "Log after the checkpoint",
                    "Bytes of entries that a start replays.",
                    "bytes",
                    (f"corvo_raft_log_replay_bytes{{{_NODE}}}", _BY_REPLICA),
                ),
                lines(
                    "Effects that wait",
                    "Effects on another shard that it has not taken.",
                    "short",
                    (
                        f"max by (shard, to) (corvo_shard_effects_waiting{{{_CLUSTER}}})",
                        "shard {{shard}} to {{to}}",
                    ),
                ),
            ),
        ),
        Row(
            "Mirror",
            (
                lines(
                    "Behind",
                    "Seconds that the mirror is behind each shard.",
                    "s",
                    (f"corvo_mirror_lag_seconds{{{_NODE}}}", _BY_REPLICA),
                ),
                lines(
                    "Time until a change can be searched",
                    "99 of 100 changes are in the mirror sooner.",
                    "s",
                    (quantile(0.99, "corvo_mirror_write_lag_seconds", "instance"), _BY_NODE),
                ),
                lines(
                    "Queries",
                    "Queries per second, and those that were stopped at their time limit.",
                    "reqps",
                    (f"sum({rate('corvo_mirror_questions_total')})", "answered"),
                    (f"sum({rate('corvo_mirror_interrupted_total')})", "interrupted"),
                ),
                lines(
                    "File",
                    "Size of the mirror's file.",
                    "bytes",
                    (f"corvo_mirror_file_bytes{{{_NODE}}}", _BY_NODE),
                ),
            ),
        ),
        Row(
            "Nodes",
            (
                lines(
                    "Processor",
                    "Processors in use by each process.",
                    "short",
                    (
                        f"sum by (instance, process) ({rate('corvo_process_cpu_seconds_total')})",
                        _BY_PROCESS,
                    ),
                ),
                lines(
                    "Memory",
                    "Resident memory of each process.",
                    "bytes",
                    (f"corvo_process_resident_memory_bytes{{{_NODE}}}", _BY_PROCESS),
                ),
                lines(
                    "Delay of the event loop",
                    "99 of 100 timers fire with less delay.",
                    "s",
                    (
                        quantile(0.99, "corvo_event_loop_lag_seconds", "instance, process"),
                        _BY_PROCESS,
                    ),
                ),
                lines(
                    "Garbage collection",
                    "Share of the time in garbage collections.",
                    "percentunit",
                    (
                        f"sum by (instance, process) ({rate('corvo_gc_pause_seconds_sum')})",
                        _BY_PROCESS,
                    ),
                ),
                lines(
                    "Free disk",
                    "Free space on the disk of each node.",
                    "bytes",
                    (f"min by (instance) (corvo_data_dir_free_bytes{{{_NODE}}})", _BY_NODE),
                ),
                lines(
                    "Open files",
                    "Share of the limit of open file descriptors.",
                    "percentunit",
                    (
                        f"corvo_process_open_fds{{{_NODE}}} / corvo_process_max_fds{{{_NODE}}}",
                        _BY_PROCESS,
                    ),
                ),
                lines(
                    "Clocks",
                    "Seconds by which the clock of a node is ahead of that of the scraped one.",
                    "s",
                    (
                        f"corvo_cluster_clock_offset_seconds{{{_NODE}}}",
                        "node {{node}} seen by {{instance}}",
                    ),
                ),
                lines(
                    "Certificates",
                    "Time until a certificate ends.",
                    "s",
                    (
                        f"corvo_tls_certificate_end_seconds{{{_NODE}}} - time()",
                        "{{use}} {{instance}}",
                    ),
                ),
                lines(
                    "Age of the processes",
                    "A line that falls to 0 is a restart.",
                    "s",
                    (f"time() - corvo_process_start_time_seconds{{{_NODE}}}", _BY_PROCESS),
                ),
            ),
        ),
    ),
)

QUEUES: Final = Board(
    "corvo-queues",
    "Corvo: queues",
    "Queues, for the teams whose jobs are in them.",
    (*_COMMON, ("queue", f"label_values(corvo_queue_jobs{{{_CLUSTER}}}, queue)")),
    (
        Row(
            "Now",
            (
                stat("Pending", f"sum({jobs('pending')})", "Jobs that wait for a worker."),
                stat("Active", f"sum({jobs('active')})", "Jobs that workers have."),
                stat("Retrying", f"sum({jobs('retrying')})", "Jobs that failed and are repeated."),
                stat("Dead", f"sum({jobs('dead')})", "Jobs that are not retried."),
                stat(
                    "Oldest pending job",
                    f"max(corvo_queue_oldest_pending_seconds{{{_QUEUE}}})",
                    "Age of the oldest pending job.",
                    "s",
                ),
                stat(
                    "Queues without workers",
                    f"count((max by (queue) (corvo_queue_workers{{{_QUEUE}}}) == 0)"
                    f" and ({jobs('pending')} > 0)) or vector(0)",
                    "Queues with pending jobs from which no worker fetches.",
                ),
                stat(
                    "Paused queues",
                    f"sum(max by (queue) (corvo_queue_paused{{{_QUEUE}}}))",
                    "No job of a paused queue is fetched.",
                ),
            ),
        ),
        Row(
            "Per second",
            (
                lines("Enqueued", "New jobs.", "ops", (counted("enqueued"), _BY_QUEUE)),
                lines(
                    "Completed",
                    "Jobs that became completed.",
                    "ops",
                    (counted("completed"), _BY_QUEUE),
                ),
                lines(
                    "Failed attempts",
                    "Attempts that failed. The job is retried, or dead.",
                    "ops",
                    (counted("failed"), _BY_QUEUE),
                ),
                lines(
                    "Dead and cancelled",
                    "Jobs that ended without being completed.",
                    "ops",
                    (counted("dead"), "{{queue}} dead"),
                    (counted("cancelled"), "{{queue}} cancelled"),
                ),
                lines(
                    "Leases expired",
                    "Jobs taken back from workers that did not renew their leases in time.",
                    "ops",
                    (counted("lease_expired"), _BY_QUEUE),
                ),
                lines(
                    "Duplicates",
                    "Jobs that were not created, because one with the id or unique key existed.",
                    "ops",
                    (counted("duplicate"), _BY_QUEUE),
                ),
            ),
        ),
        Row(
            "Times of jobs, of all queues together",
            (
                lines(
                    "Wait",
                    "Half of the jobs, 95 of 100 and 99 of 100 are fetched sooner.",
                    "s",
                    *times("corvo_job_wait_seconds"),
                ),
                lines(
                    "Run",
                    "Half of the runs, 95 of 100 and 99 of 100 are shorter.",
                    "s",
                    *times("corvo_job_run_seconds"),
                ),
            ),
        ),
        Row(
            "Waiting",
            (
                lines(
                    "Oldest pending job",
                    "How long the first job has waited. This is what users feel.",
                    "s",
                    (
                        f"max by (queue) (corvo_queue_oldest_pending_seconds{{{_QUEUE}}})",
                        _BY_QUEUE,
                    ),
                ),
                lines(
                    "Pending", "Jobs that wait for a worker.", "short", (jobs("pending"), _BY_QUEUE)
                ),
                lines(
                    "Growth",
                    "Pending jobs more than before, per second. Above 0 for long: too few workers.",
                    "short",
                    (
                        (
                            "max by (queue) (deriv("
                            f'corvo_queue_jobs{{{_QUEUE},state="pending"}}[$__rate_interval]))'
                        ),
                        _BY_QUEUE,
                    ),
                ),
                lines(
                    "Scheduled",
                    "Jobs for a later time.",
                    "short",
                    (jobs("scheduled"), _BY_QUEUE),
                ),
            ),
        ),
        Row(
            "Work",
            (
                lines("Active", "Jobs that workers have.", "short", (jobs("active"), _BY_QUEUE)),
                lines(
                    "Workers",
                    "Workers that fetch from the queue.",
                    "short",
                    (f"max by (queue) (corvo_queue_workers{{{_QUEUE}}})", _BY_QUEUE),
                ),
                lines(
                    "Kept completed jobs",
                    "Completed jobs that are kept. The line falls when their retention is over.",
                    "short",
                    (jobs("completed"), _BY_QUEUE),
                ),
                lines(
                    "Paused",
                    "1 while the queue is paused.",
                    "short",
                    (f"max by (queue) (corvo_queue_paused{{{_QUEUE}}})", _BY_QUEUE),
                ),
            ),
        ),
        Row(
            "Failures",
            (
                lines(
                    "Retrying",
                    "Jobs that failed and wait for their next attempt.",
                    "short",
                    (jobs("retrying"), _BY_QUEUE),
                ),
                lines("Dead", "Jobs that are not retried.", "short", (jobs("dead"), _BY_QUEUE)),
                lines("Held", "Jobs that wait for approval.", "short", (jobs("held"), _BY_QUEUE)),
                lines(
                    "Failed share",
                    "Failed share of the attempts.",
                    "percentunit",
                    (
                        (f"{counted('failed')} / ({counted('failed')} + {counted('completed')})"),
                        _BY_QUEUE,
                    ),
                ),
            ),
        ),
    ),
)

BOARDS: Final = (OPERATORS, QUEUES)


# ---- As Grafana reads them.


def path_of(board: Board) -> Path:
    """The file of a dashboard."""
    return DIRECTORY / f"{board.uid.removeprefix('corvo-')}.json"


def document(board: Board) -> str:
    """A dashboard as JSON."""
    shown = {
        "uid": board.uid,
        "title": board.title,
        "description": board.about,
        "tags": ["corvo"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "title": "Corvo",
                "type": "dashboards",
                "tags": ["corvo"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [*_variables(board)]},
        "panels": [*_panels(board)],
    }
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode() + "\n"


def _variables(board: Board) -> Iterator[dict[str, object]]:
    yield {
        "name": "datasource",
        "label": "data source",
        "type": "datasource",
        "query": "prometheus",
    }
    for name, query in board.variables:
        yield {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": query,
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            # Also matches a label that is missing, as `namespace` is without Kubernetes.
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels(board: Board) -> Iterator[dict[str, object]]:
    ids = count(1)
    y = 0
    for row in board.rows:
        yield {
            "id": next(ids),
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            "panels": [],
        }
        y += 1
        x = 0
        is_stats = all(panel.is_stat for panel in row.panels)
        width = _COLUMNS // (len(row.panels) if is_stats else 3 if len(row.panels) % 3 == 0 else 2)
        height = _STAT_HEIGHT if is_stats else _HEIGHT
        for panel in row.panels:
            if x + width > _COLUMNS:
                x, y = 0, y + height
            place = {"x": x, "y": y, "w": width, "h": height}
            yield {"id": next(ids), "gridPos": place, **_panel(panel)}
            x += width
        y += height


def _panel(panel: Panel) -> dict[str, object]:
    return {
        "type": "stat" if panel.is_stat else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []}
        if panel.unit != "s"
        else {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}}
        if panel.is_stat
        else {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                **({"instant": True, "range": False} if panel.is_stat else {"range": True}),
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def rewrite() -> None:
    """Write the dashboards."""
    DIRECTORY.mkdir(exist_ok=True)
    for board in BOARDS:
        path_of(board).write_text(document(board))


if __name__ == "__main__":
    rewrite()
