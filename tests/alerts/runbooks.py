"""What a runbook names: metrics, recorded expressions, commands and paths of the HTTP API."""

import re
import shlex
from collections.abc import Iterator
from typing import Final

_METRIC: Final = re.compile(r"\bcorvo_[a-z0-9_]+\b")
_RECORDED: Final = re.compile(r"\bcorvo:[a-z0-9_]+:[a-z0-9_]+\b")
_PARTS: Final = re.compile(r"_(bucket|sum|count)$")
_BLOCK: Final = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE: Final = re.compile(r"`([^`\n]+)`")


def metrics_in(text: str) -> Iterator[str]:
    """The metrics that a text names; a part of a histogram as the histogram."""
    for name in _METRIC.findall(text):
        yield _PARTS.sub("", name)


def recorded_in(text: str) -> list[str]:
    """The recorded expressions that a text names."""
    return _RECORDED.findall(text)


def blocks_in(page: str) -> list[str]:
    """The commands in blocks of a page, as one text for each block."""
    return _BLOCK.findall(page)


def commands_in(page: str) -> Iterator[list[str]]:
    """The words of each command of a page, in blocks and in sentences, up to a pipe."""
    lines = [line for block in blocks_in(page) for line in block.splitlines()]
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    for line in [*lines, *_INLINE.findall(prose)]:
        if re.match(r"(corvo|curl|kubectl) ", line):
            words = shlex.split(line)
            yield words[: words.index("|")] if "|" in words else words


def searched_in(page: str) -> Iterator[str]:
    """The metrics that a page searches for with grep, each choice of a pattern by itself."""
    for pattern in re.findall(r"grep -E '\^(corvo_[^']*)'", page):
        yield from (_PARTS.sub("", name) for name in _choices(pattern))


def _choices(pattern: str) -> Iterator[str]:
    """The names that a pattern of choices like `a_(b|c)_(d|e)` stands for."""
    start, opened, rest = pattern.partition("(")
    if not opened:
        yield start
        return
    inner, _, rest = rest.partition(")")
    for choice in inner.split("|"):
        yield from _choices(f"{start}{choice}{rest}")
