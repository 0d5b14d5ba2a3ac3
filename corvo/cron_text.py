"""A timetable in plain English: `at 09:00, Monday to Friday, Europe/Berlin`.

The text is made from the values of the fields, and not from the way in which they were written. So
it is right for every expression; for an irregular one it is a list of values. Different times have
different texts, which a test checks.
"""

from typing import Final

from corvo.wall_calendar import ALL_HOURS, ALL_WEEKDAYS, LAST, Pattern, bits

TEXT_LENGTH_MAX: Final = 200
"""A longer text is of no help: the expression itself is shorter."""
_TIMES_LISTED_MAX: Final = 6
_ALL_SIXTY: Final = (1 << 60) - 1
_ALL_DAYS: Final = (1 << 32) - 2
_ALL_MONTHS: Final = (1 << 13) - 2

_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    *("", "January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_NTH: Final = {LAST: "last", 1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
_UNITS: Final = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))


def describe(pattern: Pattern, cron: str, timezone: str) -> str:
    """The text of an expression, or the expression itself if the text would be too long."""
    times, days, months = _times(pattern), _days(pattern), _months(pattern)
    if not days and (months or (times.startswith("at ") and pattern.hours != ALL_HOURS)):
        days = "every day"
    text = ", ".join(part for part in (times, f"{days} {months}".strip(), timezone) if part)
    return text if len(text) <= TEXT_LENGTH_MAX else f"{cron}, {timezone}"


def describe_every(every_ms: int) -> str:
    """The text of a fixed distance: `every hour and 30 minutes`."""
    parts, rest = [], every_ms
    for unit, unit_ms in _UNITS:
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    if rest:
        parts.append(f"{rest} ms")
    text = _joined(parts)
    return f"every {text.removeprefix('1 ') if len(parts) == 1 else text}"


# Times of a day.


def _times(pattern: Pattern) -> str:
    hours, minutes, seconds = bits(pattern.hours), bits(pattern.minutes), bits(pattern.seconds)
    if len(hours) * len(minutes) * len(seconds) <= _TIMES_LISTED_MAX:
        return "at " + _joined(
            [
                _clock(hour, minute, second)
                for hour in hours
                for minute in minutes
                for second in seconds
            ]
        )
    first = _clock(hours[0], minutes[0], seconds[0])
    last = _clock(hours[-1], minutes[-1], seconds[-1])
    step = hours[1] - hours[0] if len(hours) > 1 else 1
    is_once_an_hour = len(minutes) == len(seconds) == 1 and pattern.hours != ALL_HOURS
    if is_once_an_hour and hours == list(range(hours[0], hours[-1] + 1, step)):
        return f"every {'hour' if step == 1 else f'{step} hours'} from {first} to {last}"
    every = _every(pattern)
    if not every:
        return _fields_of_time(pattern)
    if pattern.hours == ALL_HOURS:
        return every
    if _is_run(hours):
        return f"{every} from {first} to {last}"
    return f"{every} in {_numbers('hour', hours)}"


def _every(pattern: Pattern) -> str:
    """Equal distances that begin with an hour; empty if the distances differ."""
    minutes, seconds = bits(pattern.minutes), bits(pattern.seconds)
    if pattern.minutes == _ALL_SIXTY and len(seconds) > 1:
        return _equal("second", seconds)
    if seconds == [0] and len(minutes) > 1:
        return _equal("minute", minutes)
    return "every hour" if seconds == [0] and minutes == [0] else ""


def _equal(unit: str, values: list[int]) -> str:
    step = values[1]
    if 60 % step or values != list(range(0, 60, step)):
        return ""
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _fields_of_time(pattern: Pattern) -> str:
    """The values of each field, for times without a simpler text."""
    hours = "every hour" if pattern.hours == ALL_HOURS else _numbers("hour", bits(pattern.hours))
    minutes = bits(pattern.minutes)
    minute = "every minute" if pattern.minutes == _ALL_SIXTY else _numbers("minute", minutes)
    if pattern.seconds == 1:
        return f"at {minute} of {hours}" if minute[0] != "e" else f"{minute} of {hours}"
    if pattern.seconds == _ALL_SIXTY:
        return f"every second of {minute} of {hours}"
    return f"at {_numbers('second', bits(pattern.seconds))} of {minute} of {hours}"


def _clock(hour: int, minute: int, second: int) -> str:
    return f"{hour:02}:{minute:02}:{second:02}" if second else f"{hour:02}:{minute:02}"


# Days and months.


def _days(pattern: Pattern) -> str:
    """The days; empty for every day."""
    has_all_numbers = pattern.days & _ALL_DAYS == _ALL_DAYS
    by_number = "" if has_all_numbers else _month_days(pattern)
    if pattern.nth_weekdays:
        return _nth_weekdays(pattern)
    has_all_weekdays = pattern.weekdays == ALL_WEEKDAYS
    if pattern.either_day:
        if has_all_numbers or has_all_weekdays:
            return ""
        return f"{by_number}, and also {_weekdays(pattern.weekdays)}"
    if by_number and not has_all_weekdays:
        names = [_WEEKDAYS[weekday] for weekday in _from_monday(pattern.weekdays)]
        return f"{by_number} that are a {_joined(names, 'or')}"
    return by_number if has_all_weekdays else _weekdays(pattern.weekdays)


def _month_days(pattern: Pattern) -> str:
    last = ["the last day"] if pattern.has_last_day else []
    numbers = bits(pattern.days)
    listed = [_numbers("day", numbers)] if numbers else []
    return f"on {' and '.join([*listed, *last])} of the month"


def _nth_weekdays(pattern: Pattern) -> str:
    parts = [f"the {_NTH[nth]} {_WEEKDAYS[weekday]}" for weekday, nth in pattern.nth_weekdays]
    return f"on {_joined(parts)} of the month"


def _weekdays(weekdays: int) -> str:
    listed = _from_monday(weekdays)
    places = [(weekday - 1) % 7 for weekday in listed]
    if len(places) > 2 and _is_run(places):
        return f"{_WEEKDAYS[listed[0]]} to {_WEEKDAYS[listed[-1]]}"
    return f"every {_joined([_WEEKDAYS[weekday] for weekday in listed])}"


def _from_monday(weekdays: int) -> list[int]:
    return sorted(bits(weekdays), key=lambda weekday: (weekday - 1) % 7)


def _months(pattern: Pattern) -> str:
    """The months; empty for all."""
    if pattern.months == _ALL_MONTHS:
        return ""
    listed = bits(pattern.months)
    if len(listed) > 2 and _is_run(listed):
        return f"from {_MONTHS[listed[0]]} to {_MONTHS[listed[-1]]}"
    return f"in {_joined([_MONTHS[month] for month in listed])}"


# Lists.


def _numbers(unit: str, values: list[int]) -> str:
    """Numbers with their unit: `hour 9`, `minutes 0 to 4, 7 and 9`."""
    parts: list[str] = []
    rest = values
    while rest:
        length = next((n for n in range(1, len(rest)) if rest[n] != rest[0] + n), len(rest))
        run, rest = rest[:length], rest[length:]
        parts += [f"{run[0]} to {run[-1]}"] if length > 2 else [str(value) for value in run]
    return f"{unit}{'s' if len(values) > 1 else ''} {_joined(parts)}"


def _is_run(values: list[int]) -> bool:
    return values == list(range(values[0], values[-1] + 1))


def _joined(parts: list[str], word: str = "and") -> str:
    return f" {word} ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
