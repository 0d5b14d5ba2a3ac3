"""What the mirror should have of a shard's documents, by the words of `docs/mirror.md` alone.

The slow twin of `corvo.mirror.follow.rows`: it decodes by position and writes times with the
standard library. A row is a dict; what identifies it stands in its key. Of reasons alone it asks
the server's own function, which tests/router/test_reasons.py holds.
"""

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from corvo.model import Job
from corvo.protocol import reasons

Row: TypeAlias = dict[str, object]
Tables: TypeAlias = dict[str, dict[tuple[object, ...], Row]]

KEYS: Final = {
    "jobs": ("id", "shard"),
    "job_errors": ("job_id", "shard", "number"),
    "unique_locks": ("queue", "unique_key", "shard"),
    "batches": ("id", "shard"),
    "queues": ("name", "shard"),
    "workers": ("id", "shard"),
    "queue_counts": ("queue", "shard"),
    "throughput": ("queue", "shard", "minute"),
    "schedules": ("id", "shard"),
}
"""The tables that documents feed, and what tells their rows apart."""

_STATES: Final = (
    "pending",
    "active",
    "held",
    "completed",
    "retrying",
    "dead",
    "cancelled",
    "scheduled",
)


def time_of(at_ns: int) -> str | None:
    """Nine decimals, in UTC; nothing for no time."""
    if at_ns == 0:
        return None
    second = datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{second}.{at_ns % 10**9:09d}Z"


def _required(at_ns: int) -> str:
    return time_of(at_ns) or "1970-01-01T00:00:00.000000000Z"


def tables_of(documents: Mapping[int, Mapping[bytes, bytes]]) -> Tables:
    """The rows of all shards' documents."""
    tables: Tables = {name: {} for name in KEYS}
    for shard, of_shard in documents.items():
        for key, data in of_shard.items():
            for table, row in _rows_of(shard, key, data):
                identity = tuple(row[name] for name in KEYS[table])
                assert identity not in tables[table], (table, identity)
                tables[table][identity] = row
    return tables


def _rows_of(shard: int, key: bytes, data: bytes) -> list[tuple[str, Row]]:
    space, _, rest = key.partition(b"|")
    match space:
        case b"j":
            document = msgspec.msgpack.decode(data, type=Job)
            return _job(shard, msgspec.msgpack.decode(data, type=_Job), document)
        case b"je":
            return [("job_errors", _error(shard, rest, msgspec.json.decode(data, type=_Error)))]
        case b"qc":
            return [("queues", _queue(shard, rest, msgspec.json.decode(data, type=_Queue)))]
        case b"qs":
            counts = msgspec.msgpack.decode(data, type=list[int])
            counted = {state: counts[number] for number, state in enumerate(_STATES)}
            return [("queue_counts", {"queue": rest.decode(), "shard": shard, **counted})]
        case b"tp":
            return [
                (
                    "throughput",
                    _throughput(shard, msgspec.msgpack.decode(data, type=list[str | int])),
                )
            ]
        case b"b":
            return [("batches", _batch(shard, rest, msgspec.json.decode(data, type=_Batch)))]
        case b"w":
            return [("workers", _worker(shard, rest, msgspec.json.decode(data, type=_Worker)))]
        case b"sc":
            return [
                ("schedules", _schedule(shard, rest, msgspec.json.decode(data, type=_Schedule)))
            ]
    raise AssertionError(f"what is {key!r}?")


# Documents, as `docs/formats.md` has them.


