"""The checker's due times: as the page on schedules says, and beside those of the server."""

import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from chaos.due_times import SECOND_NS, due_times, is_due
from corvo.cron import BadTimetable, timetable

PAGE: Final = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()
ROWS: Final = re.findall(
    r"^\| `(.*)` \| (.*) \| (.*) \|$",
    PAGE[PAGE.index("<!-- clocks:") : PAGE.index("<!-- /clocks")],
    re.MULTILINE,
)
BERLIN: Final = ZoneInfo("Europe/Berlin")
HOUR_NS: Final = 3_600 * SECOND_NS


def shown(expression: str, morning: datetime) -> str:
    """The due times of a morning in Berlin from 1:00 to 4:00, as the page writes them."""
    begin, end = (round(morning.replace(hour=hour).timestamp()) * SECOND_NS for hour in (1, 4))
    found = []
    for due in due_times(expression, "Europe/Berlin", begin - 1, end - 1):
        moment = datetime.fromtimestamp(due // SECOND_NS, BERLIN)
        found.append(f"{moment.hour}:{moment:%M} {moment.tzname()}")
    return ", ".join(found) or "not due"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_a_change_of_the_clocks_is_as_the_page_says(row: tuple[str, str, str]) -> None:
    assert row[1] == shown(row[0], datetime(2026, 3, 29, tzinfo=BERLIN))
    assert row[2] == shown(row[0], datetime(2026, 10, 25, tzinfo=BERLIN))


def test_the_page_has_changes_of_the_clocks() -> None:
    assert len(ROWS) > 5


def a_field(dice: Random, low: int, high: int, more: tuple[str, ...] = ()) -> str:
    first, last = sorted((dice.randrange(low, high + 1), dice.randrange(low, high + 1)))
    step = dice.randrange(1, (high - low) // 2 + 2)
    plain = (
        "*", "*", f"*/{step}", f"{first}", f"{first},{last}", f"{first}-{last}",
        f"{last}-{first}", f"{first}/{step}", *more,
    )  # fmt: skip
    return dice.choice(plain)


def an_expression(dice: Random) -> str:
    """An expression; not all of them are valid."""
    rare = dice.random() < 0.5
    fields = [
        a_field(dice, 0, 59),
        a_field(dice, 0, 23) if rare else "*",
        a_field(dice, 1, 28, ("L", "?")) if rare else "*",
        a_field(dice, 1, 12, ("JAN-MAR", "oct")) if rare else "*",
        a_field(dice, 0, 7, ("MON-FRI", "FRI-MON", "SUN#1", "L5", "?")) if rare else "*",
    ]
    return " ".join([a_field(dice, 0, 59), *fields] if dice.random() < 0.5 else fields)


ZONES: Final = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Asia/Kathmandu")
MOMENTS: Final = (
    datetime(2026, 3, 29, 0, 30, tzinfo=UTC),
    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    datetime(2026, 4, 4, 14, 30, tzinfo=UTC),
    datetime(2026, 10, 3, 15, 0, tzinfo=UTC),
    datetime(2026, 4, 5, 2, 30, tzinfo=UTC),
    datetime(2026, 9, 6, 3, 30, tzinfo=UTC),
    datetime(2026, 2, 28, 23, 30, tzinfo=UTC),
)


def test_random_expressions_are_due_when_the_server_says() -> None:
    dice = Random(5)
    compared = valid = 0
    while valid < 200:
        expression, zone = an_expression(dice), dice.choice(ZONES)
        try:
            table = timetable(expression, zone)
        except BadTimetable:
            continue
        valid += 1
        begin = round(dice.choice(MOMENTS).timestamp()) * SECOND_NS
        expected = []
        at = table.next_after(begin)
        while at is not None and at <= begin + HOUR_NS:
            expected.append(at)
            at = table.next_after(at)

        found = list(due_times(expression, zone, begin, begin + HOUR_NS))

        assert found == expected, (expression, zone, begin)
        assert all(is_due(expression, zone, due) for due in found)
        compared += len(found)
    assert compared > 1_000


def test_an_interval_counts_from_its_anchor() -> None:
    anchor = 1_795_000_000 * SECOND_NS
    for text, seconds in (("@every 3s", 3), ("@every 1m30s", 90), ("@every 1h", 3_600)):
        table = timetable(text)
        after = anchor + 7 * SECOND_NS + 1

        found = list(due_times(text, "UTC", after, after + HOUR_NS * 2, anchor))

        assert found[0] == table.next_after(after, anchor)
        assert {later - due for due, later in pairwise(found)} <= {seconds * SECOND_NS}
        assert next(due_times(text, "UTC", anchor, anchor + HOUR_NS, anchor)) == table.next_after(
            anchor, anchor
        )


def test_a_time_within_a_second_is_no_due_time() -> None:
    assert is_due("* * * * * *", "UTC", 5 * SECOND_NS)
    assert not is_due("* * * * * *", "UTC", 5 * SECOND_NS + 1)
    assert is_due("@every 3s", "UTC", 5 * SECOND_NS)
    assert not is_due("*/2 * * * * *", "UTC", 5 * SECOND_NS)
