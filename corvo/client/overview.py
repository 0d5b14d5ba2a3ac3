"""The server at a glance over HTTP: its summary and its workers."""

from typing import Final

import msgspec

from corvo.client.calls import Client, read
from corvo.client.connections import Answer

SUMMARY: Final = "/api/v1/summary"
WORKERS: Final = "/api/v1/workers"


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of the summary."""

    name: str
    paused: bool = False
    counts: dict[str, int] = {}
    enqueued_1m: int = 0
    completed_1m: int = 0
    failed_1m: int = 0
    oldest_pending_at: str = ""


class ShardSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A shard of the summary."""

    shard: int
    status: str
    mirror: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, workers and shards."""

    queues: list[QueueSummary]
    totals: dict[str, int]
    workers: dict[str, int] = {}
    shards: list[ShardSummary] = []
    source: str = ""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker of the last 24 hours."""

    id: str
    hostname: str = ""
    queue_names: list[str] = []
    last_heartbeat: str = ""
    started_at: str = ""
    state: str = ""
    last_asked_at: str = ""
    waiting: bool = False
    """Whether a fetch of it waits for jobs now."""
    active: int | msgspec.UnsetType = msgspec.UNSET
    """Jobs that it has; not known while the mirror is unavailable."""


def get_summary(client: Client) -> Answer:
    """A `Summary`."""
    return client.get(SUMMARY)


def get_workers(client: Client) -> list[msgspec.Raw]:
    """Workers, the most recent first."""
    return read(client.get(WORKERS), list[msgspec.Raw])
