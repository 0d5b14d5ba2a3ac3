"""Expressions and payloads for the tests of `payload_jq`, as strategies."""

import json
from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st

from tests.mirror.evaluator import (
    Ask,
    Behind,
    Both,
    Call,
    Chain,
    Compare,
    Each,
    Literal,
    Not,
    Number,
    Path,
    Side,
    Tree,
    Truth,
    spelled,
)

Draw = Callable[[st.SearchStrategy[object]], object]

KEYS = (
    "a",
    "b",
    "c",
    "and",
    "odd key",
    "café",
    'q"u\\o/te',
    "",
    "0",
    "a.b",
    "😀",
    "$[0]",
    "\x1b",
    "a\0",
)
TEXTS = (
    *("", "a", "A", "vip", "welcome-1", "welcome", "WELCOME", "é", "É", "😀", "\uffff", "\x7f"),
    *(
        "0",
        "1",
        "null",
        "true",
        '{"a":1}',
        "[1]",
        'q"u\\o/te',
        "\\u0000",
        "%",
        "_",
        "'; --",
        "\n",
        "a\0",
        "\0",
    ),
)
INTEGERS = (
    *("0", "-0", "1", "2", "-1", "5", "100", "9007199254740993", "9223372036854775807"),
    *("-9223372036854775808", "9223372036854775808", "18446744073709551616", "1" + "0" * 60),
)
REALS = (
    "0.0",
    "-0.0",
    "1.0",
    "0.5",
    "1e2",
    "100.0",
    "1E-2",
    "0.1",
    "-2.5",
    "1e400",
    "-1e400",
    "12.37",
)
PLAIN_NUMBERS = (
    "0",
    "1",
    "2",
    "-1",
    "5",
    "100",
    "0.0",
    "1.0",
    "0.5",
    "1e2",
    "0.1",
    "-2.5",
    "12.37",
)
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")

keys = st.sampled_from(KEYS)
texts = st.sampled_from(TEXTS)
steps = st.one_of(keys, st.sampled_from(("a", "b")), st.integers(min_value=-3, max_value=3))

REFUSALS: Final = ("everything after `|`", "levels of nesting")
"""Parts of the two refusals that an expression of these examples may meet."""


# Payloads, as they are written: with escapes, spaces, and keys that are there twice.


@st.composite
def written_text(draw: st.DrawFn, text: str) -> str:
    how = draw(st.sampled_from(("raw", "raw", "ascii", "escaped")))
    if how == "raw":
        return json.dumps(text, ensure_ascii=False)
    if how == "ascii":
        return json.dumps(text).replace("/", "\\/")
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    case = draw(st.sampled_from(("04x", "04X")))
    return '"' + "".join(f"\\u{code:{case}}" for code in codes) + '"'


@st.composite
def payloads(draw: st.DrawFn, numbers: tuple[str, ...] = INTEGERS + REALS, depth: int = 3) -> str:
    kinds = ["text", "number", "word", "array", "object", "object"]
    kind = draw(st.sampled_from(kinds if depth else kinds[:3]))
    space = draw(st.sampled_from(("", "", "", " ", "\n\t ")))
    if kind == "text":
        found = draw(written_text(draw(texts)))
    elif kind == "number":
        found = draw(st.sampled_from(numbers))
    elif kind == "word":
        found = draw(st.sampled_from(("true", "false", "null")))
    elif kind == "array":
        count = draw(st.integers(0, 3))
        found = (
            "[" + f"{space},".join(draw(payloads(numbers, depth - 1)) for _ in range(count)) + "]"
        )
    else:
        pairs = [
            draw(written_text(draw(st.sampled_from(("a", "b")) if draw(st.booleans()) else keys)))
            + f"{space}:"
            + draw(payloads(numbers, depth - 1))
            for _ in range(draw(st.integers(0, 4)))
        ]
        found = "{" + f",{space}".join(pairs) + "}"
    return f"{space}{found}{space}"


# Expressions: first a tree, then how it is written.


@st.composite
def trees(
    draw: st.DrawFn,
    numbers: tuple[str, ...] = INTEGERS + REALS,
    depth: int = 3,
    each: int = 2,
    subject: str = "any",
) -> Tree:
    """`subject` is what `.` is for certain: any, text or number."""
    kinds = ["compare", "compare", "ask"]
    if subject == "any":
        kinds += ["truth", "behind"]
    if subject == "number":
        kinds = ["compare"]
    if depth:
        kinds += ["not", "both", "both"]
    if depth and each and subject == "any":
        kinds.append("each")
    kind = draw(st.sampled_from(kinds))
    if kind == "compare":
        return draw(compares(numbers, subject))
    if kind == "ask":
        return draw(asks(numbers, subject))
    if kind == "truth":
        return Truth(draw(paths()))
    if kind == "behind":
        value, gives = draw(values("any"))
        return Behind(value, draw(trees(numbers, max(depth - 1, 0), each, gives)))
    if kind == "not":
        return Not(draw(trees(numbers, depth - 1, each, subject)))
    if kind == "both":
        name = draw(st.sampled_from(("and", "or")))
        sides = [draw(trees(numbers, depth - 1, each, subject)) for _ in range(2)]
        return Both(name, sides[0], sides[1])
    inner = Each(
        draw(st.sampled_from(("any", "all"))), draw(trees(numbers, depth - 1, each - 1, "any"))
    )
    return Behind(draw(paths()), inner) if draw(st.booleans()) else inner


