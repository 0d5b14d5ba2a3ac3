"""A reading's time limit, which the process looks at from another thread."""

import sqlite3
from contextlib import ExitStack

from corvo.mirror.query.reading import Reading

LIMIT_MS = 5
AFTER_IT_NS = LIMIT_MS * 1_000_000


class EndingClock:
    """A clock that ends the limit while it is asked for the time."""

    def __init__(self) -> None:
        self.limit = ExitStack()
        self.now_ns = 0

    def __call__(self) -> int:
        if self.now_ns:
            self.limit.close()
        return self.now_ns


def test_a_limit_may_end_while_another_thread_looks_at_it() -> None:
    clock = EndingClock()
    reading = Reading(sqlite3.connect(":memory:"), clock=clock, now_ns=0)
    clock.limit.enter_context(reading.until(LIMIT_MS))
    clock.now_ns = AFTER_IT_NS

    looks = [reading.is_over() for _ in range(2)]

    assert looks == [True, False]
