"""The watchdog of an event loop: how late the loop is, and what it does when it is stuck.

A task of the loop sleeps for a moment again and again, and how much too late it wakes is the lag.
A plain thread looks whether that task still wakes. If not, it says where the main thread stands;
and a loop that is stuck for good ends its process, so that another can take its place.

The thread counts its own beats and asks no clock: in a machine that was suspended, or a process
that was stopped, both stand still, and nobody is to blame.
"""

import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Final

import msgspec
import trio

from corvo.measures import LoopTimes
from corvo.telemetry import Log

STUCK_CODE: Final = 70
"""The exit code of a process whose loop was stuck for good: a restart may mend it."""
SAMPLE_S: Final = 0.1
BEAT_S: Final = 0.1
STALL_BEATS: Final = 3
"""Beats without a sign of the loop after which it is told: more than 250 ms."""
QUIET_BEATS: Final = 100
"""Beats between two tellings."""
END_BEATS: Final = 100
"""Beats without a sign of the loop after which the process ends."""
_STACK_MAX: Final = 4_000
"""Letters of a stack in the log: its end is where the loop is stuck."""
_PATIENCE_S: Final = 1.0
"""How long a thread is waited for that should be done at once."""


async def watch(loop: LoopTimes, log: Log) -> None:
    """Watch the loop of this process until cancelled."""

    def on_stall(stack: str) -> None:
        log.error("loop.stuck", stack=stack[-_STACK_MAX:])

    await Watchdog(loop, on_stall).run()


class Verdict(msgspec.Struct, frozen=True):
    """What one beat has shown."""

    is_stall: bool  # whether the loop is stuck, and was not a beat before
    is_told: bool  # whether it is to be told where
    is_end: bool  # whether it is stuck for good


class Judge:
    """Decides by the signs of a loop, from beat to beat."""

    def __init__(self) -> None:
        self._signs = -1
        self._missed = 0
        self._untold = QUIET_BEATS

    def beat(self, signs: int) -> Verdict:
        """The loop has given so many signs by now."""
        self._untold += 1
        self._missed = self._missed + 1 if signs == self._signs else 0
        self._signs = signs
        is_told = self._missed >= STALL_BEATS and self._untold >= QUIET_BEATS
        if is_told:
            self._untold = 0
        return Verdict(self._missed == STALL_BEATS, is_told, self._missed >= END_BEATS)


class Watchdog:
    """Watches the loop that `run` runs in."""

    def __init__(
        self,
        loop: LoopTimes,
        on_stall: Callable[[str], None],
        *,
        end: Callable[[int], None] = os._exit,
        beat_s: float = BEAT_S,
        sample_s: float = SAMPLE_S,
    ) -> None:
        """`on_stall` is given the stack of the main thread, and is called in another one."""
        self._loop = loop
        self._on_stall = on_stall
        self._end = end
        self._beat_s = beat_s
        self._sample_s = sample_s
        self._signs = 0  # rises with every sign of the loop
        self._left = threading.Event()
        self._collecting_since = 0.0

    async def run(self) -> None:
        """Watch until cancelled."""
        gc.callbacks.append(self._collected)
        thread = threading.Thread(
            target=self._watch, args=(threading.get_ident(),), name="watchdog", daemon=True
        )
        thread.start()
        try:
            await self._sample()
        finally:
            self._left.set()
            with suppress(ValueError):
                gc.callbacks.remove(self._collected)
            thread.join(_PATIENCE_S)

    async def _sample(self) -> None:
        while True:
            due = trio.current_time() + self._sample_s
            await trio.sleep_until(due)
            self._loop.lag.observe(max(0.0, trio.current_time() - due))
            self._signs += 1

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since = perf_counter()
        else:
            self._loop.collections.observe(perf_counter() - self._collecting_since)

    # In the thread.

    def _watch(self, watched: int) -> None:
        judge = Judge()
        while not self._left.wait(self._beat_s):
            verdict = judge.beat(self._signs)
            self._loop.stalls += verdict.is_stall
            if verdict.is_told:
                self._on_stall(stack_of(watched))
            if verdict.is_end:
                self._give_up(watched)
                return

    def _give_up(self, watched: int) -> None:
        seconds = END_BEATS * self._beat_s
        words = (
            f"corvo: the event loop was stuck for {seconds:.0f} seconds; this process ends.\n"
            f"{stack_of(watched)}"
        )
        # In a thread of its own, for it may be stderr that the loop is stuck with.
        last = threading.Thread(target=_say, args=(words,), daemon=True)
        last.start()
        last.join(_PATIENCE_S)
        self._end(STUCK_CODE)


def _say(words: str) -> None:
    sys.stderr.write(words)
    sys.stderr.flush()


def stack_of(thread: int) -> str:
    """Where a thread stands, as a traceback shows it; empty when it is gone."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 -- the documented way to see another's
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
