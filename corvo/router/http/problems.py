"""The HTTP status and code of each refusal of a shard: one table."""

from typing import Final

import msgspec

from corvo.ids import queue_of_id, shard_of
from corvo.protocol.ops.base import ID_BYTES_MAX, Rejected
from corvo.router.http.messages import APPLIED, NOT_APPLIED, UNKNOWN, Problem

_TABLE: Final[dict[str, tuple[int, str, str, int]]] = {
    "bad_request": (400, "VALIDATION_ERROR", NOT_APPLIED, 0),
    "not_an_agent": (400, "VALIDATION_ERROR", NOT_APPLIED, 0),
    "bad_json": (400, "PARSE_ERROR", NOT_APPLIED, 0),
    "unknown_op": (501, "UNSUPPORTED", NOT_APPLIED, 0),
    "unknown_query": (501, "UNSUPPORTED", NOT_APPLIED, 0),
    "forbidden": (403, "FORBIDDEN", NOT_APPLIED, 0),
    "payload_too_large": (413, "PAYLOAD_TOO_LARGE", NOT_APPLIED, 0),
    "too_large": (413, "PAYLOAD_TOO_LARGE", NOT_APPLIED, 0),
    "answer_too_large": (413, "ANSWER_TOO_LARGE", APPLIED, 0),
    "job_not_found": (404, "NOT_FOUND", NOT_APPLIED, 0),
    "batch_not_found": (404, "NOT_FOUND", NOT_APPLIED, 0),
    "schedule_not_found": (404, "NOT_FOUND", NOT_APPLIED, 0),
    "schedule_exists": (409, "SCHEDULE_EXISTS", NOT_APPLIED, 0),
    "schedule_changed": (409, "SCHEDULE_CHANGED", NOT_APPLIED, 0),
    "schedule_moving": (409, "SCHEDULE_MOVING", NOT_APPLIED, 500),
    "schedule_overlap": (409, "SCHEDULE_OVERLAP", NOT_APPLIED, 0),
    "too_many_schedules": (409, "TOO_MANY_SCHEDULES", NOT_APPLIED, 0),
    "key_not_found": (404, "NOT_FOUND", NOT_APPLIED, 0),
    "node_not_found": (404, "NOT_FOUND", NOT_APPLIED, 0),
    "other_instance": (409, "OTHER_INSTANCE", NOT_APPLIED, 0),
    "node_removed": (409, "NODE_REMOVED", NOT_APPLIED, 0),
    "name_taken": (409, "NAME_TAKEN", NOT_APPLIED, 0),
    "too_many_nodes": (409, "TOO_MANY_NODES", NOT_APPLIED, 0),
    "bad_map": (400, "VALIDATION_ERROR", NOT_APPLIED, 0),
    "no_map": (409, "NO_CLUSTER", NOT_APPLIED, 0),
    "map_changed": (409, "MAP_CHANGED", NOT_APPLIED, 0),
    "too_many_keys": (409, "TOO_MANY_KEYS", NOT_APPLIED, 0),
    "job_moved": (404, "NOT_FOUND", NOT_APPLIED, 0),
    "job_not_active": (409, "", NOT_APPLIED, 0),
    "bad_state": (409, "", NOT_APPLIED, 0),
    "changed_since": (409, "", NOT_APPLIED, 0),
    "waits_for_others": (409, "", NOT_APPLIED, 0),
    "duplicate": (409, "", NOT_APPLIED, 0),
    "batch_closed": (409, "BATCH_CLOSED", NOT_APPLIED, 0),
    "lease_lost": (409, "LEASE_LOST", NOT_APPLIED, 0),
    "last_node": (409, "LAST_NODE", NOT_APPLIED, 0),
    "last_replica": (409, "LAST_REPLICA", NOT_APPLIED, 0),
    "request_key_reused": (422, "REQUEST_KEY_REUSED", NOT_APPLIED, 0),
    "too_many_request_keys": (429, "OVERLOADED", NOT_APPLIED, 1_000),
    "entry_full": (429, "OVERLOADED", NOT_APPLIED, 50),
    "not_upgraded": (503, "NOT_UPGRADED", NOT_APPLIED, 5_000),
    "older_release": (409, "OLDER_RELEASE", NOT_APPLIED, 0),
    "disk_full": (503, "DISK_FULL", NOT_APPLIED, 5_000),
    "unknown": (503, "OUTCOME_UNKNOWN", UNKNOWN, 1_000),
}
"""By the shard's code: status, code, outcome, and when to try again. An empty code is the route's
own, such as ACK_ERROR."""


def problem_of(refused: Rejected, conflict: str = "CONFLICT") -> Problem:
    """A refusal as a problem; `conflict` is the route's own word for a state that does not do."""
    status, code, outcome, retry_after_ms = _TABLE.get(
        refused.code, (500, "INTERNAL_ERROR", UNKNOWN, 0)
    )
    return Problem(
        status,
        code or conflict,
        refused.error,
        outcome=outcome,
        reason=refused.code,
        field=refused.field,
        job_id=refused.job_id,
        retry_after_ms=retry_after_ms,
    )


def missing(job_id: str) -> Rejected:
    """The refusal for a job that does not exist."""
    shown = job_id[:ID_BYTES_MAX]
    is_own = not queue_of_id(job_id) and shard_of(job_id) is None
    fix = ": the id of a job with an id of yours is QUEUE~ID, such as mail~order-1042" * is_own
    return Rejected("job_not_found", f'job "{shown}" not found{fix}', job_id=shown)


read_refusal: Final = msgspec.json.Decoder(Rejected).decode
"""A refusal as a shard wrote it."""
