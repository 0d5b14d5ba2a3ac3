"""Times as the mirror writes them: texts of one width, so that comparing texts compares times.

`2026-02-11T10:00:00.000000000Z`: UTC, nine decimals. There is none for 0, which is no time.
"""

from functools import lru_cache
from typing import Final

S: Final = 1_000_000_000
NS_MAX: Final = 253_402_300_799 * S + S - 1
"""The last moment whose year has four digits."""
_EPOCH_DAY: Final = 719_468
"""Days from the first of March of the year 0 to 1970. A year that begins in March has its leap day
at the end, where it disturbs nobody."""
_DAYS_IN_ERA: Final = 146_097
"""In 400 years, after which the calendar repeats itself."""


def as_text(at_ns: int) -> str | None:
    """A moment as the mirror writes it; None for the 0 that stands for none."""
    return f"{_seconds(at_ns // S)}{at_ns % S:09d}Z" if at_ns else None


def moment(at_ns: int) -> str:
    """A moment that must be there: 0 is the beginning of 1970."""
    return f"{_seconds(at_ns // S)}{at_ns % S:09d}Z"


@lru_cache(maxsize=16_384)
def _seconds(seconds: int) -> str:
    """Everything before the decimals. Documents that are written together share their seconds."""
    days, second = divmod(min(seconds, NS_MAX // S), 86_400)
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    year, month, day = _date(days)
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}."


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day, by days since 1970."""
    era, day_of_era = divmod(days + _EPOCH_DAY, _DAYS_IN_ERA)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return 400 * era + year_of_era + (month <= 2), month, day
