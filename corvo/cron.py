"""Cron expressions: when a schedule is due, with a stated rule for every change of the clocks.

An expression has five fields (minute, hour, day of month, month, weekday) or six, with the second
first. A macro (`@daily`) is an expression, and `@every 90s` counts from an anchor. The rules for
users are in docs/schedules.md.

croniter reads the fields: it knows lists, ranges, steps and names. Two things are done here.

*The grammar.* croniter accepts texts that it reads differently each time (`R`), or wrongly: `5-5`
as all values, a step in a range that passes the end of its field. So each item of a field is
checked here first, which also makes errors precise: croniter does not name the field.

*The search.* The next wall time is found in `corvo.wall_calendar`, in a few microseconds instead of
croniter's 30, and without its faults at a change of the clocks. Tests compare both.

Two kinds of expressions differ when the clocks change, as in Vixie's cron:

- An expression *repeats* if its second, minute or hour begins with `*`. It is due at each instant
  whose wall time matches: twice in an hour that comes twice, never in one that is missing.
- Any other expression names *times of day*. It is due at the first instant at which the clocks have
  reached a matching wall time. So it is due once when an hour comes twice, and at the end of the
  gap when its wall time is missing.
"""

import re
from functools import lru_cache
from typing import Final, Literal

import msgspec

from corvo.cron_text import describe, describe_every
from corvo.errors import CorvoError
from corvo.nearest import nearest
from corvo.time_zones import END_S, Span, spans, tz_version, zone_names
from corvo.times import MS, NS_MAX, S, format_duration, format_time, parse_duration
from corvo.wall_calendar import ALL_WEEKDAYS, DAY_S, LAST, YEARS_AHEAD, Pattern, format_wall

__all__ = ["BadTimetable", "Timetable", "timetable", "tz_version", "zone_names"]

CRON_LENGTH_MAX: Final = 256
"""Characters of an expression. The longest that is of use lists some fifty minutes; to read the
worst one takes croniter a millisecond."""
EVERY_NS_MIN: Final = S
EVERY_NS_MAX: Final = 366 * DAY_S * S
TIMETABLES_KEPT: Final = 16_384
"""More than the schedules of a large server; one takes about a kilobyte."""

_SETTLED_S: Final = 4_102_444_800
"""The beginning of 2100: every zone follows the last of its rules."""
_AHEAD_S: Final = YEARS_AHEAD * 366 * DAY_S

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class BadTimetable(CorvoError):
    """An expression or a time zone that cannot be used."""

    def __init__(self, field: Literal["cron", "timezone"], problem: str, example: str) -> None:
        self.field: Final = field
        self.message: Final = f'{problem}; for example "{example}"'
        super().__init__(f"{field}: {self.message}")


