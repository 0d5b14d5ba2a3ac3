"""Timetables in plain English: examples, and a check that different times have different texts."""

from itertools import product
from typing import Final

import pytest

from corvo.cron import BadTimetable, timetable
from corvo.cron_text import TEXT_LENGTH_MAX
from corvo.wall_calendar import Pattern


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0 * * * *", "every hour"),
        ("5 * * * *", "at minute 5 of every hour"),
        ("5,20 * * * MON", "at minutes 5 and 20 of every hour, every Monday"),
        ("0 9 * * MON-FRI", "at 09:00, Monday to Friday"),
        ("30 2 * * *", "at 02:30, every day"),
        ("0,30 9,17 * * SAT,SUN", "at 09:00, 09:30, 17:00 and 17:30, every Saturday and Sunday"),
        ("0 0 * * FRI-MON", "at 00:00, every Monday, Friday, Saturday and Sunday"),
        ("*/15 9-17 * * *", "every 15 minutes from 09:00 to 17:45"),
        ("* 9 * * *", "every minute from 09:00 to 09:59"),
        ("* 9,12 * * *", "every minute in hours 9 and 12"),
        ("5 9-17 * * *", "every hour from 09:05 to 17:05"),
        ("5 */2 * * *", "every 2 hours from 00:05 to 22:05"),
        (
            "1,2,3,10 0-20/3 * * *",
            "at minutes 1 to 3 and 10 of hours 0, 3, 6, 9, 12, 15 and 18, every day",
        ),
        ("0 9 1 * *", "at 09:00, on day 1 of the month"),
        ("0 9 1-7,15,L * *", "at 09:00, on days 1 to 7 and 15 and the last day of the month"),
        ("0 9 L * *", "at 09:00, on the last day of the month"),
        ("0 9 * * MON#1,FRI#3", "at 09:00, on the first Monday and the third Friday of the month"),
        ("0 9 * * L5", "at 09:00, on the last Friday of the month"),
        ("0 9 13 * FRI", "at 09:00, on day 13 of the month, and also every Friday"),
        ("0 9 */10 * MON", "at 09:00, on days 1, 11, 21 and 31 of the month that are a Monday"),
        ("0 9 1-31 * MON", "at 09:00, every day"),
        ("0 9 * 6-8 *", "at 09:00, every day from June to August"),
        ("0 9 1 JAN,JUL *", "at 09:00, on day 1 of the month in January and July"),
        ("* * * 6 *", "every minute, every day in June"),
        ("* * * * * *", "every second"),
        ("*/20 * 9 * * *", "every 20 seconds from 09:00 to 09:59:40"),
        ("15 30 9 * * *", "at 09:30:15, every day"),
        ("15 * * * * *", "at second 15 of every minute of every hour"),
        ("15,20 */30 * * * *", "at seconds 15 and 20 of minutes 0 and 30 of every hour"),
        ("* 5 * * * *", "every second of minute 5 of every hour"),
        ("@daily", "at 00:00, every day"),
    ],
)
def test_a_timetable_in_english(expression: str, text: str) -> None:
    assert timetable(expression, "Europe/Berlin").describe() == f"{text}, Europe/Berlin"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("@every 90s", "every 1 minute and 30 seconds"),
        ("@every 1h", "every hour"),
        ("@every 2d", "every 2 days"),
        ("@every 36h", "every 1 day and 12 hours"),
        ("@every 1.5s", "every 1 second and 500 ms"),
    ],
)
def test_a_fixed_distance_has_no_time_zone(expression: str, text: str) -> None:
    assert timetable(expression, "Europe/Berlin").describe() == text


def test_a_text_that_would_be_long_is_the_expression() -> None:
    expression = "1,4,9,16,25,36,49 1,4,9,16 2,3,5,7,11,13,17,19,23,29,31 2,5,8,12 1,3,5"

    assert timetable(expression).describe() == f"{expression}, UTC"


SECONDS: Final = ("", "0", "15", "*", "*/20", "0,7")
MINUTES: Final = ("*", "*/20", "0", "5", "0,5", "10-40/10")
HOURS: Final = ("*", "9", "9-12", "9,12", "*/6", "0-20/2")
DAYS: Final = ("*", "1", "1,15", "L", "15,L", "*/2", "1-31")
MONTHS: Final = ("*", "2", "6-8", "JAN,JUL")
WEEKDAYS: Final = ("*", "MON", "MON-FRI", "SAT,SUN", "*/2", "0-6", "MON#1", "L1", "MON#1,FRI#1")


def times_of(pattern: Pattern) -> tuple[object, ...]:
    """The times and days of a pattern, however they were written."""
    shapes = tuple(
        pattern.days_of_shape(length=length, first_weekday=first)
        for length in (28, 29, 30, 31)
        for first in range(7)
    )
    return pattern.seconds, pattern.minutes, pattern.hours, pattern.months, shapes


def test_expressions_with_one_text_have_the_same_times() -> None:
    found: dict[str, set[tuple[object, ...]]] = {}
    times = product(SECONDS, MINUTES, HOURS, ("*",), ("*",), ("*",))
    dates = product(("",), ("*", "0"), ("9",), DAYS, MONTHS, WEEKDAYS)

    for words in [*times, *dates]:
        try:
            one = timetable(" ".join(words).strip())
        except BadTimetable:
            continue
        assert one.pattern is not None
        assert len(one.describe()) <= TEXT_LENGTH_MAX
        found.setdefault(one.describe(), set()).add(times_of(one.pattern))

    assert len(found) > 400
    assert not [text for text, distinct in found.items() if len(distinct) > 1]
