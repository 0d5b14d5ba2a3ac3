"""Wall times that match a cron expression, in a calendar without time zones.

A wall time is what a clock on a wall shows, counted in seconds: the seconds since 1970 that it
would be if the zone were UTC. The values of a field are the bits of one integer, so the next value
is found by a shift, and ten thousand patterns fit into a few megabytes.
"""

from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

import msgspec

DAY_S: Final = 86_400
YEARS_AHEAD: Final = 50
"""A wall time is searched this far. The rarest one is a 29 February on one weekday: 40 years around
2100, which is no leap year."""

ALL_WEEKDAYS: Final = 0b1111111
ALL_HOURS: Final = (1 << 24) - 1
LAST: Final = 0
"""The number that stands for the last of a month in `Pattern.nth_weekdays`."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_YEAR_MAX: Final = 9_892
"""Time zones are not read further: see `corvo.time_zones.END_S`."""
_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """The values of each field, as bits."""

    seconds: int
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    """Sunday is bit 0."""
    has_last_day: bool = False
    nth_weekdays: tuple[tuple[int, int], ...] = ()
    """Pairs of a weekday and its number in the month. They replace `weekdays`."""
    either_day: bool = False
    """Whether a day matches by its number or by its weekday. Otherwise it must match by both."""

    def next_wall(self, after: int) -> int | None:
        """The first matching wall time after another one; None when none follows for 50 years."""
        day, second = divmod(after + 1, DAY_S)
        if self._has_day(day):
            time = self._next_time(second)
            if time is not None:
                return day * DAY_S + time
        found = self._next_day(day + 1)
        if found is None:
            return None
        return found * DAY_S + self._first_time

    def matches(self, wall: int) -> bool:
        """Whether a wall time matches."""
        return self.next_wall(wall - 1) == wall

    def _has_day(self, day: int) -> bool:
        """Whether a day matches, counted from 1970."""
        moment = date.fromordinal(_EPOCH_DAY + day)
        if not self.months >> moment.month & 1:
            return False
        return bool(self.days_of(moment.year, moment.month) >> moment.day & 1)

    @property
    def _first_time(self) -> int:
        return _lowest(self.hours) * 3_600 + _lowest(self.minutes) * 60 + _lowest(self.seconds)

    def _next_time(self, second_of_day: int) -> int | None:
        """The smallest matching time of a day, from one of its seconds on."""
        hour, rest = divmod(second_of_day, 3_600)
        minute, second = divmod(rest, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and self.seconds >> second:
                return hour * 3_600 + minute * 60 + _next_bit(self.seconds, second)
            if self.minutes >> minute + 1:
                minute = _next_bit(self.minutes, minute + 1)
                return hour * 3_600 + minute * 60 + _lowest(self.seconds)
        if self.hours >> hour + 1:
            hour = _next_bit(self.hours, hour + 1)
            return hour * 3_600 + _lowest(self.minutes) * 60 + _lowest(self.seconds)
        return None

    def _next_day(self, day: int) -> int | None:
        """The next matching day, counted from 1970, from one day on."""
        moment = date.fromordinal(_EPOCH_DAY + day)
        year, month, from_day = moment.year, moment.month, moment.day
        year_last = min(year + YEARS_AHEAD, _YEAR_MAX)
        while year <= year_last:
            if self.months >> month & 1:
                days = self.days_of(year, month)
                if days >> from_day:
                    found = date(year, month, _next_bit(days, from_day))
                    return found.toordinal() - _EPOCH_DAY
            month, from_day = month + 1, 1
            if month > 12:
                year, month = year + 1, 1
        return None

    def days_of(self, year: int, month: int) -> int:
        """The matching days of a month, as bits."""
        # Day 1 of the calendar was a Monday.
        return self.days_of_shape(
            length=month_length(year, month),
            first_weekday=date(year, month, 1).toordinal() % 7,
        )

    def days_of_shape(self, *, length: int, first_weekday: int) -> int:
        """The matching days of a month with so many days, whose first one is this weekday."""
        by_number = self.days & (2 << length) - 1
        if self.has_last_day:
            by_number |= 1 << length
        if self.nth_weekdays:
            by_weekday = 0
            for weekday, nth in self.nth_weekdays:
                first = 1 + (weekday - first_weekday) % 7
                day = first + 7 * ((length - first) // 7 if nth == LAST else nth - 1)
                by_weekday |= 1 << day if day <= length else 0
        else:
            by_weekday = _weekdays_of(self.weekdays, first_weekday) & (2 << length) - 1
        return by_number | by_weekday if self.either_day else by_number & by_weekday

    def has_days(self) -> bool:
        """Whether any day of any year matches.

        A month has a length and a first weekday, and each combination occurs within 400 years.
        """
        lengths = sorted(
            {
                length
                for month in bits(self.months)
                for length in (_MONTH_DAYS[month - 1], 29 if month == 2 else 0)
                if length
            }
        )
        return any(
            self.days_of_shape(length=length, first_weekday=first)
            for length in lengths
            for first in range(7)
        )

    @property
    def shortest_s(self) -> int:
        """A lower bound of the distance of two matching wall times.

        Of values next to each other in one field; the last and the first one are neighbours.
        """
        for values, size, unit_s in (
            (self.seconds, 60, 1),
            (self.minutes, 60, 60),
            (self.hours, 24, 3_600),
        ):
            if values & values - 1:  # more than one
                listed = bits(values)
                following = [*listed[1:], listed[0] + size]
                return unit_s * min(b - a for a, b in zip(listed, following, strict=True))
        return DAY_S


def wall_of(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0
) -> int:
    """The wall time of a date and a time of day."""
    days = date(year, month, day).toordinal() - _EPOCH_DAY
    return days * DAY_S + hour * 3_600 + minute * 60 + second


def format_wall(wall: int) -> str:
    """A wall time as `2026-03-29 02:30`, with its seconds when it has any."""
    shown = datetime.fromtimestamp(wall, UTC)
    return f"{shown:%Y-%m-%d %H:%M:%S}" if wall % 60 else f"{shown:%Y-%m-%d %H:%M}"


def month_length(year: int, month: int) -> int:
    """The number of days of a month."""
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and is_leap else _MONTH_DAYS[month - 1]


def bits(values: int) -> list[int]:
    """The positions of the bits that are set, in their order."""
    return [position for position in range(values.bit_length()) if values >> position & 1]


def _lowest(values: int) -> int:
    """The smallest value."""
    return (values & -values).bit_length() - 1


def _next_bit(values: int, start: int) -> int:
    """The smallest value from `start` on; there must be one."""
    return start + _lowest(values >> start)


@lru_cache(maxsize=1_024)  # 127 sets of weekdays, 7 first days of a month
def _weekdays_of(weekdays: int, first_weekday: int) -> int:
    """The days of a month with 31 days that are one of these weekdays, as bits."""
    return sum(1 << day for day in range(1, 32) if weekdays >> (first_weekday + day - 1) % 7 & 1)
