"""Moments as people write and read them, from and to the texts of the mirror."""

import re
from calendar import monthrange, timegm
from typing import Final

from corvo.mirror.times import NS_MAX, S, moment

_MOMENT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


def read_moment(text: str) -> str | None:
    """A moment by RFC 3339 as the mirror writes it; None for what is none.

    What is before 1970 becomes the beginning of 1970: no job is as old as either.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[number]) for number in range(1, 7))
    offset_h, offset_m = int(found[9] or 0), int(found[10] or 0)
    if hour > 23 or minute > 59 or second > 59 or offset_h > 23 or offset_m > 59:
        return None
    # The calendar repeats itself every 400 years, and Python's begins with the year 1.
    if not (1 <= month <= 12 and 1 <= day <= monthrange(year % 400 + 2_000, month)[1]):
        return None
    if year < 1_969:
        return moment(0)
    offset_s = (offset_h * 3_600 + offset_m * 60) * (-1 if found[8] == "-" else 1)
    seconds = timegm((year, month, day, hour, minute, second)) - offset_s
    fraction = int((found[7] or "").ljust(9, "0"))
    return moment(min(max(0, seconds * S + fraction), NS_MAX))


def shown(text: str) -> str:
    """A moment of the mirror as clients are shown it: with as many decimals as it has."""
    return f"{text[:-1].rstrip('0').rstrip('.')}Z"


def nanoseconds(text: str) -> int:
    """A moment of the mirror as a number."""
    parts = (text[:4], text[5:7], text[8:10], text[11:13], text[14:16], text[17:19])
    year, month, day, hour, minute, second = (int(part) for part in parts)
    return timegm((year, month, day, hour, minute, second)) * S + int(text[20:29])


def format_ns(at_ns: int) -> str:
    """A number as clients are shown it."""
    return shown(moment(at_ns))
