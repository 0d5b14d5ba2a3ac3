"""Tables and columns of planned features: they are in the file, and empty.

They have the names that were agreed on, so that programs which read the file can be written today.
A feature that fills a table moves it to `schema`, and gives its columns their sources.
"""

from typing import Final

from corvo.mirror.follow.columns import INTEGER, REAL, TEXT, Column, Index, TableSpec

COLUMNS: Final = frozenset(
    {
        "jobs.result_schema",
        "jobs.provider_error",
        "jobs.routing",
        "jobs.routing_target",
        "jobs.routing_index",
        "queues.provider",
    }
)
"""Columns of tables that documents feed otherwise."""

TABLES: Final = (
    TableSpec(
        name="schedules",
        columns=(
            Column("id", TEXT),
            Column("name", TEXT, required=True),
            Column("queue", TEXT, required=True),
            Column("cron", TEXT, required=True),
            Column("timezone", TEXT, required=True, default="UTC"),
            Column("payload", TEXT, required=True),
            Column("unique_key", TEXT),
            Column("max_retries", INTEGER, required=True, default=3),
            Column("last_run", TEXT),
            Column("next_run", TEXT),
            Column("created_at", TEXT, required=True),
        ),
        key=("id",),
        indexes=(Index("idx_schedules_name", ("name",), is_unique=True),),
    ),
    TableSpec(
        name="job_usage",
        columns=(
            Column("id", INTEGER),
            Column("job_id", TEXT, required=True),
            Column("queue", TEXT, required=True),
            Column("attempt", INTEGER, required=True),
            Column("phase", TEXT, required=True),
            Column("input_tokens", INTEGER, required=True, default=0),
            Column("output_tokens", INTEGER, required=True, default=0),
            Column("cache_creation_tokens", INTEGER, required=True, default=0),
            Column("cache_read_tokens", INTEGER, required=True, default=0),
            Column("model", TEXT),
            Column("provider", TEXT),
            Column("cost_usd", REAL, required=True, default=0),
            Column("created_at", TEXT, required=True),
        ),
        key=("id",),
    ),
    TableSpec(
        name="budgets",
        columns=(
            Column("id", TEXT),
            Column("scope", TEXT, required=True),
            Column("target", TEXT, required=True),
            Column("daily_usd", REAL),
            Column("per_job_usd", REAL),
            Column("on_exceed", TEXT, required=True, default="hold"),
            Column("created_at", TEXT, required=True),
        ),
        key=("id",),
    ),
    TableSpec(
        name="job_iterations",
        columns=(
            Column("id", INTEGER),
            Column("job_id", TEXT, required=True),
            Column("iteration", INTEGER, required=True),
            Column("status", TEXT, required=True),
            Column("checkpoint", TEXT),
            Column("trace", TEXT),
            Column("hold_reason", TEXT),
            Column("result", TEXT),
            Column("input_tokens", INTEGER, required=True, default=0),
            Column("output_tokens", INTEGER, required=True, default=0),
            Column("cache_creation_tokens", INTEGER, required=True, default=0),
            Column("cache_read_tokens", INTEGER, required=True, default=0),
            Column("model", TEXT),
            Column("provider", TEXT),
            Column("cost_usd", REAL, required=True, default=0),
            Column("created_at", TEXT, required=True),
        ),
        key=("id",),
    ),
    TableSpec(
        name="job_scores",
        columns=(
            Column("id", INTEGER),
            Column("job_id", TEXT, required=True),
            Column("dimension", TEXT, required=True),
            Column("value", REAL, required=True),
            Column("scorer", TEXT),
            Column("created_at", TEXT, required=True),
        ),
        key=("id",),
    ),
    TableSpec(
        name="providers",
        columns=(
            Column("name", TEXT),
            Column("rpm_limit", INTEGER),
            Column("input_tpm_limit", INTEGER),
            Column("output_tpm_limit", INTEGER),
            Column("created_at", TEXT, required=True),
        ),
        key=("name",),
    ),
    TableSpec(
        name="approval_policies",
        columns=(
            Column("id", TEXT),
            Column("name", TEXT, required=True),
            Column("mode", TEXT, required=True, default="any"),
            Column("enabled", INTEGER, required=True, default=1),
            Column("queue", TEXT),
            Column("tag_key", TEXT),
            Column("tag_value", TEXT),
            Column("created_at", TEXT, required=True),
        ),
        key=("id",),
    ),
    TableSpec(
        name="webhooks",
        columns=(
            Column("id", TEXT),
            Column("url", TEXT, required=True),
            Column("events", TEXT, required=True),
            Column("secret", TEXT),
            Column("enabled", INTEGER, required=True, default=1),
            Column("retry_limit", INTEGER, required=True, default=3),
            Column("created_at", TEXT, required=True),
            Column("last_status_code", INTEGER),
            Column("last_error", TEXT),
            Column("last_delivery_at", TEXT),
        ),
        key=("id",),
    ),
    TableSpec(
        name="api_keys",
        columns=(
            Column("key_hash", TEXT),
            Column("name", TEXT, required=True),
            Column("namespace", TEXT, required=True, default="default"),
            Column("role", TEXT, required=True, default="readonly"),
            Column("queue_scope", TEXT),
            Column("enabled", INTEGER, required=True, default=1),
            Column("expires_at", TEXT),
            Column("created_at", TEXT, required=True),
            Column("last_used_at", TEXT),
        ),
        key=("key_hash",),
    ),
    TableSpec(
        name="auth_roles",
        columns=(
            Column("name", TEXT),
            Column("permissions", TEXT, required=True),
            Column("created_at", TEXT, required=True),
            Column("updated_at", TEXT),
        ),
        key=("name",),
    ),
    TableSpec(
        name="auth_key_roles",
        columns=(
            Column("key_hash", TEXT, required=True),
            Column("role_name", TEXT, required=True),
            Column("created_at", TEXT, required=True),
        ),
        key=("key_hash", "role_name"),
    ),
    TableSpec(
        name="audit_logs",
        columns=(
            Column("id", INTEGER),
            Column("namespace", TEXT, required=True, default="default"),
            Column("principal", TEXT),
            Column("role", TEXT),
            Column("method", TEXT, required=True),
            Column("path", TEXT, required=True),
            Column("status_code", INTEGER, required=True),
            Column("metadata", TEXT),
            Column("created_at", TEXT, required=True),
        ),
        key=("id",),
    ),
    TableSpec(
        name="namespaces",
        columns=(
            Column("name", TEXT),
            Column("created_at", TEXT, required=True),
        ),
        key=("name",),
    ),
    TableSpec(
        name="sso_settings",
        columns=(
            Column("id", TEXT, required=True, default="singleton"),
            Column("provider", TEXT, required=True, default=""),
            Column("oidc_issuer_url", TEXT, required=True, default=""),
            Column("oidc_client_id", TEXT, required=True, default=""),
            Column("saml_enabled", INTEGER, required=True, default=0),
            Column("oidc_group_claim", TEXT, required=True, default="groups"),
            Column("group_role_mappings", TEXT, required=True, default="{}"),
            Column("updated_at", TEXT, required=True),
        ),
        key=("id",),
    ),
)
