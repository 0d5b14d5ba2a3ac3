"""Batches and dead jobs over HTTP: lists that the shards answer, page by page."""

from collections.abc import Iterator
from typing import Final

import msgspec

from corvo.client.calls import Client, read, segment
from corvo.client.connections import Answer

BATCHES: Final = "/api/v1/batches"
DEAD: Final = "/api/v1/dead"
_PAGE: Final = 1_000


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch and the counts of its jobs."""

    id: str
    queue: str = ""
    status: str = ""
    total: int = 0
    pending: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    removed: int = 0
    callback_queue: str = ""
    created_at: str = ""


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    batches: list[msgspec.Raw] = []
    jobs: list[msgspec.Raw] = []
    has_more: bool = False
    cursor: str = ""


def get_batch(client: Client, batch_id: str) -> Answer:
    """A `Batch`."""
    return client.get(f"{BATCHES}/{segment(batch_id)}")


def pages(client: Client, limit: int | None) -> Iterator[list[msgspec.Raw]]:
    """Batches, newest first, up to a number."""
    yield from _pages(client, BATCHES, {}, limit)


def dead_pages(client: Client, queue: str, limit: int | None) -> Iterator[list[msgspec.Raw]]:
    """Dead jobs, newest first, up to a number; of all queues without a name."""
    yield from _pages(client, DEAD, {"queue": queue} if queue else {}, limit)


def _pages(
    client: Client, path: str, query: dict[str, str], limit: int | None
) -> Iterator[list[msgspec.Raw]]:
    left, cursor = limit, ""
    while left is None or left > 0:
        asked: dict[str, str | int] = {
            **query,
            "limit": _PAGE if left is None else min(left, _PAGE),
        }
        if cursor:
            asked["cursor"] = cursor
        page = read(client.get(path, asked), _Page)
        found = page.batches or page.jobs
        yield found
        if not page.has_more:
            return
        cursor = page.cursor
        if left is not None:
            left -= len(found)
