"""Tables and lists as plain text, for terminals and pipes alike."""

from collections.abc import Iterable, Sequence
from typing import Final

from corvo.times import S, parse_time

_AGES: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows below their headers, in aligned columns, without those that are empty in all rows."""
    kept = [number for number in range(len(headers)) if any(row[number] for row in rows)]
    lines = [
        [plain(row[number]) or "-" for number in kept]
        for row in ([*headers], *([*row] for row in rows))
    ]
    widths = [max(len(line[number]) for line in lines) for number in range(len(kept))]
    return "".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values, each pair on a line; pairs without a value are left out."""
    kept = [(name, value) for name, value in rows if value]
    width = max(len(name) for name, _ in kept)
    return "".join(f"{name:<{width}}  {plain(value)}\n" for name, value in kept)


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in short: `0-2,5`. A hyphen if there are none."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found]
    return ",".join(shown) or "-"


def plain(text: str) -> str:
    """A text of a server on one line, without characters that act on a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def counted(count: int, one: str, several: str = "") -> str:
    """A number with its noun: `1 replica`, `3,000 replicas`."""
    return f"{grouped(count)} {one if count == 1 else several or one + 's'}"


def age(at: str, now_ns: int) -> str:
    """Time since a moment, in its two largest units: `2m10s`, `3d4h`. Empty without a moment."""
    at_ns = parse_time(at) if at else None
    return span((now_ns - at_ns) // S) if at_ns is not None else ""


def span(seconds: int) -> str:
    """A length of time in its two largest units; of the future, with a minus."""
    rest = abs(seconds)
    parts: list[str] = []
    for unit, letter in _AGES:
        if rest >= unit or parts:
            parts.append(f"{rest // unit}{letter}" if rest // unit else "")
            rest %= unit
        if len(parts) == 2:
            break
    return ("-" if seconds < 0 else "") + ("".join(parts) or "0s")


def grouped(number: int) -> str:
    """A number with commas: `12,431`."""
    return f"{number:,}"
