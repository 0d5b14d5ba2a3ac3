"""What a document is in the mirror: keys and documents of a shard, and the rows that they are.

`Rows` takes the pairs of a page in any order and has, by table, what is to be removed and what is
to be written. A document's rows follow from it alone. Every key of a page is there once, so nothing
that is removed was written by the same page; only the locks of jobs move between documents, and so
all locks of a page's jobs are removed before any is written.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import msgspec

from corvo.errors import CorvoError
from corvo.kv import keys
from corvo.mirror import schema
from corvo.model import STATES, Batch, Job, JobError, Queue, Throughput, Worker
from corvo.times import sortable, sortable_or_none
from corvo.wire import Pair

Value: TypeAlias = str | int | float | None
Row: TypeAlias = tuple[Value, ...]

_MICROS: Final = 1_000_000


class BadDocument(CorvoError):
    """A shard gave what is no document that we know: it may be of a newer version."""


class Rows:
    """What becomes of the pairs of one page of one shard."""

    def __init__(self, shard: int) -> None:
        self.shard: Final = shard
        self.jobs: list[Row] = []
        self.locks: list[Row] = []
        self.locks_of: list[Row] = []
        """Jobs whose locks are others now, or none."""
        self._removed: dict[str, list[Row]] = {statement: [] for statement in _REMOVE.values()}
        self._put: dict[str, list[Row]] = {statement: [] for statement in _PUT.values()}

    def take(self, pairs: Iterable[Pair]) -> None:
        """Take pairs in. Raises `BadDocument`."""
        shard = self.shard
        jobs, locks, locks_of = self.jobs.append, self.locks.append, self.locks_of.append
        job_prefix, job_skip = _JOB, len(_JOB)
        decode = _decode_job
        try:
            for key, data in pairs:
                if data is None:
                    self._remove(key)
                elif key.startswith(job_prefix):
                    job = decode(data)
                    jobs(job_row(shard, job))
                    locks_of((key[job_skip:].decode(), shard))
                    if job.unique_until_ns:
                        locks(lock_row(shard, job))
                else:
                    self._take_other(key, data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadDocument(
                f"shard {shard} has a document that cannot be read: {error}"
            ) from error

    def _take_other(self, key: bytes, data: bytes) -> None:
        prefix = prefix_of(key)
        self._put[_PUT[prefix]].append(_ROW[prefix](self.shard, key, data))
        if prefix == _THROUGHPUT:  # what was in its place is of another minute
            self._remove(key)

    def _remove(self, key: bytes) -> None:
        prefix = prefix_of(key)
        told = (*fields_of(key), self.shard)
        self._removed[_REMOVE[prefix]].append(told)
        if prefix == _JOB:
            self.locks_of.append(told)

    def statements(self, *, has_locks: bool) -> list[tuple[str, list[Row]]]:
        """What is to be done in this order, each with all its rows.

        `has_locks`: whether any lock of this shard is there that may have to go.
        """
        done = [
            *self._removed.items(),
            (REMOVE_LOCKS, self.locks_of if has_locks else []),
            (schema.PUT_JOB, self.jobs),
            (schema.PUT_LOCK, self.locks),
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
_QUEUE: Final = keys.QUEUE_CONFIG.prefix
_COUNTS: Final = keys.COUNTS.prefix
_THROUGHPUT: Final = keys.THROUGHPUT.prefix
_BATCH: Final = keys.BATCH.prefix
_WORKER: Final = keys.WORKER.prefix

_REMOVE: Final = {
    _JOB: "DELETE FROM jobs WHERE id = ? AND shard = ?",
    _JOB_ERROR: "DELETE FROM job_errors WHERE job_id = ? AND number = ? AND shard = ?",
    _QUEUE: "DELETE FROM queues WHERE name = ? AND shard = ?",
    _COUNTS: "DELETE FROM queue_counts WHERE queue = ? AND shard = ?",
    _THROUGHPUT: "DELETE FROM throughput WHERE queue = ? AND minute % 64 = ? AND shard = ?",
    _BATCH: "DELETE FROM batches WHERE id = ? AND shard = ?",
    _WORKER: "DELETE FROM workers WHERE id = ? AND shard = ?",
}
REMOVE_LOCKS: Final = "DELETE FROM unique_locks WHERE job_id = ? AND shard = ?"
_PUT: Final = {
    _JOB_ERROR: schema.PUT_ERROR,
    _QUEUE: schema.PUT_QUEUE,
    _COUNTS: schema.PUT_COUNTS,
    _THROUGHPUT: schema.PUT_THROUGHPUT,
    _BATCH: schema.PUT_BATCH,
    _WORKER: schema.PUT_WORKER,
}


# Rows, in the order of the columns in `corvo.mirror.schema`.


def job_row(shard: int, job: Job) -> Row:
    """The row of a job."""
    agent = job.agent
    trail = job.trail
    has_chain = bool(job.chain_id)
    return (
        job.id,
        shard,
        job.queue,
        job.state.word,
        text_of(job.payload),
        job.priority,
        job.attempt,
        job.max_retries,
        job.backoff.value,
        job.retry_base_delay_ms,
        job.retry_max_delay_ms,
        job.unique_key or None,
        job.batch_id or None,
        job.worker_id or None,
        job.hostname or None,
        tags_text(job.tags) if job.tags else None,
        text_of(job.progress) if job.progress else None,
        text_of(job.checkpoint) if job.checkpoint else None,
        text_of(job.result) if job.result else None,
        job.parent_id or None,
        job.chain_id or None,
        job.chain_step if has_chain else None,
        text_of(job.chain) if job.chain else None,
        (agent.max_iterations or None) if agent is not None else None,
        (agent.max_cost_micros / _MICROS or None) if agent is not None else None,
        (f"{agent.iteration_timeout_ms}ms" if agent.iteration_timeout_ms else None)
        if agent is not None
        else None,
        agent.iteration if agent is not None else 0,
        agent.total_cost_micros / _MICROS if agent is not None else 0,
        job.hold_reason or None,
        sortable_or_none(job.lease_expires_ns),
        sortable_or_none(job.scheduled_ns),
        sortable_or_none(job.expires_ns),
        sortable(job.created_ns),
        sortable_or_none(job.started_ns),
        sortable_or_none(job.completed_ns),
        sortable_or_none(job.failed_ns),
        job.kind,
        sortable(trail[-1].at_ns if trail else job.created_ns),
        sortable_or_none(job.finished_ns),
        sortable_or_none(job.held_ns),
        job.failures,
        job.crashes,
        job.cancel_requested,
        (job.lease_ms or None) if job.lease_expires_ns else None,
    )


def lock_row(shard: int, job: Job) -> Row:
    """The row of the lock that a job holds."""
    return (job.queue, job.unique_key, shard, job.id, sortable(job.unique_until_ns))


def _error_row(shard: int, key: bytes, data: bytes) -> Row:
    error = _decode_error(data)
    job_id, number = fields_of(key)
    return (
        job_id,
        shard,
        error.attempt,
        error.error,
        error.backtrace or None,
        error.error_class or None,
        error.worker_id or None,
        number,
        sortable(error.at_ns),
    )


def _queue_row(shard: int, key: bytes, data: bytes) -> Row:
    queue = _decode_queue(data)
    return (
        *fields_of(key),
        shard,
        queue.paused,
        queue.max_concurrency or None,
        queue.rate_limit or None,
        queue.rate_window_ms or None,
        sortable(queue.created_ns),
        queue.draining,
        queue.retention_ms or None,
    )


def _counts_row(shard: int, key: bytes, data: bytes) -> Row:
    counts = _decode_counts(data)
    known = counts[: len(STATES)]
    return (*fields_of(key), shard, *known, *([0] * (len(STATES) - len(known))))


def _throughput_row(shard: int, key: bytes, data: bytes) -> Row:
    minute = _decode_throughput(data)
    return (
        fields_of(key)[0],
        shard,
        minute.minute,
        minute.enqueued,
        minute.started,
        minute.completed,
        minute.failed,
        minute.dead,
        minute.cancelled,
    )


def _batch_row(shard: int, key: bytes, data: bytes) -> Row:
    batch = _decode_batch(data)
    return (
        *fields_of(key),
        shard,
        batch.total,
        batch.pending,
        batch.succeeded,
        batch.failed,
        batch.callback_queue or None,
        batch.callback_payload or None,
        sortable(batch.created_ns),
        batch.cancelled,
        batch.called_back,
    )


def _worker_row(shard: int, key: bytes, data: bytes) -> Row:
    worker = _decode_worker(data)
    return (
        *fields_of(key),
        shard,
        worker.hostname or None,
        text_of(_encode_json(worker.queues)) if worker.queues else None,
        sortable(worker.seen_ns),
        sortable(worker.started_ns),
    )


_ROW: Final[dict[bytes, Callable[[int, bytes, bytes], Row]]] = {
    _JOB_ERROR: _error_row,
    _QUEUE: _queue_row,
    _COUNTS: _counts_row,
    _THROUGHPUT: _throughput_row,
    _BATCH: _batch_row,
    _WORKER: _worker_row,
}


def text_of(data: bytes) -> str:
    """JSON as a client sent it, as text. What is not UTF-8 is shown as such, and not refused."""
    return data.decode("utf-8", "replace")


def tags_text(tags: dict[str, str]) -> str:
    """Tags as canonical JSON: equal tags are equal texts."""
    return _encode_sorted(tags).decode()


_decode_job: Final = msgspec.msgpack.Decoder(Job).decode
_decode_throughput: Final = msgspec.msgpack.Decoder(Throughput).decode
_decode_counts: Final = msgspec.msgpack.Decoder(list[int]).decode
_decode_error: Final = msgspec.json.Decoder(JobError).decode
_decode_queue: Final = msgspec.json.Decoder(Queue).decode
_decode_batch: Final = msgspec.json.Decoder(Batch).decode
_decode_worker: Final = msgspec.json.Decoder(Worker).decode
_encode_json: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
