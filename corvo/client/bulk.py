"""Bulk operations over HTTP: one action on many jobs, started, followed and stopped."""

from collections.abc import Mapping
from typing import Final

import msgspec

from corvo.client.calls import Client, read, segment
from corvo.client.connections import Answer

START: Final = "/api/v1/jobs/bulk"
BULKS: Final = "/api/v1/bulk"
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was left unchanged."""

    job_id: str
    code: str = ""
    error: str = ""


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk operation and its counts."""

    id: str = ""
    """Empty for one that was finished before the answer."""
    status: str = "completed"
    action: str = ""
    total: int = 0
    total_is_exact: bool = True
    processed: int = 0
    affected: int = 0
    errors: int = 0
    skipped_total: int = 0
    by_code: dict[str, int] = {}
    skipped: list[Skipped] = []
    error: str = ""
    by: str = ""
    move_to_queue: str = ""
    created_at: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether its counts are final."""
        return self.status in _ENDED


class Bulks(msgspec.Struct, frozen=True, kw_only=True):
    """Bulk operations, newest first."""

    bulks: list[msgspec.Raw]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that a bulk operation would select."""

    total: int
    would_affect: int
    is_exact: bool = True
    takes: list[str] = []
    states: dict[str, int] = {}
    queues: dict[str, int] = {}


class _Previewed(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: Preview


class _Started(msgspec.Struct, frozen=True, kw_only=True):
    bulk_operation_id: str


def start(client: Client, body: Mapping[str, object], *, request_key: str) -> Bulk:
    """Start a bulk operation, in the background if it is large or `async`.

    The same body with the same request key starts it once.
    """
    answer = client.change("POST", START, body, request_key=request_key)
    if answer.status != 202:
        return read(answer, Bulk)
    return read_bulk(client, read(answer, _Started).bulk_operation_id)


def preview(client: Client, body: Mapping[str, object]) -> tuple[Answer, Preview]:
    """The answer of a dry run, which changes nothing."""
    answer = client.query(START, {**body, "dry_run": True})
    return answer, read(answer, _Previewed).dry_run


def get_bulk(client: Client, bulk_id: str) -> Answer:
    """A `Bulk`."""
    return client.get(f"{BULKS}/{segment(bulk_id)}")


def read_bulk(client: Client, bulk_id: str) -> Bulk:
    """A bulk operation now."""
    return read(get_bulk(client, bulk_id), Bulk)


def get_bulks(client: Client, limit: int) -> list[msgspec.Raw]:
    """The newest bulk operations."""
    return read(client.get(BULKS, {"limit": limit}), Bulks).bulks


def stop(client: Client, bulk_id: str) -> Answer:
    """Stop a bulk operation; jobs that were changed stay changed. A `Bulk`."""
    return client.change("POST", f"{BULKS}/{segment(bulk_id)}/cancel")
