"""A page: the parts that every view has, and a table that fits into a width.

A view is a function that makes a `Page` out of the data; sorting, filtering, scrolling and the
choice of columns are the same for all of them.
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, TypeAlias

import msgspec
from rich.cells import cell_len
from rich.text import Text

from corvo.tui.looks import Look, fit

Value: TypeAlias = str | int | float
SELECTED: Final = "reverse"


class Column(NamedTuple):
    """A column of a table."""

    key: str
    title: str
    width: int
    """Of one that grows, the least."""
    rank: int = 0
    """Columns of a higher rank are left out first."""
    is_right: bool = True
    is_descending: bool = True
    """The order in which it is sorted at first."""
    keeps_end: bool = False
    """Whether long texts lose their beginning: ids differ at their end."""
    grows: bool = False
    """Whether it takes room that is left, up to its longest text."""

    @property
    def gap(self) -> int:
        """Blanks before it. Numbers stand at the right, and mostly have blanks of their own."""
        return 1 if self.is_right else 2


Cells: TypeAlias = dict[str, Text | str]


class Row(msgspec.Struct, frozen=True):
    """A row: its key for actions, and a value and text for each column."""

    key: str
    values: dict[str, Value]
    cells: Cells | Callable[[], Cells]
    """A function where there may be many rows: only those in sight are written."""
    words: str = ""
    """Text that a filter searches, beside the key."""

    @property
    def written(self) -> Cells:
        """The text of each column."""
        return self.cells if isinstance(self.cells, dict) else self.cells()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A view at one moment."""

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    heads: Sequence[Text] = ()
    """Lines above the table."""
    tails: Sequence[Text] = ()
    """Lines below the table, where there is room."""
    sort: str = ""
    """The column by which it is sorted at first; empty: as the rows are."""
    empty: str = "nothing here"
    """The text instead of a table without rows."""
    is_list: bool = True
    """Whether rows can be selected."""


def matches(row: Row, wanted: str) -> bool:
    """Whether a row has a text, or with `!` before it has not; `*` stands for any text."""
    is_excluded = wanted.startswith("!")
    text = wanted.removeprefix("!").lower()
    if not text:
        return True
    words = f"{row.key} {row.words}".lower()
    found = fnmatchcase(words, f"*{text}*") if "*" in text else text in words
    return found is not is_excluded


def ordered(page: Page, wanted: str, sort: str, *, is_reversed: bool) -> list[Row]:
    """The rows that match a filter, in the order of a column."""
    rows = [row for row in page.rows if matches(row, wanted)] if wanted else list(page.rows)
    name = sort or page.sort
    column = next((each for each in page.columns if each.key == name), None)
    if column is None or not page.is_list:
        return rows[::-1] if is_reversed else rows
    rows.sort(key=lambda row: row.key)
    rows.sort(key=lambda row: row.values[column.key], reverse=column.is_descending != is_reversed)
    return rows


def fitting(
    columns: Sequence[Column], width: int, longest: Callable[[Column], int]
) -> list[tuple[Column, int]]:
    """The columns that fit into a width, and the width of each.

    `longest` has the width of the longest text of a column that grows.
    """
    kept = list(columns)
    while _width(kept) > width and len(kept) > 1:
        kept.remove(max(kept, key=lambda column: (column.rank, kept.index(column))))
    left = max(0, width - _width(kept))
    sizes = {column: min(column.width, width) for column in kept}
    for column in sorted(kept, key=lambda column: column.keeps_end):  # the ends of ids suffice
        if column.grows:
            more = min(left, max(0, longest(column) - column.width))
            sizes[column] += more
            left -= more
    return list(sizes.items())


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width + column.gap for column in columns) - columns[0].gap


def longest_in(rows: Sequence[Row], look: Look, column: Column) -> int:
    """The width of the longest text of a column."""
    return max((_cells(f"{row.values.get(column.key, '')}", look) for row in rows), default=0)


def _cells(text: str, look: Look) -> int:
    if text.isascii() and text.isprintable():  # nearly all: this runs for thousands of rows
        return len(text)
    return cell_len(look.safe(text))


def heading(
    sizes: Sequence[tuple[Column, int]], look: Look, sort: str, *, is_reversed: bool
) -> Text:
    """The titles of columns; that of the order has an arrow."""
    parts: list[Text] = []
    for column, size in sizes:
        title = column.title
        if column.key == sort:
            is_down = column.is_descending != is_reversed
            arrow = ("v" if is_down else "^") if look.is_ascii else ("▾" if is_down else "▴")
            title = f"{title[: max(0, size - 1)]}{arrow}"
        parts += _placed(
            parts, column, fit(Text(title, style="bold"), size, is_right=column.is_right)
        )
    return Text.assemble(*parts)


def _placed(before: list[Text], column: Column, text: Text) -> list[Text]:
    return [Text(" " * column.gap), text] if before else [text]


def line(row: Row, sizes: Sequence[tuple[Column, int]]) -> Text:
    """A row in its columns."""
    parts: list[Text] = []
    cells = row.written
    for column, size in sizes:
        cell = cells.get(column.key, "")
        text = cell if isinstance(cell, Text) else Text(cell)
        if column.keeps_end and len(text) > size:
            text = Text("~").append_text(text[len(text) - size + 1 :])
        parts += _placed(parts, column, fit(text, size, is_right=column.is_right))
    return Text.assemble(*parts)
