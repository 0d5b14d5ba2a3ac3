"""The clock of a shard's stamps: it counts elapsed time, and is steered towards the wall clock.

The elapsed time since the boot of a machine, with the time that it was suspended, cannot be set;
the wall clock can be set to anything. So this clock begins with what the wall clock shows, and then
counts elapsed time. When the wall clock is set, this clock gains or loses a tenth of the elapsed
time until both agree: a minute takes ten minutes, an hour takes ten hours. A lease of 30 s ends
after 27.2 to 33.4 s, whatever is done to the wall clock.

Two kinds of wall clocks are ignored, and elapsed time alone counts: a wall clock that is more than
a day ahead, because it cannot be told whether that is a mistake; and one that shows a time before
2020, because it was never set.

A follower does not read its wall clock. The stamps of the leader set its clock, so that a change of
leader is no step either. Only stamps of new entries do: an entry that was committed while a replica
was away may be hours old when it arrives.
"""

from enum import Enum
from typing import Final

import msgspec

_S: Final = 1_000_000_000
SHARE: Final = 10
"""One part in so many of the elapsed time is gained or lost at most."""
REACH_NS: Final = 10 * _S
"""Elapsed time between two readings that counts for this. A longer gap is a suspension, or a time
as a follower."""
AHEAD_MAX_NS: Final = 86_400 * _S
"""A wall clock that is farther ahead is ignored."""
UNSET_NS: Final = 1_577_836_800 * _S
"""The first moment of 2020. A wall clock that shows an earlier time was never set."""
APART_NS: Final = _S
"""Difference that is reported."""
TOGETHER_NS: Final = _S // 10
"""Difference at which an episode ends."""
NOTICE_EVERY_NS: Final = 10 * _S
"""Elapsed time between two notices, except for that of a start."""
LONG_DOWN_NS: Final = 60 * _S
"""A start that is reported: so much time passed since the last stamp of the log."""


class Course(Enum):
    """How the clock treats its difference from the wall clock."""

    IN_STEP = "in_step"
    FASTER = "faster"
    SLOWER = "slower"
    IGNORED = "ignored"


class Notice(msgspec.Struct, frozen=True):
    """Something to be logged: an episode begins or ends, or the clock has started."""

    course: Course
    ahead_ns: int  # wall clock minus this clock
    shown_ns: int
    """Time that this clock shows."""
    since_last_ns: int | None = None
    """At a start: this clock minus the last stamp of the log."""


