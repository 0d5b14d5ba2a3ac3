"""A second, plain reading of cron expressions and of the rule for changes of the clocks.

It looks at every minute, or second, of a stretch of time, and shares no code with `corvo.cron`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

MONTHS: Final = dict(
    zip(
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
        range(1, 13),
        strict=True,
    )
)
WEEKDAYS: Final = dict(
    zip(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), range(7), strict=True)
)

ZONES: Final = (
    "UTC",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Johannesburg",
    "America/Asuncion",
    "America/Havana",
    "America/Los_Angeles",
    "America/Miquelon",
    "America/New_York",
    "America/Nuuk",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/Scoresbysund",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Almaty",
    "Asia/Beirut",
    "Asia/Jerusalem",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Atlantic/Azores",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Chisinau",
    "Europe/Dublin",
    "Europe/London",
    "Pacific/Apia",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Easter",
)


@cache
def zone(name: str) -> ZoneInfo:
    path = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def wall_at(name: str, at: int) -> datetime:
    """What the clocks of a zone show, as a datetime in UTC so that it can be counted with."""
    return datetime.fromtimestamp(at, zone(name)).replace(tzinfo=UTC, fold=0)


def offset_at(name: str, at: int) -> int:
    return round((wall_at(name, at) - datetime.fromtimestamp(at, UTC)).total_seconds())


@cache
def changes(name: str, first_year: int, last_year: int) -> tuple[int, ...]:
    """The instants of these years at which a zone has another offset than a second before."""
    begin = round(datetime(first_year, 1, 1, tzinfo=UTC).timestamp())
    end = round(datetime(last_year + 1, 1, 1, tzinfo=UTC).timestamp())
    found = []
    for noon in range(begin, end, 43_200):
        if offset_at(name, noon) != offset_at(name, noon + 43_200):
            found += [
                at
                for at in range(noon + 60, noon + 43_201, 60)
                if offset_at(name, at) != offset_at(name, at - 60)
            ]
    return tuple(found)


class PlainCron:
    """The values of an expression, as sets."""

    def __init__(self, expression: str) -> None:
        words = expression.upper().split()
        self.has_seconds = len(words) == 6
        self.repeats = any(word[0] == "*" for word in words[:-3])
        second, minute, hour, day, month, weekday = words if self.has_seconds else ["0", *words]
        self.seconds = values(second, 0, 59)
        self.minutes = values(minute, 0, 59)
        self.hours = values(hour, 0, 23)
        self.months = values(month, 1, 12)
        self.day, self.weekday = day, weekday
        self.either = day[0] not in "*?" and weekday[0] not in "*?"
        self._days: dict[tuple[int, int, int], bool] = {}

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.second in self.seconds
            and self.has_day(wall)
        )

    def has_day(self, wall: datetime) -> bool:
        key = wall.year, wall.month, wall.day
        if key not in self._days:
            self._days[key] = self._has_day(wall)
        return self._days[key]

    def _has_day(self, wall: datetime) -> bool:
        by_day = any(self._is_day(item, wall) for item in self.day.split(","))
        by_weekday = any(self._is_weekday(item, wall) for item in self.weekday.split(","))
        either = by_day or by_weekday if self.either else by_day and by_weekday
        return wall.month in self.months and either

    def _is_day(self, item: str, wall: datetime) -> bool:
        if item == "L":
            return (wall + timedelta(days=1)).day == 1
        return wall.day in values(item, 1, 31)

    def _is_weekday(self, item: str, wall: datetime) -> bool:
        weekday = (wall.weekday() + 1) % 7
        name, _, nth = item.partition("#")
        if nth:
            return weekday in values(name, 0, 6) and (wall.day + 6) // 7 == int(nth)
        if item[0] == "L":
            is_last = (wall + timedelta(days=7)).month != wall.month
            return weekday == int(item[1]) % 7 and is_last
        return weekday in values(item, 0, 6)

    def due_between(self, name: str, begin: int, end: int) -> Iterator[int]:
        """The due times from `begin` on and before `end`. The walk begins two hours earlier."""
        step = 1 if self.has_seconds else 60
        one = timedelta(seconds=step)
        reached = wall_at(name, begin - 7_200)
        for at in range(begin - 7_200 + step, end, step):
            wall = wall_at(name, at)
            if self.repeats:
                is_due = self.matches(wall)
            else:
                is_due = False
                while reached < wall:  # several steps at once, when the clocks are set forward
                    reached += one
                    is_due = is_due or self.matches(reached)
            if is_due and at >= begin:
                yield at


@cache
def values(text: str, low: int, high: int) -> frozenset[int]:
    """The values of a field without L and #."""
    names = {12: MONTHS, 6: WEEKDAYS}.get(high, {})
    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        begin, has_end, end = span.partition("-")
        if span in ("*", "?"):
            first, last = low, high
        else:
            first = names[begin] if begin in names else int(begin)
            last = first if not has_end else names[end] if end in names else int(end)
            if step and not has_end:
                last = high
        if first <= last:
            found |= set(range(first, last + 1, int(step or 1)))
        else:
            found |= set(range(first, high + 1)) | set(range(low, last + 1))
    return frozenset(value % 7 for value in found) if high == 6 else frozenset(found)
