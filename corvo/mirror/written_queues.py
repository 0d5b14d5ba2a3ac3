"""The queues whose rows were written since a mark: a summary reads only those again.

    noted.begin(queues)      # before the transaction is committed
    noted.commit()           # after it
    mark = noted.mark()      # before a snapshot is read
    noted.since(mark)        # after the snapshot has begun: the queues to read again

A queue may be named twice, and none is missed: a reader that takes its mark before its snapshot has
read at least everything up to the mark, and a writer notes queues before readers can see the rows.
"""

import threading
from collections.abc import Iterable
from typing import Final

QUEUES_MAX: Final = 20_000
"""Queues that are noted; beyond, the older half of the transactions is forgotten."""


class WrittenQueues:
    """Names of queues by the number of the last transaction that wrote rows of them."""

    def __init__(self, start: str) -> None:
        """`start` differs between two starts of the process: older marks are not understood."""
        self._start = start
        self._numbers: dict[str, int] = {}
        """In the order of the numbers."""
        self._committed = 0
        self._known_from = 0
        """Everything that was written after this transaction is noted."""
        self._lock: Final = threading.Lock()

    def begin(self, queues: Iterable[str] | None) -> None:
        """Note queues of the next transaction; None: it may write rows of any queue."""
        number = self._committed + 1
        with self._lock:
            if queues is None:
                self._forget_until(number)
                return
            for queue in queues:
                self._numbers.pop(queue, None)
                self._numbers[queue] = number
            if len(self._numbers) > QUEUES_MAX:
                self._forget_until(list(self._numbers.values())[QUEUES_MAX // 2])

    def _forget_until(self, number: int) -> None:
        self._known_from = number
        self._numbers = {queue: noted for queue, noted in self._numbers.items() if noted > number}

    def commit(self) -> None:
        """The transaction is committed."""
        with self._lock:
            self._committed += 1

    def mark(self) -> str:
        """The present moment."""
        with self._lock:
            return f"{self._start}:{self._committed}"

    def since(self, mark: str) -> list[str] | None:
        """The queues with rows that were written after a mark; None if that is not known."""
        start, _, text = mark.rpartition(":")
        if start != self._start or not text.isdecimal():
            return None
        known = int(text)
        with self._lock:
            if known < self._known_from:
                return None
            found = []
            for queue, number in reversed(self._numbers.items()):
                if number <= known:
                    break
                found.append(queue)
            return found
