"""Examples of requests and answers for the documents. A test reads each of them as what it is."""

from typing import Final

_JOB: Final = "s02_job_01HF7YAT000000000003800000"
_OTHER: Final = "s02_job_01HF7YAT000000000003800001"

REQUESTS: Final[dict[str, dict[str, object]]] = {
    "post_enqueue": {
        "queue": "mail",
        "payload": {"to": "ada@example.org"},
        "priority": "high",
        "unique_key": "welcome-7",
        "max_retries": 5,
        "tags": {"tenant": "acme"},
    },
    "post_enqueue_batch": {
        "jobs": [{"queue": "mail", "payload": {"to": "ada@example.org"}}, {"queue": "sms"}],
        "batch": {"callback_queue": "done"},
    },
    "post_fetch": {"queues": ["mail", "sms"], "worker_id": "worker-1", "timeout": 30},
    "post_fetch_batch": {"queues": ["mail"], "worker_id": "worker-1", "count": 10},
    "post_ack_job_id": {"lease_token": 524_288, "result": {"sent": True}},
    "post_ack_batch": {"acks": [{"job_id": _JOB, "lease_token": 524_288}]},
    "post_fail_job_id": {
        "lease_token": 524_288,
        "error": "the server said 450",
        "backtrace": "mail.py, line 17, in send",
        "error_class": "SMTPResponseException",
        "retry_after": "10m",
    },
    "post_fail_batch": {"fails": [{"job_id": _JOB, "error": "the server said 450"}]},
    "post_heartbeat": {"jobs": {_JOB: {"progress": {"current": 3, "total": 9}}}},
    "post_release_job_id": {"lease_token": 524_288},
    "post_snooze_job_id": {"lease_token": 524_288, "delay": "5m"},
    "post_snooze_batch": {"jobs": [{"job_id": _JOB, "lease_token": 524_288, "delay": "5m"}]},
    "post_jobs_bulk": {
        "filter": {"queue": "mail", "state": ["dead"], "error_contains": "SMTP timeout"},
        "action": "retry",
        "rate": 200,
    },
    "post_jobs_bulk_get": {"job_ids": [_JOB, _OTHER]},
    "post_jobs_search": {
        "queue": "mail",
        "state": ["dead", "retrying"],
        "tags": {"tenant": "acme"},
        "created_after": "2026-02-20T00:00:00Z",
        "sort": "created_at",
        "order": "desc",
        "limit": 50,
    },
    "post_jobs_id_cancel": {"why": "the order was withdrawn"},
    "post_jobs_id_move": {"queue": "mail-slow", "reset_attempts": True},
    "post_jobs_id_hold": {"reason": "needs a check"},
    "post_jobs_id_reject": {"why": "it cannot be delivered"},
    "post_jobs_id_priority": {"priority": "critical"},
    "post_queues_name_concurrency": {"max": 20},
    "post_queues_name_throttle": {"rate": 100, "period": "1m"},
    "post_queues_name_retention": {"retention": "168h"},
    "post_auth_keys": {"name": "mailer", "role": "worker", "queue_scope": ["mail*"]},
}
"""By the route's operation id."""

_AS_OF: Final = {"s2": {"index": 1_042, "at": "2026-02-20T10:00:07.25Z", "is_whole": True}}
_PAGE: Final[dict[str, object]] = {
    "jobs": [
        {
            "id": _JOB,
            "queue": "mail",
            "state": "dead",
            "payload": {"to": "ada@example.org"},
            "priority": 2,
            "attempt": 5,
            "max_retries": 5,
            "tags": {"tenant": "acme"},
            "created_at": "2026-02-20T09:59:59.5Z",
            "failed_at": "2026-02-20T10:00:00.123456789Z",
            "finished_at": "2026-02-20T10:00:00.123456789Z",
            "last_error": "the server said 450",
            "failures": 5,
            "changed_at": "2026-02-20T10:00:00.123456789Z",
        }
    ],
    "total": 128,
    "total_is_exact": True,
    "cursor": "eyJhdCI6IjIwMjYifQ",
    "has_more": True,
    "duration_ms": 1.25,
    "as_of": _AS_OF,
}

