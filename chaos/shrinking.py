"""A smaller set of faults that still breaks the same promise."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(items: Sequence[T], breaks: Callable[[Sequence[T]], bool], tries_max: int) -> list[T]:
    """The smallest part of `items` that was found to break, after so many tries at most.

    Halves are left out first, then quarters and so on (delta debugging, Zeller 2002).
    """
    kept = list(items)
    parts = 2
    tries = 0
    while kept and tries < tries_max:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            tries += 1
            if breaks(rest):
                kept = rest
                parts = max(2, parts - 1)
                break
            if tries >= tries_max:
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(kept))
    return kept
