"""Jobs over HTTP: enqueue, read, search, and the actions on one or many of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.client.calls import Client, new_request_key, read, segment
from corvo.client.connections import Answer
from corvo.client.errors import RequestFailed
from corvo.client.queues import QUEUES

JOBS: Final = "/api/v1/jobs"
SEARCH: Final = "/api/v1/jobs/search"
ENQUEUE: Final = "/api/v1/enqueue"
GET_MANY_MAX: Final = 1_000
"""Ids of one request to read jobs."""
PAGE_MAX: Final = 1_000
"""Jobs of one page of a search."""
_NOT_CAUGHT_UP: Final = "NOT_CAUGHT_UP"
_PAUSE_S: Final = 0.2
"""Between two searches while the mirror reads a shard from its beginning."""

ENDED: Final = frozenset({"completed", "dead", "cancelled"})
"""States of a job that has ended."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error of an attempt, or the reason of a job's end."""

    attempt: int = 0
    error: str = ""
    backtrace: str = ""
    worker_id: str = ""
    created_at: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as lists and details have it."""

    id: str
    queue: str
    state: str
    kind: str = ""
    priority: int = 2
    attempt: int = 0
    max_retries: int = 0
    unique_key: str = ""
    batch_id: str = ""
    worker_id: str = ""
    tags: dict[str, str] = {}
    parent_id: str = ""
    chain_id: str = ""
    created_at: str = ""
    scheduled_at: str = ""
    started_at: str = ""
    completed_at: str = ""
    failed_at: str = ""
    finished_at: str = ""
    changed_at: str = ""
    expire_at: str = ""
    lease_expires_at: str = ""
    hold_reason: str = ""
    last_error: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"null")
    progress: msgspec.Raw = msgspec.Raw(b"null")
    checkpoint: msgspec.Raw = msgspec.Raw(b"null")
    waits_for: list[str] = []
    traceparent: str = ""
    tracestate: str = ""
    errors: list[Failure] = []


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """How far the mirror has followed a shard."""

    index: int = 0
    is_whole: bool = True
    """Whether it has all jobs; false while it reads the shard from its beginning."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a search."""

    jobs: list[msgspec.Raw]
    total: int = 0
    total_is_exact: bool = True
    cursor: str | None = None
    partial: bool = False
    why_partial: str = ""
    is_behind: bool = False
    as_of: dict[str, Place] = {}
    """By shard: the state that the page shows."""
    positions: str = ""
    """The same as a header; a later page has at least these."""


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one enqueued job."""

    job_id: str | None = None
    status: str = ""
    unique_existing: bool = False
    error: str = ""
    code: str = ""


class EnqueuedMany(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to many enqueued jobs, in their order."""

    jobs: list[msgspec.Raw]
    batch_id: str = ""


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were read by their ids."""

    jobs: list[msgspec.Raw]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an action on a job."""

    status: str
    job_id: str = ""


def enqueue(client: Client, job: Mapping[str, object], *, request_key: str = "") -> Answer:
    """Enqueue a job; an `Enqueued`."""
    return client.change("POST", ENQUEUE, job, request_key=request_key or new_request_key())


def enqueue_many(
    client: Client,
    jobs: Sequence[Mapping[str, object] | msgspec.Raw],
    *,
    batch: Mapping[str, object] | None = None,
    request_key: str = "",
) -> Answer:
    """Enqueue many jobs; an `EnqueuedMany`."""
    body = {"jobs": jobs} if batch is None else {"jobs": jobs, "batch": batch}
    key = request_key or new_request_key()
    return client.change("POST", f"{ENQUEUE}/batch", body, request_key=key)


def get_job(client: Client, job_id: str) -> Answer:
    """A job with its errors and history."""
    return client.get(f"{JOBS}/{segment(job_id)}")


def read_job(client: Client, job_id: str) -> Job:
    """A job now."""
    return read(get_job(client, job_id), Job)


def get_jobs(client: Client, job_ids: Sequence[str]) -> list[msgspec.Raw]:
    """At most 1,000 jobs; unknown ids are left out."""
    answer = client.query(f"{JOBS}/bulk-get", {"job_ids": list(job_ids)})
    return read(answer, Jobs).jobs


def explain(client: Client, job_id: str) -> Answer:
    """Why no worker has a job."""
    return client.get(f"{JOBS}/{segment(job_id)}/explain")


def search(
    client: Client,
    filters: Mapping[str, object],
    *,
    limit: int,
    cursor: str = "",
    positions: str = "",
) -> Page:
    """One page of the jobs that match.

    It waits for the mirror to have all changes up to now; with positions, only for those.
    """
    body = {**filters, "limit": limit, **({"cursor": cursor} if cursor else {})}
    answer = client.query(SEARCH, body, min_seq=positions)
    return replace(read(answer, Page), positions=answer.headers.get("corvo-seq", ""))


def pages(
    client: Client,
    filters: Mapping[str, object],
    *,
    limit: int | None = None,
    is_patient: Callable[[], bool] = lambda: False,
) -> Iterator[Page]:
    """All pages of the jobs that match, up to a number of jobs.

    They have every change from before the call, or `is_behind` is set on the first page: the mirror
    was behind, and `is_patient` has stopped the wait for it. Later changes are not waited for. A
    pipe may be changing the jobs meanwhile, and the mirror may always be a little behind.
    """
    left = limit
    page: Page | None = None
    positions = ""
    while left is None or left > 0:
        count = PAGE_MAX if left is None else min(left, PAGE_MAX)
        if page is None:
            page = _first(client, filters, count, is_patient)
            positions = page.positions
        else:
            cursor = page.cursor or ""
            page = search(client, filters, limit=count, cursor=cursor, positions=positions)
        yield page
        if not page.cursor:
            return
        if left is not None:
            left -= len(page.jobs)


def _first(
    client: Client, filters: Mapping[str, object], limit: int, is_patient: Callable[[], bool]
) -> Page:
    """The first page, once the mirror has what was written before."""
    page = search(client, filters, limit=limit)
    if not page.is_behind or not is_patient():
        return page
    written = _present(client)
    while is_patient():
        try:
            page = search(client, filters, limit=limit, positions=written)
        except RequestFailed as error:
            if error.code != _NOT_CAUGHT_UP:
                raise
            continue
        if not page.is_behind and all(place.is_whole for place in page.as_of.values()):
            return page
        page = replace(page, is_behind=True)
        client.pause(_PAUSE_S)
    return page


def _present(client: Client) -> str:
    """The positions of the shards now; empty if one of them does not answer."""
    try:
        return client.get(QUEUES, {"limit": 1}).headers.get("corvo-seq", "")
    except RequestFailed:
        return ""


def act(
    client: Client, job_id: str, action: str, body: Mapping[str, object] | None = None
) -> Answer:
    """An action on a job by its name in the path, such as `retry`; a `Done`."""
    path = f"{JOBS}/{segment(job_id)}/{action}"
    return client.change("POST", path, body or None, request_key=new_request_key())


def delete(client: Client, job_id: str) -> Answer:
    """Delete a job; a `Done`."""
    path = f"{JOBS}/{segment(job_id)}"
    return client.change("DELETE", path, request_key=new_request_key())
