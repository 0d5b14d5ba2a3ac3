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
    "post_jobs_bulk_get": {"job_ids": [_JOB, _OTHER]},
    "post_jobs_id_cancel": {"why": "the order was withdrawn"},
    "post_jobs_id_move": {"queue": "mail-slow", "reset_attempts": True},
    "post_jobs_id_hold": {"reason": "somebody should look at it"},
    "post_jobs_id_reject": {"why": "it cannot be delivered"},
    "post_jobs_id_priority": {"priority": "critical"},
    "post_queues_name_concurrency": {"max": 20},
    "post_queues_name_throttle": {"rate": 100, "period": "1m"},
    "post_queues_name_retention": {"retention": "168h"},
    "post_auth_keys": {"name": "mailer", "role": "worker", "queue_scope": ["mail*"]},
}
"""By the route's operation id."""

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
        }
    ],
}
"""By the route's operation id: what is answered when all is well."""
