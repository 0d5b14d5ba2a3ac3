"""Queues over HTTP: their counts and settings, and the actions on them."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from corvo.client.calls import Client, new_request_key, read, segment
from corvo.client.connections import Answer

QUEUES: Final = "/api/v1/queues"
_PAGE: Final = 1_000


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs in the last whole minute, and in the last five."""

    enqueued_1m: int = 0
    completed_1m: int = 0
    failed_1m: int = 0
    enqueued_5m: int = 0
    completed_5m: int = 0
    failed_5m: int = 0


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its counts and settings."""

    name: str
    paused: bool = False
    draining: bool = False
    pending: int = 0
    active: int = 0
    held: int = 0
    completed: int = 0
    dead: int = 0
    scheduled: int = 0
    retrying: int = 0
    cancelled: int = 0
    max_concurrency: int | None = None
    rate_limit: int | None = None
    rate_window_ms: int | None = None
    retention_ms: int | None = None
    oldest_pending_at: str = ""
    rates: Rates | None = None


def pages(client: Client, *, is_reserved: bool = False) -> Iterator[list[msgspec.Raw]]:
    """All queues by name, page by page."""
    after = ""
    while True:
        query: dict[str, str | int] = {"limit": _PAGE}
        if after:
            query["after"] = after
        if is_reserved:
            query["reserved"] = "true"
        answer = client.get(QUEUES, query)
        page = read(answer, list[msgspec.Raw])
        yield page
        if not page or 'rel="next"' not in answer.headers.get("link", ""):
            return
        after = msgspec.json.decode(page[-1], type=Queue).name


def get_queue(client: Client, name: str) -> Answer:
    """A `Queue`."""
    return client.get(f"{QUEUES}/{segment(name)}")


def read_queue(client: Client, name: str) -> Queue:
    """A queue now."""
    return read(get_queue(client, name), Queue)


def act(client: Client, name: str, action: str, body: Mapping[str, object] | None = None) -> Answer:
    """An action on a queue by its name in the path, such as `pause`."""
    path = f"{QUEUES}/{segment(name)}/{action}"
    return client.change("POST", path, body or None, request_key=new_request_key())


def delete(client: Client, name: str) -> Answer:
    """Delete a queue with its settings and all its jobs."""
    path = f"{QUEUES}/{segment(name)}"
    return client.change("DELETE", path, request_key=new_request_key())
