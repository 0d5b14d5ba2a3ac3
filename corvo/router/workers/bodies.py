"""Bodies of workers: from a shard's answer to JSON."""

import msgspec

from corvo.protocol.jobs import Time
from corvo.router.worker_health import KnownWorker, WorkerState
from corvo.times import format_time, format_time_or_none


class WorkerBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker that was heard of lately."""

    id: str
    hostname: str
    queues: str
    queue_names: list[str]
    last_heartbeat: Time
    started_at: Time
    state: WorkerState
    waiting: bool = False
    last_asked_at: Time | None = None
    active: int | msgspec.UnsetType = msgspec.UNSET
    """Jobs that it holds; not told to keys that are for some queues, nor without the mirror."""


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
