"""The tables that documents feed, each column declared once: see `docs/mirror.md`.

`corvo.mirror.follow.building` makes them, `corvo.mirror.follow.rows` fills them.
"""

from collections.abc import Iterator
from pkgutil import get_data
from typing import Final

import msgspec

from corvo.mirror.follow.columns import (
    BLOB,
    INTEGER,
    REAL,
    SHARD,
    SUM,
    TEXT,
    Column,
    Feed,
    Index,
    Source,
    TableSpec,
    as_is,
    fed,
    flag,
    json_of,
    json_or_null,
    of_key,
    or_null,
    raw,
    text_of,
    time,
    time_or_null,
    upsert,
)
from corvo.model import Batch, Job, JobError, Queue, Schedule, Throughput, Worker
from corvo.protocol.ops.schedules import job_of
from corvo.protocol.reasons import dlq_reason, reason_text
from corvo.times import sortable, without_zeros

VERSION: Final = 4
"""Rises with every change of the tables that an older file does not have."""


# Values that no field has as they are.


def changed_at(job: Job) -> str:
    """The moment of the last event of a job."""
    return sortable(job.trail[-1].at_ns if job.trail else job.created_ns)


def tags_text(tags: dict[str, str]) -> str:
    """Tags as canonical JSON: equal tags are equal texts."""
    return _encode_sorted(tags).decode()


def queues_text(queues: tuple[str, ...]) -> str:
    """Names of queues as JSON."""
    return _encode_sorted(queues).decode()


def usd(micros: int) -> float:
    """Dollars."""
    return micros / 1_000_000


def milliseconds(span_ms: int) -> str:
    """A duration as Go writes it, in milliseconds alone."""
    return f"{span_ms}ms"


def scheduled_payload(schedule: Schedule) -> str:
    """The payload of the jobs of a schedule, with its placeholders."""
    payload = job_of(schedule).payload
    return text_of(bytes(payload)) if payload is not msgspec.UNSET else "{}"


def scheduled_unique_key(schedule: Schedule) -> str | None:
    """The unique key of the jobs of a schedule, if they have one."""
    return job_of(schedule).unique_key or None


def scheduled_max_retries(schedule: Schedule) -> int:
    """The retries of the jobs of a schedule."""
    return job_of(schedule).max_retries


def next_run(schedule: Schedule) -> str | None:
    """The next due time of a schedule; None while it is paused, and after its end."""
    return sortable(schedule.next_ns) if schedule.next_ns and not schedule.paused else None


_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


# The tables.

