"""The parser of `payload_jq`: from text to a condition, for a subset of jq.

An expression is a condition over one JSON value, and is built as jq builds it: `|` binds least,
then `or`, `and` and the comparisons. An expression after `|` is about the value before it. The
parser resolves that at once, so every path starts at the value that is examined.
"""

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from corvo.mirror.jq.lexer import INDEX_MAX, BadJq, Token, tokens

DEPTH_MAX: Final = 16
"""Levels of parentheses, pipes, `any` and `all`."""
EACH_MAX: Final = 3
"""Levels of `any` and `all`."""
STEPS_MAX: Final = 16
"""Steps of one path."""
NODES_MAX: Final = 64
"""Values and conditions of one expression."""
ALL_STEPS_MAX: Final = 64
"""Steps of all paths of one expression."""

Operator: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">="]
MeasureName: TypeAlias = Literal["length", "type", "ascii_downcase", "ascii_upcase"]
PieceName: TypeAlias = Literal["contains", "startswith", "endswith"]
EachName: TypeAlias = Literal["any", "all"]


class Number(msgspec.Struct, frozen=True):
    """A number as it is written."""

    text: str


Constant: TypeAlias = str | bool | Number | None


class Fixed(msgspec.Struct, frozen=True):
    """A constant in the expression."""

    value: Constant
    at: int


class Way(msgspec.Struct, frozen=True):
    """The value at the end of a path; null if the path does not exist."""

    steps: tuple[str | int, ...]
    at: int


class Measured(msgspec.Struct, frozen=True):
    """The result of a function of a value."""

    name: MeasureName
    of: "Way | Measured"
    at: int


Value: TypeAlias = Way | Measured


class Compare(msgspec.Struct, frozen=True):
    """Two values, one of which may be fixed: then it is the right one."""

    operator: Operator
    left: Value
    right: Value | Fixed
    at: int


class Piece(msgspec.Struct, frozen=True):
    """Whether a text has a piece, or an array an element."""

    name: PieceName
    of: Value
    piece: Constant
    at: int


class Has(msgspec.Struct, frozen=True):
    """Whether an object has a key, or an array an element there."""

    of: Way
    key: str | int
    at: int


class Each(msgspec.Struct, frozen=True):
    """Whether a condition holds for any element of an array, or for all of them."""

    name: EachName
    of: Way
    condition: "Condition"
    at: int


class Truth(msgspec.Struct, frozen=True):
    """Whether a value is neither null nor false."""

    of: Way
    at: int


class Not(msgspec.Struct, frozen=True):
    """Whether a condition does not hold."""

    of: "Condition"
    at: int


class Joined(msgspec.Struct, frozen=True):
    """Whether all conditions hold, or one of them."""

    name: Literal["and", "or"]
    parts: "tuple[Condition, ...]"
    at: int


Condition: TypeAlias = Compare | Piece | Has | Each | Truth | Not | Joined
Node: TypeAlias = Condition | Value | Fixed

