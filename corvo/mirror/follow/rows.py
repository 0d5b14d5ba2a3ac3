"""The rows of a page of changes: pairs of keys and documents of a shard, sorted by table.

`Rows` takes the pairs of a page in any order and has, by table, the rows to remove and the rows to
write. A document's rows follow from it alone. Every key of a page is there once, so no row is both
written and removed by the same page. Only the locks of jobs move between documents: all locks of a
page's jobs are removed before any is written.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

import msgspec

from corvo.errors import CorvoError
from corvo.kv import keys
from corvo.mirror.follow import schema
from corvo.mirror.follow.columns import Feed, Row
from corvo.model import STATES, Batch, Job, JobError, Queue, Schedule, Throughput, Worker
from corvo.protocol.wire import Pair

T = TypeVar("T")
_Fed: TypeAlias = tuple[str, Callable[[int, bytes, bytes], Row]]
"""The statement that writes a row; and the row of a shard's key and document."""


class BadDocument(CorvoError):
    """A shard gave what is no document that we know: it may be of a newer version."""


class Rows:
    """The rows of one page of one shard."""

    def __init__(self, shard: int) -> None:
        self.shard: Final = shard
        self.queues: set[str] = set()
        """Queues of which something is written or counted again. When a job leaves a queue, the
        same entry of the log changes the counts of that queue, or puts another job there."""
        self.jobs: list[Row] = []
        self.locks: list[Row] = []
        self.locks_of: list[Row] = []
        """Jobs whose locks are to be removed, before those that they hold now are written."""
        self._removed: dict[str, list[Row]] = {statement: [] for statement in _REMOVE.values()}
        self._put: dict[str, list[Row]] = {statement: [] for statement, _ in _FED.values()}

    def take(self, pairs: Iterable[Pair]) -> None:
        """Take pairs in. Raises `BadDocument`."""
        shard = self.shard
        jobs, locks, locks_of = self.jobs.append, self.locks.append, self.locks_of.append
        in_queue = self.queues.add
        job_prefix, decode = _JOB, _decode_job
        job_row, lock_row = schema.JOB.summed, schema.LOCK.summed
        try:
            for key, data in pairs:
                if data is None:
                    self._remove(key)
                elif key.startswith(job_prefix):
                    job = decode(data)
                    jobs(job_row(shard, job, ()))
                    locks_of((job.id, shard))
                    in_queue(job.queue)
                    if job.unique_until_ns:
                        locks(lock_row(shard, job, ()))
                else:
                    self._take_other(key, data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadDocument(
                f"shard {shard} has a document that cannot be read: {error}"
            ) from error

    def _take_other(self, key: bytes, data: bytes) -> None:
        prefix = prefix_of(key)
        put, row = _FED[prefix]
        self._put[put].append(row(self.shard, key, data))
        if prefix in _OF_QUEUES:
            self.queues.add(str(fields_of(key)[0]))
        if prefix == _THROUGHPUT:  # the row in its place is of another minute
            self._remove(key)

    def _remove(self, key: bytes) -> None:
        prefix = prefix_of(key)
        removed = (*fields_of(key), self.shard)
        self._removed[_REMOVE[prefix]].append(removed)
        if prefix in _OF_QUEUES:
            self.queues.add(str(removed[0]))
        if prefix == _JOB:
            self.locks_of.append(removed)

    def statements(self, *, has_locks: bool) -> list[tuple[str, list[Row]]]:
        """What is to be done in this order, each with all its rows.

        `has_locks`: whether any lock of this shard is there that may have to go.
        """
        done = [
            *self._removed.items(),
            (REMOVE_LOCKS, self.locks_of if has_locks else []),
            (schema.JOB.put, self.jobs),
            (schema.LOCK.put, self.locks),
            *self._put.items(),
        ]
        return [(statement, rows) for statement, rows in done if rows]


# Keys.


def prefix_of(key: bytes) -> bytes:
    """Which space a key is of. Raises `BadDocument` for one that feeds nothing."""
    prefix = key[: key.find(b"|") + 1]
    if prefix not in _REMOVE:
        raise BadDocument(f"a key that is not known: {key[:80]!r}")
    return prefix


def fields_of(key: bytes) -> Row:
    """The fields of a key, as rows have them."""
    prefix = prefix_of(key)
    rest = key[len(prefix) :]
    if prefix == _JOB_ERROR:
        return rest[:-5].decode(), int.from_bytes(rest[-4:], "big")
    if prefix == _THROUGHPUT:
        return rest[:-2].decode(), rest[-1]
    return (rest.decode(),)


_JOB: Final = keys.JOB.prefix
_JOB_ERROR: Final = keys.JOB_ERROR.prefix
_THROUGHPUT: Final = keys.THROUGHPUT.prefix

_OF_QUEUES: Final = frozenset({keys.QUEUE_CONFIG.prefix, keys.COUNTS.prefix, _THROUGHPUT})
"""Spaces whose keys begin with the name of a queue."""
_REMOVE: Final = {
    _JOB: "DELETE FROM jobs WHERE id = ? AND shard = ?",
    _JOB_ERROR: "DELETE FROM job_errors WHERE job_id = ? AND number = ? AND shard = ?",
    keys.QUEUE_CONFIG.prefix: "DELETE FROM queues WHERE name = ? AND shard = ?",
    keys.COUNTS.prefix: "DELETE FROM queue_counts WHERE queue = ? AND shard = ?",
    _THROUGHPUT: "DELETE FROM throughput WHERE queue = ? AND minute % 64 = ? AND shard = ?",
    keys.BATCH.prefix: "DELETE FROM batches WHERE id = ? AND shard = ?",
    keys.WORKER.prefix: "DELETE FROM workers WHERE id = ? AND shard = ?",
    keys.SCHEDULE.prefix: "DELETE FROM schedules WHERE id = ? AND shard = ?",
}
REMOVE_LOCKS: Final = "DELETE FROM unique_locks WHERE job_id = ? AND shard = ?"


def _fed(decode: Callable[[bytes], T], feed: Feed[T]) -> _Fed:
    row = feed.summed
    return feed.put, lambda shard, key, data: row(shard, decode(data), fields_of(key))


def _counts(data: bytes) -> list[int]:
    """The counts of a queue by state; an older shard knows fewer states."""
    counts = _decode_counts(data)[: len(STATES)]
    return counts + [0] * (len(STATES) - len(counts))


_decode_job: Final = msgspec.msgpack.Decoder(Job).decode
_decode_counts: Final = msgspec.msgpack.Decoder(list[int]).decode

_FED: Final[dict[bytes, _Fed]] = {
    _JOB_ERROR: _fed(msgspec.json.Decoder(JobError).decode, schema.ERROR),
    keys.QUEUE_CONFIG.prefix: _fed(msgspec.json.Decoder(Queue).decode, schema.QUEUE),
    keys.COUNTS.prefix: _fed(_counts, schema.COUNTS),
    _THROUGHPUT: _fed(msgspec.msgpack.Decoder(Throughput).decode, schema.MINUTE),
    keys.BATCH.prefix: _fed(msgspec.json.Decoder(Batch).decode, schema.BATCH),
    keys.WORKER.prefix: _fed(msgspec.json.Decoder(Worker).decode, schema.WORKER),
    keys.SCHEDULE.prefix: _fed(msgspec.json.Decoder(Schedule).decode, schema.SCHEDULE),
}


def row_of(shard: int, key: bytes, data: bytes) -> Row:
    """The row of one document, without its sum. Raises `msgspec.MsgspecError`."""
    if key.startswith(_JOB):
        return schema.JOB.row(shard, _decode_job(data), ())
    _, row = _FED[prefix_of(key)]
    return row(shard, key, data)[:-1]


def lock_of(shard: int, data: bytes) -> Row | None:
    """The row of the unique lock of a job; None if it holds none. Raises `msgspec.MsgspecError`."""
    job = _decode_job(data)
    return schema.LOCK.row(shard, job, ()) if job.unique_until_ns else None