JOBS: Final = TableSpec(
    name="jobs",
    columns=(
        Column("row", INTEGER),
        fed("id", TEXT, as_is("id")),
        fed("shard", INTEGER, SHARD),
        fed("queue", TEXT, as_is("queue")),
        fed("state", TEXT, as_is("state.word"), default="pending"),
        fed("payload", TEXT, json_of("payload")),
        fed("priority", INTEGER, as_is("priority"), default=2),
        fed("attempt", INTEGER, as_is("attempt"), default=0),
        fed("max_retries", INTEGER, as_is("max_retries"), default=3),
        fed("retry_backoff", TEXT, as_is("backoff.value"), default="exponential"),
        fed("retry_base_delay_ms", INTEGER, as_is("retry_base_delay_ms"), default=5000),
        fed("retry_max_delay_ms", INTEGER, as_is("retry_max_delay_ms"), default=600000),
        fed("unique_key", TEXT, or_null("unique_key")),
        fed("batch_id", TEXT, or_null("batch_id")),
        fed("worker_id", TEXT, or_null("worker_id")),
        fed("hostname", TEXT, or_null("hostname")),
        fed("tags", TEXT, Source("tags", tags_text, empty_is_null=True, shown_as=raw)),
        fed("progress", TEXT, json_or_null("progress")),
        fed("checkpoint", TEXT, json_or_null("checkpoint")),
        fed("result", TEXT, json_or_null("result")),
        Column("result_schema", TEXT),
        fed("parent_id", TEXT, or_null("parent_id")),
        fed("chain_id", TEXT, or_null("chain_id")),
        fed("chain_step", INTEGER, Source("chain_step", when="chain_id")),
        fed("chain_config", TEXT, json_or_null("chain")),
        Column("provider_error", INTEGER, required=True, default=0),
        Column("routing", TEXT),
        Column("routing_target", TEXT),
        Column("routing_index", INTEGER, required=True, default=0),
        fed(
            "agent_max_iterations",
            INTEGER,
            Source("agent.max_iterations", empty_is_null=True, when="agent"),
        ),
        fed(
            "agent_max_cost_usd",
            REAL,
            Source("agent.max_cost_micros", usd, empty_is_null=True, when="agent"),
        ),
        fed(
            "agent_iteration_timeout",
            TEXT,
            Source("agent.iteration_timeout_ms", milliseconds, empty_is_null=True, when="agent"),
        ),
        fed(
            "agent_iteration",
            INTEGER,
            Source("agent.iteration", when="agent", otherwise=0),
            default=0,
        ),
        fed(
            "agent_total_cost_usd",
            REAL,
            Source("agent.total_cost_micros", usd, when="agent", otherwise=0.0),
            default=0,
        ),
        fed("hold_reason", TEXT, or_null("hold_reason")),
        fed("lease_expires_at", TEXT, time_or_null("lease_expires_ns")),
        fed("scheduled_at", TEXT, time_or_null("scheduled_ns")),
        fed("expire_at", TEXT, time_or_null("expires_ns")),
        fed("created_at", TEXT, time("created_ns")),
        fed("started_at", TEXT, time_or_null("started_ns")),
        fed("completed_at", TEXT, time_or_null("completed_ns")),
        fed("failed_at", TEXT, time_or_null("failed_ns")),
        fed("kind", TEXT, as_is("kind"), default=""),
        fed("changed_at", TEXT, Source("", changed_at, shown_as=without_zeros)),
        fed("finished_at", TEXT, time_or_null("finished_ns")),
        fed("held_at", TEXT, time_or_null("held_ns")),
        fed("failures", INTEGER, as_is("failures"), default=0),
        fed("crashes", INTEGER, as_is("crashes"), default=0),
        fed("cancel_requested", INTEGER, flag("cancel_requested"), default=0),
        fed("lease_ms", INTEGER, Source("lease_ms", empty_is_null=True, when="lease_expires_ns")),
        fed("reason", TEXT, Source("", reason_text, when="state.has_reason")),
        fed(
            "dlq_reason",
            TEXT,
            Source("", dlq_reason, when="state.has_reason", otherwise=""),
            default="",
        ),
        SUM,
    ),
    key=("row",),
    indexes=(
        Index("idx_jobs_id", ("id", "shard"), is_unique=True),
        Index("idx_jobs_queue_state_priority", ("queue", "state", "priority", "created_at")),
        Index("idx_jobs_state", ("state", "created_at")),
        Index(
            "idx_jobs_scheduled", ("state", "scheduled_at"), "state IN ('scheduled', 'retrying')"
        ),
        Index("idx_jobs_lease", ("state", "lease_expires_at"), "state = 'active'"),
        Index("idx_jobs_unique", ("queue", "unique_key"), "unique_key IS NOT NULL"),
        Index("idx_jobs_batch", ("batch_id", "created_at"), "batch_id IS NOT NULL"),
        Index("idx_jobs_expire", ("expire_at",), "expire_at IS NOT NULL"),
        Index("idx_jobs_created", ("created_at",)),
        Index("idx_jobs_worker", ("worker_id",), "worker_id IS NOT NULL"),
        Index("idx_jobs_parent", ("parent_id", "created_at"), "parent_id IS NOT NULL"),
        Index("idx_jobs_chain", ("chain_id", "created_at"), "chain_id IS NOT NULL"),
        Index("idx_jobs_started", ("started_at",), "started_at IS NOT NULL"),
        Index("idx_jobs_completed", ("completed_at",), "completed_at IS NOT NULL"),
        Index("idx_jobs_priority", ("priority", "created_at"), "priority < 2"),
        Index("idx_jobs_attempt", ("attempt", "created_at"), "attempt > 1"),
    ),
)

