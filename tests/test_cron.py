"""Cron expressions: what is accepted, each refusal, and each difference from croniter."""

import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadCronError, croniter
from hypothesis import example, given
from hypothesis import strategies as st

from corvo import cron
from corvo.cron import CRON_LENGTH_MAX, MACROS, BadTimetable, Timetable, timetable
from corvo.times import NS_MAX, S, format_time, parse_time
from tests.support.plain_cron import PlainCron, zone

HOUR_NS: Final = 3_600 * S
DAY_NS: Final = 24 * HOUR_NS
MISSING: Final = "does not exist in Europe/Berlin: the clocks are set forward to"


def ns(text: str) -> int:
    at = parse_time(text)
    assert at is not None
    return at


def due(expression: str, timezone: str, after: str, count: int = 3) -> list[str]:
    """The first due times after a moment, on the clocks of the zone, with their offset."""
    times = timetable(expression, timezone)
    at, found = ns(after), []
    for _ in range(count):
        following = times.next_after(at)
        assert following is not None
        at = following
        moment = datetime.fromtimestamp(at // S, UTC if timezone == "UTC" else zone(timezone))
        found.append(f"{moment:%d. %H:%M:%S %z}")
    return found


def refusal(expression: str, timezone: str = "UTC") -> BadTimetable:
    with pytest.raises(BadTimetable) as caught:
        timetable(expression, timezone)
    return caught.value


def equal(one: str, other: str) -> bool:
    """Whether two expressions are due at the same times."""
    first, second = timetable(one), timetable(other)
    return (first.pattern, first.every_ns) == (second.pattern, second.every_ns)


# ---- Fields.


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("0 9 * * mon-fri", "0 9 * * 1-5"),
        ("0 9 * * Sun", "0 9 * * 0"),
        ("0 9 * * 7", "0 9 * * 0"),
        ("0 9 * * 5-7", "0 9 * * 0,5,6"),
        ("0 9 * * 1-7/2", "0 9 * * 0,1,3,5"),
        ("0 9 * * 0-7", "0 9 * * *"),
        ("0 9 * * SUN-7", "0 9 * * *"),
        ("0 9 * * FRI-MON", "0 9 * * 0,1,5,6"),
        ("0 9 * jan,JUL *", "0 9 * 1,7 *"),
        ("0 9 ? * MON", "0 9 * * MON"),
        ("0 9 1 * ?", "0 9 1 * *"),
        ("0 22-2 * * *", "0 0,1,2,22,23 * * *"),
        ("5/15 * * * *", "5,20,35,50 * * * *"),
        ("59/15 * * * *", "59 * * * *"),
        ("*/60 * * * *", "0 * * * *"),
        ("05 009 * * *", "5 9 * * *"),
        ("  0\t9  * * * \n", "0 9 * * *"),
        ("0 0 9 * * *", "0 9 * * *"),
        ("0 9 * * L7", "0 9 * * L0"),
        ("@daily", "0 0 * * *"),
    ],
)
def test_two_ways_to_write_an_expression(written: str, plain: str) -> None:
    assert equal(written, plain)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("  05  09 ? * mon-fri ", "5 9 * * MON-FRI"),
        ("0 0 9-9 jan-jan *", "0 0 9 JAN *"),
        ("@DAILY", "@daily"),
        ("@every   90s", "@every 1m30s"),
        ("@every 2d", "@every 48h0m0s"),
        ("@every 1.5s", "@every 1.5s"),
    ],
)
def test_the_text_of_a_timetable_is_normal_and_means_the_same(written: str, normal: str) -> None:
    times = timetable(written)

    assert times.cron == normal
    assert timetable(normal) == times


def test_the_seconds_are_the_first_of_six_fields() -> None:
    found = due("15 30 9 * * *", "UTC", "2026-05-01T00:00:00Z", 2)

    assert found == ["01. 09:30:15 +0000", "02. 09:30:15 +0000"]


@pytest.mark.parametrize("macro", MACROS)
def test_a_macro_is_its_expression(macro: str) -> None:
    times = timetable(macro)

    assert times.cron == macro
    assert times.pattern == timetable(MACROS[macro]).pattern
    assert times.repeats == (macro == "@hourly")
    theirs = croniter(macro, datetime(2026, 5, 13, tzinfo=UTC)).get_next(datetime)
    assert times.next_after(ns("2026-05-13")) == round(theirs.timestamp()) * S


