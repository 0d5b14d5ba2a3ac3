"""Due times, held to two other readings: croniter's own search, and a plain walk of the clocks.

The walk is in `tests.support.plain_cron`. `--hypothesis-profile=deep` tries far more expressions.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from croniter import croniter
from hypothesis import assume, example, given
from hypothesis import strategies as st

from corvo.cron import BadTimetable, Timetable, timetable
from corvo.times import S
from corvo.wall_calendar import wall_of
from tests.support.plain_cron import (
    MONTHS,
    WEEKDAYS,
    ZONES,
    PlainCron,
    changes,
    offset_at,
    wall_at,
)

HOUR: Final = 3_600
CHANGES: Final = [(zone, at) for zone in ZONES for at in changes(zone, 2024, 2030)]

TIMES_OF_DAY: Final = (
    "0 0 * * *",
    "30 2 * * *",
    "30 0,1,2,3 * * *",
    "0,15,45 1-3 * * *",
    "5 0-23 * * *",
    "59 23 L * *",
    "0-59/7 0-23/3 * * *",
)
REPEATING: Final = ("* * * * *", "*/20 * * * *", "30 * * * *", "*/30 0-3 * * *", "59 */2 * * SUN")
SIX_FIELDS: Final = (
    "0 30 2 * * *",
    "15,45 0,59 0-3 * * *",
    "*/30 0 * * * *",
    "* 59 1,23 * * *",
    "30 59 23 * * *",
)


def due_between(times: Timetable, begin: int, end: int) -> list[int]:
    """The due times from `begin` on and before `end`, in seconds."""
    found = []
    at = times.next_after(begin * S - 1)
    while at is not None and at < end * S:
        assert at % S == 0
        found.append(at // S)
        at = times.next_after(at)
    return found


# ---- The walk.


def test_the_zones_change_their_clocks_in_many_ways() -> None:
    steps = {offset_at(zone, at) - offset_at(zone, at - 1) for zone, at in CHANGES}
    at_midnight = {zone for zone, at in CHANGES if wall_at(zone, at - 60).hour == 23}

    assert len(ZONES) >= 30
    assert len(CHANGES) > 250
    assert {1_800, -1_800, HOUR, -HOUR, 2 * HOUR, -2 * HOUR} <= steps
    assert {"America/Havana", "America/Santiago", "Africa/Cairo"} <= at_midnight


@pytest.mark.parametrize("expression", TIMES_OF_DAY + REPEATING)
def test_at_every_change_of_the_clocks_due_times_are_those_of_a_walk(expression: str) -> None:
    plain = PlainCron(expression)

    for zone, at in CHANGES:
        begin, end = at - 3 * HOUR, at + 4 * HOUR
        found = due_between(timetable(expression, zone), begin, end)
        assert found == list(plain.due_between(zone, begin, end)), (zone, at)


@pytest.mark.parametrize("expression", SIX_FIELDS)
def test_with_seconds_due_times_are_those_of_a_walk(expression: str) -> None:
    plain = PlainCron(expression)
    firsts = {
        (offset_at(zone, at) - offset_at(zone, at - 1), wall_at(zone, at).hour): (zone, at)
        for zone, at in CHANGES
    }

    for zone, at in firsts.values():
        begin, end = at - HOUR, at + HOUR + 60
        found = due_between(timetable(expression, zone), begin, end)
        assert found == list(plain.due_between(zone, begin, end)), (zone, at)


@pytest.mark.parametrize("zone", ["Pacific/Apia", "America/Sao_Paulo", "Asia/Pyongyang"])
def test_a_whole_month_is_that_of_a_walk(zone: str) -> None:
    """Among them the December in which Samoa skipped a day."""
    year = {"Pacific/Apia": 2011, "America/Sao_Paulo": 2018, "Asia/Pyongyang": 2015}[zone]
    [at, *_] = changes(zone, year, year)[-1:]

    for expression in ("0 0 * * *", "30 12 30 * *", "0 */6 * * *", "15 0 * * FRI", "0 0 L * *"):
        begin, end = at - 10 * 24 * HOUR, at + 10 * 24 * HOUR
        found = due_between(timetable(expression, zone), begin, end)
        assert found == list(PlainCron(expression).due_between(zone, begin, end)), expression


# ---- Expressions by chance.


def items(low: int, high: int, names: tuple[str, ...]) -> st.SearchStrategy[str]:
    value = st.integers(low, high).map(str)
    if names:
        value |= st.sampled_from(names)
        value |= st.sampled_from(names).map(str.lower)
    step = st.integers(1, (high - low + 1) // 2).map(str)
    numbers = st.tuples(st.integers(low, high), st.integers(low, high))
    spans = numbers.filter(lambda pair: pair[0] != pair[1]).map(lambda pair: f"{pair[0]}-{pair[1]}")
    stepped = numbers.filter(lambda pair: pair[0] < pair[1])
    return st.one_of(
        value,
        spans,
        st.tuples(stepped, step).map(lambda two: f"{two[0][0]}-{two[0][1]}/{two[1]}"),
        st.tuples(value, step).map("/".join),
        step.map(lambda every: f"*/{every}"),
    )


def field(
    low: int, high: int, names: tuple[str, ...] = (), extra: tuple[str, ...] = ()
) -> st.SearchStrategy[str]:
    listed = st.lists(items(low, high, names), min_size=1, max_size=3).map(",".join)
    return st.just("*") | listed | st.sampled_from(extra) if extra else st.just("*") | listed


seconds = field(0, 59)
minutes = field(0, 59)
hours = field(0, 23)
days = field(1, 31, extra=("?", "L", "15,L", "31", "29-31"))
months = field(1, 12, tuple(MONTHS), extra=("2", "FEB"))
weekdays = field(0, 6, tuple(WEEKDAYS), extra=("?", "7", "5-7", "MON-FRI", "SAT-SUN", "FRI-7/2"))
nth = st.sampled_from(["MON#1", "TUE#5", "7#2", "L5", "L0", "MON#1,FRI#3", "L1,MON#1"])
dates = st.tuples(days, months, weekdays) | st.tuples(st.sampled_from("*?"), months, nth)


@st.composite
def expressions(draw: st.DrawFn, *, with_seconds: bool | None = None) -> str:
    words = [draw(minutes), draw(hours), *draw(dates)]
    if with_seconds or (with_seconds is None and draw(st.booleans())):
        words.insert(0, draw(seconds))
    return " ".join(words)


def made(expression: str, zone: str = "UTC") -> Timetable:
    """The timetable of an expression by chance, unless its days do not exist."""
    try:
        return timetable(expression, zone)
    except BadTimetable as refused:
        is_expected = "does not occur in" in refused.message or "set forward" in refused.message
        assume(not is_expected)
        raise


@given(expression=expressions(), start=st.integers(0, 4_000_000_000))
@example(expression="0 0 29 2 *", start=3_981_000_000)
@example(expression="0 0 */2 * MON", start=0)
@example(expression="0 0 31 * MON", start=0)
def test_the_wall_calendar_is_that_of_croniter(expression: str, start: int) -> None:
    times = made(expression)
    theirs = croniter(
        expression,
        datetime.fromtimestamp(start, UTC),
        second_at_beginning=True,
        implement_cron_bug=True,
    )

    at = start * S
    for _ in range(5):
        found = times.next_after(at)
        assert found == round(theirs.get_next(datetime).timestamp()) * S
        at = found


@given(expression=expressions(), start=st.integers(0, 4_000_000_000))
def test_every_due_time_is_one_of_the_plain_reading(expression: str, start: int) -> None:
    times = made(expression)
    plain = PlainCron(expression)

    found = times.next_after(start * S)

    assert found is not None
    wall = datetime.fromtimestamp(found // S, UTC)
    assert plain.matches(wall)
    day = datetime.fromtimestamp(start, UTC) + timedelta(days=1)
    while day.date() < wall.date():
        assert not plain.has_day(day)
        day += timedelta(days=1)


@given(
    expression=expressions(with_seconds=False),
    change=st.sampled_from(CHANGES),
    hour=st.integers(-3, 2),
)
def test_at_a_change_any_expression_is_due_as_in_a_walk(
    expression: str, change: tuple[str, int], hour: int
) -> None:
    zone, at = change
    times = made(expression, zone)
    begin = at + hour * HOUR

    found = due_between(times, begin, begin + 2 * HOUR)

    assert found == list(PlainCron(expression).due_between(zone, begin, begin + 2 * HOUR))


@given(
    expression=expressions(),
    zone=st.sampled_from(ZONES),
    start=st.integers(0, 4_000_000_000) | st.sampled_from([at for _, at in CHANGES]),
    back=st.integers(-7_200, 7_200),
)
def test_due_times_increase_and_are_found_again(
    expression: str, zone: str, start: int, back: int
) -> None:
    times = made(expression, zone)
    plain = PlainCron(expression)
    at = (start + back) * S

    for _ in range(4):
        due = times.next_after(at)
        assert due is not None
        assert due > at
        assert times.next_after(due - 1) == due
        assert times.next_after((at + due) // 2) == due
        wall = wall_at(zone, due // S)
        is_gap_end = wall - wall_at(zone, due // S - 1) > timedelta(seconds=1)
        assert plain.matches(wall) or (is_gap_end and not times.repeats)
        at = due


@given(expression=expressions(), zone=st.just("UTC"), start=st.integers(0, 4_000_000_000))
def test_no_two_due_times_are_closer_than_the_shortest_distance(
    expression: str, zone: str, start: int
) -> None:
    times = made(expression, zone)

    first = times.next_after(start * S)
    assert first is not None
    second = times.next_after(first)

    assert second is not None
    assert second - first >= times.shortest_ns


@given(wall=st.integers(0, 4_000_000_000), expression=expressions())
def test_a_wall_time_matches_by_both_readings(wall: int, expression: str) -> None:
    pattern = made(expression).pattern
    assert pattern is not None
    moment = datetime.fromtimestamp(wall, UTC)

    assert wall == wall_of(*moment.timetuple()[:6])
    assert pattern.matches(wall) == PlainCron(expression).matches(moment)
