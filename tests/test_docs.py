"""The documentation as a test: what a page lists must be what there is.

`make docs` writes the parts that are generated: in docs/tree.md the tree, with the first line of
each module's docstring as its purpose, in docs/formats.md the registry of keys, and in
docs/config.md everything that can be set.
"""

import ast
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import pytest

from corvo import config
from corvo.kv.keys import SPACES
from corvo.model import EventType
from corvo.tui.keys import key_table as key_bindings
from tests import cli_reference

ROOT: Final = Path(__file__).parent.parent
ARCHITECTURE: Final = ROOT / "docs" / "ARCHITECTURE.md"
TREE_PAGE: Final = ROOT / "docs" / "tree.md"
TREE: Final = re.compile(
    r"(?<=<!-- tree: `make docs` writes this -->\n).*?(?=<!-- /tree -->)", re.DOTALL
)
FORMATS: Final = ROOT / "docs" / "formats.md"
KEYS: Final = re.compile(
    r"(?<=<!-- keys: `make docs` writes this -->\n).*?(?=<!-- /keys -->)", re.DOTALL
)
CONFIG: Final = ROOT / "docs" / "config.md"
SETTINGS: Final = re.compile(
    r"(?<=<!-- config: `make docs` writes this -->\n).*?(?=<!-- /config -->)", re.DOTALL
)
EVENTS: Final = ROOT / "docs" / "events.md"
TYPES: Final = re.compile(
    r"(?<=<!-- events: `make docs` writes this -->\n).*?(?=<!-- /events -->)", re.DOTALL
)
CLI: Final = ROOT / "docs" / "cli.md"
REFERENCE: Final = re.compile(
    r"(?<=<!-- commands: `make docs` writes this -->\n).*?(?=<!-- /commands -->)", re.DOTALL
)
COMMON: Final = re.compile(
    r"(?<=<!-- common: `make docs` writes this -->\n).*?(?=<!-- /common -->)", re.DOTALL
)
TOP: Final = ROOT / "docs" / "top.md"
TOP_KEYS: Final = re.compile(
    r"(?<=<!-- top: `make docs` writes this -->\n).*?(?=<!-- /top -->)", re.DOTALL
)
KINDS: Final = ("feature", "fix", "break", "op", "internal")

PATH: Final = r"(?:[\w.-]+/)*[\w-]+\.(?:py|toml|txt)"
NAME: Final = r"`(?![\w.]*\.py`)[A-Za-z_][\w.]*`"
NAMED: Final = re.compile(rf"`(?:corvo/)?({PATH})`(\s+{NAME}(?:(?:,| and)\s+{NAME})*)")
"""A file in a page, and the names that directly follow it: `cli.py` `main`, `usage`."""
METHOD: Final = re.compile(r"`([A-Z]\w*\.[a-z_]\w*)`")

PAGES: Final = sorted(
    page
    for pattern in (
        "*.md",
        "changes/*.md",
        "docs/**/*.md",
        "tests/**/*.md",
        "bench/**/*.md",
        "examples/**/*.md",
        "helm/**/*.md",
    )
    for page in ROOT.glob(pattern)
)


MAINTAINERS: Final = (
    ARCHITECTURE,
    TREE_PAGE,
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("formats", "mirror", "performance", "raft")),
    *(ROOT / "docs" / f"{name}.md" for name in ("router", "shard")),
    *sorted((ROOT / "docs" / "adr").glob("*.md")),
)
"""The pages that name files, functions and classes of the code."""


class Project(msgspec.Struct, rename="kebab"):
    """The part of pyproject's `[project]` that names packages."""

    dependencies: list[str]
    optional_dependencies: dict[str, list[str]]


class BuildSystem(msgspec.Struct):
    requires: list[str]


class PyProject(msgspec.Struct, rename="kebab"):
    project: Project
    build_system: BuildSystem

    @property
    def packages(self) -> set[str]:
        """Every package named in pyproject.toml, without its range."""
        groups = self.project.optional_dependencies.values()
        wanted = [*self.project.dependencies, *self.build_system.requires, *chain(*groups)]
        return {re.split(r"[^\w.-]", requirement)[0] for requirement in wanted}


def test_the_tree_in_the_page_is_the_tree_on_disk() -> None:
    drawn = TREE.search(TREE_PAGE.read_text())

    assert drawn is not None, "docs/tree.md has lost its markers"
    assert drawn[0] == tree(), f"run `make docs`, or paste this:\n\n{tree()}"


def test_the_keys_in_the_formats_page_are_those_of_the_registry() -> None:
    drawn = KEYS.search(FORMATS.read_text())

    assert drawn is not None, "docs/formats.md has lost its key markers"
    assert drawn[0] == key_table(), f"run `make docs`, or paste this:\n\n{key_table()}"


def test_the_types_in_the_events_page_are_those_that_there_are() -> None:
    drawn = TYPES.search(EVENTS.read_text())

    assert drawn is not None, "docs/events.md has lost its markers"
    assert drawn[0] == event_table(), f"run `make docs`, or paste this:\n\n{event_table()}"


