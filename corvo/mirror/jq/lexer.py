"""Tokens of a `payload_jq` expression, each with its position."""

import re
from typing import Final, Literal, NamedTuple, TypeAlias

SOURCE_BYTES_MAX: Final = 4_096
INDEX_MAX: Final = 999_999_999
"""Of an array: more than any payload holds."""

Kind: TypeAlias = Literal["field", "string", "number", "word", "mark", "end"]


class BadJq(Exception):
    """An expression that is not of the subset, and why."""

    def __init__(self, error: str, at: int) -> None:
        super().__init__(f"{error} (at character {at + 1})")
        self.error = error
        self.at = at
        """The place in the expression that the error speaks of, counted in characters from 0."""


class Token(NamedTuple):
    """One token."""

    kind: Kind
    text: str
    """Of a field its name, of a string what it says, of everything else how it is written."""
    at: int


_SPACE: Final = re.compile(r"[ \t\r\n]*")
_FIELD: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MARK: Final = re.compile(r"==|!=|<=|>=|[.<>|()\[\];,]")
_PLAIN: Final = re.compile(r'[^"\\]+')
_HEX: Final = re.compile(r"[0-9A-Fa-f]{4}")
_ESCAPES: Final = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}

_FOREIGN: Final = (
    ("..", "`..` is not supported: write the path to the value, as in `.a.b`"),
    ("?", "`?` is not needed: a path that does not exist is null"),
    ("//", "`//` is not supported: use `and`, `or` and `not`"),
    ("=", "`=` is an assignment: use `==` to compare"),
    ("&", "use `and`"),
    ("!", "use `!=`, or write `not` after the condition: `(…) | not`"),
    ("'", 'a text stands between double quotes: "…"'),
    ("$", "variables are not of the subset"),
    ("#", "comments are not of the subset"),
    ("{", "objects are not supported"),
    ("@", "formats are not supported"),
    (":", "slices are not supported"),
    ("~", "regular expressions are not supported: use contains, startswith or endswith"),
    *((sign, f"`{sign}` is not supported: there is no arithmetic") for sign in "+-*/%"),
)
"""Prefixes of tokens that are not supported, and the errors for them."""


def tokens(source: str) -> list[Token]:
    """The tokens of an expression; the last one is of kind `end`. Raises `BadJq`."""
    if len(source.encode("utf-8", "replace")) > SOURCE_BYTES_MAX:
        raise BadJq(f"expected an expression of at most {SOURCE_BYTES_MAX} bytes", 0)
    found: list[Token] = []
    at = _after_space(source, 0)
    while at < len(source):
        token, end = _token(source, at)
        found.append(token)
        at = _after_space(source, end)
    found.append(Token("end", "", len(source)))
    return found


def _after_space(source: str, at: int) -> int:
    match = _SPACE.match(source, at)
    assert match is not None
    return match.end()


def _token(source: str, at: int) -> tuple[Token, int]:
    if source[at] == '"':
        return _string(source, at)
    if (match := _FIELD.match(source, at)) is not None:
        return Token("field", match[1], at), match.end()
    if (match := _NUMBER.match(source, at)) is not None:
        _refuse_other_numbers(source, at, match.end())
        return Token("number", match[0], at), match.end()
    if (match := _WORD.match(source, at)) is not None:
        return Token("word", match[0], at), match.end()
    match = _MARK.match(source, at)
    if match is None or source.startswith("..", at):
        raise BadJq(_foreign(source, at), at)
    if match[0] == ".":
        _refuse_other_keys(source, match.end())
    return Token("mark", match[0], at), match.end()


def _foreign(source: str, at: int) -> str:
    for beginning, error in _FOREIGN:
        if source.startswith(beginning, at):
            return error
    return f"unexpected character {source[at]!r}"


def _refuse_other_numbers(source: str, at: int, end: int) -> None:
    rest = source[end : end + 1]
    if rest and (rest in "._" or rest.isalnum()):
        raise BadJq("expected a number as in JSON, such as 10, -0.5 or 1e9", at)


def _refuse_other_keys(source: str, end: int) -> None:
    rest = source[end : end + 1]
    if rest.isdigit():
        raise BadJq("expected a number as in JSON, such as 0.5", end - 1)
    if rest.isalnum():
        raise BadJq('a key with other characters needs quotes: ."…"', end)


def _string(source: str, start: int) -> tuple[Token, int]:
    parts: list[str] = []
    at = start + 1
    while at < len(source):
        if source[at] == '"':
            return Token("string", _checked("".join(parts), start), start), at + 1
        if source[at] == "\\":
            part, at = _escape(source, at)
        else:
            match = _PLAIN.match(source, at)
            assert match is not None
            part, at = match[0], match.end()
        parts.append(part)
    raise BadJq('the string that starts here has no closing "', start)


def _checked(text: str, at: int) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadJq("half of a surrogate pair is not a character", at)
    return text


def _escape(source: str, at: int) -> tuple[str, int]:
    """What the backslash at `at` begins, and where it ends."""
    letter = source[at + 1 : at + 2]
    if letter == "u":
        first, end = _code(source, at)
        if 0xD800 <= first < 0xDC00 and source.startswith("\\u", end):
            second, behind = _code(source, end)
            if 0xDC00 <= second < 0xE000:
                return chr(0x10000 + (first - 0xD800) * 0x400 + second - 0xDC00), behind
        return chr(first), end
    if letter == "(":
        raise BadJq(r"`\(` (a value in a string) is not supported", at)
    if letter not in _ESCAPES:
        raise BadJq(r'after \ expected one of " \ / b f n r t, or u and four hex digits', at)
    return _ESCAPES[letter], at + 2


def _code(source: str, at: int) -> tuple[int, int]:
    match = _HEX.match(source, at + 2)
    if match is None:
        raise BadJq(r"expected four hex digits after \u", at)
    return int(match[0], 16), match.end()
