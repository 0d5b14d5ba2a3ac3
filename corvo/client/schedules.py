"""Schedules over HTTP: jobs that are created at due times."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from corvo.client.calls import Client, new_request_key, read, segment
from corvo.client.connections import Answer

SCHEDULES: Final = "/api/v1/schedules"
_PAGE: Final = 1_000


class DueTime(msgspec.Struct, frozen=True, kw_only=True):
    """A due time, in UTC and in the time zone of its schedule."""

    at: str
    local: str = ""
    note: str = ""
    """A sentence, if a change of the clocks affects it."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A due time that has come, or a run that was asked for."""

    due_at: str
    at: str = ""
    job_id: str = ""
    result: str = ""
    why: str = ""
    cause: str = ""
    count: int = 1


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule; the fields from `jitter_ms` on are not in lists."""

    id: str
    name: str = ""
    queue: str = ""
    cron: str = ""
    timezone: str = ""
    description: str = ""
    status: str = ""
    why: str = ""
    overlap: str = ""
    missed: str = ""
    next_run: str | None = None
    last_run: str | None = None
    fired: int = 0
    skipped: int = 0
    created_at: str = ""
    changed_at: str = ""
    changes: int = 0
    jitter_ms: int = 0
    missed_max: int = 0
    missed_after_ms: int = 0
    starts_at: str | None = None
    ends_at: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    priority: int = 2
    max_retries: int = 0
    tags: dict[str, str] = {}
    next: list[DueTime] = []
    runs: list[Run] = []
    running: list[str] = []
    moving_to: str = ""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """An expression, and its next due times."""

    cron: str = ""
    timezone: str = ""
    description: str = ""
    next: list[msgspec.Raw] = []


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was asked for."""

    job_id: str = ""


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """Due times of the past, and the jobs that were created for them."""

    due: list[DueTime] = []
    created: list[str] = []
    existing: list[str] = []


class ImportedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a crontab, and the result for it."""

    line: int
    id: str = ""
    status: str = ""
    cron: str = ""
    error: str = ""


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """The results for the lines of a crontab."""

    lines: list[msgspec.Raw] = []
    created: int = 0
    failed: int = 0


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    schedules: list[msgspec.Raw] = []
    has_more: bool = False
    after: str = ""


def pages(client: Client, queue: str = "") -> Iterator[list[msgspec.Raw]]:
    """Schedules by id, page by page; of all queues without a name."""
    after = ""
    while True:
        asked: dict[str, str | int] = {"limit": _PAGE}
        asked |= {"queue": queue} if queue else {}
        asked |= {"after": after} if after else {}
        page = read(client.get(SCHEDULES, asked), _Page)
        yield page.schedules
        if not page.has_more:
            return
        after = page.after


def get_schedule(client: Client, schedule_id: str) -> Answer:
    """A `Schedule` with all fields."""
    return client.get(_path(schedule_id))


def next_times(client: Client, schedule_id: str, count: int) -> Answer:
    """A `Preview` of a schedule."""
    return client.get(f"{_path(schedule_id)}/next", {"count": count})


def preview(client: Client, body: Mapping[str, object]) -> Answer:
    """A `Preview` of an expression without a schedule."""
    return client.query(f"{SCHEDULES}/preview", body)


def create(client: Client, body: Mapping[str, object]) -> Answer:
    """Create a schedule; its `Schedule`. The status is 200 if it exists already."""
    return client.change("POST", SCHEDULES, body, request_key=new_request_key())


def change(client: Client, schedule_id: str, body: Mapping[str, object]) -> Answer:
    """Give a schedule another definition; its `Schedule`."""
    return client.change("PUT", _path(schedule_id), body, request_key=new_request_key())


def act(client: Client, schedule_id: str, action: str) -> Answer:
    """An action on a schedule by its name in the path, such as `pause`."""
    path = f"{_path(schedule_id)}/{action}"
    return client.change("POST", path, request_key=new_request_key())


def delete(client: Client, schedule_id: str) -> Answer:
    """Delete a schedule. Its jobs stay."""
    return client.change("DELETE", _path(schedule_id), request_key=new_request_key())


def due_between(client: Client, schedule_id: str, since: str, until: str) -> Answer:
    """A `Backfill` that creates nothing: the due times of a span."""
    body = {"from": since, "to": until, "dry_run": True}
    return client.query(f"{_path(schedule_id)}/backfill", body)


def backfill(client: Client, schedule_id: str, since: str, until: str) -> Answer:
    """Create the jobs of a span; a `Backfill`."""
    path = f"{_path(schedule_id)}/backfill"
    return client.change("POST", path, {"from": since, "to": until}, request_key=new_request_key())


def import_crontab(client: Client, body: Mapping[str, object]) -> Answer:
    """Create a schedule for each line of a crontab; an `Import`."""
    return client.change("POST", f"{SCHEDULES}/import", body, request_key=new_request_key())


def _path(schedule_id: str) -> str:
    return f"{SCHEDULES}/{segment(schedule_id)}"