@st.composite
def paths(draw: st.DrawFn) -> Path:
    return Path(tuple(draw(st.lists(steps, max_size=3))))


@st.composite
def values(draw: st.DrawFn, subject: str) -> tuple[Path | Call | Chain, str]:
    """A value, and what it is for certain."""
    links: list[Path | Call] = []
    if subject == "any" and draw(st.booleans()):
        links.append(draw(paths()))
    while draw(st.integers(0, 2)) == 0 and len(links) < 4:
        names = ["type"] if subject == "number" else ["length", "type", "ascii_downcase"]
        name = draw(st.sampled_from(names))
        links.append(Call(name))
        subject = "number" if name == "length" else "text"
    if not links:
        links.append(Path(()) if subject != "any" else draw(paths()))
    return links[0] if len(links) == 1 else Chain(tuple(links)), subject


@st.composite
def compares(draw: st.DrawFn, numbers: tuple[str, ...], subject: str) -> Tree:
    left, gives = draw(values(subject))
    operator = draw(st.sampled_from(OPERATORS))
    right: Side
    if subject == "any" and draw(st.integers(0, 3)) == 0:
        right, other = draw(values("any"))
        if "any" not in {gives, other} and gives != other:
            right = Path(("a",))
        return Compare(operator, left, right)
    right = draw(literals(numbers, gives, is_ordered=operator not in {"==", "!="}))
    if draw(st.integers(0, 3)) == 0:
        return Compare(operator, right, left)
    return Compare(operator, left, right)


@st.composite
def literals(draw: st.DrawFn, numbers: tuple[str, ...], gives: str, is_ordered: bool) -> Literal:
    kinds = ["text"] if gives == "text" else ["number"] if gives == "number" else ["text", "number"]
    if gives == "any" and not is_ordered:
        kinds.append("word")
    kind = draw(st.sampled_from(kinds))
    if kind == "text":
        return draw(texts)
    if kind == "number":
        return Number(draw(st.sampled_from(numbers)))
    return draw(st.sampled_from((True, False, None)))


@st.composite
def asks(draw: st.DrawFn, numbers: tuple[str, ...], subject: str) -> Tree:
    names = ["contains", "startswith", "endswith"] + (["has"] if subject == "any" else [])
    name = draw(st.sampled_from(names))
    if name == "has":
        ask = Ask(name, draw(st.one_of(keys, st.integers(0, 3))))
    elif name == "contains":
        ask = Ask(name, draw(literals(numbers, subject, is_ordered=False)))
    else:
        ask = Ask(name, draw(texts))
    if subject == "any" and draw(st.booleans()):
        return Behind(draw(paths()), ask)
    return ask


@st.composite
def written(draw: st.DrawFn, tree: Tree, level: int = 1) -> str:
    """A tree as an expression, with the parentheses that it needs and now and then some more."""
    text, own = draw(_written(tree))
    if own < level or draw(st.integers(0, 9)) == 0:
        return f"({text})"
    return text


PIPE, OR, AND, COMPARISON, ATOM = 1, 2, 3, 4, 5


@st.composite
def _written(draw: st.DrawFn, tree: Tree) -> tuple[str, int]:
    space = draw(st.sampled_from((" ", " ", "  ", "\n")))
    if isinstance(tree, Both):
        own = OR if tree.name == "or" else AND
        left, right = draw(written(tree.left, own)), draw(written(tree.right, own + 1))
        return f"{left}{space}{tree.name}{space}{right}", own
    if isinstance(tree, Not):
        return f"{draw(written(tree.condition))}{space}|{space}not", PIPE
    if isinstance(tree, Behind):
        value = draw(written_value(tree.value))
        return f"{value}{space}|{space}{draw(written(tree.condition))}", PIPE
    if isinstance(tree, Truth):
        return draw(written_value(tree.value)), ATOM
    if isinstance(tree, Compare):
        sides = [draw(written_side(one)) for one in (tree.left, tree.right)]
        return f"{sides[0]}{space}{tree.operator}{space}{sides[1]}", COMPARISON
    if isinstance(tree, Each):
        return f"{tree.name}({draw(written(tree.condition))})", ATOM
    return f"{tree.name}({spelled(tree.argument)})", ATOM


@st.composite
def written_side(draw: st.DrawFn, one: Side) -> str:
    if isinstance(one, Chain):
        return f"({draw(written_value(one))})"
    if isinstance(one, Path | Call):
        return draw(written_value(one))
    return spelled(one)


@st.composite
def written_value(draw: st.DrawFn, value: Path | Call | Chain) -> str:
    if isinstance(value, Chain):
        return " | ".join([draw(written_value(link)) for link in value.links])
    if isinstance(value, Call):
        return value.name
    text = ""
    for step in value.steps:
        if isinstance(step, int):
            text += f"[{step}]" if text else f".[{step}]"
        elif step.isidentifier() and step.isascii() and draw(st.booleans()):
            text += f".{step}"
        elif draw(st.booleans()):
            text += f".{draw(written_text(step))}"
        else:
            text += ("" if text else ".") + f"[{draw(written_text(step))}]"
    return text or "."
