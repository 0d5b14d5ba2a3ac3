CREATE TABLE "jobs" (
   "row" INTEGER PRIMARY KEY,
   "id" TEXT NOT NULL,
   "shard" INTEGER NOT NULL,
   "queue" TEXT NOT NULL,
   "state" TEXT NOT NULL DEFAULT 'pending',
   "payload" TEXT NOT NULL,
   "priority" INTEGER NOT NULL DEFAULT 2,
   "attempt" INTEGER NOT NULL DEFAULT 0,
   "max_retries" INTEGER NOT NULL DEFAULT 3,
   "retry_backoff" TEXT NOT NULL DEFAULT 'exponential',
   "retry_base_delay_ms" INTEGER NOT NULL DEFAULT 5000,
   "retry_max_delay_ms" INTEGER NOT NULL DEFAULT 600000,
   "unique_key" TEXT,
   "batch_id" TEXT,
   "worker_id" TEXT,
   "hostname" TEXT,
   "tags" TEXT,
   "progress" TEXT,
   "checkpoint" TEXT,
   "result" TEXT,
   "result_schema" TEXT,
   "parent_id" TEXT,
   "chain_id" TEXT,
   "chain_step" INTEGER,
   "chain_config" TEXT,
   "provider_error" INTEGER NOT NULL DEFAULT 0,
   "routing" TEXT,
   "routing_target" TEXT,
   "routing_index" INTEGER NOT NULL DEFAULT 0,
   "agent_max_iterations" INTEGER,
   "agent_max_cost_usd" REAL,
   "agent_iteration_timeout" TEXT,
   "agent_iteration" INTEGER NOT NULL DEFAULT 0,
   "agent_total_cost_usd" REAL NOT NULL DEFAULT 0,
   "hold_reason" TEXT,
   "lease_expires_at" TEXT,
   "scheduled_at" TEXT,
   "expire_at" TEXT,
   "created_at" TEXT NOT NULL,
   "started_at" TEXT,
   "completed_at" TEXT,
   "failed_at" TEXT,
   "kind" TEXT NOT NULL DEFAULT '',
   "changed_at" TEXT NOT NULL,
   "finished_at" TEXT,
   "held_at" TEXT,
   "failures" INTEGER NOT NULL DEFAULT 0,
   "crashes" INTEGER NOT NULL DEFAULT 0,
   "cancel_requested" INTEGER NOT NULL DEFAULT 0,
   "lease_ms" INTEGER,
   "reason" TEXT,
   "dlq_reason" TEXT NOT NULL DEFAULT '',
   "sum" INTEGER
);

CREATE UNIQUE INDEX idx_jobs_id ON jobs (id, shard);

CREATE INDEX idx_jobs_queue_state_priority ON jobs (queue, state, priority, created_at);

CREATE INDEX idx_jobs_state ON jobs (state, created_at);

CREATE INDEX idx_jobs_scheduled ON jobs (state, scheduled_at) WHERE state IN ('scheduled', 'retrying');

CREATE INDEX idx_jobs_lease ON jobs (state, lease_expires_at) WHERE state = 'active';

CREATE INDEX idx_jobs_unique ON jobs (queue, unique_key) WHERE unique_key IS NOT NULL;

CREATE INDEX idx_jobs_batch ON jobs (batch_id, created_at) WHERE batch_id IS NOT NULL;

CREATE INDEX idx_jobs_expire ON jobs (expire_at) WHERE expire_at IS NOT NULL;

CREATE INDEX idx_jobs_created ON jobs (created_at);

CREATE INDEX idx_jobs_worker ON jobs (worker_id) WHERE worker_id IS NOT NULL;

CREATE INDEX idx_jobs_parent ON jobs (parent_id, created_at) WHERE parent_id IS NOT NULL;

CREATE INDEX idx_jobs_chain ON jobs (chain_id, created_at) WHERE chain_id IS NOT NULL;

CREATE INDEX idx_jobs_started ON jobs (started_at) WHERE started_at IS NOT NULL;

CREATE INDEX idx_jobs_completed ON jobs (completed_at) WHERE completed_at IS NOT NULL;

CREATE INDEX idx_jobs_priority ON jobs (priority, created_at) WHERE priority < 2;

