"""Number of jobs that a queue may give out now, and the limit that stops it."""

from bisect import bisect_right
from enum import Enum
from typing import Final

import msgspec

from corvo.kv.keys import prefix_end
from corvo.model import Queue, State
from corvo.protocol.ops.queues import RATE_MAX
from corvo.shard.state.tables import queue_keys
from corvo.shard.state.tx import Tx
from corvo.times import MS

ROWS_REMOVED_MAX: Final = 1_000
"""Rows that one fetch removes."""
_QUEUES_MAX: Final = 64
"""Queues whose rows are kept in memory."""
_ACTIVE: Final = State.ACTIVE.number


class Why(Enum):
    """The limit because of which a queue gives out no job."""

    PAUSED = "the queue is paused"
    CONCURRENCY = "as many are active as max_concurrency allows"
    RATE = "as many were fetched within the window as the rate limit allows"


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """Number of jobs that a queue may give out."""

    count: int
    why: Why | None = None  # the limit, if `count` is 0
    until_ns: int = 0  # time at which the limit ends by itself; 0 if it does not


def allowance(tx: Tx, queue: Queue, *, now_ns: int, want: int) -> Allowance:
    """How many of `want` jobs the settings of the queue allow now."""
    if queue.paused:
        return Allowance(0, Why.PAUSED)
    if not (queue.max_concurrency or queue.rate_limit):
        return Allowance(want)
    count = want
    if queue.max_concurrency:
        count = min(count, queue.max_concurrency - tx.count(queue.name)[_ACTIVE])
        if count <= 0:
            return Allowance(0, Why.CONCURRENCY)
    if queue.rate_limit:
        rows = _rows(tx, queue)
        used = len(rows) - _gone(queue, rows, now_ns=now_ns)
        count = min(count, queue.rate_limit - used)
        if count <= 0:
            # When so many have left the window that one more fits in.
            leaving = _fetched_ns(queue, rows[len(rows) - queue.rate_limit])
            return Allowance(0, Why.RATE, leaving + queue.rate_window_ms * MS)
    return Allowance(count)


def record_fetches(tx: Tx, queue: Queue, count: int) -> None:
    """Record that `count` jobs were given out now."""
    if not queue.rate_limit:
        return
    rows = _rows(tx, queue)
    gone = min(_gone(queue, rows, now_ns=tx.now_ns), ROWS_REMOVED_MAX)
    for row in rows[:gone]:
        tx.remove_key(row)
    del rows[:gone]
    stem = queue_keys(queue.name).rate + tx.now_ns.to_bytes(8, "big")
    for _ in range(count):
        row = stem + tx.next_order_ns().to_bytes(8, "big")
        tx.set_key(row, b"")
        rows.append(row)


def forget_rows(tx: Tx, queue: str) -> None:
    """Read the rows again: the queue's rate limit changed."""
    tx.rates.pop(queue, None)


def _rows(tx: Tx, queue: Queue) -> list[bytes]:
    """Every row, oldest first.

    Rows that have left the window and are not removed yet are among them: which rows are removed
    must not depend on when this replica read them first.
    """
    rows = tx.rates.get(queue.name)
    if rows is None:
        if len(tx.rates) >= _QUEUES_MAX:
            tx.rates.clear()
        prefix = queue_keys(queue.name).rate
        rows = tx.keys(prefix, prefix_end(prefix), limit=2 * RATE_MAX)
        tx.rates[queue.name] = rows
    return rows


def counted_since_ns(tx: Tx, queue: Queue) -> int:
    """The place up to which fetches do not count for a limit that is set now.

    Fetches without a limit do not count, nor do those that have left the window of the last limit:
    their rows may be removed or not.
    """
    if not queue.rate_limit:
        return tx.order_ns
    rows = _rows(tx, queue)
    gone = _gone(queue, rows, now_ns=tx.now_ns)
    return _place(rows[gone - 1]) if gone else queue.rate_since_ns


def _gone(queue: Queue, rows: list[bytes], *, now_ns: int) -> int:
    """Number of rows at the front that no longer count at `now_ns`."""
    edge_ns = max(0, now_ns - queue.rate_window_ms * MS)
    edge = queue_keys(queue.name).rate + edge_ns.to_bytes(8, "big") + b"\xff" * 9
    before = bisect_right(rows, queue.rate_since_ns, key=_place) if queue.rate_since_ns else 0
    return max(before, bisect_right(rows, edge))


def _fetched_ns(queue: Queue, row: bytes) -> int:
    at = len(queue_keys(queue.name).rate)
    return int.from_bytes(row[at : at + 8], "big")


def _place(row: bytes) -> int:
    return int.from_bytes(row[-8:], "big")
