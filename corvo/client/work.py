"""The requests of workers over HTTP: fetch, finish, and renew leases."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from corvo.client.calls import Client, new_request_key, read, segment
from corvo.client.connections import Answer

API: Final = "/api/v1"
ITEMS_MAX: Final = 512
"""Jobs of one request to fetch or finish jobs."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its lease."""

    job_id: str
    queue: str
    payload: msgspec.Raw
    attempt: int = 1
    max_retries: int = 0
    lease_duration: int = 60
    """Seconds."""
    lease_token: int = 0
    lease_expires_at: str = ""
    kind: str = ""
    checkpoint: msgspec.Raw = msgspec.Raw(b"null")
    tags: dict[str, str] = {}
    traceparent: str = ""
    tracestate: str = ""


class _Fetched(msgspec.Struct, frozen=True):
    jobs: list[Fetched]


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of one job of several."""

    job_id: str
    status: str = ""
    error: str = ""
    code: str = ""
    reason: str = ""
    outcome: str = ""


class _Results(msgspec.Struct, frozen=True):
    results: list[Finished]


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one lease: `ok`, `cancel` or `error`."""

    status: str
    reason: str = ""
    code: str = ""
    lease_expires_at: str = ""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    jobs: dict[str, Renewed]


def fetch_many(
    client: Client,
    queues: Sequence[str],
    *,
    count: int,
    worker_id: str,
    hostname: str = "",
    wait_ms: int = 0,
    lease_ms: int = 60_000,
) -> Answer:
    """Fetch up to a number of jobs. The answer has `jobs`, each a `Fetched`.

    It has no request key: if the connection ends, the server takes the jobs back.
    """
    body = {
        "queues": list(queues),
        "count": count,
        "worker_id": worker_id,
        "hostname": hostname,
        "wait_ms": wait_ms,
        "lease_ms": lease_ms,
    }
    return client.change("POST", f"{API}/fetch/batch", body, wait_s=wait_ms / 1_000)


def fetched(answer: Answer) -> list[Fetched]:
    """The jobs of an answer to a fetch."""
    return read(answer, _Fetched).jobs


def finish(
    client: Client, verb: str, job_id: str, body: Mapping[str, object] | None = None
) -> Answer:
    """`ack`, `fail`, `release` or `snooze` a job.

    With a request key it can be repeated: the server answers as the first time.
    """
    path = f"{API}/{verb}/{segment(job_id)}"
    return client.change("POST", path, body or {}, request_key=new_request_key())


_LISTS: Final = {"ack": "acks", "fail": "fails", "release": "jobs", "snooze": "jobs"}


def finish_many(client: Client, verb: str, items: Sequence[Mapping[str, object]]) -> list[Finished]:
    """The same for up to 512 jobs, each with its `job_id`."""
    body = {_LISTS[verb]: items}
    answer = client.change("POST", f"{API}/{verb}/batch", body, request_key=new_request_key())
    return read(answer, _Results).results


def heartbeat(client: Client, jobs: Mapping[str, Mapping[str, object]]) -> Answer:
    """Renew leases, by job id, each with its `lease_token`; a `Heartbeat`."""
    body = {"jobs": jobs}
    return client.change("POST", f"{API}/heartbeat", body, request_key=new_request_key())
