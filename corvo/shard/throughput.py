"""What went on in each queue, minute by minute: for dashboards, and for nothing that decides.

It follows from what an entry told, at the entry's own time. Of each queue the last hour is kept, a
row to each minute in which something happened; the row of a minute takes the place of the one
`SLOTS` minutes before it.
"""

from collections import Counter
from operator import itemgetter
from typing import Final

import msgspec

from corvo.kv.keys import THROUGHPUT, prefix_end
from corvo.kv.tables import Transaction
from corvo.model import Throughput

SLOTS: Final = 64
MINUTE_NS: Final = 60_000_000_000
ROWS_MAX: Final = 10_000
"""Queues whose last row is in memory."""

COLUMNS: Final = {
    "enqueued": "enqueued",
    "started": "started",
    "completed": "completed",
    "died": "dead",
    "rejected": "dead",
    "cancelled": "cancelled",
}
"""Where each event counts; what is not here counts nowhere."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Throughput).decode
_what_and_queue: Final = itemgetter(0, 2)


class Minutes:
    """The counts of one shard."""

    def __init__(self) -> None:
        self._rows: dict[str, Throughput] = {}
        self._failed: dict[str, int] = {}
        self._counted = 0  # events of this entry

    def failed(self, queue: str) -> None:
        """An attempt failed; what becomes of the job is told in one of several words."""
        self._failed[queue] = self._failed.get(queue, 0) + 1

    def count(self, tx: Transaction) -> None:
        """Count what happened in this entry since this was called last."""
        told = tx.told
        if self._counted:
            told = told[self._counted :]
        self._counted = len(tx.told)
        changed: dict[str, Throughput] = {}
        minute = tx.now_ns // MINUTE_NS
        for (what, queue), number in Counter(map(_what_and_queue, told)).items():
            column = COLUMNS.get(what)
            if column is not None:
                row = changed[queue] = self._row(tx, queue, minute)
                setattr(row, column, getattr(row, column) + number)
        for queue, number in self._failed.items():
            row = changed[queue] = self._row(tx, queue, minute)
            row.failed += number
        self._failed = {}
        for queue, row in changed.items():
            key = _key(queue, minute)
            tx.set_key(key, _encode(row))
            tx.note(key)

    def _row(self, tx: Transaction, queue: str, minute: int) -> Throughput:
        row = self._rows.get(queue)
        if row is None:
            data = tx.get_key(_key(queue, minute))
            row = _decode(data) if data is not None else Throughput(queue, minute)
        if row.minute != minute:
            row = Throughput(queue, minute)
        self._rows[queue] = row
        return row

    def forget(self, tx: Transaction, queue: str) -> None:
        """A queue is gone. What happened in it before, in this entry, is not counted later."""
        self.count(tx)
        self._rows.pop(queue, None)
        prefix = THROUGHPUT.prefix + queue.encode() + b"\0"
        for key in tx.keys(prefix, prefix_end(prefix), limit=SLOTS):
            tx.remove_key(key)
            tx.note(key)

    def settle(self) -> None:
        """The entry is done."""
        self._counted = 0
        if len(self._rows) > ROWS_MAX:
            self._rows = {}


def _key(queue: str, minute: int) -> bytes:
    return THROUGHPUT.prefix + queue.encode() + b"\0" + bytes((minute % SLOTS,))