class Timetable(msgspec.Struct, frozen=True):
    """A cron expression in a time zone. `timetable` makes it."""

    cron: str
    timezone: str
    every_ns: int = 0
    """The distance of due times from `@every`, which are `anchor_ns` + k * `every_ns`, k >= 1."""
    pattern: Pattern | None = None
    """The wall times of any other expression."""
    repeats: bool = False
    """Whether the expression is due at every matching instant, and not once for each wall time."""

    def next_after(self, after_ns: int, anchor_ns: int = 0) -> int | None:
        """The first due time after a moment; None if it is more than 50 years away.

        Due times are after 1969. Only those of `@every` depend on the anchor.
        """
        if self.every_ns:
            count = max(0, (after_ns - anchor_ns) // self.every_ns) + 1
            due_ns = anchor_ns + count * self.every_ns
            return due_ns if due_ns <= NS_MAX else None
        assert self.pattern is not None
        after = max(after_ns // S, -1)
        if after >= END_S:
            return None
        if self.repeats:
            due = _next_repeat(self.pattern, self.timezone, after)
        else:
            due = _next_time_of_day(self.pattern, self.timezone, after)
        return None if due is None else due * S

    def local_text(self, at_ns: int) -> str:
        """A moment in the time zone, with its distance to UTC: `2026-11-19T09:00:00+01:00`."""
        offset_s = next(spans(self.timezone, at_ns // S)).offset
        hours, minutes = divmod(abs(offset_s) // 60, 60)
        sign = "-" if offset_s < 0 else "+"
        return f"{format_time(at_ns + offset_s * S)[:-1]}{sign}{hours:02d}:{minutes:02d}"

    @property
    def shortest_ns(self) -> int:
        """A lower bound of the distance of two due times while the clocks do not change."""
        if self.every_ns:
            return self.every_ns
        assert self.pattern is not None
        return self.pattern.shortest_s * S

    def describe(self) -> str:
        """The timetable in plain English: `at 09:00, Monday to Friday, Europe/Berlin`."""
        if self.pattern is None:
            return describe_every(self.every_ns // MS)
        return describe(self.pattern, self.cron, self.timezone)

    def note(self, due_ns: int) -> str:
        """A sentence about a due time that a change of the clocks affects; else an empty text."""
        if self.pattern is None:
            return ""
        return _note(self.pattern, self.timezone, due_ns // S, repeats=self.repeats)


@lru_cache(maxsize=TIMETABLES_KEPT)
def timetable(cron: str, timezone: str = "UTC") -> Timetable:
    """The timetable of an expression in a time zone. Raises `BadTimetable`."""
    _check_zone(timezone)
    if len(cron) > CRON_LENGTH_MAX:
        raise BadTimetable(
            "cron",
            f"the expression has {len(cron)} characters, and at most {CRON_LENGTH_MAX} are read",
            "*/5 9-17 * * MON-FRI",
        )
    words = cron.split()
    if words and words[0].startswith("@"):
        macro = words[0].lower()
        if macro == "@every":
            return _every(words[1:], timezone)
        if macro in MACROS and len(words) == 1:
            return msgspec.structs.replace(_expression(MACROS[macro].split(), timezone), cron=macro)
        raise _bad_macro(" ".join(words), macro)
    return _expression(words, timezone)


# Due times.


def _next_repeat(pattern: Pattern, timezone: str, after: int) -> int | None:
    """The first instant after another one whose wall time matches."""
    searched, wall = 0, -1
    for begin, end, offset in spans(timezone, after + 1):
        first = max(begin, after + 1) + offset
        if not searched <= first <= wall:
            found = pattern.next_wall(first - 1)
            if found is None:
                return None
            searched, wall = first, found
        if wall < end + offset:
            return wall - offset
        if begin > after + _AHEAD_S:
            return None
    return None


def _next_time_of_day(pattern: Pattern, timezone: str, after: int) -> int | None:
    """The first instant after another one at which the clocks reach a matching wall time."""
    reached = _reached(timezone, after)
    wall = pattern.next_wall(reached)
    if wall is None:
        return None
    # No zone is a day ahead of UTC, so the wall time is not reached more than a day before.
    for begin, end, offset in spans(timezone, max(after, wall - DAY_S)):
        if wall < end + offset:
            return max(wall - offset, begin)
    return None


def _reached(timezone: str, at: int) -> int:
    """The latest wall time that the clocks have shown until an instant: they may be set back."""
    latest = -2 * DAY_S
    for begin, end, offset in spans(timezone, at - 2 * DAY_S):
        if begin > at:
            break
        latest = max(latest, min(end - 1, at) + offset)
    return latest


def _note(pattern: Pattern, timezone: str, due: int, *, repeats: bool) -> str:
    near: list[Span] = []
    for span in spans(timezone, due - 2 * DAY_S):
        if span.begin > due + 2 * DAY_S:
            break
        near.append(span)
    here = next(index for index, span in enumerate(near) if span.begin <= due < span.end)
    wall = due + near[here].offset
    shown = format_wall(wall)
    if here and due == near[here].begin and not repeats:
        missing = pattern.next_wall(due + near[here - 1].offset - 1)
        if missing is not None and missing < wall:
            gone = format_wall(missing)
            return f"{gone} does not exist in {timezone}: the clocks are set forward to {shown}"
    if any(wall < span.end + span.offset for span in near[:here]):
        return f"{shown} comes twice in {timezone}: this is the second"
    if any(wall >= span.begin + span.offset for span in near[here + 1 :]):
        return f"{shown} comes twice in {timezone}: this is the first"
    return ""


# Reading an expression.


class _Field(msgspec.Struct, frozen=True):
    """A field of an expression: its name, values, names of values, and a right expression."""

    name: str
    low: int
    high: int
    names: tuple[str, ...]
    """Of the values from `low` on."""
    example: str

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    @property
    def values(self) -> str:
        """The values as people write them."""
        if not self.names:
            return f"{self.low} to {self.high}"
        high = 7 if self is _WEEKDAY else self.high
        return f"{self.low} to {high} or {self.names[0]} to {self.names[-1]}"


_MONTH_NAMES: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_WEEKDAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SECOND: Final = _Field("second", 0, 59, (), "30 0 9 * * *")
_MINUTE: Final = _Field("minute", 0, 59, (), "*/15 * * * *")
_HOUR: Final = _Field("hour", 0, 23, (), "0 9-17 * * *")
_DAY: Final = _Field("day of month", 1, 31, (), "0 9 1,15 * *")
_MONTH: Final = _Field("month", 1, 12, _MONTH_NAMES, "0 9 1 JAN,JUL *")
_WEEKDAY: Final = _Field("weekday", 0, 6, _WEEKDAY_NAMES, "0 9 * * MON-FRI")
_FIELDS: Final = (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)

_ITEM: Final = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", re.ASCII)
_NTH: Final = re.compile(r"(\w+)#(\w+)", re.ASCII)
_LAST_WEEKDAY: Final = re.compile(r"L(\d)", re.ASCII)
_QUARTZ_LAST: Final = re.compile(
    r"([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)L|L(SUN|MON|TUE|WED|THU|FRI|SAT)"
)
_HASHED: Final = re.compile(r"[HR](?:\(.*\))?(?:/\d+)?")


def _expression(words: list[str], timezone: str) -> Timetable:
    """The timetable of five or six fields."""
    if len(words) not in (5, 6):
        raise _bad_count(words)
    fields = _FIELDS[-len(words) :]
    texts = [_checked(field, text) for field, text in zip(fields, words, strict=True)]
    cron = " ".join(texts)
    days, weekdays = texts[-3], texts[-1]
    is_nth = "#" in weekdays or "L" in weekdays
    if is_nth and days != "*":
        raise BadTimetable(
            "cron",
            f'weekday "{weekdays}" cannot stand beside day of month "{days}": use two schedules',
            f"0 9 * * {weekdays}",
        )
    # Vixie's cron: a field that begins with `*` does not restrict the day, so it makes no choice.
    either_day = not days.startswith("*") and not weekdays.startswith("*")
    pattern = _pattern(cron, is_nth=is_nth, either_day=either_day)
    if not pattern.has_days():
        raise BadTimetable(
            "cron",
            f'day of month "{days}" does not occur in month "{texts[-2]}"',
            f"0 9 L {texts[-2]} *",
        )
    repeats = any(text.startswith("*") for text in texts[:-3])
    if repeats and _next_repeat(pattern, timezone, _SETTLED_S) is None:
        raise BadTimetable(
            "cron",
            f'the clocks of {timezone} are set forward over hour "{texts[-4]}" on each of its days',
            "0 2 * * *",
        )
    return Timetable(cron, timezone, pattern=pattern, repeats=repeats)


def _pattern(cron: str, *, is_nth: bool, either_day: bool) -> Pattern:
    """The values of an expression whose grammar was checked."""
    # 15 ms, and processes without schedules do not need it.
    from croniter import CroniterError, croniter  # noqa: PLC0415 -- see the line above

    try:
        expanded, nth = croniter.expand(cron, second_at_beginning=True)
    except CroniterError as error:
        raise BadTimetable("cron", f'"{cron}" cannot be read', "0 9 * * MON-FRI") from error
    minutes, hours, days, months, weekdays = expanded[:5]
    numbers = {
        weekday: sorted(LAST if one == "l" else int(one) for one in nth[weekday]) for weekday in nth
    }
    return Pattern(
        seconds=_bits(_SECOND, expanded[5]) if len(expanded) == 6 else 1,
        minutes=_bits(_MINUTE, minutes),
        hours=_bits(_HOUR, hours),
        days=_bits(_DAY, [day for day in days if day != "l"]),
        months=_bits(_MONTH, months),
        weekdays=ALL_WEEKDAYS if is_nth else _bits(_WEEKDAY, weekdays),
        has_last_day="l" in days,
        nth_weekdays=tuple(
            (weekday, number) for weekday in sorted(numbers) for number in numbers[weekday]
        ),
        either_day=either_day,
    )


def _bits(field: _Field, values: list[int | str]) -> int:
    """The values of a field as bits."""
    if "*" in values:
        return (2 << field.high) - (1 << field.low)
    return sum(1 << int(value) for value in values)


def _checked(field: _Field, text: str) -> str:
    """A field in its normal form: upper case, without leading zeros. Raises `BadTimetable`."""
    text = text.upper()
    if text == "?" and field in (_DAY, _WEEKDAY):
        return "*"
    items = text.split(",")
    if len(items) > 1 and "*" in items:
        raise _bad(field, text, '"*" already has all values, so it cannot be in a list')
    normal = [_checked_item(field, item) for item in items]
    special = [item for item in normal if "#" in item or (field is _WEEKDAY and item[0] == "L")]
    if special and len(special) < len(normal):
        plain = next(item for item in normal if item not in special)
        raise _bad(
            field, text, f'"{special[0]}" and "{plain}" cannot be in one list: use two schedules'
        )
    return ",".join(normal)


def _checked_item(field: _Field, item: str) -> str:
    """An item of the list of a field, in its normal form."""
    if field is _DAY and item == "L":
        return item
    if field is _WEEKDAY and (found := _NTH.fullmatch(item)):
        if found[2] not in ("1", "2", "3", "4", "5"):
            raise _bad(field, item, "the number after # is 1 to 5", "0 9 * * MON#1")
        return f"{_normal(field, found[1], item)}#{found[2]}"
    if field is _WEEKDAY and _LAST_WEEKDAY.fullmatch(item):
        return f"L{_normal(field, item[1], item)}"
    found = _ITEM.fullmatch(item)
    if found is None or (found[1] and not _is_value(field, found[1])):
        raise _unknown(field, item)
    low, high, step = found.groups()
    if step and not 1 <= int(step) <= field.size:
        raise _bad_step(field, item, int(step))
    steps = f"/{int(step)}" if step else ""
    if low is None:
        return f"*{steps}"
    low = _normal(field, low, item)
    if high is None:
        return f"{low}{steps}"
    high = _normal(field, high, item)
    first, last = _number(field, low), _number(field, high)
    if field is _WEEKDAY and first == 7 and last != 7:
        first = 0
    if first == last:
        return low  # croniter reads such a range as all values
    if steps and first > last:
        raise _bad(field, item, "a range across the end of the field cannot have a step")
    return f"{low}-{high}{steps}"


def _normal(field: _Field, value: str, item: str) -> str:
    """A value of a field, without leading zeros."""
    if not _is_value(field, value):
        raise _unknown(field, item)
    if not value.isdigit():
        return value
    number = int(value)
    if field is _WEEKDAY and number == 7:
        return "7"
    if not field.low <= number <= field.high:
        raise _bad(field, item, f"{number} is not in {field.values}")
    return str(number)


def _is_value(field: _Field, value: str) -> bool:
    return value.isdigit() or value in field.names


def _number(field: _Field, value: str) -> int:
    return int(value) if value.isdigit() else field.low + field.names.index(value)


# Errors.


def _bad(field: _Field, text: str, problem: str, example: str = "") -> BadTimetable:
    return BadTimetable("cron", f'{field.name} "{text}": {problem}', example or field.example)


def _bad_count(words: list[str]) -> BadTimetable:
    wanted = "5 fields (minute, hour, day of month, month, weekday), or 6 with the second first"
    if len(words) == 7:
        return BadTimetable("cron", f"7 fields: years are not supported; {wanted}", "0 9 1 JAN *")
    return BadTimetable("cron", f"{len(words)} fields instead of {wanted}", "0 9 * * MON-FRI")


def _bad_step(field: _Field, item: str, step: int) -> BadTimetable:
    if step == 0:
        return _bad(field, item, "a step is at least 1")
    if field in (_SECOND, _MINUTE, _HOUR):
        every = f"@every {step}{field.name[0]}"
        problem = f"a step is at most {field.size}; other distances are written with @every"
        return _bad(field, item, problem, every if step <= _STEP_SHOWN_MAX else "@every 90m")
    return _bad(field, item, f"a step is at most {field.size}")


_STEP_SHOWN_MAX: Final = 8_000  # hours; 366 days have 8,784


def _unknown(field: _Field, item: str) -> BadTimetable:
    """The refusal of an item of an unknown form."""
    if not item:
        return _bad(field, item, "the list has an empty item")
    if "?" in item:
        return _bad(
            field, item, '"?" stands alone, for the day of month or the weekday', "0 9 ? * MON"
        )
    if _HASHED.fullmatch(item):
        return _bad(field, item, "hashed and random values are not supported: write the value")
    if field is _DAY and re.fullmatch(r"\d*W|W\d+|LW", item, re.ASCII):
        return _bad(field, item, "the nearest working day is not supported", "0 9 15 * *")
    if field is _WEEKDAY and (quartz := _QUARTZ_LAST.fullmatch(item)):
        problem = "the last such day of the month is written L and its number"
        return _bad(field, item, problem, f"0 9 * * L{_weekday_number(quartz[1] or quartz[2])}")
    if item.startswith("-"):
        return _bad(field, item, f"values are {field.values}")
    if "L" in item and field is _DAY:
        return _bad(field, item, "L alone is the last day of the month", "0 9 L * *")
    meant = nearest(item.partition("-")[0].partition("/")[0], field.names)
    hint = f"; did you mean {meant}?" if meant else ""
    return _bad(field, item, f"values are {field.values}{hint}")


def _weekday_number(text: str) -> int:
    return _number(_WEEKDAY, text) % 7


def _bad_macro(text: str, macro: str) -> BadTimetable:
    if macro == "@reboot":
        problem = '"@reboot" is not supported: schedules belong to the cluster, not to a machine'
        return BadTimetable("cron", problem, "@daily")
    if macro in MACROS:
        return BadTimetable("cron", f'"{macro}" stands alone, without fields', macro)
    meant = nearest(macro, (*MACROS, "@every")) or "@daily"
    known = ", ".join((*MACROS, "@every"))
    return BadTimetable(
        "cron",
        f'"{text}" is unknown; known are {known}',
        "@every 5m" if meant == "@every" else meant,
    )


def _every(words: list[str], timezone: str) -> Timetable:
    """The timetable of `@every`."""
    shown = f'"{" ".join(["@every", *words])}"'
    every_ns = parse_duration(" ".join(words))
    if every_ns is None:
        raise BadTimetable("cron", f"{shown}: a duration follows", "@every 1h30m")
    if not EVERY_NS_MIN <= every_ns <= EVERY_NS_MAX:
        raise BadTimetable("cron", f"{shown}: the duration is 1 s to 366 days", "@every 90s")
    if every_ns % MS:
        raise BadTimetable("cron", f"{shown}: whole milliseconds are needed", "@every 1.5s")
    return Timetable(f"@every {format_duration(every_ns // MS)}", timezone, every_ns=every_ns)


def _check_zone(timezone: str) -> None:
    if timezone == "UTC" or timezone in zone_names():
        return
    names = zone_names()
    by_letters = {name.casefold(): name for name in names}
    meant = by_letters.get(timezone.casefold()) or nearest(timezone, names)
    shown = timezone[:_ZONE_SHOWN_MAX]
    hint = f", did you mean {meant}?" if meant else ""
    raise BadTimetable(
        "timezone",
        f'"{shown}" is not a time zone of the tz database{hint}',
        meant or "Europe/Berlin",
    )


_ZONE_SHOWN_MAX: Final = 64