def test_a_day_matches_by_number_or_by_weekday_when_both_are_restricted() -> None:
    found = due("0 0 13 * FRI", "UTC", "2026-11-05T12:00:00Z", 4)

    assert [text[:3] for text in found] == ["06.", "13.", "20.", "27."]


def test_a_field_that_begins_with_a_star_does_not_restrict_the_day() -> None:
    """So a day must match both, as in Vixie's cron."""
    found = due("0 0 */2 * MON", "UTC", "2026-11-01T12:00:00Z", 3)

    assert [text[:3] for text in found] == ["09.", "23.", "07."]


def test_the_last_day_of_each_month() -> None:
    found = due("0 0 L * *", "UTC", "2028-01-31T12:00:00Z", 4)

    assert [text[:3] for text in found] == ["29.", "31.", "30.", "31."]


def test_the_first_monday_and_the_last_friday_of_a_month() -> None:
    assert due("0 0 * * MON#1", "UTC", "2026-11-01", 2) == [
        "02. 00:00:00 +0000",
        "07. 00:00:00 +0000",
    ]
    assert due("0 0 * * L5", "UTC", "2026-11-01", 2) == ["27. 00:00:00 +0000", "25. 00:00:00 +0000"]


def test_the_29_of_february_comes_again_after_the_year_2100() -> None:
    times = timetable("0 0 29 2 *")

    assert times.next_after(ns("2096-02-28")) == ns("2096-02-29")
    assert times.next_after(ns("2096-02-29")) == ns("2104-02-29")


def test_a_fifth_weekday_in_february_is_found_after_40_years() -> None:
    times = timetable("0 0 * 2 MON#5")

    found = times.next_after(ns("2072-03-01"))

    assert found == ns("2112-02-29")


def test_no_due_time_is_after_the_last_year_that_can_be_written() -> None:
    assert timetable("0 0 1 1 *").next_after(NS_MAX) is None
    assert timetable("0 0 1 1 *", "Europe/Berlin").next_after(ns("9891-06-01")) is not None
    assert timetable("0 0 1 1 *", "Europe/Berlin").next_after(ns("9899-06-01")) is None
    assert timetable("@every 1h").next_after(NS_MAX) is None


def test_due_times_begin_with_1970() -> None:
    assert timetable("0 0 * * *").next_after(-(10**20)) == 0
    assert timetable("0 0 * * *").next_after(0) == DAY_NS


# ---- @every.


def test_every_counts_from_the_anchor() -> None:
    times = timetable("@every 90s", "Europe/Berlin")
    anchor_ns = ns("2026-05-01T00:00:10.5Z")

    assert times.every_ns == 90 * S
    assert times.next_after(anchor_ns - DAY_NS, anchor_ns) == anchor_ns + 90 * S
    assert times.next_after(anchor_ns, anchor_ns) == anchor_ns + 90 * S
    assert times.next_after(anchor_ns + 90 * S - 1, anchor_ns) == anchor_ns + 90 * S
    assert times.next_after(anchor_ns + 90 * S, anchor_ns) == anchor_ns + 180 * S
    assert (
        times.next_after(anchor_ns + 10**6 * 90 * S, anchor_ns) == anchor_ns + (10**6 + 1) * 90 * S
    )


def test_the_anchor_changes_nothing_for_an_expression() -> None:
    times = timetable("*/5 * * * *")

    assert times.next_after(0, 7 * S) == times.next_after(0) == 300 * S
    assert times.every_ns == 0


# ---- The distance of due times.


@pytest.mark.parametrize(
    ("expression", "shortest_ns"),
    [
        ("* * * * * *", S),
        ("*/15 * * * * *", 15 * S),
        ("0,50 * * * * *", 10 * S),
        ("0 * * * * *", 60 * S),
        ("* * * * *", 60 * S),
        ("*/7 * * * *", 4 * 60 * S),
        ("0 * * * *", HOUR_NS),
        ("0 9,17 * * *", 8 * HOUR_NS),
        ("0 9 * * MON", DAY_NS),
        ("@every 1h30m", 90 * 60 * S),
    ],
)
def test_the_shortest_distance_of_due_times(expression: str, shortest_ns: int) -> None:
    assert timetable(expression).shortest_ns == shortest_ns


# ---- Changes of the clocks, by name.