def test_the_settings_in_the_config_page_are_those_that_can_be_set() -> None:
    drawn = SETTINGS.search(CONFIG.read_text())

    assert drawn is not None, "docs/config.md has lost its markers"
    assert drawn[0] == setting_table(), f"run `make docs`, or paste this:\n\n{setting_table()}"


def test_the_commands_in_the_page_are_those_that_there_are() -> None:
    page = CLI.read_text()
    drawn, common = REFERENCE.search(page), COMMON.search(page)

    assert drawn is not None, "docs/cli.md has lost its markers"
    assert drawn[0] == cli_reference.reference(), "run `make docs`"
    assert common is not None, "docs/cli.md has lost its markers"
    assert common[0] == cli_reference.common(), "run `make docs`"


def test_the_keys_in_the_page_of_top_are_those_of_its_table() -> None:
    drawn = TOP_KEYS.search(TOP.read_text())

    assert drawn is not None, "docs/top.md has lost its markers"
    assert drawn[0] == key_bindings(), f"run `make docs`, or paste this:\n\n{key_bindings()}"


def test_every_make_target_is_explained() -> None:
    guides = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    makefile = (ROOT / "Makefile").read_text()

    targets = re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE)
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)

    assert targets
    assert sorted(targets) == sorted(" ".join(phony).split()), "a target lacks ## help or .PHONY"
    missing = [target for target in targets if f"`make {target}" not in guides]
    assert not missing, f"say in README.md or CONTRIBUTING.md what these are for: {missing}"


def test_every_decision_is_listed() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text()

    listed = re.findall(r"^\| \[(\d{4})\]\((\d{4}-[\w-]+\.md)\)", index, re.MULTILINE)
    written = [path.name for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))]

    assert [name for _, name in listed] == written
    assert [number for number, _ in listed] == [name[:4] for name in written]


@pytest.mark.parametrize("section", ["Context", "Decision", "Consequences", "What would change"])
def test_every_decision_has_its_sections(section: str) -> None:
    for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"):
        assert f"\n## {section}" in path.read_text(), f"{path.name} has no section {section!r}"


def test_every_change_note_has_a_kind() -> None:
    notes = [path.name for path in (ROOT / "changes").glob("*.md") if path.name != "README.md"]

    wrong = [name for name in notes if not re.fullmatch(rf"[\w-]+\.({'|'.join(KINDS)})\.md", name)]

    assert not wrong, f"name them <slug>.<kind>.md with a kind of {KINDS}: {wrong}"


def test_a_release_moves_the_notes_into_the_changelog(tmp_path: Path) -> None:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("how to write a note\n")
    (tmp_path / "changes" / "pause.feature.md").write_text("Queues can be paused.\n")
    (tmp_path / "changes" / "ack.fix.md").write_text("A late ack is refused\nwith its reason.\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n<!-- releases -->\n\n## 0.1.0\n\nOld.\n")

    script = runpy.run_path(str(ROOT / "changes" / "release.py"))
    script["release"](tmp_path, "0.2.0", "2030-01-31")

    assert (tmp_path / "CHANGELOG.md").read_text() == (
        "# Changes\n\n<!-- releases -->\n\n"
        "## 0.2.0 (2030-01-31)\n\n"
        "### Features\n\n- Queues can be paused.\n\n"
        "### Fixes\n\n- A late ack is refused\n  with its reason.\n\n"
        "## 0.1.0\n\nOld.\n"
    )
    assert [path.name for path in (tmp_path / "changes").iterdir()] == ["README.md"]


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()

    explained = re.findall(r"^\| `([\w.-]+)` \|", page, re.MULTILINE)

    assert sorted(explained) == sorted(pyproject().packages)


def test_every_dependency_is_pinned() -> None:
    pins = (ROOT / "requirements" / "constraints.txt").read_text()

    pinned = set(re.findall(r"^([\w.-]+)==", pins, re.MULTILINE))

    assert pyproject().packages <= pinned


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)

    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in link]

    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("name", [page.name for page in MAINTAINERS])
def test_every_file_and_name_of_the_code_in_a_page_exists(name: str) -> None:
    text = next(page for page in MAINTAINERS if page.name == name).read_text()

    files = {path for path in re.findall(rf"`({PATH})`", text) if not found_file(path)}
    files |= {
        folder
        for folder in re.findall(r"`((?:[a-z_]+/)+)`", text)
        if not any((place / folder).is_dir() for place in (ROOT, ROOT / "corvo"))
    }
    names = {
        f"{path}: {one}"
        for path, following in NAMED.findall(text)
        for one in re.findall(r"`([\w.]+)`", following)
        if found_file(path) and not one.endswith(".py") and one not in names_in(found_file(path))
    }
    methods = set(METHOD.findall(text)) - all_names()

    assert not files, "these files are not in corvo/, tests/ or the root: correct the page"
    assert not names, "these names are not defined in these files: correct the page"
    assert not methods, "no class has these: correct the page"