CREATE INDEX idx_jobs_attempt ON jobs (attempt, created_at) WHERE attempt > 1;

CREATE TABLE "job_errors" (
   "id" INTEGER PRIMARY KEY,
   "job_id" TEXT NOT NULL,
   "shard" INTEGER NOT NULL,
   "attempt" INTEGER NOT NULL,
   "error" TEXT NOT NULL,
   "backtrace" TEXT,
   "error_class" TEXT,
   "worker_id" TEXT,
   "number" INTEGER NOT NULL,
   "created_at" TEXT NOT NULL,
   "sum" INTEGER
);

CREATE UNIQUE INDEX idx_job_errors_job ON job_errors (job_id, shard, number);

CREATE INDEX idx_job_errors_worker ON job_errors (worker_id) WHERE worker_id IS NOT NULL;

CREATE TABLE "unique_locks" (
   "queue" TEXT NOT NULL,
   "unique_key" TEXT NOT NULL,
   "shard" INTEGER NOT NULL,
   "job_id" TEXT NOT NULL,
   "expires_at" TEXT NOT NULL,
   "sum" INTEGER,
   PRIMARY KEY ("queue", "unique_key", "shard")
);

CREATE INDEX idx_unique_locks_job ON unique_locks (job_id, shard);

CREATE TABLE "batches" (
   "id" TEXT NOT NULL,
   "shard" INTEGER NOT NULL,
   "total" INTEGER NOT NULL,
   "pending" INTEGER NOT NULL,
   "succeeded" INTEGER NOT NULL DEFAULT 0,
   "failed" INTEGER NOT NULL DEFAULT 0,
   "callback_queue" TEXT,
   "callback_payload" TEXT,
   "created_at" TEXT NOT NULL,
   "cancelled" INTEGER NOT NULL DEFAULT 0,
   "called_back" INTEGER NOT NULL DEFAULT 0,
   "sum" INTEGER,
   PRIMARY KEY ("id", "shard")
);

CREATE TABLE "queues" (
   "name" TEXT NOT NULL,
   "shard" INTEGER NOT NULL,
   "paused" INTEGER NOT NULL DEFAULT 0,
   "max_concurrency" INTEGER,
   "rate_limit" INTEGER,
   "rate_window_ms" INTEGER,
   "provider" TEXT,
   "created_at" TEXT NOT NULL,
   "draining" INTEGER NOT NULL DEFAULT 0,
   "retention_ms" INTEGER,
   "sum" INTEGER,
   PRIMARY KEY ("name", "shard")
);

CREATE TABLE "workers" (
   "id" TEXT NOT NULL,
   "shard" INTEGER NOT NULL,
   "hostname" TEXT,
   "queues" TEXT,
   "last_heartbeat" TEXT NOT NULL,
   "started_at" TEXT NOT NULL,
   "sum" INTEGER,
   PRIMARY KEY ("id", "shard")
);

CREATE TABLE "queue_counts" (
   "queue" TEXT NOT NULL,
   "shard" INTEGER NOT NULL,
   "pending" INTEGER NOT NULL DEFAULT 0,
   "active" INTEGER NOT NULL DEFAULT 0,
   "held" INTEGER NOT NULL DEFAULT 0,
   "completed" INTEGER NOT NULL DEFAULT 0,
   "retrying" INTEGER NOT NULL DEFAULT 0,
   "dead" INTEGER NOT NULL DEFAULT 0,
   "cancelled" INTEGER NOT NULL DEFAULT 0,
   "scheduled" INTEGER NOT NULL DEFAULT 0,
   "sum" INTEGER,
   PRIMARY KEY ("queue", "shard")
);

CREATE TABLE "throughput" (
   "queue" TEXT NOT NULL,
   "shard" INTEGER NOT NULL,
   "minute" INTEGER NOT NULL,
   "enqueued" INTEGER NOT NULL DEFAULT 0,
   "started" INTEGER NOT NULL DEFAULT 0,
   "completed" INTEGER NOT NULL DEFAULT 0,
   "failed" INTEGER NOT NULL DEFAULT 0,
   "dead" INTEGER NOT NULL DEFAULT 0,
   "cancelled" INTEGER NOT NULL DEFAULT 0,
   "sum" INTEGER,
   PRIMARY KEY ("queue", "shard", "minute")
);

