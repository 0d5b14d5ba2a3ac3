"""Rows to remove for a page of a full pass: the shard has no such documents any more.

A page of a pass has all documents in a range of keys. The rows in that range are selected from
each table by the first field of their keys: SQLite orders texts by their bytes, as keys are.
"""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from corvo.kv import keys


class _Kept(msgspec.Struct, frozen=True):
    """How the keys of a table's rows are found."""

    prefix: bytes
    select: str
    """Selects a text and a number of the rows whose text is between two bounds, in key order."""
    key: Callable[[str, int], bytes]


def _named(space: keys.Space, table: str, name: str) -> _Kept:
    """Rows whose key is a name alone."""
    prefix = space.prefix
    return _Kept(
        prefix,
        f"SELECT {name}, 0 FROM {table}"
        f" WHERE {name} >= ? AND {name} <= ? AND shard = ? ORDER BY {name}",
        lambda text, _: prefix + text.encode(),
    )


_KEPT: Final = (
    _named(keys.BATCH, "batches", "id"),
    _Kept(
        keys.JOB_ERROR.prefix,
        "SELECT job_id, number FROM job_errors"
        " WHERE job_id >= ? AND job_id <= ? AND shard = ? ORDER BY job_id, number",
        lambda job_id, number: b"je|%b\0%b" % (job_id.encode(), number.to_bytes(4, "big")),
    ),
    _named(keys.JOB, "jobs", "id"),
    _named(keys.QUEUE_CONFIG, "queues", "name"),
    _named(keys.COUNTS, "queue_counts", "queue"),
    _Kept(
        keys.THROUGHPUT.prefix,
        "SELECT queue, minute % 64 AS slot FROM throughput"
        " WHERE queue >= ? AND queue <= ? AND shard = ? ORDER BY queue, slot",
        lambda queue, slot: b"tp|%b\0%b" % (queue.encode(), slot.to_bytes(1, "big")),
    ),
    _named(keys.SCHEDULE, "schedules", "id"),
    _named(keys.WORKER, "workers", "id"),
)
_END: Final = b""
"""A bound after every text: SQLite orders texts before blobs."""


def stale(
    connection: sqlite3.Connection,
    shard: int,
    scanned: tuple[bytes, bytes],
    told: frozenset[bytes],
) -> Iterator[bytes]:
    """Keys of a shard's rows after the first key, up to the second, that are not in `told`."""
    after, last = scanned
    for kept in _KEPT:
        bounds = _bounds(kept.prefix, after, last)
        if bounds is None:
            continue
        for text, number in connection.execute(kept.select, (*bounds, shard)):
            key = kept.key(text, number)
            if after < key and (not last or key <= last) and key not in told:
                yield key


def _bounds(prefix: bytes, after: bytes, last: bytes) -> tuple[str, str | bytes] | None:
    """Bounds of the first field of a key; None if no key of the space is in the range."""
    if after >= keys.prefix_end(prefix) or (last and last < prefix):
        return None
    low = _first(prefix, after) if after.startswith(prefix) else ""
    high: str | bytes = _first(prefix, last) if last.startswith(prefix) else _END
    return low, high


def _first(prefix: bytes, key: bytes) -> str:
    return key[len(prefix) :].partition(b"\0")[0].decode()