JOB_ERRORS: Final = TableSpec(
    name="job_errors",
    columns=(
        Column("id", INTEGER),
        fed("job_id", TEXT, of_key(0)),
        fed("shard", INTEGER, SHARD),
        fed("attempt", INTEGER, as_is("attempt")),
        fed("error", TEXT, as_is("error")),
        fed("backtrace", TEXT, or_null("backtrace")),
        fed("error_class", TEXT, or_null("error_class")),
        fed("worker_id", TEXT, or_null("worker_id")),
        fed("number", INTEGER, of_key(1)),
        fed("created_at", TEXT, time("at_ns")),
        SUM,
    ),
    key=("id",),
    indexes=(
        Index("idx_job_errors_job", ("job_id", "shard", "number"), is_unique=True),
        Index("idx_job_errors_worker", ("worker_id",), "worker_id IS NOT NULL"),
    ),
)

UNIQUE_LOCKS: Final = TableSpec(
    name="unique_locks",
    columns=(
        fed("queue", TEXT, as_is("queue")),
        fed("unique_key", TEXT, as_is("unique_key")),
        fed("shard", INTEGER, SHARD),
        fed("job_id", TEXT, as_is("id")),
        fed("expires_at", TEXT, time("unique_until_ns")),
        SUM,
    ),
    key=("queue", "unique_key", "shard"),
    indexes=(Index("idx_unique_locks_job", ("job_id", "shard")),),
)

BATCHES: Final = TableSpec(
    name="batches",
    columns=(
        fed("id", TEXT, of_key(0)),
        fed("shard", INTEGER, SHARD),
        fed("total", INTEGER, as_is("total")),
        fed("pending", INTEGER, as_is("pending")),
        fed("succeeded", INTEGER, as_is("succeeded"), default=0),
        fed("failed", INTEGER, as_is("failed"), default=0),
        fed("callback_queue", TEXT, or_null("callback_queue")),
        fed("callback_payload", TEXT, or_null("callback_payload")),
        fed("created_at", TEXT, time("created_ns")),
        fed("cancelled", INTEGER, as_is("cancelled"), default=0),
        fed("called_back", INTEGER, flag("called_back"), default=0),
        SUM,
    ),
    key=("id", "shard"),
)

QUEUES: Final = TableSpec(
    name="queues",
    columns=(
        fed("name", TEXT, of_key(0)),
        fed("shard", INTEGER, SHARD),
        fed("paused", INTEGER, flag("paused"), default=0),
        fed("max_concurrency", INTEGER, or_null("max_concurrency")),
        fed("rate_limit", INTEGER, or_null("rate_limit")),
        fed("rate_window_ms", INTEGER, or_null("rate_window_ms")),
        Column("provider", TEXT),
        fed("created_at", TEXT, time("created_ns")),
        fed("draining", INTEGER, flag("draining"), default=0),
        fed("retention_ms", INTEGER, or_null("retention_ms")),
        SUM,
    ),
    key=("name", "shard"),
)

WORKERS: Final = TableSpec(
    name="workers",
    columns=(
        fed("id", TEXT, of_key(0)),
        fed("shard", INTEGER, SHARD),
        fed("hostname", TEXT, or_null("hostname")),
        fed("queues", TEXT, Source("queues", queues_text, empty_is_null=True)),
        fed("last_heartbeat", TEXT, time("seen_ns")),
        fed("started_at", TEXT, time("started_ns")),
        SUM,
    ),
    key=("id", "shard"),
)

