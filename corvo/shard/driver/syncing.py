"""A thread that makes the log durable, for every entry waits for it.

Trio's own threads would do, but each use of one costs as much again as a quick disk's sync: a
limiter, a context, a name for the thread. This one does the same thing all its life. Both ways
between it and the task that waits are single calls into C: while the thread runs Python, the task
cannot.
"""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

import outcome
from trio.lowlevel import wait_readable


class Syncer:
    """One task waits; another has it go on by `begin` or `skip`, one at a time."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._orders: Final[SimpleQueue[bool]] = SimpleQueue()  # whether to go on; at most two
        self._ended: Final = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._result: outcome.Outcome[None] | None = None
        self._is_busy = False
        self._thread: Final = threading.Thread(target=self._work, name="sync", daemon=True)

    def start(self) -> None:
        """To be called once."""
        self._thread.start()

    def begin(self) -> None:
        """Sync, from here on; the task that waits goes on when that is done."""
        assert not self._is_busy, "one at a time"
        self._is_busy = True
        self._orders.put(True)

    def skip(self) -> None:
        """Let the task that waits go on at once: nothing is synced."""
        assert not self._is_busy, "one at a time"
        self._is_busy = True
        os.eventfd_write(self._ended, 1)

    async def wait(self) -> None:
        """Wait for the next `begin` to be done, or `skip`."""
        await wait_readable(self._ended)
        os.eventfd_read(self._ended)
        self._is_busy = False

    def unwrap(self) -> None:
        """Raise what the last sync raised, if it failed."""
        result, self._result = self._result, None
        assert result is not None
        result.unwrap()

    def close(self) -> None:
        """Let the thread end, behind what was begun. To be called once."""
        self._orders.put(False)
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._ended)

    def _work(self) -> None:
        while self._orders.get():
            self._result = outcome.capture(self._sync)
            os.eventfd_write(self._ended, 1)