CREATE INDEX idx_throughput_minute ON throughput (minute);

CREATE TABLE "schedules" (
   "id" TEXT NOT NULL,
   "shard" INTEGER NOT NULL,
   "name" TEXT NOT NULL,
   "queue" TEXT NOT NULL,
   "cron" TEXT NOT NULL,
   "timezone" TEXT NOT NULL DEFAULT 'UTC',
   "payload" TEXT NOT NULL,
   "unique_key" TEXT,
   "max_retries" INTEGER NOT NULL DEFAULT 3,
   "last_run" TEXT,
   "next_run" TEXT,
   "created_at" TEXT NOT NULL,
   "paused" INTEGER NOT NULL DEFAULT 0,
   "overlap" TEXT NOT NULL DEFAULT 'allow',
   "missed" TEXT NOT NULL DEFAULT 'one',
   "fired" INTEGER NOT NULL DEFAULT 0,
   "skipped" INTEGER NOT NULL DEFAULT 0,
   "changed_at" TEXT NOT NULL,
   "sum" INTEGER,
   PRIMARY KEY ("id", "shard")
);

CREATE INDEX idx_schedules_name ON schedules (name);

CREATE TABLE "cursors" (
   "shard" INTEGER PRIMARY KEY,
   "idx" INTEGER NOT NULL DEFAULT 0,
   "digest" INTEGER NOT NULL DEFAULT 0,
   "now_ns" INTEGER NOT NULL DEFAULT 0,
   "through" INTEGER NOT NULL DEFAULT 0,
   "pass_key" BLOB,
   "through_digest" INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE "job_usage" (
   "id" INTEGER PRIMARY KEY,
   "job_id" TEXT NOT NULL,
   "queue" TEXT NOT NULL,
   "attempt" INTEGER NOT NULL,
   "phase" TEXT NOT NULL,
   "input_tokens" INTEGER NOT NULL DEFAULT 0,
   "output_tokens" INTEGER NOT NULL DEFAULT 0,
   "cache_creation_tokens" INTEGER NOT NULL DEFAULT 0,
   "cache_read_tokens" INTEGER NOT NULL DEFAULT 0,
   "model" TEXT,
   "provider" TEXT,
   "cost_usd" REAL NOT NULL DEFAULT 0,
   "created_at" TEXT NOT NULL
);

CREATE TABLE "budgets" (
   "id" TEXT PRIMARY KEY,
   "scope" TEXT NOT NULL,
   "target" TEXT NOT NULL,
   "daily_usd" REAL,
   "per_job_usd" REAL,
   "on_exceed" TEXT NOT NULL DEFAULT 'hold',
   "created_at" TEXT NOT NULL
);

CREATE TABLE "job_iterations" (
   "id" INTEGER PRIMARY KEY,
   "job_id" TEXT NOT NULL,
   "iteration" INTEGER NOT NULL,
   "status" TEXT NOT NULL,
   "checkpoint" TEXT,
   "trace" TEXT,
   "hold_reason" TEXT,
   "result" TEXT,
   "input_tokens" INTEGER NOT NULL DEFAULT 0,
   "output_tokens" INTEGER NOT NULL DEFAULT 0,
   "cache_creation_tokens" INTEGER NOT NULL DEFAULT 0,
   "cache_read_tokens" INTEGER NOT NULL DEFAULT 0,
   "model" TEXT,
   "provider" TEXT,
   "cost_usd" REAL NOT NULL DEFAULT 0,
   "created_at" TEXT NOT NULL
);

CREATE TABLE "job_scores" (
   "id" INTEGER PRIMARY KEY,
   "job_id" TEXT NOT NULL,
   "dimension" TEXT NOT NULL,
   "value" REAL NOT NULL,
   "scorer" TEXT,
   "created_at" TEXT NOT NULL
);

CREATE TABLE "providers" (
   "name" TEXT PRIMARY KEY,
   "rpm_limit" INTEGER,
   "input_tpm_limit" INTEGER,
   "output_tpm_limit" INTEGER,
   "created_at" TEXT NOT NULL
);

CREATE TABLE "approval_policies" (
   "id" TEXT PRIMARY KEY,
   "name" TEXT NOT NULL,
   "mode" TEXT NOT NULL DEFAULT 'any',
   "enabled" INTEGER NOT NULL DEFAULT 1,
   "queue" TEXT,
   "tag_key" TEXT,
   "tag_value" TEXT,
   "created_at" TEXT NOT NULL
);

CREATE TABLE "webhooks" (
   "id" TEXT PRIMARY KEY,
   "url" TEXT NOT NULL,
   "events" TEXT NOT NULL,
   "secret" TEXT,
   "enabled" INTEGER NOT NULL DEFAULT 1,
   "retry_limit" INTEGER NOT NULL DEFAULT 3,
   "created_at" TEXT NOT NULL,
   "last_status_code" INTEGER,
   "last_error" TEXT,
   "last_delivery_at" TEXT
);

CREATE TABLE "api_keys" (
   "key_hash" TEXT PRIMARY KEY,
   "name" TEXT NOT NULL,
   "namespace" TEXT NOT NULL DEFAULT 'default',
   "role" TEXT NOT NULL DEFAULT 'readonly',
   "queue_scope" TEXT,
   "enabled" INTEGER NOT NULL DEFAULT 1,
   "expires_at" TEXT,
   "created_at" TEXT NOT NULL,
   "last_used_at" TEXT
);

CREATE TABLE "auth_roles" (
   "name" TEXT PRIMARY KEY,
   "permissions" TEXT NOT NULL,
   "created_at" TEXT NOT NULL,
   "updated_at" TEXT
);

CREATE TABLE "auth_key_roles" (
   "key_hash" TEXT NOT NULL,
   "role_name" TEXT NOT NULL,
   "created_at" TEXT NOT NULL,
   PRIMARY KEY ("key_hash", "role_name")
);

CREATE TABLE "audit_logs" (
   "id" INTEGER PRIMARY KEY,
   "namespace" TEXT NOT NULL DEFAULT 'default',
   "principal" TEXT,
   "role" TEXT,
   "method" TEXT NOT NULL,
   "path" TEXT NOT NULL,
   "status_code" INTEGER NOT NULL,
   "metadata" TEXT,
   "created_at" TEXT NOT NULL
);

CREATE TABLE "namespaces" (
   "name" TEXT PRIMARY KEY,
   "created_at" TEXT NOT NULL
);

CREATE TABLE "sso_settings" (
   "id" TEXT PRIMARY KEY NOT NULL DEFAULT 'singleton',
   "provider" TEXT NOT NULL DEFAULT '',
   "oidc_issuer_url" TEXT NOT NULL DEFAULT '',
   "oidc_client_id" TEXT NOT NULL DEFAULT '',
   "saml_enabled" INTEGER NOT NULL DEFAULT 0,
   "oidc_group_claim" TEXT NOT NULL DEFAULT 'groups',
   "group_role_mappings" TEXT NOT NULL DEFAULT '{}',
   "updated_at" TEXT NOT NULL
);

CREATE VIRTUAL TABLE jobs_fts USING fts5(id, queue, payload, tags, content=jobs, content_rowid=row);

CREATE TABLE "about" (
   "name" TEXT PRIMARY KEY,
   "value" TEXT NOT NULL
);

CREATE TRIGGER jobs_fts_delete AFTER DELETE ON jobs BEGIN INSERT INTO jobs_fts (jobs_fts, rowid, id, queue, payload, tags) VALUES ('delete', old.row, old.id, old.queue, old.payload, old.tags); END;

CREATE TRIGGER jobs_fts_update AFTER UPDATE OF id, queue, payload, tags ON jobs WHEN old.id IS NOT new.id OR old.queue IS NOT new.queue OR old.payload IS NOT new.payload OR old.tags IS NOT new.tags BEGIN INSERT INTO jobs_fts (jobs_fts, rowid, id, queue, payload, tags) VALUES ('delete', old.row, old.id, old.queue, old.payload, old.tags); INSERT INTO jobs_fts (rowid, id, queue, payload, tags) VALUES (new.row, new.id, new.queue, new.payload, new.tags); END;
