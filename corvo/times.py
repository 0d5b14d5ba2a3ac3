"""Moments and durations as text, from and to integers: pure functions of their arguments.

A moment is RFC 3339 outside and nanoseconds since 1970 inside; a date alone is read as its midnight
in UTC. A duration is Go's notation outside, read with days as well, and nanoseconds or milliseconds
inside. No digit up to the ninth decimal is lost in between.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

S: Final = 1_000_000_000
MS: Final = 1_000_000
MINUTE_NS: Final = 60 * S
"""Nanoseconds."""
NS_MAX: Final = 253_402_300_799 * S + S - 1
"""The last moment whose year has four digits."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_SECONDS_MIN: Final = -62_135_596_800
"""The first second of the year 0001."""
_SECONDS_MAX: Final = NS_MAX // S
_DURATION_CHARS_MAX: Final = 64


# Moments.

_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]+))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2})))?"
)


def parse_time(text: str) -> int | None:
    """Nanoseconds since 1970 of a moment by RFC 3339, or of a date; None for any other text.

    Decimals after the ninth are cut off. A leap second (`:60`) is refused, as Go refuses it.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, offset_h, offset_m = found.groups()
    # The calendar repeats itself every 400 years, and Python's begins with the year 1.
    cycles = 0 if year != "0000" else 1
    try:
        moment = datetime(
            int(year) + 400 * cycles,
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            tzinfo=UTC,
        )
    except ValueError:
        return None
    seconds = (moment - _EPOCH) // _SECOND - cycles * _CYCLE_S
    if sign is not None:
        hours, minutes = int(offset_h), int(offset_m)
        if hours > 23 or minutes > 59:
            return None
        offset_s = hours * 3_600 + minutes * 60
        seconds += offset_s if sign == "-" else -offset_s
    return seconds * S + (int(fraction[:9].ljust(9, "0")) if fraction else 0)


_CYCLE_S: Final = 146_097 * 86_400


def format_time(at_ns: int) -> str:
    """A moment as Go writes it: in UTC, with as many decimals as it has."""
    seconds, fraction = divmod(at_ns, S)
    if not fraction:
        return f"{_format_seconds(seconds)}Z"
    decimals = f"{fraction:09d}".rstrip("0")
    return f"{_format_seconds(seconds)}.{decimals}Z"


def format_time_or_none(at_ns: int) -> str | None:
    """A moment as `format_time` writes it; None for 0, which stands for no moment."""
    return format_time(at_ns) if at_ns else None


def format_ms(at_ns: int) -> str:
    """A moment with three decimals; the rest is cut off."""
    return f"{_format_seconds(at_ns // S)}.{at_ns % S // MS:03d}Z"


def sortable(at_ns: int) -> str:
    """A moment with nine decimals: texts of one width, which compare as the moments do."""
    return f"{_format_seconds(at_ns // S)}.{at_ns % S:09d}Z"


def without_zeros(text: str) -> str:
    """A text of `sortable` as `format_time` writes the same moment."""
    return f"{text[:-1].rstrip('0').rstrip('.')}Z"


def parse_sortable(text: str) -> int:
    """Nanoseconds since 1970 of a text of `sortable`."""
    at_ns = parse_time(text)
    assert at_ns is not None, text
    return at_ns


@lru_cache(maxsize=16_384)
def _format_seconds(seconds: int) -> str:
    """A moment up to its decimals, between the years 0001 and 9999.

    Documents that are written together share their seconds.
    """
    held = min(max(_SECONDS_MIN, seconds), _SECONDS_MAX)
    return (_EPOCH + timedelta(seconds=held)).isoformat()[:19]


# Durations.

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": MS,
    "s": S,
    "m": MINUTE_NS,
    "h": 60 * MINUTE_NS,
    "d": 24 * 60 * MINUTE_NS,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h|d)")


def parse_duration(text: str) -> int | None:
    """Nanoseconds of a duration as Go writes it, or in days, negative ones too; else None."""
    if len(text) > _DURATION_CHARS_MAX:
        return None
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    total, end = 0, 0
    while end < len(rest):
        part = _PART.match(rest, end)
        if part is None:
            return None
        whole, _, fraction = part[1].partition(".")
        unit = _UNITS[part[2]]
        total += int(whole or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        end = part.end()
    return sign * total if rest else None


def format_duration(span_ms: int) -> str:
    """A duration as Go writes it: `1h30m0s`, `1.5s`, `500ms`."""
    if span_ms == 0:
        return "0s"
    if span_ms < 1_000:
        return f"{span_ms}ms"
    minutes, rest_ms = divmod(span_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds, ms = divmod(rest_ms, 1_000)
    text = f"{seconds}.{ms:03d}".rstrip("0") if ms else str(seconds)
    if hours:
        return f"{hours}h{minutes}m{text}s"
    return f"{minutes}m{text}s" if minutes else f"{text}s"