def test_in_spring_a_missing_time_of_day_is_due_at_the_end_of_the_gap() -> None:
    assert due("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z") == [
        "28. 02:30:00 +0100",
        "29. 03:00:00 +0200",
        "30. 02:30:00 +0200",
    ]


def test_several_missing_times_of_day_are_due_once() -> None:
    assert due("0,20,40 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2) == [
        "29. 03:00:00 +0200",
        "30. 02:00:00 +0200",
    ]
    assert due("0,30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2) == [
        "29. 03:00:00 +0200",
        "29. 03:30:00 +0200",
    ]


def test_in_autumn_a_time_of_day_that_comes_twice_is_due_once() -> None:
    assert due("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2) == [
        "25. 02:30:00 +0200",
        "26. 02:30:00 +0100",
    ]


def test_a_repeating_expression_is_due_in_both_passes_of_an_hour() -> None:
    assert due("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 4) == [
        "25. 02:30:00 +0200",
        "25. 02:00:00 +0100",
        "25. 02:30:00 +0100",
        "25. 03:00:00 +0100",
    ]


def test_a_repeating_expression_is_not_due_in_a_missing_hour() -> None:
    assert due("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 1) == ["30. 02:00:00 +0200"]


def test_a_midnight_that_does_not_exist_is_due_at_one() -> None:
    assert due("0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", 2) == [
        "06. 01:00:00 -0300",
        "07. 00:00:00 -0300",
    ]


def test_a_day_that_a_zone_skipped_is_due_when_the_next_one_begins() -> None:
    assert due("0 9 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00Z", 1) == ["31. 00:00:00 +1400"]
    assert due("0 9 * * *", "Pacific/Apia", "2011-12-29T19:00:00Z", 3) == [
        "31. 00:00:00 +1400",
        "31. 09:00:00 +1400",
        "01. 09:00:00 +1400",
    ]


def test_a_change_by_half_an_hour() -> None:
    assert due("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", 1) == [
        "04. 02:30:00 +1100"
    ]
    assert due("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", 2) == [
        "05. 01:45:00 +1100",
        "06. 01:45:00 +1030",
    ]


def test_a_zone_whose_winter_time_is_the_exception() -> None:
    """Dublin has a negative change in winter."""
    assert due("30 1 * * *", "Europe/Dublin", "2026-10-24T12:00:00Z", 2) == [
        "25. 01:30:00 +0100",
        "26. 01:30:00 +0000",
    ]


@pytest.mark.parametrize(
    ("expression", "due_at", "note"),
    [
        (
            "30 2 * * *",
            "2026-03-29T01:00:00Z",
            f"2026-03-29 02:30 {MISSING} 2026-03-29 03:00",
        ),
        ("0 3 * * *", "2026-03-29T01:00:00Z", ""),
        ("*/30 * * * *", "2026-03-29T01:00:00Z", ""),
        (
            "*/30 * * * *",
            "2026-10-25T00:30:00Z",
            "2026-10-25 02:30 comes twice in Europe/Berlin: this is the first",
        ),
        (
            "*/30 * * * *",
            "2026-10-25T01:30:00Z",
            "2026-10-25 02:30 comes twice in Europe/Berlin: this is the second",
        ),
        ("*/30 * * * *", "2026-10-25T02:00:00Z", ""),
        ("*/30 * * * *", "2026-10-24T23:30:00Z", ""),
        ("@every 30m", "2026-10-25T00:30:00Z", ""),
    ],
)
def test_a_note_about_a_due_time_at_a_change(expression: str, due_at: str, note: str) -> None:
    times = timetable(expression, "Europe/Berlin")
    if not times.every_ns:
        assert times.next_after(ns(due_at) - 1) == ns(due_at)

    assert times.note(ns(due_at)) == note


# ---- Differences from croniter.


def theirs(expression: str, start: datetime, count: int) -> list[str]:
    found = croniter(expression, start)
    return [f"{found.get_next(datetime):%d. %H:%M:%S %z}" for _ in range(count)]


def test_croniter_repeats_a_time_of_day_in_autumn() -> None:
    start = datetime(2026, 10, 24, 14, tzinfo=ZoneInfo("Europe/Berlin"))

    assert theirs("30 2 * * *", start, 2) == ["25. 02:30:00 +0200", "25. 02:30:00 +0100"]
    assert due("30 2 * * *", "Europe/Berlin", format_time(round(start.timestamp()) * S), 2) == [
        "25. 02:30:00 +0200",
        "26. 02:30:00 +0100",
    ]


def test_croniter_reads_a_range_of_one_value_as_all_values() -> None:
    assert croniter.expand("0 9-9 * * *") == croniter.expand("0 * * * *")
    assert equal("0 9-9 * * *", "0 9 * * *")
    assert equal("0 9-9/2 * * *", "0 9 * * *")
    assert equal("0 0 * * SUN-SUN", "0 0 * * SUN")
    assert equal("0 0 * * 7-7", "0 0 * * SUN")
    assert equal("0 0 * * 7-0", "0 0 * * SUN")


def test_croniter_miscounts_steps_of_a_range_across_the_end() -> None:
    assert croniter.expand("0 21-6/2 * * *")[0][1] == [2, 4, 6, 21, 23]  # 21, 23, 1, 3, 5
    assert "cannot have a step" in refusal("0 21-6/2 * * *").message


def test_croniter_reads_random_values_at_each_reading() -> None:
    assert len({str(croniter.expand("R R * * *")) for _ in range(200)}) > 1
    assert "random" in refusal("R * * * *").message
    assert "random" in refusal("H(0-30)/5 * * * *").message


def test_croniter_takes_a_star_with_a_step_for_a_restriction_unless_told_not_to() -> None:
    start = datetime(2026, 11, 1, 12, tzinfo=UTC)

    assert theirs("0 0 */2 * MON", start, 2) == ["02. 00:00:00 +0000", "03. 00:00:00 +0000"]
    assert due("0 0 */2 * MON", "UTC", "2026-11-01T12:00:00Z", 1) == ["09. 00:00:00 +0000"]


def test_croniter_drops_a_day_of_month_beside_the_number_of_a_weekday() -> None:
    """Without `#` either of them matches."""
    start = datetime(2026, 11, 1, 12, tzinfo=UTC)

    assert theirs("0 0 1 * MON#1", start, 2) == ["02. 00:00:00 +0000", "07. 00:00:00 +0000"]
    assert "use two schedules" in refusal("0 0 1 * MON#1").message


def test_croniter_accepts_days_that_do_not_exist() -> None:
    assert croniter.expand("0 0 31 2 *")
    assert "does not occur" in refusal("0 0 31 2 *").message


# ---- Refusals.

REFUSED: Final = [
    ("75 * * * *", 'minute "75": 75 is not in 0 to 59'),
    ("0 24 * * *", 'hour "24": 24 is not in 0 to 23'),
    ("61 0 9 * * *", 'second "61": 61 is not in 0 to 59'),
    ("0 0 0 * *", 'day of month "0": 0 is not in 1 to 31'),
    ("0 0 32 * *", 'day of month "32": 32 is not in 1 to 31'),
    ("0 0 * 13 *", 'month "13": 13 is not in 1 to 12 or JAN to DEC'),
    ("0 0 * * 8", 'weekday "8": 8 is not in 0 to 7 or SUN to SAT'),
    ("10-60 * * * *", 'minute "10-60": 60 is not in 0 to 59'),
    ("-5 * * * *", 'minute "-5": values are 0 to 59'),
    ("0 0 * JANUARY *", 'month "JANUARY": values are 1 to 12 or JAN to DEC; did you mean JAN?'),
    ("0 0 * * MNO", 'weekday "MNO": values are 0 to 7 or SUN to SAT; did you mean MON?'),
    ("0 0 * * MON-XYZ", 'weekday "MON-XYZ": values are'),
    ("0 0 * MON *", 'month "MON": values are 1 to 12 or JAN to DEC'),
    ("MON * * * *", 'minute "MON": values are 0 to 59'),
    ("1.5 * * * *", 'minute "1.5": values are 0 to 59'),
    ("1-2-3 * * * *", 'minute "1-2-3": values are 0 to 59'),
    ("0 9am * * *", 'hour "9AM": values are 0 to 23'),
    ("*/0 * * * *", 'minute "*/0": a step is at least 1'),
    (
        "*/90 * * * *",
        'minute "*/90": a step is at most 60; other distances are written with @every',
    ),
    ("0 */9999999 * * *", 'hour "*/9999999": a step is at most 24'),
    ("0 0 */40 * *", 'day of month "*/40": a step is at most 31'),
    ("1,,2 * * * *", 'minute "": the list has an empty item'),
    ("1, * * * *", 'minute "": the list has an empty item'),
    ("*,5 * * * *", 'minute "*,5": "*" already has all values, so it cannot be in a list'),
    ("50-10/3 * * * *", 'minute "50-10/3": a range across the end of the field cannot have a step'),
    ("? * * * *", 'minute "?": "?" stands alone, for the day of month or the weekday'),
    ("0 0 ?/2 * *", 'day of month "?/2": "?" stands alone'),
    ("H * * * *", 'minute "H": hashed and random values are not supported: write the value'),
    ("0 R(0-5)/2 * * *", 'hour "R(0-5)/2": hashed and random values'),
    ("0 0 15W * *", 'day of month "15W": the nearest working day is not supported'),
    ("0 0 LW * *", 'day of month "LW": the nearest working day is not supported'),
    ("0 0 L-3 * *", 'day of month "L-3": L alone is the last day of the month'),
    ("L * * * *", 'minute "L": values are 0 to 59'),
    ("0 0 * * L", 'weekday "L": values are'),
    ("0 0 * * L8", 'weekday "L8": 8 is not in 0 to 7'),
    ("0 0 * * 5L", 'weekday "5L": the last such day of the month is written L and its number'),
    ("0 0 * * LFRI", 'weekday "LFRI": the last such day of the month is written L and its number'),
    ("0 0 * * MON#6", 'weekday "MON#6": the number after # is 1 to 5'),
    ("0 0 * * MON#", 'weekday "MON#": values are'),
    ("0 0 * * 9#1", 'weekday "9#1": 9 is not in 0 to 7'),
    ("0 0 * * XYZ#1", 'weekday "XYZ#1": values are'),
    (
        "0 0 * * MON,FRI#3",
        'weekday "MON,FRI#3": "FRI#3" and "MON" cannot be in one list: use two schedules',
    ),
    ("0 0 1 * FRI#3", 'weekday "FRI#3" cannot stand beside day of month "1": use two schedules'),
    ("0 0 1 * L5", 'weekday "L5" cannot stand beside day of month "1": use two schedules'),
    ("0 0 31 2 *", 'day of month "31" does not occur in month "2"'),
    ("0 0 30,31 FEB *", 'day of month "30,31" does not occur in month "FEB"'),
    ("0 0 31 4,6,9,11 ?", 'day of month "31" does not occur in month "4,6,9,11"'),
    ("", "0 fields instead of 5 fields (minute, hour, day of month, month, weekday)"),
    ("* * * *", "4 fields instead of 5 fields"),
    ("* * * * * * * *", "8 fields instead of 5 fields"),
    ("0 0 9 1 1 ? 2027", "7 fields: years are not supported"),
    ("@reboot", '"@reboot" is not supported: schedules belong to the cluster'),
    ("@dayly", '"@dayly" is unknown; known are @yearly,'),
    ("@evry 5m", '"@evry 5m" is unknown; known are @yearly,'),
    ("@daily 9", '"@daily" stands alone, without fields'),
    ("@every", '"@every": a duration follows'),
    ("@every soon", '"@every soon": a duration follows'),
    ("@every 5", '"@every 5": a duration follows'),
    ("@every 999ms", '"@every 999ms": the duration is 1 s to 366 days'),
    ("@every -5m", '"@every -5m": the duration is 1 s to 366 days'),
    ("@every 367d", '"@every 367d": the duration is 1 s to 366 days'),
    ("@every 1.00000001s", '"@every 1.00000001s": whole milliseconds are needed'),
    (
        "0 9 * * *" + " " * CRON_LENGTH_MAX,
        "the expression has 265 characters, and at most 256 are read",
    ),
    ("٣ * * * *", 'minute "٣": values are 0 to 59'),
]


@pytest.mark.parametrize(("expression", "problem"), REFUSED)
def test_a_wrong_expression_is_refused_with_its_field_and_a_right_example(
    expression: str, problem: str
) -> None:
    refused = refusal(expression)

    assert refused.field == "cron"
    assert refused.message.startswith(problem)
    example = re.fullmatch(r'.*; for example "([^"]+)"', refused.message)
    assert example is not None
    timetable(example[1])


@pytest.mark.parametrize(
    ("timezone", "hint"),
    [
        ("europe/berlin", "Europe/Berlin"),
        ("Europe/Berlinn", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("utc", "UTC"),
        ("", "Europe/Berlin"),
        ("../zones", ""),
        ("Europe/../UTC", ""),
        ("Europe", ""),
        ("/etc/localtime", ""),
        ("__init__.py", ""),
        ("Europe/Berlin\x00", "Europe/Berlin"),
        ("x" * 10_000, "Europe/Berlin"),
    ],
)
def test_an_unknown_time_zone_is_refused_with_the_nearest_name(timezone: str, hint: str) -> None:
    refused = refusal("* * * * *", timezone)

    assert refused.field == "timezone"
    assert len(refused.message) < 200
    example = re.fullmatch(r'.*; for example "([^"]+)"', refused.message, re.DOTALL)
    assert example is not None
    assert hint in {example[1], ""}
    timetable("* * * * *", example[1])


def test_an_expression_that_only_names_times_in_gaps_is_refused() -> None:
    """In Berlin the clocks are set forward at 2:00 on each last Sunday of March."""
    refused = refusal("* 2 * 3 L0", "Europe/Berlin")

    assert 'over hour "2"' in refused.message
    assert timetable("* 2 * 3 L0", "UTC").next_after(0) is not None
    assert timetable("30 2 * 3 L0", "Europe/Berlin").next_after(0) is not None


def test_the_longest_expression_is_read() -> None:
    longest = "0-59," * 49 + "1 " + "* * * *"

    assert len(longest) <= CRON_LENGTH_MAX
    assert equal(longest, "0-59 * * * *")


def test_an_expression_that_croniter_refuses_all_the_same_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise CroniterBadCronError

    monkeypatch.setattr(croniter, "expand", refuse)
    assert "cannot be read" in refusal("1 2 3 4 5").message


PARTS: Final = (
    *("*", "?", "/", "-", ",", "#", "L", "W", "H", "R", "@", "@every", "@daily", "(", ")", " "),
    *("0", "5", "7", "31", "60", "00", "99999999999", "mon", "SUN", "feb", "xyz", "1-5", "*/15"),
    *("MON#1", "L5", "90s", "2", "é", "\x00", "\n", "\ud800", "0 0 * * *", "* * "),
)


@given(text=st.lists(st.sampled_from(PARTS), max_size=14).map("".join) | st.text(max_size=40))
@example(text="0 0 ** * *")
@example(text="0 0 * * MON#1#2")
@example(text="0 0 * * L")
@example(text="0/ * * * *")
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        times = timetable(text)
    except BadTimetable as refused:
        written = re.search(r'; for example "([^"]+)"$', refused.message)
        assert written is not None
        timetable(written[1])
        return

    assert timetable(times.cron) == times
    assert times.describe()
    assert times.next_after(0) is not None


fields = st.sampled_from(
    (
        *("*", "?", "5", "L", "W", "mon", "1-5", "*/15", "5-5", "7-7", "22-3", "1,31", "*,1"),
        *("mon#1", "L5", "1-3/2", "9/3", "sun-7", "5-2/2", "30", "feb", "dec-jan", "0", "07", "1-"),
    )
)


@given(text=st.lists(fields, min_size=5, max_size=6).map(" ".join))
@example(text="0 0 29 2 *")
@example(text="0 0 30 2 ?")
def test_any_fields_are_read_as_in_a_plain_reading_or_refused(text: str) -> None:
    try:
        times = timetable(text)
    except BadTimetable:
        return

    due_ns = times.next_after(1_790_000_000 * S)
    assert due_ns is not None
    assert PlainCron(text).matches(datetime.fromtimestamp(due_ns // S, UTC))


# ---- The module.


def test_equal_expressions_share_a_timetable() -> None:
    assert timetable("1 2 3 4 5", "Asia/Tokyo") is timetable("1 2 3 4 5", "Asia/Tokyo")
    assert isinstance(timetable("1 2 3 4 5"), Timetable)


def test_croniter_is_imported_with_the_first_expression() -> None:
    script = (
        "import sys, corvo.cron as cron\n"
        "cron.timetable('@every 5m').next_after(0)\n"
        "assert 'croniter' not in sys.modules\n"
        "cron.timetable('@daily').next_after(0)\n"
        "assert 'croniter' in sys.modules\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_names_of_the_interface_are_in_one_module() -> None:
    assert set(cron.__all__) >= {
        "BadTimetable",
        "Timetable",
        "timetable",
        "tz_version",
        "zone_names",
    }
