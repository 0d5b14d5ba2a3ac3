"""Differences of the wall clocks of nodes: measured by a request, and judged by a bound.

    reading = read_clock(shown_ns, at_ns=now_ns, took_ns=round_trip_ns)

The other clock is taken to have been read in the middle of the round trip, so a reading is wrong by
half of that at most. Only a difference that exceeds the bound by more than this counts.

A single clock that is wrong differs from all others, and all others from it. So a node is wrong
only where it differs from most nodes.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

_MS: Final = 1_000_000


class Reading(msgspec.Struct, frozen=True):
    """The clock of another node at one moment."""

    ahead_ns: int  # that clock minus the one of this node
    within_ns: int  # the error of that at most
    tz_version: str = ""  # of the node's time zone data; empty if it does not say

    def exceeds(self, bound_ns: int) -> bool:
        """Whether the clocks differ by more than a bound for certain."""
        return abs(self.ahead_ns) - self.within_ns > bound_ns


class Clocks(msgspec.Struct, frozen=True):
    """The clocks of the other nodes as a router has read them, and those that are wrong."""

    ahead_ns: Mapping[int, int] = {}
    """By node: its clock minus the one of this node."""
    wrong_ns: Mapping[int, int] = {}
    """By node that differs from most nodes by more than the bound: its clock minus theirs."""
    tz_versions: Mapping[int, str] = {}
    """By node, this one included: the version of its time zone data, if it was read."""


NO_CLOCKS: Final = Clocks()


def read_clock(shown_ns: int, *, at_ns: int, took_ns: int, tz_version: str = "") -> Reading:
    """A clock that has shown a time in a round trip that has ended now, at `at_ns` by this node."""
    half_ns = -(-took_ns // 2)
    return Reading(shown_ns - (at_ns - half_ns), half_ns, tz_version)


def judge(
    readings: Mapping[int, Reading], *, own: int, bound_ns: int, tz_version: str = ""
) -> Clocks:
    """Which of the clocks of a cluster are wrong, by what one of its nodes has read."""
    known = {own: Reading(0, 0, tz_version), **readings}
    middle_ns = _middle([each.ahead_ns for each in known.values()])
    wrong = {
        node: each.ahead_ns - middle_ns
        for node, each in known.items()
        if Reading(each.ahead_ns - middle_ns, each.within_ns).exceeds(bound_ns)
    }
    return Clocks(
        {node: each.ahead_ns for node, each in readings.items()},
        wrong,
        {node: each.tz_version for node, each in known.items() if each.tz_version},
    )


def _middle(values_ns: list[int]) -> int:
    """The median; of two in the middle, the one that differs less from this node's clock."""
    ordered = sorted(values_ns)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return min(middle, key=lambda each: (abs(each), each))


def refusal(readings: Mapping[str, Reading], *, nodes: int, bound_ns: int) -> str:
    """Why a node may not start that has read the clocks at some addresses; empty if it may.

    `nodes` is the number of the other nodes. Those that have not answered count as right: a node
    that is wrong must not keep the right ones from starting.
    """
    wrong = {at: each for at, each in readings.items() if each.exceeds(bound_ns)}
    if 2 * len(wrong) <= nodes:
        return ""
    ahead_ns = -_middle([each.ahead_ns for each in wrong.values()])
    return (
        f"the wall clock of this node is {apart(ahead_ns)} that of the node at"
        f" {' and at '.join(sorted(wrong))}, more than cluster.clock_offset_max_ms"
        f" ({bound_ns // _MS} ms): set the clock that is wrong, and keep it right with NTP"
    )


def apart(ahead_ns: int) -> str:
    """A difference in words: `5.0 s ahead of`, `700 ms behind`."""
    side = "ahead of" if ahead_ns > 0 else "behind"
    ms = abs(ahead_ns) // _MS
    return f"{ms} ms {side}" if ms < 1_000 else f"{ms / 1_000:.1f} s {side}"