QUEUE_COUNTS: Final = TableSpec(
    name="queue_counts",
    columns=(
        fed("queue", TEXT, of_key(0)),
        fed("shard", INTEGER, SHARD),
        fed("pending", INTEGER, as_is("[0]"), default=0),
        fed("active", INTEGER, as_is("[1]"), default=0),
        fed("held", INTEGER, as_is("[2]"), default=0),
        fed("completed", INTEGER, as_is("[3]"), default=0),
        fed("retrying", INTEGER, as_is("[4]"), default=0),
        fed("dead", INTEGER, as_is("[5]"), default=0),
        fed("cancelled", INTEGER, as_is("[6]"), default=0),
        fed("scheduled", INTEGER, as_is("[7]"), default=0),
        SUM,
    ),
    key=("queue", "shard"),
)

THROUGHPUT: Final = TableSpec(
    name="throughput",
    columns=(
        fed("queue", TEXT, of_key(0)),
        fed("shard", INTEGER, SHARD),
        fed("minute", INTEGER, as_is("minute")),
        fed("enqueued", INTEGER, as_is("enqueued"), default=0),
        fed("started", INTEGER, as_is("started"), default=0),
        fed("completed", INTEGER, as_is("completed"), default=0),
        fed("failed", INTEGER, as_is("failed"), default=0),
        fed("dead", INTEGER, as_is("dead"), default=0),
        fed("cancelled", INTEGER, as_is("cancelled"), default=0),
        SUM,
    ),
    key=("queue", "shard", "minute"),
    indexes=(Index("idx_throughput_minute", ("minute",)),),
)

SCHEDULES: Final = TableSpec(
    name="schedules",
    columns=(
        fed("id", TEXT, of_key(0)),
        fed("shard", INTEGER, SHARD),
        fed("name", TEXT, as_is("name")),
        fed("queue", TEXT, as_is("queue")),
        fed("cron", TEXT, as_is("cron")),
        fed("timezone", TEXT, as_is("timezone"), default="UTC"),
        fed("payload", TEXT, Source("", scheduled_payload, shown_as=raw)),
        fed("unique_key", TEXT, Source("", scheduled_unique_key, empty_is_null=True)),
        fed("max_retries", INTEGER, Source("", scheduled_max_retries), default=3),
        fed("last_run", TEXT, time_or_null("last_due_ns")),
        fed("next_run", TEXT, Source("", next_run, empty_is_null=True, shown_as=without_zeros)),
        fed("created_at", TEXT, time("created_ns")),
        fed("paused", INTEGER, flag("paused"), default=0),
        fed("overlap", TEXT, as_is("overlap"), default="allow"),
        fed("missed", TEXT, as_is("missed"), default="one"),
        fed("fired", INTEGER, as_is("fired"), default=0),
        fed("skipped", INTEGER, as_is("skipped"), default=0),
        fed("changed_at", TEXT, time("changed_ns")),
        SUM,
    ),
    key=("id", "shard"),
    indexes=(Index("idx_schedules_name", ("name",)),),
)
"""A name is unique in its queue, and not in the cluster: the id has both."""

FED: Final = (
    JOBS,
    JOB_ERRORS,
    UNIQUE_LOCKS,
    BATCHES,
    QUEUES,
    WORKERS,
    QUEUE_COUNTS,
    THROUGHPUT,
    SCHEDULES,
)
"""What the documents of the shards are written to."""

CURSORS: Final = TableSpec(
    name="cursors",
    columns=(
        Column("shard", INTEGER),
        Column("idx", INTEGER, required=True, default=0),
        Column("digest", INTEGER, required=True, default=0),
        Column("now_ns", INTEGER, required=True, default=0),
        Column("through", INTEGER, required=True, default=0),
        Column("pass_key", BLOB),
        Column("through_digest", INTEGER, required=True, default=0),
    ),
    key=("shard",),
)
"""How far each shard was followed. `pass_key` is the last key of a full pass; without one, the rows
are whole."""


class _PlannedColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    required: bool = False
    default: str | int | None = None


class _PlannedTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: tuple[str, ...]
    columns: dict[str, _PlannedColumn]
    indexes: tuple[Index, ...] = ()


