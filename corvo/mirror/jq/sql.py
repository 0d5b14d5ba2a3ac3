r"""A `payload_jq` condition as SQL over the column `jobs.payload`.

Every key, index and value of the expression is a parameter; the text is made of the pieces below
and nothing else. It is true, false, or NULL where the condition cannot be judged.

SQLite finds a key by a JSON path only as it is *written* in the document, so that `"caf\u00e9"` is
not found as `café`, a key with a quote cannot be named at all, and of a key that is there twice it
takes the first, where all others take the last. `json_each` gives the keys as they are meant, in
their order: so each step of a way is one `json_each`. Both cost about the same.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from corvo.mirror.jq.parser import (
    Compare,
    Condition,
    Constant,
    Each,
    Fixed,
    Has,
    Joined,
    Measured,
    Not,
    Number,
    Piece,
    Truth,
    Value,
    Way,
)

Parameter: TypeAlias = str | int
INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 63) - 1


class Sql(NamedTuple):
    """A piece of SQL and what its question marks stand for."""

    text: str
    parameters: tuple[Parameter, ...] = ()


class _Column(NamedTuple):
    """A value: two expressions without parameters. A value that leads nowhere has neither."""

    value: str
    type: str
    """As `json_type` has it; empty if it is certain, and then a value of NULL is not judged."""


_PAYLOAD: Final = _Column("json_extract(jobs.payload, '$')", "json_type(jobs.payload)")
_NUMBERS: Final = "('integer', 'real')"

LARGE: Final = 32_768
"""Characters. What is larger, or may have the character NUL, is looked at by `payload_matches`: see
`corvo.mirror.jq.values`."""
_ODD: Final = rf"(length(jobs.payload) > {LARGE} OR jobs.payload GLOB '*\u0000*')"

# A text that has to be in the payload is in it as it is, or there is a backslash. This is found out
# in a fraction of the time that it takes to read JSON.
_HAS: Final = r"(instr(jobs.payload, ?) > 0 OR jobs.payload GLOB '*\*')"
_WRITTEN_OTHERWISE: Final = re.compile(r'["\\\x00-\x1f]')


def to_sql(condition: Condition, source: str) -> Sql:
    """The whole condition, which was written as `source`.

    JSON was checked at the door. What is none would end the whole search, so it is looked at again.
    """
    inner = _Emitter().condition(condition, _PAYLOAD)
    whole = Sql(
        f"CASE WHEN {_ODD} THEN payload_matches(?, jobs.payload)"
        f" WHEN json_valid(jobs.payload) THEN {inner.text} END",
        (source, *inner.parameters),
    )
    texts = [text for text in _needed(condition) if not _WRITTEN_OTHERWISE.search(text)]
    longest = max(texts, key=len, default="")
    if longest:
        return Sql(f"({_HAS} AND {whole.text})", (longest, *whole.parameters))
    return Sql(f"({whole.text})", whole.parameters)


def _needed(condition: Condition) -> Iterator[str]:
    """Texts without which in the payload the condition does not hold."""
    match condition:
        case Joined(name="and"):
            for part in condition.parts:
                yield from _needed(part)
        case Each(name="any"):
            yield from _needed(condition.condition)
        case Compare(operator="==", right=Fixed(value=str(text))) if isinstance(
            condition.left, Way
        ):
            yield text
        case Piece(piece=str(text)) if isinstance(condition.of, Way):
            yield text
        case Has(key=str(text)):
            yield text
        case _:
            pass


class _Emitter:
    """Makes the pieces, and gives each `json_each` a name of its own."""

    def __init__(self) -> None:
        self._names = 0

    def _name(self) -> str:
        self._names += 1
        return f"j{self._names}"

    def condition(self, condition: Condition, root: _Column) -> Sql:
        """A condition over the value `root`."""
        match condition:
            case Joined():
                parts = [self.condition(part, root) for part in condition.parts]
                texts = f" {condition.name.upper()} ".join(part.text for part in parts)
                return Sql(f"({texts})", tuple(one for part in parts for one in part.parameters))
            case Not():
                inner = self.condition(condition.of, root)
                return Sql(f"(NOT {inner.text})", inner.parameters)
            case Compare() if not isinstance(condition.right, Fixed):
                return self._asked([condition.left, condition.right], root, condition)
            case Compare():
                return self._asked([condition.left], root, condition)
            case Piece() | Has() | Each() | Truth():
                return self._asked([condition.of], root, condition)

    def _asked(self, values: list[Value], root: _Column, condition: Condition) -> Sql:
        """One question about one or two values, which are found by a subquery of one row."""
        joins: list[str] = []
        orders: list[str] = []
        ahead: list[Parameter] = []
        columns = [self._column(value, root, joins, orders, ahead) for value in values]
        asked = self._question(condition, columns)
        if not joins:
            return asked
        order = f" ORDER BY {', '.join(orders)} LIMIT 1" if orders else ""
        text = f"(SELECT {asked.text} FROM (SELECT 1){''.join(joins)}{order})"
        return Sql(text, (*asked.parameters, *ahead))

    def _column(
        self,
        value: Value,
        root: _Column,
        joins: list[str],
        orders: list[str],
        parameters: list[Parameter],
    ) -> _Column:
        if isinstance(value, Measured):
            inner = self._column(value.of, root, joins, orders, parameters)
            return _Column(self._measure(value, inner), "")
        here = root
        for step in value.steps:
            name = self._name()
            kind = "object" if isinstance(step, str) else "array"
            within = f"CASE {here.type} WHEN '{kind}' THEN {here.value} END"
            if here is _PAYLOAD:
                within = "jobs.payload"  # what is neither has no key that could be equal
            key = "?"
            if isinstance(step, int) and step < 0:
                key = f"json_array_length({within}) + ?"
            joins.append(f" LEFT JOIN json_each({within}) {name} ON {name}.key = {key}")
            parameters.append(step)
            if isinstance(step, str):
                orders.append(f"{name}.id DESC")  # of a key that is there twice, the last
            here = _Column(f"{name}.value", f"{name}.type")
        return here

    def _measure(self, measured: Measured, column: _Column) -> str:
        value, kind = column
        match measured.name:
            case "length" if kind:
                name = self._name()
                keys = f"(SELECT count(DISTINCT {name}.key) FROM json_each({value}) {name})"
                return (
                    f"(CASE coalesce({kind}, 'null') WHEN 'text' THEN length({value})"
                    f" WHEN 'array' THEN json_array_length({value}) WHEN 'object' THEN {keys}"
                    f" WHEN 'null' THEN 0 WHEN 'integer' THEN iif({value} < 0, -{value}, {value})"
                    f" WHEN 'real' THEN abs({value}) END)"
                )
            case "length":
                return f"length({value})"
            case "type" if kind:
                return (
                    f"(CASE coalesce({kind}, 'null') WHEN 'text' THEN 'string'"
                    f" WHEN 'integer' THEN 'number' WHEN 'real' THEN 'number'"
                    f" WHEN 'true' THEN 'boolean' WHEN 'false' THEN 'boolean'"
                    f" ELSE coalesce({kind}, 'null') END)"
                )
            case "type":
                assert isinstance(measured.of, Measured)
                gives = "number" if measured.of.name == "length" else "string"
                return f"(CASE WHEN {value} IS NOT NULL THEN '{gives}' END)"
            case "ascii_downcase" | "ascii_upcase":
                function = "lower" if measured.name == "ascii_downcase" else "upper"
                text = f"CASE {kind} WHEN 'text' THEN {value} END" if kind else value
                return f"{function}({text})"

    # Questions: true, false, or NULL.

    def _question(self, condition: Condition, columns: list[_Column]) -> Sql:
        match condition:
            case Compare() if isinstance(condition.right, Fixed):
                return _compared_fixed(condition.operator, columns[0], condition.right.value)
            case Compare():
                return _compared(condition, *columns)
            case Piece():
                return self._piece(condition, columns[0])
            case Has():
                return self._has(condition.key, columns[0])
            case Each():
                return self._each(condition, columns[0])
            case Truth():
                return Sql(f"(coalesce({columns[0].type}, 'null') NOT IN ('null', 'false'))")
            case _:
                raise AssertionError(condition)

    def _piece(self, condition: Piece, column: _Column) -> Sql:
        value, kind = column
        piece = condition.piece
        if condition.name == "contains" and kind:
            name = self._name()
            equal = _equal(_Column(f"{name}.value", f"{name}.type"), piece)
            found = Sql(
                f" WHEN 'array' THEN EXISTS (SELECT 1 FROM json_each({value}) {name}"
                f" WHERE {equal.text})",
                equal.parameters,
            )
        else:
            found = Sql("")
        if not isinstance(piece, str):
            return Sql(f"(CASE {kind}{found.text} END)", found.parameters)
        length = len(piece)
        if condition.name == "contains":
            asked = Sql(f"instr({value}, ?) > 0", (piece,))
        elif not piece:
            asked = Sql(f"{value} IS NOT NULL")
        elif condition.name == "startswith":
            asked = Sql(f"substr({value}, 1, ?) = ?", (length, piece))
        else:
            asked = Sql(f"substr({value}, ?) = ?", (-length, piece))
        if not kind:
            # A measure that gives a text: NULL where there was none.
            return Sql(f"(CASE WHEN {value} IS NOT NULL THEN {asked.text} END)", asked.parameters)
        return Sql(
            f"(CASE {kind} WHEN 'text' THEN {asked.text}{found.text} END)",
            (*asked.parameters, *found.parameters),
        )

    def _has(self, key: str | int, column: _Column) -> Sql:
        name = self._name()
        if isinstance(key, int):
            return Sql(
                f"(CASE coalesce({column.type}, 'null') WHEN 'null' THEN FALSE"
                f" WHEN 'array' THEN json_array_length({column.value}) > ? END)",
                (key,),
            )
        return Sql(
            f"(CASE coalesce({column.type}, 'null') WHEN 'null' THEN FALSE"
            f" WHEN 'object' THEN EXISTS (SELECT 1 FROM json_each({column.value}) {name}"
            f" WHERE {name}.key = ?) END)",
            (key,),
        )

    def _each(self, condition: Each, column: _Column) -> Sql:
        name = self._name()
        inner = self.condition(condition.condition, _Column(f"{name}.value", f"{name}.type"))
        ahead, behind = ("", "") if condition.name == "any" else ("NOT ", " IS NOT TRUE")
        return Sql(
            f"(CASE {column.type} WHEN 'array' THEN {ahead}EXISTS"
            f" (SELECT 1 FROM json_each({column.value}) {name} WHERE {inner.text}{behind}) END)",
            inner.parameters,
        )


def _number(number: Number) -> Sql:
    """A number as SQLite itself reads it out of a payload, so that equal texts are equal."""
    text = number.text
    if text.lstrip("-").isdigit() and INTEGER_MIN <= int(text) <= INTEGER_MAX:
        return Sql("?", (int(text),))
    return Sql("CAST(? AS REAL)", (text,))


def _equal(column: _Column, value: Constant) -> Sql:
    """Whether a value of the payload is just this; never NULL."""
    if value is None:
        return Sql(f"(coalesce({column.type}, 'null') = 'null')")
    if isinstance(value, bool):
        return Sql(f"({column.type} IS '{'true' if value else 'false'}')")
    if isinstance(value, str):
        return Sql(f"({column.value} IS ? AND {column.type} = 'text')", (value,))
    number = _number(value)
    return Sql(
        f"({column.value} IS {number.text} AND {column.type} IN {_NUMBERS})", number.parameters
    )


def _compared_fixed(operator: str, column: _Column, value: Constant) -> Sql:
    if not column.type:
        assert isinstance(value, str | Number)
        fixed = Sql("?", (value,)) if isinstance(value, str) else _number(value)
        return Sql(f"({column.value} {operator} {fixed.text})", fixed.parameters)
    if operator in {"==", "!="}:
        equal = _equal(column, value)
        return equal if operator == "==" else Sql(f"(NOT {equal.text})", equal.parameters)
    if isinstance(value, str):
        return Sql(
            f"(CASE {column.type} WHEN 'text' THEN {column.value} {operator} ? END)", (value,)
        )
    assert isinstance(value, Number)
    fixed = _number(value)
    return Sql(
        f"(CASE WHEN {column.type} IN {_NUMBERS} THEN {column.value} {operator} {fixed.text} END)",
        fixed.parameters,
    )


def _compared(condition: Compare, left: _Column, right: _Column) -> Sql:
    """Two values of the payload.

    Arrays and objects are not judged: equal ones can be written in many ways.
    """
    assert not isinstance(condition.right, Fixed)
    types = [_type(condition.left, left), _type(condition.right, right)]
    unjudged = [f"{one.value} IS NULL" for one in (left, right) if not one.type]
    are_numbers = " AND ".join(f"{one} IN {_NUMBERS}" for one in types)
    are_texts = " AND ".join(f"{one} = 'text'" for one in types)
    texts = [f"CASE WHEN {' OR '.join(unjudged)} THEN NULL"] if unjudged else ["CASE"]
    texts.append(
        f"WHEN {are_numbers} OR {are_texts} THEN {left.value} {condition.operator} {right.value}"
    )
    if condition.operator in {"==", "!="}:
        are_whole = " AND ".join(f"{one} IN ('array', 'object')" for one in types)
        texts.append(f"WHEN {are_whole} THEN NULL")
        texts.append(f"ELSE {types[0]} {condition.operator} {types[1]}")
    return Sql(f"({' '.join(texts)} END)")


def _type(value: Value, column: _Column) -> str:
    if column.type:
        return f"coalesce({column.type}, 'null')"
    assert isinstance(value, Measured)
    return "'integer'" if value.name == "length" else "'text'"
