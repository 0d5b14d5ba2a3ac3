"""Decisions after the end of a process: restart it, leave it down, or stop the node.

Exit codes are those of `docs/operations.md`: a restart may help after 70 and does not after 71; 72
is a config that cannot work. A process is restarted five times within ten minutes, and then left
down until an operator looks.
"""

import signal
from typing import Final

import msgspec

from corvo.backoff import delay_ms, jittered
from corvo.child import DAMAGED, FAILED, MISCONFIGURED, OK
from corvo.model import Backoff

RESTARTS_MAX: Final = 5
WINDOW_NS: Final = 600 * 1_000_000_000
_BASE_MS: Final = 1_000
_DELAY_MS_MAX: Final = 30_000
_JITTER: Final = 20
"""Per cent of the delay, so that processes that ended together do not restart together."""


class Restart(msgspec.Struct, frozen=True):
    """Restart the process after a delay."""

    delay_ms: int


class Hold(msgspec.Struct, frozen=True):
    """Leave the process down; the others continue."""

    reason: str


class Leave(msgspec.Struct, frozen=True):
    """Stop the node."""

    code: int
    reason: str


class Restarts:
    """The ends of one process, and the decision after the next one."""

    def __init__(self, *, is_vital: bool) -> None:
        self._is_vital = is_vital
        self._times_ns: list[int] = []

    def ended(self, code: int, *, now_ns: int, dice: int) -> Restart | Hold | Leave:
        """Decide after an unasked end, by an exit code or, below zero, by a signal."""
        if code == MISCONFIGURED:
            return Leave(MISCONFIGURED, "invalid settings: a restart does not help")
        if code == DAMAGED:
            return self._give_up("a restart does not help")
        self._times_ns = [time for time in self._times_ns if now_ns - time < WINDOW_NS]
        if len(self._times_ns) >= RESTARTS_MAX:
            return self._give_up(f"the process ended {RESTARTS_MAX + 1} times within ten minutes")
        self._times_ns.append(now_ns)
        attempt = len(self._times_ns)
        if attempt == 1:
            return Restart(0)  # most processes end only once
        delay = delay_ms(
            Backoff.EXPONENTIAL, attempt=attempt - 1, base_ms=_BASE_MS, max_ms=_DELAY_MS_MAX
        )
        return Restart(jittered(delay, share=_JITTER, dice=dice))

    def _give_up(self, reason: str) -> Hold | Leave:
        return Leave(FAILED, reason) if self._is_vital else Hold(reason)


def meaning(code: int) -> str:
    """The meaning of an exit code, for the log."""
    if code < 0:
        return f"killed by {signal_name(-code)}"
    return {
        OK: "exited although the node is running",
        FAILED: "failed; a restart may help",
        DAMAGED: "damaged data, or a log entry that cannot be applied",
        MISCONFIGURED: "invalid settings",
    }.get(code, "unknown exit code")


def signal_name(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
