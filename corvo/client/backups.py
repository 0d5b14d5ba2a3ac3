"""Backups over HTTP: a copy of all shards as an archive, and documents that are sent back."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from corvo.client.calls import Client, read
from corvo.client.connections import Answer

SILENT_S: Final = 90.0
"""How long the server may take until it has copied all shards."""


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What came back with one request."""

    jobs: int = 0
    queues: int = 0
    batches: int = 0
    schedules: int = 0
    spawned: int = 0
    api_keys: int = 0
    existing: int = 0
    existing_ids: list[str] = []


def download(client: Client, have: Sequence[Mapping[str, object]]) -> Iterator[bytes]:
    """A backup as a tar archive, without the files that an earlier one has."""
    return client.download("/api/v1/admin/backup", {"have": have}, SILENT_S)


def send_documents(client: Client, documents: msgspec.Struct, *, request_key: str) -> Restored:
    """Send documents back."""
    path = "/api/v1/admin/restore"
    answer: Answer = client.change("POST", path, documents, request_key=request_key)
    return read(answer, Restored)