def test_a_name_that_is_not_in_its_file_is_found() -> None:
    [(path, following)] = NAMED.findall("1. `corvo/cli.py` `main`, `nothing.here`: finds it")

    assert (path, following) == ("cli.py", " `main`, `nothing.here`")
    assert "main" in names_in(found_file("cli.py"))
    assert "nothing.here" not in names_in(found_file("cli.py"))
    assert {"Replica.submit", "Command"} <= all_names()
    assert found_file("shard/nothing.py") is None


def anchors(page: Path) -> set[str]:
    """What the headings of a page can be linked as."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def pyproject() -> PyProject:
    return msgspec.convert(tomllib.loads((ROOT / "pyproject.toml").read_text()), PyProject)


# ---- Names of the code.


def found_file(path: str) -> Path | None:
    """A file as a page names it: from the root, below corvo/ or tests/, or by its name alone."""
    places = [ROOT / path, ROOT / "corvo" / path, ROOT / "tests" / path]
    if "/" not in path:
        places += [*(ROOT / "corvo").rglob(path), *(ROOT / "tests").rglob(path)]
    return next((place for place in places if place.is_file()), None)


@cache
def names_in(path: Path | None) -> frozenset[str]:
    """What a module defines: functions, classes and constants, and the members of its classes."""
    assert path is not None
    return frozenset(defined(ast.parse(path.read_text()).body, ""))


def defined(body: Sequence[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
            case ast.ClassDef(name=name):
                yield prefix + name
                yield from defined(node.body, f"{name}.")
                yield from (
                    f"{name}.{each.attr}"
                    for each in ast.walk(node)
                    if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
                )
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name
            case ast.Assign(targets=targets):
                yield from (prefix + each.id for each in targets if isinstance(each, ast.Name))
            case _:
                pass


@cache
def all_names() -> frozenset[str]:
    """Every name that a module of the product or of the tests defines."""
    return frozenset(
        chain.from_iterable(
            map(names_in, chain((ROOT / "corvo").rglob("*.py"), (ROOT / "tests").rglob("*.py")))
        )
    )


# ---- The tree.


def tree() -> str:
    """Every package and module under corvo/, each with its purpose, as a fenced block."""
    rows = list(rows_of(ROOT / "corvo", depth=0))
    width = max(len(name) for name, _ in rows) + 2
    return "```\n" + "".join(f"{name:{width}}{purpose}\n" for name, purpose in rows) + "```\n"


def rows_of(package: Path, *, depth: int) -> list[tuple[str, str]]:
    """A package, its modules, and then the packages inside it."""
    indent = "  " * (depth + 1)
    rows = [("  " * depth + package.name + "/", purpose(package / "__init__.py"))]
    modules = [path for path in sorted(package.glob("*.py")) if path.name != "__init__.py"]
    rows += [(indent + module.name, purpose(module)) for module in modules]
    for inner in sorted(package.iterdir()):
        if any(inner.glob("*.py")):
            rows += rows_of(inner, depth=depth + 1)
    return rows


def purpose(module: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(module.read_text()))
    assert docstring, f"{module.relative_to(ROOT)} has no docstring to take its purpose from"
    return docstring.splitlines()[0]


# ---- The keys.


def key_table() -> str:
    """Every key space as a row: those of the original, and then ours."""
    rows = [("name", "layout", "value", "decided by"), ("---",) * 4]
    rows += [(it.name, f"`{it.layout}`", it.value, f"`{it.owner}`") for it in SPACES]
    # A bar would begin the next column, within a code span too.
    escaped = [[column.replace("|", r"\|") for column in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)


# ---- The settings.


def setting_table() -> str:
    """Every setting as a row."""
    rows = [("key", "default", "what it must be", "what it is"), ("---",) * 4]
    for key in config.KEYS.values():
        default = key.show(key.default)
        shown = f"`{default}`" if default else ""
        rows.append((f"`{key.name}`", shown, key.wanted, key.about))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


# ---- The events.


def event_table() -> str:
    """Every type of event as a row."""
    rows = [("type", "meaning"), ("---",) * 2]
    rows += [(f"`{each.public}`", each.text) for each in EventType]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    assert sys.argv[1:] == ["--rewrite"], "usage: python -m tests.test_docs --rewrite"
    TREE_PAGE.write_text(TREE.sub(lambda _: tree(), TREE_PAGE.read_text()))
    CONFIG.write_text(SETTINGS.sub(lambda _: setting_table(), CONFIG.read_text()))
    FORMATS.write_text(KEYS.sub(lambda _: key_table(), FORMATS.read_text()))
    TOP.write_text(TOP_KEYS.sub(lambda _: key_bindings(), TOP.read_text()))
    EVENTS.write_text(TYPES.sub(lambda _: event_table(), EVENTS.read_text()))
    page = REFERENCE.sub(lambda _: cli_reference.reference(), CLI.read_text())
    CLI.write_text(COMMON.sub(lambda _: cli_reference.common(), page))
