"""The expressions of docs/schedules.md: each is read as the page says."""

import re
from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from corvo.cron import MACROS, BadTimetable, timetable
from corvo.times import S

WHOLE: Final = (Path(__file__).parent.parent / "docs" / "schedules.md").read_text()
PAGE: Final = WHOLE[WHOLE.index("## Expressions") :]
BERLIN: Final = "Europe/Berlin"
MORNINGS: Final = (datetime(2026, 3, 29), datetime(2026, 10, 25))  # noqa: DTZ001 -- see `shown`


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table after a text."""
    following = PAGE.partition(heading)[2]
    table = re.search(r"^\|(?:.*\n\|)+.*$", following, re.MULTILINE)
    assert table is not None
    return [
        [cell.strip() for cell in row.strip("| ").split(" | ")] for row in table[0].split("\n")[2:]
    ]


def shown(expression: str, morning: datetime) -> str:
    """The due times of a morning in Berlin, as the page writes them."""
    zone = ZoneInfo(BERLIN)
    begin = round(morning.replace(hour=1, tzinfo=zone).timestamp()) * S
    end = round(morning.replace(hour=4, tzinfo=zone).timestamp()) * S
    times, found = timetable(expression, BERLIN), []
    at = times.next_after(begin - 1)
    while at is not None and at < end:
        moment = datetime.fromtimestamp(at // S, zone)
        found.append(f"{moment.hour}:{moment:%M} {moment.tzname()}")
        at = times.next_after(at)
    return ", ".join(found) or "not due"


@pytest.mark.parametrize("row", rows("<!-- clocks:"), ids=lambda row: str(row[0]))
def test_an_expression_is_due_as_the_page_says(row: list[str]) -> None:
    expression = row[0].strip("`")

    assert row[1:] == [shown(expression, morning) for morning in MORNINGS]


@pytest.mark.parametrize("row", rows("0  30 9  *  *  MON-FRI"), ids=lambda row: str(row[0]))
def test_each_form_has_an_example_that_is_right(row: list[str]) -> None:
    form, _, example = row
    expression = re.findall(r"`([^`]+)`", example)[0]
    forms = re.findall(r"`([^`]+)`", form)

    timetable(expression)
    assert any(one.casefold() in expression.casefold() for one in forms)


def test_the_macros_are_those_that_there_are() -> None:
    listed = {
        macro: row[1].strip("`")
        for row in rows("For equal distances use `@every`.")
        for macro in re.findall(r"`(@\w+)`", row[0])
    }

    assert listed == MACROS


@pytest.mark.parametrize(
    "row", rows("ends with an expression that is right."), ids=lambda row: str(row[0])
)
def test_a_rejected_expression_is_rejected_and_its_other_form_is_right(row: list[str]) -> None:
    expression, _, instead = row

    with pytest.raises(BadTimetable):
        timetable(expression.strip("`"))
    if instead.startswith("`"):
        timetable(instead.strip("`"))


def test_the_other_expressions_of_the_page_are_right() -> None:
    prose = "\n".join(line for line in PAGE.splitlines() if not line.startswith("|"))

    found = re.findall(r"`([^`]*(?: [^` ]+){4})`", prose)

    assert len(found) >= 3
    for expression in found:
        timetable(expression)