class SteeredClock:
    """The clock of one replica. Readings of elapsed time must not fall.

    `last_ns` is the last stamp of the replica's log at the start, 0 without one. A wall clock is
    believed at the start if it is at most `ahead_max_ns` ahead of that. `offset_ns` is the one that
    this clock had when the process before this one ended without being asked to. With it the clock
    continues, and no wall clock has to be believed.
    """

    def __init__(self, *, last_ns: int, ahead_max_ns: int, offset_ns: int | None = None) -> None:
        self.course = Course.IN_STEP
        self.ahead_ns = 0
        """Wall clock minus this clock, at the last reading."""
        self.notice: Notice | None = None
        """To be logged and set to None by the driver."""
        self._last_ns = last_ns
        self._ahead_max_ns = ahead_max_ns
        self._is_calm = False  # the wall clock is followed, and there is nothing to report
        # The last reading: the elapsed time, and what this clock showed.
        self._elapsed_ns = 0
        self._shown_ns = offset_ns
        # The episode that was reported last, and the least difference that it has had since.
        self._noticed = Course.IN_STEP
        self._noticed_apart_ns = 0
        self._noticed_at_ns = -NOTICE_EVERY_NS

    @property
    def offset_ns(self) -> int | None:
        """This clock minus elapsed time; None before the first reading."""
        return None if self._shown_ns is None else self._shown_ns - self._elapsed_ns

    @property
    def shown_ns(self) -> int:
        """Time that this clock showed last; 0 before the first reading."""
        return self._shown_ns or 0

    def follow(self, elapsed_ns: int, stamp_ns: int) -> None:
        """Take over a stamp that the leader, another replica, has made just now."""
        self._elapsed_ns, self._shown_ns = elapsed_ns, stamp_ns

    def read(self, elapsed_ns: int, wall_ns: int, *, last_ns: int) -> int:
        """The time now, for a leader; `last_ns` is the last stamp that it has applied."""
        shown_ns = self._shown_ns
        if shown_ns is not None and self._is_calm and last_ns <= wall_ns >= UNSET_NS:
            passed_ns = elapsed_ns - self._elapsed_ns
            if abs(wall_ns - shown_ns - passed_ns) * SHARE <= passed_ns <= REACH_NS:
                # Nearly all readings: what is below comes to the same.
                self._elapsed_ns, self._shown_ns, self.ahead_ns = elapsed_ns, wall_ns, 0
                return wall_ns
        return self._read(elapsed_ns, wall_ns, last_ns)

    def _read(self, elapsed_ns: int, wall_ns: int, last_ns: int) -> int:
        shown_ns = self._shown_ns
        is_start = shown_ns is None
        if shown_ns is None:
            last_ns = max(last_ns, self._last_ns)
            shown_ns = self._begin(wall_ns, last_ns)
        else:
            passed_ns = max(0, elapsed_ns - self._elapsed_ns)
            shown_ns += passed_ns
            ahead_ns = wall_ns - shown_ns
            if is_followed(wall_ns, ahead_ns):
                share_ns = min(passed_ns, REACH_NS) // SHARE
                shown_ns += max(-share_ns, min(ahead_ns, share_ns))
            shown_ns = max(shown_ns, last_ns)
        self._elapsed_ns = max(elapsed_ns, self._elapsed_ns)
        self._shown_ns = shown_ns
        self.ahead_ns = wall_ns - shown_ns
        self._take_course(wall_ns)
        if is_start:
            since_last_ns = shown_ns - last_ns if last_ns else 0
            if since_last_ns >= LONG_DOWN_NS or self.course is not Course.IN_STEP:
                self._report(since_last_ns)
        elif self.course is not Course.IN_STEP or self._noticed is not Course.IN_STEP:
            self._report_episode()
        self._is_calm = self.course is self._noticed is Course.IN_STEP
        return shown_ns

    def _begin(self, wall_ns: int, last_ns: int) -> int:
        """The time at a start: how long the log was left alone is not known."""
        if not last_ns:
            return max(1, wall_ns)
        # A log with stamps of a clock that was never set has no better time than the wall clock.
        is_absurd = wall_ns - last_ns > self._ahead_max_ns and last_ns >= UNSET_NS
        return last_ns if wall_ns < UNSET_NS or is_absurd else max(wall_ns, last_ns)

    def elapsed_at(self, time_ns: int) -> int:
        """The elapsed time at which the clock will show a time, if nobody sets the wall clock."""
        assert self._shown_ns is not None, "the clock was read before"
        missing_ns = max(0, time_ns - self._shown_ns)
        ahead_ns = self.ahead_ns
        if self.course is Course.IGNORED:
            passes_ns = missing_ns
        elif ahead_ns > 0:  # it gains until both agree
            passes_ns = max(-(-missing_ns * SHARE // (SHARE + 1)), missing_ns - ahead_ns)
        else:
            passes_ns = min(-(-missing_ns * SHARE // (SHARE - 1)), missing_ns - ahead_ns)
        return self._elapsed_ns + passes_ns

    # What is reported.

    def _take_course(self, wall_ns: int) -> None:
        ahead_ns = self.ahead_ns
        if not is_followed(wall_ns, ahead_ns):
            self.course = Course.IGNORED
        elif ahead_ns >= APART_NS:
            self.course = Course.FASTER
        elif ahead_ns <= -APART_NS:
            self.course = Course.SLOWER
        elif abs(ahead_ns) <= TOGETHER_NS or self.course is Course.IGNORED:
            self.course = Course.IN_STEP

    def _report_episode(self) -> None:
        """Report an episode once, and again when the wall clock was set further away."""
        apart_ns, least_ns = abs(self.ahead_ns), self._noticed_apart_ns
        is_farther = apart_ns >= least_ns + APART_NS and self.course is not Course.IN_STEP
        if self.course is self._noticed and not is_farther:
            self._noticed_apart_ns = min(least_ns, apart_ns)
        elif self._elapsed_ns - self._noticed_at_ns >= NOTICE_EVERY_NS:
            self._report(None)

    def _report(self, since_last_ns: int | None) -> None:
        self._noticed, self._noticed_apart_ns = self.course, abs(self.ahead_ns)
        self._noticed_at_ns = self._elapsed_ns
        self.notice = Notice(self.course, self.ahead_ns, self.shown_ns, since_last_ns)


def is_followed(wall_ns: int, ahead_ns: int) -> bool:
    """Whether a clock is steered towards a wall clock that is so far ahead of it."""
    return wall_ns >= UNSET_NS and ahead_ns <= AHEAD_MAX_NS
