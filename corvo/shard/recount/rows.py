"""Reading of a whole store in pages, and how a finding is told."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from corvo.kv.store import Store

PAGE_BYTES: Final = 1 << 20
"""Of one page, about: documents are of very different sizes."""
_ROWS_MIN: Final = 4
_ROWS_MAX: Final = 64
"""Of one page: large documents may follow small ones, and their sizes are not known before."""


class Wrong(NamedTuple):
    """A key that is not as it must be."""

    space: str
    """The name of its space in `corvo.kv.keys`."""
    key: bytes
    problem: str


Tell: TypeAlias = Callable[[Wrong], None]


def rows(store: Store, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every key of a range with its value, in order. Raises `StoreDamaged`."""
    limit = _ROWS_MIN
    while True:
        found = store.scan(start, stop, limit=limit)
        yield from found
        if len(found) < limit:
            return
        start = found[-1][0] + b"\0"
        size = sum(len(key) + len(value) for key, value in found) // len(found) + 1
        limit = max(_ROWS_MIN, min(PAGE_BYTES // size, _ROWS_MAX))
