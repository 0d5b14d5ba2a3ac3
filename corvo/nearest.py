"""The nearest known name to an unknown one: the hint of every error about a name."""

import difflib
from functools import lru_cache
from typing import Final

_LENGTH_MAX: Final = 64
"""Nothing of ours is longer, and a comparison takes time by the square of the length."""


@lru_cache(maxsize=1_024)
def nearest(name: str, known: tuple[str, ...]) -> str:
    """The known name that is most like another one; empty when none is."""
    if len(name) > _LENGTH_MAX:
        return ""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return near[0] if near else ""
