"""Documents of a dashboard over HTTP: the summary, workers, jobs, and the history of a job."""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from corvo.client import bulk, overview
from corvo.client import jobs as single
from corvo.client.calls import Client, new_request_key, read, segment
from corvo.client.jobs import Failure

Unset: TypeAlias = msgspec.UnsetType
Worker: TypeAlias = overview.Worker

MINUTES: Final = 15
"""Minutes of the history of a queue that every server knows."""
MINUTES_MAX: Final = 60


class Minutes(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a queue in each of the last whole minutes, the oldest minute first."""

    enqueued: list[int]
    completed: list[int]
    failed: list[int]


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at a glance."""

    name: str
    paused: bool = False
    draining: bool = False
    max_concurrency: int = 0
    counts: dict[str, int] = {}
    workers: int | Unset = msgspec.UNSET
    enqueued_1m: int | Unset = msgspec.UNSET
    completed_1m: int | Unset = msgspec.UNSET
    failed_1m: int | Unset = msgspec.UNSET
    enqueued_this_minute: int | Unset = msgspec.UNSET
    completed_this_minute: int | Unset = msgspec.UNSET
    failed_this_minute: int | Unset = msgspec.UNSET
    minutes: Minutes | Unset = msgspec.UNSET
    oldest_pending_at: str = ""


class WorkerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Workers by state."""

    alive: int = 0
    not_fetching: int = 0


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard at a glance."""

    shard: int
    status: str
    leader: int | None = None
    term: int = 0
    mirror: str = ""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node at a glance."""

    number: int
    name: str
    state: str = ""
    is_reachable: bool | Unset = msgspec.UNSET


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at a glance, as the answering node sees it."""

    node: int
    replicas: int
    can_lose: int
    nodes: list[Node]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at a glance."""

    at: str
    minute: str = ""
    queues: list[Queue]
    totals: dict[str, int] = {}
    workers: WorkerCounts = WorkerCounts()
    shards: list[Shard] = []
    cluster: Cluster | Unset = msgspec.UNSET
    source: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job, of a search or alone."""

    id: str
    queue: str
    state: str
    attempt: int = 0
    max_retries: int = 0
    kind: str = ""
    priority: str | int = ""
    unique_key: str = ""
    batch_id: str = ""
    worker_id: str = ""
    hostname: str = ""
    tags: dict[str, str] = {}
    payload: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw | None = None
    progress: msgspec.Raw | None = None
    checkpoint: msgspec.Raw | None = None
    scheduled_at: str = ""
    created_at: str = ""
    started_at: str = ""
    finished_at: str = ""
    failed_at: str = ""
    lease_expires_at: str = ""
    changed_at: str = ""
    last_error: str = ""
    hold_reason: str = ""
    errors: list[Failure] = []


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a search."""

    jobs: list[Job]
    total: int = 0
    total_is_exact: bool = True
    partial: bool = False


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a job."""

    at: str
    what: str
    by: str = ""
    why: str = ""
    phase: str = ""
    ms: int | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a job in order, and the time in each phase."""

    moments: list[Moment]
    phases_ms: dict[str, int] = {}


def read_summary(client: Client, *, minutes: int = 0) -> Summary:
    """Everything at a glance, with so many minutes of history. Raises `ClientError`."""
    query: dict[str, str | int] = {"consistency": "stale"}
    if minutes:
        query["minutes"] = minutes
    return read(client.get(overview.SUMMARY, query), Summary)


def read_workers(client: Client) -> list[Worker]:
    """The workers of the last 24 hours. Raises `ClientError`."""
    return read(client.get(overview.WORKERS), list[Worker])


def search_jobs(client: Client, wanted: Mapping[str, str | int]) -> Jobs:
    """Jobs that match a filter, as the mirror has them now. Raises `ClientError`."""
    return read(client.get(single.JOBS, {**wanted, "consistency": "stale"}), Jobs)


def read_job(client: Client, job_id: str) -> Job:
    """A job with its errors. Raises `ClientError`."""
    return read(single.get_job(client, job_id), Job)


def read_timeline(client: Client, job_id: str) -> Timeline:
    """The history of a job. Raises `ClientError`."""
    return read(client.get(f"{single.JOBS}/{segment(job_id)}/timeline"), Timeline)


def change_jobs(client: Client, job_ids: list[str], action: str) -> None:
    """`retry`, `cancel` or `delete` jobs. Raises `ClientError`."""
    body = {"job_ids": job_ids, "action": action}
    client.change("POST", bulk.START, body, request_key=new_request_key())
