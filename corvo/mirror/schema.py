"""The tables of the mirror, as data: what is in the file, and the statements that fill it.

The tables and indexes of `docs/mirror.md`, each declared once. `corvo.mirror.building` makes them.
A table that a document feeds has the statement that writes a row; the others are there for whoever
looks for them, and empty until their documents exist.
"""

from typing import Final

import msgspec

VERSION: Final = 1
"""Rises with every change of this module that an older file does not have."""

TEXT: Final = "TEXT"
INTEGER: Final = "INTEGER"
REAL: Final = "REAL"
BLOB: Final = "BLOB"


class Column(msgspec.Struct, frozen=True):
    """One column. `default` goes with `required` alone."""

    name: str
    type: str
    required: bool = False
    default: str | int | None = None


class Index(msgspec.Struct, frozen=True):
    """One index; `where` limits it to rows that have something to be found by."""

    name: str
    columns: tuple[str, ...]
    where: str = ""
    is_unique: bool = False


class TableSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    indexes: tuple[Index, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its columns."""
        return tuple(column.name for column in self.columns)


def _columns(told: str) -> tuple[Column, ...]:
    """Columns in the words of SQL, one a line: name, type, `!` if required, default."""
    found = []
    for line in told.strip().splitlines():
        name, kind, *rest = line.split()
        default: str | int | None = None
        if len(rest) > 1:
            default = int(rest[1]) if kind in {INTEGER, REAL} else rest[1].strip("'")
        found.append(Column(name, kind, bool(rest), default))
    return tuple(found)


_JOBS: Final = _columns("""
    row INTEGER
    id TEXT !
    shard INTEGER !
    queue TEXT !
    state TEXT ! pending
    payload TEXT !
    priority INTEGER ! 2
    attempt INTEGER ! 0
    max_retries INTEGER ! 3
    retry_backoff TEXT ! exponential
    retry_base_delay_ms INTEGER ! 5000
    retry_max_delay_ms INTEGER ! 600000
    unique_key TEXT
    batch_id TEXT
    worker_id TEXT
    hostname TEXT
    tags TEXT
    progress TEXT
    checkpoint TEXT
    result TEXT
    result_schema TEXT
    parent_id TEXT
    chain_id TEXT
    chain_step INTEGER
    chain_config TEXT
    provider_error INTEGER ! 0
    routing TEXT
    routing_target TEXT
    routing_index INTEGER ! 0
    agent_max_iterations INTEGER
    agent_max_cost_usd REAL
    agent_iteration_timeout TEXT
    agent_iteration INTEGER ! 0
    agent_total_cost_usd REAL ! 0
    hold_reason TEXT
    lease_expires_at TEXT
    scheduled_at TEXT
    expire_at TEXT
    created_at TEXT !
    started_at TEXT
    completed_at TEXT
    failed_at TEXT
    kind TEXT ! ''
    changed_at TEXT !
    finished_at TEXT
    held_at TEXT
    failures INTEGER ! 0
    crashes INTEGER ! 0
    cancel_requested INTEGER ! 0
    lease_ms INTEGER
""")

JOBS: Final = TableSpec(
    name="jobs",
    columns=_JOBS,
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
    columns=_columns("""
        id INTEGER
        job_id TEXT !
        shard INTEGER !
        attempt INTEGER !
        error TEXT !
        backtrace TEXT
        error_class TEXT
        worker_id TEXT
        number INTEGER !
        created_at TEXT !
    """),
    key=("id",),
    indexes=(
        Index("idx_job_errors_job", ("job_id", "shard", "number"), is_unique=True),
        Index("idx_job_errors_worker", ("worker_id",), "worker_id IS NOT NULL"),
    ),
)

UNIQUE_LOCKS: Final = TableSpec(
    name="unique_locks",
    columns=_columns("""
        queue TEXT !
        unique_key TEXT !
        shard INTEGER !
        job_id TEXT !
        expires_at TEXT !
    """),
    key=("queue", "unique_key", "shard"),
    indexes=(Index("idx_unique_locks_job", ("job_id", "shard")),),
)

BATCHES: Final = TableSpec(
    name="batches",
    columns=_columns("""
        id TEXT !
        shard INTEGER !
        total INTEGER !
        pending INTEGER !
        succeeded INTEGER ! 0
        failed INTEGER ! 0
        callback_queue TEXT
        callback_payload TEXT
        created_at TEXT !
        cancelled INTEGER ! 0
        called_back INTEGER ! 0
    """),
    key=("id", "shard"),
)

QUEUES: Final = TableSpec(
    name="queues",
    columns=_columns("""
        name TEXT !
        shard INTEGER !
        paused INTEGER ! 0
        max_concurrency INTEGER
        rate_limit INTEGER
        rate_window_ms INTEGER
        provider TEXT
        created_at TEXT !
        draining INTEGER ! 0
        retention_ms INTEGER
    """),
    key=("name", "shard"),
)

WORKERS: Final = TableSpec(
    name="workers",
    columns=_columns("""
        id TEXT !
        shard INTEGER !
        hostname TEXT
        queues TEXT
        last_heartbeat TEXT !
        started_at TEXT !
    """),
    key=("id", "shard"),
)

QUEUE_COUNTS: Final = TableSpec(
    name="queue_counts",
    columns=_columns("""
        queue TEXT !
        shard INTEGER !
        pending INTEGER ! 0
        active INTEGER ! 0
        held INTEGER ! 0
        completed INTEGER ! 0
        retrying INTEGER ! 0
        dead INTEGER ! 0
        cancelled INTEGER ! 0
        scheduled INTEGER ! 0
    """),
    key=("queue", "shard"),
)

THROUGHPUT: Final = TableSpec(
    name="throughput",
    columns=_columns("""
        queue TEXT !
        shard INTEGER !
        minute INTEGER !
        enqueued INTEGER ! 0
        started INTEGER ! 0
        completed INTEGER ! 0
        failed INTEGER ! 0
        dead INTEGER ! 0
        cancelled INTEGER ! 0
    """),
    key=("queue", "shard", "minute"),
    indexes=(Index("idx_throughput_minute", ("minute",)),),
)

FED: Final = (
    JOBS,
    JOB_ERRORS,
    UNIQUE_LOCKS,
    BATCHES,
    QUEUES,
    WORKERS,
    QUEUE_COUNTS,
    THROUGHPUT,
)
"""What the documents of the shards are written to."""

CURSORS: Final = TableSpec(
    name="cursors",
    columns=_columns("""
        shard INTEGER
        idx INTEGER ! 0
        digest INTEGER ! 0
        now_ns INTEGER ! 0
        through INTEGER ! 0
        pass_key BLOB
        through_digest INTEGER ! 0
    """),
    key=("shard",),
)
"""How far each shard was followed. `pass_key` is the last key of a full pass; without one, the rows
are whole."""

_PLANNED: Final = (
    TableSpec(
        name="schedules",
        columns=_columns("""
            id TEXT
            name TEXT !
            queue TEXT !
            cron TEXT !
            timezone TEXT ! UTC
            payload TEXT !
            unique_key TEXT
            max_retries INTEGER ! 3
            last_run TEXT
            next_run TEXT
            created_at TEXT !
        """),
        key=("id",),
        indexes=(Index("idx_schedules_name", ("name",), is_unique=True),),
    ),
    TableSpec(
        name="job_usage",
        columns=_columns("""
            id INTEGER
            job_id TEXT !
            queue TEXT !
            attempt INTEGER !
            phase TEXT !
            input_tokens INTEGER ! 0
            output_tokens INTEGER ! 0
            cache_creation_tokens INTEGER ! 0
            cache_read_tokens INTEGER ! 0
            model TEXT
            provider TEXT
            cost_usd REAL ! 0
            created_at TEXT !
        """),
        key=("id",),
    ),
    TableSpec(
        name="budgets",
        columns=_columns("""
            id TEXT
            scope TEXT !
            target TEXT !
            daily_usd REAL
            per_job_usd REAL
            on_exceed TEXT ! hold
            created_at TEXT !
        """),
        key=("id",),
    ),
    TableSpec(
        name="job_iterations",
        columns=_columns("""
            id INTEGER
            job_id TEXT !
            iteration INTEGER !
            status TEXT !
            checkpoint TEXT
            trace TEXT
            hold_reason TEXT
            result TEXT
            input_tokens INTEGER ! 0
            output_tokens INTEGER ! 0
            cache_creation_tokens INTEGER ! 0
            cache_read_tokens INTEGER ! 0
            model TEXT
            provider TEXT
            cost_usd REAL ! 0
            created_at TEXT !
        """),
        key=("id",),
    ),
    TableSpec(
        name="job_scores",
        columns=_columns("""
            id INTEGER
            job_id TEXT !
            dimension TEXT !
            value REAL !
            scorer TEXT
            created_at TEXT !
        """),
        key=("id",),
    ),
    TableSpec(
        name="providers",
        columns=_columns("""
            name TEXT
            rpm_limit INTEGER
            input_tpm_limit INTEGER
            output_tpm_limit INTEGER
            created_at TEXT !
        """),
        key=("name",),
    ),
    TableSpec(
        name="approval_policies",
        columns=_columns("""
            id TEXT
            name TEXT !
            mode TEXT ! any
            enabled INTEGER ! 1
            queue TEXT
            tag_key TEXT
            tag_value TEXT
            created_at TEXT !
        """),
        key=("id",),
    ),
    TableSpec(
        name="webhooks",
        columns=_columns("""
            id TEXT
            url TEXT !
            events TEXT !
            secret TEXT
            enabled INTEGER ! 1
            retry_limit INTEGER ! 3
            created_at TEXT !
            last_status_code INTEGER
            last_error TEXT
            last_delivery_at TEXT
        """),
        key=("id",),
    ),
    TableSpec(
        name="api_keys",
        columns=_columns("""
            key_hash TEXT
            name TEXT !
            namespace TEXT ! default
            role TEXT ! readonly
            queue_scope TEXT
            enabled INTEGER ! 1
            expires_at TEXT
            created_at TEXT !
            last_used_at TEXT
        """),
        key=("key_hash",),
    ),
    TableSpec(
        name="auth_roles",
        columns=_columns("""
            name TEXT
            permissions TEXT !
            created_at TEXT !
            updated_at TEXT
        """),
        key=("name",),
    ),
    TableSpec(
        name="auth_key_roles",
        columns=_columns("""
            key_hash TEXT !
            role_name TEXT !
            created_at TEXT !
        """),
        key=("key_hash", "role_name"),
    ),
    TableSpec(
        name="audit_logs",
        columns=_columns("""
            id INTEGER
            namespace TEXT ! default
            principal TEXT
            role TEXT
            method TEXT !
            path TEXT !
            status_code INTEGER !
            metadata TEXT
            created_at TEXT !
        """),
        key=("id",),
    ),
    TableSpec(
        name="namespaces",
        columns=_columns("""
            name TEXT
            created_at TEXT !
        """),
        key=("name",),
    ),
    TableSpec(
        name="sso_settings",
        columns=_columns("""
            id TEXT ! singleton
            provider TEXT ! ''
            oidc_issuer_url TEXT ! ''
            oidc_client_id TEXT ! ''
            saml_enabled INTEGER ! 0
            oidc_group_claim TEXT ! groups
            group_role_mappings TEXT ! {}
            updated_at TEXT !
        """),
        key=("id",),
    ),
)

TABLES: Final = {spec.name: spec for spec in (*FED, CURSORS, *_PLANNED)}
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


# Statements.


def upsert(spec: TableSpec, *, leave: tuple[str, ...] = (), by: tuple[str, ...] = ()) -> str:
    """Write a row, new or not; its values are those of all columns but `leave`.

    `by` names the columns of a unique index that say whether it is new; else the key does.
    """
    names = [name for name in spec.names if name not in leave]
    by = by or spec.key
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in by)
    return (
        f"INSERT INTO {spec.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        f" ON CONFLICT ({', '.join(by)}) DO UPDATE SET {changed}"
    )


UNFED: Final = (
    "row",
    "result_schema",
    "provider_error",
    "routing",
    "routing_target",
    "routing_index",
)
"""Columns of jobs that no document feeds yet."""

PUT_JOB: Final = upsert(JOBS, leave=UNFED, by=("id", "shard"))
PUT_ERROR: Final = upsert(JOB_ERRORS, leave=("id",), by=("job_id", "shard", "number"))
PUT_LOCK: Final = upsert(UNIQUE_LOCKS)
PUT_BATCH: Final = upsert(BATCHES)
PUT_QUEUE: Final = upsert(QUEUES, leave=("provider",))
PUT_WORKER: Final = upsert(WORKERS)
PUT_COUNTS: Final = upsert(QUEUE_COUNTS)
PUT_THROUGHPUT: Final = upsert(THROUGHPUT)
PUT_CURSOR: Final = upsert(CURSORS)
