"""What a full pass finds gone: rows whose documents a page should have had, and does not.

A page says everything of a range of keys. Which rows are of that range is asked table by table, by
the first field of their keys; the order of texts in SQLite is that of their bytes, as it is with
keys.
"""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from corvo.kv import keys
from corvo.mirror.rows import SLOTS


class _Kept(msgspec.Struct, frozen=True):
    """How rows tell their keys."""

    prefix: bytes
    select: str
    """Fields of the keys: their first one between two bounds, of one shard, in their order."""
    key: Callable[..., bytes]


def _kept(space: keys.Space, table: str, *fields: str) -> _Kept:
    first = fields[0].partition(" ")[0]
    names = [field.rpartition(" ")[2] for field in fields]
    return _Kept(
        space.prefix,
        f"SELECT {', '.join(fields)} FROM {table}"  # noqa: S608 -- names of ours
        f" WHERE {first} >= ? AND {first} <= ? AND shard = ? ORDER BY {', '.join(names)}",
        space.build,
    )


_KEPT: Final = (
    _kept(keys.BATCH, "batches", "id"),
    _kept(keys.JOB_ERROR, "job_errors", "job_id", "number"),
    _kept(keys.JOB, "jobs", "id"),
    _kept(keys.QUEUE_CONFIG, "queues", "name"),
    _kept(keys.COUNTS, "queue_counts", "queue"),
    _kept(keys.THROUGHPUT, "throughput", "queue", f"minute % {SLOTS} AS slot"),
    _kept(keys.WORKER, "workers", "id"),
)
_END: Final = b""
"""SQLite has every text before every blob: a bound that no text reaches."""


def stale(
    connection: sqlite3.Connection,
    shard: int,
    scanned: tuple[bytes, bytes],
    told: frozenset[bytes],
) -> Iterator[bytes]:
    """The keys of rows of a shard behind the first key, up to the second, that are not told."""
    after, last = scanned
    for kept in _KEPT:
        bounds = _bounds(kept.prefix, after, last)
        if bounds is None:
            continue
        for fields in connection.execute(kept.select, (*bounds, shard)):
            key = kept.key(*fields)
            if after < key and (not last or key <= last) and key not in told:
                yield key


def _bounds(prefix: bytes, after: bytes, last: bytes) -> tuple[str, str | bytes] | None:
    """What the first field of a key is between; None when no key of the space is in the range."""
    if after >= keys.prefix_end(prefix) or (last and last < prefix):
        return None
    low = _first(prefix, after) if after.startswith(prefix) else ""
    high: str | bytes = _first(prefix, last) if last.startswith(prefix) else _END
    return low, high


def _first(prefix: bytes, key: bytes) -> str:
    return key[len(prefix) :].partition(b"\0")[0].decode()