def _planned() -> Iterator[TableSpec]:
    """The tables of planned.toml, which no document feeds yet."""
    data = get_data("corvo.mirror.follow", "planned.toml")
    assert data is not None, "the package has lost planned.toml"
    for name, table in msgspec.toml.decode(data, type=dict[str, _PlannedTable]).items():
        columns = [
            Column(column, one.type, one.required, one.default)
            for column, one in table.columns.items()
        ]
        yield TableSpec(name=name, columns=tuple(columns), key=table.key, indexes=table.indexes)


TABLES: Final = {spec.name: spec for spec in (*FED, CURSORS, *_planned())}
"""Every table. The one for full text is `FULL_TEXT`, and says itself how it is made."""

FULL_TEXT: Final = "jobs_fts"
_SEARCHED: Final = ("id", "queue", "payload", "tags")
_NEW: Final = ", ".join(f"new.{name}" for name in _SEARCHED)
_OLD: Final = ", ".join(f"old.{name}" for name in _SEARCHED)
_COLUMNS: Final = f"rowid, {', '.join(_SEARCHED)}"
_DIFFERS: Final = " OR ".join(f"old.{name} IS NOT new.{name}" for name in _SEARCHED)
_FORGET: Final = (
    f"INSERT INTO {FULL_TEXT} ({FULL_TEXT}, {_COLUMNS}) VALUES ('delete', old.row, {_OLD})"
)

FULL_TEXT_STATEMENTS: Final = {
    FULL_TEXT: (
        f"CREATE VIRTUAL TABLE {FULL_TEXT}"
        f" USING fts5({', '.join(_SEARCHED)}, content=jobs, content_rowid=row)"
    ),
    "jobs_fts_delete": (
        f"CREATE TRIGGER jobs_fts_delete AFTER DELETE ON jobs BEGIN {_FORGET}; END"
    ),
    # What changes with every step of a job is its state, and none of what is searched.
    "jobs_fts_update": (
        f"CREATE TRIGGER jobs_fts_update AFTER UPDATE OF {', '.join(_SEARCHED)} ON jobs"
        f" WHEN {_DIFFERS} BEGIN {_FORGET};"
        f" INSERT INTO {FULL_TEXT} ({_COLUMNS}) VALUES (new.row, {_NEW}); END"
    ),
}
"""By the name of what it makes: the words of all jobs, and the triggers that keep them so. New jobs
have none, for row by row it takes twice as long: see `FILL_FULL_TEXT`."""

FULL_TEXT_OPTIONS: Final = {"automerge": 8, "pgsz": 8_000}
"""More is merged at a time, and less often: many jobs come in at once."""

LAST_ROW: Final = "SELECT coalesce(max(row), 0) FROM jobs"
FILL_FULL_TEXT: Final = (
    f"INSERT INTO {FULL_TEXT} ({_COLUMNS}) SELECT row, {', '.join(_SEARCHED)} FROM jobs"
    " WHERE row > ?"
)
"""Take in the words of all jobs behind a row, which were written just now."""

_BEGINNING: Final = "1970-01-01T00:00:00.000000000Z"
SEEDS: Final = (
    f"INSERT OR IGNORE INTO namespaces (name, created_at) VALUES ('default', '{_BEGINNING}')",
    f"INSERT OR IGNORE INTO sso_settings (id, updated_at) VALUES ('singleton', '{_BEGINNING}')",
)
"""Rows that are there from the start."""


# Rows.

JOB: Final = Feed[Job](JOBS, by=("id", "shard"))
ERROR: Final = Feed[JobError](JOB_ERRORS, by=("job_id", "shard", "number"))
LOCK: Final = Feed[Job](UNIQUE_LOCKS)
BATCH: Final = Feed[Batch](BATCHES)
QUEUE: Final = Feed[Queue](QUEUES)
WORKER: Final = Feed[Worker](WORKERS)
COUNTS: Final = Feed[list[int]](QUEUE_COUNTS)
MINUTE: Final = Feed[Throughput](THROUGHPUT)
SCHEDULE: Final = Feed[Schedule](SCHEDULES)
PUT_CURSOR: Final = upsert(CURSORS, CURSORS.names, by=CURSORS.key)
