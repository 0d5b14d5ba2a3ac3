"""The conformance list: what the Raft paper and other implementations prove, and where we do.

`RULES` says each rule in a line; the ids are kept for ever, so that a test, a page and a discussion
can name one. A test says which rules it proves with `@pytest.mark.conformance("P01", ...)`. Rules
that nothing here can break are in `DECLINED`, with the reason.

`python -m tests.raft.conformance` writes docs/raft-conformance.md from the two and from the
markers, which are read from the source: nothing is imported and nothing is run.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.raft.conformance_rules import DECLINED, GROUPS, RULES

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = ROOT / "docs" / "raft-conformance.md"
WHOLE_FILE: Final = "test_whole_file"
"""The name for all tests of a file, where `pytestmark` marks them together."""


class Inconsistent(Exception):
    """The list, its exceptions and the markers do not fit together; the message says where."""


@dataclass(frozen=True)
class Cover:
    """One marker: a test and a rule that it says it proves."""

    rule: str
    path: str
    test: str


# ---- The markers.


def covers(root: Path = ROOT) -> list[Cover]:
    """Every marker in the tests, by rule and then by place. Raises `Inconsistent`."""
    found = [
        cover
        for path in sorted((root / "tests").rglob("test_*.py"))
        for cover in covers_in(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    ]
    return sorted(found, key=lambda cover: (cover.rule, cover.path, cover.test))


def covers_in(path: str, text: str) -> Iterator[Cover]:
    """The markers of one file, a rule at most once a test."""
    if "mark.conformance" not in text:
        return
    module = ast.parse(text)
    claimed = 0
    for node in ast.walk(module):
        test, marked = _marked(node)
        markers = [marker for expression in marked for marker in _markers(expression)]
        claimed += len(markers)
        for rule in dict.fromkeys(rule for marker in markers for rule in _rules(path, marker)):
            yield Cover(rule, path, test)
    if claimed != len(_markers(module)):
        raise Inconsistent(f"{path}: a conformance marker stands where no test is marked by it")


def _marked(node: ast.AST) -> tuple[str, list[ast.expr]]:
    """The test that a statement marks, and where its markers are to be found."""
    match node:
        case ast.FunctionDef(name=name) if name.startswith("test_"):
            return name, node.decorator_list
        case ast.Assign(targets=[ast.Name(id="pytestmark")]):
            return WHOLE_FILE, [node.value]
        case _:
            return "", []


def _markers(tree: ast.AST) -> list[ast.Call]:
    """Every `pytest.mark.conformance(...)`, also one in the marks of a `pytest.param`."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.conformance"
    ]


def _rules(path: str, marker: ast.Call) -> list[str]:
    rules = [word.value for word in marker.args if isinstance(word, ast.Constant)]
    named = [rule for rule in rules if isinstance(rule, str) and rule in RULES]
    if not named or len(named) != len(marker.args) or marker.keywords:
        place = f"{path}:{marker.lineno}"
        raise Inconsistent(f"{place}: not ids of the list, as literals: {ast.unparse(marker)}")
    return named


# ---- What fits together.


def gaps(found: Iterable[Cover]) -> list[str]:
    """What keeps the list from being whole: rules proven nowhere, or proven and declined."""
    covered = {cover.rule for cover in found}
    return [
        *(f"{rule} is neither tested nor declined" for rule in RULES if _is_open(rule, covered)),
        *(f"{rule} is declined, and tested" for rule in RULES if rule in covered & {*DECLINED}),
        *(f"{rule} is declined, and no rule" for rule in DECLINED if rule not in RULES),
        *(f"{rule} is declined without a reason" for rule, why in DECLINED.items() if not why),
    ]


def _is_open(rule: str, covered: set[str]) -> bool:
    return rule not in covered and rule not in DECLINED


# ---- The page.


def page(found: list[Cover]) -> str:
    """The whole of docs/raft-conformance.md."""
    covered = {cover.rule for cover in found}
    proven = sum(rule in covered for rule in RULES)
    sections = "\n".join(_section(letter, found) for letter in GROUPS)
    return f"""\
# Conformance of the Raft library

What the Raft paper and the tests of three other implementations (etcd-io/raft, raft-rs and
hashicorp/raft) prove, said in our own words and as rules for this library, and what it needs
beyond them. Where a rule is about a switch that this library does not have, it says what holds here
instead.

Of {len(RULES)} rules, {proven} are proven by tests and {len(DECLINED)} do not apply, each with its
reason. `python -m tests.raft.conformance` writes this page; a test holds it to the tests there are.

{sections}"""


def _section(letter: str, found: list[Cover]) -> str:
    title, source = GROUPS[letter]
    rows = "".join(_row(rule, found) for rule in RULES if rule[0] == letter)
    return f"## {title}\n\n{source}\n\n| id | rule | proven by |\n|---|---|---|\n{rows}"


def _row(rule: str, found: list[Cover]) -> str:
    if rule in DECLINED:
        return f"| {rule} | {RULES[rule]} | *does not apply*: {DECLINED[rule]} |\n"
    tests = [cover for cover in found if cover.rule == rule]
    places: dict[str, list[str]] = {}
    for cover in tests:
        places.setdefault(cover.path, []).append(cover.test)
    told = "; ".join(_place(path, names) for path, names in places.items())
    return f"| {rule} | {RULES[rule]} | {told or '**open**'} |\n"


def _place(path: str, tests: list[str]) -> str:
    # Who reads the page knows the ids already.
    named = ", ".join(
        re.sub(r"^test_([a-z]\d+[ab]?_)*", "", test).replace("_", " ") for test in tests
    )
    return f"[{Path(path).stem}](../{path}): {named}"


def main() -> int:
    """Write the page, and say what is missing. The exit code says whether anything is."""
    found = covers()
    PAGE.write_text(page(found), encoding="utf-8")
    missing = gaps(found)
    print(*missing or ["every rule is tested or declined"], sep="\n")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
