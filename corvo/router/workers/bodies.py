"""Bodies of workers: from a shard's answer to JSON."""

from collections.abc import Iterable

import msgspec

from corvo.model import Worker
from corvo.protocol.jobs import Time
from corvo.router.worker_health import KnownWorker, WorkerState
from corvo.times import format_time, format_time_or_none


class WorkerBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker that was heard of lately."""

    id: str
    hostname: str
    queues: str
    """The list of the queues that it fetched from, as JSON within a string."""
    queue_names: list[str]
    """The same as a list."""
    last_heartbeat: Time
    """When it was heard of last, however."""
    started_at: Time
    state: WorkerState
    """`not_fetching`: it renews leases or sends heartbeats, and has room, but does not fetch."""
    waiting: bool = False
    """Whether a fetch of it waits for work now."""
    last_asked_at: Time | None = None
    """When it asked for work last."""
    active: int | msgspec.UnsetType = msgspec.UNSET
    """Jobs that it holds; not told to keys that are for some queues, nor without the mirror."""


def merge_workers(seen: Iterable[Worker]) -> list[Worker]:
    """Workers as several shards know them: each once, whoever was seen last first.

    A worker that fetches from queues of several shards is known to each of them, by the queues that
    are there.
    """
    merged: dict[str, Worker] = {}
    for worker in seen:
        known = merged.get(worker.id)
        merged[worker.id] = worker if known is None else _merge(known, worker)
    return sorted(merged.values(), key=lambda worker: (-worker.seen_ns, worker.id))


def _merge(one: Worker, other: Worker) -> Worker:
    latest = one if one.seen_ns >= other.seen_ns else other
    return Worker(
        id=one.id,
        hostname=latest.hostname,
        queues=tuple(sorted({*one.queues, *other.queues})),
        started_ns=min(one.started_ns, other.started_ns),
        seen_ns=latest.seen_ns,
    )


def worker_body(
    heard: KnownWorker, names: list[str], state: WorkerState, *, active: int | None
) -> WorkerBody:
    """A worker for whoever may see queues of these names."""
    return WorkerBody(
        id=heard.id,
        hostname=heard.hostname,
        queues=msgspec.json.encode(names).decode(),
        queue_names=names,
        last_heartbeat=format_time(heard.seen_ns),
        started_at=format_time(heard.started_ns or heard.seen_ns),
        state=state,
        waiting=heard.is_asking,
        last_asked_at=format_time_or_none(heard.asked_ns),
        active=msgspec.UNSET if active is None else active,
    )
