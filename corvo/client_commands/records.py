"""Lists of records in every form: tables for people, and JSON, ids and CSV for programs.

A list is written page by page, so its length does not matter. JSON of the server is passed on as it
is: numbers and texts keep their spelling.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from corvo.client.errors import BadClientOption
from corvo.client_commands.tables import plain

TABLE: Final = "table"
WIDE: Final = "wide"
JSON: Final = "json"
JSONL: Final = "jsonl"
IDS: Final = "id"
CSV: Final = "csv"
FORMS: Final = (TABLE, WIDE, JSON, JSONL, IDS, CSV)
"""Of lists."""
TEXTS: Final = (TABLE, JSON)
"""Of a single answer that people read."""
DEEDS: Final = (TABLE, JSON, JSONL, IDS)
"""Of an action on jobs or queues: `table` is a sentence."""

T = TypeVar("T")


class Column(NamedTuple, Generic[T]):
    """A column of a table."""

    header: str
    text: Callable[[T, int], str]
    """The cell of a record, at a time in nanoseconds since 1970."""
    is_wide: bool = False
    """Whether only the form `wide` has it."""


class Listing(NamedTuple, Generic[T]):
    """A kind of list: how its records are read, and shown."""

    name: str
    """Plural of the records, also their name in JSON."""
    kind: type[T]
    id: Callable[[T], str]
    columns: tuple[Column[T], ...]


class Layout(NamedTuple):
    """How a list is shown."""

    form: str
    now_ns: int
    fields: tuple[str, ...] = ()
    """Paths such as `payload.to`; with them, only these fields are shown."""
    width: int = 0
    """Columns of the terminal; 0 cuts nothing."""
    has_headers: bool = True


class Records(Generic[T]):
    """A list while it is written."""

    def __init__(self, listing: Listing[T], layout: Layout, write: Callable[[str], object]) -> None:
        self._listing: Final = listing
        self._layout: Final = layout
        self._write = write
        self._widths: list[int] = []
        self.count = 0

    def add(self, raws: Iterable[msgspec.Raw]) -> None:
        """Write the records of a page."""
        page = list(raws)
        text = ""
        form = self._layout.form
        if form == JSON:
            if page:
                before = ",\n" if self.count else self._opening()
                text = before + ",\n".join(self._json(raw) for raw in page)
        elif form == JSONL:
            text = "".join(f"{self._json(raw)}\n" for raw in page)
        elif form == IDS:
            text = "".join(f"{self._listing.id(self._read(raw))}\n" for raw in page)
        elif form == CSV:
            lines = [self._cells(raw) for raw in page]
            if not self.count and self._layout.has_headers:
                lines.insert(0, self._headers())
            text = "".join(",".join(map(_quoted, line)) + "\r\n" for line in lines)
        elif page:
            text = self._table(page)
        self.count += len(page)
        self._write(text)

    def close(self) -> None:
        """Write the end."""
        if self._layout.form != JSON:
            return
        self._write(f"{'' if self.count else self._opening()}\n]}}\n")

    def _opening(self) -> str:
        return f'{{"{self._listing.name}": [\n'

    def _table(self, page: Sequence[msgspec.Raw]) -> str:
        lines = [[plain(cell) or "-" for cell in self._cells(raw)] for raw in page]
        if not self._widths:
            headers = self._headers()
            self._widths = [0] * len(headers)
            if self._layout.has_headers:
                lines.insert(0, headers)
        self._widths = [
            max(width, *(len(line[number]) for line in lines))
            for number, width in enumerate(self._widths)
        ]
        return "".join(self._cut(line) for line in lines)

    def _cut(self, line: Sequence[str]) -> str:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, self._widths, strict=True))
        text = "  ".join(cells).rstrip()
        width = self._layout.width
        if width and len(text) > width:
            text = text[: max(width - 1, 0)] + "…"
        return text + "\n"

    def _columns(self) -> list[Column[T]]:
        is_whole = self._layout.form in {WIDE, CSV}
        return [one for one in self._listing.columns if is_whole or not one.is_wide]

    def _headers(self) -> list[str]:
        if self._layout.fields:
            headers = list(self._layout.fields)
        else:
            headers = [one.header for one in self._columns()]
        is_csv = self._layout.form == CSV
        return [one.lower() if is_csv else one.upper() for one in headers]

    def _cells(self, raw: msgspec.Raw) -> list[str]:
        if self._layout.fields:
            return [text_of(pick(raw, path)) for path in self._layout.fields]
        record = self._read(raw)
        return [one.text(record, self._layout.now_ns) for one in self._columns()]

    def _read(self, raw: msgspec.Raw) -> T:
        return msgspec.json.decode(raw, type=self._listing.kind)

    def _json(self, raw: msgspec.Raw) -> str:
        return one_line(select(raw, self._layout.fields))


def one_line(raw: bytes | msgspec.Raw) -> str:
    """JSON on one line."""
    return msgspec.json.format(bytes(raw), indent=-1).decode()


def select(raw: msgspec.Raw | bytes, paths: Sequence[str]) -> msgspec.Raw | bytes:
    """A record with some of its fields, by their paths; all of them without a path."""
    if not paths:
        return raw
    return msgspec.json.encode({path: pick(raw, path) for path in paths})


def pick(raw: msgspec.Raw | bytes, path: str) -> msgspec.Raw:
    """The field at a path such as `payload.items.0.name`; `null` without one."""
    found = msgspec.Raw(bytes(raw))
    for name in path.split("."):
        try:
            if bytes(found).lstrip()[:1] == b"[":
                found = msgspec.json.decode(found, type=list[msgspec.Raw])[int(name)]
            else:
                found = msgspec.json.decode(found, type=dict[str, msgspec.Raw])[name]
        except (LookupError, ValueError):  # also what is neither a list nor an object
            return msgspec.Raw(b"null")
    return found


def text_of(raw: msgspec.Raw) -> str:
    """A value in a cell: texts without quotes, nothing for `null`, else JSON."""
    data = bytes(raw).strip()
    if data == b"null":
        return ""
    return msgspec.json.decode(data, type=str) if data[:1] == b'"' else one_line(data)


def parse_fields(text: str) -> tuple[str, ...]:
    """Paths with commas between them. Raises `BadClientOption`."""
    paths = tuple(path.strip().removeprefix(".") for path in text.split(","))
    if not all(path and all(path.split(".")) for path in paths):
        raise BadClientOption(f"--fields {text!r} is invalid: expected names such as id,payload.to")
    return paths


def _quoted(cell: str) -> str:
    """A cell of CSV, by RFC 4180."""
    if any(letter in cell for letter in ',"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell
