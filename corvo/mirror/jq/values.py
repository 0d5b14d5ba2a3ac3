"""A `payload_jq` condition evaluated in Python, for payloads that SQLite cannot evaluate exactly.

These are large ones: each `json_each` of a statement keeps its own copy of what it took apart,
which of one large payload would come to gigabytes. And those with the character NUL, at which
SQLite ends a text. They are few, and only for them a thread needs the interpreter while it looks.
"""

import json
import re
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

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
    Operator,
    Piece,
    Truth,
    Value,
    parse,
)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_KEPT: Final = 64
"""Expressions that are under way need not be read again for each payload."""
_DIGITS: Final = len(str(1 << 63))
_LONG: Final = re.compile("[0-9]{19}")
"""What has no such number is read in a tenth of the time."""
_decode: Final = msgspec.json.Decoder().decode
_parsed: Final = lru_cache(maxsize=_KEPT)(parse)


def payload_matches(source: str, payload: str) -> bool | None:
    """Whether the condition holds; None if it cannot be judged."""
    try:
        return _judge(_parsed(source), _decoded(payload))
    except (ValueError, RecursionError):
        return None  # the door would not have let it in


def _decoded(payload: str) -> Json:
    found: Json
    if _LONG.search(payload) is None:
        try:
            found = _decode(payload)
        except msgspec.ValidationError:
            pass  # a number is beyond what a float has: then it is infinite
        else:
            return found
    found = json.loads(payload, parse_int=_integer)
    return found


def _integer(text: str) -> int | float:
    """A number as SQLite has it. Python refuses to read the longest ones."""
    if len(text) > _DIGITS + 1:
        return float(text)
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else float(number)


class _NotJudgedError(Exception):
    """There is no value of which that can be asked."""


def _judge(condition: Condition, root: Json) -> bool | None:
    match condition:
        case Joined():
            decisive = condition.name == "or"
            is_certain = True
            for part in condition.parts:
                judged = _judge(part, root)
                if judged is decisive:
                    return decisive
                is_certain = is_certain and judged is not None
            return not decisive if is_certain else None
        case Not():
            judged = _judge(condition.of, root)
            return None if judged is None else not judged
        case _:
            try:
                return _ask(condition, root)
            except _NotJudgedError:
                return None


def _ask(condition: Compare | Piece | Has | Each | Truth, root: Json) -> bool | None:
    if isinstance(condition, Compare):
        right = condition.right
        other = _constant(right.value) if isinstance(right, Fixed) else _value(right, root)
        return _compare(condition.operator, _value(condition.left, root), other)
    value = _value(condition.of, root)
    match condition:
        case Truth():
            return value is not None and value is not False
        case Has():
            return _has(value, condition.key)
        case Each():
            if not isinstance(value, list):
                return None
            holds = (_judge(condition.condition, element) is True for element in value)
            return any(holds) if condition.name == "any" else all(holds)
        case Piece():
            return _has_piece(condition, value)


def _value(value: Value, root: Json) -> Json:
    if isinstance(value, Measured):
        return _measure(value.name, _value(value.of, root))
    here = root
    for step in value.steps:
        if isinstance(step, str) and isinstance(here, dict):
            here = here.get(step)
        elif isinstance(step, int) and isinstance(here, list) and -len(here) <= step < len(here):
            here = here[step]
        else:
            return None
    return here


def _measure(name: str, value: Json) -> Json:
    if name == "type":
        return _kind(value)
    if name == "length":
        if value is None:
            return 0
        if isinstance(value, bool):
            raise _NotJudgedError
        return abs(value) if isinstance(value, int | float) else len(value)
    if not isinstance(value, str):
        raise _NotJudgedError
    # Of bytes, only A to Z have two forms.
    data = value.encode()
    return (data.lower() if name == "ascii_downcase" else data.upper()).decode()


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"


def _constant(value: Constant) -> Json:
    if not isinstance(value, Number):
        return value
    return _integer(value.text) if value.text.lstrip("-").isdigit() else float(value.text)


def _compare(operator: Operator, one: Json, other: Json) -> bool | None:
    kind = _kind(one)
    is_one_kind = kind == _kind(other)
    if operator in {"==", "!="}:
        if {kind, _kind(other)} <= {"array", "object"}:
            return None
        is_equal = is_one_kind and one == other
        return is_equal if operator == "==" else not is_equal
    if isinstance(one, str) and isinstance(other, str):
        sign = (one > other) - (one < other)
    elif is_one_kind and isinstance(one, int | float) and isinstance(other, int | float):
        if kind == "boolean":
            return None
        sign = (one > other) - (one < other)
    else:
        return None
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[operator]


def _has(value: Json, key: str | int) -> bool | None:
    if value is None:
        return False
    if isinstance(key, str):
        return key in value if isinstance(value, dict) else None
    return key < len(value) if isinstance(value, list) else None


def _has_piece(condition: Piece, value: Json) -> bool | None:
    piece = _constant(condition.piece)
    if condition.name == "contains" and isinstance(value, list):
        kind = _kind(piece)
        return any(_kind(element) == kind and element == piece for element in value)
    if not isinstance(value, str) or not isinstance(piece, str):
        return None
    match condition.name:
        case "contains":
            return piece in value
        case "startswith":
            return value.startswith(piece)
        case "endswith":
            return value.endswith(piece)
