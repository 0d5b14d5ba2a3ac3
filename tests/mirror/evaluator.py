"""The subset of jq once more, as plainly as can be: over decoded JSON, one step after the other.

Written from docs/jq.md. It reads no expression: it walks a tree that the tests make, and the same
tree is written down as an expression by them, and as a program for the real jq by `as_jq`.

A judgement is True, False, or None where the condition cannot be judged.
"""

import json
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Judgement: TypeAlias = bool | None


@dataclass(frozen=True)
class Number:
    text: str


@dataclass(frozen=True)
class Path:
    steps: tuple[str | int, ...]


@dataclass(frozen=True)
class Call:
    """A function without an argument: of a value, it gives a value."""

    name: str


@dataclass(frozen=True)
class Chain:
    """`a | b | …` of values."""

    links: "tuple[Path | Call, ...]"


Literal: TypeAlias = str | bool | Number | None
Side: TypeAlias = "Chain | Path | Call | Literal"


@dataclass(frozen=True)
class Compare:
    operator: str
    left: Side
    right: Side


@dataclass(frozen=True)
class Ask:
    """A function that judges: contains, startswith, endswith, has."""

    name: str
    argument: "Literal | int"


@dataclass(frozen=True)
class Each:
    name: str
    condition: "Tree"


@dataclass(frozen=True)
class Behind:
    """`a | condition`."""

    value: Path | Call | Chain
    condition: "Tree"


@dataclass(frozen=True)
class Truth:
    value: Path


@dataclass(frozen=True)
class Not:
    condition: "Tree"


@dataclass(frozen=True)
class Both:
    name: str
    left: "Tree"
    right: "Tree"


Tree: TypeAlias = Compare | Ask | Each | Behind | Truth | Not | Both


class Unjudged(Exception):
    """There is no value to be judged."""


# Payloads.


def decoded(payload: str) -> Json:
    """A payload as everybody reads it: of a key that is there twice the last counts."""
    value: Json = json.loads(payload, parse_int=integer, parse_float=float)
    return value


def integer(text: str) -> int | float:
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else float(text)


# Judgements.


def matches(tree: Tree, payload: str) -> bool:
    """Whether a search finds a job of this payload."""
    return judged(tree, decoded(payload)) is True


def judged(tree: Tree, subject: Json) -> Judgement:
    try:
        return _judged(tree, subject)
    except Unjudged:
        return None


def _judged(tree: Tree, subject: Json) -> Judgement:
    if isinstance(tree, Both):
        sides = [judged(tree.left, subject), judged(tree.right, subject)]
        decisive = tree.name == "or"
        if decisive in sides:
            return decisive
        return None if None in sides else not decisive
    if isinstance(tree, Not):
        inner = judged(tree.condition, subject)
        return None if inner is None else not inner
    if isinstance(tree, Behind):
        return judged(tree.condition, value_of(tree.value, subject))
    if isinstance(tree, Truth):
        found = value_of(tree.value, subject)
        return found is not None and found is not False
    if isinstance(tree, Compare):
        return compared(tree.operator, side(tree.left, subject), side(tree.right, subject))
    if isinstance(tree, Ask):
        return asked(tree, subject)
    if not isinstance(subject, list):
        return None
    several = [judged(tree.condition, one) is True for one in subject]
    return any(several) if tree.name == "any" else all(several)


def side(one: Side, subject: Json) -> Json:
    if isinstance(one, Path | Call | Chain):
        return value_of(one, subject)
    return literal(one)


def literal(one: Literal) -> Json:
    if isinstance(one, Number):
        return decoded(one.text)
    return one


def value_of(value: Path | Call | Chain, subject: Json) -> Json:
    if isinstance(value, Chain):
        for link in value.links:
            subject = value_of(link, subject)
        return subject
    if isinstance(value, Call):
        return called(value.name, subject)
    for step in value.steps:
        subject = stepped(subject, step)
    return subject


def stepped(value: Json, step: str | int) -> Json:
    if isinstance(step, str):
        return value.get(step) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    at = step if step >= 0 else len(value) + step
    return value[at] if 0 <= at < len(value) else None


def called(name: str, value: Json) -> Json:
    if name == "type":
        return kind(value)
    if name == "length":
        if value is None:
            return 0
        if isinstance(value, bool):
            raise Unjudged
        return abs(value) if isinstance(value, int | float) else len(value)
    if not isinstance(value, str):
        raise Unjudged
    if name == "ascii_downcase":
        return "".join(one.lower() if one.isascii() else one for one in value)
    assert name == "ascii_upcase"
    return "".join(one.upper() if one.isascii() else one for one in value)


