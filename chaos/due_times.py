"""When schedules are due, by `docs/schedules.md` alone, and by no line of the product.

Plain on purpose: each second is asked whether it is a due time, so that no due time is computed
from another one. A run has few schedules and lasts minutes or hours.
"""

import calendar
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

SECOND_NS: Final = 1_000_000_000
_NAMES: Final = {
    name: number
    for names, first in (
        ("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1),
        ("SUN MON TUE WED THU FRI SAT", 0),
    )
    for number, name in enumerate(names.split(), first)
}
_MACROS: Final = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}  # fmt: skip
_BOUNDS: Final = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_PART: Final = re.compile(r"(\*|\?|\w+)(?:-(\w+))?(?:/(\d+))?")
_NTH: Final = re.compile(r"(\w+)#([1-5])")
_LAST: Final = re.compile(r"L([0-7])")
_SPAN: Final = re.compile(r"(\d+)(ms|[smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Times(NamedTuple):
    """The times of an expression with fields."""

    second: frozenset[int]
    minute: frozenset[int]
    hour: frozenset[int]
    day: frozenset[int]
    month: frozenset[int]
    weekday: frozenset[int]
    is_last_day: bool
    nth: tuple[tuple[int, int], ...]
    """Weekdays with their number in the month; 0 is the last one."""
    is_either: bool
    """Whether a fitting day of month or a fitting weekday is enough."""
    is_repeating: bool

    def has_day(self, day: date) -> bool:
        """Whether a day fits."""
        if day.month not in self.month:
            return False
        length = calendar.monthrange(day.year, day.month)[1]
        in_month = day.day in self.day or (self.is_last_day and day.day == length)
        weekday = day.isoweekday() % 7
        in_week = weekday in self.weekday or any(
            weekday == wanted and (day.day + 7 > length if not nth else (day.day + 6) // 7 == nth)
            for wanted, nth in self.nth
        )
        return in_month or in_week if self.is_either else in_month and in_week

    def has(self, local: datetime) -> bool:
        """Whether a time of the wall clock fits."""
        return (
            local.second in self.second
            and local.minute in self.minute
            and local.hour in self.hour
            and self.has_day(local.date())
        )


@lru_cache(maxsize=1_000)
def times_of(cron: str) -> Times:
    """An expression with five or six fields."""
    fields = _MACROS.get(cron, cron).split()
    fields = ["0", *fields] if len(fields) == 5 else fields
    second, minute, hour, day, month, weekday = (
        _values(field, low, high) for field, (low, high) in zip(fields, _BOUNDS, strict=True)
    )
    nth = [(_number(name), int(number)) for name, number in _NTH.findall(fields[5])]
    nth += [(int(number) % 7, 0) for number in _LAST.findall(fields[5])]
    return Times(
        second, minute, hour, day, month,
        weekday=frozenset(number % 7 for number in weekday),
        is_last_day="L" in fields[3].split(","),
        nth=tuple(nth),
        is_either=fields[3][0] not in "*?" and fields[5][0] not in "*?",
        is_repeating=any(field.startswith("*") for field in fields[:3]),
    )  # fmt: skip


def _number(text: str) -> int:
    return _NAMES[text.upper()] if text.isalpha() else int(text)


def _values(field: str, low: int, high: int) -> frozenset[int]:
    """The values of a field; those that depend on the month are left out."""
    found: set[int] = set()
    for part in field.split(","):
        if part == "L" or _NTH.fullmatch(part) or _LAST.fullmatch(part):
            continue
        match = _PART.fullmatch(part)
        assert match is not None, part
        begin, end, step = match.groups()
        if begin in ("*", "?"):
            first, last = low, high if high != 7 else 6
        else:
            first = _number(begin)
            last = _number(end) if end else first
            if step and not end:
                last = high if high != 7 else 6
        if first > last:  # across the end of the field
            found |= {*range(first, high + 1), *range(low, last + 1)}
        else:
            found |= {*range(first, last + 1, int(step or 1))}
    return frozenset(found)


def interval_s(cron: str) -> int:
    """The distance of `@every`; 0 for other expressions."""
    if not cron.startswith("@every "):
        return 0
    return sum(int(number) * _UNITS[unit] for number, unit in _SPAN.findall(cron))


@lru_cache(maxsize=100)
def zone_of(name: str) -> tzinfo:
    """A time zone."""
    return UTC if name == "UTC" else ZoneInfo(name)


def due_times(
    cron: str, timezone: str, after_ns: int, until_ns: int, anchor_ns: int = 0
) -> Iterator[int]:
    """All due times after one time and up to another. `anchor_ns`: where `@every` counts from."""
    first, last = after_ns // SECOND_NS + 1, until_ns // SECOND_NS
    if distance := interval_s(cron):
        anchor = anchor_ns // SECOND_NS
        begin = max(first + (anchor - first) % distance, anchor + distance)
        for moment in range(begin, last + 1, distance):
            yield moment * SECOND_NS
        return
    times, zone = times_of(cron), zone_of(timezone)
    for moment in range(first, last + 1):
        if _is_due(times, zone, moment):
            yield moment * SECOND_NS


def is_due(cron: str, timezone: str, at_ns: int) -> bool:
    """Whether a time is a due time; of `@every`, for some anchor."""
    if at_ns % SECOND_NS:
        return False
    if interval_s(cron):
        return True
    return _is_due(times_of(cron), zone_of(timezone), at_ns // SECOND_NS)


def _is_due(times: Times, zone: tzinfo, moment: int) -> bool:
    local = datetime.fromtimestamp(moment, zone)
    if times.is_repeating:
        return times.has(local)
    if times.has(local) and not local.fold:
        return True
    if local.second:  # clocks change at whole minutes
        return False
    before = datetime.fromtimestamp(moment - 1, zone).replace(tzinfo=None)
    missing = local.replace(tzinfo=None) - before
    return any(
        times.has(before + timedelta(seconds=skipped))
        for skipped in range(1, int(missing.total_seconds()))
    )
