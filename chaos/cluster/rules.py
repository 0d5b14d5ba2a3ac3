"""The condition of a direction between two hosts, and the fate of one packet under it."""

from random import Random
from typing import Final

import msgspec

BACKLOG_BYTES_MAX: Final = 256 << 10
"""Bytes that wait for a slow direction; more are dropped, as a router does with a full buffer."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The condition of one direction. Without values: every packet passes at once."""

    is_cut: bool = False
    loss: float = 0.0
    """Share of the packets that are dropped."""
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """A packet is delayed by up to so much more, so that packets overtake each other."""
    bytes_per_second: int = 0
    """0 is no limit."""
    duplicates: float = 0.0
    """Share of the packets that arrive twice."""


CLEAR: Final = Rule()


class Counts(msgspec.Struct):
    """The packets of one direction since the start."""

    passed: int = 0
    dropped: int = 0
    delayed: int = 0
    duplicated: int = 0


class Direction:
    """One direction between two hosts: its rule, and what it has done."""

    def __init__(self, random: Random) -> None:
        self.rule = CLEAR
        self.counts: Final = Counts()
        self._random = random
        self._free_at = 0.0

    def due(self, now: float, size: int) -> tuple[float, ...]:
        """The times at which copies of a packet arrive; none if it is lost."""
        rule, counts = self.rule, self.counts
        if rule is CLEAR:
            counts.passed += 1
            return (now,)
        at = self._sent_at(now, size)
        if at is None:
            counts.dropped += 1
            return ()
        at += (rule.delay_ms + self._random.random() * rule.jitter_ms) / 1e3
        counts.passed += 1
        if at > now:
            counts.delayed += 1
        if self._random.random() < rule.duplicates:
            counts.duplicated += 1
            return (at, at)
        return (at,)

    def _sent_at(self, now: float, size: int) -> float | None:
        """The time at which the last byte of a packet leaves; None if the packet is lost."""
        rule = self.rule
        if rule.is_cut or self._random.random() < rule.loss:
            return None
        if not rule.bytes_per_second:
            return now
        start = max(now, self._free_at)
        if (start - now) * rule.bytes_per_second > BACKLOG_BYTES_MAX:
            return None
        self._free_at = start + size / rule.bytes_per_second
        return self._free_at
