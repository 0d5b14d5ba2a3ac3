"""How long a failed job waits before it is tried again."""

from typing import Final

from corvo.model import Backoff

DELAY_MS_MAX: Final = 10 * 366 * 86_400_000
"""What no delay exceeds, capped or not: ten years, which a key can still hold."""
_SHIFT_MAX: Final = 62
"""More doublings than fit in any delay: the cap decides from there on."""


def delay_ms(backoff: Backoff, *, attempt: int, base_ms: int, max_ms: int) -> int:
    """The delay after `attempt` (1 or more) failed, at most `max_ms`; 0 is `DELAY_MS_MAX`."""
    assert attempt >= 1
    match backoff:
        case Backoff.NONE:
            delay = 0
        case Backoff.FIXED:
            delay = base_ms
        case Backoff.LINEAR:
            delay = base_ms * attempt
        case _:
            delay = base_ms << min(attempt - 1, _SHIFT_MAX)
    return min(delay, max_ms or DELAY_MS_MAX)


def jittered(delay: int, *, share: int, dice: int) -> int:
    """`delay` changed by up to `share` per cent either way; `dice` is 0 to 65,535, and drawn once.

    Whoever leads draws and writes the number into the op: replicas must not throw dice.
    """
    assert 0 <= share <= 100
    assert 0 <= dice < 1 << 16
    swing = delay * share // 100
    return delay - swing + (2 * swing * dice) // 0xFFFF
