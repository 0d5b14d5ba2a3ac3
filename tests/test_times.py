"""Moments and durations as text, held to a calendar that counts the days of years and months."""

from bisect import bisect_right
from fractions import Fraction
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corvo.times import (
    MINUTE_NS,
    MS,
    NS_MAX,
    S,
    format_duration,
    format_ms,
    format_time,
    format_time_or_none,
    parse_duration,
    parse_sortable,
    parse_time,
    sortable,
    without_zeros,
)

# The calendar by counting.

MONTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in(year: int, month: int) -> int:
    return 29 if month == 2 and is_leap(year) else MONTHS[month - 1]


def count_days() -> list[int]:
    """For each year from 0 to 10,000, how many days lie between 1970 and its beginning."""
    starts = [0]
    for year in range(10_000):
        starts.append(starts[-1] + 365 + is_leap(year))
    return [start - starts[1970] for start in starts]


YEARS: Final = count_days()
NS_MIN: Final = YEARS[1] * 86_400 * S


def date_of(days: int) -> tuple[int, int, int]:
    year = bisect_right(YEARS, days) - 1
    days -= YEARS[year]
    month = 1
    while days >= days_in(year, month):
        days -= days_in(year, month)
        month += 1
    return year, month, days + 1


def text_of(at_ns: int) -> str:
    """A moment up to its seconds."""
    days, second = divmod(at_ns // S, 86_400)
    year, month, day = date_of(days)
    clock = f"{second // 3_600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{year:04d}-{month:02d}-{day:02d}T{clock}"


def written(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int | None:
    """Seconds since 1970; None for a moment that no calendar has."""
    if not (1 <= month <= 12 and 1 <= day <= days_in(year, month)):
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    days = YEARS[year] + sum(days_in(year, before) for before in range(1, month)) + day - 1
    return days * 86_400 + hour * 3_600 + minute * 60 + second


EDGES: Final = (
    NS_MIN,
    NS_MIN + 1,
    -1,
    0,
    1,
    -S,
    S - 1,
    YEARS[1600] * 86_400 * S - 1,
    YEARS[1900] * 86_400 * S + 59 * 86_400 * S,
    YEARS[2000] * 86_400 * S + 59 * 86_400 * S,
    YEARS[2024] * 86_400 * S + 59 * 86_400 * S - 1,
    NS_MAX,
)
moments = st.integers(NS_MIN, NS_MAX) | st.sampled_from(EDGES) | st.integers(0, 1 << 62)


# Moments, written.


@given(moments)
def test_a_moment_is_written_as_the_calendar_has_it(at_ns: int) -> None:
    seconds, decimals = text_of(at_ns), f"{at_ns % S:09d}"
    stripped = decimals.rstrip("0")

    assert sortable(at_ns) == f"{seconds}.{decimals}Z"
    assert format_ms(at_ns) == f"{seconds}.{decimals[:3]}Z"
    assert format_time(at_ns) == (f"{seconds}.{stripped}Z" if stripped else f"{seconds}Z")


@pytest.mark.parametrize("at_ns", EDGES)
def test_an_edge_of_the_calendar_is_written_and_read(at_ns: int) -> None:
    assert sortable(at_ns)[:19] == text_of(at_ns)
    assert parse_time(format_time(at_ns)) == at_ns


def test_every_day_of_the_calendar_is_written_and_read() -> None:
    for days in range(YEARS[1], YEARS[10_000], 11):
        at_ns = days * 86_400 * S
        text = format_time(at_ns)

        assert text == f"{text_of(at_ns)}Z"
        assert parse_time(text) == at_ns


@given(moments)
def test_a_moment_that_was_written_is_read_again(at_ns: int) -> None:
    assert parse_time(format_time(at_ns)) == at_ns
    assert parse_time(sortable(at_ns)) == parse_sortable(sortable(at_ns)) == at_ns
    assert without_zeros(sortable(at_ns)) == format_time(at_ns)


@given(moments, moments)
def test_comparing_sortable_texts_compares_moments(one_ns: int, other_ns: int) -> None:
    assert (sortable(one_ns) < sortable(other_ns)) == (one_ns < other_ns)


@pytest.mark.parametrize(
    ("at_ns", "text"),
    [
        (NS_MIN - 1, "0001-01-01T00:00:00.999999999Z"),
        (-(1 << 80), "0001-01-01T00:00:00"),
        (NS_MAX + 1, "9999-12-31T23:59:59"),
        (1 << 80, "9999-12-31T23:59:59"),
    ],
)
def test_a_moment_outside_the_calendar_is_written_as_its_first_or_last_second(
    at_ns: int, text: str
) -> None:
    assert format_time(at_ns).startswith(text)
    assert len(sortable(at_ns)) == 30


def test_zero_stands_for_no_moment() -> None:
    assert format_time_or_none(0) is None
    assert format_time_or_none(1) == "1970-01-01T00:00:00.000000001Z"


@pytest.mark.parametrize(
    ("at_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400 * S, "2000-02-29T00:00:00Z"),
        (1_771_581_605_123_456_789, "2026-02-20T10:00:05.123456789Z"),
        (1_771_581_605_120_000_000, "2026-02-20T10:00:05.12Z"),
        (1_771_581_605_000_000_001, "2026-02-20T10:00:05.000000001Z"),
    ],
)
def test_a_moment_is_written_with_as_many_decimals_as_it_has(at_ns: int, text: str) -> None:
    assert format_time(at_ns) == text


# Moments, read.


@given(
    # Now and then a month, day or hour that there is not.
    st.tuples(
        st.integers(0, 9_999),
        st.integers(0, 13),
        st.integers(0, 32) | st.integers(27, 32),
        st.integers(0, 24),
        st.integers(0, 60),
        st.integers(0, 60),
    ),
    st.none() | st.text("0123456789", min_size=1, max_size=40),
    st.none() | st.tuples(st.sampled_from("+-"), st.integers(0, 24), st.integers(0, 60)),
)
@example((0, 2, 29, 0, 0, 0), "0", None)
@example((1, 1, 1, 0, 0, 0), None, ("+", 23, 59))
@example((9999, 12, 31, 23, 59, 59), "9" * 40, ("-", 23, 59))
@example((1900, 2, 29, 0, 0, 0), None, None)
@example((2000, 2, 29, 0, 0, 0), None, None)
def test_a_moment_is_read_as_the_calendar_has_it(
    parts: tuple[int, int, int, int, int, int],
    fraction: str | None,
    offset: tuple[str, int, int] | None,
) -> None:
    year, month, day, hour, minute, second = parts
    decimals = f".{fraction}" if fraction else ""
    sign, hours, minutes = offset or ("+", 0, 0)
    zone = f"{sign}{hours:02d}:{minutes:02d}" if offset else "Z"
    text = f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}{decimals}{zone}"

    seconds = written(*parts)
    wanted = None
    if seconds is not None and hours <= 23 and minutes <= 59:
        offset_s = (hours * 60 + minutes) * 60 * (-1 if sign == "-" else 1)
        below = int(Fraction(f"0.{fraction or 0}") * S)
        wanted = (seconds - offset_s) * S + below
    assert parse_time(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-02",
        "2026-02-30",
        "2026-02-20Z",
        "2026-02-20+01:00",
        "2026-02-20T10:00:05",
        "2026-02-20T10:00Z",
        "2026-02-29T10:00:05Z",
        "1900-02-29T10:00:05Z",
        "2026-13-01T10:00:05Z",
        "2026-00-01T10:00:05Z",
        "2026-04-31T10:00:05Z",
        "2026-04-00T10:00:05Z",
        "2026-02-20T24:00:05Z",
        "2026-02-20T10:60:05Z",
        "2026-02-20T10:00:60Z",
        "2026-02-20T10:00:05.Z",
        "2026-02-20T10:00:05+24:00",
        "2026-02-20T10:00:05+01:60",
        "2026-02-20T10:00:05+1:00",
        "2026-02-20T10:00:05+0100",
        "2026-02-20T10:00:05Z\n",
        "2026-02-20T10:00:05.٣Z",
        "٢٠٢٦-02-20T10:00:05Z",
    ],
)
def test_any_other_text_is_no_moment(text: str) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize(
    "text",
    ["2026-02-20t10:00:05.25z", "2026-02-20 11:00:05.25+01:00", "2026-02-20T09:15:05.25-00:45"],
)
def test_a_moment_may_be_written_in_several_ways(text: str) -> None:
    assert parse_time(text) == 1_771_581_605_250_000_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-02-20", "2026-02-20T00:00:00Z"),
        ("2000-02-29", "2000-02-29T00:00:00Z"),
        ("1970-01-01", "1970-01-01T00:00:00Z"),
    ],
)
def test_a_date_alone_is_its_first_moment_in_utc(text: str, moment: str) -> None:
    assert parse_time(text) == parse_time(moment)


