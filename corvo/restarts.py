"""What follows when a process of the node ends: start it again, let it lie, or end the node.

Exit codes are those of `docs/operations.md`: 70 may be mended by a restart, 71 is not, 72 is a
config that cannot work. A process that keeps dying is started again five times within ten minutes
and not a sixth: somebody has to look, and a process that dies once a second helps nobody.
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
"""Per cent: processes that died of one cause do not start in the same moment."""


class Restart(msgspec.Struct, frozen=True):
    """Start it again, after a while."""

    delay_ms: int


class Hold(msgspec.Struct, frozen=True):
    """It stays down; the others go on."""

    reason: str


class Leave(msgspec.Struct, frozen=True):
    """The whole node ends."""

    code: int
    reason: str


class Restarts:
    """What one process has gone through, and what follows from its next end."""

    def __init__(self, *, is_vital: bool) -> None:
        self._is_vital = is_vital
        self._times_ns: list[int] = []

    def ended(self, code: int, *, now_ns: int, dice: int) -> Restart | Hold | Leave:
        """It ended unasked, with an exit code or, below zero, by a signal."""
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
            return Restart(0)  # most ends are the only one
        delay = delay_ms(
            Backoff.EXPONENTIAL, attempt=attempt - 1, base_ms=_BASE_MS, max_ms=_DELAY_MS_MAX
        )
        return Restart(jittered(delay, share=_JITTER, dice=dice))

    def _give_up(self, reason: str) -> Hold | Leave:
        return Leave(FAILED, reason) if self._is_vital else Hold(reason)


def meaning(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        return f"killed by {signal_name(-code)}"
    return {
        OK: "exited although the node is running",
        FAILED: "failed; a restart may help",
        DAMAGED: "damaged data, or a log entry that cannot be applied",
        MISCONFIGURED: "invalid settings",
    }.get(code, "unknown exit code")


def signal_name(number: int) -> str:
    """A signal as people call it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
