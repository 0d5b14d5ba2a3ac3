"""Columns, declared once: CREATE TABLE, the upsert and a document's row all follow from them.

A column says its name and type as SQL has them, and where a document has its value. The function
that makes a row is generated from that at import, as `dataclasses` does it: one expression a column
without any call costs half of what a converter for each column would.
"""

from collections.abc import Callable, Collection
from typing import Final, Generic, NamedTuple, Never, TypeAlias, TypeVar, cast
from zlib import crc32

import msgspec

from corvo.times import sortable, without_zeros

TEXT: Final = "TEXT"
INTEGER: Final = "INTEGER"
REAL: Final = "REAL"
BLOB: Final = "BLOB"

Value: TypeAlias = str | int | float | None
Row: TypeAlias = tuple[Value, ...]
T = TypeVar("T")


# Where a value comes from.


class Source(NamedTuple):
    """A field of a document, and what becomes of it in a row."""

    path: str
    """As Python has it: `id`, `state.word`; `[0]` is an item, and "" all of the document."""
    convert: Callable[[Never], Value] | None = None
    empty_is_null: bool = False
    when: str = ""
    """Another field: without it the value is `otherwise`."""
    otherwise: Value = None
    is_key: bool = False
    """Whether it is a field of the document's key, and not of the document."""
    shown_as: Callable[[str], object] | None = None
    """What becomes of the text of a row where a client is shown it."""

    def expression(self) -> str:
        """The value as Python."""
        root = "key" if self.is_key else "document"
        dot = "." if self.path[:1].isalpha() else ""
        value = f"{root}{dot}{self.path}"
        text = f"{self.convert.__name__}({value})" if self.convert is not None else value
        if self.empty_is_null:
            text = f"{value} or None" if self.convert is None else f"{text} if {value} else None"
        if self.when:
            text = f"({text}) if {root}.{self.when} else {self.otherwise!r}"
        return text


def as_is(path: str) -> Source:
    """A field as it is."""
    return Source(path)


def or_null(path: str) -> Source:
    """A field; NULL where it is empty or 0."""
    return Source(path, empty_is_null=True)


def flag(path: str) -> Source:
    """A field that is true or false, as 1 or 0."""
    return Source(path, int)


def of_key(place: int) -> Source:
    """A field of the document's key."""
    return Source(f"[{place}]", is_key=True)


def time(path: str) -> Source:
    """A moment in nanoseconds."""
    return Source(path, sortable, shown_as=without_zeros)


def time_or_null(path: str) -> Source:
    """A moment in nanoseconds; NULL where it is 0."""
    return Source(path, sortable, empty_is_null=True, shown_as=without_zeros)


def text_of(data: bytes) -> str:
    """JSON as a client sent it, as text. Bytes that are not UTF-8 are replaced, and not refused."""
    return data.decode("utf-8", "replace")


def raw(text: str) -> msgspec.Raw:
    """A text that is JSON, as a part of other JSON."""
    return msgspec.Raw(text.encode())


def json_of(path: str) -> Source:
    """JSON as a client sent it."""
    return Source(path, text_of, shown_as=raw)


def json_or_null(path: str) -> Source:
    """JSON as a client sent it; NULL where it is empty."""
    return Source(path, text_of, empty_is_null=True, shown_as=raw)


# Columns and tables.

SHARD: Final = Source("shard")
"""The number of the shard, which no document has."""


class Column(msgspec.Struct, frozen=True):
    """One column. `default` goes with `required` alone."""

    name: str
    type: str
    required: bool = False
    default: str | int | None = None
    source: Source | None = None
    """None: SQLite numbers the rows, or no document has it yet."""


def fed(
    name: str,
    type_: str,
    source: Source,
    *,
    default: str | int | None = None,
) -> Column:
    """A column that a document feeds; it is NULL only where its source may be."""
    is_null = source.empty_is_null or (bool(source.when) and source.otherwise is None)
    return Column(name, type_, not is_null, default, source)


SUM: Final = Column("sum", INTEGER)
"""The last column of a table that documents feed: `sum_of` the values that they feed. SQLite does
not notice a bit that has changed in a value. NULL in rows that an older version has written."""


def sum_of(values: Row) -> int:
    """The checksum of the values of a row, as they are written and as SQLite gives them back."""
    return crc32(_pack(values))


_pack: Final = msgspec.msgpack.Encoder().encode


class Index(msgspec.Struct, frozen=True):
    """One index; `where` limits it to rows that have something to be found by."""

    name: str
    columns: tuple[str, ...]
    where: str = ""
    is_unique: bool = False


class TableSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    indexes: tuple[Index, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its columns."""
        return tuple(column.name for column in self.columns)

    @property
    def sources(self) -> dict[str, Source]:
        """Where the values of the columns come from that documents feed."""
        return {one.name: one.source for one in self.columns if one.source is not None}


class Feed(Generic[T]):
    """How documents of one kind become rows of a table."""

    def __init__(self, spec: TableSpec, *, by: tuple[str, ...] = ()) -> None:
        sources = spec.sources
        self.put: Final = upsert(spec, (*sources, SUM.name), by=by or spec.key)
        """The statement that writes a row with its sum, new or not."""
        self.row: Final = cast("Callable[[int, T, Row], Row]", _row_function(sources.values()))
        """The row of a document: by the number of its shard, the document, its key's fields."""

    def summed(self, shard: int, document: T, key: Row) -> Row:
        """The same with its sum."""
        values = self.row(shard, document, key)
        return (*values, sum_of(values))


def _row_function(sources: Collection[Source]) -> object:
    values = ["shard" if source is SHARD else source.expression() for source in sources]
    found: dict[str, object] = {
        source.convert.__name__: source.convert for source in sources if source.convert is not None
    }
    exec(f"def row(shard, document, key): return ({', '.join(values)},)", found)  # noqa: S102 -- of the declarations alone
    return found["row"]


def upsert(spec: TableSpec, names: tuple[str, ...], *, by: tuple[str, ...]) -> str:
    """The statement that writes these columns of a row; `by` says which row it is."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in by)
    return (
        f"INSERT INTO {spec.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        f" ON CONFLICT ({', '.join(by)}) DO UPDATE SET {changed}"
    )