_COMPARISONS: Final[dict[str, Operator]] = {sign: sign for sign in get_args(Operator)}
_MIRRORED: Final[dict[Operator, Operator]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MEASURES: Final[dict[str, MeasureName]] = {name: name for name in get_args(MeasureName)}
_PIECES: Final[dict[str, PieceName]] = {name: name for name in get_args(PieceName)}
_EACH: Final[dict[str, EachName]] = {name: name for name in get_args(EachName)}
_WORDS: Final[dict[str, Constant]] = {"true": True, "false": False, "null": None}
_KNOWN: Final = "length, type, contains, startswith, endswith, has, any, all, not, ascii_downcase"

_REFUSED: Final = {
    "test": "regular expressions are not supported: use contains, startswith or endswith",
    "match": "regular expressions are not supported: use contains, startswith or endswith",
    "select": "`select` is not needed: write the condition itself",
    "if": "`if` is not supported: use `and`, `or` and `not`",
    "in": "`in` is not supported: use `has`",
    "inside": "`inside` is not supported: use `contains`",
    "keys": "`keys` is not supported: use `has`, or `length`",
}

# The precedence of operators.
_PIPE, _OR, _AND, _COMPARISON = 1, 2, 3, 4


def parse(source: str) -> Condition:
    """The condition that an expression is. Raises `BadJq`."""
    parser = _Parser(tokens(source))
    found = parser.expression(_PIPE)
    parser.expect_end()
    condition = parser.condition(found)
    steps = 0
    for way in _ways(condition, inside=True):
        steps += len(way.steps)
        if steps > ALL_STEPS_MAX:
            raise BadJq(f"expected at most {ALL_STEPS_MAX} steps in all paths together", way.at)
    return condition


class _Parser:
    """Goes through the words once, from left to right."""

    def __init__(self, words: list[Token]) -> None:
        self._words: Final = words
        self._next = 0
        self._subject: Node = Way((), 0)
        """The value of `.`."""
        self._depth = 0
        self._each = 0
        self._nodes = 0

    # Words.

    @property
    def _token(self) -> Token:
        return self._words[self._next]

    def _take(self) -> Token:
        token = self._token
        self._next += 1
        return token

    def _is_mark(self, text: str) -> bool:
        return self._token.kind == "mark" and self._token.text == text

    def _expect(self, text: str, why: str) -> None:
        if not self._is_mark(text):
            raise BadJq(f"expected `{text}` here: {why}", self._token.at)
        self._take()

    def expect_end(self) -> None:
        """Refuse a token after the expression."""
        token = self._token
        if token.kind == "end":
            return
        if token.kind == "mark" and token.text in "([":
            error = f"unexpected `{token.text}`"
        elif token.kind == "mark" and token.text in ")]":
            error = f"unexpected `{token.text}`: nothing is open"
        elif token.kind == "mark" and token.text in {",", ";"}:
            error = f"`{token.text}` is not supported: write one condition"
        elif token.kind == "number" and token.text.startswith("-"):
            error = 'arithmetic is not supported; a key with a dash needs quotes: ."a-b"'
        else:
            error = "expected an operator here: ==, !=, <, <=, >, >=, |, and, or"
        raise BadJq(error, token.at)

    def _made(self, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise BadJq(f"expected at most {NODES_MAX} values and conditions", node.at)
        return node

    # Operators.

    def expression(self, binding: int) -> Node:
        """The expression here, with all operators of at least this precedence."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadJq(f"expected at most {DEPTH_MAX} levels of nesting", self._token.at)
        left = self._primary()
        while True:
            token = self._token
            if token.kind == "mark" and token.text in _COMPARISONS and binding <= _COMPARISON:
                left = self._comparison(left)
            elif token == ("word", "and", token.at) and binding <= _AND:
                left = self._joined("and", left, _AND)
            elif token == ("word", "or", token.at) and binding <= _OR:
                left = self._joined("or", left, _OR)
            elif self._is_mark("|") and binding <= _PIPE:
                left = self._piped(left)
            else:
                break
        self._depth -= 1
        return left

    def _comparison(self, left: Node) -> Node:
        token = self._take()
        operator = _COMPARISONS[token.text]
        right = self.expression(_COMPARISON + 1)
        if self._token.kind == "mark" and self._token.text in _COMPARISONS:
            raise BadJq("comparisons cannot be chained: join them by `and`", self._token.at)
        if isinstance(left, Fixed):
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        if isinstance(left, Fixed):
            raise BadJq(
                "one side of a comparison must be a value of the payload, such as `.a`", token.at
            )
        if not isinstance(left, Value):
            raise BadJq("a condition cannot be compared: use it as it is, or `| not`", left.at)
        if not isinstance(right, Value | Fixed):
            raise BadJq("a condition cannot be compared: use it as it is, or `| not`", right.at)
        _check_kinds(operator, left, right)
        return self._made(Compare(operator, left, right, token.at))

    def _joined(self, name: Literal["and", "or"], first: Node, binding: int) -> Node:
        at = self._token.at
        parts = [self.condition(first)]
        while self._token == ("word", name, self._token.at):
            self._take()
            parts.append(self.condition(self.expression(binding + 1)))
        if isinstance(self._subject, Way) and self._subject.steps:
            _refuse_trap(self._subject, parts)
        return self._made(Joined(name, tuple(parts), at))

    def _piped(self, left: Node) -> Node:
        token = self._take()
        if isinstance(left, Fixed):
            raise BadJq("expected a value of the payload, or a condition, before `|`", left.at)
        before, self._subject = self._subject, left
        right = self.expression(_PIPE)
        self._subject = before
        if isinstance(right, Fixed):
            raise BadJq("expected a function or a condition after `|`", token.at)
        return right

    def condition(self, node: Node) -> Condition:
        """A node as a condition: a value holds if it is neither null nor false."""
        if isinstance(node, Fixed):
            raise BadJq("a value is not a condition: compare it with something", node.at)
        if isinstance(node, Measured):
            raise BadJq(f"the result of `{node.name}` is not a condition: compare it", node.at)
        if isinstance(node, Way):
            truth = self._made(Truth(node, node.at))
            assert isinstance(truth, Truth)
            return truth
        return node

    # Operands.

    def _primary(self) -> Node:
        token = self._take()
        if token.kind == "number":
            return self._made(Fixed(Number(token.text), token.at))
        if token.kind == "string":
            return self._made(Fixed(token.text, token.at))
        if token.kind == "field" or token == ("mark", ".", token.at):
            return self._way(token)
        if token == ("mark", "(", token.at):
            inner = self.expression(_PIPE)
            self._expect(")", f"to close the `(` at character {token.at + 1}")
            if self._token.kind == "field" or self._is_mark("["):
                raise BadJq(
                    "continue the path inside the parentheses, or after `|`", self._token.at
                )
            return inner
        if token.kind == "word":
            return self._word(token)
        error = "expected a value here, such as .a, 1 or a string in quotes"
        raise BadJq(
            "the expression is incomplete: " + error if token.kind == "end" else error, token.at
        )

    def _way(self, first: Token) -> Node:
        steps: list[str | int] = []
        if first.kind == "field":
            steps.append(first.text)
        elif self._token.kind == "string":
            steps.append(self._take().text)
        while True:
            if self._token.kind == "field":
                steps.append(self._take().text)
            elif self._is_mark("["):
                self._take()
                steps.append(self._inside_brackets())
            elif self._is_mark(".") and self._words[self._next + 1].kind == "string":
                self._take()
                steps.append(self._take().text)
            elif self._is_mark(".") and self._words[self._next + 1][:2] == ("mark", "["):
                self._take()
            elif self._is_mark("."):
                raise BadJq("expected a key after `.`", self._token.at + 1)
            else:
                break
        if not steps:
            return self._subject_here(first)
        subject = self._subject
        if not isinstance(subject, Way):
            raise BadJq(
                "the value before this `|` is not an object or array, so it has no elements",
                first.at,
            )
        if len(subject.steps) + len(steps) > STEPS_MAX:
            raise BadJq(f"expected at most {STEPS_MAX} steps in one path", first.at)
        return self._made(Way((*subject.steps, *steps), first.at))

    def _subject_here(self, token: Token) -> Node:
        if isinstance(self._subject, Way):
            return self._made(Way(self._subject.steps, token.at))
        return self._made(self._subject)

    def _inside_brackets(self) -> str | int:
        token = self._take()
        if token.kind == "string":
            step: str | int = token.text
        elif token.kind == "number" and token.text.lstrip("-").isdigit():
            if len(token.text) > 10 or abs(int(token.text)) > INDEX_MAX:
                raise BadJq(f"expected an index of at most {INDEX_MAX}", token.at)
            step = int(token.text)
        elif token == ("mark", "]", token.at):
            raise BadJq("`[]` is not supported: use any(…) or all(…)", token.at)
        else:
            raise BadJq('expected an index or a key in the brackets: [0], [-1] or ["a"]', token.at)
        self._expect("]", "only one index or key is allowed in brackets")
        return step

    def _word(self, token: Token) -> Node:
        name = token.text
        if name in _WORDS:
            return self._made(Fixed(_WORDS[name], token.at))
        if name == "not":
            return self._not(token)
        if name in _MEASURES or name in _PIECES or name in _EACH or name == "has":
            return self._made(self._asked(token))
        if name in {"and", "or"}:
            raise BadJq(f"expected a condition before `{name}`", token.at)
        if self._is_mark("(") and name not in _REFUSED:
            raise BadJq(f"unknown function; expected one of {_KNOWN}", token.at)
        raise BadJq(
            _REFUSED.get(
                name, f"write a key with a dot, a string in quotes; functions are {_KNOWN}"
            ),
            token.at,
        )

    def _not(self, token: Token) -> Node:
        if self._words[self._next - 2][:2] != ("mark", "|") or self._is_mark("("):
            raise BadJq("write `not` after its condition: (…) | not", token.at)
        return self._made(Not(self.condition(self._subject), token.at))

    def _asked(self, token: Token) -> Node:
        """A function of the subject."""
        name, subject = token.text, self._subject
        if not isinstance(subject, Value):
            raise BadJq("after a condition only `and`, `or` and `| not` are allowed", token.at)
        if name in _MEASURES:
            return Measured(_MEASURES[name], _textual(name, subject, token), token.at)
        if name in _PIECES:
            return Piece(_PIECES[name], subject, self._piece(name, subject), token.at)
        if not isinstance(subject, Way):
            raise BadJq(f"`{name}` needs an object or an array before it", token.at)
        if name == "has":
            return Has(subject, self._key(), token.at)
        return Each(_EACH[name], subject, self._each_condition(token), token.at)

    def _argument(self, name: str) -> Token:
        self._expect("(", f"`{name}` needs a value in parentheses")
        token = self._take()
        if token.kind == "end":
            raise BadJq("the expression is incomplete", token.at)
        self._expect(")", f"`{name}` needs exactly one value")
        return token

    def _piece(self, name: str, subject: Value) -> Constant:
        token = self._argument(name)
        if token.kind == "string":
            return token.text
        if name != "contains" or isinstance(subject, Measured):
            raise BadJq(f"`{name}` needs a string in its parentheses", token.at)
        if token.kind == "number":
            return Number(token.text)
        if token.kind == "word" and token.text in _WORDS:
            return _WORDS[token.text]
        raise BadJq("`contains` needs one string, number, true, false or null", token.at)

    def _key(self) -> str | int:
        token = self._argument("has")
        if token.kind == "string":
            return token.text
        if token.kind == "number" and token.text.isdigit() and len(token.text) < 10:
            return int(token.text)
        raise BadJq('`has` needs a key or an index: has("a"), has(0)', token.at)

    def _each_condition(self, token: Token) -> Condition:
        self._each += 1
        if self._each > EACH_MAX:
            raise BadJq(f"expected at most {EACH_MAX} levels of any and all", token.at)
        before, self._subject = self._subject, Way((), token.at)
        if self._is_mark("("):
            self._take()
            condition = self.condition(self.expression(_PIPE))
            self._expect(")", f"`{token.text}` needs exactly one condition")
        else:
            condition = self.condition(self._subject)
        self._subject = before
        self._each -= 1
        return condition


def _textual(name: str, subject: Value, token: Token) -> Value:
    if isinstance(subject, Measured) and subject.name == "length" and name != "type":
        raise BadJq("the result of `length` is a number", token.at)
    return subject


def _gives(value: Value | Fixed) -> str:
    """The kind of a value, if that is certain; empty if it depends on the payload."""
    if isinstance(value, Way):
        return ""
    if isinstance(value, Measured):
        return "number" if value.name == "length" else "text"
    if isinstance(value.value, Number):
        return "number"
    return "text" if isinstance(value.value, str) else "other"


def _check_kinds(operator: Operator, left: Value, right: Value | Fixed) -> None:
    kinds = _gives(left), _gives(right)
    if "other" in kinds and operator not in {"==", "!="}:
        raise BadJq(
            f"`{operator}` compares numbers or strings; use == or != with null, true and false",
            right.at,
        )
    if "" not in kinds and kinds[0] != kinds[1]:
        raise BadJq(f"a {kinds[0]} is never equal to this", right.at)


def _refuse_trap(subject: Way, parts: list[Condition]) -> None:
    """Refuse `.a | contains("x") and .b == 1`, which is about `.a.b`, and was not meant so.

    A text or an array has no keys, so no payload could ever satisfy both sides.
    """
    mine = subject.steps
    ways = [way for part in parts for way in _ways(part)]
    is_of_text = any(isinstance(part, Piece) and _start(part.of).steps == mine for part in parts)
    for way in ways:
        inner = way.steps[len(mine) : len(mine) + 1]
        if is_of_text and inner and isinstance(inner[0], str):
            raise BadJq(
                "everything after `|` applies to the value before it: put parentheses around"
                " `.a | contains(…)`, as in `(.a | contains(…)) and .b == 1`",
                way.at,
            )


def _start(value: Value) -> Way:
    while isinstance(value, Measured):
        value = value.of
    return value


def _ways(condition: Condition, *, inside: bool = False) -> Iterator[Way]:
    """Those that begin where the condition stands; `inside` also those of elements."""
    if isinstance(condition, Joined):
        for part in condition.parts:
            yield from _ways(part, inside=inside)
    elif isinstance(condition, Not):
        yield from _ways(condition.of, inside=inside)
    elif isinstance(condition, Compare):
        yield _start(condition.left)
        if not isinstance(condition.right, Fixed):
            yield _start(condition.right)
    else:
        yield _start(condition.of)
        if inside and isinstance(condition, Each):
            yield from _ways(condition.condition, inside=True)
