"""The stamps of all entries: they follow elapsed time, whatever is done to wall clocks.

It is known when each entry was proposed, by the time of the run and by its machine's elapsed time;
the code under test knows the second alone. Two rules are held between an entry and those before:

    the same process made both    the stamps are as far apart as the elapsed time, and a tenth of it
                                  more or less in the direction of the wall clock
    another process made it       it is not later than a fast leader would be that had gone on from
                                  some earlier entry

It need not be the last one. A leader whose virtual machine stood still without knowing is late by
that time, and its successor is not: that goes by an earlier entry, and by its own elapsed time.

The second rule has two exceptions, both for a process that starts without knowing for how long its
machine was off. It believes its wall clock, unless that is more than a year ahead, and begins again
from there. And it may begin too early, where it ignores its wall clock or where its log has lost
entries that were not committed: then the next leader, which knows better, is as far ahead as the
latest stamp would be by now.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from tests.sim.failures import Violation
from tests.sim.options import MS
from tests.sim.shards.book import decode
from tests.sim.shards.clock import BEGIN_NS, DRIFT_PPM_MAX

if TYPE_CHECKING:
    from tests.sim.shards.host import ReplicaHost
    from tests.sim.shards.world import ShardWorld

_MILLION: Final = 1_000_000
_SECOND: Final = 1_000 * MS
_SLACK_NS: Final = 1 * MS
"""Of one process: it reckons in nanoseconds, and places in a queue take some more."""
_SLACK_BETWEEN_NS: Final = 5 * _SECOND
"""Between two: a note is a second old, and a replica that was away knows of no steering since."""
_DAY_NS: Final = 86_400 * _SECOND
_YEAR_NS: Final = 365 * _DAY_NS


class Belief(msgspec.Struct, frozen=True):
    """A start that did not know for how long its machine was off."""

    elapsed_ns: int
    wall_ns: int
    latest_ns: int
    """The latest stamp by then: its log may have had an entry that is lost since."""
    latest_at_ns: int
    """When that was proposed, by the time of the run."""


class Proposed(msgspec.Struct, frozen=True):
    """An entry, as it was proposed."""

    replica: int
    incarnation: int
    term: int
    now_ns: int
    elapsed_ns: int
    wall_ns: int
    sets: int
    stamp_ns: int
    shown_ns: int
    """What its clock showed: less, where the log has a later stamp."""
    believes: "Belief | None"
    began: "Belief | None"
    """The start that its clock still goes by: it has followed nobody since."""


class Times:
    """All stamps of a run."""

    def __init__(self, world: "ShardWorld") -> None:
        self._world = world
        self._proposed: dict[bytes, Proposed] = {}
        self._last: tuple[Proposed, int] | None = None
        """The last entry that anybody applied, and its time."""
        self._fastest: tuple[int, int] = (0, 0)
        """Of all entries that anybody applied, that from which a fast leader would be latest now:
        when it was proposed, and its time."""
        self.latest_ns = 0
        """The latest stamp that was proposed."""
        self.latest_at_ns = 0
        """When, by the time of the run."""

    def proposed(self, host: "ReplicaHost", data: bytes) -> None:
        """A leader proposes an entry. Each has dice of its own, so none is like another."""
        now = self._world.now
        stamp_ns = decode(data)[0]
        if stamp_ns > self.latest_ns:
            self.latest_ns, self.latest_at_ns = stamp_ns, now
        self._proposed[data] = Proposed(
            host.replica,
            host.incarnation,
            host.node.term,
            now,
            host.clock.elapsed_ns(now),
            host.clock.wall_ns(now),
            host.clock.sets,
            stamp_ns,
            host.whole.clock.shown_ns,
            host.believes,
            None if host.has_followed else host.began,
        )

    def applied(self, host: "ReplicaHost", data: bytes, time_ns: int) -> None:
        """A replica has applied an entry, and it is that late now by the state's time."""
        made = self._proposed[data]
        if made.term == host.node.term and _process(made) == (host.replica, host.incarnation):
            host.believes = None
        if self._last is None or time_ns > self._last[1]:
            self._check(made, time_ns)
            self._last = made, time_ns
            if time_ns >= self._fast_at(made.now_ns):
                self._fastest = made.now_ns, time_ns

    def _fast_at(self, now_ns: int) -> int:
        """What the latest of all fast leaders would stamp at a moment of the run."""
        since_ns, time_ns = self._fastest
        return time_ns + _fast_ns(now_ns - since_ns)

    def _check(self, made: Proposed, time_ns: int) -> None:
        if self._last is None:
            return
        before, before_ns = self._last
        gained_ns = time_ns - before_ns
        is_same = _process(made) == _process(before)
        counts = self._world.counts
        if is_same and made.term == before.term:
            counts["stamps of one process"] += 1
            self._check_pace(before, before_ns, made, time_ns)
        elif made.believes is not None and not is_same:
            counts["stamps of a start that believes"] += 1
            passed_ns = (made.elapsed_ns - made.believes.elapsed_ns) * 11 // 10 + _SLACK_NS
            most_ns = max(made.believes.wall_ns, made.believes.latest_ns, before_ns) + passed_ns
            if gained_ns > _YEAR_NS or time_ns > most_ns:
                raise Violation("believed", f"{gained_ns} ns at a start: {before}, {made}")
        else:
            counts["stamps of another process"] += 1
            passed_ns = made.now_ns - before.now_ns
            most_ns = self._fast_at(made.now_ns)
            began = before.began
            if began is not None:
                counts["stamps after a start that may be too early"] += 1
                most_ns = max(most_ns, began.latest_ns + _fast_ns(made.now_ns - began.latest_at_ns))
            if time_ns > most_ns + _SLACK_BETWEEN_NS:
                raise Violation("leap", f"{gained_ns} ns in {passed_ns}: {before}, {made}")

    def _check_pace(self, before: Proposed, before_ns: int, made: Proposed, time_ns: int) -> None:
        """Stamps are as far apart as the elapsed time, and a tenth of it towards the wall clock."""
        elapsed_ns = made.elapsed_ns - before.elapsed_ns
        share_ns = elapsed_ns // 10
        least_ns, most_ns = elapsed_ns - share_ns, elapsed_ns + share_ns
        ahead_ns = before.wall_ns - before.shown_ns
        if before.sets == made.sets and abs(ahead_ns - _DAY_NS) > 100 * _SECOND:
            is_followed = ahead_ns < _DAY_NS and made.wall_ns > BEGIN_NS - 2 * _YEAR_NS
            gained_ns = max(-share_ns, min(share_ns, ahead_ns)) if is_followed else 0
            least_ns = most_ns = elapsed_ns + gained_ns
            self._world.counts["stamps of an undisturbed process"] += 1
        # The log may be ahead of the first readings of a leader, by entries of the one before.
        stamps_ns, times_ns = made.stamp_ns - before.shown_ns, time_ns - before_ns
        if (
            made.stamp_ns < made.shown_ns
            or stamps_ns < least_ns - _SLACK_NS
            or times_ns > most_ns + _SLACK_NS
        ):
            raise Violation("pace", f"{stamps_ns} or {times_ns} ns: {before}, {made}")


def _process(made: Proposed) -> tuple[int, int]:
    return made.replica, made.incarnation


def _fast_ns(passed_ns: int) -> int:
    """What a leader gains at most: its oscillator is fast, and its wall clock is far ahead."""
    return passed_ns * (_MILLION + DRIFT_PPM_MAX) // _MILLION * 11 // 10
