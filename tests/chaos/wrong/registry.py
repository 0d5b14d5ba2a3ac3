"""Wrong histories: each is rejected by the stage that owns the broken promise, and by none before.

`WRONG` has one line for each: the stage, the rule, and a function that writes the history.
"""

from collections.abc import Callable
from typing import Final

from chaos.history import Record

Build = Callable[[], list[Record]]

WRONG: Final[list[tuple[str, str, Build]]] = []


def wrong(stage: str, rule: str) -> Callable[[Build], Build]:
    """Register a wrong history."""

    def register(build: Build) -> Build:
        WRONG.append((stage, rule, build))
        return build

    return register