def kind(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def compared(operator: str, left: Json, right: Json) -> Judgement:
    kinds = {kind(left), kind(right)}
    if operator in {"==", "!="}:
        if kinds <= {"array", "object"}:
            return None
        equal = len(kinds) == 1 and left == right
        return equal if operator == "==" else not equal
    if kinds not in ({"number"}, {"string"}):
        return None
    if kinds == {"string"}:
        # By code points, as UTF-8 sorts.
        one, other = str(left).encode(), str(right).encode()
        return ordered(operator, (one > other) - (one < other))
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    return ordered(operator, (left > right) - (left < right))


def ordered(operator: str, sign: int) -> bool:
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[operator]


def asked(test: Ask, subject: Json) -> Judgement:
    argument = test.argument
    if test.name == "has":
        if subject is None:
            return False
        if isinstance(argument, str) and isinstance(subject, dict):
            return argument in subject
        if isinstance(argument, int) and isinstance(subject, list):
            return argument < len(subject)
        return None
    assert isinstance(argument, str | bool | Number | None)
    if test.name == "contains" and isinstance(subject, list):
        wanted = literal(argument)
        return any(kind(one) == kind(wanted) and one == wanted for one in subject)
    if not (isinstance(subject, str) and isinstance(argument, str)):
        return None
    if test.name == "contains":
        return argument in subject
    return subject.startswith(argument) if test.name == "startswith" else subject.endswith(argument)


# The real jq.

PRELUDE = """
def rank: if type == "number" or type == "string" then type else null end;
def ordered(f): if (.[0]|rank) != null and (.[0]|rank) == (.[1]|rank) then f else null end;
def whole: type == "array" or type == "object";
def same: if (.[0]|whole) and (.[1]|whole) then null else .[0] == .[1] end;
def turned: if . == null then null else not end;
def both: if any(.[]; . == false) then false elif any(.[]; . == null) then null else true end;
def either: if any(.[]; . == true) then true elif any(.[]; . == null) then null else false end;
"""


def as_jq(tree: Tree) -> str:
    """A program for the real jq that gives true, false or null, null for None."""
    return PRELUDE + f"(try ({_jq(tree)}) catch null)"


def _jq(tree: Tree) -> str:
    if isinstance(tree, Both):
        sides = ", ".join(f"(try ({_jq(one)}) catch null)" for one in (tree.left, tree.right))
        return f"[{sides}] | {'both' if tree.name == 'and' else 'either'}"
    if isinstance(tree, Not):
        return f"(try ({_jq(tree.condition)}) catch null) | turned"
    if isinstance(tree, Behind):
        return f"({_jq_value(tree.value)}) | ({_jq(tree.condition)})"
    if isinstance(tree, Truth):
        return f"({_jq_value(tree.value)}) | if . then true else false end"
    if isinstance(tree, Compare):
        pair = f"[({_jq_side(tree.left)}), ({_jq_side(tree.right)})]"
        if tree.operator in {"==", "!="}:
            return f"{pair} | same" + ("" if tree.operator == "==" else " | turned")
        return f"{pair} | ordered(.[0] {tree.operator} .[1])"
    if isinstance(tree, Each):
        return (
            f'if type == "array" then [.[] | (try ({_jq(tree.condition)}) catch null) == true]'
            f" | {tree.name} else null end"
        )
    if tree.name == "contains":
        wanted = spelled(tree.argument)
        inner = f"contains({wanted})" if isinstance(tree.argument, str) else "null"
        return (
            f'if type == "array" then any(.[]; . == {wanted})'
            f' elif type == "string" then {inner} else null end'
        )
    return f"{tree.name}({spelled(tree.argument)})"


def _jq_side(one: Side) -> str:
    return _jq_value(one) if isinstance(one, Path | Call | Chain) else spelled(one)


def _jq_value(value: Path | Call | Chain) -> str:
    if isinstance(value, Chain):
        return " | ".join(_jq_value(link) for link in value.links)
    if isinstance(value, Call):
        return value.name
    steps = "".join(f"[{spelled(step)}]" for step in value.steps)
    return f"(try .{steps} catch null)"


# Expressions.


def spelled(one: Literal | int) -> str:
    if isinstance(one, Number):
        return one.text
    return json.dumps(one, ensure_ascii=False)
