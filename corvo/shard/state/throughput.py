"""Counts of events by queue and minute, for dashboards; no op depends on them.

They follow from the changes of jobs' states, at the entry's time. The last hour of each queue is
kept, one row for each minute with an event; the row of a minute replaces the one `SLOTS` minutes
before it. What one entry adds is also told by itself, for metrics.
"""

from typing import Final, TypeAlias

import msgspec

from corvo.kv.keys import THROUGHPUT, prefix_end
from corvo.kv.tables import Transaction
from corvo.model import State, Throughput
from corvo.times import MINUTE_NS

SLOTS: Final = 64
ROWS_MAX: Final = 10_000
"""Queues whose last row is in memory."""

_ACTIVE: Final = State.ACTIVE.number
_COMPLETED: Final = State.COMPLETED.number
_DEAD: Final = State.DEAD.number
_CANCELLED: Final = State.CANCELLED.number
_RETRYING: Final = State.RETRYING.number
_NONE_OFTEN: Final = (0,) * 7
_NONE_SELDOM: Final = (0,) * 3
"""Of the facts that are told by place: expired jobs, lost leases and duplicates are the last."""
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Throughput).decode


Happened: TypeAlias = tuple[str, tuple[int, ...]]
"""A queue, and what happened in it by the places of `corvo.protocol.numbers.COUNTED`. Nothing at
all: the queue is gone."""


class Minutes:
    """The counts of one shard."""

    def __init__(self) -> None:
        self.happened: list[Happened] = []
        """What the entry has added, in order. Only metrics are made from it."""
        self._rows: dict[str, Throughput] = {}
        self._failed: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        self._expired: dict[str, int] = {}
        self._lost: dict[str, int] = {}
        self._duplicates: dict[str, int] = {}

    def failed(self, queue: str) -> None:
        """Count a failed attempt."""
        self._failed[queue] = self._failed.get(queue, 0) + 1

    def arrived(self, queue: str) -> None:
        """Do not count a job as enqueued: it came from another shard."""
        self._arrived[queue] = self._arrived.get(queue, 0) + 1

    def expired(self, queue: str) -> None:
        """Count a job that expired. It becomes dead."""
        self._expired[queue] = self._expired.get(queue, 0) + 1

    def lost(self, queue: str) -> None:
        """Count a job that is taken from its worker, because its lease or its time is over."""
        self._lost[queue] = self._lost.get(queue, 0) + 1

    def duplicate(self, queue: str) -> None:
        """Count a job that is not created, because another one exists in its place."""
        self._duplicates[queue] = self._duplicates.get(queue, 0) + 1

    def count(self, tx: Transaction) -> None:
        """Count the events of this entry since the last call."""
        minute = tx.now_ns // MINUTE_NS
        # The queue of a failed or arrived job is among those counted.
        for queue in tx.counted:
            came = tx.came(queue)
            enqueued = came[-1] - self._arrived.pop(queue, 0)
            failed = self._failed.pop(queue, 0)
            finished = came[_COMPLETED] or came[_DEAD] or came[_CANCELLED]
            if enqueued or failed or finished or came[_ACTIVE]:
                before = self._row(tx, queue, minute)
                row = self._rows[queue] = Throughput(
                    queue,
                    minute,
                    before.enqueued + enqueued,
                    before.started + came[_ACTIVE],
                    before.completed + came[_COMPLETED],
                    before.failed + failed,
                    before.dead + came[_DEAD],
                    before.cancelled + came[_CANCELLED],
                )
                key = _key(queue, minute)
                tx.set_key(key, _encode(row))
                tx.note(key)
                self.happened.append(
                    (
                        queue,
                        (
                            enqueued,
                            came[_ACTIVE],
                            came[_COMPLETED],
                            failed,
                            came[_RETRYING],
                            came[_DEAD],
                            came[_CANCELLED],
                            *_NONE_SELDOM,
                        ),
                    )
                )
        if self._expired or self._lost or self._duplicates:
            self._count_seldom()
        assert not self._failed, "a job whose attempt failed is in another state"
        assert not self._arrived, "a job that arrived is counted"

    def _count_seldom(self) -> None:
        """Count what happens seldom, and is in no row."""
        seldom = (self._expired, self._lost, self._duplicates)
        for queue in {queue: None for counts in seldom for queue in counts}:
            found = (counts.get(queue, 0) for counts in seldom)
            self.happened.append((queue, (*_NONE_OFTEN, *found)))
        self._expired, self._lost, self._duplicates = {}, {}, {}

    def _row(self, tx: Transaction, queue: str, minute: int) -> Throughput:
        row = self._rows.get(queue)
        if row is None:
            data = tx.get_key(_key(queue, minute))
            row = _decode(data) if data is not None else Throughput(queue, minute)
        return row if row.minute == minute else Throughput(queue, minute)

    def forget(self, tx: Transaction, queue: str) -> None:
        """Remove the rows of a queue that is gone, and its events of this entry."""
        self.count(tx)
        self.happened.append((queue, ()))
        self._rows.pop(queue, None)
        prefix = THROUGHPUT.prefix + queue.encode() + b"\0"
        for key in tx.keys(prefix, prefix_end(prefix), limit=SLOTS):
            tx.remove_key(key)
            tx.note(key)

    def settle(self) -> None:
        """The entry is done."""
        if len(self._rows) > ROWS_MAX:
            self._rows = {}


def _key(queue: str, minute: int) -> bytes:
    return THROUGHPUT.prefix + queue.encode() + b"\0" + bytes((minute % SLOTS,))