ANSWERS: Final[dict[str, dict[str, object] | list[object]]] = {
    "get_jobs_id": {
        "id": _JOB,
        "queue": "mail",
        "state": "retrying",
        "payload": {"to": "ada@example.org"},
        "priority": 1,
        "attempt": 1,
        "max_retries": 5,
        "retry_backoff": "exponential",
        "retry_base_delay_ms": 5_000,
        "retry_max_delay_ms": 600_000,
        "unique_key": "welcome-7",
        "tags": {"tenant": "acme"},
        "scheduled_at": "2026-02-20T10:00:05.123456789Z",
        "created_at": "2026-02-20T09:59:59.5Z",
        "started_at": "2026-02-20T10:00:00Z",
        "failed_at": "2026-02-20T10:00:00.123456789Z",
        "errors": [
            {
                "id": 1,
                "job_id": _JOB,
                "attempt": 1,
                "error": "the server said 450",
                "worker_id": "worker-1",
                "created_at": "2026-02-20T10:00:00.123456789Z",
            }
        ],
        "last_error": "the server said 450",
        "trail": [
            {"at": "2026-02-20T09:59:59.5Z", "what": "enqueued", "by": "shop"},
            {"at": "2026-02-20T10:00:00Z", "what": "started", "by": "worker-1"},
            {
                "at": "2026-02-20T10:00:00.123456789Z",
                "what": "failed",
                "by": "worker-1",
                "why": "the server said 450",
            },
        ],
    },
    "get_jobs_id_explain": {
        "job_id": _JOB,
        "queue": "mail",
        "state": "pending",
        "code": "behind",
        "text": "3 jobs come before it",
        "ahead": 3,
    },
    "post_jobs_search": _PAGE,
    "get_jobs": _PAGE,
    "get_search_fulltext": {
        "q": "ada example",
        "results": [
            {
                "id": _JOB,
                "queue": "mail",
                "state": "dead",
                "payload": '{"to":"ada@example.org"}',
                "tags": '{"tenant":"acme"}',
                "created_at": "2026-02-20T09:59:59.5Z",
            }
        ],
        "duration_ms": 2.5,
        "as_of": _AS_OF,
    },
    "get_jobs_id_timeline": {
        "job_id": _JOB,
        "queue": "mail",
        "state": "retrying",
        "moments": [
            {
                "at": "2026-02-20T09:59:59.5Z",
                "what": "enqueued",
                "by": "shop",
                "phase": "queued",
                "ms": 500.0,
            },
            {
                "at": "2026-02-20T10:00:00Z",
                "what": "started",
                "by": "worker-1",
                "phase": "running",
                "ms": 123.456789,
            },
            {
                "at": "2026-02-20T10:00:00.123456789Z",
                "what": "failed",
                "by": "worker-1",
                "why": "the server said 450",
                "phase": "retrying",
                "ms": 2_000.0,
                "error": {
                    "id": 1,
                    "job_id": _JOB,
                    "attempt": 1,
                    "error": "the server said 450",
                    "worker_id": "worker-1",
                    "created_at": "2026-02-20T10:00:00.123456789Z",
                },
            },
        ],
        "phases_ms": {"queued": 500.0, "running": 123.456789, "retrying": 2_000.0},
    },
    "get_summary": {
        "at": "2026-02-20T10:00:07.5Z",
        "queues": [
            {
                "name": "mail",
                "paused": False,
                "counts": {"pending": 4, "active": 1, "dead": 2},
                "enqueued_1m": 60,
                "completed_1m": 58,
                "failed_1m": 3,
                "oldest_pending_at": "2026-02-20T09:59:59.5Z",
            }
        ],
        "totals": {"pending": 4, "active": 1, "dead": 2},
        "workers": {"alive": 3, "not_fetching": 0},
        "shards": [{"shard": 2, "status": "up", "leader": 1, "mirror": "following"}],
        "source": "mirror",
        "as_of": _AS_OF,
    },
    "get_admin_mirror": {
        "status": "following",
        "shards": [
            {
                "shard": 2,
                "index": 1_042,
                "at": "2026-02-20T10:00:07.25Z",
                "lag_entries": 3,
                "lag_ms": 12.5,
                "is_linked": True,
                "is_whole": True,
                "passes": 0,
                "changes": 51_200,
            }
        ],
        "file_bytes": 73_400_320,
        "jobs": 128,
        "questions": 9_301,
        "interrupted": 2,
        "schema": 1,
        "resident_bytes": 62_914_560,
        "cpu_seconds": 41.5,
    },
    "get_metrics_throughput": [
        {
            "minute": "2026-02-20T09:59:00Z",
            "enqueued": 60,
            "completed": 58,
            "failed": 3,
            "started": 61,
            "dead": 1,
            "cancelled": 0,
        }
    ],
    "post_jobs_id_retry": {"status": "retried", "job_id": _JOB},
    "post_jobs_id_cancel": {"status": "cancelled", "job_id": _JOB},
    "get_queues": [
        {
            "name": "mail",
            "paused": False,
            "pending": 4,
            "active": 1,
            "held": 0,
            "completed": 120,
            "dead": 2,
            "scheduled": 0,
            "retrying": 1,
            "cancelled": 0,
            "enqueued": 128,
            "failed": 0,
            "created_at": "2026-02-20T09:00:00Z",
            "max_concurrency": 20,
            "oldest_pending_at": "2026-02-20T09:59:59.5Z",
            "rates": {
                "enqueued_1m": 60,
                "started_1m": 61,
                "completed_1m": 58,
                "failed_1m": 3,
                "enqueued_5m": 290,
                "started_5m": 295,
                "completed_5m": 281,
                "failed_5m": 14,
            },
        }
    ],
    "post_queues_name_pause": {"status": "paused", "queue": "mail"},
    "get_workers": [
        {
            "id": "worker-1",
            "hostname": "rook",
            "queues": '["mail","sms"]',
            "queue_names": ["mail", "sms"],
            "last_heartbeat": "2026-02-20T10:00:00Z",
            "started_at": "2026-02-20T08:00:00Z",
            "state": "alive",
            "waiting": True,
            "last_asked_at": "2026-02-20T10:00:00Z",
            "active": 1,
        }
    ],
}
"""By the route's operation id: what is answered when all is well."""
