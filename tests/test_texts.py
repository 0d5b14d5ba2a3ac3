"""The texts that a user or operator reads: no phrase that a reader has to puzzle over.

Each banned phrase has the word to write instead, and a planted violation. Code in backticks is left
out: names of fields, states, metrics and events are promises.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from corvo import config
from corvo.cli import usage
from corvo.command_table import COMMANDS
from corvo.commands import _FLAGS
from corvo.model import ROLES, State
from corvo.router.node.families import FAMILIES
from corvo.router.openapi.document import document
from corvo.router.table import ROUTES

ROOT: Final = Path(__file__).parent.parent
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
PAGES: Final = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("changes/*.md")),
    *(
        f"docs/{name}.md"
        for name in (
            "ARCHITECTURE",
            "bulk",
            "cli",
            "config",
            "dependencies",
            "events",
            "formats",
            "glossary",
            "http",
            "jq",
            "kubernetes",
            "metrics",
            "coming-from-corvo-go",
            "mirror",
            "operations",
            "performance",
            "raft",
            "releasing",
            "router",
            "schedules",
            "search",
            "security",
            "shard",
            "semantics",
            "stream",
            "work",
        )
    ),
    "docs/README.md",
    "examples/README.md",
    *(f"helm/corvo/{name}.md" for name in ("CHANGELOG", "README", "UPGRADING")),
    *(
        path.relative_to(ROOT).as_posix()
        for folder in ("adr", "concepts", "howto", "runbooks", "tutorials")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
)
"""Pages that are held to the phrases below."""

BANNED: Final[tuple[tuple[str, str, str], ...]] = (
    (r"(?i)\b(who|what|which)ever\b", "name the thing", "Whatever is not asked for"),
    (r"(?i)\b(some|no|any|every)body\b", "name the client, process or key", "nobody can know"),
    (r"\ball that\b", "name the things", "all that a filter means"),
    (r"\bpassed over\b", "ignored", "unknown fields are passed over"),
    (r"\banew\b", "again", "its lease begins anew"),
    (r"\bgiven up\b", "expired, or cancelled", "a job that is given up"),
    (r"\bheard?\b|\bhears\b", "name the request", "workers heard of lately"),
    (r"\b(told|tells)\b", "says, gets or reports", "its worker is told"),
    (
        r"\b(deaf|hungry|reign|mended|mend)\b",
        "not fetching, waiting, term, fix",
        "the worker is deaf",
    ),
    (
        r"(?<!there )\b(is|are) none\b|\bis no key\b|\bnone of ours\b",
        "invalid, or unknown",
        "the key is none",
    ),
    (r"\bno number of\b", "what it is instead", "a cursor is no number of rows"),
    (r"\bNeither\b", "with neither, or both sentences positive", "Neither a nor b is c"),
    (r"\b(is|are|be) meant\b", "matches, or selects", "the jobs that are meant"),
    (r"\b(goes|go|going|gone|went) on\b", "continues", "the others go on"),
    (r"\b(begins|begin) so\b", "prefix", "whose id begins so"),
    (
        r"\b(does|do|will) not do\b|\bwhat would do\b",
        "invalid, or the expected form",
        "what would do",
    ),
    (r"\bso (many|much|soon)\b", "the number, or the limit", "at most so many"),
    (r"\bHad (it|there)\b|\bShould the\b", "if", "Had it failed"),
    (r"\bfor ever\b|\bforever\b", "never, or cannot be changed", "fixed for ever"),
    (
        r"\bthe original('s)?\b",
        "docs/coming-from-corvo-go.md has the history",
        "clients of the original",
    ),
    (r"\bas it always was\b|\bused to\b", "the present", "as it always was"),
    (r"\b(comes?|came) in\b(?! (any|time))", "arrives, or listens", "where clients come in"),
    (r"\b(gives?|given) out\b", "fetched, or leased", "jobs are given out"),
    (r"\bmade anew\b|\bmakes it anew\b", "rebuilt", "the file is made anew"),
    (r"\btoo,? too\b|\bas well, too\b", "one of them", "the lease is over, too, too"),
    (r"\b(said|say) (of|wrongly)\b", "report, or invalid", "say of jobs that they failed"),
)
"""A pattern, what to write instead, and a text that has it."""

SHORT: Final[tuple[tuple[str, str, str], ...]] = (
    (
        r"(?i)(?<!API )(?<!admin )(?<!unique )(?<!request )(?<!private )(?<!Idempotency-)\bkey\b",
        "API key, unique key, request key",
        "The key may not do that.",
    ),
    (r"(?<!lease )\btoken\b", "lease token", "The token of the job."),
    (r"^(It|They|Its|Their)\b", "start with a noun", "It was done."),
    (r"^(Whose|How|What|Who|When|Where)\b", "start with a noun", "Whose id begins with this."),
)
"""The same for texts that are read alone: a field, a setting, a metric, a route."""


def find(text: str, rules: tuple[tuple[str, str, str], ...]) -> Iterator[str]:
    """What is wrong with a text."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    for pattern, instead, _ in rules:
        for found in re.finditer(pattern, prose):
            near = prose[max(0, found.start() - 30) : found.end() + 20].replace("\n", " ")
            yield f"...{near}...: write {instead}"


