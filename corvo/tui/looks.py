"""How things look in a terminal: glyphs and styles of states, numbers, durations, and safe text.

A state is told by its word and glyph; its colour only repeats it. Colours are the eight of the
terminal, so that the user's own scheme decides. A text of a server never acts on the terminal.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
from rich.cells import cell_len
from rich.text import Text

GLYPHS: Final = {
    "pending": ("○", "o", ""),
    "blocked": ("□", ":", ""),
    "scheduled": ("»", ">", ""),
    "active": ("●", "*", "blue"),
    "retrying": ("▲", "^", "yellow"),
    "held": ("◆", "!", "magenta"),
    "completed": ("✓", "+", "cyan"),
    "dead": ("✗", "x", "red"),
    "cancelled": ("–", "-", "dim"),  # noqa: RUF001 -- a glyph, and not a hyphen
    "paused": ("‖", "=", "yellow"),
    "leader": ("★", "L", "cyan"),
    "warning": ("▲", "^", "yellow"),
    "none": ("·", ".", "dim"),
}
"""By state: the glyph, its ASCII form, and the style that repeats it."""

_BARS: Final = " ▁▂▃▄▅▆▇█"
_ASCII_BARS: Final = " _..--=##"
_K: Final = 100_000
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
LOST: Final = 0.01
"""Share of failures from which a bar is yellow; below, it is underlined."""


class Look(msgspec.Struct, frozen=True):
    """The abilities of a terminal."""

    is_ascii: bool = False

    def glyph(self, state: str) -> str:
        """The glyph of a state."""
        return GLYPHS.get(state, GLYPHS["none"])[self.is_ascii]

    def state(self, state: str, word: str = "", *, is_loud: bool = False) -> Text:
        """A state: its glyph and its word."""
        style = style_of(state)
        shown = f"{self.glyph(state)} {word or state}"
        return Text(shown, style=f"bold {style}".strip() if is_loud else style)

    @property
    def dot(self) -> str:
        """Between two facts."""
        return "-" if self.is_ascii else "·"

    @property
    def rule(self) -> str:
        """The letter of a horizontal line."""
        return "-" if self.is_ascii else "─"

    @property
    def unknown(self) -> str:
        """Instead of a number that is not known."""
        return "." if self.is_ascii else "·"

    def bars(self, values: Sequence[int], width: int, failed: Sequence[int] = ()) -> Text:
        """Numbers as a row of bars, the latest at the end.

        Where attempts failed, the bar is underlined, and yellow if one in a hundred did. It is not
        reversed: a low bar would look like a high one.
        """
        bars = _ASCII_BARS if self.is_ascii else _BARS
        shown = list(values)[-width:]
        lost = list(failed)[-width:] or [0] * len(shown)
        most = max(shown, default=0)
        text = Text(" " * (width - len(shown)))
        for value, errors in zip(shown, lost, strict=True):
            place = -(-value * (len(bars) - 1) // most) if most else 0
            style = ""
            if errors:
                is_bad = errors >= LOST * max(value, 1)
                style = "bold underline yellow" if is_bad else "underline"
            text.append(bars[place] if place or errors == 0 else bars[1], style)
        return text

    def meter(self, share: float, width: int) -> str:
        """A share of one as a bar."""
        full, empty = ("#", ".") if self.is_ascii else ("▓", "░")
        count = round(min(max(share, 0.0), 1.0) * width)
        return full * count + empty * (width - count)

    def safe(self, text: str) -> str:
        """A text of a server on one line: characters that act on a terminal are escaped."""
        return "".join(map(self._safe, text))

    def _safe(self, letter: str) -> str:
        if letter == "\n":
            return " "
        if self.is_ascii and not letter.isascii():
            return "?"
        if letter.isprintable() and not unicodedata.combining(letter):
            return letter
        return f"\\x{ord(letter):02x}" if ord(letter) < 0x100 else f"\\u{ord(letter):04x}"


def style_of(state: str) -> str:
    """The style that repeats a state."""
    return GLYPHS.get(state, GLYPHS["none"])[2]


def number(value: int) -> str:
    """A count: exact up to 99,999."""
    if abs(value) < _K:
        return f"{value:,}"
    for unit, size in (("G", 10**9), ("M", 10**6)):
        if abs(value) >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value // 1_000}k"


def rate(value: float | None, unknown: str) -> str:
    """Events a second."""
    if value is None:
        return unknown
    return f"{value:.1f}" if value < 1_000 else f"{value:,.0f}"


def span(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02}"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02}h"


def fit(text: Text, width: int, *, is_right: bool = False) -> Text:
    """A text in exactly so many cells; what is cut off is marked."""
    missing = width - text.cell_len
    if missing < 0:
        return cut(text, width)
    if not missing:
        return text
    pad = " " * missing
    return Text.assemble(pad, text) if is_right else Text.assemble(text, pad)


def cut(text: Text, width: int) -> Text:
    """A text in at most so many cells."""
    if text.cell_len <= width:
        return text
    if width <= 0:
        return Text("")
    kept, cells = 0, 0
    for letter in text.plain:
        size = cell_len(letter)
        if cells + size > width - 1:
            break
        kept, cells = kept + 1, cells + size
    shown = text[:kept]
    shown.append("~")
    if cells + 1 < width:  # half of a wide letter is missing
        shown.append(" " * (width - cells - 1))
    return shown


Ranked: TypeAlias = tuple[int, Text]
"""A text, and how soon it is left out: those of a higher rank go first."""


def chosen(parts: Sequence[Ranked], gap: str, most: int) -> Text:
    """The texts up to a rank, with something between them."""
    return joined([text for rank, text in parts if rank <= most], gap)


def flow(parts: Iterable[Text | str], gap: str, width: int) -> list[Text]:
    """Texts with something between them, on as many lines as they need; empty ones are left out."""
    lines: list[Text] = []
    for part in parts:
        text = part if isinstance(part, Text) else Text(part)
        if not len(text):
            continue
        if lines and lines[-1].cell_len + len(gap) + text.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], gap, text)
        else:
            lines.append(text)
    return lines


def joined(parts: Iterable[Text | str], gap: str) -> Text:
    """Texts with something between them; empty ones are left out."""
    return Text(gap).join(
        [part if isinstance(part, Text) else Text(part) for part in parts if len(part)]
    )
