"""Time zones as spans of constant offset from UTC.

The data comes from the package tzdata alone, and never from files of the system: nodes with
different images must agree. Its files are read when a zone is first used, through the loader of the
package, and by names of its own list: no other file can be reached.

`zoneinfo` knows the offset of a zone at an instant, but does not list the changes. So the offsets
at samples of a window are compared, and a change between two samples is found by bisection. A
window is 388 days long, costs 0.1 ms once, and is kept.
"""

import pkgutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from io import BytesIO
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import tzdata

END_S: Final = 250_000_000_000
"""In the year 9892: a day later can still be written as a date."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
SAMPLE_S: Final = 5 * 86_400
"""The distance of samples. Since 1970 no offset has been in force for less than 6.9 days: that was
in Brazil in 2000, and a test looks for a shorter one."""
_WINDOW_BITS: Final = 25
"""A window is 2^25 seconds."""


class Span(NamedTuple):
    """A time of constant offset, in seconds since 1970. Two neighbours may have the same offset."""

    begin: int
    end: int
    offset: int


def spans(timezone: str, start: int) -> Iterator[Span]:
    """The spans of a zone in their order, from the one that contains an instant on."""
    if timezone == "UTC":
        yield Span(min(start, 0), END_S, 0)
        return
    window = start >> _WINDOW_BITS
    while window << _WINDOW_BITS < END_S:
        for span in _window(timezone, window):
            if span.end > start:
                yield span
        window += 1


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """The names of all time zones, sorted."""
    listed = pkgutil.get_data("tzdata", "zones")
    assert listed is not None
    return tuple(sorted({*listed.decode("ascii").split(), "UTC"}))


def tz_version() -> str:
    """The version of the package tzdata: `2026.6` is release 2026f of the tz database."""
    return tzdata.__version__


@lru_cache(maxsize=4_096)  # windows of 600 zones: a few years each
def _window(timezone: str, window: int) -> tuple[Span, ...]:
    """The spans of one window, cut at its edges."""
    zone = _zone(timezone)
    start, end = window << _WINDOW_BITS, window + 1 << _WINDOW_BITS
    found: list[Span] = []
    begin, offset = start, _offset(zone, start)
    low = start
    while low < end:
        high = min(low + SAMPLE_S, end)
        while (at := _change(zone, low, high, offset)) < high:
            found.append(Span(begin, at, offset))
            begin, offset = at, _offset(zone, at)
            low = at
        low = high
    return (*found, Span(begin, end, offset))


def _change(zone: ZoneInfo, low: int, high: int, offset: int) -> int:
    """The first instant from `low` on, and before `high`, with another offset; else `high`."""
    same, other = low - 1, high - 1
    if _offset(zone, other) == offset:
        return high
    while other - same > 1:
        middle = (same + other) // 2
        if _offset(zone, middle) == offset:
            same = middle
        else:
            other = middle
    return other


def _offset(zone: ZoneInfo, at: int) -> int:
    """The seconds by which a zone is ahead of UTC."""
    utc = _EPOCH + timedelta(seconds=at)
    return (utc.astimezone(zone).replace(tzinfo=UTC) - utc) // _SECOND


@lru_cache(maxsize=1_024)
def _zone(timezone: str) -> ZoneInfo:
    assert timezone in zone_names(), timezone
    data = pkgutil.get_data("tzdata", f"zoneinfo/{timezone}")
    assert data is not None
    return ZoneInfo.from_file(BytesIO(data), key=timezone)
