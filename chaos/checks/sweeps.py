"""Sweeps over intervals: exact answers about all pairs in one walk after a sort.

Each has a twin in tests/chaos that looks at every pair, and must agree with it.
"""

from collections.abc import Iterable

Point = tuple[int, int, int]
"""Two times and a name."""


def overtaken(firsts: Iterable[Point], seconds: Iterable[Point]) -> list[tuple[int, int]]:
    """Names of a first and a second with `first.x < second.x` and `first.y > second.y`.

    At most one first for each second: that with the greatest y. If x is when a job certainly waited
    and y when it was first taken, then such a second was served before a first that was before it.
    """
    waiting = sorted(firsts)
    found, latest, by, at = [], -1, -1, 0
    for x, y, name in sorted(seconds):
        while at < len(waiting) and waiting[at][0] < x:
            if waiting[at][1] > latest:
                latest, by = waiting[at][1], waiting[at][2]
            at += 1
        if latest > y:
            found.append((by, name))
    return found


def most_at_once(intervals: Iterable[Point]) -> tuple[int, int, list[int]]:
    """The most intervals that share a moment, that moment, and their names.

    An interval has its first moment and not its last one.
    """
    kept = [interval for interval in intervals if interval[0] < interval[1]]
    marks = sorted([(end, 0) for _, end, _ in kept] + [(start, 1) for start, _, _ in kept])
    now = most = moment = 0
    for time, opens in marks:
        now += 1 if opens else -1
        if now > most:
            most, moment = now, time
    return most, moment, [name for start, end, name in kept if start <= moment < end]


def united(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The moments of some intervals, as few intervals in order. Their ends belong to them."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found