def of_openapi(value: object, at: str = "") -> Iterator[tuple[str, str]]:
    """Every description and summary in the document, with its place."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name in {"description", "summary"} and isinstance(item, str):
                yield f"OpenAPI{at}", item
            elif name not in {"example", "examples"}:
                yield from of_openapi(item, f"{at}.{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from of_openapi(item, f"{at}[{number}]")


def of_code() -> Iterator[tuple[str, str]]:
    """Every sentence in a string of the product that is not a docstring: errors, logs, help."""
    for path in sorted((ROOT / "corvo").rglob("*.py")):
        tree = ast.parse(path.read_text())
        docs = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        asserted = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assert) and node.msg is not None
            for part in ast.walk(node.msg)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docs | asserted
                and node.value.count(" ") >= 2
            ):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def short_texts() -> list[tuple[str, str]]:
    """Texts that are read alone, with their places."""
    written: object = msgspec.json.decode(document(ROUTES, "1.2.3"))
    settings = ((f"setting {key.name}", key.about) for key in config.KEYS.values())
    metrics = ((f"metric {name}", family.help) for name, family in FAMILIES.items())
    flags = ((flag, text) for flag, (_, _, text) in _FLAGS.items())
    commands = ((f"command {name}", command.summary) for name, command in COMMANDS.items())
    return [*of_openapi(written), *settings, *metrics, *flags, *commands]


def complaints(texts: list[tuple[str, str]], rules: tuple[tuple[str, str, str], ...]) -> list[str]:
    return [f"{where}: {found}" for where, text in texts for found in find(text, rules)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_banned_phrase(page: str) -> None:
    found = complaints([(page, (ROOT / page).read_text())], BANNED)

    assert not found, "\n".join(found)


def test_no_text_that_is_read_alone_has_a_banned_phrase() -> None:
    texts = short_texts()

    found = complaints(texts, BANNED + SHORT)

    assert len(texts) > 1_500
    assert not found, "\n".join(found)


def test_no_error_log_or_help_text_has_a_banned_phrase() -> None:
    texts = list(of_code())

    found = complaints([*texts, ("corvo --help", usage())], BANNED)

    assert len(texts) > 500
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("pattern", "instead", "planted"), BANNED + SHORT)
def test_a_planted_phrase_is_found(pattern: str, instead: str, planted: str) -> None:
    found = list(find(f"The server `{planted}` works. {planted}", ((pattern, instead, planted),)))
    alone = list(find(planted, ((pattern, instead, planted),)))

    assert len(alone) == 1
    assert len(found) == (not pattern.startswith("^"))


def test_code_is_no_prose() -> None:
    assert not list(find("`deaf`\n```\nwhatever\n```\n", BANNED))
    assert list(find("a worker is deaf", BANNED))


# The glossary.


def terms() -> dict[str, str]:
    """The terms of the glossary, with their meanings."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", GLOSSARY.read_text(), re.MULTILINE)
    return dict(rows)


def test_the_glossary_has_each_term_once_in_order() -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(), re.MULTILINE)

    assert len(rows) > 40
    assert rows == sorted(set(rows), key=str.lower)


def test_every_term_of_the_glossary_is_used() -> None:
    pages = "\n".join(
        (ROOT / page).read_text().lower() for page in PAGES if page != "docs/glossary.md"
    )

    unused = [term for term in terms() if not re.search(rf"\b{term.lower()}", pages)]

    assert not unused


def test_the_glossary_names_every_state_and_role() -> None:
    meanings = terms()

    assert {f"`{state.value}`" for state in State} <= set(re.findall("`[a-z]+`", meanings["state"]))
    assert {f"`{role}`" for role in ROLES} <= set(re.findall("`[a-z]+`", meanings["role"]))
