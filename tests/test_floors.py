"""The floors: docs/ARCHITECTURE.md draws them from the contracts that the linter checks.

    python -m tests.test_floors --rewrite

Each floor is a line of `layers` in pyproject.toml, and the comment behind it says what it is for.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parent.parent
ARCHITECTURE: Final = ROOT / "docs" / "ARCHITECTURE.md"
DRAWING: Final = re.compile(
    r"(?<=<!-- floors: `make docs` writes this -->\n).*?(?=<!-- /floors -->)", re.DOTALL
)
CONTRACT: Final = re.compile(
    r'^name = "(Floors[^"]*)"\n.*?^layers = \[\n(.*?)^\]', re.DOTALL | re.MULTILINE
)
WIDTH: Final = 46
"""Of the column of modules."""
FLOOR: Final = re.compile(r'^ +"([^"]+)",(?: +# (.*))?$', re.MULTILINE)


class Floor(msgspec.Struct, frozen=True):
    """One line of a contract."""

    modules: tuple[str, ...]
    purpose: str


def contracts(text: str) -> Iterator[tuple[str, list[Floor]]]:
    """The name of each contract of floors in a pyproject.toml, and its floors from the top."""
    for name, layers in CONTRACT.findall(text):
        yield (
            name,
            [
                Floor(tuple(re.split(r" *[|:] *", modules)), purpose)
                for modules, purpose in FLOOR.findall(layers)
            ],
        )


def drawing(text: str) -> str:
    """All contracts as headings and blocks of text."""
    parts = []
    for name, floors in contracts(text):
        rows = [row for floor in floors for row in rows_of(floor)]
        width = max(len(modules) for modules, _ in rows) + 2
        drawn = "".join(f"{modules:{width}}{purpose}".rstrip() + "\n" for modules, purpose in rows)
        parts.append(f"**{name}**\n\n```\n{drawn}```\n")
    return "\n".join(parts)


def rows_of(floor: Floor) -> list[tuple[str, str]]:
    """Its modules in as many rows as they need, the purpose beside the first."""
    lines = wrap(", ".join(floor.modules), WIDTH, break_long_words=False)
    return [(lines[0], floor.purpose), *((line, "") for line in lines[1:])]


def test_the_drawing_is_made_from_the_contracts_that_the_linter_checks() -> None:
    drawn = DRAWING.search(ARCHITECTURE.read_text())
    wanted = drawing((ROOT / "pyproject.toml").read_text())

    assert drawn is not None, "docs/ARCHITECTURE.md has lost its floor markers"
    assert drawn[0] == wanted, "run `make docs`"


def test_every_floor_says_what_it_is_for() -> None:
    text = (ROOT / "pyproject.toml").read_text()

    found = [(name, floor) for name, floors in contracts(text) for floor in floors]

    assert found
    assert not [f"{name}: {floor.modules}" for name, floor in found if not floor.purpose]


def test_a_contract_that_changes_changes_the_drawing() -> None:
    text = (
        'name = "Floors of a house"\ntype = "layers"\nlayers = [\n'
        '    "roof",  # keeps the rain out\n    "walls | (windows)",  # hold the roof\n]\n'
    )

    assert drawing(text) == (
        "**Floors of a house**\n\n```\n"
        "roof              keeps the rain out\n"
        "walls, (windows)  hold the roof\n```\n"
    )
    assert drawing(text.replace("roof", "attic")) != drawing(text)


if __name__ == "__main__":
    assert sys.argv[1:] == ["--rewrite"], "usage: python -m tests.test_floors --rewrite"
    made = drawing((ROOT / "pyproject.toml").read_text())
    ARCHITECTURE.write_text(DRAWING.sub(lambda _: made, ARCHITECTURE.read_text()))
