"""The due times of many expressions, by looking at every minute of a time."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from tests.support.plain_cron import PlainCron, wall_at

Timetable: TypeAlias = tuple[str, str]
"""An expression of five fields, and a time zone."""

_MINUTE: Final = timedelta(minutes=1)
_WARM_S: Final = 86_400
"""The walk begins a day earlier, so that it knows what the clocks have shown."""


def due_times(
    timetables: Iterable[Timetable], begin_s: int, end_s: int
) -> dict[Timetable, list[int]]:
    """The due times of each of them after `begin_s` and up to `end_s`, in seconds."""
    by_zone: dict[str, list[str]] = {}
    for cron, timezone in dict.fromkeys(timetables):
        by_zone.setdefault(timezone, []).append(cron)
    found: dict[Timetable, list[int]] = {}
    for timezone, crons in by_zone.items():
        for cron, due in _of_zone(timezone, crons, begin_s, end_s).items():
            found[cron, timezone] = due
    return found


def _of_zone(timezone: str, crons: list[str], begin_s: int, end_s: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {cron: [] for cron in crons}
    repeating = _by_time_of_day([cron for cron in crons if PlainCron(cron).repeats])
    others = _by_time_of_day([cron for cron in crons if not PlainCron(cron).repeats])
    reached = wall_at(timezone, begin_s - _WARM_S)
    for at in range(begin_s - _WARM_S + 60, end_s + 1, 60):
        wall = wall_at(timezone, at)
        due = [cron for cron, plain in repeating.get(_key(wall), ()) if plain.has_day(wall)]
        while reached < wall:  # several steps at once, when the clocks are set forward
            reached += _MINUTE
            due += [cron for cron, plain in others.get(_key(reached), ()) if plain.has_day(reached)]
        if due and at > begin_s:
            for cron in dict.fromkeys(due):
                found[cron].append(at)
    return found


def _key(wall: datetime) -> int:
    return wall.hour * 60 + wall.minute


def _by_time_of_day(crons: list[str]) -> dict[int, list[tuple[str, PlainCron]]]:
    found: dict[int, list[tuple[str, PlainCron]]] = {}
    for cron in crons:
        plain = PlainCron(cron)
        for hour in sorted(plain.hours):
            for minute in sorted(plain.minutes):
                found.setdefault(hour * 60 + minute, []).append((cron, plain))
    return found
