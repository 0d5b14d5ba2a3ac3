"""A thread that makes the log durable, for every entry waits for it.

Trio's own threads would do, but each use of one costs as much again as a quick disk's sync: a
limiter, a context, a name for the thread. This one does the same thing all its life.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import outcome
import trio


class Syncer:
    """Begin, and wait for the end; one at a time."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._go = threading.Semaphore(0)
        self._is_closed = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._ended = trio.Event()
        self._result: outcome.Outcome[None] | None = None
        self._thread: Final = threading.Thread(target=self._work, name="sync", daemon=True)

    def start(self) -> None:
        """To be called once, by a task."""
        self._token = trio.lowlevel.current_trio_token()
        self._thread.start()

    def begin(self) -> None:
        """Sync, from here on."""
        assert self._result is None, "one at a time"
        self._ended = trio.Event()
        self._go.release()

    async def wait(self) -> None:
        """Wait until what was begun is done. Raises what it raised."""
        await self._ended.wait()
        result, self._result = self._result, None
        assert result is not None
        result.unwrap()

    def close(self) -> None:
        """Let the thread end, behind what was begun."""
        self._is_closed = True
        self._go.release()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        token = self._token
        assert token is not None
        while True:
            self._go.acquire()
            if self._is_closed:
                return
            self._result = outcome.capture(self._sync)
            with suppress(trio.RunFinishedError):  # the process ends, and nobody waits
                token.run_sync_soon(self._ended.set)