class _Job(msgspec.Struct, array_like=True):
    id: str
    queue: str
    state: str
    payload: bytes
    created: int
    order: int
    trail: list[tuple[int, str, str, str]]
    priority: int
    kind: str
    attempt: int
    max_retries: int
    backoff: str
    base: int
    max: int
    jitter: int
    failures: int
    crashes: int
    max_crashes: int
    token: int
    lease_ms: int
    lease_expires: int
    max_run: int
    run_expires: int
    worker: str
    host: str
    cancel: bool
    settled: msgspec.Raw
    scheduled: int
    expires: int
    expires_active: bool
    started: int
    completed: int
    failed: int
    finished: int
    held: int
    hold_reason: str
    unique_key: str
    unique_until: int
    tags: dict[str, str]
    progress: bytes
    checkpoint: bytes
    result: bytes
    parent: str
    batch: str
    chain_id: str
    chain_step: int
    chain: bytes
    waits: list[str]
    agent: tuple[int, int, int, int, int] | None


class _Error(msgspec.Struct):
    attempt: int
    error: str
    at_ns: int
    backtrace: str = ""
    error_class: str = ""
    worker_id: str = ""


class _Queue(msgspec.Struct):
    paused: bool = False
    max_concurrency: int = 0
    rate_limit: int = 0
    rate_window_ms: int = 0
    created_ns: int = 0
    draining: bool = False
    retention_ms: int = 0


class _Batch(msgspec.Struct):
    total: int = 0
    pending: int = 0
    succeeded: int = 0
    failed: int = 0
    callback_queue: str = ""
    callback_payload: str = ""
    created_ns: int = 0
    cancelled: int = 0
    called_back: bool = False


class _Worker(msgspec.Struct):
    hostname: str = ""
    queues: list[str] = []
    seen_ns: int = 0
    started_ns: int = 0


class _ScheduledJob(msgspec.Struct):
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    unique_key: str = ""
    max_retries: int = 3


class _Schedule(msgspec.Struct):
    name: str
    queue: str
    cron: str
    job: str
    timezone: str = "UTC"
    overlap: str = "allow"
    missed: str = "one"
    paused: bool = False
    created_ns: int = 0
    changed_ns: int = 0
    next_ns: int = 0
    last_due_ns: int = 0
    fired: int = 0
    skipped: int = 0


def _job(shard: int, it: _Job, document: Job) -> list[tuple[str, Row]]:
    iterations, cost, timeout, iteration, total = it.agent or (0, 0, 0, 0, 0)
    row: Row = {
        "id": it.id,
        "shard": shard,
        "queue": it.queue,
        "state": it.state,
        "payload": it.payload.decode(),
        "priority": it.priority,
        "attempt": it.attempt,
        "max_retries": it.max_retries,
        "retry_backoff": it.backoff,
        "retry_base_delay_ms": it.base,
        "retry_max_delay_ms": it.max,
        "unique_key": it.unique_key or None,
        "batch_id": it.batch or None,
        "worker_id": it.worker or None,
        "hostname": it.host or None,
        "tags": _canonical(it.tags),
        "progress": it.progress.decode() or None,
        "checkpoint": it.checkpoint.decode() or None,
        "result": it.result.decode() or None,
        "result_schema": None,
        "parent_id": it.parent or None,
        "chain_id": it.chain_id or None,
        "chain_step": it.chain_step if it.chain_id else None,
        "chain_config": it.chain.decode() or None,
        "provider_error": 0,
        "routing": None,
        "routing_target": None,
        "routing_index": 0,
        "agent_max_iterations": iterations or None,
        "agent_max_cost_usd": cost / 1_000_000 or None,
        "agent_iteration_timeout": f"{timeout}ms" if timeout else None,
        "agent_iteration": iteration,
        "agent_total_cost_usd": total / 1_000_000,
        "hold_reason": it.hold_reason or None,
        "lease_expires_at": time_of(it.lease_expires),
        "scheduled_at": time_of(it.scheduled),
        "expire_at": time_of(it.expires),
        "created_at": _required(it.created),
        "started_at": time_of(it.started),
        "completed_at": time_of(it.completed),
        "failed_at": time_of(it.failed),
        "kind": it.kind,
        "changed_at": _required(it.trail[-1][0] if it.trail else it.created),
        "finished_at": time_of(it.finished),
        "held_at": time_of(it.held),
        "failures": it.failures,
        "crashes": it.crashes,
        "cancel_requested": int(it.cancel),
        "lease_ms": (it.lease_ms or None) if it.state == "active" else None,
        "reason": reasons.reason_text(document),
        "dlq_reason": reasons.dlq_reason(document),
    }
    if not it.unique_until:
        return [("jobs", row)]
    lock: Row = {
        "queue": it.queue,
        "unique_key": it.unique_key,
        "shard": shard,
        "job_id": it.id,
        "expires_at": time_of(it.unique_until),
    }
    return [("jobs", row), ("unique_locks", lock)]