# Durations.


@pytest.mark.parametrize(
    ("text", "span_ns"),
    [
        ("0", 0),
        ("5s", 5 * S),
        ("10m", 10 * MINUTE_NS),
        ("1h30m", 90 * MINUTE_NS),
        ("7d", 168 * 60 * MINUTE_NS),
        ("1d12h", 36 * 60 * MINUTE_NS),
        ("0.5d", 12 * 60 * MINUTE_NS),
        ("500ms", 500 * MS),
        ("1.5s", 1_500 * MS),
        (".5s", 500 * MS),
        ("1.s", S),
        ("2h0.25m3us4ns", 7_215 * S + 3_004),
        ("7\u00b5s", 7_000),
        ("7\u03bcs", 7_000),
        ("+3s", 3 * S),
        ("-3s", -3 * S),
        ("0.0000000019s", 1),
    ],
)
def test_a_duration_is_read_as_go_reads_it_and_in_days(text: str, span_ns: int) -> None:
    assert parse_duration(text) == span_ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "5",
        "5 s",
        "s",
        ".s",
        "d",
        "1D",
        "1w",
        "5S",
        "1h-3m",
        "--1s",
        "0x1s",
        "1e3s",
        "٣s",
        "5s\n",
    ],
)
def test_any_other_text_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None


def test_a_duration_of_many_parts_has_an_end() -> None:
    assert parse_duration("1s" * 32) == 32 * S
    assert parse_duration("1s" * 33) is None


UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": MS,
    "s": S,
    "m": 60 * S,
    "h": 3_600 * S,
    "d": 86_400 * S,
}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9_999),
            st.text("0123456789", max_size=9),
            st.sampled_from(sorted(UNITS)),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str, str]]) -> None:
    text = "".join(f"{whole}.{decimals}{unit}" for whole, decimals, unit in parts)

    wanted = sum(
        int((whole + Fraction(int(decimals or "0"), 10 ** len(decimals))) * UNITS[unit])
        for whole, decimals, unit in parts
    )
    assert parse_duration(text) == wanted


@given(st.integers(0, 10 * 366 * 86_400_000))
def test_a_duration_that_was_written_is_read_again(span_ms: int) -> None:
    assert parse_duration(format_duration(span_ms)) == span_ms * MS


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0s"),
        (500, "500ms"),
        (5_000, "5s"),
        (1_500, "1.5s"),
        (60_000, "1m0s"),
        (5_400_000, "1h30m0s"),
        (3_600_001, "1h0m0.001s"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(span_ms: int, text: str) -> None:
    assert format_duration(span_ms) == text