def _canonical(tags: dict[str, str]) -> str | None:
    """As JSON, in the order of the keys' bytes, without blanks."""
    if not tags:
        return None
    pairs = ",".join(f"{_text(key)}:{_text(tags[key])}" for key in sorted(tags, key=str.encode))
    return f"{{{pairs}}}"


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _list(texts: list[str]) -> str | None:
    return f"[{','.join(map(_text, texts))}]" if texts else None


def _error(shard: int, rest: bytes, it: _Error) -> Row:
    [number] = struct.unpack(">I", rest[-4:])
    return {
        "job_id": rest[:-5].decode(),
        "shard": shard,
        "attempt": it.attempt,
        "error": it.error,
        "backtrace": it.backtrace or None,
        "error_class": it.error_class or None,
        "worker_id": it.worker_id or None,
        "number": number,
        "created_at": time_of(it.at_ns),
    }


def _queue(shard: int, rest: bytes, it: _Queue) -> Row:
    return {
        "name": rest.decode(),
        "shard": shard,
        "paused": int(it.paused),
        "max_concurrency": it.max_concurrency or None,
        "rate_limit": it.rate_limit or None,
        "rate_window_ms": it.rate_window_ms or None,
        "provider": None,
        "created_at": _required(it.created_ns),
        "draining": int(it.draining),
        "retention_ms": it.retention_ms or None,
    }


def _throughput(shard: int, values: list[str | int]) -> Row:
    counted = ["enqueued", "started", "completed", "failed", "dead", "cancelled"]
    names = ["queue", "minute", *counted]
    return {"shard": shard, **dict(zip(names, values, strict=True))}


def _batch(shard: int, rest: bytes, it: _Batch) -> Row:
    return {
        "id": rest.decode(),
        "shard": shard,
        "total": it.total,
        "pending": it.pending,
        "succeeded": it.succeeded,
        "failed": it.failed,
        "callback_queue": it.callback_queue or None,
        "callback_payload": it.callback_payload or None,
        "created_at": _required(it.created_ns),
        "cancelled": it.cancelled,
        "called_back": int(it.called_back),
    }


def _worker(shard: int, rest: bytes, it: _Worker) -> Row:
    return {
        "id": rest.decode(),
        "shard": shard,
        "hostname": it.hostname or None,
        "queues": _list(it.queues),
        "last_heartbeat": _required(it.seen_ns),
        "started_at": _required(it.started_ns),
    }


def _schedule(shard: int, rest: bytes, it: _Schedule) -> Row:
    job = msgspec.json.decode(it.job, type=_ScheduledJob)
    return {
        "id": rest.decode(),
        "shard": shard,
        "name": it.name,
        "queue": it.queue,
        "cron": it.cron,
        "timezone": it.timezone,
        "payload": bytes(job.payload).decode(),
        "unique_key": job.unique_key or None,
        "max_retries": job.max_retries,
        "last_run": time_of(it.last_due_ns),
        "next_run": None if it.paused else time_of(it.next_ns),
        "created_at": _required(it.created_ns),
        "paused": int(it.paused),
        "overlap": it.overlap,
        "missed": it.missed,
        "fired": it.fired,
        "skipped": it.skipped,
        "changed_at": _required(it.changed_ns),
    }
